/* io_uring.c: reads through io_uring.
 *
 * One ring. Whoever submits fills and sends the submission side under io->lock; the reaper alone
 * touches the completion side, and waits on it without the lock. At most queue_depth reads and one
 * wake-up are in the ring, whose completion side holds at least twice the submission side.
 */
#include "host/io_parts.h"

#if !defined(PLEC_HAVE_LIBURING)

const struct plec_io_engine_ops *plec_io_uring_engine(void) {
    return NULL;
}

#else

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { BUFFERS_MAX = 1024, BATCH = 64 };
/* The most one registered buffer may hold. */
static const uint64_t BUFFER_BYTES_MAX = 1 << 30;
/* A buffered read that is answered from the page cache is copied by whoever submits it: large ones
 * are handed to a worker of the kernel instead. */
enum { ASYNC_BYTES = 64 << 10 };

static const uint64_t WAKE = UINT64_MAX; /* user data of a wake-up; else the index of a piece */

struct buffer {
    uint8_t *first, *end;
    int index; /* in the kernel's table */
};

struct uring {
    struct io_uring ring;
    uint32_t n_file_slots;              /* registered descriptors: buffered, direct of each file */
    struct buffer buffers[BUFFERS_MAX]; /* ascending */
    int n_buffers;
    bool no_buffers; /* the kernel refused a table */
    bool pending;    /* filled, and not yet sent */
    bool waits;      /* the reaper is in the kernel */
    bool waking;     /* a wake-up is in the ring */
};

static enum plec_status refused(int reason, const char *what, struct plec_error *err) {
    char setting = '?';
    int fd = open("/proc/sys/kernel/io_uring_disabled", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        if (read(fd, &setting, 1) != 1) setting = '?';
        close(fd);
    }
    return plec_fail(err, PLEC_UNSUPPORTED, "Refused", "%s: %s; kernel.io_uring_disabled is %c",
                     what, strerror(reason), fd < 0 ? '-' : setting);
}

/* One no-op there and back: a filter may let a ring be made and refuse its use. */
static int try_ring(struct io_uring *ring) {
    struct io_uring_sqe *sqe = io_uring_get_sqe(ring);
    struct io_uring_cqe *cqe;
    io_uring_prep_nop(sqe);
    int n = io_uring_submit(ring);
    if (n != 1) return n < 0 ? n : -EIO;
    int result = io_uring_wait_cqe(ring, &cqe);
    if (result == 0) io_uring_cqe_seen(ring, cqe);
    return result;
}

static enum plec_status make_ring(struct uring *uring, uint32_t n_entries, struct plec_error *err) {
    struct io_uring_params params = {0};
    const uint32_t needed = IORING_FEAT_EXT_ARG | IORING_FEAT_NODROP;
    int result = io_uring_queue_init_params(n_entries, &uring->ring, &params);
    if (result < 0) return refused(-result, "io_uring_setup", err);
    if ((params.features & needed) != needed || params.cq_entries < 2 * n_entries) result = -ENOSYS;
    if (result == 0) result = try_ring(&uring->ring);
    if (result == 0) return PLEC_OK;
    io_uring_queue_exit(&uring->ring);
    return refused(-result, "io_uring_enter", err);
}

/* A process may not register more descriptors than it may open; files beyond go unregistered. */
static void make_file_slots(struct uring *uring, uint32_t max_files) {
    struct rlimit files;
    uint64_t n = 2 * (uint64_t)max_files;
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < n) n = files.rlim_cur;
    if (n > 32768) n = 32768;
    if (io_uring_register_files_sparse(&uring->ring, (unsigned)n) == 0)
        uring->n_file_slots = (uint32_t)n;
}

static enum plec_status uring_open(struct plec_io *io, struct plec_error *err) {
    struct uring *uring = calloc(1, sizeof *uring);
    if (uring == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "the ring");
    enum plec_status status = make_ring(uring, io->options.queue_depth + 1, err);
    if (status != PLEC_OK) {
        free(uring);
        return status;
    }
    io_uring_ring_dontfork(&uring->ring);
    make_file_slots(uring, io->options.max_files);
    io->engine = uring;
    return PLEC_OK;
}

static void uring_close(struct plec_io *io) {
    struct uring *uring = io->engine;
    io_uring_queue_exit(&uring->ring);
    free(uring);
}

static uint32_t uring_depth(const struct plec_io *io) {
    return io->options.queue_depth;
}

static enum plec_status uring_add_file(struct plec_io *io, uint32_t file, struct plec_error *err) {
    struct uring *uring = io->engine;
    const int descriptors[2] = {io->files[file].buffered, io->files[file].direct};
    (void)err;
    io->files[file].registered =
        2 * file + 1 < uring->n_file_slots &&
        io_uring_register_files_update(&uring->ring, 2 * file, descriptors, 2) == 2;
    return PLEC_OK;
}

static bool make_buffer_table(struct uring *uring) {
    if (uring->n_buffers == 0 && !uring->no_buffers)
        uring->no_buffers = io_uring_register_buffers_sparse(&uring->ring, BUFFERS_MAX) != 0;
    return !uring->no_buffers && uring->n_buffers < BUFFERS_MAX;
}

static int register_one(struct uring *uring, uint8_t *memory, uint64_t n_bytes) {
    const struct iovec whole = {memory, n_bytes};
    const __u64 tag = 0;
    int i = uring->n_buffers;
    if (!make_buffer_table(uring)) return -ENOSPC;
    int result = io_uring_register_buffers_update_tag(&uring->ring, (unsigned)i, &whole, &tag, 1);
    if (result < 0) return result;
    uring->n_buffers++;
    struct buffer added = {memory, memory + n_bytes, i};
    for (; i > 0 && uring->buffers[i - 1].first > memory; i--)
        uring->buffers[i] = uring->buffers[i - 1];
    uring->buffers[i] = added;
    return 0;
}

static uint64_t uring_register(struct plec_io *io, void *memory, uint64_t n_bytes) {
    struct uring *uring = io->engine;
    uint64_t done = 0;
    while (done < n_bytes) {
        uint64_t n = n_bytes - done < BUFFER_BYTES_MAX ? n_bytes - done : BUFFER_BYTES_MAX;
        int result = register_one(uring, (uint8_t *)memory + done, n);
        if (result < 0) {
            if (io->counters.unregistered_bytes == 0)
                plec_log_write(&io->options.log, PLEC_LOG_RUN,
                               "io: memory is read into unregistered: %s", strerror(-result));
            break;
        }
        done += n;
    }
    return done;
}

/* The registered buffer that holds [to, to + length); -1: none. */
static int find_buffer(const struct uring *uring, const uint8_t *to, uint64_t length) {
    int low = 0, high = uring->n_buffers;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (uring->buffers[middle].end <= to)
            low = middle + 1;
        else
            high = middle;
    }
    const struct buffer *found = &uring->buffers[low];
    bool holds =
        low < uring->n_buffers && to >= found->first && length <= (uint64_t)(found->end - to);
    return holds ? found->index : -1;
}

/* What could not be sent stays in the ring and is sent by the next poll. */
static void send_pending(struct uring *uring) {
    if (!uring->pending) return;
    int n = io_uring_submit(&uring->ring);
    uring->pending = n < 0 || io_uring_sq_ready(&uring->ring) > 0;
}

static void uring_start(struct plec_io *io, uint32_t index) {
    struct uring *uring = io->engine;
    struct plec_io_piece *piece = &io->pieces[index];
    const struct plec_io_chunk *chunk = &piece->chunk;
    struct plec_io_file *file = &io->files[io->requests[piece->request].read.file];
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    assert(sqe != NULL); /* there are more entries than pieces */
    plec_io_inject(io, piece);
    int buffer = find_buffer(uring, chunk->to, chunk->length);
    int fd = file->registered ? 2 * (int)(file - io->files) + (chunk->direct ? 1 : 0)
                              : plec_io_descriptor(io, piece);
    if (piece->injected > 0)
        io_uring_prep_nop(sqe);
    else if (buffer >= 0)
        io_uring_prep_read_fixed(sqe, fd, chunk->to, (unsigned)chunk->length, chunk->from, buffer);
    else
        io_uring_prep_read(sqe, fd, chunk->to, (unsigned)chunk->length, chunk->from);
    if (piece->injected <= 0 && file->registered) sqe->flags |= IOSQE_FIXED_FILE;
    if (!chunk->direct && chunk->length >= ASYNC_BYTES) sqe->flags |= IOSQE_ASYNC;
    io_uring_sqe_set_data64(sqe, index);
    uring->pending = true;
}

static void uring_flush(struct plec_io *io) {
    send_pending(io->engine);
}

/* Without the lock, until something has come or the deadline. */
static void wait_for_one(struct plec_io *io, uint64_t deadline_ns) {
    struct uring *uring = io->engine;
    struct io_uring_cqe *cqe;
    uint64_t now = plec_io_now_ns(), wait_ns = deadline_ns > now ? deadline_ns - now : 0;
    /* Unsent reads would never complete: the next poll tries again. */
    if (uring->pending && wait_ns > 1000000) wait_ns = 1000000;
    struct __kernel_timespec t = {(int64_t)(wait_ns / 1000000000u), (long)(wait_ns % 1000000000u)};
    bool without_end = deadline_ns == UINT64_MAX && !uring->pending;
    uring->waits = true;
    pthread_mutex_unlock(&io->lock);
    if (without_end)
        io_uring_wait_cqe(&uring->ring, &cqe);
    else
        io_uring_wait_cqe_timeout(&uring->ring, &cqe, &t);
    pthread_mutex_lock(&io->lock);
    uring->waits = false;
}

static void handle(struct plec_io *io, uint64_t data, int result) {
    struct uring *uring = io->engine;
    if (data == WAKE) {
        uring->waking = false;
        return;
    }
    if (io->pieces[data].drop_behind) { /* the piece stays ours meanwhile */
        pthread_mutex_unlock(&io->lock);
        plec_io_drop_behind(io, &io->pieces[data], result);
        pthread_mutex_lock(&io->lock);
    }
    plec_io_chunk_done(io, (uint32_t)data, result);
}

static void uring_poll(struct plec_io *io, uint64_t deadline_ns) {
    struct uring *uring = io->engine;
    struct io_uring_cqe *cqes[BATCH];
    send_pending(uring);
    if (io_uring_cq_has_overflow(&uring->ring)) io->counters.overflows++;
    if (deadline_ns != 0 && io_uring_cq_ready(&uring->ring) == 0) wait_for_one(io, deadline_ns);
    for (unsigned n; (n = io_uring_peek_batch_cqe(&uring->ring, cqes, BATCH)) > 0;) {
        for (unsigned i = 0; i < n; i++)
            handle(io, cqes[i]->user_data, cqes[i]->res);
        io_uring_cq_advance(&uring->ring, n);
    }
    plec_io_pump(io);
    send_pending(uring);
}

static void uring_wake(struct plec_io *io) {
    struct uring *uring = io->engine;
    if (!uring->waits || uring->waking) return;
    struct io_uring_sqe *sqe = io_uring_get_sqe(&uring->ring);
    assert(sqe != NULL);
    io_uring_prep_nop(sqe);
    io_uring_sqe_set_data64(sqe, WAKE);
    uring->waking = uring->pending = true;
    send_pending(uring);
}

static const struct plec_io_engine_ops uring_engine = {
    .name = "io_uring",
    .open = uring_open,
    .close = uring_close,
    .depth = uring_depth,
    .add_file = uring_add_file,
    .register_memory = uring_register,
    .start = uring_start,
    .flush = uring_flush,
    .poll = uring_poll,
    .wake = uring_wake,
};

const struct plec_io_engine_ops *plec_io_uring_engine(void) {
    return &uring_engine;
}

#endif
