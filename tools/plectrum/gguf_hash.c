/* The mode hash: SHA-256 of every tensor, and of every expert when asked, as a manifest that can be
 * checked later: "<64 digits>  <tensor>[:<expert>]", one a line, in file order. */
#include "tools/plectrum/gguf_modes.h"

#include <stdlib.h>
#include <string.h>

#include "lyrw/atomic_file.h"
#include "lyrw/hash.h"
#include "tools/plectrum/cli.h"
#include "tools/plectrum/gguf_slab.h"
#include "tools/plectrum/gguf_text.h"
#include "tools/plectrum/json_stream.h"
#include "tools/plectrum/parallel.h"
#include "tools/plectrum/say_findings.h"

/* One line of a manifest. */
struct item {
    const struct plec_gguf_tensor *tensor;
    uint64_t expert; /* UINT64_MAX: the whole tensor */
    enum plec_status status;
    char digest[PLEC_SHA256_TEXT]; /* when status is PLEC_OK */
};

struct hashing {
    const struct plec_gguf_set *set;
    const char *path;
    struct item *items; /* [n_items] */
    size_t n_items;
    uint64_t n_bytes;
};

static uint64_t hash_item(void *user, size_t i) {
    struct hashing *hashing = user;
    struct item *item = &hashing->items[i];
    const struct plec_gguf *file = plec_gguf_set_file(hashing->set, item->tensor);
    const uint8_t *bytes;
    uint64_t n = item->tensor->n_bytes;
    item->status = plec_gguf_use_tensor(&bytes, file, item->tensor, NULL);
    /* Bytes of a type nobody knows are bytes still. */
    if (item->status == PLEC_UNSUPPORTED && !(item->tensor->flags & PLEC_GGUF_OUTSIDE_FILE)) {
        bytes = file->data + item->tensor->data_at;
        item->status = PLEC_OK;
    }
    if (item->status != PLEC_OK) return 0;
    if (item->expert != UINT64_MAX) {
        n /= plec_tensor_experts(item->tensor);
        bytes += item->expert * n;
    }
    item->status = plec_sha256(item->digest, bytes, (size_t)n, NULL);
    return n;
}

/* Experts that get lines of their own: along ne[2] of a tensor that has several and whole rows. */
static uint64_t experts_apart(const struct plec_gguf_tensor *tensor, bool experts) {
    uint64_t n = experts && tensor->flags == 0 ? plec_tensor_experts_apart(tensor) : 0;
    return n > 1 ? n : 0;
}

static bool list_items(struct hashing *hashing, bool experts) {
    const struct plec_gguf_set *set = hashing->set;
    size_t n = set->n_tensors;
    for (uint32_t i = 0; i < set->n_tensors; i++)
        n += experts_apart(set->tensors[i], experts);
    hashing->items = calloc(n + 1, sizeof *hashing->items);
    if (hashing->items == NULL) return false;
    for (uint32_t i = 0; i < set->n_tensors; i++) {
        const struct plec_gguf_tensor *tensor = set->tensors[i];
        hashing->items[hashing->n_items++] = (struct item){.tensor = tensor, .expert = UINT64_MAX};
        hashing->n_bytes += tensor->n_bytes;
        for (uint64_t e = 0; e < experts_apart(tensor, experts); e++)
            hashing->items[hashing->n_items++] = (struct item){.tensor = tensor, .expert = e};
        if (experts_apart(tensor, experts) > 0) hashing->n_bytes += tensor->n_bytes;
    }
    return true;
}

static void put_name(FILE *stream, const struct item *item) {
    plec_put_view(stream, item->tensor->name);
    if (item->expert != UINT64_MAX) fprintf(stream, ":%llu", (unsigned long long)item->expert);
}

/* Says which tensors have no hash; returns how many. */
static size_t say_unhashed(const struct hashing *hashing) {
    size_t n = 0;
    for (size_t i = 0; i < hashing->n_items; i++) {
        const struct item *item = &hashing->items[i];
        if (item->status == PLEC_OK || item->expert != UINT64_MAX) continue;
        char name[PLEC_VIEW_TEXT_MAX];
        if (n++ < 16)
            plec_cli_say("%s: not hashed: %s", hashing->path,
                         plec_view_text(item->tensor->name, name));
    }
    return n;
}

/* -- the manifest ---------------------------------------------------------------------------- */

static void put_manifest(FILE *stream, const struct hashing *hashing) {
    for (size_t i = 0; i < hashing->n_items; i++) {
        if (hashing->items[i].status != PLEC_OK) continue;
        fprintf(stream, "%s  ", hashing->items[i].digest);
        put_name(stream, &hashing->items[i]);
        fputc('\n', stream);
    }
}

static char *manifest_text(size_t *size, const struct hashing *hashing) {
    char *text = NULL;
    FILE *stream = open_memstream(&text, size);
    if (stream == NULL) return NULL;
    put_manifest(stream, hashing);
    if (fclose(stream) == 0) return text;
    free(text);
    return NULL;
}

static int write_manifest(const struct hashing *hashing, const char *path) {
    size_t size = 0;
    char *text = manifest_text(&size, hashing);
    struct plec_atomic_file file;
    struct plec_error err;
    enum plec_status status = text == NULL
                                  ? plec_fail(&err, PLEC_NO_MEMORY, "OutOfMemory", "a manifest")
                                  : plec_atomic_file_open(&file, path, &err);
    if (status == PLEC_OK) {
        status = plec_atomic_file_write(&file, 0, text, size, &err);
        if (status == PLEC_OK)
            status = plec_atomic_file_commit(&file, &err);
        else
            plec_atomic_file_abort(&file);
    }
    free(text);
    return status == PLEC_OK ? PLEC_EXIT_OK : plec_cli_error(&err);
}

static bool hash_json(const struct hashing *hashing) {
    struct plec_json_stream json = {.out = stdout};
    plec_json_member(&json, "mode", json_string("hash"));
    plec_json_list_begin(&json, "hashes");
    for (size_t i = 0; i < hashing->n_items; i++) {
        const struct item *item = &hashing->items[i];
        plec_json_list_item(
            &json,
            json_pack("{s:o, s:o, s:o}", "tensor", plec_json_of_view(item->tensor->name), "expert",
                      item->expert == UINT64_MAX ? json_null() : plec_json_of_u64(item->expert),
                      "sha256", item->status == PLEC_OK ? json_string(item->digest) : json_null()));
    }
    plec_json_list_end(&json);
    return plec_json_end(&json);
}

/* -- checking -------------------------------------------------------------------------------- */

/* A line of the manifest under check: digest and name are views into it. */
struct line {
    struct plec_view digest, name;
    bool seen;
};

struct manifest {
    struct plec_mapping mapping;
    struct line *lines; /* [n_lines] */
    uint32_t n_lines;
    struct plec_name_index index;
};

static struct plec_view line_name(const void *user, uint32_t i) {
    return ((const struct manifest *)user)->lines[i].name;
}

/* "<64 digits>  <name>" without its line feed. */
static bool parse_line(struct line *out, struct plec_view text) {
    if (text.size < 67 || text.data[64] != ' ' || text.data[65] != ' ') return false;
    for (unsigned i = 0; i < 64; i++)
        if (strchr("0123456789abcdef", text.data[i]) == NULL || text.data[i] == '\0') return false;
    *out = (struct line){{text.data, 64}, {text.data + 66, text.size - 66}, false};
    return true;
}

static enum plec_status add_line(struct manifest *manifest, struct plec_view text,
                                 struct plec_error *err) {
    uint32_t twin;
    uint32_t i = manifest->n_lines;
    if (!parse_line(&manifest->lines[i], text))
        return plec_fail(err, PLEC_MALFORMED, "BadManifest",
                         "line %u: wanted 64 hexadecimal digits, two spaces and a name", i + 1);
    enum plec_status status = plec_name_index_add(&manifest->index, &twin, i, err);
    if (status != PLEC_OK) return status;
    if (twin != i)
        return plec_fail(err, PLEC_MALFORMED, "BadManifest", "line %u: the name of line %u again",
                         i + 1, twin + 1);
    manifest->n_lines++;
    return PLEC_OK;
}

static enum plec_status read_manifest(struct manifest *manifest, const char *path,
                                      struct plec_error *err) {
    *manifest = (struct manifest){0};
    plec_name_index_init(&manifest->index, line_name, manifest);
    enum plec_status status = plec_mapping_open(&manifest->mapping, path, err);
    if (status != PLEC_OK) return status;
    const char *at = (const char *)manifest->mapping.data, *end = at + manifest->mapping.size;
    /* A line has at least 68 bytes with its line feed. */
    manifest->lines = malloc((size_t)(manifest->mapping.size / 68 + 2) * sizeof *manifest->lines);
    if (manifest->lines == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "the lines of %s", path);
    while (at < end && status == PLEC_OK) {
        const char *feed = memchr(at, '\n', (size_t)(end - at));
        const char *stop = feed == NULL ? end : feed;
        status = add_line(manifest, (struct plec_view){at, (uint64_t)(stop - at)}, err);
        at = stop + 1;
    }
    if (status != PLEC_OK) plec_error_context(err, "%s", path);
    return status;
}

static void free_manifest(struct manifest *manifest) {
    plec_name_index_free(&manifest->index);
    free(manifest->lines);
    plec_mapping_close(&manifest->mapping);
}

struct verdict {
    uint64_t n_same, n_changed, n_new, n_gone;
};

static void check_item(struct verdict *verdict, struct manifest *manifest,
                       const struct item *item) {
    char *name = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&name, &size);
    if (stream == NULL) return;
    put_name(stream, item);
    if (fclose(stream) != 0) size = 0;
    uint32_t i = plec_name_index_find(&manifest->index, (struct plec_view){name, size});
    if (i == UINT32_MAX) {
        /* An expert line is only expected where the manifest has experts. */
        if (item->expert == UINT64_MAX) {
            verdict->n_new++;
            printf("not in the manifest: %s\n", name);
        }
    } else {
        struct line *line = &manifest->lines[i];
        line->seen = true;
        if (item->status == PLEC_OK && plec_view_is(line->digest, item->digest)) {
            verdict->n_same++;
        } else {
            verdict->n_changed++;
            printf("changed: %s\n", name);
        }
    }
    free(name);
}

static int check_manifest(const struct hashing *hashing, struct manifest *manifest) {
    struct verdict verdict = {0, 0, 0, 0};
    for (size_t i = 0; i < hashing->n_items; i++)
        check_item(&verdict, manifest, &hashing->items[i]);
    for (uint32_t i = 0; i < manifest->n_lines; i++) {
        if (manifest->lines[i].seen) continue;
        verdict.n_gone++;
        printf("not in the model: ");
        plec_put_view(stdout, manifest->lines[i].name);
        printf("\n");
    }
    printf("%llu the same, %llu changed, %llu not in the manifest, %llu not in the model\n",
           (unsigned long long)verdict.n_same, (unsigned long long)verdict.n_changed,
           (unsigned long long)verdict.n_new, (unsigned long long)verdict.n_gone);
    bool good = verdict.n_same > 0 && verdict.n_changed + verdict.n_new + verdict.n_gone == 0;
    if (verdict.n_same == 0) plec_cli_say("%s: nothing was found the same", hashing->path);
    return good ? PLEC_EXIT_OK : PLEC_EXIT_FOUND;
}

/* -- the mode -------------------------------------------------------------------------------- */

static void hash_all(struct hashing *hashing) {
    struct plec_progress progress =
        plec_progress_start("hashing", hashing->n_bytes, PLEC_PROGRESS_BYTES);
    struct plec_parallel job = {hashing->n_items, hash_item, hashing, &progress};
    plec_parallel_run(&job);
    plec_progress_end(&progress);
}

static int show(struct hashing *hashing, const struct plec_gguf_options *options,
                struct manifest *manifest) {
    bool experts = options->experts;
    for (uint32_t i = 0; manifest != NULL && i < manifest->n_lines && !experts; i++)
        experts =
            memchr(manifest->lines[i].name.data, ':', (size_t)manifest->lines[i].name.size) != NULL;
    if (!list_items(hashing, experts)) {
        plec_cli_say("out of memory");
        return PLEC_EXIT_MACHINE;
    }
    hash_all(hashing);
    size_t n_unhashed = say_unhashed(hashing);
    int leave = PLEC_EXIT_OK;
    if (manifest != NULL)
        leave = check_manifest(hashing, manifest);
    else if (options->write != NULL)
        leave = write_manifest(hashing, options->write);
    else if (options->json)
        leave = hash_json(hashing) ? PLEC_EXIT_OK : PLEC_EXIT_MACHINE;
    else
        put_manifest(stdout, hashing);
    return leave == PLEC_EXIT_OK && n_unhashed > 0 ? PLEC_EXIT_FOUND : leave;
}

int plec_gguf_hash(const char *const *operands, const struct plec_gguf_options *options) {
    if (options->check != NULL && options->write != NULL) {
        plec_cli_say("gguf hash: --check and --write exclude each other");
        return PLEC_EXIT_USAGE;
    }
    struct plec_gguf_set set = {0};
    struct manifest manifest = {0};
    struct plec_error err;
    enum plec_status status = plec_gguf_set_open(&set, operands[0], PLEC_GGUF_LOOK, &err);
    if (status == PLEC_OK && options->check != NULL)
        status = read_manifest(&manifest, options->check, &err);
    int leave;
    if (status != PLEC_OK) {
        leave = plec_cli_error(&err);
    } else {
        struct hashing hashing = {.set = &set, .path = operands[0]};
        leave = show(&hashing, options, options->check != NULL ? &manifest : NULL);
        free(hashing.items);
        int judged = plec_say_findings(operands[0], &set.findings);
        if (leave == PLEC_EXIT_OK) leave = judged;
    }
    free_manifest(&manifest);
    plec_gguf_set_close(&set);
    return leave;
}
