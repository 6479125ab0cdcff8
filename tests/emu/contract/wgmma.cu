/* wgmma.cu: products of a warpgroup against scalar ones: operands by both ways, several n, sums
 * over several products. */
#include "device/cuda/ptx_wgmma.cuh"
#include "tests/emu/contract/array.cuh"

enum { ROWS = 64, K = 64 };
enum { BF16, F16 };
enum { BY_DESCRIPTOR, BY_REGISTERS };

static unsigned short narrow(int kind, float value) {
    unsigned short bits;
    __half f16 = __float2half(value);
    __nv_bfloat16 bf16 = __float2bfloat16(value);
    memcpy(&bits, kind == F16 ? (void *)&f16 : (void *)&bf16, 2);
    return bits;
}

#ifdef PLEC_HAS_SM90A
/* Byte offset of element k of a row of 64, swizzled by 128 bytes. */
static __device__ inline unsigned swizzled(int row, int k) {
    return (unsigned)(row * 128 + ((k / 8 ^ (row & 7)) << 4) + k % 8 * 2);
}
#endif

/* c[64][N] = sum over k of a[64][64] * b[N][64] */
template <int KIND, int N, int WAY>
static __global__ void __launch_bounds__(128)
    multiply(const unsigned short *a, const unsigned short *b, float *c) {
#ifdef PLEC_HAS_SM90A
    PLEC_SHARED_DYNAMIC(raw);
    unsigned char *sa = raw, *sb = raw + ROWS * K * 2;
    int t = threadIdx.x, lane = t & 31, warp = t >> 5;
    for (int i = t; i < ROWS * K; i += 128)
        *(unsigned short *)(sa + swizzled(i / K, i % K)) = a[i];
    for (int i = t; i < N * K; i += 128)
        *(unsigned short *)(sb + swizzled(i / K, i % K)) = b[i];
    plec_fence_proxy_async();
    __syncthreads();
    float d[N / 2];
    uint64_t da = plec_wgmma_descriptor_128(plec_shared_address(sa));
    uint64_t db = plec_wgmma_descriptor_128(plec_shared_address(sb));
    unsigned fragment[K / 16][4];
    int row = warp * 16 + lane / 4, column = lane % 4 * 2;
    for (int step = 0; step < K / 16; step++)
        for (int r = 0; r < 4; r++)
            fragment[step][r] = *(const unsigned *)(a + (row + (r & 1) * 8) * K + step * 16 +
                                                    column + (r >> 1) * 8);
    plec_wgmma_fence();
#pragma unroll
    for (int step = 0; step < K / 16; step++) {
        if (KIND == BF16 && WAY == BY_DESCRIPTOR)
            plec_wgmma_bf16(d, da + 2 * step, db + 2 * step, step);
        else if (KIND == BF16)
            plec_wgmma_bf16(d, fragment[step], db + 2 * step, step);
        else if (WAY == BY_DESCRIPTOR)
            plec_wgmma_f16(d, da + 2 * step, db + 2 * step, step);
        else
            plec_wgmma_f16(d, fragment[step], db + 2 * step, step);
    }
    plec_wgmma_commit();
    plec_wgmma_wait<0>();
    for (int i = 0; i < N / 2; i++)
        c[(row + (i >> 1 & 1) * 8) * N + i / 4 * 8 + column + (i & 1)] = d[i];
#else
    (void)a, (void)b, (void)c;
#endif
}

template <int KIND, int N, int WAY> static void check_multiply(void) {
    std::vector<float> a(ROWS * K), b(N * K);
    std::vector<unsigned short> na(a.size()), nb(b.size());
    for (size_t i = 0; i < a.size(); i++)
        na[i] = narrow(KIND, a[i] = (float)((int)(i * 37 % 19) - 9));
    for (size_t i = 0; i < b.size(); i++)
        nb[i] = narrow(KIND, b[i] = (float)((int)(i * 29 % 13) - 6));
    device_array<unsigned short> da(na), db(nb);
    device_array<float> dc(ROWS * N);
    auto kernel = multiply<KIND, N, WAY>;
    MUST(cudaFuncSetAttribute((const void *)kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              (ROWS + N) * K * 2));
    MUST(PLEC_LAUNCH(kernel, dim3(1), dim3(128), (ROWS + N) * K * 2, 0, da.data, db.data, dc.data));
    std::vector<float> got = dc.get();
    for (int m = 0; m < ROWS; m++)
        for (int n = 0; n < N; n++) {
            float want = 0;
            for (int k = 0; k < K; k++)
                want += a[m * K + k] * b[n * K + k];
            EXPECT_SAME(got[m * N + n], want, "n %d [%d][%d]", N, m, n);
        }
}

CONTRACT(WgmmaMultipliesWhatDescriptorsName, 90) {
    check_multiply<BF16, 8, BY_DESCRIPTOR>();
    check_multiply<F16, 64, BY_DESCRIPTOR>();
    check_multiply<BF16, 256, BY_DESCRIPTOR>();
}

CONTRACT(WgmmaTakesTheFirstOperandFromRegisters, 90) {
    check_multiply<BF16, 16, BY_REGISTERS>();
    check_multiply<F16, 32, BY_REGISTERS>();
    check_multiply<BF16, 128, BY_REGISTERS>();
}
