/* io_parts.h: what the files of host/io share; no one else includes it.
 *
 *   request  a read of the caller, from submit to reap
 *   piece    a part of one request that is in flight; there are queue_depth of them
 *   chunk    the one read of the system that a piece is waiting for: its interior, or an end; what
 * a short read or a fallback leaves becomes the piece's next chunk
 *
 * One lock guards all of struct plec_io. io.c owns requests and pieces; an engine only performs
 * chunks: start is called with the lock held, and every started chunk comes back once to
 * plec_io_chunk_done, again with the lock held.
 */
#ifndef PLEC_HOST_IO_PARTS_H
#define PLEC_HOST_IO_PARTS_H

#include <pthread.h>
#include <sys/types.h>

#include "host/io.h"

enum { PLEC_IO_NONE = -1, PLEC_IO_TRIES_MAX = 1000 };

struct plec_io_file {
    char *path;
    int buffered, direct;                /* descriptors; direct -1: cannot */
    uint64_t size;                       /* when it was added */
    uint32_t offset_align, memory_align; /* of direct reads; powers of two, the second divides */
    bool direct_refused;                 /* by a read, although the descriptor could be had */
    bool registered;                     /* both descriptors, with io_uring */
    uint8_t *map;                        /* [size], mmap engine */
};

/* The next read of the system for the bytes [at, end) of a request. */
struct plec_io_chunk {
    uint64_t from, length; /* of the file, rounded outwards when direct */
    uint64_t end;          /* of the wanted bytes in it; they start at `at` */
    uint8_t *to;           /* where `from` lands */
    bool direct;
};

struct plec_io_request {
    struct plec_io_read read;
    uint64_t next, end; /* file bytes not yet given to a piece */
    uint64_t n_bytes;   /* delivered */
    uint64_t started_ns, done_ns;
    uint32_t n_pieces;              /* in flight */
    int32_t list_next, list_before; /* in the list it is in */
    bool waits;                     /* in `waiting` or `urgent` */
    int failure;                    /* errno of the first failure; -1: the file is short; 0: none */
    uint64_t failed_at;
};

struct plec_io_piece {
    int32_t request; /* PLEC_IO_NONE: free */
    uint64_t at, end;
    struct plec_io_chunk chunk;
    uint64_t reserved; /* of max_bytes */
    uint32_t n_tries;
    bool exact;       /* rounding the start down led nowhere */
    int injected;     /* what fault.before said of this chunk */
    bool drop_behind; /* this chunk */
    uint64_t dropped; /* of the page cache, behind this chunk */
};

struct plec_io_list {
    int32_t first, last;
};

struct plec_io_engine_ops {
    const char *name;
    /* PLEC_UNSUPPORTED: the system refuses it. On failure nothing is left. */
    enum plec_status (*open)(struct plec_io *io, struct plec_error *err);
    void (*close)(struct plec_io *io);           /* nothing is in flight */
    uint32_t (*depth)(const struct plec_io *io); /* pieces it takes at once, at most queue_depth */
    enum plec_status (*add_file)(struct plec_io *io, uint32_t file, struct plec_error *err);
    /* Returns the bytes that could be registered, from the start of the memory. */
    uint64_t (*register_memory)(struct plec_io *io, void *memory, uint64_t n_bytes);
    void (*start)(struct plec_io *io, uint32_t piece);
    /* Sees to it that what was started is under way. An engine does so itself for what
     * plec_io_chunk_done starts again. */
    void (*flush)(struct plec_io *io);
    /* By the reaper: handles what has come, or waits until something may have, or the deadline
     * (CLOCK_MONOTONIC ns; 0: does not wait, UINT64_MAX: none). Lets the lock go meanwhile. */
    void (*poll)(struct plec_io *io, uint64_t deadline_ns);
    void (*wake)(struct plec_io *io);
};

struct plec_io {
    struct plec_io_options options;
    const struct plec_io_engine_ops *ops;
    void *engine; /* its own state */
    pthread_mutex_t lock;

    struct plec_io_file *files; /* [options.max_files] */
    uint32_t n_files;
    uint64_t file_bytes; /* of all files */
    bool direct;         /* wanted; settled */
    bool settled;
    bool drop_behind;

    struct plec_io_request *requests; /* [options.max_requests] */
    struct plec_io_list free, waiting, urgent, done;
    struct plec_io_piece *pieces; /* [depth] */
    int32_t *free_pieces;         /* [depth] a stack */
    uint32_t depth, n_free_pieces;
    uint32_t n_outstanding; /* requests taken and not reaped */
    bool woken;
    bool closing; /* start nothing new */
    struct plec_io_counters counters;
};

/* The engines; NULL: not built in. */
extern const struct plec_io_engine_ops plec_io_pread_engine, plec_io_mmap_engine;
const struct plec_io_engine_ops *plec_io_uring_engine(void);

/* io_plan.c. The next chunk for [at, end) of a read, end being at most its end. `direct`: it may be
 * read so. exact: the start is not to be rounded down. */
void plec_io_plan(struct plec_io_chunk *out, const struct plec_io_read *read,
                  const struct plec_io_file *file, uint64_t at, uint64_t end, uint64_t piece_bytes,
                  bool direct, bool exact);

/* io_file.c */
PLEC_MUST_USE enum plec_status plec_io_file_open(struct plec_io_file *out, const char *path,
                                                 struct plec_error *err);
void plec_io_file_close(struct plec_io_file *file);
/* Settles whether reads are direct, and tells. */
void plec_io_settle(struct plec_io *io);
/* A direct read of the file was refused. */
void plec_io_turn_to_buffered(struct plec_io *io, uint32_t file, int reason);

/* io.c. Asks the fault hook, if there is one, about the piece's chunk. */
void plec_io_inject(const struct plec_io *io, struct plec_io_piece *piece);
/* result: bytes read, or -errno. Lock held. */
void plec_io_chunk_done(struct plec_io *io, uint32_t piece, int64_t result);
/* Starts what there is room for. Lock held. */
void plec_io_pump(struct plec_io *io);
/* The descriptor the piece's chunk is read through. */
int plec_io_descriptor(const struct plec_io *io, const struct plec_io_piece *piece);
/* Drops the whole pages that a buffered chunk has read from the page cache, where that is wanted.
 * The piece is the caller's: without the lock. */
void plec_io_drop_behind(const struct plec_io *io, struct plec_io_piece *piece, int64_t result);
uint64_t plec_io_now_ns(void);

#endif
