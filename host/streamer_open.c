/* Opening and closing: files, frames, slots and streams; what decides; what a dispatch needs. */
#include <stdio.h>
#include <stdlib.h>

#include "host/budget.h"
#include "host/streamer_parts.h"

/* --- files ----------------------------------------------------------------------------------- */

static enum plec_status add_files(struct plec_streamer *streamer,
                                  const struct plec_container *container, struct plec_error *err) {
    uint32_t n_files = plec_container_n_files(container);
    streamer->io_files =
        plec_arena_alloc(&streamer->arena, n_files, sizeof *streamer->io_files, err);
    if (streamer->io_files == NULL) return PLEC_NO_MEMORY;
    for (uint32_t f = 0; f < n_files; f++)
        streamer->io_files[f] = UINT32_MAX;
    for (uint32_t i = 0; i < streamer->spans.first[streamer->keys.n_keys]; i++) {
        uint32_t f = streamer->spans.spans[i].file;
        if (streamer->io_files[f] != UINT32_MAX) continue;
        enum plec_status status = plec_io_add_file(&streamer->io_files[f], streamer->io,
                                                   plec_container_file_path(container, f), err);
        if (status != PLEC_OK) return status;
    }
    return PLEC_OK;
}

static enum plec_status open_files(struct plec_streamer *streamer,
                                   const struct plec_streamer_args *args, struct plec_error *err) {
    const struct plec_stream_options *options = &streamer->options;
    struct plec_io_options io = {.engine = options->io_engine,
                                 .cache = options->io_cache,
                                 .max_requests = PLEC_MAX_READS * streamer->spans.max_spans,
                                 .queue_depth = options->io_depth,
                                 .fault = options->io_fault,
                                 .log = streamer->log};
    uint32_t n_files = plec_container_n_files(args->container);
    if (n_files > 4096) io.max_files = n_files;
    enum plec_status status = plec_io_open(&streamer->io, &io, err);
    if (status == PLEC_OK) status = add_files(streamer, args->container, err);
    return status;
}

/* --- memory ---------------------------------------------------------------------------------- */

/* Slots of a tier that pass through. */
static uint32_t choose_staging(const struct plec_streamer *streamer, uint32_t n_all) {
    return streamer->options.bypass ? n_all : plec_budget_staging(n_all, streamer->max_keys);
}

static enum plec_status open_frames(struct plec_streamer *streamer, struct plec_error *err) {
    const struct plec_stream_options *options = &streamer->options;
    struct plec_pinned_options pinned = {
        .frame_bytes = streamer->frame_bytes,
        .n_frames = streamer->n_frames,
        .slab_bytes = options->pin_slab_bytes,
        .mode = options->pin,
        .method = options->pin_method,
        .numa_node = -1,
        .allow = options->allow_slab,
        .user = options->allow_user,
        .log = streamer->log,
    };
    enum plec_status status = plec_pinned_open(&streamer->pinned, streamer->device, &pinned, err);
    if (status != PLEC_OK) return status;
    plec_pinned_get_info(&streamer->pinned_info, streamer->pinned);
    streamer->n_frames = (uint32_t)streamer->pinned_info.n_frames;
    streamer->n_frame_staging = choose_staging(streamer, streamer->n_frames);
    for (uint32_t i = 0; i < streamer->pinned_info.n_slabs; i++) {
        uint64_t n_bytes;
        void *slab = plec_pinned_slab(streamer->pinned, i, &n_bytes);
        plec_io_register(streamer->io, slab, n_bytes);
    }
    plec_io_submit_many(streamer->io, NULL,
                        0); /* settles how files are read, now and not in a step */
    return PLEC_OK;
}

/* So that no copy meets memory that the system has yet to find, page by page. */
static enum plec_status touch_slots(struct plec_streamer *streamer, struct plec_error *err) {
    struct plec_stream *stream = streamer->copy_streams[PLEC_DEMAND_STREAM];
    enum plec_status status =
        plec_fill(streamer->slots, 0, streamer->n_slots * streamer->slot_bytes, stream, err);
    return status == PLEC_OK ? plec_stream_sync(stream, err) : status;
}

static enum plec_status open_slots(struct plec_streamer *streamer, struct plec_error *err) {
    streamer->n_slot_staging = choose_staging(streamer, streamer->n_slots);
    void *memory = NULL;
    struct plec_error reason;
    uint64_t slots = streamer->n_slots * streamer->slot_bytes;
    enum plec_status status = plec_device_alloc(
        &memory, streamer->device, slots + PLEC_N_LANDINGS * streamer->landing_bytes, &reason);
    if (status != PLEC_OK)
        return plec_fail(err, status, "DeviceMemory", "%u slots of %llu bytes for experts: %s",
                         streamer->n_slots, (unsigned long long)streamer->slot_bytes,
                         reason.message);
    streamer->slots = memory;
    for (uint32_t i = 0; i < PLEC_N_LANDINGS; i++)
        streamer->landings[i].memory = streamer->slots + slots + i * streamer->landing_bytes;
    /* What landed is looked at before the next lands. */
    bool one_by_one = streamer->options.poison && streamer->landing_bytes > 0;
    streamer->max_copies = one_by_one ? 1 : PLEC_MAX_COPIES;
    return touch_slots(streamer, err);
}

static enum plec_status open_stream(struct plec_stream **out, const char *name,
                                    struct plec_streamer *streamer, struct plec_error *err) {
    enum plec_status status = plec_stream_open(out, streamer->device, err);
    if (status == PLEC_OK) plec_stream_set_name(*out, name);
    return status;
}

static enum plec_status open_streams(struct plec_streamer *streamer, struct plec_error *err) {
    enum plec_status status = PLEC_OK;
    for (uint32_t i = 0; status == PLEC_OK && i < PLEC_N_COPY_STREAMS; i++) {
        char name[16];
        snprintf(name, sizeof name, "plec-copy-%u", i);
        status = open_stream(&streamer->copy_streams[i], name, streamer, err);
    }
    if (status == PLEC_OK && streamer->options.poison)
        status = open_stream(&streamer->fill_stream, "plec-poison", streamer, err);
    if (status != PLEC_OK || !streamer->options.poison) return status;
    uint64_t n_bytes =
        streamer->frame_bytes > streamer->slot_bytes ? streamer->frame_bytes : streamer->slot_bytes;
    streamer->looked_at = plec_arena_alloc(&streamer->arena, n_bytes, 1, err);
    if (streamer->looked_at == NULL) return PLEC_NO_MEMORY;
    return status;
}

static void poison_all(struct plec_streamer *streamer) {
    for (uint32_t i = 0; i < streamer->n_slots; i++)
        plec_streamer_poison_slot(streamer, i);
    for (uint32_t i = 0; i < streamer->n_frames; i++)
        plec_streamer_poison_frame(streamer, i);
}

static enum plec_status open_memory(struct plec_streamer *streamer, struct plec_error *err) {
    enum plec_status status = open_streams(streamer, err);
    if (status == PLEC_OK) status = open_frames(streamer, err);
    if (status == PLEC_OK) status = open_slots(streamer, err);
    if (status == PLEC_OK && streamer->options.poison) poison_all(streamer);
    return status;
}

/* --- what decides ---------------------------------------------------------------------------- */

static void slot_evicted(void *user, const struct plec_eviction *eviction) {
    struct plec_streamer *streamer = user;
    /* What nobody holds any more leaves as soon as it has come. */
    if (eviction->valid != 0)
        plec_streamer_tell_ready(streamer, eviction->key, eviction->valid, eviction->slot);
    if (eviction->valid != 0)
        plec_streamer_tell(streamer, (struct plec_stream_event){.kind = PLEC_STREAM_EVICT_SLOT,
                                                                .key = eviction->key,
                                                                .mask = eviction->valid,
                                                                .slot = eviction->slot});
    if (streamer->options.poison) plec_streamer_poison_slot(streamer, eviction->slot);
}

static void frame_evicted(void *user, const struct plec_eviction *eviction) {
    struct plec_streamer *streamer = user;
    if (eviction->valid != 0)
        plec_streamer_tell(streamer, (struct plec_stream_event){.kind = PLEC_STREAM_EVICT_FRAME,
                                                                .key = eviction->key,
                                                                .mask = eviction->valid,
                                                                .frame = eviction->slot});
    if (eviction->key != PLEC_NO_KEY) {
        uint64_t there = plec_residency_valid(streamer->resident, eviction->key);
        plec_streamer_tell_cancel(streamer, eviction->key, eviction->valid & ~there, PLEC_OK);
    }
    if (streamer->options.poison) plec_streamer_poison_frame(streamer, eviction->slot);
}

static enum plec_status open_tiers(struct plec_streamer *streamer, struct plec_error *err) {
    struct plec_residency_options options = {
        .keys = &streamer->keys,
        .n_slots = streamer->n_frames - streamer->n_frame_staging,
        .n_staging = streamer->n_frame_staging,
        .policy = streamer->options.policy,
        .tags = streamer->options.poison,
        .evicted = frame_evicted,
        .user = streamer,
    };
    enum plec_status status = plec_residency_open(&streamer->host, &options, err);
    if (status != PLEC_OK) return status;
    options.n_slots = streamer->n_slots - streamer->n_slot_staging;
    options.n_staging = streamer->n_slot_staging;
    options.evicted = slot_evicted;
    return plec_residency_open(&streamer->resident, &options, err);
}

static enum plec_status open_scheduler(struct plec_streamer *streamer, struct plec_error *err) {
    const struct plec_prefetch_options prefetch = {.keys = &streamer->keys,
                                                   .host = streamer->host,
                                                   .device = streamer->resident,
                                                   .max_demands = streamer->max_keys,
                                                   .max_reads = PLEC_MAX_READS,
                                                   .copies = {4, 2, 1, 1},
                                                   .chunk_bytes = streamer->options.chunk_bytes,
                                                   .watchdog_ns = streamer->options.watchdog_ns};
    const struct plec_predict_options predict = {.keys = &streamer->keys,
                                                 .tier = streamer->resident,
                                                 .start_on = streamer->options.speculation ==
                                                             PLEC_SPECULATE_ON};
    enum plec_status status = plec_prefetch_open(&streamer->prefetch, &prefetch, err);
    if (status == PLEC_OK) status = plec_predict_open(&streamer->predict, &predict, err);
    return status;
}

static enum plec_status alloc_dispatch(struct plec_streamer *streamer, struct plec_error *err) {
    struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    struct plec_arena *arena = &streamer->arena;
    uint32_t n = streamer->max_keys;
    dispatch->fit = plec_arena_alloc(arena, n, sizeof *dispatch->fit, err);
    dispatch->needs = plec_arena_alloc(arena, n, sizeof *dispatch->needs, err);
    dispatch->need_at = plec_arena_alloc(arena, n, sizeof *dispatch->need_at, err);
    dispatch->held = plec_arena_alloc(arena, n, sizeof *dispatch->held, err);
    dispatch->uses = plec_arena_alloc(arena, n, sizeof *dispatch->uses, err);
    if (dispatch->fit == NULL || dispatch->needs == NULL || dispatch->need_at == NULL ||
        dispatch->held == NULL || dispatch->uses == NULL)
        return PLEC_NO_MEMORY;
    enum plec_status status = PLEC_OK;
    for (uint32_t i = 0; status == PLEC_OK && i < n; i++) {
        status = plec_event_open(&dispatch->uses[i].event, streamer->device, err);
        if (status == PLEC_OK)
            status = plec_event_open(&dispatch->uses[i].called, streamer->device, err);
    }
    return status;
}

static enum plec_status alloc_jobs(struct plec_streamer *streamer, struct plec_error *err) {
    struct plec_arena *arena = &streamer->arena;
    streamer->to_submit = plec_arena_alloc(arena, PLEC_MAX_READS * streamer->spans.max_spans,
                                           sizeof *streamer->to_submit, err);
    if (streamer->to_submit == NULL) return PLEC_NO_MEMORY;
    enum plec_status status = PLEC_OK;
    for (uint32_t i = 0; status == PLEC_OK && i < PLEC_MAX_COPIES; i++) {
        streamer->copies[i].streamer = streamer;
        status = plec_event_open(&streamer->copies[i].event, streamer->device, err);
    }
    return status;
}

static enum plec_status alloc_scratch(struct plec_streamer *streamer, struct plec_error *err) {
    struct plec_arena *arena = &streamer->arena;
    uint32_t n_requests = plec_predict_max_requests(streamer->predict);
    streamer->pieces =
        plec_arena_alloc(arena, streamer->spans.max_spans, sizeof *streamer->pieces, err);
    streamer->landed_at =
        plec_arena_alloc(arena, streamer->spans.max_spans, sizeof *streamer->landed_at, err);
    streamer->requests = plec_arena_alloc(arena, n_requests, sizeof *streamer->requests, err);
    streamer->masks = plec_arena_alloc(arena, streamer->max_keys, sizeof *streamer->masks, err);
    streamer->active_ids =
        plec_arena_alloc(arena, streamer->max_entries, sizeof *streamer->active_ids, err);
    streamer->all_ids =
        plec_arena_alloc(arena, streamer->max_entries, sizeof *streamer->all_ids, err);
    if (streamer->pieces == NULL || streamer->landed_at == NULL || streamer->requests == NULL ||
        streamer->masks == NULL || streamer->active_ids == NULL || streamer->all_ids == NULL)
        return PLEC_NO_MEMORY;
    for (uint32_t i = 0; i < streamer->max_entries; i++)
        streamer->all_ids[i] = (int32_t)i;
    if (!plec_streamer_traced(streamer)) return PLEC_OK;
    streamer->arriving =
        plec_arena_alloc(arena, streamer->keys.n_keys, sizeof *streamer->arriving, err);
    return streamer->arriving != NULL ? PLEC_OK : PLEC_NO_MEMORY;
}

/* --- all of it ------------------------------------------------------------------------------- */

static void open_locks(struct plec_streamer *streamer) {
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&streamer->lock, NULL);
    pthread_mutex_init(&streamer->wake_lock, NULL);
    pthread_cond_init(&streamer->engine_wake, &monotonic);
    pthread_cond_init(&streamer->dispatch_wake, &monotonic);
    pthread_condattr_destroy(&monotonic);
}

static enum plec_status open_all(struct plec_streamer *streamer,
                                 const struct plec_streamer_args *args, struct plec_error *err) {
    enum plec_status status = plec_streamer_lay_out(streamer, args, err);
    if (status == PLEC_OK) status = open_files(streamer, args, err);
    if (status == PLEC_OK) status = open_memory(streamer, err);
    if (status == PLEC_OK) status = open_tiers(streamer, err);
    if (status == PLEC_OK) status = open_scheduler(streamer, err);
    if (status == PLEC_OK) status = alloc_dispatch(streamer, err);
    if (status == PLEC_OK) status = alloc_jobs(streamer, err);
    if (status == PLEC_OK) status = alloc_scratch(streamer, err);
    if (status != PLEC_OK) return status;
    plec_streamer_tell(streamer,
                       (struct plec_stream_event){.kind = PLEC_STREAM_PINNED,
                                                  .key = PLEC_NO_KEY,
                                                  .n_bytes = streamer->pinned_info.pinned_bytes});
    return plec_streamer_start(streamer, err);
}

enum plec_status plec_streamer_open(struct plec_streamer **out,
                                    const struct plec_streamer_args *args, struct plec_error *err) {
    *out = NULL;
    struct plec_streamer *streamer = calloc(1, sizeof *streamer);
    if (streamer == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a streamer");
    open_locks(streamer);
    streamer->options = *args->options;
    if (streamer->options.chunk_bytes == 0) streamer->options.chunk_bytes = PLEC_COPY_CHUNK_BYTES;
    streamer->log = args->log;
    streamer->device = args->device;
    streamer->last_layer = UINT32_MAX;
    enum plec_status status = open_all(streamer, args, err);
    if (status != PLEC_OK) {
        plec_streamer_close(streamer);
        return status;
    }
    plec_log_write(
        &streamer->log, PLEC_LOG_RUN,
        "streaming %u experts in extents of %u: %u device slots of %llu and %u frames of "
        "%llu bytes",
        streamer->keys.n_experts, streamer->width, streamer->n_slots,
        (unsigned long long)streamer->slot_bytes, streamer->n_frames,
        (unsigned long long)streamer->frame_bytes);
    *out = streamer;
    return PLEC_OK;
}

static void close_device_parts(struct plec_streamer *streamer) {
    for (uint32_t i = 0; i < PLEC_N_COPY_STREAMS; i++)
        if (streamer->copy_streams[i] != NULL) plec_stream_close(streamer->copy_streams[i]);
    if (streamer->fill_stream != NULL) plec_stream_close(streamer->fill_stream);
    for (uint32_t i = 0; i < PLEC_MAX_COPIES; i++)
        if (streamer->copies[i].event != NULL) plec_event_close(streamer->copies[i].event);
    for (uint32_t i = 0; streamer->dispatch.uses != NULL && i < streamer->max_keys; i++) {
        const struct plec_stream_use *use = &streamer->dispatch.uses[i];
        if (use->event != NULL) plec_event_close(use->event);
        if (use->called != NULL) plec_event_close(use->called);
    }
    plec_device_free(streamer->device, streamer->slots);
}

void plec_streamer_close(struct plec_streamer *streamer) {
    if (streamer == NULL) return;
    plec_streamer_stop(streamer);
    for (uint32_t key = 0; streamer->arriving != NULL && key < streamer->keys.n_keys; key++)
        plec_streamer_tell_cancel(streamer, key, UINT64_MAX, PLEC_OK);
    plec_predict_close(streamer->predict);
    plec_prefetch_close(streamer->prefetch);
    plec_residency_close(streamer->resident);
    plec_residency_close(streamer->host);
    close_device_parts(streamer); /* the call behind a copy may still be about to wake the reaper */
    plec_io_close(streamer->io);
    plec_pinned_close(streamer->pinned);
    plec_streamer_close_layout(streamer);
    plec_arena_close(&streamer->arena);
    pthread_cond_destroy(&streamer->engine_wake);
    pthread_cond_destroy(&streamer->dispatch_wake);
    pthread_mutex_destroy(&streamer->wake_lock);
    pthread_mutex_destroy(&streamer->lock);
    free(streamer);
}
