/* tezw.h: a TEZW version 2 file (TezzLLM weights): one header, then every weight as f64.
 *
 *   OFFSET  SIZE  MEANING
 *   0       4     magic 'T' 'Z' '2' 'W'
 *   4       4     i32 version: 2
 *   8       4     i32 n_layer
 *   12      4     i32 n_head
 *   16      4     i32 dim
 *   20      4     i32 vocab_sz
 *   24      4     i32 max_seq
 *   28      4     i32 ffn_dim
 *   32      8     f64 reserved; kept, not read
 *   40            f64 weights, in this order, row-major, nothing between them:
 *                   wte [vocab_sz, dim], rms_f [dim], then for each layer
 *                   rms1 [dim], wq wk wv wo [dim, dim], rms2 [dim],
 *                   wgate [ffn_dim, dim], wval [ffn_dim, dim], wproj [dim, ffn_dim]
 *
 * All little-endian. The file ends with the last weight: its size is checked to the byte.
 *
 * Owns nothing: a header and where each matrix lies. Never: reads a weight.
 */
#ifndef PLEC_LYRW_TEZW_H
#define PLEC_LYRW_TEZW_H

#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLEC_TEZW_HEADER_BYTES = 40 };

struct plec_tezw {
    const uint8_t *data; /* [size], the caller's */
    uint64_t size;
    uint32_t n_layer, n_head, dim, vocab_sz, max_seq, ffn_dim; /* all at least 1 */
};

enum plec_tezw_tensor_kind {
    PLEC_TEZW_WTE, /* these two once, with layer 0 */
    PLEC_TEZW_RMS_F,
    PLEC_TEZW_RMS1, /* these nine in every layer, in this order */
    PLEC_TEZW_WQ,
    PLEC_TEZW_WK,
    PLEC_TEZW_WV,
    PLEC_TEZW_WO,
    PLEC_TEZW_RMS2,
    PLEC_TEZW_WGATE,
    PLEC_TEZW_WVAL,
    PLEC_TEZW_WPROJ,
    PLEC_TEZW_N_KINDS
};

/* A matrix of f64 in the file; a vector is one row. */
struct plec_tezw_tensor {
    const char *name; /* "wgate" */
    uint32_t rows, cols;
    uint64_t at, n_bytes; /* from the start of the file */
};

/* Checks header and size of data [size], which must outlive the result. PLEC_MALFORMED
 * "Truncated" (an empty file, less than a header, fewer bytes than the header needs), "NotTezw",
 * "UnknownVersion", "BadDim" (a field that is 0 or negative, by name), "SizeOverflow",
 * "TrailingBytes". */
PLEC_MUST_USE enum plec_status plec_tezw_parse(struct plec_tezw *out, const void *data,
                                               uint64_t size, struct plec_error *err);

/* layer < n_layer (0 for wte and rms_f). */
struct plec_tezw_tensor plec_tezw_tensor_at(const struct plec_tezw *file, uint32_t layer,
                                            enum plec_tezw_tensor_kind kind);

/* Number of weights in the file. */
uint64_t plec_tezw_n_weights(const struct plec_tezw *file);

#ifdef __cplusplus
}
#endif
#endif
