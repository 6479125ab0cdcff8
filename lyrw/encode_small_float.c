/* encode_small_float.c: blocks of E2M1 or E4M3 elements under E8M0 or E4M3 scales. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "lyrw/codec/fp4_larql.h"
#include "lyrw/codec/gguf_mxfp4.h"
#include "lyrw/codec/mxfp4.h"
#include "lyrw/codec/mxfp8.h"
#include "lyrw/codec/nvfp4.h"
#include "lyrw/codec/round.h"
#include "lyrw/encode_block.h"

enum { MX = 32 };

/* An element type of the MX formats. */
struct element {
    uint8_t (*encode)(float value);
    float (*decode)(uint8_t code);
    int top; /* its largest value lies in [2^top, 2^(top + 1)) */
};

static uint8_t encode_e2m1(float value) {
    return plec_f32_e2m1(value);
}
static float decode_e2m1(uint8_t code) {
    return plec_e2m1_f32(code);
}
static uint8_t encode_e4m3(float value) {
    return plec_f32_e4m3(value);
}
static float decode_e4m3(uint8_t code) {
    return plec_e4m3_f32(code);
}
static const struct element e2m1 = {encode_e2m1, decode_e2m1, 2};
static const struct element e4m3 = {encode_e4m3, decode_e4m3, 8};

/* Codes of 32 values under 2^exponent; returns the squared error. */
static double code_mx(uint8_t *codes, const struct element *element, const float *x, int exponent) {
    double error = 0;
    for (int i = 0; i < MX; i++) {
        codes[i] = element->encode((float)ldexp(x[i], -exponent));
        double difference = ldexp(element->decode(codes[i]), exponent) - x[i];
        error += difference * difference;
    }
    return error;
}

/* Chooses the exponent: the one that lets the block's largest value keep its binade, or, when
 * saturation costs more than finer steps gain, the next. Decoded values come back to the same
 * choice: one of the two has no error then, and the first wins a tie. Returns the E8M0 byte; 0 for
 * a block that is all zero, so that equal values have equal bytes. */
static uint8_t fit_mx(uint8_t *codes, const struct element *element, const float *x, int lowest) {
    int largest_exponent; /* the largest magnitude is below 2 to it; 0 for zeros */
    frexp(plec_largest_magnitude(x, MX), &largest_exponent);
    int exponent = largest_exponent - 1 - element->top;
    if (exponent < lowest) exponent = lowest;
    double error = code_mx(codes, element, x, exponent);
    uint8_t other[MX];
    /* never the next one where it could decode to 2^128 */
    if (largest_exponent < 128 && code_mx(other, element, x, exponent + 1) < error) {
        exponent++;
        memcpy(codes, other, sizeof other);
    }
    for (int i = 0; i < MX; i++)
        if (element->decode(codes[i]) != 0) return (uint8_t)(exponent + 127);
    return 0;
}

bool plec_encode_mxfp4(const struct plec_encode_target *to, const float *x) {
    uint8_t codes[MX];
    *to->scale = fit_mx(codes, &e2m1, x, -126); /* byte 0 means 0.0 */
    for (int i = 0; i < MX / 2; i++)
        to->block[i] = (uint8_t)(codes[2 * i] | codes[2 * i + 1] << 4);
    return true;
}

bool plec_encode_mxfp8(const struct plec_encode_target *to, const float *x) {
    *to->scale = fit_mx(to->block, &e4m3, x, -126);
    return true;
}

bool plec_encode_gguf_mxfp4(const struct plec_encode_target *to, const float *x) {
    struct plec_gguf_mxfp4_block *b = (struct plec_gguf_mxfp4_block *)to->block;
    uint8_t codes[MX];
    b->e = fit_mx(codes, &e2m1, x, -127);
    for (int i = 0; i < MX; i++)
        if (codes[i] == 8) codes[i] = 0; /* decodes to +0 all the same */
    for (int j = 0; j < MX / 2; j++)
        b->qs[j] = (uint8_t)(codes[j] | codes[j + MX / 2] << 4);
    return true;
}

/* Neighbouring nibbles of n values over `scale`; all zero when the scale is. */
static void code_neighbours(uint8_t *qs, const float *x, int n, double scale) {
    for (int i = 0; i < n / 2; i++) {
        uint8_t low = scale == 0 ? 0 : plec_f32_e2m1((float)(x[2 * i] / scale));
        uint8_t high = scale == 0 ? 0 : plec_f32_e2m1((float)(x[2 * i + 1] / scale));
        qs[i] = (uint8_t)(low | high << 4);
    }
}

/* A block scale saturates at 448; sub-scales then reach another 448 times as far. */
bool plec_encode_fp4_larql(const struct plec_encode_target *to, const float *x) {
    struct plec_fp4_larql_block *b = (struct plec_fp4_larql_block *)to->block;
    b->scale = plec_f32_e4m3((float)plec_largest_magnitude(x, 256));
    double block = plec_e4m3_f32(b->scale);
    for (int g = 0; g < 8; g++) {
        double ratio = block == 0 ? 0 : plec_largest_magnitude(x + 32 * g, 32) / block;
        if (ratio > 464) return false; /* 464: the last that rounds to 448 */
        b->sub_scales[g] = plec_f32_e4m3((float)ratio);
        double sub = plec_e4m3_f32(b->sub_scales[g]);
        code_neighbours(b->qs + 16 * g, x + 32 * g, 32, sub * block / 6);
    }
    return true;
}

float plec_nvfp4_tensor_scale(float largest) {
    if (largest == 0) return 1.0f;
    float scale = largest / (448.0f * 6.0f);
    return scale < FLT_MIN ? FLT_MIN
                           : scale; /* a subnormal scale would lose the precision itself */
}

bool plec_encode_nvfp4(const struct plec_encode_target *to, const float *x) {
    double wanted = plec_largest_magnitude(x, 16) / (6.0 * to->tensor_scale);
    *to->scale = plec_f32_e4m3((float)wanted);
    code_neighbours(to->block, x, 16, to->tensor_scale * (double)plec_e4m3_f32(*to->scale));
    return true;
}
