/* library.c: cuBLAS: opened, and called with matrices row by row.
 *
 * cuBLAS has columns where this project has rows: a matrix [rows, cols] here is one of cols x rows
 * there. So c = b . a' (primes transpose) here is c = a' . b there: operand A transposed, operand B
 * as it is, m the rows of a, n those of b. */
#include "device/cuda/library.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* cuBLAS's own numbers: nothing here sees its headers. */
enum { OP_N = 0, OP_T = 1, BF16 = 14, F32 = 0, COMPUTE_F32 = 68, DEFAULT_ALGORITHM = -1 };

typedef int create_function(void **handle);
typedef int destroy_function(void *handle);
typedef int set_stream_function(void *handle, cudaStream_t stream);
typedef int product_function(void *handle, int op_a, int op_b, int m, int n, int k,
                             const void *alpha, const void *a, int a_type, int lda, const void *b,
                             int b_type, int ldb, const void *beta, void *c, int c_type, int ldc,
                             int compute, int algorithm);
typedef int grouped_function(void *handle, const int *op_a, const int *op_b, const int *m,
                             const int *n, const int *k, const void *alpha, const void *const *a,
                             int a_type, const int *lda, const void *const *b, int b_type,
                             const int *ldb, const void *beta, void *const *c, int c_type,
                             const int *ldc, int n_groups, const int *group_sizes, int compute);

/* What a grouped product is told, on the host. */
struct groups {
    int op_a[PLEC_CUDA_EXPERTS_MAX], op_b[PLEC_CUDA_EXPERTS_MAX], m[PLEC_CUDA_EXPERTS_MAX];
    int n[PLEC_CUDA_EXPERTS_MAX], k[PLEC_CUDA_EXPERTS_MAX], lda[PLEC_CUDA_EXPERTS_MAX];
    int ldb[PLEC_CUDA_EXPERTS_MAX], ldc[PLEC_CUDA_EXPERTS_MAX], sizes[PLEC_CUDA_EXPERTS_MAX];
    float alpha[PLEC_CUDA_EXPERTS_MAX], beta[PLEC_CUDA_EXPERTS_MAX];
    const void *pointers[3][PLEC_CUDA_EXPERTS_MAX]; /* a, b, c */
};

struct plec_cuda_library {
    struct plec_cuda_library_rows rows;
    void *file, *handle;
    create_function *create;
    destroy_function *destroy;
    set_stream_function *set_stream;
    product_function *product;
    grouped_function *grouped;
    struct groups groups;
};

static const char *status_name(int status) {
    switch (status) {
    case 1: return "not initialised";
    case 3: return "no memory";
    case 7: return "invalid value";
    case 8: return "architecture mismatch";
    case 13: return "execution failed";
    case 14: return "internal error";
    case 15: return "not supported";
    default: return "unknown";
    }
}

static enum plec_status check(int status, const char *call, struct plec_error *err) {
    if (status == 0) return PLEC_OK;
    return plec_fail(err, PLEC_NO_DEVICE, "CublasFailed", "%s: status %d, %s", call, status,
                     status_name(status));
}

/* Opening a pipe would wait for a writer, and a name without a slash would be looked for where the
 * loader looks: a path is the path of a file. */
static enum plec_status open_path(void **out, const char *path, struct plec_error *err) {
    char place[PATH_MAX];
    struct stat info;
    int n = snprintf(place, sizeof place, "%s%s", strchr(path, '/') != NULL ? "" : "./", path);
    if (stat(path, &info) != 0 || n < 0 || (size_t)n >= sizeof place)
        return plec_fail(err, PLEC_NO_DEVICE, "NoCublas", "%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return plec_fail(err, PLEC_NO_DEVICE, "NoCublas", "%s: not a regular file", path);
    *out = dlopen(place, RTLD_NOW | RTLD_LOCAL);
    return *out != NULL ? PLEC_OK : plec_fail(err, PLEC_NO_DEVICE, "NoCublas", "%s", dlerror());
}

/* The emulation's memory is none of a GPU: there cuBLAS has to be named. */
static enum plec_status open_usual(void **out, struct plec_error *err) {
#ifdef PLEC_CUDA_EMULATED
    (void)out;
    return plec_fail(err, PLEC_NO_DEVICE, "NoCublas",
                     "the emulated device has no cuBLAS but one that is named");
#else
    static const char *const names[] = {"libcublas.so.13", "libcublas.so.12"};
    for (size_t i = 0; *out == NULL && i < sizeof names / sizeof names[0]; i++)
        *out = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    return *out != NULL ? PLEC_OK : plec_fail(err, PLEC_NO_DEVICE, "NoCublas", "%s", dlerror());
#endif
}

/* A function pointer is not a void pointer: copied, not cast. */
static enum plec_status find(void *function, const struct plec_cuda_library *library,
                             const char *name, struct plec_error *err) {
    void *found = dlsym(library->file, name);
    memcpy(function, &found, sizeof found);
    if (found != NULL) return PLEC_OK;
    return plec_fail(err, PLEC_NO_DEVICE, "NoCublas", "the library has no %s", name);
}

static enum plec_status load(struct plec_cuda_library *library, const char *path, bool grouped,
                             struct plec_error *err) {
    enum plec_status status =
        path != NULL ? open_path(&library->file, path, err) : open_usual(&library->file, err);
    if (status == PLEC_OK) status = find(&library->destroy, library, "cublasDestroy_v2", err);
    if (status == PLEC_OK) status = find(&library->create, library, "cublasCreate_v2", err);
    if (status == PLEC_OK) status = find(&library->set_stream, library, "cublasSetStream_v2", err);
    if (status == PLEC_OK) status = find(&library->product, library, "cublasGemmEx", err);
    if (status == PLEC_OK && grouped)
        status = find(&library->grouped, library, "cublasGemmGroupedBatchedEx", err);
    if (status != PLEC_OK) return status;
    status = check(library->create(&library->handle), "cublasCreate", err);
    if (status != PLEC_OK) library->handle = NULL;
    return status;
}

enum plec_status plec_cuda_library_open(struct plec_cuda_library **out, const char *path,
                                        bool grouped, struct plec_error *err) {
    *out = NULL;
    struct plec_cuda_library *library = calloc(1, sizeof *library);
    if (library == NULL) return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "cuBLAS");
    pthread_mutex_init(&library->rows.mutex, NULL);
    enum plec_status status = load(library, path, grouped, err);
    void *found = NULL;
    if (status == PLEC_OK)
        status = plec_cuda_check(
            cudaHostAlloc(&found, sizeof *library->rows.found, cudaHostAllocPortable), err,
            "what the plan found");
    library->rows.found = found;
    if (status != PLEC_OK) {
        plec_cuda_library_close(library);
        return status;
    }
    *out = library;
    return PLEC_OK;
}

void plec_cuda_library_close(struct plec_cuda_library *library) {
    if (library == NULL) return;
    if (library->rows.found != NULL) (void)cudaFreeHost(library->rows.found);
    if (library->handle != NULL) (void)library->destroy(library->handle);
    if (library->file != NULL) (void)dlclose(library->file);
    pthread_mutex_destroy(&library->rows.mutex);
    free(library);
}

struct plec_cuda_library_rows *plec_cuda_library_get_rows(struct plec_cuda_library *library) {
    return &library->rows;
}

enum plec_status plec_cuda_library_loop(struct plec_cuda_library *library,
                                        const struct plec_cuda_products *p, cudaStream_t stream,
                                        struct plec_error *err) {
    const float one = 1, zero = 0;
    enum plec_status status =
        check(library->set_stream(library->handle, stream), "cublasSetStream", err);
    for (uint32_t i = 0; i < p->n && status == PLEC_OK; i++)
        status =
            check(library->product(library->handle, OP_T, OP_N, (int)p->rows, (int)p->n_rows[i],
                                   (int)p->cols, &one, p->a[i], BF16, (int)p->lda,
                                   p->b + plec_cuda_at(p->first[i], p->ldb), BF16, (int)p->ldb,
                                   &zero, (float *)p->c + plec_cuda_at(p->first[i], p->rows), F32,
                                   (int)p->rows, COMPUTE_F32, DEFAULT_ALGORITHM),
                  "cublasGemmEx", err);
    return status;
}

static void fill_group(struct groups *groups, const struct plec_cuda_products *p, uint32_t i) {
    groups->op_a[i] = OP_T, groups->op_b[i] = OP_N, groups->sizes[i] = 1;
    groups->m[i] = (int)p->rows, groups->n[i] = (int)p->n_rows[i], groups->k[i] = (int)p->cols;
    groups->lda[i] = (int)p->lda, groups->ldb[i] = (int)p->ldb, groups->ldc[i] = (int)p->rows;
    groups->alpha[i] = 1, groups->beta[i] = 0;
    groups->pointers[0][i] = p->a[i];
    groups->pointers[1][i] = p->b + plec_cuda_at(p->first[i], p->ldb);
    groups->pointers[2][i] = (uint16_t *)p->c + plec_cuda_at(p->first[i], p->rows);
}

/* Pointers go to the device from pageable memory: the copy has left it when the call returns. */
enum plec_status plec_cuda_library_grouped(struct plec_cuda_library *library,
                                           const struct plec_cuda_products *p, cudaStream_t stream,
                                           struct plec_error *err) {
    struct groups *g = &library->groups;
    const void **a = p->pointers, **b = a + PLEC_CUDA_EXPERTS_MAX, **c = b + PLEC_CUDA_EXPERTS_MAX;
    for (uint32_t i = 0; i < p->n; i++)
        fill_group(g, p, i);
    enum plec_status status =
        check(library->set_stream(library->handle, stream), "cublasSetStream", err);
    if (status == PLEC_OK)
        status = plec_cuda_check(
            cudaMemcpyAsync(a, g->pointers, sizeof g->pointers, cudaMemcpyHostToDevice, stream),
            err, "pointers of a grouped product");
    if (status != PLEC_OK) return status;
    return check(library->grouped(library->handle, g->op_a, g->op_b, g->m, g->n, g->k, g->alpha, a,
                                  BF16, g->lda, b, BF16, g->ldb, g->beta, (void *const *)c, BF16,
                                  g->ldc, (int)p->n, g->sizes, COMPUTE_F32),
                 "cublasGemmGroupedBatchedEx", err);
}
