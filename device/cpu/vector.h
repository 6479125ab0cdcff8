/* vector.h: how a vector kernel is made.
 *
 * A kernel is one always-inline function, <name>_dot(sums, row, images, n): for each of n tokens
 * one vector whose lanes add up to row . image. PLEC_CPU_KERNEL makes functions over rows for 1 to
 * 4 tokens of it. Each token has its own accumulators and the same operations whatever n is. The
 * loops over tokens and parts are unrolled, so that accumulators stay in registers. The lanes of
 * many sums are added together at the end of a group of rows: a sum at a time costs several times
 * the instructions and waits for each.
 */
#ifndef PLEC_DEVICE_CPU_VECTOR_H
#define PLEC_DEVICE_CPU_VECTOR_H

#include "device/cpu/kernel.h"

#define PLEC_CPU_INLINE static inline __attribute__((always_inline))
#define PLEC_CPU_UNROLL _Pragma("GCC unroll 8")

enum { PLEC_CPU_GROUP = 16 }; /* rows whose sums wait for their lanes to be added */
enum { PLEC_CPU_AHEAD = 4096 };

/* Makes plec_cpu_<name>_<set> from <name>_dot. With every row, as many bytes are asked for `ahead`
 * bytes on: decoding keeps so many instructions in flight that few loads are, and the processor's
 * own prefetch stops at each page. 0 for wide formats, which it only slows. */
#define PLEC_CPU_KERNEL(name, set, tag, image_floats, make_image, ahead)                           \
    PLEC_CPU_DOT_ROWS(name, set, ahead, 1)                                                         \
    PLEC_CPU_DOT_ROWS(name, set, ahead, 2)                                                         \
    PLEC_CPU_DOT_ROWS(name, set, ahead, 3)                                                         \
    PLEC_CPU_DOT_ROWS(name, set, ahead, 4)                                                         \
    const struct plec_cpu_kernel plec_cpu_##name##_##set = {                                       \
        tag,                                                                                       \
        #set,                                                                                      \
        image_floats,                                                                              \
        make_image,                                                                                \
        {name##_dot1, name##_dot2, name##_dot3, name##_dot4}};

#define PLEC_CPU_DOT_ROWS(name, set, ahead, n)                                                     \
    static void name##_dot##n(float *out, const struct plec_cpu_rows *rows,                        \
                              const float *const *images) {                                        \
        struct plec_cpu_row row = rows->first;                                                     \
        plec_##set##_vector sums[PLEC_CPU_GROUP * n];                                              \
        const float *x[n]; /* a copy, that stays in registers */                                   \
        for (int t = 0; t < n; t++)                                                                \
            x[t] = images[t];                                                                      \
        uint32_t n_sums = 0;                                                                       \
        for (uint32_t r = 0; r < rows->n_rows; r++) {                                              \
            for (size_t at = 0; ahead != 0 && at < rows->row_bytes; at += 64)                      \
                __builtin_prefetch(row.blocks + ahead + at);                                       \
            name##_dot(sums + n_sums, &row, x, n);                                                 \
            plec_cpu_next_row(&row, rows);                                                         \
            n_sums += n;                                                                           \
            if (n_sums < PLEC_CPU_GROUP * n && r + 1 < rows->n_rows) continue;                     \
            plec_##set##_add_lanes(out, sums, n_sums);                                             \
            out += n_sums, n_sums = 0;                                                             \
        }                                                                                          \
    }

#endif
