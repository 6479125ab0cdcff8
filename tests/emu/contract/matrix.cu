/* matrix.cu: fragments of ldmatrix and mma.sync against scalar products. */
#include "device/cuda/ptx.cuh"
#include "tests/emu/contract/array.cuh"

enum { BF16, F16 };

static unsigned short narrow(int kind, float value) {
    unsigned short bits;
    __half f16 = __float2half(value);
    __nv_bfloat16 bf16 = __float2bfloat16(value);
    memcpy(&bits, kind == F16 ? (void *)&f16 : (void *)&bf16, 2);
    return bits;
}

/* c[16][8] = a[16][16] * b[8][16]^T; b is read as [n][k] or, transposed, as [k][n] */
template <int KIND, bool TRANSPOSED>
static __global__ void product_16(const unsigned short *a, const unsigned short *b, float *c) {
    PLEC_SHARED_DYNAMIC(raw);
    unsigned short *sa = (unsigned short *)raw, *sb = sa + 256, *st = sb + 128;
    int lane = threadIdx.x;
    for (int i = lane; i < 256; i += 32)
        sa[i] = a[i];
    for (int i = lane; i < 128; i += 32) {
        sb[i] = b[i];
        st[i % 16 * 8 + i / 16] = b[i];
    }
    __syncwarp();
    unsigned fa[4], fb[4];
    float d[4] = {0, 0, 0, 0};
    plec_ldmatrix_x4(fa, plec_shared_address(sa + (lane & 15) * 16 + (lane >> 4) * 8));
    if (TRANSPOSED)
        plec_ldmatrix_x4_transposed(fb, plec_shared_address(st + (lane & 15) * 8));
    else
        plec_ldmatrix_x4(fb, plec_shared_address(sb + (lane & 7) * 16 + (lane >> 3 & 1) * 8));
    if (KIND == BF16)
        plec_mma_bf16(d, fa, fb[0], fb[1]);
    else
        plec_mma_f16(d, fa, fb[0], fb[1]);
    int row = lane >> 2, column = (lane & 3) * 2;
    c[row * 8 + column] = d[0];
    c[row * 8 + column + 1] = d[1];
    c[(row + 8) * 8 + column] = d[2];
    c[(row + 8) * 8 + column + 1] = d[3];
}

template <int KIND, bool TRANSPOSED> static void check_product_16(void) {
    std::vector<float> a(256), b(128);
    std::vector<unsigned short> na(256), nb(128);
    for (int i = 0; i < 256; i++)
        na[i] = narrow(KIND, a[i] = (float)(i * 37 % 19 - 9));
    for (int i = 0; i < 128; i++)
        nb[i] = narrow(KIND, b[i] = (float)(i * 29 % 13 - 6));
    device_array<unsigned short> da(na), db(nb);
    device_array<float> dc(128);
    MUST(PLEC_LAUNCH((product_16<KIND, TRANSPOSED>), dim3(1), dim3(32), 2048, 0, da.data, db.data,
                     dc.data));
    std::vector<float> got = dc.get();
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            float want = 0;
            for (int k = 0; k < 16; k++)
                want += a[m * 16 + k] * b[n * 16 + k];
            EXPECT_SAME(got[m * 8 + n], want, "[%d][%d]", m, n);
        }
}

CONTRACT(MmaBf16MultipliesFragments, 80) {
    check_product_16<BF16, false>();
}
CONTRACT(MmaF16MultipliesFragments, 80) {
    check_product_16<F16, false>();
}
/* mm_sync's codes: the bits of a bf16 are a whole number times 2^-133, exponents 0 and 1 alike. PTX
 * leaves open what becomes of subnormal operands. */
CONTRACT(MmaTakesSubnormalBf16AsTheyAre, 80) {
    std::vector<float> b(128);
    std::vector<unsigned short> na(256), nb(128);
    for (int i = 0; i < 256; i++)
        na[i] = (unsigned short)i;
    for (int i = 0; i < 128; i++)
        nb[i] = narrow(BF16, ldexpf(b[i] = (float)(i * 29 % 13 - 6), 64));
    device_array<unsigned short> da(na), db(nb);
    device_array<float> dc(128);
    MUST(PLEC_LAUNCH((product_16<BF16, false>), dim3(1), dim3(32), 2048, 0, da.data, db.data,
                     dc.data));
    std::vector<float> got = dc.get();
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            float want = 0;
            for (int k = 0; k < 16; k++)
                want += (float)(m * 16 + k) * b[n * 16 + k];
            EXPECT_SAME(ldexpf(got[m * 8 + n], 133 - 64), want, "[%d][%d]", m, n);
        }
}
CONTRACT(LdmatrixTransposes, 80) {
    check_product_16<BF16, true>();
    check_product_16<F16, true>();
}

/* c[16][8] = 1 + a[16][32] * b[8][32]^T */
static __global__ void product_8(const signed char *a, const signed char *b, int *c) {
    int lane = threadIdx.x, row = lane >> 2, k = (lane & 3) * 4;
    unsigned fa[4], fb[2];
    int d[4] = {1, 1, 1, 1};
    for (int r = 0; r < 4; r++)
        fa[r] = *(const unsigned *)(a + (row + (r & 1) * 8) * 32 + k + (r >> 1) * 16);
    for (int r = 0; r < 2; r++)
        fb[r] = *(const unsigned *)(b + row * 32 + k + r * 16);
    plec_mma_s8(d, fa, fb[0], fb[1]);
    int column = (lane & 3) * 2;
    c[row * 8 + column] = d[0];
    c[row * 8 + column + 1] = d[1];
    c[(row + 8) * 8 + column] = d[2];
    c[(row + 8) * 8 + column + 1] = d[3];
}

CONTRACT(MmaS8MultipliesFragments, 80) {
    std::vector<signed char> a(512), b(256);
    for (int i = 0; i < 512; i++)
        a[i] = (signed char)(i * 73 % 255 - 127);
    for (int i = 0; i < 256; i++)
        b[i] = (signed char)(i * 91 % 251 - 125);
    device_array<signed char> da(a), db(b);
    device_array<int> dc(128);
    MUST(PLEC_LAUNCH(product_8, dim3(1), dim3(32), 0, 0, da.data, db.data, dc.data));
    std::vector<int> got = dc.get();
    for (int m = 0; m < 16; m++)
        for (int n = 0; n < 8; n++) {
            int want = 1;
            for (int k = 0; k < 32; k++)
                want += a[m * 32 + k] * b[n * 32 + k];
            EXPECT_SAME(got[m * 8 + n], want, "[%d][%d]", m, n);
        }
}
