/* kernel.h: dot products of weight rows with token vectors: what a format's kernel is, and the one
 * table that chooses.
 *
 * A kernel reads a vector through its image: the values in the order, and with the block sums, that
 * suit the kernel, made once a token. It must give each token of a call the same bits as a call
 * with that token alone. It need not care about weights or sums that are not finite, nor about
 * padding columns that decode to such: plec_cpu_dot sees that and decodes the row exactly as the
 * format says.
 */
#ifndef PLEC_DEVICE_CPU_KERNEL_H
#define PLEC_DEVICE_CPU_KERNEL_H

#include "device/layer.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PLEC_CPU_TOKENS = 4, /* most tokens of one call */
    PLEC_CPU_ROWS = 256, /* rows that callers take at a time */
    PLEC_CPU_CHUNK = 256 /* elements the plain kernel decodes at a time: whole blocks, any format */
};

struct plec_cpu_kernel;

/* A matrix ready for its kernel. */
struct plec_cpu_matrix {
    const struct plec_cpu_kernel *kernel;
    const struct plec_format *format;
    uint32_t rows, cols;
    const uint8_t *values; /* row r at r * row_bytes */
    const uint8_t *scales; /* row r at r * row_scales; NULL when inline */
    size_t row_bytes, row_scales;
    float tensor_scale;
};

struct plec_cpu_row {
    const uint8_t *blocks;
    const uint8_t *scales; /* a byte a block, or NULL */
    const struct plec_format *format;
    float tensor_scale;
    uint32_t cols;
};

/* Neighbouring rows. */
struct plec_cpu_rows {
    struct plec_cpu_row first;
    size_t row_bytes, row_scales; /* from one row to the next; row_scales 0 when inline */
    uint32_t n_rows;
};

/* One token's vector. */
struct plec_cpu_vector {
    const float *x;     /* [n] */
    const float *image; /* [image_floats of the kernel], 64-byte aligned unless it is x */
    uint32_t n;         /* columns n and on of the matrix are padding */
};

/* out [n_rows, n] = rows . images, n of 1 to PLEC_CPU_TOKENS. */
typedef void plec_cpu_dot_rows(float *out, const struct plec_cpu_rows *rows,
                               const float *const *images);

struct plec_cpu_kernel {
    uint16_t format;
    const char *name;
    /* Floats of an image, and its making from x [n], zeros from n to cols. NULL: the image is x in
     * its own order. */
    size_t (*image_floats)(uint32_t cols);
    void (*make_image)(float *image, const float *x, uint32_t n, uint32_t cols);
    plec_cpu_dot_rows *dot[PLEC_CPU_TOKENS]; /* for 1, 2, ... tokens */
};

/* Which kernels may run: each set falls back on the ones before it. */
enum plec_cpu_set { PLEC_CPU_PLAIN_C, PLEC_CPU_AVX2, PLEC_CPU_AVX512 };
/* The best set of this processor and its operating system. Asks the processor, which a virtual
 * machine answers slowly: once an open. */
enum plec_cpu_set plec_cpu_detect(void);
/* "AVX-512", "AVX2+FMA", "plain C". */
const char *plec_cpu_set_name(enum plec_cpu_set set);

/* The kernel of a format; NULL when the format has no codec. */
const struct plec_cpu_kernel *plec_cpu_kernel_find(uint16_t format, enum plec_cpu_set set);

/* m must have passed plec_cpu_kernel_find. */
struct plec_cpu_matrix plec_cpu_matrix_bind(const struct plec_matrix *m, enum plec_cpu_set set);

/* Floats of the image of a vector of n values for a matrix of cols columns, rounded up so that
 * images follow each other aligned; 0: the vector serves as it is. */
uint64_t plec_cpu_image_floats(const struct plec_cpu_kernel *kernel, uint32_t n, uint32_t cols);
void plec_cpu_image_make(float *image, const struct plec_cpu_kernel *kernel, const float *x,
                         uint32_t n, uint32_t cols);

/* out [n_rows, n_vectors] = rows `first` and on of m . vectors, 1 to PLEC_CPU_TOKENS of them. */
void plec_cpu_dot(float *out, const struct plec_cpu_matrix *m, uint32_t first, uint32_t n_rows,
                  const struct plec_cpu_vector *vectors, uint32_t n_vectors);

/* The row after `row`. */
static inline void plec_cpu_next_row(struct plec_cpu_row *row, const struct plec_cpu_rows *rows) {
    row->blocks += rows->row_bytes;
    if (row->scales != NULL) row->scales += rows->row_scales;
}

/* The plain C kernel of every format, and its exact dot of the first n columns of a row. */
extern const struct plec_cpu_kernel plec_cpu_plain_kernel;
float plec_cpu_plain_dot(const struct plec_cpu_row *row, const float *x, uint32_t n);

#ifdef __cplusplus
}
#endif
#endif
