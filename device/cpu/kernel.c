#include "device/cpu/kernel.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "lyrw/codec/bits.h"

struct plec_cpu_matrix plec_cpu_matrix_bind(const struct plec_matrix *m, enum plec_cpu_set set) {
    const struct plec_format *format = plec_format_find(m->format);
    assert(format != NULL && m->cols % format->block_elems == 0);
    size_t row_blocks = m->cols / format->block_elems;
    struct plec_cpu_matrix bound = {
        .kernel = plec_cpu_kernel_find(m->format, set),
        .format = format,
        .rows = m->rows,
        .cols = m->cols,
        .values = m->values,
        .row_bytes = row_blocks * format->block_bytes,
        .tensor_scale = 1,
    };
    if (format->geometry == PLEC_INLINE) return bound;
    bound.row_scales = row_blocks;
    bound.scales = m->scales;
    if (format->geometry == PLEC_TRAILING) {
        bound.scales = m->values + m->rows * bound.row_bytes;
        bound.tensor_scale = plec_bits_f32(plec_le32(bound.scales + m->rows * row_blocks));
    }
    return bound;
}

static uint64_t round_up(uint64_t n, uint64_t step) {
    return (n + step - 1) / step * step;
}

uint64_t plec_cpu_image_floats(const struct plec_cpu_kernel *kernel, uint32_t n, uint32_t cols) {
    if (kernel->image_floats != NULL) return round_up(kernel->image_floats(cols), 16);
    return n == cols ? 0 : round_up(cols, 16);
}

void plec_cpu_image_make(float *image, const struct plec_cpu_kernel *kernel, const float *x,
                         uint32_t n, uint32_t cols) {
    if (kernel->make_image != NULL) {
        kernel->make_image(image, x, n, cols);
        return;
    }
    memcpy(image, x, n * sizeof *x);
    memset(image + n, 0, (cols - n) * sizeof *x);
}

/* Sums that are not finite are taken again as the format decodes. */
static void redo(float *out, const struct plec_cpu_rows *rows,
                 const struct plec_cpu_vector *vectors, uint32_t n_vectors) {
    struct plec_cpu_row row = rows->first;
    for (uint32_t r = 0; r < rows->n_rows; r++, plec_cpu_next_row(&row, rows))
        for (uint32_t t = 0; t < n_vectors; t++, out++)
            if (!isfinite(*out)) *out = plec_cpu_plain_dot(&row, vectors[t].x, vectors[t].n);
}

static bool all_finite(const float *v, size_t n) {
    uint32_t any = 0;
    for (size_t i = 0; i < n; i++)
        any |= (plec_f32_bits(v[i]) & 0x7F800000u) == 0x7F800000u;
    return any == 0;
}

void plec_cpu_dot(float *out, const struct plec_cpu_matrix *m, uint32_t first, uint32_t n_rows,
                  const struct plec_cpu_vector *vectors, uint32_t n_vectors) {
    assert(first + (uint64_t)n_rows <= m->rows);
    assert(n_vectors >= 1 && n_vectors <= PLEC_CPU_TOKENS);
    struct plec_cpu_rows rows = {
        .first = {.blocks = m->values + first * m->row_bytes,
                  .scales = m->scales == NULL ? NULL : m->scales + first * m->row_scales,
                  .format = m->format,
                  .tensor_scale = m->tensor_scale,
                  .cols = m->cols},
        .row_bytes = m->row_bytes,
        .row_scales = m->row_scales,
        .n_rows = n_rows,
    };
    const float *images[PLEC_CPU_TOKENS];
    for (uint32_t t = 0; t < n_vectors; t++)
        images[t] = vectors[t].image;
    m->kernel->dot[n_vectors - 1](out, &rows, images);
    if (!all_finite(out, (size_t)n_rows * n_vectors)) redo(out, &rows, vectors, n_vectors);
}
