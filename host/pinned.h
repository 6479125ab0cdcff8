/* pinned.h: one arena of equal frames in host memory that a device can copy from.
 *
 * Made of slabs of at most 1 GiB: huge pages where the system gives them, bound to the device's
 * NUMA node before first touch (hwloc), written to once by several threads, pinned through the
 * device. A slab that cannot be had ends the growing, one that cannot be pinned ends the pinning:
 * what was obtained is used and reported with the limits that caused it. No slab is asked for that
 * the memory left does not hold: the system would end the process rather than say no.
 *
 * Owns: the slabs. Never: decides which extent is in which frame, how much of the machine may be
 * taken, or takes more than it was asked for. Frames pack exactly. Open and close are one thread's,
 * the rest reads only.
 */
#ifndef PLEC_HOST_PINNED_H
#define PLEC_HOST_PINNED_H

#include "device/device.h"
#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum plec_pin_mode {
    PLEC_PIN_PREFER,  /* pinned as far as it goes, pageable after that */
    PLEC_PIN_REQUIRE, /* all that was asked for, and pinned, or refused */
    PLEC_PIN_OFF
};

enum plec_pin_method {
    PLEC_PIN_REGISTER, /* our own memory, pinned by plec_device_pin */
    PLEC_PIN_ALLOCATE  /* plec_pinned_alloc: no huge pages or binding of ours, for systems whose
                          registered memory copies wrongly */
};

struct plec_pinned_options {
    uint64_t frame_bytes; /* a multiple of 4096, not 0 */
    uint64_t n_frames;    /* wanted, not 0 */
    uint64_t slab_bytes;  /* at most; 0: 256 MiB; a larger frame has a slab to itself */
    enum plec_pin_mode mode;
    enum plec_pin_method method;
    int32_t numa_node;  /* -1: the device's own, or no binding */
    uint32_t n_threads; /* that write to a slab first; 0: the processors available, 8 at most */
    /* For tests: called before slab k is mapped (step 0) and pinned (step 1); false fails it. */
    bool (*allow)(void *user, uint32_t slab, int step);
    void *user;
    const char *limits_root; /* for tests: see plec_memory_limits_read; NULL: the system's */
    struct plec_log log;
};

struct plec_pinned; /* opaque */

struct plec_pinned_info {
    uint64_t n_frames, frame_bytes;
    uint64_t asked_bytes, obtained_bytes, pinned_bytes;
    uint64_t huge_bytes;  /* of what was obtained, on huge pages */
    uint64_t waste_bytes; /* of slabs, in no frame */
    uint32_t n_slabs;
    int32_t numa_node; /* bound to; -1: to none */
    char limits[256];  /* "memlock 8.0 MiB, cgroup 24.00 GiB of which ..., available 20.10 GiB" and
                          the reason; empty when all was had */
};

/* PLEC_NO_MEMORY "PinnedMemory" when not one frame could be had, or, with require, when not all
 * could be had and pinned; the message gives asked, obtained, pinned, the reason and the limits,
 * and nothing stays taken. PLEC_BAD_INPUT "FrameTooLarge": over 1 GiB. Says how far it is each
 * second, and what is not as asked. */
PLEC_MUST_USE enum plec_status plec_pinned_open(struct plec_pinned **out,
                                                struct plec_device *device,
                                                const struct plec_pinned_options *options,
                                                struct plec_error *err);
void plec_pinned_get_info(struct plec_pinned_info *out, const struct plec_pinned *pool);
/* Start of frame i < n_frames, 4096-aligned. */
void *plec_pinned_frame(const struct plec_pinned *pool, uint64_t i);
/* Memory of slab i < n_slabs, for registering with io; all its bytes are frames. */
void *plec_pinned_slab(const struct plec_pinned *pool, uint32_t i, uint64_t *n_bytes);
/* NULL is nothing. */
void plec_pinned_close(struct plec_pinned *pool);

#ifdef __cplusplus
}
#endif
#endif
