/* run_check.c: whether an output is finite, and held against the reference: what --check allows,
 * and what rounding has to do with it. */
#include <math.h>

#include "tools/plectrum/run.h"

/* How far from the exact reference a path may be: in f32, and with what enters experts rounded to
 * bf16. */
static const double f32_tolerance = 1e-9, bf16_tolerance = 4e-5;

static bool was_given_finite(const struct plec_run *run, uint32_t token) {
    uint32_t column;
    if (plec_array_not_finite(&column, &run->x, token) > 0) return false;
    return run->router_input.values == NULL ||
           plec_array_not_finite(&column, &run->router_input, token) == 0;
}

/* A token without a routing has a row of NaN, and an error that names it. */
static bool was_routed(const struct plec_run *run, uint32_t token) {
    const int32_t *ids = run->ids_out.values;
    return run->n_slots == 0 || ids[(size_t)token * run->n_slots] >= 0;
}

void plec_run_find_not_finite(struct plec_run *run) {
    struct plec_run_not_finite found = {.given = true};
    for (uint32_t t = 0; t < run->y.rows; t++) {
        uint32_t column, n = was_routed(run, t) ? plec_array_not_finite(&column, &run->y, t) : 0;
        if (n == 0) continue;
        if (found.n == 0) found.token = t, found.column = column;
        found.n += n;
        found.given = found.given && !was_given_finite(run, t);
    }
    run->not_finite = found;
}

static bool bank_rounds(const struct plec_bank *bank) {
    bool rounds = false;
    for (int id = 0; id < PLEC_N_MATRICES && bank->n_entries > 0; id++)
        rounds = rounds || (bank->operands[id].rows > 0 &&
                            plec_format_rounds_inputs(bank->operands[id].format));
    return rounds;
}

/* Whether the device rounds what enters some matrix of the layer's experts. */
static bool device_rounds(const struct plec_run *run) {
    const struct plec_layer *layer = &run->bound->layer;
    return plec_runner_device(run->runner) == PLEC_RUN_CUDA &&
           (bank_rounds(&layer->routed) || bank_rounds(&layer->shared) ||
            bank_rounds(&layer->dense));
}

static enum plec_status compare(double *nmse, const struct plec_run *run, bool bf16_rule,
                                struct plec_error *err) {
    struct plec_array y = {0};
    enum plec_status status = plec_run_reference(&y, run, bf16_rule, err);
    if (status == PLEC_OK) *nmse = plec_array_nmse(&run->y, &y);
    plec_array_free(&y);
    return status;
}

/* Where outputs cancel, what rounding adds is large beside them: no bound on it holds for every
 * layer and token. The reference that rounds alike is as near in every case, and is asked only
 * where it is needed. A tolerance of the caller's own is held as it stands. */
enum plec_status plec_run_check(struct plec_run *run, struct plec_error *err) {
    struct plec_run_check *check = &run->check;
    if (!run->o.tolerance_given)
        run->o.tolerance =
            plec_runner_device(run->runner) == PLEC_RUN_CUDA ? bf16_tolerance : f32_tolerance;
    enum plec_status status = compare(&check->nmse, run, false, err);
    check->done = status == PLEC_OK;
    if (status != PLEC_OK || check->nmse <= run->o.tolerance || !isfinite(check->nmse) ||
        run->o.tolerance_given || !device_rounds(run))
        return status;
    status = compare(&check->nmse_rounded, run, true, err);
    check->rounded = status == PLEC_OK;
    return status;
}

static bool rounding_explains(const struct plec_run_check *check) {
    return check->rounded && check->nmse_rounded < PLEC_RUN_ROUNDED_TOLERANCE;
}

bool plec_run_within(const struct plec_run *run) {
    return run->check.nmse <= run->o.tolerance || rounding_explains(&run->check);
}

const char *plec_run_note(const struct plec_run *run) {
    if (!run->check.rounded) return NULL;
    return rounding_explains(&run->check)
               ? "what enters experts is rounded to bf16 here; the reference that rounds it too "
                 "agrees, so the difference is that rounding and no kernel's"
               : "what enters experts is rounded to bf16 here, but the reference that rounds it "
                 "too does not agree: the difference is more than that rounding";
}
