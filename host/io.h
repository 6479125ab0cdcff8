/* io.h: reads of file ranges into memory, many in flight, completed in any order.
 *
 * Three engines behind one face: io_uring (liburing), a pool of pread threads, and the same pool
 * copying out of mappings; and two caches: direct (O_DIRECT) and buffered. A range may start and
 * end anywhere. Read directly, its aligned interior goes straight to memory; its ends come with
 * that read where the caller allows the bytes around them to be overwritten (slack), else through a
 * second, buffered descriptor. Short reads go on; EINTR, EAGAIN and ECANCELED are retried, a
 * thousand times at most; EINVAL from a direct read turns that one file to buffered, once, said
 * aloud and counted. io_uring refused (ENOSYS, EPERM, kernel.io_uring_disabled, a seccomp filter)
 * turns the engine to pread, once, said aloud and counted. Bytes in flight are bounded.
 *
 * Nothing is read ahead of what was asked. Where files are read buffered although they do not fit
 * the memory, whole pages are dropped behind the reads.
 *
 * Owns: descriptors, rings, threads. Never: allocates after open and add_file; decides what to
 * read. Any thread may submit, add files and read counters; one thread at a time reaps. With
 * io_uring, reads go on being started by submit and reap alone: a reaper must be there.
 */
#ifndef PLEC_HOST_IO_H
#define PLEC_HOST_IO_H

#include <stdbool.h>

#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_io;

enum plec_io_engine { PLEC_IO_AUTO, PLEC_IO_URING, PLEC_IO_PREAD, PLEC_IO_MMAP };
enum plec_io_cache { PLEC_CACHE_AUTO, PLEC_CACHE_DIRECT, PLEC_CACHE_BUFFERED };

/* A fault to inject, for tests: called before each piece is read, also before what is left of one
 * is read again; 0 goes on, an errno fails the piece as the system would, -n cuts what it reads to
 * n bytes. Called by any thread, several at once; it may block a pread thread, must not block with
 * io_uring, and must not call back. */
struct plec_io_fault {
    int (*before)(void *user, uint32_t file, uint64_t offset, uint64_t length);
    void *user;
};

struct plec_io_options {
    enum plec_io_engine engine; /* auto: io_uring where it is allowed, else pread */
    enum plec_io_cache cache;   /* auto: buffered when all files added fit three quarters of the
                                   memory that is left, else direct; settled by the first submit
                                   and anew when files are added later. mmap: always buffered */
    uint32_t max_files;         /* 0: 4096 */
    uint32_t max_requests;      /* in flight and waiting; 0: 1024 */
    uint32_t queue_depth;       /* pieces in flight; 0: 32. The pool has one a thread */
    uint64_t max_bytes;         /* in flight; 0: 256 MiB */
    uint64_t piece_bytes;       /* a large range is read in pieces of this; 0: 2 MiB. Rounded to
                                   whole 4096 bytes, and to at most max_bytes */
    uint32_t n_threads;         /* of the pool; 0: 4 */
    struct plec_io_fault fault;
    struct plec_log log; /* must not call back */
};

/* options NULL: defaults. PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status
plec_io_open(struct plec_io **out, const struct plec_io_options *options, struct plec_error *err);
/* Waits for what is in flight; what still waits is dropped. NULL is nothing. */
void plec_io_close(struct plec_io *io);

/* Opens a file for reading; *file counts from 0 in the order of the calls. PLEC_MISSING
 * "CannotOpen" (too many open files is named with the limit), "NotAFile"; PLEC_NO_MEMORY
 * "TooManyFiles" beyond max_files. */
PLEC_MUST_USE enum plec_status plec_io_add_file(uint32_t *file, struct plec_io *io,
                                                const char *path, struct plec_error *err);
/* Memory that reads will land in, registered with the kernel where it can be (it then stays in
 * memory, and counts against RLIMIT_MEMLOCK); failing to is no error: counted, said once. Call
 * before the first submit, from one thread; the memory must outlive io. */
void plec_io_register(struct plec_io *io, void *memory, uint64_t n_bytes);

struct plec_io_read {
    uint32_t file;
    uint64_t offset, length; /* within the file; length > 0 */
    void *to;                /* [length]; read directly where to and offset agree modulo the
                                alignment the file asks for, 4096 at most */
    uint64_t user;           /* returned with the completion */
    uint32_t slack_before, slack_after; /* bytes in front of `to` and behind to + length that may be
                                           overwritten with the file's bytes there */
    bool urgent; /* goes before all that is not urgent and not yet in flight */
};
/* Takes reads from the front of the list as far as there is room (which is no error), and returns
 * how many. Never blocks. */
size_t plec_io_submit_many(struct plec_io *io, const struct plec_io_read *reads, size_t n);
/* One read; false: no room now. */
bool plec_io_submit(struct plec_io *io, const struct plec_io_read *read);

struct plec_io_completion {
    uint64_t user;
    enum plec_status status; /* PLEC_OK; PLEC_IO "ReadFailed" or "ShortFile" */
    struct plec_error error; /* path, byte, wanted, found; filled when status is not PLEC_OK */
    uint64_t n_bytes;        /* read into [to, to + length); all of them when PLEC_OK */
    uint64_t latency_ns;     /* from submit to done */
};
/* Up to `capacity` completions, in the order they were done. While anything is in flight or waits,
 * waits up to wait_ms for the first (0: does not wait, UINT32_MAX: without end). Returns how many.
 * A failed read completes when none of its pieces is in flight any more: its memory is free. */
size_t plec_io_reap(struct plec_io *io, struct plec_io_completion *completions, size_t capacity,
                    uint32_t wait_ms);
/* Makes the reap that waits, or else the next one that would, return at once. Any thread. */
void plec_io_wake(struct plec_io *io);

struct plec_io_counters {
    const char *engine, *cache; /* what is really used: "io_uring", "pread", "mmap"; "direct",
                                   "buffered" */
    uint64_t reads, failed;     /* taken by submit; completed with an error */
    uint64_t pieces;            /* reads of the system that delivered bytes */
    uint64_t bytes;             /* delivered: direct_bytes + buffered_bytes */
    uint64_t direct_bytes, buffered_bytes;
    uint64_t rounding_bytes; /* read directly beside what was asked for, into slack */
    uint64_t short_reads, retries;
    uint64_t fallbacks;        /* files that a refused direct read turned to buffered */
    uint64_t buffered_files;   /* files that are read buffered though direct was wanted */
    uint64_t engine_fallbacks; /* 1 when io_uring was wanted and refused */
    uint64_t overflows;        /* times the completion queue was seen to overflow: 0 */
    uint64_t registered_bytes, unregistered_bytes; /* of what plec_io_register was given */
    uint64_t dropped_bytes;                        /* of the page cache, behind reads */
    uint64_t in_flight_bytes, max_in_flight_bytes; /* rounding included */
    uint64_t waiting;                              /* requests with bytes not yet in flight */
};
void plec_io_get_counters(struct plec_io_counters *out, struct plec_io *io);

#ifdef __cplusplus
}
#endif
#endif
