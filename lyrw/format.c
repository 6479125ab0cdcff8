/* format.c: the table of formats and the sizes that follow from it. */
#include "lyrw/format.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lyrw/codec/bf16.h"
#include "lyrw/codec/f16.h"
#include "lyrw/codec/f32.h"
#include "lyrw/codec/f64.h"
#include "lyrw/codec/fp4_larql.h"
#include "lyrw/codec/gguf_mxfp4.h"
#include "lyrw/codec/gguf_nvfp4.h"
#include "lyrw/codec/iq4_nl.h"
#include "lyrw/codec/iq4_xs.h"
#include "lyrw/codec/mxfp4.h"
#include "lyrw/codec/mxfp8.h"
#include "lyrw/codec/nvfp4.h"
#include "lyrw/codec/q1_0.h"
#include "lyrw/codec/q2_0.h"
#include "lyrw/codec/q2_k.h"
#include "lyrw/codec/q3_k.h"
#include "lyrw/codec/q4_0.h"
#include "lyrw/codec/q4_1.h"
#include "lyrw/codec/q4_k.h"
#include "lyrw/codec/q5_0.h"
#include "lyrw/codec/q5_1.h"
#include "lyrw/codec/q5_k.h"
#include "lyrw/codec/q6_k.h"
#include "lyrw/codec/q8_0.h"
#include "lyrw/codec/tq1_0.h"
#include "lyrw/codec/tq2_0.h"
#include "lyrw/cursor.h"

/* One loop over blocks a format, in the three shapes a decode has. */
#define INLINE_BLOCKS(format, n_elems)                                                             \
    static void decode_##format(float *out, const uint8_t *blocks, const uint8_t *scales,          \
                                float tensor_scale, size_t n_blocks) {                             \
        (void)scales, (void)tensor_scale;                                                          \
        for (size_t i = 0; i < n_blocks; i++)                                                      \
            plec_##format##_decode(out + i * (n_elems),                                            \
                                   blocks + i * sizeof(struct plec_##format##_block));             \
    }
#define PAIRED_BLOCKS(format, n_elems)                                                             \
    static void decode_##format(float *out, const uint8_t *blocks, const uint8_t *scales,          \
                                float tensor_scale, size_t n_blocks) {                             \
        (void)tensor_scale;                                                                        \
        for (size_t i = 0; i < n_blocks; i++)                                                      \
            plec_##format##_decode(out + i * (n_elems),                                            \
                                   blocks + i * sizeof(struct plec_##format##_block), scales[i]);  \
    }

INLINE_BLOCKS(f32, 1)
INLINE_BLOCKS(f16, 1)
INLINE_BLOCKS(bf16, 1)
INLINE_BLOCKS(q4_0, 32)
INLINE_BLOCKS(q4_k, 256)
INLINE_BLOCKS(q6_k, 256)
INLINE_BLOCKS(q8_0, 32)
INLINE_BLOCKS(fp4_larql, 256)
PAIRED_BLOCKS(mxfp4, 32)
PAIRED_BLOCKS(mxfp8, 32)
INLINE_BLOCKS(q4_1, 32)
INLINE_BLOCKS(q5_0, 32)
INLINE_BLOCKS(q5_1, 32)
INLINE_BLOCKS(q2_k, 256)
INLINE_BLOCKS(q3_k, 256)
INLINE_BLOCKS(q5_k, 256)
INLINE_BLOCKS(iq4_nl, 32)
INLINE_BLOCKS(iq4_xs, 256)
INLINE_BLOCKS(tq1_0, 256)
INLINE_BLOCKS(tq2_0, 256)
INLINE_BLOCKS(gguf_mxfp4, 32)
INLINE_BLOCKS(gguf_nvfp4, 64)
INLINE_BLOCKS(q1_0, 128)
INLINE_BLOCKS(q2_0, 64)

static void decode_nvfp4(float *out, const uint8_t *blocks, const uint8_t *scales,
                         float tensor_scale, size_t n_blocks) {
    for (size_t i = 0; i < n_blocks; i++)
        plec_nvfp4_decode(out + i * 16, blocks + i * 8, scales[i], tensor_scale);
}

#define BLOCK(format) sizeof(struct plec_##format##_block)

/* In tag order. */
static const struct plec_format formats[] = {
    {PLEC_FORMAT_F32, "f32", 1, BLOCK(f32), 0, PLEC_INLINE, decode_f32},
    {PLEC_FORMAT_F16, "f16", 1, BLOCK(f16), 0, PLEC_INLINE, decode_f16},
    {PLEC_FORMAT_BF16, "bf16", 1, BLOCK(bf16), 0, PLEC_INLINE, decode_bf16},
    {PLEC_FORMAT_Q4_0, "q4_0", 32, BLOCK(q4_0), 0, PLEC_INLINE, decode_q4_0},
    {PLEC_FORMAT_Q4_K, "q4_k", 256, BLOCK(q4_k), 0, PLEC_INLINE, decode_q4_k},
    {PLEC_FORMAT_Q6_K, "q6_k", 256, BLOCK(q6_k), 0, PLEC_INLINE, decode_q6_k},
    {PLEC_FORMAT_Q8_0, "q8_0", 32, BLOCK(q8_0), 0, PLEC_INLINE, decode_q8_0},
    {PLEC_FORMAT_FP4_LARQL, "fp4_larql", 256, BLOCK(fp4_larql), 0, PLEC_INLINE, decode_fp4_larql},
    {PLEC_FORMAT_MXFP4, "mxfp4", 32, BLOCK(mxfp4), 1, PLEC_PAIRED, decode_mxfp4},
    {PLEC_FORMAT_NVFP4, "nvfp4", 16, BLOCK(nvfp4), 1, PLEC_TRAILING, decode_nvfp4},
    {PLEC_FORMAT_MXFP8, "mxfp8", 32, BLOCK(mxfp8), 1, PLEC_PAIRED, decode_mxfp8},
    {PLEC_FORMAT_GGUF_Q4_1, "gguf_q4_1", 32, BLOCK(q4_1), 0, PLEC_INLINE, decode_q4_1},
    {PLEC_FORMAT_GGUF_Q5_0, "gguf_q5_0", 32, BLOCK(q5_0), 0, PLEC_INLINE, decode_q5_0},
    {PLEC_FORMAT_GGUF_Q5_1, "gguf_q5_1", 32, BLOCK(q5_1), 0, PLEC_INLINE, decode_q5_1},
    {PLEC_FORMAT_GGUF_Q2_K, "gguf_q2_k", 256, BLOCK(q2_k), 0, PLEC_INLINE, decode_q2_k},
    {PLEC_FORMAT_GGUF_Q3_K, "gguf_q3_k", 256, BLOCK(q3_k), 0, PLEC_INLINE, decode_q3_k},
    {PLEC_FORMAT_GGUF_Q5_K, "gguf_q5_k", 256, BLOCK(q5_k), 0, PLEC_INLINE, decode_q5_k},
    {PLEC_FORMAT_GGUF_IQ4_NL, "gguf_iq4_nl", 32, BLOCK(iq4_nl), 0, PLEC_INLINE, decode_iq4_nl},
    {PLEC_FORMAT_GGUF_IQ4_XS, "gguf_iq4_xs", 256, BLOCK(iq4_xs), 0, PLEC_INLINE, decode_iq4_xs},
    {PLEC_FORMAT_GGUF_F64, "gguf_f64", 1, BLOCK(f64), 0, PLEC_INLINE, NULL},
    {PLEC_FORMAT_GGUF_TQ1_0, "gguf_tq1_0", 256, BLOCK(tq1_0), 0, PLEC_INLINE, decode_tq1_0},
    {PLEC_FORMAT_GGUF_TQ2_0, "gguf_tq2_0", 256, BLOCK(tq2_0), 0, PLEC_INLINE, decode_tq2_0},
    {PLEC_FORMAT_GGUF_MXFP4, "gguf_mxfp4", 32, BLOCK(gguf_mxfp4), 0, PLEC_INLINE,
     decode_gguf_mxfp4},
    {PLEC_FORMAT_GGUF_NVFP4, "gguf_nvfp4", 64, BLOCK(gguf_nvfp4), 0, PLEC_INLINE,
     decode_gguf_nvfp4},
    {PLEC_FORMAT_GGUF_Q1_0, "gguf_q1_0", 128, BLOCK(q1_0), 0, PLEC_INLINE, decode_q1_0},
    {PLEC_FORMAT_GGUF_Q2_0, "gguf_q2_0", 64, BLOCK(q2_0), 0, PLEC_INLINE, decode_q2_0},
};
enum { N_FORMATS = sizeof formats / sizeof formats[0] };

bool plec_format_rounds_inputs(uint16_t tag) {
    return tag != PLEC_FORMAT_F32 && tag != PLEC_FORMAT_GGUF_F64;
}

const struct plec_format *plec_format_find(uint16_t tag) {
    for (size_t i = 0; i < N_FORMATS; i++)
        if (formats[i].tag == tag) return &formats[i];
    return NULL;
}

const struct plec_format *plec_format_by_name(const char *name) {
    for (size_t i = 0; i < N_FORMATS; i++)
        if (strcmp(formats[i].name, name) == 0) return &formats[i];
    return NULL;
}

const struct plec_format *plec_format_all(size_t *n_formats) {
    *n_formats = N_FORMATS;
    return formats;
}

const char *plec_format_name(uint16_t tag, char *buffer) {
    const struct plec_format *format = plec_format_find(tag);
    if (format != NULL) return format->name;
    snprintf(buffer, PLEC_NAME_MAX, "format_%u", (unsigned)tag);
    return buffer;
}

enum plec_status plec_format_streams(struct plec_stream_bytes *out, uint16_t tag, uint32_t rows,
                                     uint32_t cols, struct plec_error *err) {
    const struct plec_format *format = plec_format_find(tag);
    if (format == NULL)
        return plec_fail(err, PLEC_UNSUPPORTED, "UnknownFormat", "format tag %u has no codec",
                         (unsigned)tag);
    if (cols % format->block_elems != 0)
        return plec_fail(err, PLEC_MALFORMED, "NotWholeBlocks",
                         "%s wants columns in blocks of %u, found %" PRIu32, format->name,
                         (unsigned)format->block_elems, cols);
    uint64_t n_blocks = (uint64_t)rows * (cols / format->block_elems); /* < 2^64 */
    struct plec_stream_bytes bytes = {.tensor_scale = format->geometry == PLEC_TRAILING ? 4 : 0};
    if (!plec_mul_u64(&bytes.codes, n_blocks, format->block_bytes) ||
        !plec_mul_u64(&bytes.scales, n_blocks, format->scale_bytes) ||
        !plec_add_u64(&bytes.total, bytes.codes, bytes.scales) ||
        !plec_add_u64(&bytes.total, bytes.total, bytes.tensor_scale))
        return plec_fail(err, PLEC_MALFORMED, "SizeOverflow",
                         "%" PRIu32 " x %" PRIu32 " of %s is more than 64 bits can count", rows,
                         cols, format->name);
    *out = bytes;
    return PLEC_OK;
}

enum plec_status plec_format_size(uint64_t *values_bytes, uint64_t *scales_bytes, uint16_t tag,
                                  uint32_t rows, uint32_t cols, struct plec_error *err) {
    struct plec_stream_bytes bytes;
    enum plec_status status = plec_format_streams(&bytes, tag, rows, cols, err);
    if (status != PLEC_OK) return status;
    bool paired = plec_format_find(tag)->geometry == PLEC_PAIRED;
    if (values_bytes != NULL) *values_bytes = paired ? bytes.codes : bytes.total;
    if (scales_bytes != NULL) *scales_bytes = paired ? bytes.scales : 0;
    return PLEC_OK;
}
