/* bench_matrix.c: what a routed layer costs on a device: models x formats x tokens, each beside its
 * floor, the larger of active weight bytes over the memory's speed and arithmetic over the
 * processor's.
 *
 * Weights are random and every launch reads other ones: layers take turns over at least 256 MB, so
 * that no cache serves them. Routing is uniform, drawn afresh for every launch. Timed are replays
 * of a graph of one turn through the layers, as a model's decode step is one; where a device or its
 * kernels cannot be captured, launches: the last column says which. A cell is the median of seven
 * batches; its last output must have a finite norm above 0. Rows come out as they are measured;
 * cells that the time did not allow are named at the end.
 *
 * Usage: bench_matrix [--device cpu|cuda] [--models a,b] [--formats a,b] [--tokens 1,8]
 *                     [--limit SECONDS] [--memory-mib N] [--gbs X] [--tflops X] [--shrink N]
 *                     [--rung NAME [--cublas FILE]] [--graphs on|off] [--batch SECONDS]
 *        bench_matrix --shapes [--models a,b] [--shrink N]
 * --gbs, --tflops: the device's own limits as measured elsewhere; without them the memory's speed
 *   is measured by copies on the device, and arithmetic is left out of the floor.
 * --shrink: divides widths and experts, to try the program on a small machine.
 * --rung: the kernels to run with, or a baseline, as `plectrum run` has it. --batch: how long a
 * batch takes about (0.02). Exit status: 0; 1 an output is wrong; 2 usage; 4 the machine could not.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "lyrw/format.h"
#include "tools/bench/matrix_options.h"
#include "tools/bench/random_bank.h"
#include "tools/measure/read_bandwidth.h"

enum {
    LAUNCHES_MAX = 32,
    BATCHES = 7,
    WIDTH_GRAIN = 256 /* widths stay multiples of a K-quant's block */
};
static const uint64_t rotated_bytes = UINT64_C(256) << 20; /* read before anything comes again */
static const double longest_batches = 25; /* that one turn through the layers may take */

/* Device buffers of one launch size, and what routes into them. */
struct step {
    int32_t *ids;   /* [LAUNCHES_MAX][tokens, top_k] device */
    float *weights; /* [tokens, top_k] device */
    float *x, *y;   /* [tokens, hidden] device */
    void *workspace;
    double distinct; /* experts a launch, the mean */
};

struct bench {
    const struct plec_matrix_options *options;
    struct plec_device *device;
    struct plec_stream *stream;
    struct plec_bench_model model; /* as shrunk */
    struct plec_bench_bank bank;   /* of n_layers layers, one after the other */
    struct plec_bank layers[LAUNCHES_MAX];
    uint32_t n_layers;
    struct plec_bench_random random;
    double started, gbs;
    bool wrong;
    uint32_t n_left_out;
};

static uint32_t shrunk(uint32_t width, uint32_t by) {
    uint32_t to = width / by;
    if (to < WIDTH_GRAIN || by == 1) return by == 1 ? width : WIDTH_GRAIN;
    return to / WIDTH_GRAIN * WIDTH_GRAIN;
}

static struct plec_bench_model shrink(const struct plec_bench_model *model, uint32_t by) {
    struct plec_bench_model out = *model;
    out.hidden = shrunk(model->hidden, by);
    out.intermediate = shrunk(model->intermediate, by);
    if (by > 1)
        out.n_experts = model->n_experts / by > model->top_k ? model->n_experts / by : model->top_k;
    return out;
}

/* --- routing ---------------------------------------------------------------------------------- */

/* top_k different experts for every token; returns how many experts it is. */
static uint32_t route(struct bench *bench, int32_t *ids, uint32_t n_tokens, uint8_t *used) {
    uint32_t n_experts = bench->model.n_experts, top_k = bench->model.top_k, distinct = 0;
    memset(used, 0, n_experts);
    for (uint32_t t = 0; t < n_tokens; t++)
        for (uint32_t j = 0; j < top_k; j++) {
            uint32_t expert;
            bool taken;
            do {
                expert = plec_bench_draw(&bench->random, n_experts);
                taken = false;
                for (uint32_t i = 0; i < j; i++)
                    taken |= ids[t * top_k + i] == (int32_t)expert;
            } while (taken);
            ids[t * top_k + j] = (int32_t)expert;
            distinct += !used[expert];
            used[expert] = 1;
        }
    return distinct;
}

static enum plec_status fill_step(struct bench *bench, struct step *step, uint32_t n_tokens,
                                  int32_t *ids, float *values, struct plec_error *err) {
    size_t n_pairs = (size_t)n_tokens * bench->model.top_k;
    size_t n_values = (size_t)n_tokens * bench->model.hidden;
    static uint8_t used[1024];
    uint64_t distinct = 0;
    for (uint32_t launch = 0; launch < LAUNCHES_MAX; launch++)
        distinct += route(bench, ids + launch * n_pairs, n_tokens, used);
    step->distinct = (double)distinct / LAUNCHES_MAX;
    for (size_t i = 0; i < n_values; i++)
        values[i] = plec_bench_draw_normal(&bench->random);
    enum plec_status status =
        plec_copy(step->ids, ids, LAUNCHES_MAX * n_pairs * sizeof *ids, bench->stream, err);
    if (status == PLEC_OK)
        status = plec_copy(step->x, values, n_values * sizeof *values, bench->stream, err);
    if (status == PLEC_OK) status = plec_stream_sync(bench->stream, err);
    for (size_t i = 0; i < n_pairs; i++)
        values[i] = 0.1f + (float)plec_bench_draw(&bench->random, 100) / 500.0f;
    if (status == PLEC_OK)
        status = plec_copy(step->weights, values, n_pairs * sizeof *values, bench->stream, err);
    if (status == PLEC_OK)
        status = plec_fill(step->y, 0xFF, n_values * sizeof(float), bench->stream, err);
    return status == PLEC_OK ? plec_stream_sync(bench->stream, err) : status;
}

static enum plec_status alloc(void *out, struct bench *bench, uint64_t n_bytes,
                              struct plec_error *err) {
    void *memory = NULL;
    enum plec_status status = plec_device_alloc(&memory, bench->device, n_bytes, err);
    if (status == PLEC_OK) memcpy(out, &memory, sizeof memory);
    return status;
}

static void close_step(struct bench *bench, struct step *step) {
    plec_device_free(bench->device, step->workspace);
    plec_device_free(bench->device, step->y);
    plec_device_free(bench->device, step->x);
    plec_device_free(bench->device, step->weights);
    plec_device_free(bench->device, step->ids);
}

static enum plec_status open_step(struct bench *bench, struct step *step, uint32_t n_tokens,
                                  struct plec_error *err) {
    size_t n_pairs = (size_t)n_tokens * bench->model.top_k;
    size_t n_values = (size_t)n_tokens * bench->model.hidden;
    uint64_t workspace;
    memset(step, 0, sizeof *step);
    if (!plec_experts_workspace(&workspace, bench->device, &bench->layers[0], n_tokens,
                                bench->model.top_k))
        return plec_fail(err, PLEC_NO_MEMORY, "SizeOverflow", "workspace");
    enum plec_status status = alloc(&step->workspace, bench, workspace, err);
    if (status == PLEC_OK) status = alloc(&step->ids, bench, LAUNCHES_MAX * n_pairs * 4, err);
    if (status == PLEC_OK) status = alloc(&step->weights, bench, n_pairs * 4, err);
    if (status == PLEC_OK) status = alloc(&step->x, bench, n_values * 4, err);
    if (status == PLEC_OK) status = alloc(&step->y, bench, n_values * 4, err);
    int32_t *ids = malloc(LAUNCHES_MAX * n_pairs * sizeof *ids);
    float *values = malloc((n_values > n_pairs ? n_values : n_pairs) * sizeof *values);
    if (status == PLEC_OK && (ids == NULL || values == NULL))
        status = plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "a step");
    if (status == PLEC_OK) status = fill_step(bench, step, n_tokens, ids, values, err);
    free(values), free(ids);
    if (status != PLEC_OK) close_step(bench, step);
    return status;
}

/* --- timing ----------------------------------------------------------------------------------- */

/* Launches n times, layer by layer, each with a routing of its own. */
static enum plec_status launch(struct bench *bench, const struct step *step, uint32_t n_tokens,
                               uint32_t n, struct plec_error *err) {
    struct plec_experts_args args = {.weights = step->weights,
                                     .n_tokens = n_tokens,
                                     .n_slots = bench->model.top_k,
                                     .x = step->x,
                                     .y = step->y,
                                     .workspace = step->workspace};
    enum plec_status status = PLEC_OK;
    for (uint32_t i = 0; i < n && status == PLEC_OK; i++) {
        args.bank = &bench->layers[i % bench->n_layers];
        args.ids = step->ids + (size_t)(i % LAUNCHES_MAX) * n_tokens * bench->model.top_k;
        status = plec_launch_experts(bench->stream, &args, err);
    }
    return status;
}

/* What a batch does n_times: n launches, or the replay of a graph of them. */
struct batch {
    struct plec_graph *graph; /* NULL: launches */
    uint32_t n, n_times;
};

/* Runs a batch and waits; the seconds of one launch. */
static enum plec_status run_batch(double *seconds, struct bench *bench, const struct step *step,
                                  uint32_t n_tokens, const struct batch *batch,
                                  struct plec_error *err) {
    double started = plec_bench_now();
    enum plec_status status = PLEC_OK;
    for (uint32_t i = 0; i < batch->n_times && status == PLEC_OK; i++)
        status = batch->graph != NULL ? plec_graph_launch(batch->graph, err)
                                      : launch(bench, step, n_tokens, batch->n, err);
    if (status == PLEC_OK) status = plec_stream_sync(bench->stream, err);
    *seconds = (plec_bench_now() - started) / batch->n_times / batch->n;
    return status;
}

/* A graph of n launches; none, and PLEC_OK, where they cannot be captured. */
static enum plec_status capture(struct plec_graph **out, struct bench *bench,
                                const struct step *step, uint32_t n_tokens, uint32_t n,
                                struct plec_error *err) {
    enum plec_status status = PLEC_OK;
    *out = NULL;
    if (bench->options->eager) return PLEC_OK;
    for (uint32_t i = 0; i < bench->n_layers && status == PLEC_OK; i++)
        status = plec_graph_refresh(bench->stream, &bench->layers[i], err);
    if (status == PLEC_OK) status = plec_graph_begin(bench->stream, err);
    if (status == PLEC_UNSUPPORTED) return PLEC_OK;
    if (status != PLEC_OK) return status;
    status = launch(bench, step, n_tokens, n, err);
    enum plec_status ended = plec_graph_end(out, bench->stream, status == PLEC_OK ? err : NULL);
    if (status == PLEC_OK) return ended;
    plec_graph_close(*out);
    *out = NULL;
    return status;
}

/* Launches of a graph: a turn through all layers, unless that takes too long, and more where that
 * is short; replays to fill a batch. `seconds`: of one launch, about. */
static struct batch batch_for(const struct bench *bench, double seconds) {
    double wanted = seconds > 0 ? bench->options->batch / seconds : LAUNCHES_MAX;
    double turn = fmin(bench->n_layers, fmax(longest_batches * wanted, 2));
    struct batch batch = {.n = (uint32_t)fmin(fmax(wanted, turn), LAUNCHES_MAX)};
    batch.n_times = (uint32_t)fmin(fmax(wanted / batch.n, 1), 4096);
    return batch;
}

/* The norm of the last output, per value; NaN where a value is. */
static enum plec_status output_norm(double *norm, struct bench *bench, const struct step *step,
                                    uint32_t n_tokens, struct plec_error *err) {
    size_t n = (size_t)n_tokens * bench->model.hidden;
    float *y = malloc(n * sizeof *y);
    if (y == NULL) return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "an output");
    enum plec_status status = plec_copy(y, step->y, n * sizeof *y, bench->stream, err);
    if (status == PLEC_OK) status = plec_stream_sync(bench->stream, err);
    double sum = 0;
    for (size_t i = 0; i < n && status == PLEC_OK; i++)
        sum += (double)y[i] * y[i];
    *norm = sqrt(sum / (double)n);
    free(y);
    return status;
}

/* A kernel's name as a column without a space: "S=mm_bulk,M=mm_sync,L=mm_sync". */
static const char *one_word(char *out, const char *name) {
    char *to = out;
    for (const char *from = name; *from != '\0'; from++)
        if (*from != ' ')
            *to++ = *from;
        else if (from[-1] != ',')
            *to++ = '=';
    *to = '\0';
    return out;
}

/* The kernel that the format's experts run with: gate and up are one matrix, and down is alike. */
static const char *kernel_of(char *out, const struct bench *bench) {
    char name[PLEC_KERNEL_NAME_MAX];
    const char *kernel =
        plec_device_operand_kernel(bench->device, &bench->layers[0], PLEC_DOWN, name);
    return one_word(out, kernel != NULL ? kernel : "none");
}

static void print_cell(struct bench *bench, const struct plec_format *format, uint32_t n_tokens,
                       const struct step *step, double seconds, const struct batch *batch,
                       double norm) {
    const struct plec_bench_model *model = &bench->model;
    double bytes = step->distinct * (double)bench->bank.entry_bytes;
    double flop = 6.0 * model->hidden * model->intermediate * model->top_k * n_tokens;
    double memory_floor = bytes / (bench->gbs * 1e9);
    double compute_floor = bench->options->tflops > 0 ? flop / (bench->options->tflops * 1e12) : 0;
    bool good = norm > 0 && isfinite(norm);
    char kernel[PLEC_KERNEL_NAME_MAX];
    printf("%-20s %-9s %-14s %6u %8.1f %11.1f %9.1f %9.2f %7.3f %-8s%s%s%s\n", model->name,
           format->name, kernel_of(kernel, bench), n_tokens, step->distinct, seconds * 1e6,
           bytes / seconds * 1e-9, flop / seconds * 1e-12,
           fmax(memory_floor, compute_floor) / seconds, batch->graph != NULL ? "graph" : "launches",
           bench->bank.n_stored < model->n_experts ? "  experts share bytes" : "",
           batch->n < bench->n_layers ? "  too slow to rotate" : "", good ? "" : "  WRONG OUTPUT");
    fflush(stdout);
    if (!good) bench->wrong = true;
}

static enum plec_status time_step(struct bench *bench, const struct plec_format *format,
                                  uint32_t n_tokens, const struct step *step,
                                  struct plec_error *err) {
    const struct batch first = {.n = 2, .n_times = 1};
    double seconds, batches[BATCHES], norm = NAN;
    enum plec_status status = run_batch(&seconds, bench, step, n_tokens, &first, err);
    if (status == PLEC_OK) status = run_batch(&seconds, bench, step, n_tokens, &first, err);
    struct batch batch = batch_for(bench, seconds);
    if (status == PLEC_OK) status = capture(&batch.graph, bench, step, n_tokens, batch.n, err);
    for (int i = -1; i < BATCHES && status == PLEC_OK; i++) /* one that is not counted */
        status = run_batch(&batches[i < 0 ? 0 : i], bench, step, n_tokens, &batch, err);
    if (status == PLEC_OK) status = output_norm(&norm, bench, step, n_tokens, err);
    if (status == PLEC_OK)
        print_cell(bench, format, n_tokens, step, plec_bench_median(batches, BATCHES), &batch,
                   norm);
    plec_graph_close(batch.graph);
    return status;
}

static enum plec_status time_cell(struct bench *bench, const struct plec_format *format,
                                  uint32_t n_tokens, struct plec_error *err) {
    struct step step;
    enum plec_status status = open_step(bench, &step, n_tokens, err);
    if (status != PLEC_OK) return status;
    status = time_step(bench, format, n_tokens, &step, err);
    close_step(bench, &step);
    return status;
}

/* --- the matrix ------------------------------------------------------------------------------- */

static bool out_of_time(const struct bench *bench) {
    return plec_bench_now() - bench->started > bench->options->limit;
}

/* Names the cells that were not measured; without a name, the sum. */
static void leave_out(struct bench *bench, const struct plec_format *format, const char *why) {
    bench->n_left_out++;
    printf("left out: %s %s: %s\n", bench->model.name, format->name, why);
    fflush(stdout);
}

/* Enough layers that rotated_bytes are read before one comes again, as far as memory goes. */
static enum plec_status open_layers(struct bench *bench, const struct plec_format *format,
                                    struct plec_error *err) {
    const struct plec_bench_model *model = &bench->model;
    uint64_t gate = 0, down = 0, scales = 0;
    if (plec_format_size(&gate, &scales, format->tag, 2 * model->intermediate, model->hidden,
                         err) != PLEC_OK ||
        plec_format_size(&down, &scales, format->tag, model->hidden, model->intermediate, err) !=
            PLEC_OK)
        return PLEC_MALFORMED;
    uint64_t active = model->top_k * (gate + down);
    bench->n_layers = (uint32_t)(rotated_bytes / active + 1);
    if (bench->n_layers > LAUNCHES_MAX) bench->n_layers = LAUNCHES_MAX;
    struct plec_bench_bank_args args = {.device = bench->device,
                                        .stream = bench->stream,
                                        .gate_format = format->tag,
                                        .down_format = format->tag,
                                        .activation = model->activation,
                                        .input_dim = model->hidden,
                                        .intermediate_dim = model->intermediate,
                                        .n_entries = bench->n_layers * model->n_experts,
                                        .most_bytes = bench->options->memory,
                                        .seed = 88172645463325252u};
    enum plec_status status = plec_bench_bank_open(&bench->bank, &args, err);
    for (uint32_t i = 0; i < bench->n_layers && status == PLEC_OK; i++) {
        bench->layers[i] = bench->bank.bank;
        bench->layers[i].n_entries = model->n_experts;
        bench->layers[i].entries = bench->bank.bank.entries + i * model->n_experts;
    }
    return status;
}

static enum plec_status run_bank(struct bench *bench, const struct plec_format *format,
                                 struct plec_error *err) {
    enum plec_status status = open_layers(bench, format, err);
    if (status != PLEC_OK) {
        leave_out(bench, format, err->message);
        return PLEC_OK;
    }
    for (uint32_t i = 0; i < bench->options->n_tokens && status == PLEC_OK; i++) {
        if (out_of_time(bench)) {
            leave_out(bench, format, "no time for its larger steps");
            break;
        }
        status = time_cell(bench, format, bench->options->tokens[i], err);
        if (status == PLEC_NO_MEMORY || status == PLEC_UNSUPPORTED) {
            leave_out(bench, format, err->message);
            status = PLEC_OK;
        }
    }
    plec_bench_bank_close(&bench->bank);
    return status;
}

static enum plec_status run_matrix(struct bench *bench, struct plec_error *err) {
    const struct plec_matrix_options *options = bench->options;
    enum plec_status status = PLEC_OK;
    for (uint32_t m = 0; m < options->n_models; m++) {
        bench->model = shrink(options->models[m], options->shrink);
        for (uint32_t f = 0; f < options->n_formats && status == PLEC_OK; f++) {
            if (out_of_time(bench))
                leave_out(bench, options->formats[f], "no time");
            else
                status = run_bank(bench, options->formats[f], err);
        }
    }
    return status;
}

/* Bytes a second that a copy within the device reads and writes, the median of a few. */
static enum plec_status measure_copy(struct bench *bench, struct plec_error *err) {
    uint64_t n_bytes = bench->options->memory / 4 < rotated_bytes * 2 ? bench->options->memory / 4
                                                                      : rotated_bytes * 2;
    uint8_t *memory;
    double rates[BATCHES];
    enum plec_status status = alloc(&memory, bench, 2 * n_bytes, err);
    if (status != PLEC_OK) return status;
    status = plec_fill(memory, 0x5A, 2 * n_bytes, bench->stream, err);
    if (status == PLEC_OK) status = plec_stream_sync(bench->stream, err);
    for (int i = 0; i < BATCHES && status == PLEC_OK; i++) {
        double started = plec_bench_now();
        status = plec_copy(memory, memory + n_bytes, n_bytes, bench->stream, err);
        if (status == PLEC_OK) status = plec_stream_sync(bench->stream, err);
        rates[i] = 2 * (double)n_bytes / (plec_bench_now() - started);
    }
    if (status == PLEC_OK) bench->gbs = plec_bench_median(rates, BATCHES) * 1e-9;
    plec_device_free(bench->device, memory);
    return status;
}

static int run(const struct plec_matrix_options *options) {
    struct bench bench = {.options = options, .random = {UINT64_C(0x9E3779B97F4A7C15)}};
    struct plec_device_info info;
    struct plec_error err;
    bench.started = plec_bench_now();
    struct plec_device_options device = {.rung = options->rung, .cublas = options->cublas};
    enum plec_status status = plec_device_open(&bench.device, options->device, &device, &err);
    if (status == PLEC_OK) status = plec_stream_open(&bench.stream, bench.device, &err);
    bench.gbs = options->gbs;
    if (status == PLEC_OK && bench.gbs <= 0) status = measure_copy(&bench, &err);
    if (status == PLEC_OK) {
        plec_device_get_info(&info, bench.device);
        printf("%s; memory %.0f GB/s (%s), arithmetic %s; medians of %d batches\n", info.name,
               bench.gbs, options->gbs > 0 ? "given" : "copies on the device",
               options->tflops > 0 ? "as given" : "not in the floor", BATCHES);
        printf("%-20s %-9s %-14s %6s %8s %11s %9s %9s %7s %s\n", "model", "format", "kernel",
               "tokens", "experts", "us", "GB/s", "TFLOP/s", "floor", "timed");
        status = run_matrix(&bench, &err);
    }
    if (status != PLEC_OK) fprintf(stderr, "bench_matrix: %s\n", err.message);
    if (bench.n_left_out > 0) printf("%u left out, named above\n", bench.n_left_out);
    plec_stream_close(bench.stream);
    plec_device_close(bench.device);
    return status != PLEC_OK ? 4 : bench.wrong;
}

static int print_shapes(const struct plec_matrix_options *options) {
    for (uint32_t m = 0; m < options->n_models; m++) {
        struct plec_bench_model model = shrink(options->models[m], options->shrink);
        printf("%s %u %u %u %u\n", model.name, model.hidden, model.intermediate, model.n_experts,
               model.top_k);
    }
    return 0;
}

int main(int argc, char **argv) {
    struct plec_matrix_options options;
    if (!plec_matrix_options_read(&options, argc, argv)) {
        fprintf(stderr,
                "usage: bench_matrix [--device cpu|cuda] [--models a,b] [--formats a,b]\n"
                "                    [--tokens 1,8] [--limit SECONDS] [--memory-mib N] [--gbs X]\n"
                "                    [--tflops X] [--shrink N] [--rung NAME [--cublas FILE]]\n"
                "                    [--graphs on|off] [--batch SECONDS] [--shapes]\n");
        return 2;
    }
    if (options.shapes) return print_shapes(&options);
    return run(&options);
}
