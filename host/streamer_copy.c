/* The bytes of a copy: straight into the slot, at the places of the frame; or, where launches read
 * another form, into the landing of its stream, and behind the last bytes the arrival.
 *
 * A landing is one move's until another begins on its stream, in the stream's order. A move that
 * goes on after that, in chunks of a large expert, has lost its first bytes, and copies them again.
 */
#include <assert.h>

#include "host/streamer_parts.h"

uint32_t plec_streamer_land(struct plec_streamer *streamer, uint32_t key, uint64_t mask) {
    uint32_t n = plec_span_pieces(streamer->pieces, &streamer->spans, key, mask);
    uint64_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        streamer->landed_at[i] = at;
        at += plec_landed_bytes(streamer->pieces[i].length);
    }
    assert(streamer->landing_bytes == 0 || at <= streamer->landing_bytes);
    return n;
}

bool plec_streamer_is_last(const struct plec_streamer *streamer, const struct plec_copy_job *copy) {
    const struct plec_job *job = &copy->job;
    return job->at + job->n_bytes == plec_key_bytes(&streamer->keys.keys[job->key], job->mask);
}

/* --- landings -------------------------------------------------------------------------------- */

static bool holds(const struct plec_landing *landing, const struct plec_job *job) {
    return landing->mask == job->mask && landing->slot == job->slot;
}

/* What an earlier move of the same experts to the same slot left is not this one's. */
static void forget(struct plec_streamer *streamer, const struct plec_job *job) {
    for (uint32_t i = 0; i < PLEC_N_LANDINGS; i++)
        if (holds(&streamer->landings[i], job)) streamer->landings[i].mask = 0;
}

void plec_streamer_aim(struct plec_streamer *streamer, struct plec_copy_job *copy) {
    const struct plec_job *job = &copy->job;
    copy->stream = job->urgency == PLEC_DEMAND ? PLEC_DEMAND_STREAM : PLEC_OTHER_STREAM;
    copy->from = job->at;
    if (!plec_streamer_arrival(streamer, job->key)->changes) return;
    if (job->at == 0) forget(streamer, job);
    bool found = job->at == 0;
    for (uint32_t i = 0; i < PLEC_N_LANDINGS && !found; i++) {
        found = holds(&streamer->landings[i], job);
        if (found) copy->stream = i;
    }
    if (!found) copy->from = 0;
    struct plec_landing *landing = &streamer->landings[copy->stream];
    landing->slot = job->slot;
    landing->mask = plec_streamer_is_last(streamer, copy) ? 0 : job->mask;
}

/* Where a place of the frame has landed, among n pieces in order of frame_at. */
static const uint8_t *landed(const struct plec_streamer *streamer, uint32_t n, const uint8_t *base,
                             uint64_t frame_at) {
    uint32_t least = 0;
    if (frame_at == UINT64_MAX) return NULL; /* the operand is absent */
    while (n - least > 1) {
        uint32_t middle = least + (n - least) / 2;
        if (streamer->pieces[middle].frame_at <= frame_at)
            least = middle;
        else
            n = middle;
    }
    const struct plec_piece *piece = &streamer->pieces[least];
    assert(frame_at >= piece->frame_at && frame_at - piece->frame_at < piece->length);
    return base + streamer->landed_at[least] + (frame_at - piece->frame_at);
}

static void find_landed(struct plec_entry *out, const struct plec_streamer *streamer, uint32_t n,
                        const uint8_t *base, const uint64_t *stream_at) {
    for (uint32_t i = 0; i < PLEC_N_OPERANDS; i++)
        out->values[i] = landed(streamer, n, base, stream_at[i]);
    for (uint32_t i = 0; i < PLEC_N_MATRICES; i++)
        out->scales[i] = landed(streamer, n, base, stream_at[PLEC_N_OPERANDS + i]);
}

/* Makes the experts of a copy, whose n pieces have landed, in their slot. */
static enum plec_status arrive(struct plec_streamer *streamer, const struct plec_copy_job *copy,
                               uint32_t n, struct plec_error *err) {
    const struct plec_job *job = &copy->job;
    const struct plec_key *key = &streamer->keys.keys[job->key];
    const struct plec_extent_map *map = &streamer->maps[key->layer];
    struct plec_arrive_args args = {.bank = &streamer->layers[key->layer].bank,
                                    .from = streamer->landed,
                                    .to = streamer->blocks};
    for (uint64_t left = job->mask; left != 0; left &= left - 1) {
        uint32_t bit = (uint32_t)__builtin_ctzll(left);
        size_t entry = key->first_entry + bit;
        find_landed(&streamer->landed[args.n], streamer, n, streamer->landings[copy->stream].memory,
                    &map->stream_at[entry * PLEC_N_STREAMS]);
        streamer->blocks[args.n++] = plec_streamer_slot(streamer, job->slot) +
                                     plec_streamer_block_at(streamer, job->key, bit);
    }
    return plec_launch_arrive(streamer->copy_streams[copy->stream], &args, err);
}

/* --- bytes ----------------------------------------------------------------------------------- */

/* The bytes [from, end) of n pieces laid end to end, each into its place. */
static enum plec_status enqueue_pieces(struct plec_streamer *streamer, struct plec_copy_job *copy,
                                       uint32_t n, uint64_t end, bool lands,
                                       struct plec_error *err) {
    const uint8_t *frame = plec_pinned_frame(streamer->pinned, copy->job.frame);
    uint8_t *to = lands ? streamer->landings[copy->stream].memory
                        : plec_streamer_slot(streamer, copy->job.slot);
    struct plec_stream *stream = streamer->copy_streams[copy->stream];
    uint64_t begin = 0;
    enum plec_status status = PLEC_OK;
    for (uint32_t i = 0; status == PLEC_OK && i < n && begin < end; i++) {
        const struct plec_piece *piece = &streamer->pieces[i];
        uint64_t first = copy->from > begin ? copy->from - begin : 0, last = end - begin;
        begin += piece->length;
        if (last > piece->length) last = piece->length;
        if (first >= last) continue;
        uint64_t at = lands ? streamer->landed_at[i] : piece->frame_at;
        copy->n_bytes += last - first;
        status =
            plec_copy(to + at + first, frame + piece->frame_at + first, last - first, stream, err);
    }
    return status;
}

enum plec_status plec_streamer_enqueue_bytes(struct plec_streamer *streamer,
                                             struct plec_copy_job *copy, struct plec_error *err) {
    const struct plec_job *job = &copy->job;
    bool lands = plec_streamer_arrival(streamer, job->key)->changes;
    bool last = plec_streamer_is_last(streamer, copy); /* takes all that is left */
    uint32_t n = plec_streamer_land(streamer, job->key, job->mask);
    copy->n_bytes = 0;
    enum plec_status status =
        enqueue_pieces(streamer, copy, n, last ? UINT64_MAX : job->at + job->n_bytes, lands, err);
    return status == PLEC_OK && last && lands ? arrive(streamer, copy, n, err) : status;
}
