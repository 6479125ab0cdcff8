/* The mode floats: the numbers of a tensor of plain floats, and what becomes of them when the
 * padding in front of the data is forgotten: numbers still, and no error anywhere. */
#include "tools/plectrum/gguf_modes.h"

#include <math.h>
#include <string.h>

#include "lyrw/codec/bits.h"
#include "lyrw/cursor.h"
#include "lyrw/gguf_split.h"
#include "tools/plectrum/cli.h"
#include "tools/plectrum/gguf_text.h"
#include "tools/plectrum/json_stream.h"
#include "tools/plectrum/say_findings.h"

enum { SHOWN = 8 };

struct floats {
    const struct plec_gguf *file;
    const struct plec_gguf_tensor *tensor;
    uint64_t base, at; /* the place that offsets are counted from; where the reading starts */
    bool noalign;
    double first[SHOWN];
    uint64_t n_finite, n_small;
    double smallest, largest, sum;
};

static bool is_plain(uint32_t type) {
    return type == PLEC_GGUF_TYPE_F32 || type == PLEC_GGUF_TYPE_F16 ||
           type == PLEC_GGUF_TYPE_BF16 || type == PLEC_GGUF_TYPE_F64;
}

static double value_at(const uint8_t *p, uint32_t type) {
    struct plec_cursor cursor = plec_cursor_at(p, 8, 0);
    switch (type) {
    case PLEC_GGUF_TYPE_F16: return (double)plec_f16_f32(plec_load_u16(p));
    case PLEC_GGUF_TYPE_BF16: return (double)plec_bf16_f32(plec_load_u16(p));
    case PLEC_GGUF_TYPE_F64: return plec_cursor_f64(&cursor);
    default: return (double)plec_bits_f32(plec_load_u32(p));
    }
}

static void take_value(struct floats *floats, uint64_t i, double value) {
    if (i < SHOWN) floats->first[i] = value;
    if (!isfinite(value)) return;
    if (floats->n_finite++ == 0) floats->smallest = floats->largest = value;
    if (value < floats->smallest) floats->smallest = value;
    if (value > floats->largest) floats->largest = value;
    floats->n_small += fabs(value) < 100;
    floats->sum += value;
}

static void read_all(struct floats *floats) {
    uint32_t type = floats->tensor->type;
    unsigned each = plec_gguf_type_find(type)->block_bytes;
    const uint8_t *p = floats->file->data + floats->at;
    for (uint64_t i = 0; i < floats->tensor->n_elements; i++)
        take_value(floats, i, value_at(p + i * each, type));
}

static void print_real(const char *what, double value) {
    char text[PLEC_REAL_TEXT_MAX];
    printf("  %-26s %s\n", what, plec_real_text(text, value, false));
}

static void print_floats(const struct floats *floats) {
    const struct plec_gguf_tensor *tensor = floats->tensor;
    char text[PLEC_REAL_TEXT_MAX], name[PLEC_VIEW_TEXT_MAX], type[PLEC_GGUF_TYPE_TEXT_MAX];
    uint64_t n = tensor->n_elements, n_shown = n < SHOWN ? n : SHOWN;
    printf("%s, read as %s\n", plec_view_text(tensor->name, name),
           plec_gguf_type_text(tensor->type, type));
    printf("  %-26s %llu, %s\n", "tensor data at", (unsigned long long)floats->base,
           floats->noalign ? "where the info records end" : "the alignment applied");
    printf("  %-26s %llu\n", "tensor offset", (unsigned long long)tensor->offset);
    printf("  %-26s %llu\n", "read from", (unsigned long long)floats->at);
    printf("  %-26s %llu\n  the first %llu of them\n   ", "numbers", (unsigned long long)n,
           (unsigned long long)n_shown);
    for (uint64_t i = 0; i < n_shown; i++)
        printf(" %s", plec_real_text(text, floats->first[i], tensor->type != PLEC_GGUF_TYPE_F64));
    printf("\n");
    print_real("smallest", floats->smallest);
    print_real("largest", floats->largest);
    print_real("mean", floats->n_finite > 0 ? floats->sum / (double)floats->n_finite : 0);
    printf("  %-26s %llu\n", "not a number, or infinite",
           (unsigned long long)(n - floats->n_finite));
    printf("  %-26s %llu of %llu\n", "smaller than a hundred", (unsigned long long)floats->n_small,
           (unsigned long long)n);
}

static bool floats_json(const struct floats *floats) {
    struct plec_json_stream json = {.out = stdout};
    const struct plec_gguf_tensor *tensor = floats->tensor;
    uint64_t n = tensor->n_elements;
    plec_json_member(&json, "mode", json_string("floats"));
    plec_json_member(&json, "tensor", plec_json_of_view(tensor->name));
    plec_json_member(&json, "alignment_applied", json_boolean(!floats->noalign));
    plec_json_member(&json, "data_start", plec_json_of_u64(floats->base));
    plec_json_member(&json, "offset", plec_json_of_u64(tensor->offset));
    plec_json_member(&json, "read_from", plec_json_of_u64(floats->at));
    plec_json_member(&json, "numbers", plec_json_of_u64(n));
    plec_json_list_begin(&json, "first");
    for (uint64_t i = 0; i < n && i < SHOWN; i++)
        plec_json_list_item(&json, plec_json_real(floats->first[i]));
    plec_json_list_end(&json);
    plec_json_member(&json, "smallest", plec_json_real(floats->smallest));
    plec_json_member(&json, "largest", plec_json_real(floats->largest));
    plec_json_member(&json, "mean",
                     floats->n_finite > 0 ? plec_json_real(floats->sum / (double)floats->n_finite)
                                          : json_null());
    plec_json_member(&json, "not_finite", plec_json_of_u64(n - floats->n_finite));
    plec_json_member(&json, "below_hundred", plec_json_of_u64(floats->n_small));
    return plec_json_end(&json);
}

/* The tensor by name, checked to be one of plain floats inside the file. */
static enum plec_status find_floats(struct floats *floats, const struct plec_gguf_set *set,
                                    const char *name, struct plec_error *err) {
    char type[PLEC_GGUF_TYPE_TEXT_MAX];
    floats->tensor = plec_gguf_set_find(set, plec_view_of(name));
    if (floats->tensor == NULL)
        return plec_fail(err, PLEC_MISSING, "NoSuchTensor", "no tensor is named \"%s\"", name);
    floats->file = plec_gguf_set_file(set, floats->tensor);
    const uint8_t *bytes;
    enum plec_status status = plec_gguf_use_tensor(&bytes, floats->file, floats->tensor, err);
    if (status != PLEC_OK) return status;
    if (!is_plain(floats->tensor->type))
        return plec_fail(err, PLEC_UNSUPPORTED, "NotPlainFloats",
                         "tensor \"%s\" is %s; only f32, f16, bf16 and f64 are read here: see "
                         "gguf peek",
                         name, plec_gguf_type_text(floats->tensor->type, type));
    /* Counted from the end of the records every tensor still ends inside the file. */
    floats->base = floats->noalign ? floats->file->infos_end : floats->file->data_at;
    floats->at = floats->base + floats->tensor->offset;
    return PLEC_OK;
}

int plec_gguf_floats(const char *const *operands, const struct plec_gguf_options *options) {
    struct plec_gguf_set set;
    struct plec_error err;
    if (plec_gguf_set_open(&set, operands[0], PLEC_GGUF_LOOK, &err) != PLEC_OK)
        return plec_cli_error(&err);
    struct floats floats = {.noalign = options->noalign};
    int leave;
    if (find_floats(&floats, &set, operands[1], &err) != PLEC_OK) {
        plec_error_context(&err, "%s", operands[0]);
        leave = plec_cli_error(&err);
    } else {
        read_all(&floats);
        bool written = true;
        if (options->json)
            written = floats_json(&floats);
        else
            print_floats(&floats);
        leave = written ? plec_say_findings(operands[0], &set.findings) : PLEC_EXIT_MACHINE;
    }
    plec_gguf_set_close(&set);
    return leave;
}
