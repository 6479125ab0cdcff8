#include "host/budget.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "host/landing.h"
#include "host/prefetch.h"

/* --- what there is --------------------------------------------------------------------------- */

static uint64_t operand_bytes(const struct plec_operand *operand) {
    uint64_t values = 0, scales = 0;
    if (operand->rows == 0) return 0;
    enum plec_status status =
        plec_format_size(&values, &scales, operand->format, operand->rows, operand->cols, NULL);
    return status == PLEC_OK ? values + scales : 0; /* bound layers have no other */
}

uint64_t plec_budget_bank_bytes(const struct plec_bank *bank) {
    uint64_t n_bytes = 0;
    for (int id = 0; id < PLEC_N_OPERANDS; id++)
        n_bytes += operand_bytes(&bank->operands[id]);
    return n_bytes * bank->n_entries;
}

static uint64_t matrix_bytes(const struct plec_matrix *matrix) {
    if (!plec_matrix_present(matrix)) return 0;
    return operand_bytes(&(struct plec_operand){matrix->format, matrix->rows, matrix->cols});
}

uint64_t plec_budget_other_bytes(const struct plec_bound_layer *bound) {
    const struct plec_layer *layer = &bound->layer;
    return plec_budget_bank_bytes(&layer->shared) + plec_budget_bank_bytes(&layer->dense) +
           matrix_bytes(&layer->latent_in) + matrix_bytes(&layer->latent_out) +
           matrix_bytes(&layer->shared_gate);
}

bool plec_budget_streams(const struct plec_bound_layer *bound) {
    return !bound->dense && bound->layer.routed.n_entries > 1;
}

/* Reads that fetch ranges [n]: large ones take several. */
static uint64_t count_reads(const struct plec_range *ranges, uint32_t n) {
    uint64_t n_reads = 0;
    for (uint32_t i = 0; i < n; i++)
        n_reads += (ranges[i].length + PLEC_BUDGET_PIECE_BYTES - 1) / PLEC_BUDGET_PIECE_BYTES;
    return n_reads;
}

enum plec_status plec_budget_describe(struct plec_budget_layer *out,
                                      const struct plec_budget_of *of, struct plec_error *err) {
    const struct plec_bank *bank = &of->bound->layer.routed;
    struct plec_extent_map map;
    struct plec_arrival arrival;
    enum plec_status status = plec_device_arrival(&arrival, of->device, bank, err);
    if (status == PLEC_OK) status = plec_extent_map_open(&map, bank, of->width, of->locator, err);
    if (status != PLEC_OK) {
        plec_error_context(err, "layer %u", of->number);
        return status;
    }
    uint32_t top_k = of->bound->layer.router.top_k;
    struct plec_device_extents extents =
        plec_device_extents_of(&arrival, &map, PLEC_COPY_CHUNK_BYTES);
    *out = (struct plec_budget_layer){
        .number = of->number,
        .n_experts = bank->n_entries,
        .top_k = top_k == 0                ? 1
                 : top_k < bank->n_entries ? top_k
                                           : bank->n_entries,
        .n_extents = map.n_extents,
        .weight_bytes = map.payload_bytes,
        .frame_bytes = map.frame_bytes,
        .slot_bytes = extents.slot_bytes,
        .landing_bytes = extents.landing_bytes,
        .entry_reads = count_reads(map.entry_ranges, map.entry_first[map.n_entries]),
        .extent_reads = count_reads(map.extent_ranges, map.extent_first[map.n_extents]),
        .other_bytes = plec_budget_other_bytes(of->bound)};
    plec_extent_map_close(&map);
    return PLEC_OK;
}

static uint64_t most_bytes(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* --- what fits ------------------------------------------------------------------------------- */

uint32_t plec_budget_fit(uint64_t budget, uint64_t frame_bytes, uint32_t n_keys) {
    uint64_t n = frame_bytes > 0 ? budget / frame_bytes : 0;
    return n < n_keys ? (uint32_t)n : n_keys;
}

uint32_t plec_budget_slots(uint64_t budget, uint64_t slot_bytes, uint64_t landing_bytes,
                           uint32_t n_keys) {
    return budget > landing_bytes ? plec_budget_fit(budget - landing_bytes, slot_bytes, n_keys) : 0;
}

uint32_t plec_budget_staging(uint32_t n_slots, uint32_t max_keys) {
    if (n_slots >= max_keys) return 0;
    return n_slots >= 3 ? 2 : n_slots > 0 ? n_slots - 1 : 0;
}

enum plec_status plec_budget_too_small(const struct plec_budget *budget, uint64_t device_bytes,
                                       uint64_t host_bytes, struct plec_error *err) {
    char on_device[96] = "";
    if (budget->landing_bytes > 0)
        snprintf(on_device, sizeof on_device, ", on the device %llu and %llu while it arrives",
                 (unsigned long long)budget->slot_bytes, (unsigned long long)budget->landing_bytes);
    return plec_fail(err, PLEC_BAD_INPUT, "BudgetTooSmall",
                     "one expert takes %llu bytes%s; the device budget is %llu, the pinned budget "
                     "%llu",
                     (unsigned long long)budget->frame_bytes, on_device,
                     (unsigned long long)device_bytes, (unsigned long long)host_bytes);
}

void plec_budget_make(struct plec_budget *out, const struct plec_budget_layer *layers,
                      uint32_t n_layers, uint32_t width, uint64_t device_bytes,
                      uint64_t host_bytes) {
    *out = (struct plec_budget){.layers = layers, .n_layers = n_layers, .width = width};
    for (uint32_t i = 0; i < n_layers; i++) {
        const struct plec_budget_layer *layer = &layers[i];
        out->n_experts += layer->n_experts;
        out->n_extents += layer->n_extents;
        out->weight_bytes += layer->weight_bytes;
        out->other_bytes += layer->other_bytes;
        if (layer->n_extents > out->max_extents) out->max_extents = layer->n_extents;
        out->frame_bytes = most_bytes(out->frame_bytes, layer->frame_bytes);
        out->slot_bytes = most_bytes(out->slot_bytes, layer->slot_bytes);
        out->landing_bytes = most_bytes(out->landing_bytes, PLEC_N_LANDINGS * layer->landing_bytes);
    }
    out->n_slots =
        plec_budget_slots(device_bytes, out->slot_bytes, out->landing_bytes, out->n_extents);
    out->n_frames = plec_budget_fit(host_bytes, out->frame_bytes, out->n_extents);
    out->n_slot_staging = plec_budget_staging(out->n_slots, out->max_extents);
    out->n_frame_staging = plec_budget_staging(out->n_frames, out->max_extents);
    out->resident = out->n_slots == out->n_extents;
}

/* Extents of a rank when each of n_ranks has its share of every layer, rounded up. */
static uint64_t rank_extents(const struct plec_budget *budget, uint32_t n_ranks) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < budget->n_layers; i++)
        n += (budget->layers[i].n_extents + n_ranks - 1) / n_ranks;
    return n;
}

uint32_t plec_budget_ranks(const struct plec_budget *budget) {
    uint32_t most = budget->max_extents;
    if (most == 0 || rank_extents(budget, most) > budget->n_slots) return 0;
    uint32_t least = 1;
    while (least < most) {
        uint32_t middle = least + (most - least) / 2;
        if (rank_extents(budget, middle) <= budget->n_slots)
            most = middle;
        else
            least = middle + 1;
    }
    return least;
}

/* --- what moves ------------------------------------------------------------------------------ */

double plec_budget_distinct(uint32_t n_experts, uint32_t top_k, uint32_t n_tokens) {
    if (n_experts == 0) return 0;
    double unused = pow(1 - (double)top_k / n_experts, n_tokens);
    return n_experts * (1 - unused);
}

/* The chance that n given extents of the layer are all untouched by one token. */
static double untouched(const struct plec_budget_layer *layer, double n) {
    double width = (double)layer->n_experts / layer->n_extents, none = 1;
    for (uint32_t i = 0; i < layer->top_k; i++) {
        double outside = layer->n_experts - n * width - i;
        none *= outside > 0.5 ? outside / (layer->n_experts - i) : 0;
    }
    return none;
}

double plec_budget_touched(const struct plec_budget_layer *layer, uint32_t n_tokens) {
    return layer->n_extents * (1 - pow(untouched(layer, 1), n_tokens));
}

/* A count, as a normal distribution. */
struct count {
    double mean, variance;
};

/* Extents of a layer that n_tokens tokens touch. */
static struct count touched_by(const struct plec_budget_layer *layer, double n_tokens) {
    double n = layer->n_extents, one = pow(untouched(layer, 1), n_tokens);
    double two = pow(untouched(layer, 2), n_tokens);
    double variance = n * one * (1 - one) + n * (n - 1) * (two - one * one);
    return (struct count){n * (1 - one), variance > 0 ? variance : 0};
}

/* Extents of its own layer that are more recent than one touched `ago` steps ago, when the layer
 * runs again: those touched since, and half of those touched with it. */
static struct count more_recent(const struct plec_budget_layer *layer, double touched,
                                uint32_t ago) {
    double others = layer->n_extents - 1.0;
    if (others == 0) return (struct count){0, 0};
    double share = touched < others ? touched / others : 1;
    double before = pow(1 - share, ago - 1);
    double recent = (1 - before + 0.5 * before * (touched - 1) / others);
    return (struct count){others * recent, ago > 1 ? others * recent * (1 - recent) : 0};
}

enum { STEPS_BACK = 1024 };
/* Further out the normal distribution says nothing. */
static const double TAIL = 1e-3;

/* What a tier of n_slots is asked to keep: [j] what all layers touch in j + 1 steps. */
struct memory {
    uint32_t n_slots, n; /* more steps than n are not kept, but for n = STEPS_BACK */
    struct count touched[STEPS_BACK];
};

static void remember(struct memory *memory, const struct plec_budget *budget, uint32_t n_slots,
                     uint32_t n_tokens) {
    memory->n_slots = n_slots;
    for (memory->n = 0; memory->n < STEPS_BACK; memory->n++) {
        struct count *sum = &memory->touched[memory->n];
        *sum = (struct count){0, 0};
        for (uint32_t i = 0; i < budget->n_layers; i++) {
            struct count count = touched_by(&budget->layers[i], (double)n_tokens * (memory->n + 1));
            sum->mean += count.mean;
            sum->variance += count.variance;
        }
        if (sum->mean - budget->max_extents > n_slots + 6 * sqrt(sum->variance)) break;
    }
}

/* The chance that an extent of the layer is still there when it was last touched `ago` steps ago:
 * that no more than n_slots - 1 others are more recent. */
static double kept(const struct plec_budget_layer *layer, uint32_t n_tokens,
                   const struct memory *memory, uint32_t ago) {
    struct count all = memory->touched[ago - 1];
    struct count own = touched_by(layer, (double)n_tokens * ago);
    struct count recent = more_recent(layer, touched_by(layer, n_tokens).mean, ago);
    double variance = all.variance - own.variance + recent.variance;
    double room = memory->n_slots - 0.5 - (all.mean - own.mean + recent.mean);
    if (variance < 1e-9) return room > 0 ? 1 : 0;
    double chance = 0.5 * erfc(-room / sqrt(2 * variance));
    return chance < TAIL ? 0 : chance > 1 - TAIL ? 1 : chance;
}

/* The chance that an extent of the layer is there when it is touched. */
static double extent_hit(const struct plec_budget *budget, const struct plec_budget_layer *layer,
                         uint32_t n_tokens, const struct memory *memory) {
    if (memory->n_slots >= budget->n_extents) return 1;
    double share = touched_by(layer, n_tokens).mean / layer->n_extents;
    double hit = 0, since = 1; /* since: not touched in ago - 1 steps */
    for (uint32_t ago = 1; ago <= memory->n && since > 1e-9; ago++, since *= 1 - share)
        hit += share * since * kept(layer, n_tokens, memory, ago);
    if (memory->n == STEPS_BACK) hit += since * kept(layer, n_tokens, memory, STEPS_BACK);
    /* A single layer is never pushed out by another: what exceeds the slots passes through. */
    double held = (double)memory->n_slots / layer->n_extents;
    return budget->n_layers == 1 && hit < held ? held : hit;
}

/* Of an expert in a tier that fetches experts one by one. */
static double expert_hit(double extent, double share) {
    double missed = 1 - extent * (1 - share);
    return missed > extent * share ? extent * share / missed : 1; /* not more by a rounding */
}

struct expectation {
    const struct plec_budget *budget;
    const struct plec_budget_machine *machine;
    struct plec_budget_step *step;
    struct memory slots, frames;
    double streamed_disk_s, streamed_link_s;
};

static double read_seconds(const struct plec_budget_machine *machine, double reads,
                           double n_bytes) {
    return reads * machine->read_s + n_bytes / machine->disk_bytes_per_s;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* One layer of a step, per entry and per extent of it. */
struct layer_step {
    double used, touched; /* experts, extents */
    double share;         /* of a touched extent, that is used */
    double entry_bytes, entry_reads, extent_bytes, extent_reads;
    double entry_s, extent_s; /* to read one */
    bool whole;               /* extents are read whole: no slower than the experts one by one */
};

static struct layer_step step_of(const struct expectation *e,
                                 const struct plec_budget_layer *layer) {
    struct layer_step s = {
        .used = plec_budget_distinct(layer->n_experts, layer->top_k, e->step->n_tokens),
        .touched = plec_budget_touched(layer, e->step->n_tokens),
        .entry_bytes = (double)layer->weight_bytes / layer->n_experts,
        .entry_reads = (double)layer->entry_reads / layer->n_experts,
        .extent_bytes = (double)layer->weight_bytes / layer->n_extents,
        .extent_reads = (double)layer->extent_reads / layer->n_extents};
    double width = (double)layer->n_experts / layer->n_extents;
    s.share = s.used / (s.touched * width);
    s.entry_s = read_seconds(e->machine, s.entry_reads, s.entry_bytes);
    s.extent_s = read_seconds(e->machine, s.extent_reads, s.extent_bytes);
    s.whole = s.extent_s <= s.share * width * s.entry_s * (1 + 1e-9);
    return s;
}

/* Shares of the experts used, by where they are. */
struct found {
    double device, host, miss;
};
static struct found find_experts(const struct expectation *e, const struct plec_budget_layer *layer,
                                 const struct layer_step *s) {
    uint32_t n_tokens = e->step->n_tokens;
    struct found found = {
        .device = expert_hit(extent_hit(e->budget, layer, n_tokens, &e->slots), s->share),
        .host = extent_hit(e->budget, layer, n_tokens, &e->frames)};
    if (!s->whole) found.host = expert_hit(found.host, s->share);
    found.host = found.host > found.device ? found.host - found.device : 0;
    found.miss = 1 - found.device - found.host;
    if (found.miss < 1e-12) found.miss = 0;
    return found;
}

static void expect_layer(struct expectation *e, const struct plec_budget_layer *layer) {
    const struct plec_budget_machine *machine = e->machine;
    struct plec_budget_step *step = e->step;
    struct layer_step s = step_of(e, layer);
    struct found found = find_experts(e, layer, &s);
    double n_read = (s.whole ? s.touched : s.used) * found.miss;
    double reads = n_read * (s.whole ? s.extent_reads : s.entry_reads);
    double read_bytes = n_read * (s.whole ? s.extent_bytes : s.entry_bytes);
    double active = s.used * s.entry_bytes, copied = s.used * (1 - found.device) * s.entry_bytes;
    double disk_s = read_seconds(machine, reads, read_bytes);
    double link_s = copied / machine->link_bytes_per_s;
    double memory_s = (active + (double)layer->other_bytes) / machine->memory_bytes_per_s;
    double longest = larger(disk_s, larger(link_s, memory_s));
    step->experts += s.used;
    step->extents += s.touched;
    step->device_hits += s.used * found.device;
    step->host_hits += s.used * found.host;
    step->misses += s.used * found.miss;
    step->device_hit_bytes += active * found.device;
    step->host_hit_bytes += active * found.host;
    step->active_bytes += active;
    step->other_bytes += (double)layer->other_bytes;
    step->reads += reads;
    step->read_bytes += read_bytes;
    step->copied_bytes += copied;
    step->disk_s += disk_s;
    step->link_s += link_s;
    step->memory_s += memory_s;
    step->step_s += longest + (disk_s + link_s + memory_s - longest) / larger(s.used, 1);
    e->streamed_disk_s += s.whole ? s.touched * s.extent_s : s.used * s.entry_s;
    e->streamed_link_s += active / machine->link_bytes_per_s;
}

void plec_budget_expect(struct plec_budget_step *out, const struct plec_budget *budget,
                        const struct plec_budget_machine *machine, uint32_t n_tokens) {
    *out = (struct plec_budget_step){.n_tokens = n_tokens};
    struct expectation e = {.budget = budget, .machine = machine, .step = out};
    if (n_tokens == 0) return;
    remember(&e.slots, budget, budget->n_slots - budget->n_slot_staging, n_tokens);
    remember(&e.frames, budget, budget->n_frames - budget->n_frame_staging, n_tokens);
    for (uint32_t i = 0; i < budget->n_layers; i++)
        expect_layer(&e, &budget->layers[i]);
    out->resident_s = out->memory_s;
    out->streamed_s = larger(e.streamed_disk_s, larger(e.streamed_link_s, out->memory_s));
}
