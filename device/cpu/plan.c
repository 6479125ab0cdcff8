/* plan.c: groups the (token, slot) pairs by expert with a counting sort: stable, so that an
 * expert's pairs stand in order of token and slot. */
#include <string.h>

#include "device/cpu/experts.h"

static int64_t expert_of(const struct plec_experts_args *args, uint64_t pair) {
    return args->ids != NULL ? args->ids[pair] : (int64_t)(pair % args->n_slots);
}

/* first[e] = pairs of expert e. */
static enum plec_status count(struct plec_cpu_experts *run, struct plec_error *err) {
    memset(run->first, 0, ((size_t)run->bank->n_entries + 1) * sizeof *run->first);
    for (uint64_t pair = 0; pair < run->n_pairs; pair++) {
        int64_t expert = expert_of(run->args, pair);
        if (expert < 0 || expert >= run->bank->n_entries)
            return plec_fail(err, PLEC_BAD_INPUT, "BadExpertId",
                             "token %llu, slot %llu: expert %lld of %u",
                             (unsigned long long)(pair / run->args->n_slots),
                             (unsigned long long)(pair % run->args->n_slots), (long long)expert,
                             run->bank->n_entries);
        run->first[expert]++;
    }
    return PLEC_OK;
}

/* Turns counts into starts, and lists the experts that have pairs. */
static void add_up(struct plec_cpu_experts *run) {
    uint64_t start = 0;
    run->n_active = 0;
    for (uint32_t e = 0; e < run->bank->n_entries; e++) {
        uint64_t n = run->first[e];
        if (n > 0) run->all_active[run->n_active++] = e;
        run->left[e] = n > 0;
        run->first[e] = start;
        start += n;
    }
    *run->n_left = run->n_active;
}

/* Deals the pairs out; each first[e] ends as the start of e + 1, and is then put back. */
static void deal(struct plec_cpu_experts *run) {
    for (uint64_t pair = 0; pair < run->n_pairs; pair++)
        run->pairs[run->first[expert_of(run->args, pair)]++] = pair;
    for (uint32_t e = run->bank->n_entries; e > 0; e--)
        run->first[e] = run->first[e - 1];
    run->first[0] = 0;
}

enum plec_status plec_cpu_plan(struct plec_cpu_experts *run, struct plec_error *err) {
    enum plec_status status = count(run, err);
    if (status != PLEC_OK) return status;
    add_up(run);
    deal(run);
    run->active = run->all_active;
    return PLEC_OK;
}

enum plec_status plec_cpu_take_part(struct plec_cpu_experts *run, struct plec_error *err) {
    run->active = run->args->part;
    run->n_active = run->args->n_part;
    for (uint32_t i = 0; i < run->n_active; i++) {
        uint32_t e = run->active[i];
        if (e >= run->bank->n_entries || !run->left[e])
            return plec_fail(err, PLEC_BAD_INPUT, "BadPart",
                             "expert %u of %u has no pairs, or has run", e, run->bank->n_entries);
        run->left[e] = 0;
        --*run->n_left;
    }
    return PLEC_OK;
}

struct plec_cpu_slice plec_cpu_slice_at(const struct plec_cpu_experts *run, uint64_t first,
                                        uint32_t n_rows, uint64_t most) {
    struct plec_cpu_slice slice;
    slice.expert = run->active[first / n_rows];
    slice.entry = &run->bank->entries[slice.expert];
    slice.pairs = run->pairs + run->first[slice.expert];
    slice.n_pairs = run->first[slice.expert + 1] - run->first[slice.expert];
    slice.first_row = (uint32_t)(first % n_rows);
    slice.last_row = n_rows - slice.first_row > most ? slice.first_row + (uint32_t)most : n_rows;
    return slice;
}
