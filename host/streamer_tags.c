/* Content tags, of a debugging streamer: what is in a frame or a slot is what was read into it.
 *
 * A read seals the experts it brought with a hash of their bytes in the frame; a copy carries the
 * tags over to the slot, if the frame still is what they say. Experts that arrive in another form
 * are looked at where they landed, and sealed with a hash of what they became. A slot is looked at
 * before its experts are handed to a launch, one that was there and one that has just arrived. What
 * is not what was read goes out of service for good, and is read anew.
 */
#include <string.h>

#include "host/streamer_parts.h"

static const uint64_t MULTIPLIER = UINT64_C(0x9e3779b97f4a7c15);

static uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * MULTIPLIER;
    return hash ^ hash >> 29;
}

static uint64_t hash_bytes(uint64_t hash, const uint8_t *bytes, uint64_t n) {
    uint64_t word = 0;
    for (; n >= sizeof word; n -= sizeof word, bytes += sizeof word) {
        memcpy(&word, bytes, sizeof word);
        hash = mix(hash, word);
    }
    word = n;
    memcpy(&word, bytes, n);
    return mix(hash, word ^ n << 56);
}

/* Of an expert of a key, in the host's memory at `extent`; two experts of equal bytes differ. */
static uint64_t tag_of(struct plec_streamer *streamer, const uint8_t *extent, uint32_t key,
                       uint64_t bit) {
    uint64_t hash = mix(key, bit);
    uint32_t n = plec_span_pieces(streamer->pieces, &streamer->spans, key, bit);
    for (uint32_t i = 0; i < n; i++)
        hash = hash_bytes(hash, extent + streamer->pieces[i].frame_at, streamer->pieces[i].length);
    return hash;
}

static const uint8_t *frame_bytes(const struct plec_streamer *streamer, uint32_t frame) {
    return plec_pinned_frame(streamer->pinned, frame);
}

static void say_spoiled(const struct plec_streamer *streamer, const char *what, uint32_t number,
                        uint32_t key_id, uint32_t bit) {
    const struct plec_key *key = &streamer->keys.keys[key_id];
    plec_log_write(&streamer->log, PLEC_LOG_RUN,
                   "%s %u: expert %u of layer %u is not what was read; the %s goes out of service",
                   what, number, key->first_entry + bit, streamer->layers[key->layer].number, what);
}

/* --- frames ---------------------------------------------------------------------------------- */

static void spoil(struct plec_streamer *streamer, const struct plec_job *read) {
    const struct plec_stream_options *options = &streamer->options;
    if (options->spoil == NULL) return;
    uint8_t *frame = plec_pinned_frame(streamer->pinned, read->frame);
    uint32_t n = plec_span_pieces(streamer->pieces, &streamer->spans, read->key, read->mask);
    for (uint32_t i = 0; i < n; i++)
        options->spoil(options->spoil_user, frame + streamer->pieces[i].frame_at,
                       streamer->pieces[i].length);
}

void plec_streamer_seal_frame(struct plec_streamer *streamer, const struct plec_job *read) {
    struct plec_slot_ref ref;
    if (!streamer->options.poison || !plec_residency_hold(&ref, streamer->host, read->key)) return;
    for (uint64_t left = read->mask; ref.slot == read->frame && left != 0; left &= left - 1)
        plec_residency_seal(
            streamer->host, ref, (uint32_t)__builtin_ctzll(left),
            tag_of(streamer, frame_bytes(streamer, read->frame), read->key, left & -left));
    plec_residency_release(streamer->host, ref);
    spoil(streamer, read);
}

/* Looks at all that a key has in its frame. */
static void inspect_frame(struct plec_streamer *streamer, uint32_t key) {
    struct plec_slot_ref ref;
    uint64_t mask = plec_residency_valid(streamer->host, key);
    uint32_t bit = 0;
    bool good = true;
    if (!plec_residency_hold(&ref, streamer->host, key)) return;
    for (uint64_t left = mask; good && left != 0; left &= left - 1) {
        bit = (uint32_t)__builtin_ctzll(left);
        uint64_t tag = tag_of(streamer, frame_bytes(streamer, ref.slot), key, left & -left);
        good = plec_residency_check(streamer->host, ref, bit, tag);
    }
    plec_residency_release(streamer->host, ref);
    if (good) return;
    say_spoiled(streamer, "frame", ref.slot, key, bit);
    plec_prefetch_quarantined(streamer->prefetch, key, plec_streamer_now(streamer));
}

/* --- slots ----------------------------------------------------------------------------------- */

void plec_streamer_seal_slot(struct plec_streamer *streamer, const struct plec_job *copy) {
    struct plec_slot_ref ref;
    if (!streamer->options.poison || copy->at != 0 ||
        plec_streamer_arrival(streamer, copy->key)->changes ||
        !plec_residency_hold(&ref, streamer->resident, copy->key))
        return;
    for (uint64_t left = copy->mask; ref.slot == copy->slot && left != 0; left &= left - 1) {
        uint32_t bit = (uint32_t)__builtin_ctzll(left);
        plec_residency_seal(streamer->resident, ref, bit,
                            plec_residency_tag(streamer->host, copy->frame, bit));
    }
    plec_residency_release(streamer->resident, ref);
}

/* Brings pieces of device memory to the host, each to its place in an extent. at [n]: where they
 * are; NULL: at the same place. */
static enum plec_status fetch_pieces(struct plec_streamer *streamer, const uint8_t *from,
                                     const uint64_t *at, uint32_t n, struct plec_error *err) {
    enum plec_status status = PLEC_OK;
    for (uint32_t i = 0; status == PLEC_OK && i < n; i++) {
        const struct plec_piece *piece = &streamer->pieces[i];
        status = plec_copy(streamer->looked_at + piece->frame_at,
                           from + (at != NULL ? at[i] : piece->frame_at), piece->length,
                           streamer->fill_stream, err);
    }
    enum plec_status waited =
        plec_stream_sync(streamer->fill_stream, status == PLEC_OK ? err : NULL);
    return status == PLEC_OK ? waited : status;
}

/* Brings experts that have arrived to the host, each to its place in a slot. */
static enum plec_status fetch_blocks(struct plec_streamer *streamer, const uint8_t *from,
                                     uint32_t key, uint64_t mask, struct plec_error *err) {
    uint64_t n_bytes = plec_streamer_arrival(streamer, key)->n_bytes;
    enum plec_status status = PLEC_OK;
    for (uint64_t left = mask; status == PLEC_OK && left != 0; left &= left - 1) {
        uint64_t at = plec_streamer_block_at(streamer, key, (uint32_t)__builtin_ctzll(left));
        status =
            plec_copy(streamer->looked_at + at, from + at, n_bytes, streamer->fill_stream, err);
    }
    enum plec_status waited =
        plec_stream_sync(streamer->fill_stream, status == PLEC_OK ? err : NULL);
    return status == PLEC_OK ? waited : status;
}

/* Of an expert that has arrived, in the host's memory at `slot`. */
static uint64_t block_tag_of(const struct plec_streamer *streamer, const uint8_t *slot,
                             uint32_t key, uint64_t bit) {
    uint64_t at = plec_streamer_block_at(streamer, key, (uint32_t)__builtin_ctzll(bit));
    return hash_bytes(mix(key, bit), slot + at, plec_streamer_arrival(streamer, key)->n_bytes);
}

/* Which experts of a copy landed as they were read. While one is under way no other copy is
 * (max_copies), so that its landing is still its own. */
static enum plec_status look_at_landing(uint64_t *good, struct plec_streamer *streamer,
                                        const struct plec_copy_job *copy, struct plec_error *err) {
    const struct plec_job *job = &copy->job;
    uint32_t n = plec_streamer_land(streamer, job->key, job->mask);
    enum plec_status status = fetch_pieces(streamer, streamer->landings[copy->stream].memory,
                                           streamer->landed_at, n, err);
    *good = 0;
    for (uint64_t left = job->mask; status == PLEC_OK && left != 0; left &= left - 1) {
        uint64_t bit = left & -left, tag = tag_of(streamer, streamer->looked_at, job->key, bit);
        if (tag == plec_residency_tag(streamer->host, job->frame, (uint32_t)__builtin_ctzll(bit)))
            *good |= bit;
    }
    return status;
}

static enum plec_status seal_blocks(struct plec_streamer *streamer,
                                    const struct plec_copy_job *copy, struct plec_slot_ref ref,
                                    struct plec_error *err) {
    const struct plec_job *job = &copy->job;
    uint64_t good;
    enum plec_status status = look_at_landing(&good, streamer, copy, err);
    if (status == PLEC_OK)
        status = fetch_blocks(streamer, plec_streamer_slot(streamer, job->slot), job->key,
                              job->mask, err);
    for (uint64_t left = job->mask; status == PLEC_OK && left != 0; left &= left - 1) {
        uint64_t bit = left & -left,
                 tag = block_tag_of(streamer, streamer->looked_at, job->key, bit);
        /* What is not what was read gets a tag that it does not have. */
        plec_residency_seal(streamer->resident, ref, (uint32_t)__builtin_ctzll(bit),
                            (good & bit) != 0 ? tag : ~tag);
    }
    if (status != PLEC_OK) plec_error_context(err, "slot %u could not be looked at", job->slot);
    return status;
}

enum plec_status plec_streamer_seal_arrived(struct plec_streamer *streamer,
                                            const struct plec_copy_job *copy,
                                            struct plec_error *err) {
    struct plec_slot_ref ref;
    const struct plec_job *job = &copy->job;
    enum plec_status status = PLEC_OK;
    if (!streamer->options.poison || !plec_streamer_is_last(streamer, copy) ||
        !plec_streamer_arrival(streamer, job->key)->changes ||
        !plec_residency_hold(&ref, streamer->resident, job->key))
        return PLEC_OK;
    if (ref.slot == job->slot) status = seal_blocks(streamer, copy, ref, err);
    plec_residency_release(streamer->resident, ref);
    return status;
}

/* Tags of what a slot holds: looked_at is filled, tags [PLEC_EXTENT_MAX] by bit. */
static enum plec_status look_at_slot(uint64_t *tags, struct plec_streamer *streamer, uint32_t slot,
                                     uint32_t key, uint64_t mask, struct plec_error *err) {
    const uint8_t *from = plec_streamer_slot(streamer, slot);
    bool arrived = plec_streamer_arrival(streamer, key)->changes;
    uint32_t n = plec_span_pieces(streamer->pieces, &streamer->spans, key, mask);
    enum plec_status status = arrived ? fetch_blocks(streamer, from, key, mask, err)
                                      : fetch_pieces(streamer, from, NULL, n, err);
    for (uint64_t left = mask; status == PLEC_OK && left != 0; left &= left - 1)
        tags[__builtin_ctzll(left)] =
            arrived ? block_tag_of(streamer, streamer->looked_at, key, left & -left)
                    : tag_of(streamer, streamer->looked_at, key, left & -left);
    return status;
}

enum plec_status plec_streamer_inspect_slot(struct plec_streamer *streamer,
                                            struct plec_slot_ref ref, uint32_t key, uint64_t mask,
                                            struct plec_error *err) {
    uint64_t tags[PLEC_EXTENT_MAX];
    if (!streamer->options.poison) return PLEC_OK;
    enum plec_status status = look_at_slot(tags, streamer, ref.slot, key, mask, err);
    if (status != PLEC_OK) {
        plec_error_context(err, "slot %u could not be looked at", ref.slot);
        return status;
    }
    for (uint64_t left = mask; left != 0; left &= left - 1) {
        uint32_t bit = (uint32_t)__builtin_ctzll(left);
        if (plec_residency_check(streamer->resident, ref, bit, tags[bit])) continue;
        say_spoiled(streamer, "slot", ref.slot, key, bit);
        plec_prefetch_quarantined(streamer->prefetch, key, plec_streamer_now(streamer));
        inspect_frame(streamer, key);
        return plec_fail(err, PLEC_MALFORMED, "Spoiled", "slot %u", ref.slot);
    }
    return PLEC_OK;
}

void plec_streamer_inspect_key(struct plec_streamer *streamer, uint32_t key, uint64_t mask) {
    struct plec_slot_ref ref;
    struct plec_error err;
    mask &= plec_residency_valid(streamer->resident, key);
    if (!streamer->options.poison || mask == 0 ||
        !plec_residency_hold(&ref, streamer->resident, key))
        return;
    /* What cannot be looked at now is looked at again when it is handed out. */
    (void)!plec_streamer_inspect_slot(streamer, ref, key, mask, &err);
    plec_residency_release(streamer->resident, ref);
}
