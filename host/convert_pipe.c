/* The threads of a conversion.
 *
 * A file is made in pieces of PIECE bytes. Workers take the next piece, read its source bytes into
 * a slot of a ring, and write it to its place; the calling thread hashes the pieces in file order,
 * frees their slots and tells the progress. At most n_slots pieces are in memory; source bytes of
 * as many more are asked for ahead. Large files are written past the page cache where their file
 * system allows it: what is written is not read again, and there is nothing left to sync at the
 * end.
 *
 *   worker 0   read 0  write 0  read 3  write 3 ...
 *   worker 1   read 1  write 1  read 4 ...
 *   caller             hash 0   hash 1   hash 2 ...
 */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "host/convert_parts.h"

enum { PIECE = 4 << 20, SLOTS_PER_THREAD = 2, DIRECT_MIN = 1 << 20, DIRECT_ALIGNMENT = 4096 };

/* -- a team ----------------------------------------------------------------------------------- */

void plec_convert_team_start(struct plec_convert_team *team, uint32_t n_threads,
                             void *(*work)(void *), void *user) {
    team->n_threads = 0;
    for (uint32_t i = 0; i < n_threads; i++)
        if (pthread_create(&team->threads[team->n_threads], NULL, work, user) == 0)
            team->n_threads++;
}

void plec_convert_team_join(struct plec_convert_team *team) {
    for (uint32_t i = 0; i < team->n_threads; i++)
        pthread_join(team->threads[i], NULL);
}

/* -- pieces of a file ------------------------------------------------------------------------- */

enum slot_state { SLOT_FREE, SLOT_TAKEN, SLOT_FULL };

struct slot {
    uint8_t *bytes; /* [piece_bytes] */
    enum slot_state state;
};

struct pipe {
    const struct plec_convert *convert;
    const struct plec_convert_image *image;
    struct plec_atomic_file *file;
    uint64_t piece_bytes, n_pieces;
    struct slot *slots; /* [n_slots] piece i lies in slot i % n_slots */
    uint32_t n_slots;
    int direct; /* the file once more, without the page cache; -1: not */

    pthread_mutex_t lock;
    pthread_cond_t freed, filled;
    uint64_t next; /* piece a worker takes next */
    bool stop;
    enum plec_status status; /* of the first failure */
    struct plec_error error;
};

static uint64_t piece_size(const struct pipe *pipe, uint64_t piece) {
    uint64_t left = pipe->image->n_bytes - piece * pipe->piece_bytes;
    return left < pipe->piece_bytes ? left : pipe->piece_bytes;
}

static void fail(struct pipe *pipe, enum plec_status status, const struct plec_error *error) {
    if (pipe->status == PLEC_OK) {
        pipe->status = status;
        pipe->error = *error;
    }
    pipe->stop = true;
    pthread_cond_broadcast(&pipe->freed);
    pthread_cond_broadcast(&pipe->filled);
}

/* Waits for the next piece and the slot it goes to; NULL: there is no more to do. */
static struct slot *take(struct pipe *pipe, uint64_t *piece) {
    struct slot *slot = NULL;
    pthread_mutex_lock(&pipe->lock);
    while (!pipe->stop && pipe->next < pipe->n_pieces &&
           pipe->slots[pipe->next % pipe->n_slots].state != SLOT_FREE)
        pthread_cond_wait(&pipe->freed, &pipe->lock);
    if (!pipe->stop && pipe->next < pipe->n_pieces) {
        *piece = pipe->next++;
        slot = &pipe->slots[*piece % pipe->n_slots];
        slot->state = SLOT_TAKEN;
    }
    pthread_mutex_unlock(&pipe->lock);
    return slot;
}

static void expect_piece(const struct pipe *pipe, uint64_t piece) {
    if (piece < pipe->n_pieces)
        plec_convert_image_expect(pipe->convert, pipe->image, piece * pipe->piece_bytes,
                                  piece_size(pipe, piece));
}

/* Writes whole blocks past the page cache; returns how many bytes went that way. What did not is
 * written the usual way, which also tells what is wrong. */
static uint64_t write_direct(const struct pipe *pipe, uint64_t at, const uint8_t *bytes,
                             uint64_t n) {
    uint64_t done = 0, whole = n - n % DIRECT_ALIGNMENT;
    while (pipe->direct >= 0 && done < whole) {
        ssize_t taken =
            pwrite(pipe->direct, bytes + done, (size_t)(whole - done), (off_t)(at + done));
        if (taken < 0 && errno == EINTR) continue;
        if (taken <= 0) break;
        done += (uint64_t)taken - (uint64_t)taken % DIRECT_ALIGNMENT;
        if (taken % DIRECT_ALIGNMENT != 0) break;
    }
    return done;
}

static enum plec_status write_piece(const struct pipe *pipe, uint64_t at, const uint8_t *bytes,
                                    uint64_t n, struct plec_error *err) {
    uint64_t done = write_direct(pipe, at, bytes, n);
    if (done == n) return PLEC_OK;
    enum plec_status status =
        plec_atomic_file_write(pipe->file, at + done, bytes + done, n - done, err);
    /* Begins the way to the disk now, so that the sync at the end finds little left to do. */
    if (status == PLEC_OK)
        (void)sync_file_range(pipe->file->fd, (off64_t)(at + done), (off64_t)(n - done),
                              SYNC_FILE_RANGE_WRITE);
    return status;
}

static enum plec_status make_piece(const struct pipe *pipe, uint8_t *bytes, uint64_t piece,
                                   uint8_t *scratch, struct plec_error *err) {
    uint64_t at = piece * pipe->piece_bytes, n = piece_size(pipe, piece);
    expect_piece(pipe, piece + pipe->n_slots);
    enum plec_status status =
        plec_convert_image_read(bytes, pipe->convert, pipe->image, at, n, scratch, err);
    return status == PLEC_OK ? write_piece(pipe, at, bytes, n, err) : status;
}

static void *work(void *user) {
    struct pipe *pipe = user;
    struct plec_error error;
    uint8_t *scratch = malloc(PLEC_CONVERT_SCRATCH);
    enum plec_status status = PLEC_OK;
    if (scratch == NULL)
        status = plec_fail(&error, PLEC_NO_MEMORY, "OutOfMemory", "%d bytes", PLEC_CONVERT_SCRATCH);
    while (status == PLEC_OK) {
        uint64_t piece;
        struct slot *slot = take(pipe, &piece);
        if (slot == NULL) break;
        status = make_piece(pipe, slot->bytes, piece, scratch, &error);
        if (status != PLEC_OK) break;
        pthread_mutex_lock(&pipe->lock);
        slot->state = SLOT_FULL;
        pthread_cond_signal(&pipe->filled);
        pthread_mutex_unlock(&pipe->lock);
    }
    if (status != PLEC_OK) {
        pthread_mutex_lock(&pipe->lock);
        fail(pipe, status, &error);
        pthread_mutex_unlock(&pipe->lock);
    }
    free(scratch);
    return NULL;
}

/* -- the calling thread ----------------------------------------------------------------------- */

/* Waits for a piece; false when the work has stopped. */
static bool await(struct pipe *pipe, uint64_t piece) {
    struct slot *slot = &pipe->slots[piece % pipe->n_slots];
    pthread_mutex_lock(&pipe->lock);
    while (!pipe->stop && slot->state != SLOT_FULL)
        pthread_cond_wait(&pipe->filled, &pipe->lock);
    bool full = !pipe->stop;
    pthread_mutex_unlock(&pipe->lock);
    return full;
}

static void release(struct pipe *pipe, uint64_t piece) {
    pthread_mutex_lock(&pipe->lock);
    pipe->slots[piece % pipe->n_slots].state = SLOT_FREE;
    pthread_cond_signal(&pipe->freed);
    pthread_mutex_unlock(&pipe->lock);
}

static enum plec_status tell(struct plec_convert *convert, uint64_t n, struct plec_error *err) {
    const struct plec_convert_options *options = &convert->options;
    convert->done += n;
    if (options->progress == NULL ||
        options->progress(options->user, convert->done, convert->n_bytes))
        return PLEC_OK;
    return plec_fail(err, PLEC_CANCELLED, "Cancelled", "asked to stop; what is whole is kept");
}

/* Hashes every piece in order; PLEC_OK also when the workers have failed, which they tell. */
static enum plec_status lead(struct pipe *pipe, struct plec_convert *convert,
                             struct plec_sha256_stream *hash, struct plec_error *err) {
    enum plec_status status = PLEC_OK;
    for (uint64_t i = 0; status == PLEC_OK && i < pipe->n_pieces && await(pipe, i); i++) {
        uint64_t n = piece_size(pipe, i);
        status = plec_sha256_update(hash, pipe->slots[i % pipe->n_slots].bytes, (size_t)n, err);
        release(pipe, i);
        if (status == PLEC_OK) status = tell(convert, n, err);
    }
    return status;
}

static enum plec_status open_pipe(struct pipe *pipe, uint32_t n_threads, struct plec_error *err) {
    uint64_t n_bytes = pipe->image->n_bytes;
    pipe->piece_bytes = n_bytes < PIECE ? n_bytes : PIECE;
    pipe->n_pieces = (n_bytes + pipe->piece_bytes - 1) / pipe->piece_bytes;
    uint64_t most = (uint64_t)n_threads * SLOTS_PER_THREAD;
    pipe->n_slots = (uint32_t)(pipe->n_pieces < most ? pipe->n_pieces : most);
    pipe->slots = calloc(pipe->n_slots, sizeof *pipe->slots);
    bool good = pipe->slots != NULL;
    size_t room = (size_t)(pipe->piece_bytes + DIRECT_ALIGNMENT - 1) & ~(DIRECT_ALIGNMENT - 1ul);
    for (uint32_t i = 0; good && i < pipe->n_slots; i++) {
        pipe->slots[i].bytes = aligned_alloc(DIRECT_ALIGNMENT, room);
        good = pipe->slots[i].bytes != NULL;
    }
    if (n_bytes >= DIRECT_MIN)
        pipe->direct = open(pipe->file->temporary, O_WRONLY | O_DIRECT | O_CLOEXEC);
    pthread_mutex_init(&pipe->lock, NULL);
    pthread_cond_init(&pipe->freed, NULL);
    pthread_cond_init(&pipe->filled, NULL);
    return good ? PLEC_OK
                : plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%u pieces of %llu bytes",
                            pipe->n_slots, (unsigned long long)pipe->piece_bytes);
}

static void close_pipe(struct pipe *pipe) {
    for (uint32_t i = 0; pipe->slots != NULL && i < pipe->n_slots; i++)
        free(pipe->slots[i].bytes);
    free(pipe->slots);
    if (pipe->direct >= 0) close(pipe->direct);
    pthread_mutex_destroy(&pipe->lock);
    pthread_cond_destroy(&pipe->freed);
    pthread_cond_destroy(&pipe->filled);
}

/* The workers and the caller, until the last piece or the first failure. */
static enum plec_status run_pipe(struct pipe *pipe, struct plec_convert *convert,
                                 struct plec_sha256_stream *hash, struct plec_error *err) {
    struct plec_convert_team team;
    for (uint32_t i = 0; i < pipe->n_slots; i++)
        expect_piece(pipe, i);
    uint32_t n =
        convert->n_threads < pipe->n_pieces ? convert->n_threads : (uint32_t)pipe->n_pieces;
    plec_convert_team_start(&team, n, work, pipe);
    enum plec_status status = team.n_threads > 0 ? lead(pipe, convert, hash, err)
                                                 : plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory",
                                                             "no thread could be started");
    pthread_mutex_lock(&pipe->lock);
    if (status != PLEC_OK) pipe->stop = true;
    pthread_cond_broadcast(&pipe->freed);
    pthread_mutex_unlock(&pipe->lock);
    plec_convert_team_join(&team);
    if (status != PLEC_OK || pipe->status == PLEC_OK) return status;
    if (err != NULL) *err = pipe->error;
    return pipe->status;
}

enum plec_status plec_convert_pipe(char sha256[PLEC_SHA256_TEXT], struct plec_convert *convert,
                                   const struct plec_convert_image *image,
                                   struct plec_atomic_file *file, struct plec_error *err) {
    struct pipe pipe = {.convert = convert, .image = image, .file = file, .direct = -1};
    struct plec_sha256_stream *hash = NULL;
    enum plec_status status = open_pipe(&pipe, convert->n_threads, err);
    if (status == PLEC_OK) status = plec_sha256_open(&hash, err);
    if (status == PLEC_OK) status = run_pipe(&pipe, convert, hash, err);
    if (status == PLEC_OK) status = plec_sha256_finish(sha256, hash, err);
    plec_sha256_close(hash);
    close_pipe(&pipe);
    return status;
}
