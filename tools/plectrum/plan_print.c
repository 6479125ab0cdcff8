/* plan_print.c: a plan for a person, and as JSON. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/plectrum/cli.h"
#include "tools/plectrum/json_stream.h"
#include "tools/plectrum/plan.h"
#include "tools/plectrum/units.h"

static const char *const step_names[PLEC_PLAN_STEPS] = {"decode", "prefill"};

/* But for their numbers. */
static bool alike(const struct plec_budget_layer *a, const struct plec_budget_layer *b) {
    return a->n_experts == b->n_experts && a->top_k == b->top_k && a->n_extents == b->n_extents &&
           a->weight_bytes == b->weight_bytes && a->frame_bytes == b->frame_bytes &&
           a->slot_bytes == b->slot_bytes && a->entry_reads == b->entry_reads &&
           a->extent_reads == b->extent_reads && a->other_bytes == b->other_bytes;
}

uint32_t plec_plan_run_of(const struct plec_plan *plan, uint32_t i) {
    const struct plec_budget_layer *layers = plan->widths[plan->chosen].layers;
    uint32_t n = 1;
    while (i + n < plan->n_layers && alike(&layers[i], &layers[i + n]))
        n++;
    return n;
}

/* --- text ------------------------------------------------------------------------------------ */

static double share(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

static const char *size(char *buffer, double n_bytes) {
    return plec_size_text(buffer, n_bytes > 0 ? (uint64_t)(n_bytes + 0.5) : 0);
}

static void print_head(const struct plec_plan *plan) {
    const struct plec_budget *budget = &plan->widths[plan->chosen].budget;
    char a[PLEC_UNIT_TEXT_MAX], b[PLEC_UNIT_TEXT_MAX], c[PLEC_UNIT_TEXT_MAX];
    char d[PLEC_UNIT_TEXT_MAX];
    plec_cli_put(stdout, plan->path);
    printf(": %s, on %s\n", plan->kind, plan->device_name);
    printf("experts    %s routed of %u layers, %s\n", plec_count_text(a, budget->n_experts),
           plan->n_layers, plec_size_text(b, budget->weight_bytes));
    printf("beside     %s that every step reads and nothing streams",
           plec_size_text(a, budget->other_bytes + plan->fixed_bytes));
    if (plan->n_fixed_layers > 0)
        printf("; %u layer%s without routing among it", plan->n_fixed_layers,
               plan->n_fixed_layers == 1 ? "" : "s");
    printf("\ndevice     %s%s: %u slot%s of %s, %.1f%% of %u extents of %u experts",
           plec_size_text(a, plan->device_budget), plan->device_measured ? " (measured)" : "",
           budget->n_slots, budget->n_slots == 1 ? "" : "s", plec_size_text(b, budget->slot_bytes),
           100 * share(budget->n_slots, budget->n_extents), budget->n_extents, budget->width);
    if (budget->n_slot_staging > 0) printf("; %u only pass through", budget->n_slot_staging);
    if (budget->landing_bytes > 0)
        printf("; %s for what arrives", plec_size_text(d, budget->landing_bytes));
    printf("\nframes     %s%s: %u", plec_size_text(c, plan->pinned_budget),
           plan->pinned_measured ? " (measured)" : "", budget->n_frames);
    if (budget->n_frame_staging > 0) printf("; %u only pass through", budget->n_frame_staging);
    uint32_t ranks = plec_budget_ranks(budget);
    if (budget->resident)
        printf("\nstreams    nothing: every extent has a slot\n");
    else if (ranks > 0)
        printf("\nstreams    %u of %u extents have no slot; %u such devices would hold all\n",
               budget->n_extents - budget->n_slots, budget->n_extents, ranks);
    else
        printf("\nstreams    %u of %u extents have no slot\n", budget->n_extents - budget->n_slots,
               budget->n_extents);
}

static void print_speeds(const struct plec_plan *plan) {
    const struct plec_budget_machine *machine = &plan->machine;
    printf("disk       %.2f GB/s and %.1f us a read (", machine->disk_bytes_per_s / 1e9,
           machine->read_s * 1e6);
    if (plan->io_engine != NULL)
        printf("measured, %s %s)\n", plan->io_engine, plan->io_cache);
    else
        printf("given)\n");
    printf("link       %.2f GB/s (%s)\n", machine->link_bytes_per_s / 1e9,
           plan->link_measured ? "measured" : "given");
    printf("memory     %.2f GB/s (%s)\n\n", machine->memory_bytes_per_s / 1e9,
           plan->memory_measured ? "measured" : "given");
}

static void print_layers(const struct plec_plan *plan) {
    const struct plec_plan_width *width = &plan->widths[plan->chosen];
    uint32_t n_tokens = width->steps[PLEC_PLAN_PREFILL].n_tokens;
    printf("%-11s %7s %7s %10s %7s %10s   %15s   %s\n", "", "", "", "", "", "", "a step, T=1",
           "prefill");
    printf("%-11s %7s %7s %10s %7s %10s   %7s %7s   %7s %7s\n", "layers", "experts", "a token",
           "expert", "extents", "bytes", "experts", "extents", "experts", "extents");
    for (uint32_t i = 0, n; i < plan->n_layers; i += n) {
        const struct plec_budget_layer *layer = &width->layers[i];
        char name[32], a[PLEC_UNIT_TEXT_MAX], b[PLEC_UNIT_TEXT_MAX];
        n = plec_plan_run_of(plan, i);
        snprintf(name, sizeof name, n > 1 ? "%u-%u" : "%u", layer->number, layer[n - 1].number);
        printf("%-11s %7u %7u %10s %7u %10s   %7.1f %7.1f   %7.1f %7.1f\n", name, layer->n_experts,
               layer->top_k, size(a, (double)layer->weight_bytes / layer->n_experts),
               layer->n_extents, plec_size_text(b, layer->weight_bytes),
               plec_budget_distinct(layer->n_experts, layer->top_k, 1),
               plec_budget_touched(layer, 1),
               plec_budget_distinct(layer->n_experts, layer->top_k, n_tokens),
               plec_budget_touched(layer, n_tokens));
    }
}

static void print_hits(const struct plec_budget_step *steps) {
    const struct {
        const char *name;
        double part[PLEC_PLAN_STEPS];
    } rows[] = {{"from slots", {steps[0].device_hits, steps[1].device_hits}},
                {"from frames", {steps[0].host_hits, steps[1].host_hits}},
                {"from files", {steps[0].misses, steps[1].misses}}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        printf("  %-20s %13.1f%% %13.1f%%\n", rows[i].name,
               100 * share(rows[i].part[0], steps[0].experts),
               100 * share(rows[i].part[1], steps[1].experts));
}

static void print_moved(const struct plec_budget_step *steps) {
    const struct {
        const char *name;
        double bytes[PLEC_PLAN_STEPS];
    } rows[] = {{"weights used",
                 {steps[0].active_bytes + steps[0].other_bytes,
                  steps[1].active_bytes + steps[1].other_bytes}},
                {"read from files", {steps[0].read_bytes, steps[1].read_bytes}},
                {"copied to the device", {steps[0].copied_bytes, steps[1].copied_bytes}}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char text[PLEC_PLAN_STEPS][PLEC_UNIT_TEXT_MAX];
        printf("  %-20s %14s %14s\n", rows[i].name,
               size(text[0], rows[i].bytes[0] / steps[0].n_tokens),
               size(text[1], rows[i].bytes[1] / steps[1].n_tokens));
    }
}

static void print_times(const struct plec_budget_step *steps) {
    const struct {
        const char *name;
        double seconds[PLEC_PLAN_STEPS];
    } rows[] = {{"disk alone", {steps[0].disk_s, steps[1].disk_s}},
                {"link alone", {steps[0].link_s, steps[1].link_s}},
                {"memory alone", {steps[0].memory_s, steps[1].memory_s}},
                {"expected", {steps[0].step_s, steps[1].step_s}},
                {"floor, all resident", {steps[0].resident_s, steps[1].resident_s}},
                {"floor, nothing kept", {steps[0].streamed_s, steps[1].streamed_s}}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        printf("  %-20s %11.4f ms %11.4f ms\n", rows[i].name,
               1e3 * rows[i].seconds[0] / steps[0].n_tokens,
               1e3 * rows[i].seconds[1] / steps[1].n_tokens);
    printf("  %-20s %14.1f %14.1f\n", "tokens/s", steps[0].n_tokens / steps[0].step_s,
           steps[1].n_tokens / steps[1].step_s);
}

static void print_steps(const struct plec_plan *plan) {
    const struct plec_budget_step *steps = plan->widths[plan->chosen].steps;
    char name[32];
    snprintf(name, sizeof name, "prefill, T=%u", steps[PLEC_PLAN_PREFILL].n_tokens);
    printf("\n%-22s %14s %14s\n", "of the experts used", "decode, T=1", name);
    print_hits(steps);
    printf("bytes a token\n");
    print_moved(steps);
    printf("time a token, of bytes alone\n");
    print_times(steps);
}

static void print_widths(const struct plec_plan *plan) {
    printf("\n%6s %12s %8s %8s %14s %14s\n", "extent", "frame", "slots", "frames", "decode",
           "prefill");
    for (uint32_t i = 0; i < plan->n_widths; i++) {
        const struct plec_plan_width *width = &plan->widths[i];
        char a[PLEC_UNIT_TEXT_MAX];
        printf("%6u %12s %8u %8u ", width->budget.width,
               plec_size_text(a, width->budget.frame_bytes), width->budget.n_slots,
               width->budget.n_frames);
        if (!width->fits) {
            printf("does not fit\n");
            continue;
        }
        printf("%11.4f ms %11.4f ms%s%s\n", 1e3 * width->steps[0].step_s / width->steps[0].n_tokens,
               1e3 * width->steps[1].step_s / width->steps[1].n_tokens,
               i == plan->chosen ? "  as above" : "", i == plan->advised ? "  advised" : "");
    }
}

void plec_plan_print(const struct plec_plan *plan) {
    print_head(plan);
    print_speeds(plan);
    print_layers(plan);
    print_steps(plan);
    print_widths(plan);
}

/* --- JSON ------------------------------------------------------------------------------------ */

static json_t *integer(uint64_t value) {
    return json_integer((json_int_t)value);
}

static json_t *text_or_null(const char *text) {
    json_t *value = text != NULL ? json_string(text) : NULL;
    return value != NULL ? value : json_null();
}

static void json_head(struct plec_json_stream *json, const struct plec_plan *plan) {
    const struct plec_budget *budget = &plan->widths[plan->chosen].budget;
    uint32_t ranks = plec_budget_ranks(budget);
    plec_json_member(json, "kind", json_string("plan"));
    plec_json_member(json, "path", text_or_null(plan->path));
    plec_json_member(json, "container", json_string(plan->kind));
    plec_json_member(json, "device", json_string(plan->device_name));
    plec_json_member(json, "device_budget", integer(plan->device_budget));
    plec_json_member(json, "device_budget_measured", json_boolean(plan->device_measured));
    plec_json_member(json, "pinned_budget", integer(plan->pinned_budget));
    plec_json_member(json, "pinned_budget_measured", json_boolean(plan->pinned_measured));
    plec_json_member(json, "extent_width", integer(budget->width));
    plec_json_member(json, "advised_extent_width",
                     integer(plan->widths[plan->advised].budget.width));
    plec_json_member(json, "experts", integer(budget->n_experts));
    plec_json_member(json, "extents", integer(budget->n_extents));
    plec_json_member(json, "frame_bytes", integer(budget->frame_bytes));
    plec_json_member(json, "slot_bytes", integer(budget->slot_bytes));
    plec_json_member(json, "landing_bytes", integer(budget->landing_bytes));
    plec_json_member(json, "slots", integer(budget->n_slots));
    plec_json_member(json, "slots_staging", integer(budget->n_slot_staging));
    plec_json_member(json, "frames", integer(budget->n_frames));
    plec_json_member(json, "frames_staging", integer(budget->n_frame_staging));
    plec_json_member(json, "resident", json_boolean(budget->resident));
    plec_json_member(json, "devices_for_all", ranks > 0 ? integer(ranks) : json_null());
    plec_json_member(json, "weight_bytes", integer(budget->weight_bytes));
    plec_json_member(json, "other_bytes", integer(budget->other_bytes));
    plec_json_member(json, "layers_without_routing", integer(plan->n_fixed_layers));
    plec_json_member(json, "bytes_without_routing", integer(plan->fixed_bytes));
}

static void json_speeds(struct plec_json_stream *json, const struct plec_plan *plan) {
    const struct plec_budget_machine *machine = &plan->machine;
    plec_json_member(json, "disk_gb_s", plec_json_real(machine->disk_bytes_per_s / 1e9));
    plec_json_member(json, "read_us", plec_json_real(machine->read_s * 1e6));
    plec_json_member(json, "io", text_or_null(plan->io_engine));
    plec_json_member(json, "io_cache", text_or_null(plan->io_cache));
    plec_json_member(json, "link_gb_s", plec_json_real(machine->link_bytes_per_s / 1e9));
    plec_json_member(json, "link_measured", json_boolean(plan->link_measured));
    plec_json_member(json, "memory_gb_s", plec_json_real(machine->memory_bytes_per_s / 1e9));
    plec_json_member(json, "memory_measured", json_boolean(plan->memory_measured));
}

static json_t *layer_json(const struct plec_plan *plan, uint32_t i, uint32_t n) {
    const struct plec_plan_width *width = &plan->widths[plan->chosen];
    const struct plec_budget_layer *layer = &width->layers[i];
    uint32_t n_tokens = width->steps[PLEC_PLAN_PREFILL].n_tokens;
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "first",
        (json_int_t)layer->number, "last", (json_int_t)layer[n - 1].number, "layers", (json_int_t)n,
        "experts", (json_int_t)layer->n_experts, "experts_a_token", (json_int_t)layer->top_k,
        "extents", (json_int_t)layer->n_extents, "weight_bytes", (json_int_t)layer->weight_bytes,
        "frame_bytes", (json_int_t)layer->frame_bytes, "entry_reads",
        (json_int_t)layer->entry_reads, "extent_reads", (json_int_t)layer->extent_reads,
        "decode_experts", plec_json_real(plec_budget_distinct(layer->n_experts, layer->top_k, 1)),
        "decode_extents", plec_json_real(plec_budget_touched(layer, 1)), "prefill_experts",
        plec_json_real(plec_budget_distinct(layer->n_experts, layer->top_k, n_tokens)),
        "prefill_extents", plec_json_real(plec_budget_touched(layer, n_tokens)));
}

/* Sums over a step, and what a token of it takes. */
static json_t *step_json(const struct plec_budget_step *step, const char *name) {
    double n = step->n_tokens;
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"experts", step->experts},
                   {"extents", step->extents},
                   {"device_hits", step->device_hits},
                   {"host_hits", step->host_hits},
                   {"misses", step->misses},
                   {"reads", step->reads},
                   {"active_bytes_a_token", (step->active_bytes + step->other_bytes) / n},
                   {"device_hit_bytes_a_token", step->device_hit_bytes / n},
                   {"host_hit_bytes_a_token", step->host_hit_bytes / n},
                   {"read_bytes_a_token", step->read_bytes / n},
                   {"copied_bytes_a_token", step->copied_bytes / n},
                   {"disk_ms_a_token", 1e3 * step->disk_s / n},
                   {"link_ms_a_token", 1e3 * step->link_s / n},
                   {"memory_ms_a_token", 1e3 * step->memory_s / n},
                   {"ms_a_token", 1e3 * step->step_s / n},
                   {"resident_floor_ms_a_token", 1e3 * step->resident_s / n},
                   {"streamed_floor_ms_a_token", 1e3 * step->streamed_s / n},
                   {"tokens_s", n / step->step_s}};
    json_t *object = json_pack("{s:s, s:I}", "name", name, "tokens", (json_int_t)step->n_tokens);
    for (size_t i = 0; object != NULL && i < sizeof numbers / sizeof numbers[0]; i++)
        json_object_set_new(object, numbers[i].name, plec_json_real(numbers[i].value));
    return object;
}

static json_t *width_json(const struct plec_plan_width *width) {
    const struct plec_budget *budget = &width->budget;
    json_t *ms[PLEC_PLAN_STEPS];
    for (int s = 0; s < PLEC_PLAN_STEPS; s++)
        ms[s] = width->fits
                    ? plec_json_real(1e3 * width->steps[s].step_s / width->steps[s].n_tokens)
                    : json_null();
    return json_pack("{s:I, s:b, s:I, s:I, s:I, s:o, s:o}", "width", (json_int_t)budget->width,
                     "fits", width->fits, "frame_bytes", (json_int_t)budget->frame_bytes, "slots",
                     (json_int_t)budget->n_slots, "frames", (json_int_t)budget->n_frames,
                     "decode_ms_a_token", ms[PLEC_PLAN_DECODE], "prefill_ms_a_token",
                     ms[PLEC_PLAN_PREFILL]);
}

int plec_plan_print_json(const struct plec_plan *plan) {
    struct plec_json_stream stream = {.out = stdout}, *json = &stream;
    json_head(json, plan);
    json_speeds(json, plan);
    plec_json_list_begin(json, "layers");
    for (uint32_t i = 0, n; i < plan->n_layers; i += n) {
        n = plec_plan_run_of(plan, i);
        plec_json_list_item(json, layer_json(plan, i, n));
    }
    plec_json_list_end(json);
    plec_json_list_begin(json, "steps");
    for (int s = 0; s < PLEC_PLAN_STEPS; s++)
        plec_json_list_item(json, step_json(&plan->widths[plan->chosen].steps[s], step_names[s]));
    plec_json_list_end(json);
    plec_json_list_begin(json, "widths");
    for (uint32_t i = 0; i < plan->n_widths; i++)
        plec_json_list_item(json, width_json(&plan->widths[i]));
    plec_json_list_end(json);
    if (plec_json_end(json)) return PLEC_EXIT_OK;
    plec_cli_say("cannot write the output");
    return PLEC_EXIT_MACHINE;
}
