/* fp4_larql.h: 256 E2M1 values, 8 E4M3 sub-scales and one E4M3 block scale.
 *
 *   OFFSET SIZE MEANING
 *    0    128   byte i: low nibble value 2i, high nibble value 2i + 1
 *  128      8   sub-scales, one for 32 values
 *  136      1   block scale; 0 makes the whole block 0
 *
 * Value: e2m1 * sub * block / 6. The products are exact in f32, the division rounds once.
 */
#ifndef PLEC_LYRW_CODEC_FP4_LARQL_H
#define PLEC_LYRW_CODEC_FP4_LARQL_H

#include "lyrw/codec/bits.h"

struct plec_fp4_larql_block {
    uint8_t qs[128];
    uint8_t sub_scales[8];
    uint8_t scale;
};
PLEC_STATIC_ASSERT(sizeof(struct plec_fp4_larql_block) == 137, "fp4_larql block");

/* Writes 256 values. */
PLEC_HD void plec_fp4_larql_decode(float *out, const uint8_t *block) {
    const struct plec_fp4_larql_block *b = (const struct plec_fp4_larql_block *)block;
    float scale = plec_e4m3_f32(b->scale);
    for (int i = 0; i < 256; i++) {
        float code = plec_e2m1_f32(b->qs[i / 2] >> 4 * (i % 2) & 15u);
        float product = plec_mul(plec_mul(code, plec_e4m3_f32(b->sub_scales[i / 32])), scale);
        out[i] = scale == 0.0f ? 0.0f : plec_div(product, 6.0f);
    }
}

#endif
