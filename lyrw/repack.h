/* repack.h: the two formats that GGUF and LYRW lay out differently, from the one into the other,
 * value for value.
 *
 *   GGUF mxfp4, blocks of 32:  [e | 16 bytes of codes]        LYRW mxfp4: codes in one region, e in
 *                                                             another
 *   GGUF nvfp4, blocks of 64:  [4 scales | 32 bytes of codes] LYRW nvfp4: all codes, all scales,
 * one f32 (1.0), in one region
 *
 * Codes are put from halves into pairs. Code 8, which GGUF reads as +0 and LYRW as -0, becomes 0.
 * Where the two read a scale differently (plec_repack_allowed) a matrix stays as it is, under its
 * GGUF tag. What is made is a stream of bytes that can be asked for from any byte on. Owns nothing.
 */
#ifndef PLEC_LYRW_REPACK_H
#define PLEC_LYRW_REPACK_H

#include "lyrw/format.h"

#ifdef __cplusplus
extern "C" {
#endif

enum plec_repack {
    PLEC_REPACK_NONE, /* the bytes as they are */
    PLEC_REPACK_MXFP4_VALUES,
    PLEC_REPACK_MXFP4_SCALES,
    PLEC_REPACK_NVFP4
};

/* The LYRW format that a GGUF one is repacked to; the format itself where there is none. */
uint16_t plec_repack_target(uint16_t format);

/* Whether every value of n_blocks blocks of a GGUF format stays what it is: no mxfp4 scale byte
 * 255, nor 0 over a code that is not 0; no nvfp4 scale byte of 0x7F or more. */
bool plec_repack_allowed(uint16_t format, const uint8_t *blocks, uint64_t n_blocks);

/* Bytes of the stream that n_blocks blocks give. */
uint64_t plec_repack_bytes(enum plec_repack how, uint64_t n_blocks);

/* The part of a stream that follows from one run of source bytes. */
struct plec_repack_step {
    uint64_t n_out;               /* bytes of the stream from `at` on; at least 1 */
    uint64_t source_at, n_source; /* bytes of the blocks; n_source 0: none are needed */
};

/* The first step of stream bytes [at, at + n), n at least 1 and inside the stream, that needs no
 * more than max_source source bytes (at least one block). how is not NONE. */
struct plec_repack_step plec_repack_plan(enum plec_repack how, uint64_t n_blocks, uint64_t at,
                                         uint64_t n, uint64_t max_source);
/* Makes that step. out: [n_out]; source: [n_source]. */
void plec_repack_make(uint8_t *out, enum plec_repack how, uint64_t n_blocks, uint64_t at,
                      const struct plec_repack_step *step, const uint8_t *source);

#ifdef __cplusplus
}
#endif
#endif
