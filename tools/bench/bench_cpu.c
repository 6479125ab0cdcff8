/* bench_cpu.c: decode speed of the CPU backend: one token a step, its experts drawn afresh from a
 * bank far larger than the last-level cache. For each format: GB/s of active weights beside the
 * read bandwidth of the machine, the two measured in turns so that noise meets both. Checks the
 * first outputs against the reference.
 *
 * Usage: bench_cpu [--threads N] [--steps N] [--tokens T] [--bank-mib N] [--least RATIO]
 *                  [--vector-bits 0|256|512] [--formats f32,q4_k,...]
 * Exit status: 0; 1 an output is wrong or a ratio under --least; 2 usage; 4 the machine could not.
 */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "device/reference/reference.h"
#include "lyrw/encode.h"
#include "tools/bench/random_bank.h"
#include "tools/measure/read_bandwidth.h"

enum {
    INPUT = 2048,
    INTERMEDIATE = 1024,
    SLOTS = 8,
    STEPS_MAX = 4096,
    STEPS_A_READ = 4, /* steps between two measurements of the bandwidth */
    CHECKED = 2       /* steps compared with the reference */
};
static const double nmse_most = 1e-9;

struct options {
    uint32_t threads, steps, tokens, bank_mib;
    double least;
    uint32_t vector_bits; /* 0: plain C; 256, 512: the widest vectors */
    const char *formats;
};

struct bench {
    const struct options *options;
    struct plec_device *device;
    struct plec_stream *stream;
    struct plec_bench_bank bank;
    uint32_t *deck, dealt; /* [n_entries] experts in a random order, dealt in turn */
    struct plec_bench_random random;
    int32_t *ids;   /* [tokens, SLOTS] */
    float *weights; /* [tokens, SLOTS] */
    float *x, *y;   /* [tokens, INPUT] */
    void *workspace;
};

/* What one format's run gave. */
struct result {
    double us, gbps, read_gbps, worst_nmse;
};

static int fail(const char *what, const struct plec_error *err) {
    fprintf(stderr, "bench_cpu: %s: %s\n", what, err->message);
    return 4;
}

/* Bytes of one expert: what its gate_up and down matrices take. */
static uint64_t expert_bytes(uint16_t format) {
    uint64_t gate = 0, down = 0, scales = 0, n = 0;
    if (plec_format_size(&gate, &scales, format, 2 * INTERMEDIATE, INPUT, NULL) == PLEC_OK)
        n += gate + scales;
    if (plec_format_size(&down, &scales, format, INPUT, INTERMEDIATE, NULL) == PLEC_OK)
        n += down + scales;
    return n;
}

static enum plec_status open_bank(struct bench *bench, uint16_t format, struct plec_error *err) {
    uint64_t wanted = (uint64_t)bench->options->bank_mib << 20;
    uint32_t n_entries = (uint32_t)(wanted / expert_bytes(format) + 1);
    if (n_entries < 2 * SLOTS) n_entries = 2 * SLOTS;
    struct plec_bench_bank_args args = {.device = bench->device,
                                        .stream = bench->stream,
                                        .gate_format = format,
                                        .down_format = format,
                                        .activation = PLEC_SILU,
                                        .input_dim = INPUT,
                                        .intermediate_dim = INTERMEDIATE,
                                        .n_entries = n_entries,
                                        .most_bytes = UINT64_MAX,
                                        .seed = 88172645463325252u};
    bench->deck = malloc(n_entries * sizeof *bench->deck);
    if (bench->deck == NULL) return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "tables");
    for (uint32_t e = 0; e < n_entries; e++)
        bench->deck[e] = e;
    bench->dealt = n_entries;
    return plec_bench_bank_open(&bench->bank, &args, err);
}

static void close_bank(struct bench *bench) {
    plec_bench_bank_close(&bench->bank);
    free(bench->deck);
    bench->deck = NULL;
}

/* Deals each token its experts: none comes again before the whole bank was read. */
static void deal(struct bench *bench) {
    uint32_t n = bench->bank.bank.n_entries;
    for (size_t i = 0; i < (size_t)bench->options->tokens * SLOTS; i++) {
        if (bench->dealt == n) {
            bench->dealt = 0;
            for (uint32_t j = n - 1; j > 0; j--) {
                uint32_t other = plec_bench_draw(&bench->random, j + 1), kept = bench->deck[j];
                bench->deck[j] = bench->deck[other];
                bench->deck[other] = kept;
            }
        }
        bench->ids[i] = (int32_t)bench->deck[bench->dealt++];
        bench->weights[i] = 0.1f + (float)plec_bench_draw(&bench->random, 100) / 500.0f;
    }
    for (size_t i = 0; i < (size_t)bench->options->tokens * INPUT; i++)
        bench->x[i] = plec_bench_draw_normal(&bench->random);
}

/* Weight bytes a step reads: each expert's once. */
static uint64_t active_bytes(const struct bench *bench) {
    uint64_t n = 0;
    size_t n_pairs = (size_t)bench->options->tokens * SLOTS;
    for (size_t i = 0; i < n_pairs; i++) {
        size_t j = 0;
        while (j < i && bench->ids[j] != bench->ids[i])
            j++;
        n += j == i;
    }
    return n * bench->bank.entry_bytes;
}

static enum plec_status step(struct bench *bench, double *seconds, struct plec_error *err) {
    struct plec_experts_args args = {.bank = &bench->bank.bank,
                                     .ids = bench->ids,
                                     .weights = bench->weights,
                                     .n_tokens = bench->options->tokens,
                                     .n_slots = SLOTS,
                                     .x = bench->x,
                                     .y = bench->y,
                                     .workspace = bench->workspace};
    double started = plec_bench_now();
    enum plec_status status = plec_launch_experts(bench->stream, &args, err);
    if (status == PLEC_OK) status = plec_stream_sync(bench->stream, err);
    *seconds = plec_bench_now() - started;
    return status;
}

/* NMSE of the first token of the last step; infinite when anything is NaN. */
static double check(const struct bench *bench, double *scratch) {
    static double x[INPUT], wanted[INPUT];
    memset(wanted, 0, sizeof wanted);
    for (size_t i = 0; i < INPUT; i++)
        x[i] = bench->x[i];
    for (int j = 0; j < SLOTS; j++)
        plec_reference_expert(wanted, &bench->bank.bank, (uint32_t)bench->ids[j], bench->weights[j],
                              false, x, scratch);
    double error = 0, norm = 0;
    for (size_t i = 0; i < INPUT; i++) {
        error += (bench->y[i] - wanted[i]) * (bench->y[i] - wanted[i]);
        norm += wanted[i] * wanted[i];
    }
    return norm > 0 && error >= 0 ? error / norm : INFINITY;
}

static enum plec_status check_steps(struct bench *bench, double *worst, struct plec_error *err) {
    double *scratch = malloc(sizeof(double) * plec_reference_expert_scratch(&bench->bank.bank)),
           seconds;
    *worst = 0;
    if (scratch == NULL) return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "the reference");
    enum plec_status status = PLEC_OK;
    for (int i = 0; i < CHECKED && status == PLEC_OK; i++) {
        deal(bench);
        memset(bench->y, 0xFF, sizeof(float) * INPUT);
        status = step(bench, &seconds, err);
        if (status == PLEC_OK) *worst = fmax(*worst, check(bench, scratch));
    }
    free(scratch);
    return status;
}

static enum plec_status time_steps(struct result *result, struct bench *bench,
                                   struct plec_error *err) {
    static double seconds[STEPS_MAX], speeds[STEPS_MAX], reads[STEPS_MAX];
    size_t n_reads = 0;
    for (uint32_t i = 0; i < bench->options->steps; i++) {
        if (i % STEPS_A_READ == 0)
            reads[n_reads++] = plec_bench_read_bandwidth(bench->bank.bytes, bench->bank.n_bytes / 4,
                                                         bench->options->threads);
        deal(bench);
        enum plec_status status = step(bench, &seconds[i], err);
        if (status != PLEC_OK) return status;
        speeds[i] = (double)active_bytes(bench) / seconds[i];
    }
    result->us = plec_bench_median(seconds, bench->options->steps) * 1e6;
    result->gbps = plec_bench_median(speeds, bench->options->steps) * 1e-9;
    result->read_gbps = plec_bench_median(reads, n_reads) * 1e-9;
    return PLEC_OK;
}

static enum plec_status run_format(struct result *result, struct bench *bench, uint16_t format,
                                   struct plec_error *err) {
    uint64_t bytes;
    enum plec_status status = open_bank(bench, format, err);
    if (status == PLEC_OK && !plec_experts_workspace(&bytes, bench->device, &bench->bank.bank,
                                                     bench->options->tokens, SLOTS))
        status = plec_fail(err, PLEC_NO_MEMORY, "SizeOverflow", "workspace");
    if (status == PLEC_OK) status = plec_device_alloc(&bench->workspace, bench->device, bytes, err);
    if (status == PLEC_OK) status = check_steps(bench, &result->worst_nmse, err);
    if (status == PLEC_OK) status = time_steps(result, bench, err);
    plec_device_free(bench->device, bench->workspace);
    bench->workspace = NULL;
    return status;
}

static int run_all(struct bench *bench) {
    char list[256], *rest = NULL;
    int worst = 0;
    struct plec_error err;
    snprintf(list, sizeof list, "%s", bench->options->formats);
    printf("%-8s %-8s %9s %9s %9s %9s %6s %9s\n", "format", "kernel", "bank MiB", "us/step", "GB/s",
           "read GB/s", "ratio", "NMSE");
    for (char *name = strtok_r(list, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
        const struct plec_format *format = plec_format_by_name(name);
        struct result result = {0};
        if (format == NULL || !plec_format_encodable(format->tag)) {
            fprintf(stderr, "bench_cpu: no encoder for format '%s'\n", name);
            return 2;
        }
        if (run_format(&result, bench, format->tag, &err) != PLEC_OK) return fail(name, &err);
        double ratio = result.gbps / result.read_gbps;
        bool good = result.worst_nmse < nmse_most && ratio >= bench->options->least;
        char kernel[PLEC_KERNEL_NAME_MAX];
        printf("%-8s %-8s %9.0f %9.1f %9.2f %9.2f %6.3f %9.1e%s\n", name,
               plec_device_kernel_name(bench->device, format->tag, kernel),
               (double)bench->bank.n_bytes / (1 << 20), result.us, result.gbps, result.read_gbps,
               ratio, result.worst_nmse, good ? "" : "  FAILED");
        fflush(stdout);
        if (!good) worst = 1;
        close_bank(bench);
    }
    return worst;
}

static int run(const struct options *options) {
    struct bench bench = {.options = options, .random = {88172645463325252u}};
    struct plec_device_options device_options = {.n_threads = options->threads,
                                                 .plain_c = options->vector_bits == 0,
                                                 .vector_bits = options->vector_bits};
    struct plec_device_info info;
    struct plec_error err;
    if (plec_device_open(&bench.device, PLEC_DEVICE_CPU, &device_options, &err) != PLEC_OK ||
        plec_stream_open(&bench.stream, bench.device, &err) != PLEC_OK)
        return fail("open", &err);
    plec_device_get_info(&info, bench.device);
    struct options filled = *options;
    filled.threads = info.n_threads;
    bench.options = &filled;
    size_t n_pairs = (size_t)options->tokens * SLOTS, n_values = (size_t)options->tokens * INPUT;
    bench.ids = malloc(n_pairs * sizeof *bench.ids);
    bench.weights = malloc(n_pairs * sizeof *bench.weights);
    bench.x = malloc(n_values * sizeof *bench.x);
    bench.y = malloc(n_values * sizeof *bench.y);
    int status = 4;
    if (bench.ids != NULL && bench.weights != NULL && bench.x != NULL && bench.y != NULL) {
        printf("%s; %u token%s a step, %d of the bank's experts each, %d -> %d -> %d, %u steps\n",
               info.name, options->tokens, options->tokens == 1 ? "" : "s", SLOTS, INPUT,
               INTERMEDIATE, INPUT, options->steps);
        status = run_all(&bench);
    }
    close_bank(&bench);
    free(bench.y), free(bench.x), free(bench.weights), free(bench.ids);
    plec_stream_close(bench.stream);
    plec_device_close(bench.device);
    return status;
}

static bool read_number(uint32_t *out, const char *text, uint32_t least, uint32_t most) {
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    *out = (uint32_t)value;
    return end != text && *end == '\0' && value >= least && value <= most;
}

int main(int argc, char **argv) {
    static const struct option names[] = {
        {"threads", required_argument, NULL, 't'}, {"steps", required_argument, NULL, 's'},
        {"tokens", required_argument, NULL, 'n'},  {"bank-mib", required_argument, NULL, 'b'},
        {"least", required_argument, NULL, 'l'},   {"vector-bits", required_argument, NULL, 'v'},
        {"formats", required_argument, NULL, 'f'}, {NULL, 0, NULL, 0}};
    struct options options = {0, 200, 1, 512, 0, 512, "f32,f16,bf16,q8_0,q4_0,q4_k,q6_k,mxfp4"};
    bool fine = true;
    for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;)
        switch (c) {
        case 't': fine &= read_number(&options.threads, optarg, 1, 1024); break;
        case 's': fine &= read_number(&options.steps, optarg, 1, STEPS_MAX); break;
        case 'n': fine &= read_number(&options.tokens, optarg, 1, 4096); break;
        case 'b': fine &= read_number(&options.bank_mib, optarg, 1, 1 << 20); break;
        case 'l': options.least = strtod(optarg, NULL); break;
        case 'v': fine &= read_number(&options.vector_bits, optarg, 0, 512); break;
        case 'f': options.formats = optarg; break;
        default: fine = false;
        }
    if (!fine || optind != argc) {
        fprintf(stderr, "usage: bench_cpu [--threads N] [--steps N] [--tokens T] [--bank-mib N]\n"
                        "                 [--least RATIO] [--vector-bits 0|256|512] [--formats "
                        "f32,q4_k,...]\n");
        return 2;
    }
    return run(&options);
}
