/* format.h: the one table of element formats, and matrices as bytes.
 *
 * Owns: tag -> name, block geometry, decode function. Never: touches a file or a thread. Every size
 * the rest of the tree uses comes from here; each codec header asserts its struct against it.
 *
 * Tags are LYRW's own (lyrw.md section 1.4) where it has one. What only GGUF has travels under
 * vendor tags 0x4700 | ggml type id, bytes untouched.
 */
#ifndef PLEC_LYRW_FORMAT_H
#define PLEC_LYRW_FORMAT_H

#include <stdbool.h>

#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum plec_format_tag {
    PLEC_FORMAT_F32 = 0,
    PLEC_FORMAT_F16 = 1,
    PLEC_FORMAT_BF16 = 2,
    PLEC_FORMAT_Q4_0 = 3,
    PLEC_FORMAT_Q4_K = 4,
    PLEC_FORMAT_Q6_K = 5,
    PLEC_FORMAT_Q8_0 = 6,
    PLEC_FORMAT_FP4_LARQL = 7,
    PLEC_FORMAT_MXFP4 = 8,
    PLEC_FORMAT_NVFP4 = 9,
    PLEC_FORMAT_MXFP8 = 10,
    PLEC_FORMAT_GGUF_BASE = 0x4700, /* | ggml type id */
    PLEC_FORMAT_GGUF_Q4_1 = 0x4703,
    PLEC_FORMAT_GGUF_Q5_0 = 0x4706,
    PLEC_FORMAT_GGUF_Q5_1 = 0x4707,
    PLEC_FORMAT_GGUF_Q2_K = 0x470A,
    PLEC_FORMAT_GGUF_Q3_K = 0x470B,
    PLEC_FORMAT_GGUF_Q5_K = 0x470D,
    PLEC_FORMAT_GGUF_IQ4_NL = 0x4714,
    PLEC_FORMAT_GGUF_IQ4_XS = 0x4717,
    PLEC_FORMAT_GGUF_I32 = 0x471A, /* tables of ids; no codec, no weights */
    PLEC_FORMAT_GGUF_F64 = 0x471C,
    PLEC_FORMAT_GGUF_TQ1_0 = 0x4722,
    PLEC_FORMAT_GGUF_TQ2_0 = 0x4723,
    PLEC_FORMAT_GGUF_MXFP4 = 0x4727,
    PLEC_FORMAT_GGUF_NVFP4 = 0x4728,
    PLEC_FORMAT_GGUF_Q1_0 = 0x4729,
    PLEC_FORMAT_GGUF_Q2_0 = 0x472A
};

/* How a matrix in this format lies in its region or regions. */
enum plec_geometry {
    PLEC_INLINE,  /* one region: rows of blocks, scales (if any) inside each block */
    PLEC_PAIRED,  /* two regions: values [rows][cols/block][block_bytes] and one scale byte a block
                     [rows][cols/block]: mxfp4, mxfp8 */
    PLEC_TRAILING /* one region: all codes [rows][cols/16][8], all E4M3 scales [rows][cols/16], one
                     f32 tensor scale: nvfp4 */
};

struct plec_format {
    uint16_t tag;
    const char *name;     /* "q4_k", "gguf_q5_1": printed and parsed */
    uint16_t block_elems; /* elements of one row in one block; cols must be a multiple */
    uint16_t block_bytes; /* bytes of one block in the values region */
    uint16_t scale_bytes; /* bytes of one block outside its values: 0, or 1 (paired, trailing) */
    enum plec_geometry geometry;
    /* Decodes n_blocks consecutive blocks to n_blocks * block_elems f32, exactly as the format's
     * definition rounds. blocks: values; scales: one byte a block, NULL when inline; tensor_scale:
     * trailing only, else ignored. Any alignment. NULL for f64, which has no exact f32. */
    void (*decode)(float *out, const uint8_t *blocks, const uint8_t *scales, float tensor_scale,
                   size_t n_blocks);
};

/* Whether kernels with bf16 operands may round what such a matrix is multiplied by (inputs and
 * activations) to bf16. True of every format but f32 and f64, whose users want f32 products. The
 * weights themselves enter a product exactly, in every format. */
bool plec_format_rounds_inputs(uint16_t tag);

/* The entry of a tag; NULL for a tag without a codec here. */
const struct plec_format *plec_format_find(uint16_t tag);
/* By name ("q6_k", "gguf_q4_1"); NULL when there is none. */
const struct plec_format *plec_format_by_name(const char *name);
/* All of them, in tag order. */
const struct plec_format *plec_format_all(size_t *n_formats);

enum { PLEC_NAME_MAX = 24 };
/* The format's name, or "format_N" written into buffer [PLEC_NAME_MAX] for an unknown tag. */
const char *plec_format_name(uint16_t tag, char *buffer);

/* The bytes a matrix consists of, stream by stream, however they are laid in regions: values alone
 * of a paired format, or of nvfp4 stored apart, are `codes`. */
struct plec_stream_bytes {
    uint64_t codes;        /* the blocks; the whole matrix when inline */
    uint64_t scales;       /* one byte a block: paired and trailing, else 0 */
    uint64_t tensor_scale; /* 4: trailing, else 0 */
    uint64_t total;        /* the sum of the three */
};

/* Streams of a rows x cols matrix; 0 rows or columns are 0 blocks. PLEC_UNSUPPORTED
 * "UnknownFormat"; PLEC_MALFORMED "NotWholeBlocks" (cols no multiple of the block) or
 * "SizeOverflow". *out is untouched on failure. */
PLEC_MUST_USE enum plec_status plec_format_streams(struct plec_stream_bytes *out, uint16_t tag,
                                                   uint32_t rows, uint32_t cols,
                                                   struct plec_error *err);

/* Bytes of the values region (with the trailing scales of nvfp4) and of the scales region (0 unless
 * paired) of a rows x cols matrix. Fails as plec_format_streams. Either output may be NULL. */
PLEC_MUST_USE enum plec_status plec_format_size(uint64_t *values_bytes, uint64_t *scales_bytes,
                                                uint16_t tag, uint32_t rows, uint32_t cols,
                                                struct plec_error *err);

/* A matrix as views of bytes; row-major, out x in. Owns nothing. */
struct plec_matrix {
    uint16_t format;
    uint32_t rows, cols;
    const uint8_t *values; /* values_bytes of plec_format_size */
    const uint8_t *scales; /* scales_bytes of plec_format_size; NULL unless paired */
};

/* True when m holds a matrix (values set). */
static inline bool plec_matrix_present(const struct plec_matrix *m) {
    return m->values != NULL;
}

/* Decodes row `row` of m. out: [cols] f32 (f64 weights are rounded once) or f64 (exact). m's format
 * must have a codec and row < m->rows: checked at bind, asserted here. */
void plec_matrix_row_f32(float *out, const struct plec_matrix *m, uint32_t row);
void plec_matrix_row_f64(double *out, const struct plec_matrix *m, uint32_t row);

#ifdef __cplusplus
}
#endif
#endif
