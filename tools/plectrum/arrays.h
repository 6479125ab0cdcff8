/* arrays.h: what `run` computes with: arrays from .npy files checked against what a layer takes,
 * random ones, and how far two results are apart.
 */
#ifndef PLEC_TOOLS_ARRAYS_H
#define PLEC_TOOLS_ARRAYS_H

#include "tools/plectrum/npy.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A two-dimensional array in memory of its own. Zeroed: none. */
struct plec_array {
    enum plec_npy_type type;
    uint32_t rows, cols;
    void *values; /* [rows, cols], malloced */
};

/* Reads a file that must hold [rows, cols], or [cols] as one row; one dimension is [rows] when cols
 * is 1. PLEC_BAD_INPUT: "WrongWidth" (cols wanted and found; cols 0 takes any), "WrongRows" (rows
 * UINT32_MAX takes any), "WrongShape" (no or more dimensions, or beyond 32 bits), "WrongDtype" (a
 * type not among `types`, a mask of 1 << enum plec_npy_type); statuses of plec_npy_open;
 * PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_array_load(struct plec_array *out, const char *path,
                                               unsigned types, uint32_t rows, uint32_t cols,
                                               struct plec_error *err);
/* Numbers that follow from a seed alone, on every machine: 64 bits; n normally distributed ones. */
uint64_t plec_random_next(uint64_t *state);
void plec_random_normals(float *out, size_t n, uint64_t *state);
/* f32 [rows, cols], normally distributed, the same for one seed on every machine. */
PLEC_MUST_USE enum plec_status plec_array_random(struct plec_array *out, uint32_t rows,
                                                 uint32_t cols, uint64_t seed,
                                                 struct plec_error *err);
/* Zeroed values. */
PLEC_MUST_USE enum plec_status plec_array_make(struct plec_array *out, enum plec_npy_type type,
                                               uint32_t rows, uint32_t cols,
                                               struct plec_error *err);
/* Widens f16 to f32 in place of the old values; f32 stays. */
PLEC_MUST_USE enum plec_status plec_array_widen(struct plec_array *array, struct plec_error *err);
void plec_array_free(struct plec_array *array);

/* How many values of a row of an f32 or f16 array are not finite; *first: the first one's column.
 */
uint32_t plec_array_not_finite(uint32_t *first, const struct plec_array *array, uint32_t row);
/* sqrt of the sum of squares of an f32 array. */
double plec_array_norm(const struct plec_array *array);
/* sum (a - b)^2 / sum b^2 of two f32 arrays of one shape; sum (a - b)^2 when b is all zero;
 * infinity when any term is NaN. */
double plec_array_nmse(const struct plec_array *a, const struct plec_array *b);

#ifdef __cplusplus
}
#endif
#endif
