#include "tools/bench/matrix_options.h"

#include <getopt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Takes the next name of a comma-separated list off *text into name; false at its end. */
static bool next_name(char *name, size_t size, const char **text) {
    size_t n = strcspn(*text, ",");
    if (n == 0 || n >= size) return false;
    memcpy(name, *text, n);
    name[n] = '\0';
    *text += n + ((*text)[n] == ',');
    return true;
}

static bool read_models(struct plec_matrix_options *options, const char *text) {
    char name[64];
    for (options->n_models = 0; *text != '\0' && options->n_models < PLEC_MATRIX_LIST_MAX;) {
        if (!next_name(name, sizeof name, &text)) return false;
        const struct plec_bench_model *model = plec_bench_model_by_name(name);
        if (model == NULL) return false;
        options->models[options->n_models++] = model;
    }
    return *text == '\0' && options->n_models > 0;
}

static bool read_formats(struct plec_matrix_options *options, const char *text) {
    char name[64];
    for (options->n_formats = 0; *text != '\0' && options->n_formats < PLEC_MATRIX_LIST_MAX;) {
        if (!next_name(name, sizeof name, &text)) return false;
        const struct plec_format *format = plec_format_by_name(name);
        if (format == NULL) return false;
        options->formats[options->n_formats++] = format;
    }
    return *text == '\0' && options->n_formats > 0;
}

static bool read_tokens(struct plec_matrix_options *options, const char *text) {
    char name[64], *end;
    for (options->n_tokens = 0; *text != '\0' && options->n_tokens < PLEC_MATRIX_LIST_MAX;) {
        if (!next_name(name, sizeof name, &text)) return false;
        unsigned long n = strtoul(name, &end, 10);
        if (*end != '\0' || n < 1 || n > PLEC_MATRIX_TOKENS_MAX) return false;
        options->tokens[options->n_tokens++] = (uint32_t)n;
    }
    return *text == '\0' && options->n_tokens > 0;
}

static bool read_real(double *out, const char *text) {
    char *end;
    *out = strtod(text, &end);
    return end != text && *end == '\0' && *out > 0 && isfinite(*out);
}

static bool read_device(struct plec_matrix_options *options, const char *text) {
    options->device = strcmp(text, "cuda") == 0 ? PLEC_DEVICE_CUDA : PLEC_DEVICE_CPU;
    return options->device == PLEC_DEVICE_CUDA || strcmp(text, "cpu") == 0;
}

static bool read_graphs(struct plec_matrix_options *options, const char *text) {
    options->eager = strcmp(text, "off") == 0;
    return options->eager || strcmp(text, "on") == 0;
}

static bool read_option(struct plec_matrix_options *options, int c, const char *text) {
    double number = 0;
    switch (c) {
    case 'd': return read_device(options, text);
    case 'm': return read_models(options, text);
    case 'f': return read_formats(options, text);
    case 't': return read_tokens(options, text);
    case 'r': options->rung = text; return true;
    case 'u': options->cublas = text; return true;
    case 'h': options->shapes = true; return true;
    case 'e': return read_graphs(options, text);
    case 'a': return read_real(&options->batch, text);
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

bool plec_matrix_options_read(struct plec_matrix_options *out, int argc, char **argv) {
    static const struct option names[] = {{"device", required_argument, NULL, 'd'},
                                          {"models", required_argument, NULL, 'm'},
                                          {"formats", required_argument, NULL, 'f'},
                                          {"tokens", required_argument, NULL, 't'},
                                          {"limit", required_argument, NULL, 'l'},
                                          {"memory-mib", required_argument, NULL, 'b'},
                                          {"gbs", required_argument, NULL, 'g'},
                                          {"tflops", required_argument, NULL, 'c'},
                                          {"shrink", required_argument, NULL, 's'},
                                          {"rung", required_argument, NULL, 'r'},
                                          {"cublas", required_argument, NULL, 'u'},
                                          {"graphs", required_argument, NULL, 'e'},
                                          {"batch", required_argument, NULL, 'a'},
                                          {"shapes", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    *out = (struct plec_matrix_options){.device = PLEC_DEVICE_CPU,
                                        .shrink = 1,
                                        .limit = 1e9,
                                        .batch = 0.02,
                                        .memory = UINT64_C(4096) << 20};
    bool fine = read_models(out, "gpt-oss-120b,mixtral-8x7b,qwen3-30b-a3b,qwen3-235b-a22b,"
                                 "deepseek-v3") &&
                read_formats(out, "bf16,q8_0,q4_k,mxfp4") && read_tokens(out, "1,8,64,512,4096");
    for (int c; fine && (c = getopt_long(argc, argv, "", names, NULL)) != -1;)
        fine = read_option(out, c, optarg);
    return fine && optind == argc;
}
