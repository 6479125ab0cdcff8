/* What a streamer tells: events as they happen, and counters. */
#include <string.h>

#include "host/streamer_parts.h"

void plec_streamer_tell_trace(struct plec_streamer *streamer, struct plec_stream_event *event) {
    const struct plec_stream_trace *trace = &streamer->options.trace;
    if (event->at_ns == 0) event->at_ns = plec_streamer_now(streamer);
    uint32_t layer = streamer->dispatch.layer;
    if (event->key != PLEC_NO_KEY) {
        layer = streamer->keys.keys[event->key].layer;
        event->first_expert = streamer->keys.keys[event->key].first_entry;
        event->extent = event->key - streamer->keys.layer_first_key[layer];
    }
    event->layer = streamer->layers[layer].number;
    trace->event(trace->user, event);
}

void plec_streamer_tell_job(struct plec_streamer *streamer, enum plec_stream_event_kind kind,
                            const struct plec_job *job, uint64_t n_bytes, enum plec_status status) {
    bool begins = kind == PLEC_STREAM_READ_BEGIN || kind == PLEC_STREAM_COPY_BEGIN;
    if (begins && streamer->arriving != NULL) streamer->arriving[job->key] |= job->mask;
    plec_streamer_tell(streamer, (struct plec_stream_event){.kind = kind,
                                                            .id = job->id,
                                                            .key = job->key,
                                                            .mask = job->mask,
                                                            .frame = job->frame,
                                                            .slot = job->slot,
                                                            .n_bytes = n_bytes,
                                                            .urgency = job->urgency,
                                                            .status = status});
}

void plec_streamer_tell_cancel(struct plec_streamer *streamer, uint32_t key, uint64_t mask,
                               enum plec_status status) {
    if (streamer->arriving == NULL) return;
    mask &= streamer->arriving[key];
    streamer->arriving[key] &= ~mask;
    if (mask != 0)
        plec_streamer_tell(
            streamer, (struct plec_stream_event){
                          .kind = PLEC_STREAM_CANCEL, .key = key, .mask = mask, .status = status});
}

void plec_streamer_tell_ready(struct plec_streamer *streamer, uint32_t key, uint64_t mask,
                              uint32_t slot) {
    const struct plec_job *job = streamer->ending;
    if (job == NULL || job->kind != PLEC_JOB_COPY || job->key != key) return;
    mask &= streamer->arriving[key] & job->mask;
    streamer->arriving[key] &= ~mask;
    if (mask != 0)
        plec_streamer_tell(streamer,
                           (struct plec_stream_event){
                               .kind = PLEC_STREAM_READY, .key = key, .mask = mask, .slot = slot});
}

void plec_streamer_job_ended(struct plec_streamer *streamer, const struct plec_job *job,
                             uint64_t now, uint64_t n_bytes, const struct plec_error *err) {
    uint32_t key = job->key, slot = job->slot;
    streamer->ending = streamer->arriving != NULL ? job : NULL;
    plec_prefetch_job_ended(streamer->prefetch, job->id, now, n_bytes, err);
    if (streamer->ending != NULL)
        plec_streamer_tell_ready(streamer, key, plec_residency_valid(streamer->resident, key),
                                 slot);
    streamer->ending = NULL;
}

static void copy_counts(struct plec_stream_stats *out, const struct plec_stream_counts *counts) {
    out->dispatches = counts->dispatches;
    out->failed = counts->failed;
    out->parts = counts->parts;
    out->experts = counts->experts;
    out->expert_bytes = counts->expert_bytes;
    out->device_hits = counts->device_hits;
    out->device_hit_bytes = counts->device_hit_bytes;
    out->host_hits = counts->host_hits;
    out->host_hit_bytes = counts->host_hit_bytes;
    out->disk_misses = counts->disk_misses;
    out->disk_miss_bytes = counts->disk_miss_bytes;
    out->read_bytes = counts->read_bytes;
    out->copied_bytes = counts->copied_bytes;
    out->read_busy_ns = counts->read_busy_ns;
    out->copy_busy_ns = counts->copy_busy_ns;
    out->waits = counts->waits;
    out->stall_ns = counts->stall_ns;
    out->stall_slot_ns = counts->stall_slot_ns;
    out->stall_disk_ns = counts->stall_disk_ns;
    out->stall_copy_ns = counts->stall_copy_ns;
    out->stall_other_ns = counts->stall_other_ns;
}

static void describe(struct plec_stream_stats *out, const struct plec_streamer *streamer) {
    const struct plec_keyspace *keys = &streamer->keys;
    out->extent_width = streamer->width;
    out->n_keys = keys->n_keys;
    out->n_experts = keys->n_experts;
    out->frame_bytes = streamer->frame_bytes;
    out->slot_bytes = streamer->slot_bytes;
    out->landing_bytes = PLEC_N_LANDINGS * streamer->landing_bytes;
    for (uint32_t k = 0; k < keys->n_keys; k++)
        out->weight_bytes += keys->keys[k].extent_bytes;
    out->n_slots = streamer->n_slots;
    out->n_slot_staging = streamer->n_slot_staging;
    out->n_frames = streamer->n_frames;
    out->n_frame_staging = streamer->n_frame_staging;
    out->pinned = streamer->pinned_info;
}

void plec_streamer_get_stats(struct plec_stream_stats *out, struct plec_streamer *streamer) {
    memset(out, 0, sizeof *out);
    pthread_mutex_lock(&streamer->lock);
    plec_streamer_round(streamer);
    describe(out, streamer);
    copy_counts(out, &streamer->counts);
    out->n_reading = (uint64_t)__builtin_popcount(streamer->reading);
    out->n_copying = (uint64_t)__builtin_popcount(streamer->copying);
    plec_residency_get_counters(&out->device, streamer->resident);
    plec_residency_get_counters(&out->host, streamer->host);
    plec_prefetch_get_counters(&out->prefetch, streamer->prefetch);
    plec_io_get_counters(&out->io, streamer->io);
    for (int i = PLEC_FROM_PLAN; i <= PLEC_FROM_PROFILE; i++)
        plec_predict_report(&out->policies[i], streamer->predict, (enum plec_origin)i);
    plec_streamer_keep_up(streamer);
    plec_streamer_unlock(streamer);
}

bool plec_streamer_sound(struct plec_streamer *streamer, const char **broken) {
    pthread_mutex_lock(&streamer->lock);
    bool sound = plec_residency_sound(streamer->resident, broken) &&
                 plec_residency_sound(streamer->host, broken) &&
                 plec_prefetch_sound(streamer->prefetch, broken);
    pthread_mutex_unlock(&streamer->lock);
    return sound;
}
