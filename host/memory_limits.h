/* memory_limits.h: how much memory this process may still take, and what limits it.
 *
 * Reads /proc and the control groups each time it is asked. Never: changes a limit, allocates.
 */
#ifndef PLEC_HOST_MEMORY_LIMITS_H
#define PLEC_HOST_MEMORY_LIMITS_H

#include <stdbool.h>

#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes; UINT64_MAX: no limit, or unknown. */
struct plec_memory_limits {
    uint64_t available;    /* MemAvailable: free, or free for the asking */
    uint64_t memlock;      /* RLIMIT_MEMLOCK; none with CAP_IPC_LOCK */
    uint64_t cgroup_limit; /* of the group that leaves the least, v1 or v2 */
    uint64_t cgroup_left;  /* its limit less its use, file pages it could give back not counted */
    bool wsl;              /* Windows Subsystem for Linux, which pins about 1 GiB at most */
};

/* root: "" in earnest; tests put a tree of their own in front of /proc and /sys. memlock is always
 * the process's own. */
void plec_memory_limits_read(struct plec_memory_limits *out, const char *root);
/* The least of available and cgroup_left. */
uint64_t plec_memory_limits_left(const struct plec_memory_limits *limits);

enum { PLEC_MEMORY_LIMITS_TEXT_MAX = 256 };
/* "memlock 8.0 MiB, cgroup 24.00 GiB of which 1.20 GiB left, available 20.10 GiB", into buffer
 * [PLEC_MEMORY_LIMITS_TEXT_MAX]; what is no limit is left out. Returns buffer. */
const char *plec_memory_limits_text(char *buffer, const struct plec_memory_limits *limits);

enum { PLEC_BYTES_TEXT_MAX = 32 };
/* "960 bytes", "612.0 MiB", "22.61 GiB", into buffer [PLEC_BYTES_TEXT_MAX]. Returns buffer. */
const char *plec_bytes_text(char *buffer, uint64_t n_bytes);

#ifdef __cplusplus
}
#endif
#endif
