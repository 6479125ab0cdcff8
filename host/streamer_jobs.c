/* The engine: starts the reads and copies that the scheduler chose, and tells it how they ended. */
#include <assert.h>
#include <string.h>

#include "host/nvtx.h"
#include "host/streamer_parts.h"

/* --- jobs under way, as bits; the time with any of them --------------------------------------- */

static uint32_t take_job(uint32_t *jobs, uint64_t *since, uint64_t now) {
    uint32_t i = (uint32_t)__builtin_ctz(~*jobs);
    if (*jobs == 0) *since = now;
    *jobs |= UINT32_C(1) << i;
    return i;
}
static void drop_job(uint32_t *jobs, uint32_t i, uint64_t *busy_ns, uint64_t since, uint64_t now) {
    *jobs &= ~(UINT32_C(1) << i);
    if (*jobs == 0) *busy_ns += now - since;
}

/* --- reads ----------------------------------------------------------------------------------- */

static uint8_t *frame_of(const struct plec_streamer *streamer, uint32_t frame) {
    return plec_pinned_frame(streamer->pinned, frame);
}

static void describe_pieces(struct plec_streamer *streamer, struct plec_read_job *read) {
    const struct plec_job *job = &read->job;
    uint8_t *frame = frame_of(streamer, job->frame);
    read->n_pieces = plec_span_pieces(streamer->pieces, &streamer->spans, job->key, job->mask);
    for (uint32_t i = 0; i < read->n_pieces; i++) {
        const struct plec_piece *piece = &streamer->pieces[i];
        streamer->to_submit[streamer->n_to_submit++] =
            (struct plec_io_read){.file = streamer->io_files[piece->file],
                                  .offset = piece->offset,
                                  .length = piece->length,
                                  .to = frame + piece->frame_at,
                                  .user = (uint64_t)(read - streamer->reads),
                                  .slack_before = piece->slack_before,
                                  .slack_after = piece->slack_after,
                                  .urgent = job->urgency == PLEC_DEMAND};
    }
}

static void start_read(struct plec_streamer *streamer, const struct plec_job *job, uint64_t now) {
    uint32_t i = take_job(&streamer->reading, &streamer->reading_since, now);
    struct plec_read_job *read = &streamer->reads[i];
    read->job = *job;
    read->n_done = 0;
    read->n_bytes = 0;
    read->due_ns = plec_streamer_job_due(streamer, job);
    read->failed = false;
    plec_streamer_tell_job(streamer, PLEC_STREAM_READ_BEGIN, job, job->n_bytes, PLEC_OK);
    describe_pieces(streamer, read);
    assert(read->n_pieces > 0); /* no expert is without bytes */
}

/* Hands over the pieces of all reads that a round began: there is room for as many as there can be.
 */
static void submit_pieces(struct plec_streamer *streamer) {
    uint32_t n = streamer->n_to_submit;
    if (n == 0) return;
    size_t taken = plec_io_submit_many(streamer->io, streamer->to_submit, n);
    assert(taken == n);
    (void)taken;
    streamer->n_pieces += n;
    streamer->n_to_submit = 0;
}

static void name_read_error(const struct plec_streamer *streamer, struct plec_read_job *read) {
    const struct plec_key *key = &streamer->keys.keys[read->job.key];
    plec_error_context(&read->error, "experts %u to %u", key->first_entry,
                       key->first_entry + key->n_entries - 1);
}

void plec_streamer_completed(struct plec_streamer *streamer,
                             const struct plec_io_completion *completion) {
    struct plec_read_job *read = &streamer->reads[completion->user];
    assert((streamer->reading >> completion->user & 1) != 0 && read->n_done < read->n_pieces);
    if (++read->n_done == read->n_pieces) streamer->read_whole |= UINT32_C(1) << completion->user;
    streamer->n_pieces--;
    read->n_bytes += completion->n_bytes;
    streamer->counts.read_bytes += completion->n_bytes;
    if (completion->status != PLEC_OK && !read->failed) {
        read->failed = true;
        read->error = completion->error;
        read->error.code = completion->status;
        name_read_error(streamer, read);
    }
    uint64_t rate = streamer->options.disk_bytes_per_s;
    if (rate == 0 || plec_streamer_virtual(streamer)) return;
    uint64_t now = plec_streamer_now(streamer);
    if (streamer->disk_free_ns < now) streamer->disk_free_ns = now;
    streamer->disk_free_ns += (uint64_t)((double)completion->n_bytes * 1e9 / (double)rate);
    read->due_ns = streamer->disk_free_ns;
}

static void end_read(struct plec_streamer *streamer, struct plec_read_job *read, uint64_t now) {
    const struct plec_error *err = read->failed ? &read->error : NULL;
    plec_streamer_tell_job(streamer, PLEC_STREAM_READ_END, &read->job, read->n_bytes,
                           err != NULL ? err->code : PLEC_OK);
    drop_job(&streamer->reading, (uint32_t)(read - streamer->reads), &streamer->counts.read_busy_ns,
             streamer->reading_since, now);
    if (err != NULL) plec_streamer_tell_cancel(streamer, read->job.key, read->job.mask, err->code);
    if (err == NULL) plec_streamer_seal_frame(streamer, &read->job);
    plec_streamer_job_ended(streamer, &read->job, now, read->n_bytes, err);
}

/* Whether what is due then is over. Closing waits for no virtual end. */
static bool is_due(const struct plec_streamer *streamer, uint64_t due_ns, uint64_t now) {
    return due_ns <= now || (streamer->closing && plec_streamer_virtual(streamer));
}

/* Ends the reads that are over. True: one ended. */
static bool tend_reads(struct plec_streamer *streamer, uint64_t now) {
    bool ended = false;
    for (uint32_t left = streamer->read_whole; left != 0; left &= left - 1) {
        struct plec_read_job *read = &streamer->reads[__builtin_ctz(left)];
        if (!is_due(streamer, read->due_ns, now)) continue;
        streamer->read_whole &= ~(left & -left);
        end_read(streamer, read, now);
        ended = true;
    }
    return ended;
}

/* --- copies ---------------------------------------------------------------------------------- */

/* On the copy stream's own thread, behind the pieces; skipped when one of them failed. */
static enum plec_status note_arrival(void *user, struct plec_error *err) {
    struct plec_copy_job *copy = user;
    struct plec_streamer *streamer = copy->streamer;
    uint32_t stream = copy->stream;
    uint64_t n_behind = atomic_load(&streamer->n_copies[stream]) - copy->order - 1;
    (void)err;
    plec_nvtx_name_thread();
    atomic_store(&copy->arrived, true); /* the job is another copy's from here on */
    if (n_behind < PLEC_COPIES_AHEAD)
        plec_streamer_kick(streamer);
    else if (stream != PLEC_DEMAND_STREAM) /* a demand may have joined it */
        plec_streamer_kick_dispatch(streamer);
    return PLEC_OK;
}

static void end_copy(struct plec_streamer *streamer, struct plec_copy_job *copy, uint64_t now,
                     const struct plec_error *err) {
    uint64_t n_bytes = err == NULL ? copy->n_bytes : 0;
    plec_streamer_tell_job(streamer, PLEC_STREAM_COPY_END, &copy->job, n_bytes,
                           err != NULL ? err->code : PLEC_OK);
    drop_job(&streamer->copying, (uint32_t)(copy - streamer->copies),
             &streamer->counts.copy_busy_ns, streamer->copying_since, now);
    streamer->counts.copied_bytes += n_bytes;
    plec_streamer_job_ended(streamer, &copy->job, now, n_bytes, err);
}

static void name_copy_error(const struct plec_streamer *streamer, const struct plec_copy_job *copy,
                            struct plec_error *err) {
    const struct plec_key *key = &streamer->keys.keys[copy->job.key];
    plec_error_context(err, "copy of experts %u to %u to the device", key->first_entry,
                       key->first_entry + key->n_entries - 1);
}

/* Ends a copy whose pieces all ran. */
static void end_good_copy(struct plec_streamer *streamer, struct plec_copy_job *copy,
                          uint64_t now) {
    struct plec_error err;
    enum plec_status status = plec_streamer_seal_arrived(streamer, copy, &err);
    err.code = status;
    if (status != PLEC_OK) name_copy_error(streamer, copy, &err);
    end_copy(streamer, copy, now, status != PLEC_OK ? &err : NULL);
}

/* Enqueues a copy's pieces, the note of their arrival and the event behind both. False: it ended,
 * by failing. */
static bool enqueue_copy(struct plec_streamer *streamer, struct plec_copy_job *copy) {
    struct plec_error err;
    struct plec_stream *stream = streamer->copy_streams[copy->stream];
    copy->order = atomic_fetch_add(&streamer->n_copies[copy->stream], 1);
    atomic_store(&copy->arrived, false);
    enum plec_status status = plec_streamer_enqueue_bytes(streamer, copy, &err);
    if (status == PLEC_OK) status = plec_stream_call(stream, note_arrival, copy, &err);
    if (status == PLEC_OK) status = plec_event_record(copy->event, stream, &err);
    if (status == PLEC_OK) return true;
    err.code = status;
    if (plec_stream_sync(stream, NULL) != PLEC_OK) /* nothing of it may still run */
        plec_log_write(&streamer->log, PLEC_LOG_STEP, "a copy stream failed twice");
    name_copy_error(streamer, copy, &err);
    end_copy(streamer, copy, plec_streamer_now(streamer), &err);
    return false;
}

static bool start_copy(struct plec_streamer *streamer, const struct plec_job *job, uint64_t now) {
    uint32_t i = take_job(&streamer->copying, &streamer->copying_since, now);
    struct plec_copy_job *copy = &streamer->copies[i];
    copy->job = *job;
    plec_streamer_aim(streamer, copy);
    copy->due_ns = plec_streamer_job_due(streamer, job);
    plec_streamer_tell_job(streamer, PLEC_STREAM_COPY_BEGIN, job, job->n_bytes, PLEC_OK);
    plec_streamer_seal_slot(streamer, job);
    return enqueue_copy(streamer, copy);
}

/* The oldest copy of a stream that is under way; NULL: none. */
static struct plec_copy_job *oldest_copy(struct plec_streamer *streamer, uint32_t stream) {
    struct plec_copy_job *oldest = NULL;
    for (uint32_t left = streamer->copying; left != 0; left &= left - 1) {
        struct plec_copy_job *copy = &streamer->copies[__builtin_ctz(left)];
        if (copy->stream == stream && (oldest == NULL || copy->order < oldest->order))
            oldest = copy;
    }
    return oldest;
}

/* After the oldest copy of a stream failed: it ends with the stream's error; those behind it were
 * skipped, and go again. */
static void recover_stream(struct plec_streamer *streamer, struct plec_copy_job *failed) {
    struct plec_error err = {.code = PLEC_OK};
    uint32_t stream = failed->stream;
    uint64_t last = atomic_load(&streamer->n_copies[stream]);
    enum plec_status status = plec_stream_sync(streamer->copy_streams[stream], &err);
    if (status == PLEC_OK)
        status = plec_fail(&err, PLEC_NO_DEVICE, "CopyFailed", "the copy did not run");
    err.code = status;
    name_copy_error(streamer, failed, &err);
    end_copy(streamer, failed, plec_streamer_now(streamer), &err);
    for (struct plec_copy_job *copy = oldest_copy(streamer, stream);
         copy != NULL && copy->order < last; copy = oldest_copy(streamer, stream))
        if (atomic_load(&copy->arrived))
            end_good_copy(streamer, copy, plec_streamer_now(streamer));
        else
            (void)enqueue_copy(streamer, copy);
}

/* Whether a copy ran, or never will. The note is there before the event behind it, which is asked
 * for what was skipped. */
static bool is_over(const struct plec_copy_job *copy) {
    return atomic_load(&copy->arrived) || plec_event_done(copy->event);
}

/* Ends the copies that are over, in the order of their streams. True: one ended. */
static bool tend_copies(struct plec_streamer *streamer, uint64_t now) {
    bool ended = false;
    for (uint32_t stream = 0; stream < PLEC_N_COPY_STREAMS; stream++) {
        struct plec_copy_job *copy = oldest_copy(streamer, stream);
        while (copy != NULL && is_due(streamer, copy->due_ns, now) && is_over(copy)) {
            if (atomic_load(&copy->arrived))
                end_good_copy(streamer, copy, now);
            else
                recover_stream(streamer, copy);
            ended = true;
            copy = oldest_copy(streamer, stream);
        }
    }
    return ended;
}

/* --- poison ---------------------------------------------------------------------------------- */

/* A NaN in every float format, and a NaN scale in every block format. */
enum { POISON = 0xff };

void plec_streamer_poison_slot(struct plec_streamer *streamer, uint32_t slot) {
    enum plec_status status = plec_fill(plec_streamer_slot(streamer, slot), POISON,
                                        streamer->slot_bytes, streamer->fill_stream, NULL);
    if (status == PLEC_OK) status = plec_stream_sync(streamer->fill_stream, NULL);
    if (status != PLEC_OK)
        plec_log_write(&streamer->log, PLEC_LOG_EXPERT, "slot %u was not poisoned", slot);
}

void plec_streamer_poison_frame(struct plec_streamer *streamer, uint32_t frame) {
    memset(frame_of(streamer, frame), POISON, streamer->frame_bytes);
}

/* --- rounds ---------------------------------------------------------------------------------- */

static bool start_reads(struct plec_streamer *streamer, uint64_t now) {
    const uint32_t all = UINT32_MAX >> (32 - PLEC_MAX_READS);
    bool started = false;
    struct plec_job job;
    for (; streamer->reading != all && plec_prefetch_next_read(&job, streamer->prefetch, now);
         started = true)
        start_read(streamer, &job, now);
    submit_pieces(streamer);
    return started;
}

static bool start_copies(struct plec_streamer *streamer, uint64_t now, bool *failed) {
    const uint32_t all = UINT32_MAX >> (32 - streamer->max_copies);
    bool started = false;
    struct plec_job job;
    *failed = false;
    for (; streamer->copying != all && plec_prefetch_next_copy(&job, streamer->prefetch, now);
         started = true)
        if (!start_copy(streamer, &job, now)) *failed = true;
    return started;
}

/* Unless the engine's thread does. */
static void collect(struct plec_streamer *streamer) {
    if (streamer->n_pieces == 0 || streamer->reaping) return;
    size_t n = plec_io_reap(streamer->io, streamer->completions, PLEC_REAP, 0);
    for (size_t i = 0; i < n; i++)
        plec_streamer_completed(streamer, &streamer->completions[i]);
}

bool plec_streamer_round(struct plec_streamer *streamer) {
    collect(streamer);
    uint64_t now = streamer->round_ns = plec_streamer_now(streamer);
    bool moved = tend_reads(streamer, now);
    moved = tend_copies(streamer, now) || moved;
    moved = plec_streamer_release_uses(streamer, now) || moved;
    bool failed = !streamer->closing;
    while (failed) { /* what failed at its start left room for others */
        moved = start_reads(streamer, now) || moved;
        moved = start_copies(streamer, now, &failed) || moved;
    }
    return moved;
}

/* --- what is under way ----------------------------------------------------------------------- */

uint64_t plec_streamer_next_due(const struct plec_streamer *streamer) {
    uint64_t due_ns = UINT64_MAX;
    if (streamer->options.disk_bytes_per_s == 0 && !plec_streamer_virtual(streamer)) return due_ns;
    for (uint32_t left = streamer->read_whole; left != 0; left &= left - 1) {
        const struct plec_read_job *read = &streamer->reads[__builtin_ctz(left)];
        if (read->due_ns < due_ns) due_ns = read->due_ns;
    }
    return due_ns;
}
