#include "tools/plectrum/gguf_values.h"

#include <assert.h>
#include <math.h>

#include "lyrw/codec/bits.h"
#include "lyrw/cursor.h"
#include "lyrw/format.h"
#include "tools/plectrum/gguf_text.h"

static bool is_plain_number(uint32_t type) {
    return (type >= PLEC_GGUF_TYPE_I8 && type <= PLEC_GGUF_TYPE_F64);
}

static double plain_number(uint32_t type, const uint8_t *p) {
    switch (type) {
    case PLEC_GGUF_TYPE_I8: return (int8_t)*p;
    case PLEC_GGUF_TYPE_I16: return (int16_t)plec_load_u16(p);
    case PLEC_GGUF_TYPE_I32: return (int32_t)plec_load_u32(p);
    case PLEC_GGUF_TYPE_I64: return (double)(int64_t)plec_load_u64(p);
    default: {
        struct plec_cursor cursor = plec_cursor_at(p, 8, 0);
        return plec_cursor_f64(&cursor);
    }
    }
}

static const struct plec_format *codec_of(uint32_t type) {
    uint16_t tag;
    const struct plec_format *format = NULL;
    if (plec_gguf_type_tag(&tag, type)) format = plec_format_find(tag);
    return format != NULL && format->decode != NULL ? format : NULL;
}

bool plec_gguf_can_decode(uint32_t type) {
    return is_plain_number(type) || codec_of(type) != NULL;
}

void plec_gguf_decode(double *out, uint32_t type, const uint8_t *p) {
    if (is_plain_number(type)) {
        out[0] = plain_number(type, p);
        return;
    }
    const struct plec_format *format = codec_of(type);
    float values[PLEC_BLOCK_ELEMS_MAX];
    assert(format != NULL && format->block_elems <= PLEC_BLOCK_ELEMS_MAX);
    format->decode(values, p, NULL, 1, 1);
    for (unsigned i = 0; i < format->block_elems; i++)
        out[i] = (double)values[i];
}

/* -- fields ---------------------------------------------------------------------------------- */

#define F16(name, at)                                                                              \
    { name, at, 1, PLEC_FIELD_F16 }
#define BYTES(name, at, count)                                                                     \
    { name, at, count, PLEC_FIELD_BYTES }

/* By type id; layouts as in lyrw/codec, and of the codebook types as their readers define them. */
static const struct plec_block_field fields_of[][PLEC_BLOCK_FIELDS_MAX] = {
    [2] = {F16("d", 0), BYTES("qs", 2, 16)},
    [3] = {F16("d", 0), F16("m", 2), BYTES("qs", 4, 16)},
    [6] = {F16("d", 0), BYTES("qh", 2, 4), BYTES("qs", 6, 16)},
    [7] = {F16("d", 0), F16("m", 2), BYTES("qh", 4, 4), BYTES("qs", 8, 16)},
    [8] = {F16("d", 0), {"qs", 2, 32, PLEC_FIELD_I8}},
    [9] = {F16("d", 0), F16("s", 2), {"qs", 4, 32, PLEC_FIELD_I8}},
    [10] = {BYTES("scales", 0, 16), BYTES("qs", 16, 64), F16("d", 80), F16("dmin", 82)},
    [11] = {BYTES("hmask", 0, 32), BYTES("qs", 32, 64), BYTES("scales", 96, 12), F16("d", 108)},
    [12] = {F16("d", 0), F16("dmin", 2), BYTES("scales", 4, 12), BYTES("qs", 16, 128)},
    [13] = {F16("d", 0), F16("dmin", 2), BYTES("scales", 4, 12), BYTES("qh", 16, 32),
            BYTES("qs", 48, 128)},
    [14] = {BYTES("ql", 0, 128),
            BYTES("qh", 128, 64),
            {"scales", 192, 16, PLEC_FIELD_I8},
            F16("d", 208)},
    [15] = {{"d", 0, 1, PLEC_FIELD_F32},
            {"qs", 4, 256, PLEC_FIELD_I8},
            {"bsums", 260, 16, PLEC_FIELD_I16}},
    [16] = {F16("d", 0), BYTES("qs", 2, 64)},
    [17] = {F16("d", 0), BYTES("qs", 2, 64), BYTES("scales", 66, 8)},
    [18] = {F16("d", 0), BYTES("qs", 2, 96)},
    [19] = {F16("d", 0), BYTES("qs", 2, 32), BYTES("qh", 34, 16)},
    [20] = {F16("d", 0), BYTES("qs", 2, 16)},
    [21] = {F16("d", 0), BYTES("qs", 2, 64), BYTES("qh", 66, 8), BYTES("signs", 74, 32),
            BYTES("scales", 106, 4)},
    [22] = {F16("d", 0), BYTES("qs", 2, 64), BYTES("qh", 66, 8), BYTES("scales", 74, 8)},
    [23] = {F16("d", 0), BYTES("scales_h", 2, 2), BYTES("scales_l", 4, 4), BYTES("qs", 8, 128)},
    [29] = {BYTES("qs", 0, 32), BYTES("qh", 32, 16), BYTES("scales", 48, 8)},
    [34] = {BYTES("qs", 0, 48), BYTES("qh", 48, 4), F16("d", 52)},
    [35] = {BYTES("qs", 0, 64), F16("d", 64)},
    [39] = {{"e", 0, 1, PLEC_FIELD_E8M0}, BYTES("qs", 1, 16)},
    [40] = {{"s", 0, 4, PLEC_FIELD_UE4M3}, BYTES("qs", 4, 32)},
    [41] = {F16("d", 0), BYTES("bits", 2, 16)},
    [42] = {F16("d", 0), BYTES("qs", 2, 16)},
};
enum { N_FIELD_TYPES = sizeof fields_of / sizeof fields_of[0] };

size_t plec_block_fields(const struct plec_block_field **fields, uint32_t type) {
    if (type >= N_FIELD_TYPES) return 0;
    size_t n = 0;
    while (n < PLEC_BLOCK_FIELDS_MAX && fields_of[type][n].name != NULL)
        n++;
    *fields = fields_of[type];
    return n;
}

unsigned plec_field_bytes(const struct plec_block_field *field) {
    static const unsigned each[] = {
        [PLEC_FIELD_F16] = 2, [PLEC_FIELD_F32] = 4, [PLEC_FIELD_E8M0] = 1, [PLEC_FIELD_UE4M3] = 1,
        [PLEC_FIELD_I8] = 1,  [PLEC_FIELD_I16] = 2, [PLEC_FIELD_BYTES] = 1};
    return each[field->kind] * field->count;
}

static void put_one(FILE *stream, enum plec_field_kind kind, const uint8_t *p) {
    char text[PLEC_REAL_TEXT_MAX];
    switch (kind) {
    case PLEC_FIELD_F16:
        fprintf(stream, " %s (0x%04x)",
                plec_real_text(text, (double)plec_f16_f32(plec_load_u16(p)), true),
                plec_load_u16(p));
        break;
    case PLEC_FIELD_F32:
        fprintf(stream, " %s", plec_real_text(text, (double)plec_bits_f32(plec_load_u32(p)), true));
        break;
    case PLEC_FIELD_E8M0:
        if (*p == 255)
            fputs(" nan (0xff)", stream);
        else
            fprintf(stream, " 2^%d (0x%02x)", *p - 127, *p);
        break;
    case PLEC_FIELD_UE4M3:
        fprintf(stream, " %s (0x%02x)",
                plec_real_text(text, (double)plec_e4m3_f32(*p & 0x7F), true), *p);
        break;
    case PLEC_FIELD_I8: fprintf(stream, " %d", (int8_t)*p); break;
    case PLEC_FIELD_I16: fprintf(stream, " %d", (int16_t)plec_load_u16(p)); break;
    case PLEC_FIELD_BYTES: fprintf(stream, " %02x", *p); break;
    }
}

void plec_put_field(FILE *stream, const struct plec_block_field *field, const uint8_t *p) {
    unsigned each = plec_field_bytes(field) / field->count;
    fputs(field->name, stream);
    for (unsigned i = 0; i < field->count; i++)
        put_one(stream, field->kind, p + field->at + i * each);
}
