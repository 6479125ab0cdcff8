/* matrix.cc: ldmatrix, stmatrix, mma.sync, and pairs of bf16. Fragments as the PTX manual draws
 * them: lane 4 g + c holds row g, columns 2 c and 2 c + 1 of each 8x8 part. Products are summed in
 * f32 in the order of k. */
#include "tests/emu/check.h"
#include "tests/emu/collective.h"
#include "tests/emu/instructions.h"
#include "tests/emu/numbers.h"
#include "tests/emu/settings.h"
#include "tests/emu/shared.h"
#include "tests/emu/statistics.h"

#include <cstring>

namespace plec_emu {

static const unsigned ALL = ~0u;

/* ---- ldmatrix, stmatrix ---------------------------------------------------------------------- */

struct MatrixMove {
    unsigned *r; /* of the lane: one word a matrix */
    unsigned row;
    int n;
    bool transposed;
    const char *file;
    int line;
};

/* The eight rows of matrix m, whose addresses lanes 8 m to 8 m + 7 gave. */
static void rows_of(uint16_t *rows[8], void **arguments, int m, int access, Kind kind) {
    const MatrixMove &first = *(MatrixMove *)arguments[0];
    Warp *warp = running->warp;
    Place place = place_of_line(first.file, first.line);
    const void *addresses[8];
    for (int i = 0; i < 8; i++) {
        const MatrixMove &move = *(MatrixMove *)arguments[m * 8 + i];
        rows[i] = (uint16_t *)shared_pointer(move.row, 16, move.file, move.line);
        check_access(warp->thread(m * 8 + i), rows[i], 16, access, place);
        addresses[i] = rows[i];
    }
    statistics_request(kind, addresses, 8, 16, place);
}

static void complete_load(void **arguments, unsigned) {
    int n = ((MatrixMove *)arguments[0])->n;
    for (int m = 0; m < n; m++) {
        uint16_t *rows[8];
        rows_of(rows, arguments, m, ACCESS_READ, PLEC_EMU_LDMATRIX);
        for (int lane = 0; lane < 32; lane++) {
            MatrixMove &move = *(MatrixMove *)arguments[lane];
            int a = lane / 4, b = lane % 4 * 2;
            unsigned low = move.transposed ? rows[b][a] : rows[a][b];
            unsigned high = move.transposed ? rows[b + 1][a] : rows[a][b + 1];
            move.r[m] = low | high << 16;
        }
    }
}

static void complete_store(void **arguments, unsigned) {
    int n = ((MatrixMove *)arguments[0])->n;
    for (int m = 0; m < n; m++) {
        uint16_t *rows[8];
        rows_of(rows, arguments, m, ACCESS_WRITE, PLEC_EMU_STMATRIX);
        for (int lane = 0; lane < 32; lane++) {
            const MatrixMove &move = *(MatrixMove *)arguments[lane];
            int a = lane / 4, b = lane % 4 * 2;
            uint16_t low = (uint16_t)move.r[m], high = (uint16_t)(move.r[m] >> 16);
            (move.transposed ? rows[b][a] : rows[a][b]) = low;
            (move.transposed ? rows[b + 1][a] : rows[a][b + 1]) = high;
        }
    }
}

void ldmatrix(unsigned *r, int n, bool transposed, unsigned row, const char *file, int line) {
    if (row % 16) trap("ldmatrix: a row is not aligned to 16 bytes", file, line);
    MatrixMove move = {r, row, n, transposed, file, line};
    collective({"ldmatrix", ALL, &move, complete_load, KIND_NONE, true, false, file, line});
}

void stmatrix(const unsigned *r, int n, bool transposed, unsigned row, const char *file, int line) {
    if (row % 16) trap("stmatrix: a row is not aligned to 16 bytes", file, line);
    MatrixMove move = {const_cast<unsigned *>(r), row, n, transposed, file, line};
    collective({"stmatrix", ALL, &move, complete_store, KIND_NONE, true, false, file, line});
}

/* ---- mma.sync -------------------------------------------------------------------------------- */

struct Mma {
    void *d; /* accumulators, read and written */
    const unsigned *a;
    unsigned b[2];
};

template <float (*WIDEN)(unsigned)> static float operand(unsigned bits) {
    bool subnormal = WIDEN == bf16_to_float ? (bits & 0x7f80) == 0 : (bits & 0x7c00) == 0;
    return subnormal && settings.flush_subnormals ? 0 : WIDEN(bits);
}

/* d[16][8] += a[16][16] * b[16][8] */
template <float (*WIDEN)(unsigned)> static void complete_16(void **arguments, unsigned) {
    float a[16][16], b[16][8], d[16][8];
    for (int lane = 0; lane < 32; lane++) {
        const Mma &mma = *(Mma *)arguments[lane];
        int g = lane >> 2, c = (lane & 3) * 2;
        for (int r = 0; r < 4; r++) {
            int row = g + (r & 1) * 8, column = c + (r >> 1) * 8;
            a[row][column] = operand<WIDEN>(mma.a[r] & 0xffff);
            a[row][column + 1] = operand<WIDEN>(mma.a[r] >> 16);
        }
        for (int r = 0; r < 2; r++) {
            b[c + r * 8][g] = operand<WIDEN>(mma.b[r] & 0xffff);
            b[c + r * 8 + 1][g] = operand<WIDEN>(mma.b[r] >> 16);
        }
        for (int r = 0; r < 4; r++)
            d[g + (r >> 1) * 8][c + (r & 1)] = ((const float *)mma.d)[r];
    }
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 8; n++)
                d[m][n] += a[m][k] * b[k][n];
    for (int lane = 0; lane < 32; lane++)
        for (int r = 0; r < 4; r++)
            ((float *)((Mma *)arguments[lane])->d)[r] =
                d[(lane >> 2) + (r >> 1) * 8][(lane & 3) * 2 + (r & 1)];
}

/* d[16][8] += a[16][32] * b[32][8] */
static void complete_8(void **arguments, unsigned) {
    int8_t a[16][32], b[32][8];
    int d[16][8];
    for (int lane = 0; lane < 32; lane++) {
        const Mma &mma = *(Mma *)arguments[lane];
        int g = lane >> 2, c = lane & 3;
        for (int r = 0; r < 4; r++)
            memcpy(&a[g + (r & 1) * 8][c * 4 + (r >> 1) * 16], &mma.a[r], 4);
        for (int r = 0; r < 2; r++)
            for (int i = 0; i < 4; i++)
                b[c * 4 + r * 16 + i][g] = (int8_t)(mma.b[r] >> (8 * i));
        for (int r = 0; r < 4; r++)
            d[g + (r >> 1) * 8][c * 2 + (r & 1)] = ((const int *)mma.d)[r];
    }
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 32; k++)
            for (int n = 0; n < 8; n++)
                d[m][n] += a[m][k] * b[k][n];
    for (int lane = 0; lane < 32; lane++)
        for (int r = 0; r < 4; r++)
            ((int *)((Mma *)arguments[lane])->d)[r] =
                d[(lane >> 2) + (r >> 1) * 8][(lane & 3) * 2 + (r & 1)];
}

void mma_bf16(float *d, const unsigned *a, unsigned b0, unsigned b1, const char *file, int line) {
    Mma mma = {d, a, {b0, b1}};
    collective({"mma.m16n8k16.bf16", ALL, &mma, complete_16<bf16_to_float>, PLEC_EMU_MMA, true,
                false, file, line});
}

void mma_f16(float *d, const unsigned *a, unsigned b0, unsigned b1, const char *file, int line) {
    Mma mma = {d, a, {b0, b1}};
    collective({"mma.m16n8k16.f16", ALL, &mma, complete_16<half_to_float>, PLEC_EMU_MMA, true,
                false, file, line});
}

void mma_s8(int *d, const unsigned *a, unsigned b0, unsigned b1, const char *file, int line) {
    Mma mma = {d, a, {b0, b1}};
    collective({"mma.m16n8k32.s8", ALL, &mma, complete_8, PLEC_EMU_MMA, true, false, file, line});
}

/* ---- pairs of bf16 --------------------------------------------------------------------------- */

/* To nearest, ties to even; what is beyond the largest becomes infinite. */
static uint32_t narrow(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    if (value != value) return 0x7fff;
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

uint32_t add_bf16x2(uint32_t x, uint32_t y) {
    return narrow(bf16_to_float(x & 0xffff) + bf16_to_float(y & 0xffff)) |
           narrow(bf16_to_float(x >> 16) + bf16_to_float(y >> 16)) << 16;
}

/* A product of two bf16 is an f32, but where it is subnormal and would be rounded twice. */
uint32_t mul_bf16x2(uint32_t x, uint32_t y) {
    return narrow(bf16_to_float(x & 0xffff) * bf16_to_float(y & 0xffff)) |
           narrow(bf16_to_float(x >> 16) * bf16_to_float(y >> 16)) << 16;
}

} // namespace plec_emu
