/* encode.h: f32 matrices into the bytes of a format.
 *
 * For converters, test data and demonstrations: slow and careful, one matrix at a time. Owns
 * nothing, keeps no state; safe from any thread.
 *
 * What is lost, relative to the values: RMSE over RMS on normally distributed values, checked by
 * tests/encode_test.cc; and, where the format bounds every element, the largest error of one, m
 * being the largest magnitude of its block (sub-block in fp4_larql).
 *
 *   FORMAT              RMSE      ONE ELEMENT
 *   f32                 0         0
 *   f16                 0.00022   |x| / 2048, or 2^-25 below 2^-14
 *   bf16                0.0017    |x| / 256
 *   q8_0                0.0055    m / 253
 *   q6_k                0.0172
 *   mxfp8               0.0270    m / 8
 *   gguf_q5_1           0.0340
 *   gguf_q5_k           0.0352
 *   gguf_q5_0           0.0410
 *   gguf_q4_1           0.0710
 *   q4_k                0.0715
 *   q4_0                0.0825
 *   nvfp4               0.0970    0.18 m
 *   fp4_larql           0.1035    0.18 m
 *   mxfp4, gguf_mxfp4   0.1140    m / 4
 *
 * All this while scales are normal numbers of their type. An f16 scale (about m / 127 in q8_0,
 * m / 8 in q4_0, m / 4000 in q6_k) is rounded by up to 2^-25 below 2^-14, and at 2^-25 and below
 * the block is 0. An E4M3 scale is rounded by up to 2^-10 below 2^-6; a block of fp4_larql with m
 * of 2^-10 or less is 0.
 *
 * Two formats have their scales given by rule. fp4_larql: block scale = its largest magnitude in
 * E4M3, sub-scale = the sub-block's largest over the decoded block scale, in E4M3. nvfp4: tensor
 * scale = the matrix's largest / (448 * 6), or 1 for a matrix of zeros; block scale = the block's
 * largest / (6 * tensor scale), in E4M3. q8_0's is m / 127. The others
 * are searched for the least squared error.
 */
#ifndef PLEC_LYRW_ENCODE_H
#define PLEC_LYRW_ENCODE_H

#include "lyrw/format.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_encode_args {
    uint16_t format;
    uint32_t rows, cols;
    const float *matrix; /* [rows, cols] f32 */
    uint8_t *values;     /* values_bytes of plec_format_size */
    uint8_t *scales;     /* scales_bytes of plec_format_size; NULL unless paired */
};

/* True for a format that plec_matrix_encode knows. */
bool plec_format_encodable(uint16_t tag);

/* Encodes args->matrix. PLEC_UNSUPPORTED "UnknownFormat" or "NoEncoder"; PLEC_MALFORMED
 * "NotWholeBlocks" or "SizeOverflow"; PLEC_BAD_INPUT "NotFinite" (a NaN or an infinity) or
 * "OutOfRange" (the scale of a block, or a value without one, would not be finite), both naming row
 * and column. The output is partly written after a refusal. */
PLEC_MUST_USE enum plec_status plec_matrix_encode(const struct plec_encode_args *args,
                                                  struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
