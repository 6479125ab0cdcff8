/* plain.c: the kernel of every format, in plain C: decode with the format table, then multiply and
 * add in eight lanes. Also the exact path of the vector kernels. */
#include <string.h>

#include "device/cpu/kernel.h"
#include "lyrw/codec/f64.h"

enum { LANES = 8 };

/* Decodes the elements [first, first + n) of a row: whole blocks. */
static void decode(float *out, const struct plec_cpu_row *row, uint32_t first, uint32_t n) {
    const struct plec_format *format = row->format;
    size_t at = first / format->block_elems, n_blocks = n / format->block_elems;
    const uint8_t *blocks = row->blocks + at * format->block_bytes;
    if (format->decode != NULL) {
        format->decode(out, blocks, row->scales == NULL ? NULL : row->scales + at,
                       row->tensor_scale, n_blocks);
        return;
    }
    for (size_t i = 0; i < n_blocks; i++) {
        double value;
        plec_f64_decode(&value, blocks + i * format->block_bytes);
        out[i] = (float)value;
    }
}

/* lanes += w * x over n elements; a tail goes to the first lanes. */
static void add_products(float *lanes, const float *w, const float *x, uint32_t n) {
    uint32_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (uint32_t lane = 0; lane < LANES; lane++)
            lanes[lane] += w[i + lane] * x[i + lane];
    for (uint32_t lane = 0; i + lane < n; lane++)
        lanes[lane] += w[i + lane] * x[i + lane];
}

static float add_lanes(const float *lanes) {
    return ((lanes[0] + lanes[4]) + (lanes[2] + lanes[6])) +
           ((lanes[1] + lanes[5]) + (lanes[3] + lanes[7]));
}

static uint32_t smaller(uint32_t a, uint32_t b) {
    return a < b ? a : b;
}

/* out [n_vectors] = the first n columns of row . vectors. */
static void dot(float *out, const struct plec_cpu_row *row, const float *const *vectors,
                uint32_t n_vectors, uint32_t n) {
    float lanes[PLEC_CPU_TOKENS][LANES] = {{0}}, weights[PLEC_CPU_CHUNK];
    for (uint32_t first = 0; first < n; first += PLEC_CPU_CHUNK) {
        decode(weights, row, first, smaller(row->cols - first, PLEC_CPU_CHUNK));
        for (uint32_t t = 0; t < n_vectors; t++)
            add_products(lanes[t], weights, vectors[t] + first, smaller(n - first, PLEC_CPU_CHUNK));
    }
    for (uint32_t t = 0; t < n_vectors; t++)
        out[t] = add_lanes(lanes[t]);
}

static void dot_rows(float *out, const struct plec_cpu_rows *rows, const float *const *images,
                     uint32_t n_vectors) {
    struct plec_cpu_row row = rows->first;
    for (uint32_t r = 0; r < rows->n_rows; r++, out += n_vectors) {
        dot(out, &row, images, n_vectors, row.cols);
        plec_cpu_next_row(&row, rows);
    }
}

static void dot1(float *out, const struct plec_cpu_rows *rows, const float *const *images) {
    dot_rows(out, rows, images, 1);
}
static void dot2(float *out, const struct plec_cpu_rows *rows, const float *const *images) {
    dot_rows(out, rows, images, 2);
}
static void dot3(float *out, const struct plec_cpu_rows *rows, const float *const *images) {
    dot_rows(out, rows, images, 3);
}
static void dot4(float *out, const struct plec_cpu_rows *rows, const float *const *images) {
    dot_rows(out, rows, images, 4);
}

const struct plec_cpu_kernel plec_cpu_plain_kernel = {
    .name = "plain_c",
    .dot = {dot1, dot2, dot3, dot4},
};

float plec_cpu_plain_dot(const struct plec_cpu_row *row, const float *x, uint32_t n) {
    float out;
    dot(&out, row, &x, 1, n);
    return out;
}
