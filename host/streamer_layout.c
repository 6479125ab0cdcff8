/* What the layers' experts take: in which form, in extents how wide, how many slots and frames the
 * budgets hold; and the tables of what lies where. */
#include "host/budget.h"
#include "host/streamer_parts.h"

enum { DEFAULT_WIDTH = 16 };

/* --- extents --------------------------------------------------------------------------------- */

static void close_maps(struct plec_streamer *streamer) {
    for (uint32_t i = 0; streamer->maps != NULL && i < streamer->n_layers; i++)
        plec_extent_map_close(&streamer->maps[i]);
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* In which form each layer's experts will be on the device. */
static enum plec_status open_arrivals(struct plec_streamer *streamer,
                                      const struct plec_streamer_args *args,
                                      struct plec_error *err) {
    enum plec_status status = PLEC_OK;
    for (uint32_t i = 0; status == PLEC_OK && i < args->n_layers; i++) {
        status = plec_device_arrival(&streamer->layers[i].arrival, args->device,
                                     args->layers[i].bank, err);
        if (status != PLEC_OK) plec_error_context(err, "layer %u", args->layers[i].number);
    }
    return status;
}

/* Maps of every layer in extents of `width`, and the sizes of the largest. */
static enum plec_status map_layers(struct plec_streamer *streamer,
                                   const struct plec_streamer_args *args, uint32_t width,
                                   struct plec_error *err) {
    struct plec_locator locator;
    plec_container_locator(&locator, args->container);
    streamer->frame_bytes = streamer->slot_bytes = streamer->landing_bytes = 0;
    for (uint32_t i = 0; i < args->n_layers; i++) {
        enum plec_status status =
            plec_extent_map_open(&streamer->maps[i], args->layers[i].bank, width, &locator, err);
        if (status != PLEC_OK) {
            plec_error_context(err, "layer %u", args->layers[i].number);
            close_maps(streamer);
            return status;
        }
        struct plec_device_extents extents = plec_device_extents_of(
            &streamer->layers[i].arrival, &streamer->maps[i], streamer->options.chunk_bytes);
        streamer->frame_bytes = larger(streamer->frame_bytes, streamer->maps[i].frame_bytes);
        streamer->slot_bytes = larger(streamer->slot_bytes, extents.slot_bytes);
        streamer->landing_bytes = larger(streamer->landing_bytes, extents.landing_bytes);
    }
    return PLEC_OK;
}

static uint64_t pinned_budget(const struct plec_stream_options *options) {
    return options->pinned_budget != 0 ? options->pinned_budget : options->device_budget;
}

/* How many slots the device's budget holds beside the landings, at most n. */
static uint32_t fit_slots(const struct plec_streamer *streamer, uint32_t n) {
    return plec_budget_slots(streamer->options.device_budget, streamer->slot_bytes,
                             PLEC_N_LANDINGS * streamer->landing_bytes, n);
}

static enum plec_status too_small(const struct plec_streamer *streamer, struct plec_error *err) {
    const struct plec_stream_options *options = &streamer->options;
    const struct plec_budget one = {.frame_bytes = streamer->frame_bytes,
                                    .slot_bytes = streamer->slot_bytes,
                                    .landing_bytes = PLEC_N_LANDINGS * streamer->landing_bytes};
    return plec_budget_too_small(&one, options->device_budget, pinned_budget(options), err);
}

/* The widest extents, from the width asked for down by halves, of which each budget holds one. */
static enum plec_status choose_width(struct plec_streamer *streamer,
                                     const struct plec_streamer_args *args,
                                     struct plec_error *err) {
    const struct plec_stream_options *options = &streamer->options;
    uint32_t asked = options->extent_width != 0 ? options->extent_width : DEFAULT_WIDTH;
    if (asked > PLEC_EXTENT_MAX)
        return plec_fail(err, PLEC_BAD_INPUT, "ExtentTooWide", "extents of %u, the most is %u",
                         asked, PLEC_EXTENT_MAX);
    for (streamer->width = asked;; streamer->width /= 2) {
        enum plec_status status = map_layers(streamer, args, streamer->width, err);
        if (status != PLEC_OK) return status;
        if (streamer->frame_bytes <= pinned_budget(options) && fit_slots(streamer, 1) > 0) break;
        if (streamer->width == 1) return too_small(streamer, err);
        close_maps(streamer);
    }
    if (streamer->width != asked)
        plec_log_write(&streamer->log, PLEC_LOG_RUN,
                       "extents of %u experts do not fit the budget, %u do", asked,
                       streamer->width);
    return PLEC_OK;
}

/* --- tables ---------------------------------------------------------------------------------- */

static enum plec_status open_spans(struct plec_streamer *streamer,
                                   const struct plec_streamer_args *args, struct plec_error *err) {
    struct plec_span_source *sources =
        plec_arena_alloc(&streamer->arena, args->n_layers, sizeof *sources, err);
    if (sources == NULL) return PLEC_NO_MEMORY;
    for (uint32_t i = 0; i < args->n_layers; i++)
        sources[i] = (struct plec_span_source){args->layers[i].bank, &streamer->maps[i]};
    return plec_span_table_open(&streamer->spans, sources, args->n_layers, err);
}

/* Bytes of the extents of layer i, whose first key is *key, and of its largest expert. */
static void measure_layer(uint64_t *extent_bytes, uint64_t *entry_bytes, uint32_t *key,
                          const struct plec_streamer *streamer, uint32_t i) {
    const struct plec_extent_map *map = &streamer->maps[i];
    *entry_bytes = 0;
    for (uint32_t e = 0; e < map->n_extents; e++, ++*key) {
        uint32_t n = map->first_entry[e + 1] - map->first_entry[e];
        uint64_t full = n == PLEC_EXTENT_MAX ? UINT64_MAX : (UINT64_C(1) << n) - 1;
        extent_bytes[e] = plec_span_bytes(&streamer->spans, *key, full);
        for (uint32_t bit = 0; bit < n; bit++) {
            uint64_t n_bytes = plec_span_bytes(&streamer->spans, *key, UINT64_C(1) << bit);
            if (n_bytes > *entry_bytes) *entry_bytes = n_bytes;
        }
    }
}

static enum plec_status open_keys(struct plec_streamer *streamer, struct plec_error *err) {
    struct plec_keyspace_layer *layers =
        plec_arena_alloc(&streamer->arena, streamer->n_layers, sizeof *layers, err);
    if (layers == NULL) return PLEC_NO_MEMORY;
    uint32_t key = 0;
    for (uint32_t i = 0; i < streamer->n_layers; i++) {
        const struct plec_extent_map *map = &streamer->maps[i];
        uint64_t *extent_bytes =
            plec_arena_alloc(&streamer->arena, map->n_extents, sizeof *extent_bytes, err);
        if (extent_bytes == NULL) return PLEC_NO_MEMORY;
        layers[i] = (struct plec_keyspace_layer){.n_extents = map->n_extents,
                                                 .first_entry = map->first_entry,
                                                 .extent_bytes = extent_bytes};
        measure_layer(extent_bytes, &layers[i].entry_bytes, &key, streamer, i);
        if (map->n_extents > streamer->max_keys) streamer->max_keys = map->n_extents;
        if (map->n_entries > streamer->max_entries) streamer->max_entries = map->n_entries;
    }
    return plec_keyspace_open(&streamer->keys, layers, streamer->n_layers, err);
}

static enum plec_status open_layer(struct plec_stream_layer *layer, struct plec_arena *arena,
                                   const struct plec_streamer_layer *from, struct plec_error *err) {
    uint32_t n = from->bank->n_entries;
    layer->number = from->number;
    layer->after = UINT32_MAX;
    layer->table = plec_arena_alloc(arena, n, sizeof *layer->table, err);
    layer->order = plec_arena_alloc(arena, n, sizeof *layer->order, err);
    layer->bank = *from->bank;
    layer->bank.entries = layer->table;
    layer->bank.arrived = true; /* where the form is the file's, too */
    return layer->table != NULL && layer->order != NULL ? PLEC_OK : PLEC_NO_MEMORY;
}

static enum plec_status open_tables(struct plec_streamer *streamer,
                                    const struct plec_streamer_args *args, struct plec_error *err) {
    enum plec_status status = open_spans(streamer, args, err);
    if (status == PLEC_OK) status = open_keys(streamer, err);
    for (uint32_t i = 0; status == PLEC_OK && i < args->n_layers; i++)
        status = open_layer(&streamer->layers[i], &streamer->arena, &args->layers[i], err);
    return status;
}

/* --- all of it ------------------------------------------------------------------------------- */

enum plec_status plec_streamer_lay_out(struct plec_streamer *streamer,
                                       const struct plec_streamer_args *args,
                                       struct plec_error *err) {
    struct plec_arena *arena = &streamer->arena;
    streamer->layers = plec_arena_alloc(arena, args->n_layers, sizeof *streamer->layers, err);
    streamer->maps = plec_arena_alloc(arena, args->n_layers, sizeof *streamer->maps, err);
    if (streamer->layers == NULL || streamer->maps == NULL) return PLEC_NO_MEMORY;
    streamer->n_layers = args->n_layers;
    enum plec_status status = open_arrivals(streamer, args, err);
    if (status == PLEC_OK) status = choose_width(streamer, args, err);
    if (status == PLEC_OK) status = open_tables(streamer, args, err);
    if (status != PLEC_OK) return status;
    uint32_t n_keys = streamer->keys.n_keys;
    streamer->n_frames =
        plec_budget_fit(pinned_budget(&streamer->options), streamer->frame_bytes, n_keys);
    streamer->n_slots = fit_slots(streamer, n_keys);
    return PLEC_OK;
}

void plec_streamer_close_layout(struct plec_streamer *streamer) {
    plec_keyspace_close(&streamer->keys);
    plec_span_table_close(&streamer->spans);
    close_maps(streamer);
}
