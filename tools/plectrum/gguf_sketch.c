/* The mode sketch: writes a small model whose every byte is known, reads it back with the reader
 * that everything else here trusts, and shows that the numbers are the same. */
#include "tools/plectrum/gguf_modes.h"

#include <stdlib.h>
#include <string.h>

#include "lyrw/cursor.h"
#include "lyrw/gguf_split.h"
#include "lyrw/gguf_write.h"
#include "tools/plectrum/cli.h"
#include "tools/plectrum/gguf_spans.h"
#include "tools/plectrum/gguf_text.h"
#include "tools/plectrum/json_stream.h"

/* Chosen so that the header ends on no boundary: a reader that forgets the padding is caught. */
static const float numbers[] = {0.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f};
enum { N_NUMBERS = sizeof numbers / sizeof numbers[0] };
static const char tensor_name[] = "blk.0.counts.weight";

static enum plec_status write_sketch(struct plec_gguf_writer *writer, const char *path,
                                     uint32_t alignment, struct plec_error *err) {
    static const char *const tokens[] = {"wheat", "sheep", "stone"};
    static const uint64_t ne[] = {3, 2};
    plec_gguf_put_string(writer, "general.architecture", "counts");
    plec_gguf_put_string(writer, "general.name", "one page about counting");
    plec_gguf_put_u32(writer, "general.alignment", alignment);
    plec_gguf_put_u32(writer, "counts.block_count", 1);
    plec_gguf_put_strings(writer, "counts.tokens", tokens, 3);
    plec_gguf_put_tensor(writer, plec_view_of(tensor_name), PLEC_GGUF_TYPE_F32, 2, ne, 0);
    uint8_t bytes[sizeof numbers];
    for (unsigned i = 0; i < N_NUMBERS; i++) {
        uint32_t bits;
        memcpy(&bits, &numbers[i], sizeof bits);
        plec_store_u32(bytes + 4 * i, bits);
    }
    enum plec_status status = plec_gguf_writer_begin(writer, path, err);
    if (status == PLEC_OK) status = plec_gguf_writer_data(writer, bytes, sizeof bytes, err);
    return status == PLEC_OK ? plec_gguf_writer_finish(writer, false, err) : status;
}

/* Six numbers from a place of the file; those that lie beyond its end are not numbers. */
static unsigned read_back(double out[N_NUMBERS], const struct plec_gguf *file, uint64_t at) {
    unsigned n_same = 0;
    struct plec_cursor cursor = plec_cursor_at(file->data, file->size, at);
    for (unsigned i = 0; i < N_NUMBERS; i++) {
        float value = plec_cursor_f32(&cursor);
        out[i] = (double)value;
        n_same += !cursor.failed && value == numbers[i];
    }
    return n_same;
}

static void print_numbers(const char *what, const double *values) {
    char text[PLEC_REAL_TEXT_MAX];
    printf("  %-8s [", what);
    for (unsigned i = 0; i < N_NUMBERS; i++)
        printf("%s%s", i > 0 ? " " : "", plec_real_text(text, values[i], true));
    printf("]\n");
}

/* What the keys and the one tensor say, out of the file and not out of what wrote it. */
static void print_found(const struct plec_gguf *file) {
    const struct plec_gguf_tensor *tensor = &file->tensors[0];
    const struct plec_gguf_key *tokens = plec_gguf_find_arch_key(file, "tokens");
    uint64_t n_blocks = 0;
    char name[PLEC_VIEW_TEXT_MAX], type[PLEC_GGUF_TYPE_TEXT_MAX], shape[PLEC_SHAPE_TEXT_MAX];
    if (plec_gguf_u64(&n_blocks, file, plec_gguf_find_arch_key(file, "block_count"), 0, NULL) !=
        PLEC_OK)
        n_blocks = 0;
    printf("  version %u, %u tensor, %u metadata entries, alignment %llu\n", file->version,
           file->n_tensors, file->n_keys, (unsigned long long)file->alignment);
    printf("  architecture %s, %llu block, %llu tokens named\n",
           plec_view_text(plec_gguf_architecture(file), name), (unsigned long long)n_blocks,
           tokens != NULL ? (unsigned long long)tokens->count : 0);
    printf("  %s, %s, %s: %llu weights, %llu bytes, at offset %llu\n",
           plec_view_text(tensor->name, name), plec_shape_text(shape, tensor->ne, tensor->n_dims),
           plec_gguf_type_text(tensor->type, type), (unsigned long long)tensor->n_elements,
           (unsigned long long)tensor->n_bytes, (unsigned long long)tensor->offset);
}

static void print_sketch(const struct plec_gguf *file, const struct plec_gguf_span *spans,
                         size_t n_spans, bool noalign) {
    char text[PLEC_SPAN_TEXT_MAX];
    double wanted[N_NUMBERS], found[N_NUMBERS];
    const struct plec_gguf_tensor *tensor = &file->tensors[0];
    printf("where every field went\n%10s %10s  %s\n", "at", "bytes", "field");
    for (size_t i = 0; i < n_spans; i++)
        printf("%10llu %10llu  %s\n", (unsigned long long)spans[i].at,
               (unsigned long long)spans[i].n_bytes, plec_span_text(text, &spans[i], file));
    printf("%llu bytes written\nwhat the reader found\n", (unsigned long long)file->size);
    print_found(file);
    printf("  last info record ends at %llu, padding %llu, tensor data starts at %llu\n",
           (unsigned long long)file->infos_end,
           (unsigned long long)(file->data_at - file->infos_end),
           (unsigned long long)file->data_at);
    printf("  %llu + %llu + %llu = %llu\n", (unsigned long long)file->infos_end,
           (unsigned long long)(file->data_at - file->infos_end),
           (unsigned long long)tensor->n_bytes,
           (unsigned long long)(file->data_at + tensor->n_bytes));
    for (unsigned i = 0; i < N_NUMBERS; i++)
        wanted[i] = (double)numbers[i];
    unsigned n_same =
        read_back(found, file, (noalign ? file->infos_end : file->data_at) + tensor->offset);
    printf(noalign ? "the numbers, read where the info records end, the alignment ignored\n"
                   : "the numbers, read at the alignment that the file states\n");
    print_numbers("written", wanted);
    print_numbers("read", found);
    printf("%u of %u numbers came back\n", n_same, N_NUMBERS);
}

static bool sketch_json(const struct plec_gguf *file, const struct plec_gguf_span *spans,
                        size_t n_spans) {
    struct plec_json_stream json = {.out = stdout};
    char text[PLEC_SPAN_TEXT_MAX];
    double found[N_NUMBERS];
    plec_json_member(&json, "mode", json_string("sketch"));
    plec_json_member(&json, "bytes", plec_json_of_u64(file->size));
    plec_json_member(&json, "alignment", plec_json_of_u64(file->alignment));
    plec_json_list_begin(&json, "spans");
    for (size_t i = 0; i < n_spans; i++)
        plec_json_list_item(&json, json_pack("{s:o, s:o, s:s}", "at", plec_json_of_u64(spans[i].at),
                                             "bytes", plec_json_of_u64(spans[i].n_bytes), "field",
                                             plec_span_text(text, &spans[i], file)));
    plec_json_list_end(&json);
    plec_json_member(&json, "numbers", json_integer(N_NUMBERS));
    plec_json_member(&json, "back", json_integer(read_back(found, file, file->data_at)));
    plec_json_member(&json, "back_noalign", json_integer(read_back(found, file, file->infos_end)));
    return plec_json_end(&json);
}

/* What was written, read again from the disk. */
static int show(struct plec_gguf_writer *writer, const char *path,
                const struct plec_gguf_options *options) {
    const struct plec_gguf_span *spans;
    size_t n_spans;
    struct plec_gguf_set set;
    struct plec_error err;
    if (plec_gguf_writer_spans(&spans, &n_spans, writer, &err) != PLEC_OK ||
        plec_gguf_set_open(&set, path, PLEC_GGUF_RUN, &err) != PLEC_OK)
        return plec_cli_error(&err);
    const struct plec_gguf *file = plec_gguf_set_main(&set);
    double found[N_NUMBERS];
    int leave = PLEC_EXIT_OK;
    if (options->json)
        leave = sketch_json(file, spans, n_spans) ? PLEC_EXIT_OK : PLEC_EXIT_MACHINE;
    else
        print_sketch(file, spans, n_spans, options->noalign);
    /* Whatever is shown, the numbers must be where the file says. */
    if (leave == PLEC_EXIT_OK && read_back(found, file, file->data_at) != N_NUMBERS)
        leave = PLEC_EXIT_FOUND;
    plec_gguf_set_close(&set);
    return leave;
}

int plec_gguf_sketch(const char *const *operands, const struct plec_gguf_options *options) {
    uint32_t a = options->align;
    if (a == 0 || (a & (a - 1)) != 0 || a > PLEC_GGUF_MAX_ALIGNMENT) {
        plec_cli_say("gguf sketch: --align %u: wanted a power of two, at most %d", a,
                     PLEC_GGUF_MAX_ALIGNMENT);
        return PLEC_EXIT_USAGE;
    }
    struct plec_error err;
    struct plec_gguf_writer *writer = plec_gguf_writer_new(a);
    if (writer == NULL) {
        plec_cli_say("out of memory");
        return PLEC_EXIT_MACHINE;
    }
    int leave = write_sketch(writer, operands[0], a, &err) == PLEC_OK
                    ? show(writer, operands[0], options)
                    : plec_cli_error(&err);
    plec_gguf_writer_free(writer);
    return leave;
}
