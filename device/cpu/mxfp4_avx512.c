/* mxfp4_avx512.c: mxfp4, four blocks at a time (plec_avx512_look_up). Dword i of the 16 holds
 * columns 8 i to 8 i + 7 in their order, nibble by nibble.
 *
 * The image of 128 columns: column 8 i + p at lane i of vector p; zeros after the last. */
#if defined(__x86_64__)
#include <math.h>
#include <string.h>

#include "device/cpu/avx512.h"
#include "lyrw/codec/mxfp4.h"

enum { TURN = 128, BLOCKS = 4 };

static size_t mxfp4_image_floats(uint32_t cols) {
    return ((size_t)cols + TURN - 1) / TURN * TURN;
}

static void make_mxfp4_image(float *image, const float *x, uint32_t n, uint32_t cols) {
    memset(image, 0, mxfp4_image_floats(cols) * sizeof *image);
    for (uint32_t i = 0; i < n; i++)
        image[i / TURN * TURN + 16 * (i % 8) + i % TURN / 8] = x[i];
}

/* Four E8M0 scales, each in four lanes. 255 comes out infinite: the sum is then not finite, which
 * plec_cpu_dot sees. */
PLEC_CPU_INLINE __m512 e8m0_scales(uint32_t bytes) {
    /* byte k of the dword to the lowest byte of lanes 4 k to 4 k + 3, zero to the others */
    __m512i spread =
        _mm512_shuffle_epi8(_mm512_set1_epi32((int)bytes),
                            _mm512_set_epi32(-253, -253, -253, -253, -254, -254, -254, -254, -255,
                                             -255, -255, -255, -256, -256, -256, -256));
    return _mm512_castsi512_ps(_mm512_slli_epi32(spread, 23));
}

PLEC_CPU_INLINE void add_blocks(__m512 (*sums)[2], __m512i codes, uint32_t scales,
                                const float *const *x, size_t at, const int n) {
    const __m512 table =
        _mm512_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6);
    __m512 even[PLEC_CPU_TOKENS], odd[PLEC_CPU_TOKENS], scale = e8m0_scales(scales);
    plec_avx512_look_up(even, odd, codes, table, x, at, n);
    plec_avx512_add_scaled(sums, 0, even, scale, n);
    plec_avx512_add_scaled(sums, 1, odd, scale, n);
}

/* Scales of 2^126 and 2^127 make some codes infinite, which a sum scaled afterwards need not be. */
PLEC_CPU_INLINE bool scales_are_small(const uint8_t *scales, size_t n) {
    __mmask64 over = 0;
    for (size_t i = 0; i < n; i += 64) {
        __mmask64 some = n - i >= 64 ? ~(__mmask64)0 : ((__mmask64)1 << (n - i)) - 1;
        __m512i bytes = _mm512_maskz_loadu_epi8(some, scales + i);
        over |= _mm512_cmpgt_epu8_mask(bytes, _mm512_set1_epi8((char)252));
    }
    return over == 0;
}

PLEC_CPU_INLINE void mxfp4_dot(__m512 *out, const struct plec_cpu_row *row,
                               const float *const *images, const int n) {
    __m512 sums[PLEC_CPU_TOKENS][2];
    size_t n_blocks = row->cols / 32, i = 0;
    uint32_t scales = 0;
    plec_avx512_clear(sums, n);
    for (; i + BLOCKS <= n_blocks; i += BLOCKS) {
        memcpy(&scales, row->scales + i, BLOCKS);
        add_blocks(sums, _mm512_loadu_si512(row->blocks + 16 * i), scales, images, 32 * i, n);
    }
    if (i < n_blocks) {
        __mmask16 some = (__mmask16)((1u << 4 * (n_blocks - i)) - 1);
        scales = 0;
        memcpy(&scales, row->scales + i, n_blocks - i);
        add_blocks(sums, _mm512_maskz_loadu_epi32(some, row->blocks + 16 * i), scales, images,
                   32 * i, n);
    }
    plec_avx512_join(out, sums, n);
    if (scales_are_small(row->scales, n_blocks)) return;
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        out[t] = _mm512_set1_ps(NAN); /* have it decoded exactly */
}

PLEC_CPU_KERNEL(mxfp4, avx512, PLEC_FORMAT_MXFP4, mxfp4_image_floats, make_mxfp4_image,
                PLEC_CPU_AHEAD)
#endif
