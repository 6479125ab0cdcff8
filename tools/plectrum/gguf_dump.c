/* The mode dump: the header of a model as JSON, a few kilobytes that the modes head, meta, stack,
 * layer and account take in the model's place; with --check, whether such a dump is still right. */
#include "tools/plectrum/gguf_modes.h"

#include <stdlib.h>
#include <string.h>

#include "tools/plectrum/cli.h"
#include "tools/plectrum/gguf_sheet.h"
#include "tools/plectrum/json_stream.h"

struct text {
    char *data;
    size_t size;
};

static enum plec_status dump_text(struct text *out, const struct plec_sheet *sheet,
                                  struct plec_error *err) {
    FILE *stream = open_memstream(&out->data, &out->size);
    bool failed = stream == NULL;
    if (!failed) plec_sheet_write(stream, sheet);
    if (!failed) failed = ferror(stream) != 0;
    if (stream != NULL && fclose(stream) != 0) failed = true;
    return failed ? plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a dump") : PLEC_OK;
}

/* The dump of whatever stands at path. */
static enum plec_status dump_of(struct text *out, const char *path, struct plec_error *err) {
    struct plec_sheet sheet;
    enum plec_status status = plec_sheet_open(&sheet, path, err);
    if (status != PLEC_OK) return status;
    status = dump_text(out, &sheet, err);
    plec_sheet_close(&sheet);
    return status;
}

/* The first byte that differs; SIZE_MAX when none does. */
static size_t first_difference(const char *a, size_t n_a, const char *b, size_t n_b) {
    size_t n = n_a < n_b ? n_a : n_b;
    for (size_t i = 0; i < n; i++)
        if (a[i] != b[i]) return i;
    return n_a == n_b ? SIZE_MAX : n;
}

static bool say_comparison(const char *what, const struct plec_mapping *file, struct text made) {
    size_t at =
        first_difference((const char *)file->data, (size_t)file->size, made.data, made.size);
    if (at == SIZE_MAX) {
        printf("%s: the same %llu bytes\n", what, (unsigned long long)file->size);
        return true;
    }
    size_t line = 1;
    for (size_t i = 0; i < at; i++)
        line += made.data[i] == '\n';
    printf("%s: not the same: byte %zu, line %zu\n", what, at, line);
    return false;
}

static bool comparison_json(const struct plec_mapping *file, struct text again, struct text fresh) {
    size_t a =
        first_difference((const char *)file->data, (size_t)file->size, again.data, again.size);
    size_t b =
        first_difference((const char *)file->data, (size_t)file->size, fresh.data, fresh.size);
    struct plec_json_stream json = {.out = stdout};
    plec_json_member(&json, "mode", json_string("dump"));
    plec_json_member(&json, "bytes", json_integer((json_int_t)file->size));
    plec_json_member(&json, "written_again_same", json_boolean(a == SIZE_MAX));
    plec_json_member(&json, "model_same", json_boolean(b == SIZE_MAX));
    return plec_json_end(&json) && a == SIZE_MAX && b == SIZE_MAX;
}

/* Two comparisons, byte for byte: the dump against itself read and written again, and against the
 * model's header as it is now. */
static int check(const char *path, const char *dump, bool as_json) {
    struct text again = {NULL, 0}, fresh = {NULL, 0};
    struct plec_sheet sheet = {0};
    struct plec_mapping mapping = {NULL, 0};
    struct plec_error err;
    enum plec_status status = plec_sheet_read(&sheet, dump, &err);
    if (status == PLEC_OK) status = dump_text(&again, &sheet, &err);
    plec_sheet_close(&sheet);
    if (status == PLEC_OK) status = dump_of(&fresh, path, &err);
    if (status == PLEC_OK) status = plec_mapping_open(&mapping, dump, &err);
    int leave;
    if (status != PLEC_OK) {
        leave = plec_cli_error(&err);
    } else if (as_json) {
        leave = comparison_json(&mapping, again, fresh) ? PLEC_EXIT_OK : PLEC_EXIT_FOUND;
    } else {
        bool same = say_comparison("the dump, read and written again", &mapping, again);
        same = say_comparison("the dump, against the model", &mapping, fresh) && same;
        leave = same ? PLEC_EXIT_OK : PLEC_EXIT_FOUND;
    }
    plec_mapping_close(&mapping);
    free(again.data);
    free(fresh.data);
    return leave;
}

int plec_gguf_dump(const char *const *operands, const struct plec_gguf_options *options) {
    if (options->check != NULL) return check(operands[0], options->check, options->json);
    struct plec_sheet sheet;
    struct plec_error err;
    if (plec_sheet_open(&sheet, operands[0], &err) != PLEC_OK) return plec_cli_error(&err);
    plec_sheet_write(stdout, &sheet);
    int leave = plec_sheet_judge(&sheet);
    plec_sheet_close(&sheet);
    return leave;
}
