/* bench_matrix.c: what a routed layer costs on a device: models x formats x tokens, each beside its
 * floor, the larger of active weight bytes over the memory's speed and arithmetic over the
 * processor's.
 *
 * Weights are random and every launch reads other ones: layers take turns over at least 256 MB, so
 * that no cache serves them. Routing is uniform, drawn afresh for every launch. A cell is the
 * median of batches of launches; its last output must have a finite norm above 0. Rows come out as
 * they are measured; cells that the time did not allow are named at the end.
 *
 * Usage: bench_matrix [--device cpu|cuda] [--models a,b] [--formats a,b] [--tokens 1,8]
 *                     [--limit SECONDS] [--memory-mib N] [--gbs X] [--tflops X] [--shrink N]
 * --gbs, --tflops: the device's own limits as measured elsewhere; without them the memory's speed
 *   is measured by copies on the device, and arithmetic is left out of the floor.
 * --shrink: divides widths and experts, to try the program on a small machine.
 * Exit status: 0; 1 an output is wrong; 2 usage; 4 the machine could not.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "lyrw/format.h"
#include "tools/bench/models.h"
#include "tools/bench/random_bank.h"
#include "tools/measure/read_bandwidth.h"

enum {
    TOKENS_MAX = 4096,
    LIST_MAX = 32,
    LAUNCHES_MAX = 32,
    BATCHES = 7,
    WIDTH_GRAIN = 256 /* widths stay multiples of a K-quant's block */
};
static const uint64_t rotated_bytes = UINT64_C(256) << 20; /* read before anything comes again */
static const double batch_seconds = 0.02;

struct options {
    enum plec_device_kind device;
    const struct plec_bench_model *models[LIST_MAX];
    const struct plec_format *formats[LIST_MAX];
    uint32_t tokens[LIST_MAX];
    uint32_t n_models, n_formats, n_tokens, shrink;
    double limit, gbs, tflops;
    uint64_t memory;
};

/* Device buffers of one launch size, and what routes into them. */
struct step {
    int32_t *ids;   /* [LAUNCHES_MAX][tokens, top_k] device, of the whole bank */
    float *weights; /* [tokens, top_k] device */
    float *x, *y;   /* [tokens, hidden] device */
    void *workspace;
    double distinct; /* experts a launch, the mean */
};

struct bench {
    const struct options *options;
    struct plec_device *device;
    struct plec_stream *stream;
    struct plec_bench_model model; /* as shrunk */
    struct plec_bench_bank bank;   /* of n_layers layers, one after the other */
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

/* top_k different experts for every token, of layer `layer`; returns how many experts it is. */
static uint32_t route(struct bench *bench, int32_t *ids, uint32_t n_tokens, uint32_t layer,
                      uint8_t *used) {
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
                    taken |= ids[t * top_k + i] == (int32_t)(layer * n_experts + expert);
            } while (taken);
            ids[t * top_k + j] = (int32_t)(layer * n_experts + expert);
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
        distinct += route(bench, ids + launch * n_pairs, n_tokens, launch % bench->n_layers, used);
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
    if (!plec_experts_workspace(&workspace, bench->device, &bench->bank.bank, n_tokens,
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

/* Launches n times and waits; the seconds of one. */
static enum plec_status run_batch(double *seconds, struct bench *bench, const struct step *step,
                                  uint32_t n_tokens, uint32_t n, struct plec_error *err) {
    struct plec_experts_args args = {.bank = &bench->bank.bank,
                                     .weights = step->weights,
                                     .n_tokens = n_tokens,
                                     .n_slots = bench->model.top_k,
                                     .x = step->x,
                                     .y = step->y,
                                     .workspace = step->workspace};
    double started = plec_bench_now();
    enum plec_status status = PLEC_OK;
    for (uint32_t i = 0; i < n && status == PLEC_OK; i++) {
        args.ids = step->ids + (size_t)(i % LAUNCHES_MAX) * n_tokens * bench->model.top_k;
        status = plec_launch_experts(bench->stream, &args, err);
    }
    if (status == PLEC_OK) status = plec_stream_sync(bench->stream, err);
    *seconds = (plec_bench_now() - started) / n;
    return status;
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

static void print_cell(struct bench *bench, const struct plec_format *format, uint32_t n_tokens,
                       const struct step *step, double seconds, double norm) {
    const struct plec_bench_model *model = &bench->model;
    double bytes = step->distinct * (double)bench->bank.entry_bytes;
    double flop = 6.0 * model->hidden * model->intermediate * model->top_k * n_tokens;
    double memory_floor = bytes / (bench->gbs * 1e9);
    double compute_floor = bench->options->tflops > 0 ? flop / (bench->options->tflops * 1e12) : 0;
    bool good = norm > 0 && isfinite(norm);
    char name[PLEC_KERNEL_NAME_MAX], kernel[PLEC_KERNEL_NAME_MAX];
    printf("%-20s %-9s %-12s %6u %8.1f %11.1f %9.1f %9.2f %7.3f%s%s\n", model->name, format->name,
           one_word(kernel, plec_device_kernel_name(bench->device, format->tag, name)), n_tokens,
           step->distinct, seconds * 1e6, bytes / seconds * 1e-9, flop / seconds * 1e-12,
           fmax(memory_floor, compute_floor) / seconds,
           bench->bank.n_stored < model->n_experts ? "  experts share bytes" : "",
           good ? "" : "  WRONG OUTPUT");
    fflush(stdout);
    if (!good) bench->wrong = true;
}

static enum plec_status time_cell(struct bench *bench, const struct plec_format *format,
                                  uint32_t n_tokens, struct plec_error *err) {
    struct step step;
    double seconds, batches[BATCHES], norm = NAN;
    enum plec_status status = open_step(bench, &step, n_tokens, err);
    if (status != PLEC_OK) return status;
    status = run_batch(&seconds, bench, &step, n_tokens, 2, err);
    uint32_t n = seconds > 0 ? (uint32_t)fmin(fmax(batch_seconds / seconds, 2), 4096) : 2;
    for (int i = 0; i < BATCHES && status == PLEC_OK; i++)
        status = run_batch(&batches[i], bench, &step, n_tokens, n, err);
    if (status == PLEC_OK) status = output_norm(&norm, bench, &step, n_tokens, err);
    if (status == PLEC_OK)
        print_cell(bench, format, n_tokens, &step, plec_bench_median(batches, BATCHES), norm);
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
    return plec_bench_bank_open(&bench->bank, &args, err);
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
        if (status == PLEC_NO_MEMORY) {
            leave_out(bench, format, err->message);
            status = PLEC_OK;
        }
    }
    plec_bench_bank_close(&bench->bank);
    return status;
}

static enum plec_status run_matrix(struct bench *bench, struct plec_error *err) {
    const struct options *options = bench->options;
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

static int run(const struct options *options) {
    struct bench bench = {.options = options, .random = {UINT64_C(0x9E3779B97F4A7C15)}};
    struct plec_device_info info;
    struct plec_error err;
    bench.started = plec_bench_now();
    enum plec_status status = plec_device_open(&bench.device, options->device, NULL, &err);
    if (status == PLEC_OK) status = plec_stream_open(&bench.stream, bench.device, &err);
    bench.gbs = options->gbs;
    if (status == PLEC_OK && bench.gbs <= 0) status = measure_copy(&bench, &err);
    if (status == PLEC_OK) {
        plec_device_get_info(&info, bench.device);
        printf("%s; memory %.0f GB/s (%s), arithmetic %s; batches of launches, medians of %d\n",
               info.name, bench.gbs, options->gbs > 0 ? "given" : "copies on the device",
               options->tflops > 0 ? "as given" : "not in the floor", BATCHES);
        printf("%-20s %-9s %-12s %6s %8s %11s %9s %9s %7s\n", "model", "format", "kernel", "tokens",
               "experts", "us", "GB/s", "TFLOP/s", "floor");
        status = run_matrix(&bench, &err);
    }
    if (status != PLEC_OK) fprintf(stderr, "bench_matrix: %s\n", err.message);
    if (bench.n_left_out > 0) printf("%u left out, named above\n", bench.n_left_out);
    plec_stream_close(bench.stream);
    plec_device_close(bench.device);
    return status != PLEC_OK ? 4 : bench.wrong;
}

/* --- the command line ------------------------------------------------------------------------- */

/* Takes the next name of a comma-separated list off *text into name; false at its end. */
static bool next_name(char *name, size_t size, const char **text) {
    size_t n = strcspn(*text, ",");
    if (n == 0 || n >= size) return false;
    memcpy(name, *text, n);
    name[n] = '\0';
    *text += n + ((*text)[n] == ',');
    return true;
}

static bool read_models(struct options *options, const char *text) {
    char name[64];
    for (options->n_models = 0; *text != '\0' && options->n_models < LIST_MAX;) {
        if (!next_name(name, sizeof name, &text)) return false;
        const struct plec_bench_model *model = plec_bench_model_by_name(name);
        if (model == NULL) return false;
        options->models[options->n_models++] = model;
    }
    return *text == '\0' && options->n_models > 0;
}

static bool read_formats(struct options *options, const char *text) {
    char name[64];
    for (options->n_formats = 0; *text != '\0' && options->n_formats < LIST_MAX;) {
        if (!next_name(name, sizeof name, &text)) return false;
        const struct plec_format *format = plec_format_by_name(name);
        if (format == NULL) return false;
        options->formats[options->n_formats++] = format;
    }
    return *text == '\0' && options->n_formats > 0;
}

static bool read_tokens(struct options *options, const char *text) {
    char name[64], *end;
    for (options->n_tokens = 0; *text != '\0' && options->n_tokens < LIST_MAX;) {
        if (!next_name(name, sizeof name, &text)) return false;
        unsigned long n = strtoul(name, &end, 10);
        if (*end != '\0' || n < 1 || n > TOKENS_MAX) return false;
        options->tokens[options->n_tokens++] = (uint32_t)n;
    }
    return *text == '\0' && options->n_tokens > 0;
}

static bool read_real(double *out, const char *text) {
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out > 0 && isfinite(*out);
}

static bool read_device(struct options *options, const char *text) {
    options->device = strcmp(text, "cuda") == 0 ? PLEC_DEVICE_CUDA : PLEC_DEVICE_CPU;
    return options->device == PLEC_DEVICE_CUDA || strcmp(text, "cpu") == 0;
}

static bool read_option(struct options *options, int c, const char *text) {
    double number = 0;
    switch (c) {
    case 'd': return read_device(options, text);
    case 'm': return read_models(options, text);
    case 'f': return read_formats(options, text);
    case 't': return read_tokens(options, text);
    case 'l': return read_real(&options->limit, text);
    case 'g': return read_real(&options->gbs, text);
    case 'c': return read_real(&options->tflops, text);
    case 'b':
        if (!read_real(&number, text) || number > 1e9) return false;
        options->memory = (uint64_t)(number * (1 << 20));
        return true;
    case 's':
        if (!read_real(&number, text) || number < 1 || number > 1000) return false;
        options->shrink = (uint32_t)number;
        return true;
    default: return false;
    }
}

int main(int argc, char **argv) {
    static const struct option names[] = {
        {"device", required_argument, NULL, 'd'},  {"models", required_argument, NULL, 'm'},
        {"formats", required_argument, NULL, 'f'}, {"tokens", required_argument, NULL, 't'},
        {"limit", required_argument, NULL, 'l'},   {"memory-mib", required_argument, NULL, 'b'},
        {"gbs", required_argument, NULL, 'g'},     {"tflops", required_argument, NULL, 'c'},
        {"shrink", required_argument, NULL, 's'},  {NULL, 0, NULL, 0}};
    struct options options = {
        .device = PLEC_DEVICE_CPU, .shrink = 1, .limit = 1e9, .memory = UINT64_C(4096) << 20};
    bool fine = read_models(&options, "gpt-oss-120b,mixtral-8x7b,qwen3-30b-a3b,qwen3-235b-a22b,"
                                      "deepseek-v3") &&
                read_formats(&options, "bf16,q8_0,q4_k,mxfp4") &&
                read_tokens(&options, "1,8,64,512,4096");
    for (int c; fine && (c = getopt_long(argc, argv, "", names, NULL)) != -1;)
        fine = read_option(&options, c, optarg);
    if (!fine || optind != argc) {
        fprintf(stderr,
                "usage: bench_matrix [--device cpu|cuda] [--models a,b] [--formats a,b]\n"
                "                    [--tokens 1,8] [--limit SECONDS] [--memory-mib N] [--gbs X]\n"
                "                    [--tflops X] [--shrink N]\n");
        return 2;
    }
    return run(&options);
}
