/* io_pool.c: threads that read: by pread, or by copying out of a mapping of the file.
 *
 * As many pieces are in flight as there are threads: what is not being read yet waits in io.c,
 * where an urgent read can still go before it.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "host/io_parts.h"
#include "host/nvtx.h"
#include "host/thread.h"

struct pool {
    pthread_cond_t work, done; /* under io->lock */
    pthread_t *threads;        /* [n_threads] */
    uint32_t n_threads;
    uint32_t *queue; /* [depth] pieces to read, a ring */
    uint32_t depth, first, count;
    uint32_t n_named;            /* threads that have their name */
    uint32_t n_asleep, n_called; /* threads that wait for work; signals they have not woken to */
    bool at_work;                /* a thread that will look at the queue itself holds the lock */
    bool reaping;                /* a reaper waits, and was not called yet */
    bool stop;
    int64_t (*read)(const struct plec_io *io, const struct plec_io_piece *piece);
};

static int64_t read_by_pread(const struct plec_io *io, const struct plec_io_piece *piece) {
    const struct plec_io_chunk *chunk = &piece->chunk;
    ssize_t n = pread(plec_io_descriptor(io, piece), chunk->to, chunk->length, (off_t)chunk->from);
    return n < 0 ? -errno : n;
}

/* Copies through the kernel, which fails where touching the mapping would raise SIGBUS. Behind the
 * end of a file that was cut the last page reads as zeros, so the size is looked at afterwards. */
static int64_t read_by_mmap(const struct plec_io *io, const struct plec_io_piece *piece) {
    const struct plec_io_file *file = &io->files[io->requests[piece->request].read.file];
    const struct plec_io_chunk *chunk = &piece->chunk;
    if (chunk->from >= file->size) return 0;
    uint64_t length = file->size - chunk->from;
    if (length > chunk->length) length = chunk->length;
    struct iovec to = {chunk->to, length}, from = {file->map + chunk->from, length};
    ssize_t n = process_vm_readv(getpid(), &to, 1, &from, 1, 0);
    int reason = errno;
    struct stat info;
    if (fstat(file->buffered, &info) != 0) return -errno;
    uint64_t size = (uint64_t)info.st_size;
    if (size <= chunk->from) return 0;
    if (n < 0) return reason == EFAULT ? -EIO : -reason;
    return (uint64_t)n < size - chunk->from ? n : (int64_t)(size - chunk->from);
}

static void name_thread(struct pool *pool) {
    char name[16];
    snprintf(name, sizeof name, "plec-io-%u", pool->n_named++ % 1000);
    pthread_setname_np(pthread_self(), name);
    plec_nvtx_name_thread();
}

/* Calls as many threads as there is work for, and no more: a call costs more than the rest. */
static void call_threads(struct pool *pool) {
    uint32_t wanted = pool->count > (uint32_t)pool->at_work ? pool->count - pool->at_work : 0;
    if (wanted > pool->n_asleep) wanted = pool->n_asleep;
    for (; pool->n_called < wanted; pool->n_called++)
        pthread_cond_signal(&pool->work);
}

static void wait_for_work(struct plec_io *io, struct pool *pool) {
    while (pool->count == 0 && !pool->stop) {
        pool->n_asleep++;
        pthread_cond_wait(&pool->work, &io->lock);
        pool->n_asleep--;
        if (pool->n_called > 0) pool->n_called--;
    }
}

static void call_reaper(struct pool *pool) {
    if (pool->reaping) pthread_cond_signal(&pool->done);
    pool->reaping = false;
}

static void *run(void *user) {
    struct plec_io *io = user;
    struct pool *pool = io->engine;
    pthread_mutex_lock(&io->lock);
    name_thread(pool);
    for (;;) {
        wait_for_work(io, pool);
        if (pool->count == 0) break;
        uint32_t index = pool->queue[pool->first];
        struct plec_io_piece *piece = &io->pieces[index];
        pool->first = (pool->first + 1) % pool->depth;
        pool->count--;
        pthread_mutex_unlock(&io->lock);
        plec_io_inject(io, piece);
        int64_t result = piece->injected > 0 ? 0 : pool->read(io, piece);
        plec_io_drop_behind(io, piece, result);
        pthread_mutex_lock(&io->lock);
        pool->at_work = true;
        plec_io_chunk_done(io, index, result);
        plec_io_pump(io);
        pool->at_work = false;
        if (io->done.first != PLEC_IO_NONE || io->closing) call_reaper(pool);
    }
    pthread_mutex_unlock(&io->lock);
    return NULL;
}

static void pool_close(struct plec_io *io) {
    struct pool *pool = io->engine;
    pthread_mutex_lock(&io->lock);
    pool->stop = true;
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&io->lock);
    for (uint32_t i = 0; i < pool->n_threads; i++)
        pthread_join(pool->threads[i], NULL);
    for (uint32_t i = 0; i < io->n_files; i++)
        if (io->files[i].map != NULL) munmap(io->files[i].map, io->files[i].size);
    pthread_cond_destroy(&pool->work);
    pthread_cond_destroy(&pool->done);
    free(pool->threads);
    free(pool->queue);
    free(pool);
}

/* As many as can be had. */
static uint32_t start_threads(struct plec_io *io, struct pool *pool) {
    uint32_t n = 0;
    while (n < pool->depth &&
           plec_thread_start(&pool->threads[n], run, io, "a reading thread", NULL) == PLEC_OK)
        n++;
    return n;
}

static void make_conditions(struct pool *pool) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->done, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static uint32_t pool_depth(const struct plec_io *io) {
    return io->options.n_threads < io->options.queue_depth ? io->options.n_threads
                                                           : io->options.queue_depth;
}

static enum plec_status pool_open(struct plec_io *io, struct plec_error *err) {
    struct pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "the reading threads");
    pool->depth = pool_depth(io);
    pool->read = io->ops == &plec_io_mmap_engine ? read_by_mmap : read_by_pread;
    pool->threads = calloc(pool->depth, sizeof *pool->threads);
    pool->queue = calloc(pool->depth, sizeof *pool->queue);
    make_conditions(pool);
    io->engine = pool;
    if (pool->threads != NULL && pool->queue != NULL) pool->n_threads = start_threads(io, pool);
    if (pool->n_threads > 0) return PLEC_OK;
    pool_close(io);
    return plec_fail(err, PLEC_NO_MEMORY, "NoThreads", "no thread of %u could be started",
                     io->options.n_threads);
}

/* Sandboxes may refuse the call that makes mappings safe to read. */
static enum plec_status mmap_open(struct plec_io *io, struct plec_error *err) {
    uint8_t from = 1, to = 0;
    struct iovec source = {&from, 1}, target = {&to, 1};
    if (process_vm_readv(getpid(), &target, 1, &source, 1, 0) != 1 || to != 1)
        return plec_fail(err, PLEC_UNSUPPORTED, "Refused", "process_vm_readv: %s", strerror(errno));
    return pool_open(io, err);
}

static enum plec_status pool_add_file(struct plec_io *io, uint32_t file, struct plec_error *err) {
    (void)io, (void)file, (void)err;
    return PLEC_OK;
}

static enum plec_status mmap_add_file(struct plec_io *io, uint32_t index, struct plec_error *err) {
    struct plec_io_file *file = &io->files[index];
    if (file->size == 0) return PLEC_OK;
    void *map = mmap(NULL, file->size, PROT_READ, MAP_SHARED, file->buffered, 0);
    if (map == MAP_FAILED)
        return plec_fail(err, PLEC_IO, "MapFailed", "%s: %s", file->path, strerror(errno));
    file->map = map;
    return PLEC_OK;
}

static uint64_t pool_register(struct plec_io *io, void *memory, uint64_t n_bytes) {
    (void)io, (void)memory, (void)n_bytes;
    return 0;
}

static void pool_start(struct plec_io *io, uint32_t piece) {
    struct pool *pool = io->engine;
    pool->queue[(pool->first + pool->count++) % pool->depth] = piece;
}

static void pool_flush(struct plec_io *io) {
    call_threads(io->engine);
}

static void pool_poll(struct plec_io *io, uint64_t deadline_ns) {
    struct pool *pool = io->engine;
    if (deadline_ns == 0) return;
    struct timespec t = {(time_t)(deadline_ns / 1000000000u), (long)(deadline_ns % 1000000000u)};
    pool->reaping = true;
    if (deadline_ns == UINT64_MAX)
        pthread_cond_wait(&pool->done, &io->lock);
    else
        pthread_cond_timedwait(&pool->done, &io->lock, &t);
    pool->reaping = false;
}

static void pool_wake(struct plec_io *io) {
    call_reaper(io->engine);
}

const struct plec_io_engine_ops plec_io_pread_engine = {
    .name = "pread",
    .open = pool_open,
    .close = pool_close,
    .depth = pool_depth,
    .add_file = pool_add_file,
    .register_memory = pool_register,
    .start = pool_start,
    .flush = pool_flush,
    .poll = pool_poll,
    .wake = pool_wake,
};

const struct plec_io_engine_ops plec_io_mmap_engine = {
    .name = "mmap",
    .open = mmap_open,
    .close = pool_close,
    .depth = pool_depth,
    .add_file = mmap_add_file,
    .register_memory = pool_register,
    .start = pool_start,
    .flush = pool_flush,
    .poll = pool_poll,
    .wake = pool_wake,
};
