/* speeds.h: what this machine's disk, link and memory give, measured the way a streamer uses them.
 *
 * Owns nothing after a call. Each measurement takes about a second at most and says how far it is.
 */
#ifndef PLEC_TOOLS_SPEEDS_H
#define PLEC_TOOLS_SPEEDS_H

#include "device/device.h"
#include "host/extent.h"
#include "host/io.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Told after each piece of work; may be NULL. */
struct plec_speed_progress {
    void (*tell)(void *user, uint64_t n_bytes);
    void *user;
};

/* Ranges to read, in this order. */
struct plec_speed_reads {
    const struct plec_range *ranges; /* [n] */
    size_t n;
};

struct plec_disk_speed {
    double bytes_per_s; /* of reads that are large */
    double read_s;    /* that a read takes beside its bytes, with as many in flight as there are */
    uint64_t n_bytes; /* read for it */
    const char *engine, *cache; /* "io_uring", "direct", ...: literals */
};
struct plec_disk_args {
    struct plec_io_options io;
    uint32_t n_files;
    const char *(*path)(const void *user, uint32_t file);
    const void *user;
    struct plec_speed_reads small, large; /* of files below n_files */
};
/* Reads small ranges, then large ones, as many in flight as io and 64 MiB hold, each kind for half
 * a second at most and at least once. The two rates give both numbers; where the small ones are no
 * smaller than the large, or no slower, read_s is 0. PLEC_BAD_INPUT "NothingToRead";
 * PLEC_NO_MEMORY; PLEC_IO of the first read that failed. */
PLEC_MUST_USE enum plec_status plec_measure_disk(struct plec_disk_speed *out,
                                                 const struct plec_disk_args *args,
                                                 const struct plec_speed_progress *progress,
                                                 struct plec_error *err);

/* Bytes a second from pinned memory to the device, the median of several copies of 32 MiB in pieces
 * of 4 MiB. Statuses of the device. */
PLEC_MUST_USE enum plec_status plec_measure_link(double *bytes_per_s, struct plec_device *device,
                                                 struct plec_error *err);
/* Bytes a second at which the device reads its memory: on the CPU all its threads summing a buffer
 * that no cache holds, elsewhere from copies within the device, read and written bytes together. */
PLEC_MUST_USE enum plec_status plec_measure_memory(double *bytes_per_s, struct plec_device *device,
                                                   struct plec_error *err);

/* Bytes of the last-level cache of the processors; 0: not known. */
uint64_t plec_measure_cache_bytes(void);

#ifdef __cplusplus
}
#endif
#endif
