/* wgmma.cu: products of a warpgroup against scalar ones: operands by both ways, several n, sums
 * over several products; subnormal operands; and what pairs of bf16 make of them. */
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

/* codes: operand A has the bits 0 to 255, whole numbers times 2^-133, and B is times 2^64. */
template <int KIND, int N, int WAY> static void check_multiply(bool codes = false) {
    std::vector<float> a(ROWS * K), b(N * K);
    std::vector<unsigned short> na(a.size()), nb(b.size());
    for (size_t i = 0; i < a.size(); i++) {
        a[i] = codes ? (float)(i * 37 % 256) : (float)((int)(i * 37 % 19) - 9);
        na[i] = codes ? (unsigned short)a[i] : narrow(KIND, a[i]);
    }
    for (size_t i = 0; i < b.size(); i++) {
        b[i] = (float)((int)(i * 29 % 13) - 6);
        nb[i] = narrow(KIND, codes ? ldexpf(b[i], 64) : b[i]);
    }
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
            float sum = codes ? ldexpf(got[m * N + n], 133 - 64) : got[m * N + n];
            EXPECT_SAME(sum, want, "n %d [%d][%d]", N, m, n);
        }
}

template <int KIND, int WAY, int... NS> static void check_widths() {
    (check_multiply<KIND, NS, WAY>(), ...);
}

CONTRACT(WgmmaMultipliesWhatDescriptorsName, 90) {
    check_widths<BF16, BY_DESCRIPTOR, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120,
                 128, 256>();
    check_widths<F16, BY_DESCRIPTOR, 8, 64, 256>();
}

CONTRACT(WgmmaTakesTheFirstOperandFromRegisters, 90) {
    check_widths<BF16, BY_REGISTERS, 8, 16, 32, 40, 48, 64, 80, 96, 112, 120, 128>();
    check_widths<F16, BY_REGISTERS, 32, 128>();
}

/* mm_wg's codes, as in MmaTakesSubnormalBf16AsTheyAre. */
CONTRACT(WgmmaTakesSubnormalBf16AsTheyAre, 90) {
    check_multiply<BF16, 32, BY_REGISTERS>(true);
    check_multiply<BF16, 128, BY_REGISTERS>(true);
}

/* ---- pairs of bf16 --------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(256)
    pairs(const unsigned *x, const unsigned *y, unsigned *sums, unsigned *products) {
#ifdef PLEC_HAS_SM90
    int t = threadIdx.x;
    sums[t] = plec_add_bf16x2(x[t], y[t]);
    products[t] = plec_mul_bf16x2(x[t], y[t]);
#else
    (void)x, (void)y, (void)sums, (void)products;
#endif
}

static void run_pairs(std::vector<unsigned> *sums, std::vector<unsigned> *products,
                      const std::vector<unsigned> &x, const std::vector<unsigned> &y) {
    std::vector<unsigned> nothing(x.size());
    device_array<unsigned> dx(x), dy(y), ds(nothing), dp(nothing);
    MUST(PLEC_LAUNCH(pairs, dim3(1), dim3(256), 0, 0, dx.data, dy.data, ds.data, dp.data));
    *sums = ds.get();
    *products = dp.get();
}

static float wide(unsigned bits) {
    unsigned word = bits << 16;
    float value;
    memcpy(&value, &word, 4);
    return value;
}

CONTRACT(PairsOfBf16KeepSubnormals, 90) {
    std::vector<unsigned> x(256), offsets(256), large(256), small(256), sums, products;
    for (unsigned i = 0; i < 256; i++) {
        x[i] = i | (255 - i) << 16;
        offsets[i] = 0x80808080u; /* -128 times 2^-133 */
        large[i] = 0x7f007f00u;   /* 2^127 */
        small[i] = 0x40004000u;   /* 2 */
    }
    run_pairs(&sums, &products, x, offsets);
    for (int i = 0; i < 256; i++) {
        EXPECT_SAME(ldexpf(wide(sums[i] & 0xffff), 133), (float)(i - 128), "%d less 128", i);
        EXPECT_SAME(ldexpf(wide(sums[i] >> 16), 133), (float)(127 - i), "%d less 128", 255 - i);
    }
    run_pairs(&sums, &products, x, large);
    for (int i = 0; i < 256; i++)
        EXPECT_SAME(ldexpf(wide(products[i] & 0xffff), 6), (float)i, "%d times 2^127", i);
    run_pairs(&sums, &products, x, small);
    for (int i = 0; i < 128; i++)
        EXPECT_SAME(ldexpf(wide(products[i] & 0xffff), 133), 2.0f * (float)i, "%d doubled", i);
}
