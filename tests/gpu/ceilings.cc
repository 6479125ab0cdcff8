// What the GPU can do, as the ceilings of tools/gpu_check.sh: bytes a second that copies within its
// memory read and write, and arithmetic a second of a large bf16 product by cuBLAS, which is opened
// when the program runs and need not be there.
//
// Usage: gpu_ceilings [--probe] [--mib N] [--size N] [--cublas PATH]
// --probe: only says which GPU it is. --mib: bytes of one copy (1024). --size: of the product
// (8192). Lines "device NAME", "gbs X", "tflops X" or "no cuBLAS: WHY". Exit status: 0; 1 a call
// failed or the product is wrong, or the driver shows no GPU; 2 usage; 77 no GPU.
#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <unistd.h>

namespace {

const int n_runs = 7;

double now() {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

bool done(cudaError_t status, const char *what) {
    if (status != cudaSuccess) fprintf(stderr, "%s: %s\n", what, cudaGetErrorString(status));
    return status == cudaSuccess;
}

/* Seconds of one call of work, the median of runs of `n` calls; negative when a call failed. */
template <class Work> double time_of(int n, Work work) {
    std::vector<double> seconds;
    if (!work() || !done(cudaDeviceSynchronize(), "the first run")) return -1;
    for (int run = 0; run < n_runs; run++) {
        double started = now();
        for (int i = 0; i < n; i++)
            if (!work()) return -1;
        if (!done(cudaDeviceSynchronize(), "a run")) return -1;
        seconds.push_back((now() - started) / n);
    }
    std::sort(seconds.begin(), seconds.end());
    return seconds[n_runs / 2];
}

/* Device memory, freed at the end. */
struct Memory {
    explicit Memory(size_t n_bytes) { done(cudaMalloc(&at, n_bytes), "cudaMalloc"); }
    ~Memory() { cudaFree(at); }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    void *at = nullptr;
};

bool measure_copies(size_t n_bytes) {
    Memory from(n_bytes), to(n_bytes);
    if (from.at == nullptr || to.at == nullptr) return false;
    if (!done(cudaMemset(from.at, 0x5A, n_bytes), "cudaMemset")) return false;
    double seconds = time_of(8, [&] {
        return done(cudaMemcpyAsync(to.at, from.at, n_bytes, cudaMemcpyDeviceToDevice, nullptr),
                    "cudaMemcpyAsync");
    });
    if (seconds < 0) return false;
    printf("gbs %.1f\n", 2 * static_cast<double>(n_bytes) / seconds * 1e-9);
    return true;
}

/* cuBLAS by its own numbers; only device/cuda and tests see headers of the toolkit, nothing links
 * it. */
enum { CUBLAS_N = 0, CUBLAS_T = 1, CUBLAS_BF16 = 14, CUBLAS_F32 = 68, CUBLAS_DEFAULT = -1 };

struct Cublas {
    int (*create)(void **);
    int (*destroy)(void *);
    int (*product)(void *, int, int, int, int, int, const void *, const void *, int, int,
                   const void *, int, int, const void *, void *, int, int, int, int);
};

bool open_cublas(Cublas *cublas, const char *path) {
    void *library = path != nullptr ? dlopen(path, RTLD_NOW) : nullptr;
    for (const char *name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so.11"})
        if (path == nullptr && library == nullptr) library = dlopen(name, RTLD_NOW);
    if (library == nullptr) {
        printf("no cuBLAS: %s\n", dlerror());
        return false;
    }
    void *symbols[] = {dlsym(library, "cublasCreate_v2"), dlsym(library, "cublasDestroy_v2"),
                       dlsym(library, "cublasGemmEx")};
    static_assert(sizeof *cublas == sizeof symbols, "three functions");
    memcpy(cublas, symbols, sizeof symbols);
    bool whole = symbols[0] != nullptr && symbols[1] != nullptr && symbols[2] != nullptr;
    if (!whole) printf("no cuBLAS: a function is missing\n");
    return whole;
}

uint16_t bf16_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return static_cast<uint16_t>(bits >> 16);
}
float float_of(uint16_t value) {
    uint32_t bits = static_cast<uint32_t>(value) << 16;
    float out;
    memcpy(&out, &bits, sizeof out);
    return out;
}

/* Values of about a unit: what a product costs depends on its bits. */
std::vector<uint16_t> random_values(size_t n, uint64_t seed) {
    std::vector<uint16_t> values(n);
    for (uint16_t &value : values) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        value = bf16_of(static_cast<float>(static_cast<int32_t>(seed >> 32)) * 0x1p-31f);
    }
    return values;
}

/* The first elements of the product against sums made here. */
bool product_is_right(const std::vector<uint16_t> &a, const std::vector<uint16_t> &b, const void *c,
                      size_t size) {
    std::vector<uint16_t> got(16);
    if (!done(cudaMemcpy(got.data(), c, got.size() * 2, cudaMemcpyDeviceToHost), "cudaMemcpy"))
        return false;
    for (size_t i = 0; i < got.size(); i++) { /* column 0 of A-transposed times B */
        double sum = 0;
        for (size_t k = 0; k < size; k++)
            sum += static_cast<double>(float_of(a[i * size + k])) * float_of(b[k]);
        if (!(std::fabs(float_of(got[i]) - sum) <= 0.02 * std::fabs(sum) + 0.1)) {
            fprintf(stderr, "cuBLAS: row %zu is %g, not %g\n", i, float_of(got[i]), sum);
            return false;
        }
    }
    return true;
}

bool measure_product(const char *path, size_t size) {
    Cublas cublas;
    void *handle = nullptr;
    if (!open_cublas(&cublas, path)) return true; /* absent is no failure */
    size_t n_bytes = size * size * 2;
    std::vector<uint16_t> values = random_values(size * size, 1),
                          other = random_values(size * size, 2);
    Memory a(n_bytes), b(n_bytes), c(n_bytes);
    if (a.at == nullptr || b.at == nullptr || c.at == nullptr ||
        !done(cudaMemcpy(a.at, values.data(), n_bytes, cudaMemcpyHostToDevice), "cudaMemcpy") ||
        !done(cudaMemcpy(b.at, other.data(), n_bytes, cudaMemcpyHostToDevice), "cudaMemcpy"))
        return false;
    int status = cublas.create(&handle), n = static_cast<int>(size);
    float one = 1, zero = 0;
    double seconds = status != 0 ? -1 : time_of(5, [&] {
        status =
            cublas.product(handle, CUBLAS_T, CUBLAS_N, n, n, n, &one, a.at, CUBLAS_BF16, n, b.at,
                           CUBLAS_BF16, n, &zero, c.at, CUBLAS_BF16, n, CUBLAS_F32, CUBLAS_DEFAULT);
        return status == 0;
    });
    if (status != 0) fprintf(stderr, "cuBLAS: status %d\n", status);
    if (status == 0) cublas.destroy(handle);
    if (seconds < 0 || !product_is_right(values, other, c.at, size)) return false;
    printf("tflops %.1f\n", 2.0 * n * n * n / seconds * 1e-12);
    return true;
}

struct Options {
    bool probe = false;
    size_t mib = 1024, size = 8192;
    const char *cublas = nullptr;
};

bool read_number(size_t *out, const char *text, size_t most) {
    char *end;
    unsigned long n = strtoul(text, &end, 10);
    *out = n;
    return *end == '\0' && n >= 16 && n <= most;
}

bool read_options(Options *options, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--probe") == 0) {
            options->probe = true;
            continue;
        }
        if (i + 1 == argc) return false;
        const char *value = argv[i + 1];
        if (strcmp(argv[i], "--cublas") == 0)
            options->cublas = value;
        else if (!(strcmp(argv[i], "--mib") == 0 && read_number(&options->mib, value, 16384)) &&
                 !(strcmp(argv[i], "--size") == 0 && read_number(&options->size, value, 16384)))
            return false;
        i++;
    }
    return true;
}

} // namespace

int main(int argc, char **argv) {
    Options options;
    cudaDeviceProp properties;
    int n_devices = 0;
    if (!read_options(&options, argc, argv)) {
        fprintf(stderr, "usage: gpu_ceilings [--probe] [--mib N] [--size N] [--cublas PATH]\n");
        return 2;
    }
    cudaError_t status = cudaGetDeviceCount(&n_devices);
    if (status != cudaSuccess || n_devices == 0) {
        bool driver = access("/dev/nvidiactl", F_OK) == 0; /* too old, say: a fault, not a skip */
        printf("%s: %s\n", driver ? "a driver without a usable GPU" : "skipped: no GPU",
               cudaGetErrorString(status));
        return driver ? 1 : 77;
    }
    if (!done(cudaGetDeviceProperties(&properties, 0), "cudaGetDeviceProperties")) return 1;
    printf("device %s, sm_%d%d\n", properties.name, properties.major, properties.minor);
    fflush(stdout);
    if (options.probe) return 0;
    bool fine = measure_copies(options.mib << 20);
    fflush(stdout);
    return measure_product(options.cublas, options.size) && fine ? 0 : 1;
}
