/* io.c: requests, their pieces, and what becomes of them; which engine performs them is not seen
 * here. */
#include "host/io.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/io_parts.h"

enum {
    FILES_DEFAULT = 4096,
    REQUESTS_DEFAULT = 1024,
    DEPTH_DEFAULT = 32,
    DEPTH_MAX = 4096,
    THREADS_DEFAULT = 4,
    THREADS_MAX = 256,
    PAGE = 4096
};
static const uint64_t BYTES_DEFAULT = 256 << 20, PIECE_DEFAULT = 2 << 20;

/* In plec_io_request.failure, beside the errnos: the file ends before the range does. */
enum { SHORT_FILE = -1 };

uint64_t plec_io_now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Lists of requests, linked both ways through their indices. */

static void append(struct plec_io *io, struct plec_io_list *list, int32_t i) {
    struct plec_io_request *request = &io->requests[i];
    request->list_next = PLEC_IO_NONE;
    request->list_before = list->last;
    if (list->last != PLEC_IO_NONE)
        io->requests[list->last].list_next = i;
    else
        list->first = i;
    list->last = i;
}

/* What was used last is taken next: it is still in a cache. */
static void free_request(struct plec_io *io, int32_t i) {
    struct plec_io_list *list = &io->free;
    io->requests[i].list_next = list->first;
    io->requests[i].list_before = PLEC_IO_NONE;
    if (list->first != PLEC_IO_NONE)
        io->requests[list->first].list_before = i;
    else
        list->last = i;
    list->first = i;
}

static void take_out(struct plec_io *io, struct plec_io_list *list, int32_t i) {
    const struct plec_io_request *request = &io->requests[i];
    if (request->list_before != PLEC_IO_NONE)
        io->requests[request->list_before].list_next = request->list_next;
    else
        list->first = request->list_next;
    if (request->list_next != PLEC_IO_NONE)
        io->requests[request->list_next].list_before = request->list_before;
    else
        list->last = request->list_before;
}

/* The request has no bytes left to give to pieces. */
static void stop_waiting(struct plec_io *io, int32_t i) {
    struct plec_io_request *request = &io->requests[i];
    if (!request->waits) return;
    take_out(io, request->read.urgent ? &io->urgent : &io->waiting, i);
    request->waits = false;
    io->counters.waiting--;
}

static void finish_if_done(struct plec_io *io, int32_t i) {
    struct plec_io_request *request = &io->requests[i];
    if (request->waits || request->n_pieces > 0) return;
    request->done_ns = plec_io_now_ns();
    if (request->failure != 0) io->counters.failed++;
    append(io, &io->done, i);
}

static void fail_request(struct plec_io *io, int32_t i, int failure, uint64_t at) {
    struct plec_io_request *request = &io->requests[i];
    struct stat info;
    /* Pieces behind the end come to nothing too: the end itself is what is told. */
    if (failure == SHORT_FILE && fstat(io->files[request->read.file].buffered, &info) == 0 &&
        (uint64_t)info.st_size < at)
        at = (uint64_t)info.st_size > request->read.offset ? (uint64_t)info.st_size
                                                           : request->read.offset;
    if (request->failure == 0 || at < request->failed_at) {
        request->failure = failure;
        request->failed_at = at;
    }
    stop_waiting(io, i);
}

static bool reads_direct(const struct plec_io *io, uint32_t file) {
    return io->direct && io->files[file].direct >= 0 && !io->files[file].direct_refused;
}

static void plan(struct plec_io *io, struct plec_io_piece *piece, uint64_t end) {
    const struct plec_io_read *read = &io->requests[piece->request].read;
    plec_io_plan(&piece->chunk, read, &io->files[read->file], piece->at, end,
                 io->options.piece_bytes, reads_direct(io, read->file), piece->exact);
    piece->drop_behind = io->drop_behind && !piece->chunk.direct;
    piece->dropped = 0;
}

static void free_piece(struct plec_io *io, uint32_t index) {
    struct plec_io_piece *piece = &io->pieces[index];
    int32_t request = piece->request;
    io->counters.in_flight_bytes -= piece->reserved;
    piece->request = PLEC_IO_NONE;
    io->free_pieces[io->n_free_pieces++] = (int32_t)index;
    io->requests[request].n_pieces--;
    finish_if_done(io, request);
}

/* Cuts the next piece off a waiting request and starts it; false when its bytes have no room. */
static bool start_piece(struct plec_io *io, int32_t request_index) {
    struct plec_io_request *request = &io->requests[request_index];
    uint32_t index = (uint32_t)io->free_pieces[io->n_free_pieces - 1];
    struct plec_io_piece *piece = &io->pieces[index];
    struct plec_io_counters *counters = &io->counters;
    *piece = (struct plec_io_piece){.request = request_index, .at = request->next};
    plan(io, piece, request->end);
    if (piece->chunk.length > io->options.max_bytes - counters->in_flight_bytes) {
        piece->request = PLEC_IO_NONE;
        return false;
    }
    io->n_free_pieces--;
    piece->end = request->next = piece->chunk.end;
    piece->reserved = piece->chunk.length;
    counters->in_flight_bytes += piece->reserved;
    if (counters->in_flight_bytes > counters->max_in_flight_bytes)
        counters->max_in_flight_bytes = counters->in_flight_bytes;
    request->n_pieces++;
    if (request->next == request->end) stop_waiting(io, request_index);
    io->ops->start(io, index);
    return true;
}

void plec_io_pump(struct plec_io *io) {
    bool started = false;
    while (io->n_free_pieces > 0 && !io->closing) {
        int32_t next = io->urgent.first != PLEC_IO_NONE ? io->urgent.first : io->waiting.first;
        if (next == PLEC_IO_NONE || !start_piece(io, next)) break;
        started = true;
    }
    if (started) io->ops->flush(io);
}

int plec_io_descriptor(const struct plec_io *io, const struct plec_io_piece *piece) {
    const struct plec_io_file *file = &io->files[io->requests[piece->request].read.file];
    return piece->chunk.direct ? file->direct : file->buffered;
}

void plec_io_inject(const struct plec_io *io, struct plec_io_piece *piece) {
    const struct plec_io_fault *fault = &io->options.fault;
    piece->injected = 0;
    if (fault->before != NULL)
        piece->injected = fault->before(fault->user, io->requests[piece->request].read.file,
                                        piece->chunk.from, piece->chunk.length);
}

void plec_io_drop_behind(const struct plec_io *io, struct plec_io_piece *piece, int64_t result) {
    const struct plec_io_chunk *chunk = &piece->chunk;
    if (!piece->drop_behind || result <= 0) return;
    uint64_t first = (chunk->from + PAGE - 1) / PAGE * PAGE;
    uint64_t end = (chunk->from + (uint64_t)result) / PAGE * PAGE;
    if (end <= first) return;
    if (posix_fadvise(plec_io_descriptor(io, piece), (off_t)first, (off_t)(end - first),
                      POSIX_FADV_DONTNEED) == 0)
        piece->dropped = end - first;
}

/* The chunk came to nothing. True: the piece is to go on. */
static bool survives(struct plec_io *io, struct plec_io_piece *piece, int error) {
    uint32_t file = io->requests[piece->request].read.file;
    bool again = error == EINTR || error == EAGAIN || error == ECANCELED;
    bool refused =
        piece->chunk.direct && (error == EINVAL || error == ENOTSUP || error == EOPNOTSUPP);
    if (refused) plec_io_turn_to_buffered(io, file, error);
    if (again) io->counters.retries++;
    if ((again || refused) && ++piece->n_tries < PLEC_IO_TRIES_MAX) return true;
    fail_request(io, piece->request, error, piece->at);
    return false;
}

/* Counts what a chunk delivered. True: the piece is to go on, some of it is missing. */
static bool deliver(struct plec_io *io, struct plec_io_piece *piece, uint64_t n_read) {
    const struct plec_io_chunk *chunk = &piece->chunk;
    struct plec_io_counters *counters = &io->counters;
    uint64_t reached = chunk->from + n_read < chunk->end ? chunk->from + n_read : chunk->end;
    uint64_t n_bytes = reached > piece->at ? reached - piece->at : 0;
    counters->pieces++;
    counters->bytes += n_bytes;
    counters->dropped_bytes += piece->dropped;
    *(chunk->direct ? &counters->direct_bytes : &counters->buffered_bytes) += n_bytes;
    counters->rounding_bytes += n_read - n_bytes;
    if (reached < chunk->end) counters->short_reads++;
    io->requests[piece->request].n_bytes += n_bytes;
    piece->at += n_bytes;
    if (piece->at == piece->end) return false;
    if (n_bytes == 0) piece->exact = true;
    if (n_bytes > 0) piece->n_tries = 0;
    return true;
}

void plec_io_chunk_done(struct plec_io *io, uint32_t index, int64_t result) {
    struct plec_io_piece *piece = &io->pieces[index];
    bool goes_on = false;
    if (piece->injected > 0) result = -piece->injected;
    if (piece->injected < 0 && result > -piece->injected) result = -piece->injected;
    if (result < 0)
        goes_on = survives(io, piece, (int)-result);
    else if (result == 0)
        fail_request(io, piece->request, SHORT_FILE, piece->at);
    else
        goes_on = deliver(io, piece, (uint64_t)result);
    if (!goes_on || io->requests[piece->request].failure != 0 || io->closing) {
        free_piece(io, index);
        return;
    }
    plan(io, piece, piece->end);
    io->ops->start(io, index);
}

/* Opening and closing. */

static uint64_t or_default(uint64_t value, uint64_t otherwise) {
    return value != 0 ? value : otherwise;
}

static void complete_options(struct plec_io_options *o) {
    o->max_files = (uint32_t)or_default(o->max_files, FILES_DEFAULT);
    o->max_requests = (uint32_t)or_default(o->max_requests, REQUESTS_DEFAULT);
    o->queue_depth = (uint32_t)or_default(o->queue_depth, DEPTH_DEFAULT);
    o->n_threads = (uint32_t)or_default(o->n_threads, THREADS_DEFAULT);
    o->max_bytes = or_default(o->max_bytes, BYTES_DEFAULT);
    o->piece_bytes = or_default(o->piece_bytes, PIECE_DEFAULT);
    if (o->max_requests > INT32_MAX) o->max_requests = INT32_MAX;
    if (o->queue_depth > DEPTH_MAX) o->queue_depth = DEPTH_MAX;
    if (o->n_threads > THREADS_MAX) o->n_threads = THREADS_MAX;
    if (o->max_bytes < PAGE) o->max_bytes = PAGE;
    /* One read of the system takes less than 2 GiB. */
    if (o->piece_bytes > (1u << 30)) o->piece_bytes = 1u << 30;
    if (o->piece_bytes > o->max_bytes) o->piece_bytes = o->max_bytes;
    o->piece_bytes = o->piece_bytes / PAGE * PAGE;
    if (o->piece_bytes == 0) o->piece_bytes = PAGE;
}

static enum plec_status try_engine(struct plec_io *io, const struct plec_io_engine_ops *ops,
                                   struct plec_error *err) {
    io->ops = ops;
    enum plec_status status = ops->open(io, err);
    if (status != PLEC_OK) io->ops = NULL;
    return status;
}

static enum plec_status fall_back_to_pread(struct plec_io *io, const char *from, const char *reason,
                                           struct plec_error *err) {
    io->counters.engine_fallbacks = 1;
    plec_log_write(&io->options.log, PLEC_LOG_RUN,
                   "io: %s cannot be had (%s): reads go through "
                   "%u threads of pread",
                   from, reason, io->options.n_threads);
    return try_engine(io, &plec_io_pread_engine, err);
}

static enum plec_status choose_engine(struct plec_io *io, struct plec_error *err) {
    struct plec_error refusal = {0};
    switch (io->options.engine) {
    case PLEC_IO_PREAD: return try_engine(io, &plec_io_pread_engine, err);
    case PLEC_IO_MMAP:
        if (try_engine(io, &plec_io_mmap_engine, &refusal) == PLEC_OK) return PLEC_OK;
        io->options.engine = PLEC_IO_PREAD;
        return fall_back_to_pread(io, "mmap", refusal.message, err);
    case PLEC_IO_AUTO:
    case PLEC_IO_URING: break;
    }
    if (plec_io_uring_engine() == NULL)
        return fall_back_to_pread(io, "io_uring", "built without liburing", err);
    if (try_engine(io, plec_io_uring_engine(), &refusal) == PLEC_OK) return PLEC_OK;
    return fall_back_to_pread(io, "io_uring", refusal.message, err);
}

static enum plec_status allocate(struct plec_io *io, struct plec_error *err) {
    const struct plec_io_options *o = &io->options;
    io->files = calloc(o->max_files, sizeof *io->files);
    io->requests = calloc(o->max_requests, sizeof *io->requests);
    io->pieces = calloc(o->queue_depth, sizeof *io->pieces);
    io->free_pieces = calloc(o->queue_depth, sizeof *io->free_pieces);
    if (io->files != NULL && io->requests != NULL && io->pieces != NULL && io->free_pieces != NULL)
        return PLEC_OK;
    return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%u reads in flight", o->max_requests);
}

static void make_lists(struct plec_io *io) {
    const struct plec_io_list empty = {PLEC_IO_NONE, PLEC_IO_NONE};
    io->free = io->waiting = io->urgent = io->done = empty;
    for (uint32_t i = 0; i < io->options.max_requests; i++)
        free_request(io, (int32_t)i);
    io->depth = io->ops->depth(io);
    for (uint32_t i = 0; i < io->depth; i++) {
        io->pieces[i].request = PLEC_IO_NONE;
        io->free_pieces[io->n_free_pieces++] = (int32_t)i;
    }
}

static void destroy(struct plec_io *io) {
    if (io->ops != NULL) io->ops->close(io);
    for (uint32_t i = 0; i < io->n_files; i++)
        plec_io_file_close(&io->files[i]);
    pthread_mutex_destroy(&io->lock);
    free(io->files);
    free(io->requests);
    free(io->pieces);
    free(io->free_pieces);
    free(io);
}

enum plec_status plec_io_open(struct plec_io **out, const struct plec_io_options *options,
                              struct plec_error *err) {
    *out = NULL;
    struct plec_io *io = calloc(1, sizeof *io);
    if (io == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "the I/O queue");
    if (options != NULL) io->options = *options;
    complete_options(&io->options);
    pthread_mutex_init(&io->lock, NULL);
    enum plec_status status = allocate(io, err);
    if (status == PLEC_OK) status = choose_engine(io, err);
    if (status != PLEC_OK) {
        destroy(io);
        return status;
    }
    pthread_mutex_lock(&io->lock); /* threads of the pool are there already */
    make_lists(io);
    io->counters.engine = io->ops->name;
    io->counters.cache = "unsettled";
    pthread_mutex_unlock(&io->lock);
    *out = io;
    return PLEC_OK;
}

void plec_io_close(struct plec_io *io) {
    if (io == NULL) return;
    pthread_mutex_lock(&io->lock);
    io->closing = true;
    while (io->n_free_pieces < io->depth)
        io->ops->poll(io, UINT64_MAX);
    pthread_mutex_unlock(&io->lock);
    destroy(io);
}

enum plec_status plec_io_add_file(uint32_t *file, struct plec_io *io, const char *path,
                                  struct plec_error *err) {
    struct plec_io_file opened;
    enum plec_status status = plec_io_file_open(&opened, path, err);
    if (status != PLEC_OK) return status;
    pthread_mutex_lock(&io->lock);
    if (io->n_files == io->options.max_files) {
        status = plec_fail(err, PLEC_NO_MEMORY, "TooManyFiles", "%s: there is room for %u files",
                           path, io->options.max_files);
        plec_io_file_close(&opened);
    } else {
        io->files[io->n_files] = opened;
        status = io->ops->add_file(io, io->n_files, err);
        if (status != PLEC_OK) plec_io_file_close(&io->files[io->n_files]);
    }
    if (status == PLEC_OK) {
        *file = io->n_files++;
        io->file_bytes += opened.size;
        if (io->settled) plec_io_settle(io);
    }
    pthread_mutex_unlock(&io->lock);
    return status;
}

void plec_io_register(struct plec_io *io, void *memory, uint64_t n_bytes) {
    pthread_mutex_lock(&io->lock);
    uint64_t registered = io->ops->register_memory(io, memory, n_bytes);
    io->counters.registered_bytes += registered;
    io->counters.unregistered_bytes += n_bytes - registered;
    pthread_mutex_unlock(&io->lock);
}

/* Use. */

size_t plec_io_submit_many(struct plec_io *io, const struct plec_io_read *reads, size_t n) {
    uint64_t now = plec_io_now_ns();
    size_t taken = 0;
    pthread_mutex_lock(&io->lock);
    if (!io->settled) plec_io_settle(io);
    for (; taken < n && io->free.first != PLEC_IO_NONE; taken++) {
        const struct plec_io_read *read = &reads[taken];
        assert(read->file < io->n_files && read->length > 0);
        assert(read->offset <= UINT64_MAX - read->length);
        int32_t i = io->free.first;
        take_out(io, &io->free, i);
        io->requests[i] = (struct plec_io_request){.read = *read,
                                                   .next = read->offset,
                                                   .end = read->offset + read->length,
                                                   .started_ns = now,
                                                   .waits = true};
        append(io, read->urgent ? &io->urgent : &io->waiting, i);
        io->counters.waiting++;
    }
    io->counters.reads += taken;
    io->n_outstanding += (uint32_t)taken;
    plec_io_pump(io);
    pthread_mutex_unlock(&io->lock);
    return taken;
}

bool plec_io_submit(struct plec_io *io, const struct plec_io_read *read) {
    return plec_io_submit_many(io, read, 1) == 1;
}

static enum plec_status tell_failure(struct plec_error *err, const struct plec_io *io,
                                     const struct plec_io_request *request) {
    const struct plec_io_read *read = &request->read;
    const char *path = io->files[read->file].path;
    if (request->failure == SHORT_FILE)
        return plec_fail_at(err, PLEC_IO, "ShortFile", request->failed_at,
                            "%s: wanted %llu bytes from byte %llu, found %llu before its end", path,
                            (unsigned long long)read->length, (unsigned long long)read->offset,
                            (unsigned long long)(request->failed_at - read->offset));
    return plec_fail_at(err, PLEC_IO, "ReadFailed", request->failed_at,
                        "%s: wanted %llu bytes from byte %llu, found %llu: %s", path,
                        (unsigned long long)read->length, (unsigned long long)read->offset,
                        (unsigned long long)request->n_bytes, strerror(request->failure));
}

static size_t take_done(struct plec_io *io, struct plec_io_completion *completions,
                        size_t capacity) {
    size_t n = 0;
    for (; n < capacity && io->done.first != PLEC_IO_NONE; n++) {
        int32_t i = io->done.first;
        const struct plec_io_request *request = &io->requests[i];
        struct plec_io_completion *completion = &completions[n];
        completion->user = request->read.user;
        completion->n_bytes = request->n_bytes;
        completion->latency_ns = request->done_ns - request->started_ns;
        completion->status = PLEC_OK;
        if (request->failure != 0)
            completion->status = tell_failure(&completion->error, io, request);
        take_out(io, &io->done, i);
        free_request(io, i);
    }
    io->n_outstanding -= (uint32_t)n;
    return n;
}

/* Waiting ends when something is done, nothing is outstanding, the time is over, or by wake. */
size_t plec_io_reap(struct plec_io *io, struct plec_io_completion *completions, size_t capacity,
                    uint32_t wait_ms) {
    uint64_t deadline = wait_ms == 0            ? 0
                        : wait_ms == UINT32_MAX ? UINT64_MAX
                                                : plec_io_now_ns() + wait_ms * UINT64_C(1000000);
    pthread_mutex_lock(&io->lock);
    io->ops->poll(io, 0);
    while (io->done.first == PLEC_IO_NONE && io->n_outstanding > 0 && !io->woken) {
        if (deadline != UINT64_MAX && plec_io_now_ns() >= deadline) break;
        io->ops->poll(io, deadline);
    }
    if (wait_ms > 0) io->woken = false;
    size_t n = take_done(io, completions, capacity);
    pthread_mutex_unlock(&io->lock);
    return n;
}

void plec_io_wake(struct plec_io *io) {
    pthread_mutex_lock(&io->lock);
    io->woken = true;
    io->ops->wake(io);
    pthread_mutex_unlock(&io->lock);
}

void plec_io_get_counters(struct plec_io_counters *out, struct plec_io *io) {
    pthread_mutex_lock(&io->lock);
    *out = io->counters;
    pthread_mutex_unlock(&io->lock);
}
