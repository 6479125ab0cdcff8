/* cublas_standin.c: the functions of cuBLAS that device/cuda calls, with its conventions (columns,
 * leading dimensions, operations, which array is whose memory), as a library of its own that a
 * program opens in its place. It multiplies on the host, through copies that the emulated runtime
 * of that program makes and checks. What cuBLAS refuses, it refuses with the same status.
 */
#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum {
    SUCCESS = 0,
    NOT_INITIALIZED = 1,
    ALLOC_FAILED = 3,
    INVALID = 7,
    FAILED = 13,
    UNSUPPORTED = 15
};
enum { OP_N = 0, OP_T = 1, BF16 = 14, F32 = 0, COMPUTE_F32 = 68 };

struct handle {
    uint32_t magic;
    cudaStream_t stream;
};
static const uint32_t MAGIC = 0xB1A5;

/* For tests: what was called how often, and a status for the next product. */
int plec_standin_products, plec_standin_grouped, plec_standin_fail;

int cublasCreate_v2(void **handle);
int cublasDestroy_v2(void *handle);
int cublasSetStream_v2(void *handle, cudaStream_t stream);
int cublasGemmEx(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha,
                 const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
                 const void *beta, void *c, int c_type, int ldc, int compute, int algorithm);
int cublasGemmGroupedBatchedEx(void *handle, const int *op_a, const int *op_b, const int *m,
                               const int *n, const int *k, const void *alpha, const void *const *a,
                               int a_type, const int *lda, const void *const *b, int b_type,
                               const int *ldb, const void *beta, void *const *c, int c_type,
                               const int *ldc, int n_groups, const int *sizes, int compute);

int cublasCreate_v2(void **handle) {
    struct handle *own = calloc(1, sizeof *own);
    *handle = own;
    if (own == NULL) return ALLOC_FAILED;
    own->magic = MAGIC;
    return SUCCESS;
}

int cublasDestroy_v2(void *handle) {
    struct handle *own = handle;
    if (own == NULL || own->magic != MAGIC) return NOT_INITIALIZED;
    own->magic = 0;
    free(own);
    return SUCCESS;
}

int cublasSetStream_v2(void *handle, cudaStream_t stream) {
    struct handle *own = handle;
    if (own == NULL || own->magic != MAGIC) return NOT_INITIALIZED;
    own->stream = stream;
    return SUCCESS;
}

static float widen(uint16_t half) {
    uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint16_t narrow(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    if (value != value) return 0x7FC0;
    return (uint16_t)((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16);
}

struct product {
    int op_a, op_b, m, n, k, lda, ldb, ldc, c_type;
    float alpha, beta;
    const void *a, *b;
    void *c;
};

static int at_least(int n) {
    return n > 1 ? n : 1;
}

static bool valid(const struct product *p) {
    bool known = (p->op_a == OP_N || p->op_a == OP_T) && (p->op_b == OP_N || p->op_b == OP_T);
    return known && p->m >= 0 && p->n >= 0 && p->k >= 0 &&
           p->lda >= at_least(p->op_a == OP_N ? p->m : p->k) &&
           p->ldb >= at_least(p->op_b == OP_N ? p->k : p->n) && p->ldc >= at_least(p->m);
}

/* Columns of a matrix in device memory, one behind the other. */
static uint16_t *fetch(const void *from, int rows, int cols, int ld, cudaStream_t stream) {
    uint16_t *values = malloc((size_t)rows * (size_t)cols * 2 + 2);
    if (values == NULL) return NULL;
    if (cudaMemcpy2DAsync(values, (size_t)rows * 2, from, (size_t)ld * 2, (size_t)rows * 2,
                          (size_t)cols, cudaMemcpyDeviceToHost, stream) == cudaSuccess &&
        cudaStreamSynchronize(stream) == cudaSuccess)
        return values;
    free(values);
    return NULL;
}

static float element(const struct product *p, const uint16_t *a, const uint16_t *b, int i, int j) {
    double sum = 0;
    for (int l = 0; l < p->k; l++) {
        size_t at_a = p->op_a == OP_N ? (size_t)l * (size_t)p->m + (size_t)i
                                      : (size_t)i * (size_t)p->k + (size_t)l;
        size_t at_b = p->op_b == OP_N ? (size_t)j * (size_t)p->k + (size_t)l
                                      : (size_t)l * (size_t)p->n + (size_t)j;
        sum += (double)widen(a[at_a]) * widen(b[at_b]);
    }
    return (float)(p->alpha * sum);
}

/* c is not read: beta has to be 0. */
static int store(const struct product *p, const uint16_t *a, const uint16_t *b,
                 cudaStream_t stream) {
    size_t size = p->c_type == F32 ? 4 : 2;
    unsigned char *column = malloc((size_t)p->m * size + 1);
    int status = column != NULL ? SUCCESS : ALLOC_FAILED;
    for (int j = 0; j < p->n && status == SUCCESS; j++) {
        for (int i = 0; i < p->m; i++) {
            float value = element(p, a, b, i, j);
            uint16_t half = narrow(value);
            memcpy(column + (size_t)i * size, size == 4 ? (void *)&value : (void *)&half, size);
        }
        void *to = (unsigned char *)p->c + (size_t)j * (size_t)p->ldc * size;
        if (cudaMemcpyAsync(to, column, (size_t)p->m * size, cudaMemcpyHostToDevice, stream) !=
            cudaSuccess)
            status = FAILED;
    }
    free(column);
    return status;
}

static int multiply(const struct product *p, cudaStream_t stream) {
    if (!valid(p)) return INVALID;
    if (p->beta != 0) return UNSUPPORTED;
    int fail = plec_standin_fail;
    plec_standin_fail = 0;
    if (fail != 0) return fail;
    uint16_t *a = p->op_a == OP_N ? fetch(p->a, p->m, p->k, p->lda, stream)
                                  : fetch(p->a, p->k, p->m, p->lda, stream);
    uint16_t *b = p->op_b == OP_N ? fetch(p->b, p->k, p->n, p->ldb, stream)
                                  : fetch(p->b, p->n, p->k, p->ldb, stream);
    int status = a != NULL && b != NULL ? store(p, a, b, stream) : FAILED;
    free(a);
    free(b);
    return status;
}

int cublasGemmEx(void *handle, int op_a, int op_b, int m, int n, int k, const void *alpha,
                 const void *a, int a_type, int lda, const void *b, int b_type, int ldb,
                 const void *beta, void *c, int c_type, int ldc, int compute, int algorithm) {
    const struct handle *own = handle;
    if (own == NULL || own->magic != MAGIC) return NOT_INITIALIZED;
    if (a_type != BF16 || b_type != BF16 || (c_type != F32 && c_type != BF16) ||
        compute != COMPUTE_F32)
        return UNSUPPORTED;
    if (alpha == NULL || beta == NULL || algorithm != -1) return INVALID;
    plec_standin_products++;
    const struct product p = {
        op_a, op_b, m, n, k, lda, ldb, ldc, c_type, *(const float *)alpha, *(const float *)beta,
        a,    b,    c};
    return multiply(&p, own->stream);
}

/* As documented: c in the type of a and b; arrays of pointers in device memory, all others not. */
int cublasGemmGroupedBatchedEx(void *handle, const int *op_a, const int *op_b, const int *m,
                               const int *n, const int *k, const void *alpha, const void *const *a,
                               int a_type, const int *lda, const void *const *b, int b_type,
                               const int *ldb, const void *beta, void *const *c, int c_type,
                               const int *ldc, int n_groups, const int *sizes, int compute) {
    const struct handle *own = handle;
    int n_problems = 0, status = SUCCESS;
    if (own == NULL || own->magic != MAGIC) return NOT_INITIALIZED;
    if (a_type != BF16 || b_type != BF16 || c_type != BF16 || compute != COMPUTE_F32)
        return UNSUPPORTED;
    plec_standin_grouped++;
    for (int i = 0; i < n_groups; i++)
        n_problems += sizes[i];
    void **pointers = malloc(3 * (size_t)n_problems * sizeof *pointers + 1);
    const void *const arrays[3] = {a, b, c};
    if (pointers == NULL) return ALLOC_FAILED;
    for (int i = 0; i < 3 && status == SUCCESS; i++)
        if (cudaMemcpyAsync(pointers + i * n_problems, arrays[i],
                            (size_t)n_problems * sizeof *pointers, cudaMemcpyDeviceToHost,
                            own->stream) != cudaSuccess ||
            cudaStreamSynchronize(own->stream) != cudaSuccess)
            status = FAILED;
    for (int i = 0, at = 0; i < n_groups && status == SUCCESS; i++)
        for (int j = 0; j < sizes[i] && status == SUCCESS; j++, at++) {
            const struct product p = {op_a[i],
                                      op_b[i],
                                      m[i],
                                      n[i],
                                      k[i],
                                      lda[i],
                                      ldb[i],
                                      ldc[i],
                                      c_type,
                                      ((const float *)alpha)[i],
                                      ((const float *)beta)[i],
                                      pointers[at],
                                      pointers[n_problems + at],
                                      pointers[2 * n_problems + at]};
            status = multiply(&p, own->stream);
        }
    free(pointers);
    return status;
}
