#include "lyrw/gguf_type.h"

#include <stdio.h>
#include <strings.h>

#include "lyrw/format.h"

#define TYPE(id, name, elems, bytes)                                                               \
    { id, name, elems, bytes, false, false, false }
#define TYPE_REMOVED(id, name)                                                                     \
    { id, name, 0, 0, true, false, false }
#define TYPE_CODEBOOK(id, name, bytes)                                                             \
    { id, name, 256, bytes, false, true, false }
#define TYPE_INTERNAL(id, name, elems, bytes)                                                      \
    { id, name, elems, bytes, false, false, true }

/* By id; the position is the id. */
static const struct plec_gguf_type types[] = {
    TYPE(0, "f32", 1, 4),
    TYPE(1, "f16", 1, 2),
    TYPE(2, "q4_0", 32, 18),
    TYPE(3, "q4_1", 32, 20),
    TYPE_REMOVED(4, "q4_2"),
    TYPE_REMOVED(5, "q4_3"),
    TYPE(6, "q5_0", 32, 22),
    TYPE(7, "q5_1", 32, 24),
    TYPE(8, "q8_0", 32, 34),
    TYPE_INTERNAL(9, "q8_1", 32, 36),
    TYPE(10, "q2_K", 256, 84),
    TYPE(11, "q3_K", 256, 110),
    TYPE(12, "q4_K", 256, 144),
    TYPE(13, "q5_K", 256, 176),
    TYPE(14, "q6_K", 256, 210),
    TYPE_INTERNAL(15, "q8_K", 256, 292),
    TYPE_CODEBOOK(16, "iq2_xxs", 66),
    TYPE_CODEBOOK(17, "iq2_xs", 74),
    TYPE_CODEBOOK(18, "iq3_xxs", 98),
    TYPE_CODEBOOK(19, "iq1_s", 50),
    TYPE(20, "iq4_nl", 32, 18),
    TYPE_CODEBOOK(21, "iq3_s", 110),
    TYPE_CODEBOOK(22, "iq2_s", 82),
    TYPE(23, "iq4_xs", 256, 136),
    TYPE(24, "i8", 1, 1),
    TYPE(25, "i16", 1, 2),
    TYPE(26, "i32", 1, 4),
    TYPE(27, "i64", 1, 8),
    TYPE(28, "f64", 1, 8),
    TYPE_CODEBOOK(29, "iq1_m", 56),
    TYPE(30, "bf16", 1, 2),
    TYPE_REMOVED(31, "q4_0_4_4"),
    TYPE_REMOVED(32, "q4_0_4_8"),
    TYPE_REMOVED(33, "q4_0_8_8"),
    TYPE(34, "tq1_0", 256, 54),
    TYPE(35, "tq2_0", 256, 66),
    TYPE_REMOVED(36, "iq4_nl_4_4"),
    TYPE_REMOVED(37, "iq4_nl_4_8"),
    TYPE_REMOVED(38, "iq4_nl_8_8"),
    TYPE(39, "mxfp4", 32, 17),
    TYPE(40, "nvfp4", 64, 36),
    TYPE(41, "q1_0", 128, 18),
    TYPE(42, "q2_0", 64, 18),
};
enum { N_TYPES = sizeof types / sizeof types[0] };
_Static_assert(N_TYPES == 43, "the table is indexed by id: 0 to 42, none left out");

const struct plec_gguf_type *plec_gguf_type_find(uint32_t id) {
    return id < N_TYPES ? &types[id] : NULL;
}

const struct plec_gguf_type *plec_gguf_type_by_name(const char *name) {
    for (unsigned i = 0; i < N_TYPES; i++)
        if (strcasecmp(types[i].name, name) == 0) return &types[i];
    return NULL;
}

const char *plec_gguf_type_text(uint32_t id, char *buffer) {
    const struct plec_gguf_type *type = plec_gguf_type_find(id);
    if (type != NULL && !type->removed) return type->name;
    if (type != NULL)
        snprintf(buffer, PLEC_GGUF_TYPE_TEXT_MAX, "type %u (removed: %s)", id, type->name);
    else
        snprintf(buffer, PLEC_GGUF_TYPE_TEXT_MAX, "type %u (unknown)", id);
    return buffer;
}

/* Where LYRW has a tag of its own for the same bytes. */
static const struct {
    uint16_t tag, id;
} own_tags[] = {
    {PLEC_FORMAT_F32, PLEC_GGUF_TYPE_F32},   {PLEC_FORMAT_F16, PLEC_GGUF_TYPE_F16},
    {PLEC_FORMAT_BF16, PLEC_GGUF_TYPE_BF16}, {PLEC_FORMAT_Q4_0, PLEC_GGUF_TYPE_Q4_0},
    {PLEC_FORMAT_Q4_K, PLEC_GGUF_TYPE_Q4_K}, {PLEC_FORMAT_Q6_K, PLEC_GGUF_TYPE_Q6_K},
    {PLEC_FORMAT_Q8_0, PLEC_GGUF_TYPE_Q8_0},
};
enum { N_OWN_TAGS = sizeof own_tags / sizeof own_tags[0] };

bool plec_gguf_type_tag(uint16_t *tag, uint32_t id) {
    const struct plec_gguf_type *type = plec_gguf_type_find(id);
    if (type == NULL || type->removed) return false;
    for (unsigned i = 0; i < N_OWN_TAGS; i++)
        if (own_tags[i].id == id) {
            *tag = own_tags[i].tag;
            return true;
        }
    *tag = (uint16_t)(PLEC_FORMAT_GGUF_BASE | id);
    return true;
}

bool plec_gguf_type_of_tag(uint32_t *id, uint16_t tag) {
    for (unsigned i = 0; i < N_OWN_TAGS; i++)
        if (own_tags[i].tag == tag) {
            *id = own_tags[i].id;
            return true;
        }
    uint32_t low = tag & 0xFFu;
    const struct plec_gguf_type *type = plec_gguf_type_find(low);
    if ((tag & 0xFF00u) != PLEC_FORMAT_GGUF_BASE || type == NULL || type->removed) return false;
    for (unsigned i = 0; i < N_OWN_TAGS; i++)
        if (own_tags[i].id == low) return false; /* its bytes have a tag of LYRW's */
    *id = low;
    return true;
}

static const struct {
    const char *name;
    unsigned bytes;
} value_types[PLEC_GGUF_N_VALUE_TYPES] = {
    {"u8", 1},   {"i8", 1},     {"u16", 2},   {"i16", 2}, {"u32", 4}, {"i32", 4}, {"f32", 4},
    {"bool", 1}, {"string", 0}, {"array", 0}, {"u64", 8}, {"i64", 8}, {"f64", 8},
};

const char *plec_gguf_value_type_name(uint32_t type) {
    return type < PLEC_GGUF_N_VALUE_TYPES ? value_types[type].name : "unknown";
}

uint32_t plec_gguf_value_type_by_name(const char *name) {
    uint32_t type = 0;
    while (type < PLEC_GGUF_N_VALUE_TYPES && strcasecmp(value_types[type].name, name) != 0)
        type++;
    return type;
}

unsigned plec_gguf_value_bytes(uint32_t type) {
    return type < PLEC_GGUF_N_VALUE_TYPES ? value_types[type].bytes : 0;
}

static const char *const file_types[] = {
    [0] = "all f32",
    [1] = "mostly f16",
    [2] = "mostly q4_0",
    [3] = "mostly q4_1",
    [7] = "mostly q8_0",
    [8] = "mostly q5_0",
    [9] = "mostly q5_1",
    [10] = "mostly q2_K",
    [11] = "mostly q3_K, small",
    [12] = "mostly q3_K, medium",
    [13] = "mostly q3_K, large",
    [14] = "mostly q4_K, small",
    [15] = "mostly q4_K, medium",
    [16] = "mostly q5_K, small",
    [17] = "mostly q5_K, medium",
    [18] = "mostly q6_K",
    [19] = "mostly iq2_xxs",
    [20] = "mostly iq2_xs",
    [21] = "mostly q2_K, small",
    [22] = "mostly iq3_xs",
    [23] = "mostly iq3_xxs",
    [24] = "mostly iq1_s",
    [25] = "mostly iq4_nl",
    [26] = "mostly iq3_s",
    [27] = "mostly iq3_m",
    [28] = "mostly iq2_s",
    [29] = "mostly iq2_m",
    [30] = "mostly iq4_xs",
    [31] = "mostly iq1_m",
    [32] = "mostly bf16",
    [36] = "mostly tq1_0",
    [37] = "mostly tq2_0",
    [38] = "mxfp4 experts",
    [39] = "mostly nvfp4",
    [40] = "mostly q1_0",
    [41] = "mostly q2_0",
};

const char *plec_gguf_file_type_name(uint64_t value) {
    return value < sizeof file_types / sizeof file_types[0] ? file_types[value] : NULL;
}
