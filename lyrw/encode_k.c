/* encode_k.c: super-blocks of 256 whose sub-blocks have small whole-number scales. */
#include <math.h>
#include <string.h>

#include "lyrw/codec/q4_k.h"
#include "lyrw/codec/q5_k.h"
#include "lyrw/codec/q6_k.h"
#include "lyrw/encode_block.h"

/* q4_k and q5_k: y = d * scale * q - dmin * minimum. */
enum { N_SUB = 8, SUB = 32, SCALE_MAX = 63 };

/* What a super-block of theirs holds before it is packed. */
struct affine_super {
    uint8_t d[2], dmin[2];
    int scales[N_SUB], minima[N_SUB];
    int codes[N_SUB * SUB];
};

/* Codes of one sub-block under whole-number scale and minimum; returns the squared error. */
static double code_sub_block(int *codes, const float *x, double scale, double minimum, int q_max) {
    double error = 0;
    for (int i = 0; i < SUB; i++) {
        codes[i] = plec_nearest_code(x[i], scale, -minimum, 0, q_max);
        double difference = scale * codes[i] - minimum - x[i];
        error += difference * difference;
    }
    return error;
}

/* Rounding scale and minimum apart is not best together: looks one step around each. */
static void refine_sub_block(struct affine_super *super, int g, const float *x, double d,
                             double dmin, int q_max) {
    int scale = super->scales[g], minimum = super->minima[g], codes[SUB];
    double best = INFINITY;
    for (int s = scale - 1; s <= scale + 1; s++)
        for (int m = minimum - 1; m <= minimum + 1; m++) {
            if (s < 0 || s > SCALE_MAX || m < 0 || m > SCALE_MAX) continue;
            double error = code_sub_block(codes, x, d * s, dmin * m, q_max);
            if (error >= best) continue;
            best = error;
            super->scales[g] = s;
            super->minima[g] = m;
            memcpy(super->codes + g * SUB, codes, sizeof codes);
        }
}

static bool fit_affine_super(struct affine_super *super, const float *x, int q_max) {
    struct plec_affine maps[N_SUB];
    double d = 0, dmin = 0;
    for (int g = 0; g < N_SUB; g++) {
        maps[g] = plec_fit_affine(x + g * SUB, SUB, q_max, true);
        d = fmax(d, maps[g].scale / SCALE_MAX);
        dmin = fmax(dmin, -maps[g].minimum / SCALE_MAX);
    }
    if (!plec_store_f16(super->d, &d, d) || !plec_store_f16(super->dmin, &dmin, dmin)) return false;
    for (int g = 0; g < N_SUB; g++) {
        super->scales[g] = plec_nearest_code(maps[g].scale, d, 0, 0, SCALE_MAX);
        super->minima[g] = plec_nearest_code(-maps[g].minimum, dmin, 0, 0, SCALE_MAX);
        refine_sub_block(super, g, x + g * SUB, d, dmin, q_max);
    }
    return true;
}

/* kscales.h read backwards. */
static void pack_scales(uint8_t *s, const struct affine_super *super) {
    for (int g = 0; g < 4; g++) {
        int scale = super->scales[g + 4], minimum = super->minima[g + 4];
        s[g] = (uint8_t)(super->scales[g] | (scale >> 4) << 6);
        s[g + 4] = (uint8_t)(super->minima[g] | (minimum >> 4) << 6);
        s[g + 8] = (uint8_t)((scale & 15) | (minimum & 15) << 4);
    }
}

/* Low nibbles of an even sub-block share bytes with those of the odd one behind it. */
static void pack_sub_block_nibbles(uint8_t *qs, const int *codes) {
    for (int i = 0; i < N_SUB * SUB / 2; i++) {
        int pair = i / SUB, l = i % SUB;
        int even = codes[2 * pair * SUB + l], odd = codes[(2 * pair + 1) * SUB + l];
        qs[i] = (uint8_t)((even & 15) | (odd & 15) << 4);
    }
}

bool plec_encode_q4_k(const struct plec_encode_target *to, const float *x) {
    struct plec_q4_k_block *b = (struct plec_q4_k_block *)to->block;
    struct affine_super super;
    if (!fit_affine_super(&super, x, 15)) return false;
    memcpy(b->d, super.d, sizeof b->d);
    memcpy(b->dmin, super.dmin, sizeof b->dmin);
    pack_scales(b->scales, &super);
    pack_sub_block_nibbles(b->qs, super.codes);
    return true;
}

bool plec_encode_q5_k(const struct plec_encode_target *to, const float *x) {
    struct plec_q5_k_block *b = (struct plec_q5_k_block *)to->block;
    struct affine_super super;
    if (!fit_affine_super(&super, x, 31)) return false;
    memcpy(b->d, super.d, sizeof b->d);
    memcpy(b->dmin, super.dmin, sizeof b->dmin);
    pack_scales(b->scales, &super);
    pack_sub_block_nibbles(b->qs, super.codes);
    memset(b->qh, 0, sizeof b->qh);
    for (int i = 0; i < N_SUB * SUB; i++)
        b->qh[i % SUB] = (uint8_t)(b->qh[i % SUB] | (super.codes[i] >> 4) << i / SUB);
    return true;
}

/* q6_k: y = d * scale * (q - 32), 16 sub-blocks of 16. */

/* Codes of 16 values under one scale, -32 .. 31; returns the squared error. */
static double code_sixteen(int *codes, const float *x, double scale) {
    double error = 0;
    for (int i = 0; i < 16; i++) {
        codes[i] = plec_nearest_code(x[i], scale, 0, -32, 31);
        double difference = scale * codes[i] - x[i];
        error += difference * difference;
    }
    return error;
}

static int refine_sixteen(int *codes, const float *x, double d, double wanted) {
    int middle = plec_nearest_code(wanted, d, 0, -127, 127), best_scale = 0, tried[16];
    double best = INFINITY;
    for (int s = middle - 1; s <= middle + 1; s++) {
        if (s < -128 || s > 127) continue;
        double error = code_sixteen(tried, x, d * s);
        if (error >= best) continue;
        best = error;
        best_scale = s;
        memcpy(codes, tried, sizeof tried);
    }
    return best_scale;
}

static void pack_q6_k(struct plec_q6_k_block *b, const int *codes) {
    memset(b->ql, 0, sizeof b->ql);
    memset(b->qh, 0, sizeof b->qh);
    for (int i = 0; i < 256; i++) {
        int n = i / 128, k = i / 32 % 4, l = i % 32, q = codes[i] + 32;
        uint8_t *low = &b->ql[64 * n + 32 * (k % 2) + l], *high = &b->qh[32 * n + l];
        *low = (uint8_t)(*low | (q & 15) << 4 * (k / 2));
        *high = (uint8_t)(*high | (q >> 4) << 2 * k);
    }
}

bool plec_encode_q6_k(const struct plec_encode_target *to, const float *x) {
    struct plec_q6_k_block *b = (struct plec_q6_k_block *)to->block;
    double wanted[16], d = 0;
    int codes[256];
    for (int g = 0; g < 16; g++) {
        wanted[g] = plec_fit_scale(x + 16 * g, 16, -32, 31);
        d = fmax(d, fabs(wanted[g]) / 127);
    }
    if (!plec_store_f16(b->d, &d, d)) return false;
    for (int g = 0; g < 16; g++)
        b->scales[g] = (int8_t)refine_sixteen(codes + 16 * g, x + 16 * g, d, wanted[g]);
    pack_q6_k(b, codes);
    return true;
}
