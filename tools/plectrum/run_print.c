/* run_print.c: what a run has to say, for a person and as JSON. */
#include <stdio.h>

#include "tools/plectrum/json_stream.h"
#include "tools/plectrum/run.h"

static const char *routing_name(const struct plec_run *run) {
    if (run->ids.values != NULL) return "caller";
    return run->bound->dense ? "dense" : "router";
}

/* A path that is no UTF-8 cannot stand in JSON. */
static json_t *text_or_null(const char *text) {
    json_t *value = text != NULL ? json_string(text) : NULL;
    return value != NULL ? value : json_null();
}

static json_t *real_or_null(bool given, double value) {
    return given ? plec_json_real(value) : json_null();
}

static json_t *stream_or_null(const struct plec_run *run) {
    struct plec_stream_stats stats;
    return plec_runner_stream_stats(&stats, run->runner) ? plec_stream_json(&stats) : json_null();
}

int plec_run_print_json(const struct plec_run *run) {
    const struct plec_run_check *check = &run->check;
    const struct plec_layer *layer = &run->bound->layer;
    return plec_cli_print_json(json_pack(
        "{s:o, s:s, s:o, s:I, s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:s, s:o, s:o, s:I, "
        "s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
        "path", text_or_null(run->o.path), "kind",
        plec_container_kind_name(plec_container_get_kind(run->container)), "profile",
        text_or_null(run->o.profile), "layer", (json_int_t)run->o.layer, "device",
        plec_runner_device_name(run->runner), "kernels",
        text_or_null(plec_runner_kernels(run->runner, run->o.layer)), "tokens",
        (json_int_t)run->x.rows, "hidden_size", (json_int_t)layer->hidden_size, "experts",
        (json_int_t)layer->routed.n_entries, "slots", (json_int_t)run->n_slots, "shared_experts",
        (json_int_t)layer->shared.n_entries, "routing", routing_name(run), "programme",
        text_or_null(run->info.programme), "activation",
        plec_activation_name(layer->routed.maths.activation), "output", text_or_null(run->o.output),
        "output_norm", real_or_null(true, plec_array_norm(&run->y)), "not_finite",
        (json_int_t)run->not_finite.n, "nmse", real_or_null(check->done, check->nmse),
        "nmse_rounded", real_or_null(check->rounded, check->nmse_rounded), "tolerance",
        real_or_null(check->done, run->o.tolerance), "within",
        check->done ? json_boolean(plec_run_within(run)) : json_null(), "note",
        text_or_null(plec_run_note(run)), "stream", stream_or_null(run), "graphs",
        plec_graphs_json(run->runner)));
}

void plec_run_say_not_finite(const struct plec_run *run) {
    const struct plec_run_not_finite *found = &run->not_finite;
    if (found->n == 0) return;
    plec_cli_say("%s: OutputNotFinite: %llu of %llu values, the first in column %u of token %u%s",
                 run->o.path, (unsigned long long)found->n,
                 (unsigned long long)run->y.rows * run->y.cols, found->column, found->token,
                 found->given ? "; what such tokens were given is not finite either" : "");
}

static void print_check(const struct plec_run *run) {
    const struct plec_run_check *check = &run->check;
    printf("NMSE         %.3g against the reference%s: %s the tolerance of %g\n", check->nmse,
           run->o.how.device.device == PLEC_RUN_REFERENCE ? ", which is this device itself" : "",
           check->nmse <= run->o.tolerance ? "within" : "above", run->o.tolerance);
    if (!check->rounded) return;
    printf("rounded      %.3g against the reference that rounds as this device does: %s %g\n",
           check->nmse_rounded, plec_run_within(run) ? "below" : "not below",
           PLEC_RUN_ROUNDED_TOLERANCE);
    printf("             %s\n", plec_run_note(run));
}

void plec_run_print(const struct plec_run *run) {
    const struct plec_layer *layer = &run->bound->layer;
    printf("layer        %u, on %s\n", run->o.layer, plec_runner_device_name(run->runner));
    const char *kernels = plec_runner_kernels(run->runner, run->o.layer);
    if (kernels != NULL) printf("kernels      %s\n", kernels);
    printf("tokens       %u of width %u\n", run->x.rows, layer->hidden_size);
    printf("experts      %u, %u a token (%s), %u shared, %s\n", layer->routed.n_entries,
           run->n_slots, routing_name(run), layer->shared.n_entries,
           plec_activation_name(layer->routed.maths.activation));
    printf("output norm  %.9g\n", plec_array_norm(&run->y));
    struct plec_stream_stats stats;
    if (plec_runner_stream_stats(&stats, run->runner)) plec_stream_print(&stats);
    struct plec_graph_stats graphs;
    if (plec_runner_graph_stats(&graphs, run->runner))
        printf("graphs       %llu captured; %llu steps replayed, %llu launched kernel by kernel\n",
               (unsigned long long)graphs.captured, (unsigned long long)graphs.replayed,
               (unsigned long long)graphs.launched);
    if (run->check.done) print_check(run);
}
