/* format_row.c: rows of a matrix as numbers. */
#include <assert.h>

#include "lyrw/codec/bits.h"
#include "lyrw/codec/f64.h"
#include "lyrw/format.h"

/* Elements widened at a time: a whole number of blocks of every format. */
enum { CHUNK = 256 };

/* Where one row's bytes lie. */
struct row_view {
    const struct plec_format *format;
    const uint8_t *blocks; /* [n_blocks][block_bytes] */
    const uint8_t *scales; /* [n_blocks], NULL when inline */
    float tensor_scale;
    size_t n_blocks;
};

static struct row_view view_row(const struct plec_matrix *m, uint32_t row) {
    assert(row < m->rows);
    struct row_view view = {.format = plec_format_find(m->format), .tensor_scale = 1.0f};
    assert(view.format != NULL && m->cols % view.format->block_elems == 0);
    view.n_blocks = m->cols / view.format->block_elems;
    size_t first = row * view.n_blocks;
    view.blocks = m->values + first * view.format->block_bytes;
    if (view.format->geometry == PLEC_PAIRED) {
        assert(m->scales != NULL || view.n_blocks == 0);
        view.scales = m->scales == NULL ? NULL : m->scales + first;
    } else if (view.format->geometry == PLEC_TRAILING) {
        size_t n_all = m->rows * view.n_blocks;
        const uint8_t *scales = m->values + n_all * view.format->block_bytes;
        view.scales = scales + first;
        view.tensor_scale = plec_bits_f32(plec_le32(scales + n_all));
    }
    return view;
}

static void decode_blocks(float *out, const struct row_view *view, size_t first, size_t n_blocks) {
    view->format->decode(out, view->blocks + first * view->format->block_bytes,
                         view->scales == NULL ? NULL : view->scales + first, view->tensor_scale,
                         n_blocks);
}

void plec_matrix_row_f32(float *out, const struct plec_matrix *m, uint32_t row) {
    struct row_view view = view_row(m, row);
    if (view.format->decode != NULL) {
        decode_blocks(out, &view, 0, view.n_blocks);
        return;
    }
    for (size_t i = 0; i < view.n_blocks; i++) {
        double value;
        plec_f64_decode(&value, view.blocks + i * view.format->block_bytes);
        out[i] = (float)value;
    }
}

void plec_matrix_row_f64(double *out, const struct plec_matrix *m, uint32_t row) {
    struct row_view view = view_row(m, row);
    if (view.format->decode == NULL) {
        for (size_t i = 0; i < view.n_blocks; i++)
            plec_f64_decode(out + i, view.blocks + i * view.format->block_bytes);
        return;
    }
    float chunk[CHUNK];
    size_t per_chunk = CHUNK / view.format->block_elems;
    for (size_t i = 0; i < view.n_blocks; i += per_chunk) {
        size_t n = view.n_blocks - i < per_chunk ? view.n_blocks - i : per_chunk;
        decode_blocks(chunk, &view, i, n);
        for (size_t e = 0; e < n * view.format->block_elems; e++)
            *out++ = chunk[e];
    }
}
