#include "tools/plectrum/region_hash.h"

#include <stdio.h>
#include <stdlib.h>

#include "lyrw/cursor.h"
#include "lyrw/segment_matrix.h"

uint64_t plec_fnv1a64(uint64_t hash, const void *bytes, uint64_t n_bytes) {
    const uint8_t *p = bytes;
    for (uint64_t i = 0; i < n_bytes; i++)
        hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t hash_row(uint64_t hash, const float *row, uint32_t cols) {
    for (uint32_t i = 0; i < cols; i++) {
        uint32_t bits;
        uint8_t bytes[4];
        memcpy(&bits, &row[i], sizeof bits);
        plec_store_u32(bytes, bits);
        hash = plec_fnv1a64(hash, bytes, sizeof bytes);
    }
    return hash;
}

bool plec_hash_decoded(uint64_t *out, const struct plec_segment *segment, uint16_t bank_id,
                       uint32_t entry, uint32_t schema, uint64_t offset) {
    struct plec_matrix matrix;
    if (plec_segment_matrix(&matrix, segment, bank_id, entry, schema, NULL) != PLEC_OK)
        return false;
    if (matrix.values != segment->data + offset || matrix.cols > PLEC_HASH_COLS_MAX) return false;
    float *row = malloc(((size_t)matrix.cols + 1) * sizeof *row);
    if (row == NULL) return false;
    *out = PLEC_FNV_START;
    for (uint32_t i = 0; i < matrix.rows && matrix.cols > 0; i++) {
        plec_matrix_row_f32(row, &matrix, i);
        *out = hash_row(*out, row, matrix.cols);
    }
    free(row);
    return true;
}

const char *plec_hash_text(char *buffer, uint64_t hash) {
    snprintf(buffer, PLEC_HASH_TEXT_MAX, "%016llx", (unsigned long long)hash);
    return buffer;
}
