/* plan.h: what `plectrum plan` found out, for its two ways of saying it (plan_print.c). */
#ifndef PLEC_TOOLS_PLAN_H
#define PLEC_TOOLS_PLAN_H

#include "host/budget.h"
#include "host/runner.h"

/* Extent widths looked at: 1, 2, 4, ..., 64, and the one asked for. */
enum { PLEC_PLAN_WIDTHS = 8 };

/* Means of a step of decoding (one token) and of prefill. */
enum { PLEC_PLAN_DECODE, PLEC_PLAN_PREFILL, PLEC_PLAN_STEPS };

struct plec_plan_width {
    struct plec_budget_layer *layers; /* [n_layers] */
    struct plec_budget budget;
    bool fits; /* a slot and a frame at least */
    struct plec_budget_step steps[PLEC_PLAN_STEPS];
};

struct plec_plan {
    const char *path, *kind, *device_name;
    uint32_t n_layers;       /* that stream */
    uint32_t n_fixed_layers; /* that do not */
    uint64_t fixed_bytes;    /* theirs */
    uint64_t device_budget, pinned_budget;
    bool device_measured, pinned_measured; /* not given */
    struct plec_budget_machine machine;
    const char *io_engine, *io_cache; /* NULL: the disk's speed was given */
    bool link_measured, memory_measured;
    struct plec_plan_width widths[PLEC_PLAN_WIDTHS];
    uint32_t n_widths, chosen, advised; /* places in widths */
};

/* As many neighbouring layers, from i on, as are alike in the chosen width. */
uint32_t plec_plan_run_of(const struct plec_plan *plan, uint32_t i);
void plec_plan_print(const struct plec_plan *plan);
/* One JSON object; the exit status. */
int plec_plan_print_json(const struct plec_plan *plan);

#endif
