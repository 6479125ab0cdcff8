#include "lyrw/repack.h"

#include <assert.h>
#include <string.h>

#include "lyrw/codec/gguf_mxfp4.h"
#include "lyrw/codec/gguf_nvfp4.h"
#include "lyrw/codec/mxfp4.h"
#include "lyrw/codec/nvfp4.h"

enum {
    MXFP4_BLOCK = sizeof(struct plec_gguf_mxfp4_block),
    MXFP4_CODES = sizeof(struct plec_mxfp4_block),
    NVFP4_BLOCK = sizeof(struct plec_gguf_nvfp4_block),
    NVFP4_SCALES = 4,
    NVFP4_CODES = 32,
    NVFP4_PART = sizeof(struct plec_nvfp4_block),
    TENSOR_SCALE = 4
};

static const uint8_t one_f32[TENSOR_SCALE] = {0, 0, 0x80, 0x3F};

uint16_t plec_repack_target(uint16_t format) {
    switch (format) {
    case PLEC_FORMAT_GGUF_MXFP4: return PLEC_FORMAT_MXFP4;
    case PLEC_FORMAT_GGUF_NVFP4: return PLEC_FORMAT_NVFP4;
    default: return format;
    }
}

/* -- what may be repacked --------------------------------------------------------------------- */

static bool any_code(const uint8_t *codes) {
    uint64_t low, high;
    memcpy(&low, codes, 8);
    memcpy(&high, codes + 8, 8);
    return (low | high) != 0;
}

static bool mxfp4_allowed(const uint8_t *blocks, uint64_t n_blocks) {
    for (uint64_t i = 0; i < n_blocks; i++, blocks += MXFP4_BLOCK)
        if (blocks[0] == 255 || (blocks[0] == 0 && any_code(blocks + 1))) return false;
    return true;
}

static bool nvfp4_allowed(const uint8_t *blocks, uint64_t n_blocks) {
    for (uint64_t i = 0; i < n_blocks; i++, blocks += NVFP4_BLOCK)
        for (int g = 0; g < NVFP4_SCALES; g++)
            if (blocks[g] >= 0x7F) return false;
    return true;
}

bool plec_repack_allowed(uint16_t format, const uint8_t *blocks, uint64_t n_blocks) {
    switch (format) {
    case PLEC_FORMAT_GGUF_MXFP4: return mxfp4_allowed(blocks, n_blocks);
    case PLEC_FORMAT_GGUF_NVFP4: return nvfp4_allowed(blocks, n_blocks);
    default: return false;
    }
}

/* -- codes ------------------------------------------------------------------------------------ */

static uint8_t without_negative_zero(uint8_t code) {
    return code == 8 ? 0 : code;
}

static uint8_t pair(uint8_t first, uint8_t second) {
    return (uint8_t)(without_negative_zero(first) | without_negative_zero(second) << 4);
}

/* n bytes whose low nibbles are the first n codes and whose high ones the next n, as pairs of
 * neighbours. */
static void pair_up(uint8_t *out, const uint8_t *halves, int n) {
    for (int j = 0; j < n / 2; j++) {
        uint8_t a = halves[2 * j], b = halves[2 * j + 1];
        out[j] = pair(a & 15, b & 15);
        out[j + n / 2] = pair(a >> 4, b >> 4);
    }
}

static void mxfp4_codes(uint8_t *out, const uint8_t *block) {
    pair_up(out, block + 1, MXFP4_CODES);
}

static void nvfp4_codes(uint8_t *out, const uint8_t *block) {
    for (int g = 0; g < NVFP4_SCALES; g++)
        pair_up(out + g * NVFP4_PART, block + NVFP4_SCALES + g * NVFP4_PART, NVFP4_PART);
}

static void mxfp4_scale(uint8_t *out, const uint8_t *block) {
    out[0] = block[0];
}

static void nvfp4_scales(uint8_t *out, const uint8_t *block) {
    memcpy(out, block, NVFP4_SCALES);
}

/* -- streams ---------------------------------------------------------------------------------- */

/* A part of a stream to which every block gives the same number of bytes. */
struct part {
    uint64_t start, n_bytes;    /* in the stream */
    uint32_t block_bytes, each; /* of a source block; given by each */
    void (*make)(uint8_t *out, const uint8_t *block);
};

/* The part that byte `at` of a stream belongs to; make NULL: nvfp4's tensor scale. */
static struct part part_at(enum plec_repack how, uint64_t n_blocks, uint64_t at) {
    switch (how) {
    case PLEC_REPACK_MXFP4_VALUES:
        return (struct part){0, n_blocks * MXFP4_CODES, MXFP4_BLOCK, MXFP4_CODES, mxfp4_codes};
    case PLEC_REPACK_MXFP4_SCALES: return (struct part){0, n_blocks, MXFP4_BLOCK, 1, mxfp4_scale};
    default: break;
    }
    uint64_t codes = n_blocks * NVFP4_CODES, scales = n_blocks * NVFP4_SCALES;
    if (at < codes) return (struct part){0, codes, NVFP4_BLOCK, NVFP4_CODES, nvfp4_codes};
    if (at < codes + scales)
        return (struct part){codes, scales, NVFP4_BLOCK, NVFP4_SCALES, nvfp4_scales};
    return (struct part){codes + scales, TENSOR_SCALE, 0, 0, NULL};
}

uint64_t plec_repack_bytes(enum plec_repack how, uint64_t n_blocks) {
    switch (how) {
    case PLEC_REPACK_MXFP4_VALUES: return n_blocks * MXFP4_CODES;
    case PLEC_REPACK_MXFP4_SCALES: return n_blocks;
    case PLEC_REPACK_NVFP4: return n_blocks * (NVFP4_CODES + NVFP4_SCALES) + TENSOR_SCALE;
    case PLEC_REPACK_NONE: break;
    }
    assert(!"nothing is repacked");
    return 0;
}

struct plec_repack_step plec_repack_plan(enum plec_repack how, uint64_t n_blocks, uint64_t at,
                                         uint64_t n, uint64_t max_source) {
    struct part part = part_at(how, n_blocks, at);
    uint64_t from = at - part.start, left = part.n_bytes - from;
    if (left > n) left = n;
    if (part.make == NULL) return (struct plec_repack_step){left, 0, 0};
    uint64_t first = from / part.each, end = (from + left + part.each - 1) / part.each;
    uint64_t most = max_source / part.block_bytes;
    assert(most > 0);
    if (end - first > most) {
        end = first + most;
        left = end * part.each - from;
    }
    return (struct plec_repack_step){left, first * part.block_bytes,
                                     (end - first) * part.block_bytes};
}

void plec_repack_make(uint8_t *out, enum plec_repack how, uint64_t n_blocks, uint64_t at,
                      const struct plec_repack_step *step, const uint8_t *source) {
    struct part part = part_at(how, n_blocks, at);
    uint64_t from = at - part.start, done = 0;
    if (part.make == NULL) {
        memcpy(out, one_f32 + from, (size_t)step->n_out);
        return;
    }
    uint64_t skip = from % part.each; /* of the first block's bytes */
    while (done < step->n_out) {
        uint64_t whole = part.each - skip, left = step->n_out - done;
        if (whole > left) whole = left;
        uint8_t made[NVFP4_CODES];
        if (whole == part.each) {
            part.make(out + done, source);
        } else {
            part.make(made, source);
            memcpy(out + done, made + skip, (size_t)whole);
        }
        done += whole;
        skip = 0;
        source += part.block_bytes;
    }
}
