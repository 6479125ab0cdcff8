/* activation_avx2.c: eight sigmoids at a time. e^x = 2^k e^r with k the nearest integer to
 * x / ln 2 and |r| <= ln 2 / 2, where the series to r^7 is exact to 2^-27. */
#if defined(__x86_64__)
#include <math.h>

#include "device/cpu/activation.h"
#include "device/cpu/avx2.h"

plec_cpu_sigmoid_function plec_cpu_sigmoid_avx2;

/* x within +-88.37: e^x and 2^k stay finite and normal. */
PLEC_CPU_INLINE __m256 exp_of(__m256 x) {
    static const float terms[] = {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24,
                                  1.0f / 6,    1.0f / 2,   1.0f,       1.0f};
    __m256 k = _mm256_round_ps(_mm256_mul_ps(x, _mm256_set1_ps(1.44269504088896340736f)),
                               _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    /* ln 2 in two parts; the first has few enough bits that k times it is exact */
    __m256 r = _mm256_fnmadd_ps(k, _mm256_set1_ps(0.693359375f), x);
    r = _mm256_fnmadd_ps(k, _mm256_set1_ps(-2.12194440054690583e-4f), r);
    __m256 sum = _mm256_set1_ps(terms[0]);
    PLEC_CPU_UNROLL
    for (int i = 1; i < 8; i++)
        sum = _mm256_fmadd_ps(sum, r, _mm256_set1_ps(terms[i]));
    __m256i power = _mm256_add_epi32(_mm256_cvtps_epi32(k), _mm256_set1_epi32(127));
    return _mm256_mul_ps(sum, _mm256_castsi256_ps(_mm256_slli_epi32(power, 23)));
}

PLEC_CPU_INLINE __m256 sigmoid_of(__m256 z) {
    /* min and max give their second operand when one is NaN: a NaN stays */
    __m256 x = _mm256_sub_ps(_mm256_setzero_ps(), z);
    x = _mm256_max_ps(_mm256_set1_ps(-88.37f), _mm256_min_ps(_mm256_set1_ps(88.37f), x));
    __m256 one = _mm256_set1_ps(1.0f);
    return _mm256_div_ps(one, _mm256_add_ps(one, exp_of(x)));
}

void plec_cpu_sigmoid_avx2(float *z, size_t n) {
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(z + i, sigmoid_of(_mm256_loadu_ps(z + i)));
    if (i == n) return;
    float last[8] = {0};
    memcpy(last, z + i, (n - i) * sizeof *z);
    _mm256_storeu_ps(last, sigmoid_of(_mm256_loadu_ps(last)));
    memcpy(z + i, last, (n - i) * sizeof *z);
}
#endif
