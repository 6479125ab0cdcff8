/* encode.c: whole matrices, block by block. */
#include "lyrw/encode.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "lyrw/codec/round.h"
#include "lyrw/cursor.h"
#include "lyrw/encode_block.h"

static bool encode_f32(const struct plec_encode_target *to, const float *x) {
    plec_store_u32(to->block, plec_f32_bits(*x));
    return true;
}

static bool encode_f16(const struct plec_encode_target *to, const float *x) {
    double rounded;
    return plec_store_f16(to->block, &rounded, *x);
}

static bool encode_bf16(const struct plec_encode_target *to, const float *x) {
    uint16_t bits = plec_f32_bf16(*x);
    plec_store_u16(to->block, bits);
    return isfinite(plec_bf16_f32(bits));
}

struct encoder {
    uint16_t tag;
    bool (*encode)(const struct plec_encode_target *to, const float *x);
};

static const struct encoder encoders[] = {
    {PLEC_FORMAT_F32, encode_f32},
    {PLEC_FORMAT_F16, encode_f16},
    {PLEC_FORMAT_BF16, encode_bf16},
    {PLEC_FORMAT_Q4_0, plec_encode_q4_0},
    {PLEC_FORMAT_Q4_K, plec_encode_q4_k},
    {PLEC_FORMAT_Q6_K, plec_encode_q6_k},
    {PLEC_FORMAT_Q8_0, plec_encode_q8_0},
    {PLEC_FORMAT_FP4_LARQL, plec_encode_fp4_larql},
    {PLEC_FORMAT_MXFP4, plec_encode_mxfp4},
    {PLEC_FORMAT_NVFP4, plec_encode_nvfp4},
    {PLEC_FORMAT_MXFP8, plec_encode_mxfp8},
    {PLEC_FORMAT_GGUF_Q4_1, plec_encode_q4_1},
    {PLEC_FORMAT_GGUF_Q5_0, plec_encode_q5_0},
    {PLEC_FORMAT_GGUF_Q5_1, plec_encode_q5_1},
    {PLEC_FORMAT_GGUF_Q5_K, plec_encode_q5_k},
    {PLEC_FORMAT_GGUF_MXFP4, plec_encode_gguf_mxfp4},
};

static const struct encoder *find_encoder(uint16_t tag) {
    for (size_t i = 0; i < sizeof encoders / sizeof encoders[0]; i++)
        if (encoders[i].tag == tag) return &encoders[i];
    return NULL;
}

bool plec_format_encodable(uint16_t tag) {
    return find_encoder(tag) != NULL;
}

/* Also gives the largest magnitude. */
static enum plec_status check_finite(float *largest, const struct plec_encode_args *args,
                                     struct plec_error *err) {
    uint64_t n = (uint64_t)args->rows * args->cols;
    *largest = 0;
    for (uint64_t i = 0; i < n; i++) {
        float magnitude = fabsf(args->matrix[i]);
        if (!isfinite(magnitude))
            return plec_fail(err, PLEC_BAD_INPUT, "NotFinite",
                             "row %" PRIu64 ", column %" PRIu64 " is %f", i / args->cols,
                             i % args->cols, args->matrix[i]);
        if (magnitude > *largest) *largest = magnitude;
    }
    return PLEC_OK;
}

static enum plec_status encode_blocks(const struct plec_encode_args *args,
                                      const struct plec_format *format,
                                      struct plec_encode_target to, struct plec_error *err) {
    const struct encoder *encoder = find_encoder(args->format);
    uint64_t per_row = args->cols / format->block_elems, n_blocks = args->rows * per_row;
    for (uint64_t i = 0; i < n_blocks; i++) {
        if (!encoder->encode(&to, args->matrix + i * format->block_elems))
            return plec_fail(err, PLEC_BAD_INPUT, "OutOfRange",
                             "row %" PRIu64 ", column %" PRIu64
                             ": %s cannot scale a block of %u to values as large as it holds",
                             i / per_row, i % per_row * format->block_elems, format->name,
                             (unsigned)format->block_elems);
        to.block += format->block_bytes;
        if (to.scale != NULL) to.scale += format->scale_bytes;
    }
    return PLEC_OK;
}

enum plec_status plec_matrix_encode(const struct plec_encode_args *args, struct plec_error *err) {
    struct plec_stream_bytes bytes;
    float largest;
    enum plec_status status =
        plec_format_streams(&bytes, args->format, args->rows, args->cols, err);
    if (status != PLEC_OK) return status;
    const struct plec_format *format = plec_format_find(args->format);
    if (find_encoder(args->format) == NULL)
        return plec_fail(err, PLEC_UNSUPPORTED, "NoEncoder", "%s can only be decoded",
                         format->name);
    status = check_finite(&largest, args, err);
    if (status != PLEC_OK) return status;
    struct plec_encode_target to = {args->values, args->scales, 1.0f};
    if (format->geometry == PLEC_TRAILING) {
        to.scale = args->values + bytes.codes;
        to.tensor_scale = plec_nvfp4_tensor_scale(largest);
        plec_store_u32(to.scale + bytes.scales, plec_f32_bits(to.tensor_scale));
    } else if (format->geometry == PLEC_INLINE) {
        to.scale = NULL;
    }
    return encode_blocks(args, format, to, err);
}
