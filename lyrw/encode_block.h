/* encode_block.h: how one block becomes bytes; private to the encoders.
 *
 * Every plec_encode_<format> takes finite values only and returns false when a scale, or a value of
 * a format without one, would not be finite.
 */
#ifndef PLEC_LYRW_ENCODE_BLOCK_H
#define PLEC_LYRW_ENCODE_BLOCK_H

#include "lyrw/format.h"

/* Where a block goes. */
struct plec_encode_target {
    uint8_t *block;     /* [block_bytes] */
    uint8_t *scale;     /* its byte outside the block; NULL when inline */
    float tensor_scale; /* trailing only */
};

/* encode_fit.c. Searches start from the ends of the range, as rounding them outward or clipping
 * them a little lowers the error of the rest, and end in the least squares of the codes found. */

/* A scale, possibly negative, that makes scale * q near x for q in [q_min, q_max], q_min < 0. */
double plec_fit_scale(const float *x, int n, int q_min, int q_max);

/* y = scale * q + minimum, q in [0, q_max]. */
struct plec_affine {
    double scale, minimum;
};
/* The affine map near x; scale >= 0. not_above_zero: minimum <= 0, as k-quants store it negated. */
struct plec_affine plec_fit_affine(const float *x, int n, int q_max, bool not_above_zero);

/* The code nearest to x under a map, limited to [q_min, q_max]; scale 0 gives the code nearest
 * to 0. */
int plec_nearest_code(double x, double scale, double minimum, int q_min, int q_max);

double plec_largest_magnitude(const float *x, int n);

/* Rounds a scale to f16 at p and gives the rounded value back; false when it is not finite. */
bool plec_store_f16(uint8_t *p, double *rounded, double value);

/* encode_legacy.c */
bool plec_encode_q4_0(const struct plec_encode_target *to, const float *x);
bool plec_encode_q4_1(const struct plec_encode_target *to, const float *x);
bool plec_encode_q5_0(const struct plec_encode_target *to, const float *x);
bool plec_encode_q5_1(const struct plec_encode_target *to, const float *x);
bool plec_encode_q8_0(const struct plec_encode_target *to, const float *x);

/* encode_k.c */
bool plec_encode_q4_k(const struct plec_encode_target *to, const float *x);
bool plec_encode_q5_k(const struct plec_encode_target *to, const float *x);
bool plec_encode_q6_k(const struct plec_encode_target *to, const float *x);

/* encode_small_float.c */
bool plec_encode_fp4_larql(const struct plec_encode_target *to, const float *x);
bool plec_encode_mxfp4(const struct plec_encode_target *to, const float *x);
bool plec_encode_nvfp4(const struct plec_encode_target *to, const float *x);
bool plec_encode_mxfp8(const struct plec_encode_target *to, const float *x);
bool plec_encode_gguf_mxfp4(const struct plec_encode_target *to, const float *x);
/* nvfp4's scale of a whole matrix with largest magnitude `largest`. */
float plec_nvfp4_tensor_scale(float largest);

#endif
