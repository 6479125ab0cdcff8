#include "lyrw/gguf_split.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash == NULL ? path : slash + 1;
}

/* -- names ----------------------------------------------------------------------------------- */

enum { SUFFIX_BYTES = 20 }; /* "-00001-of-00003.gguf" */

static bool five_digits(uint32_t *out, const char *text) {
    uint32_t value = 0;
    for (unsigned i = 0; i < 5; i++) {
        if (text[i] < '0' || text[i] > '9') return false;
        value = value * 10 + (uint32_t)(text[i] - '0');
    }
    *out = value;
    return true;
}

bool plec_gguf_shard_name_parse(struct plec_gguf_shard_name *out, const char *path) {
    size_t n = strlen(path);
    if (n < SUFFIX_BYTES) return false;
    const char *suffix = path + n - SUFFIX_BYTES;
    out->prefix_size = n - SUFFIX_BYTES;
    return suffix[0] == '-' && five_digits(&out->number, suffix + 1) &&
           memcmp(suffix + 6, "-of-", 4) == 0 && five_digits(&out->count, suffix + 10) &&
           strcmp(suffix + 15, ".gguf") == 0;
}

static char *shard_path(const char *path, const struct plec_gguf_shard_name *name, uint32_t i) {
    size_t room = name->prefix_size + SUFFIX_BYTES + 1;
    char *made = malloc(room);
    if (made == NULL) return NULL;
    memcpy(made, path, name->prefix_size);
    snprintf(made + name->prefix_size, SUFFIX_BYTES + 1, "-%05u-of-%05u.gguf", (i + 1) % 100000,
             name->count % 100000);
    return made;
}

/* Files cut with split, or uploaded in parts, carry no sign of it but their name. */
static bool looks_like_a_piece(const char *path) {
    const char *name = base_name(path), *part = strstr(name, "part");
    if (strstr(name, ".gguf-split-") != NULL || strstr(name, "-split-") != NULL) return true;
    return part != NULL && part[4] >= '0' && part[4] <= '9';
}

static void add_piece_hint(struct plec_error *err, const char *path) {
    if (looks_like_a_piece(path))
        plec_error_context(err, "the name looks like a piece of a file that was cut in parts: join "
                                "the parts first (cat)");
}

/* -- one shard ------------------------------------------------------------------------------- */

static enum plec_status open_shard(struct plec_gguf_shard *shard, struct plec_error *err) {
    enum plec_status status = plec_mapping_open(&shard->mapping, shard->path, err);
    if (status != PLEC_OK) return status;
    status = plec_gguf_parse(&shard->file, shard->mapping.data, shard->mapping.size, err);
    if (status != PLEC_OK) {
        plec_error_context(err, "%s", shard->path);
        plec_mapping_close(&shard->mapping);
        return status;
    }
    shard->present = true;
    return PLEC_OK;
}

static void close_shard(struct plec_gguf_shard *shard) {
    plec_gguf_close(&shard->file);
    plec_mapping_close(&shard->mapping);
    free(shard->path);
    memset(shard, 0, sizeof *shard);
}

static uint64_t split_key(const struct plec_gguf *file, const char *name, uint64_t otherwise) {
    uint64_t value = otherwise;
    (void)!plec_gguf_u64(&value, file, plec_gguf_find_key_named(file, name), 0, NULL);
    return value;
}

/* -- the set --------------------------------------------------------------------------------- */

static enum plec_status make_shards(struct plec_gguf_set *set, uint32_t n, struct plec_error *err) {
    set->shards = calloc(n, sizeof *set->shards);
    if (set->shards == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%u shards", n);
    set->n_shards = n;
    return PLEC_OK;
}

/* Opens the others beside shard `mine`, which is open already. */
static enum plec_status open_siblings(struct plec_gguf_set *set, const char *path,
                                      const struct plec_gguf_shard_name *name, uint32_t mine,
                                      struct plec_error *err) {
    for (uint32_t i = 0; i < set->n_shards; i++) {
        if (i == mine) continue;
        struct plec_gguf_shard *shard = &set->shards[i];
        shard->path = shard_path(path, name, i);
        if (shard->path == NULL)
            return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "the path of shard %u", i);
        struct plec_error fault;
        enum plec_status status = open_shard(shard, &fault);
        if (status == PLEC_NO_MEMORY || status == PLEC_IO) {
            if (err != NULL) *err = fault;
            return status;
        }
        shard->unreadable = status == PLEC_MALFORMED;
        if (shard->unreadable)
            plec_findings_add(&set->findings, PLEC_DEFECT, "SplitShardUnreadable", "%s",
                              fault.message);
    }
    return PLEC_OK;
}

enum { LIST_BYTES = 560 };

static bool is_missing(const struct plec_gguf_shard *shard) {
    return !shard->present && !shard->unreadable;
}

/* Writes the names of missing shards from i on, as full names or as numbers with runs collapsed;
 * returns the first that did not fit. A shard that is there but unreadable has its own finding. */
static uint32_t list_missing(char *list, const struct plec_gguf_set *set, uint32_t i, bool full) {
    size_t at = 0;
    list[0] = '\0';
    while (i < set->n_shards) {
        if (!is_missing(&set->shards[i])) {
            i++;
            continue;
        }
        uint32_t last = i;
        while (!full && last + 1 < set->n_shards && is_missing(&set->shards[last + 1]))
            last++;
        char part[LIST_BYTES];
        int n;
        if (full)
            n = snprintf(part, sizeof part, "%s%s", at == 0 ? "" : ", ",
                         base_name(set->shards[i].path));
        else
            n = snprintf(part, sizeof part, last > i ? "%s%05u-%05u" : "%s%05u",
                         at == 0 ? "" : ", ", i + 1, last + 1);
        if (n < 0 || at + (size_t)n >= LIST_BYTES) break;
        memcpy(list + at, part, (size_t)n + 1);
        at += (size_t)n;
        i = last + 1;
    }
    return i;
}

static void tell_missing(struct plec_gguf_set *set) {
    uint32_t n_missing = 0;
    for (uint32_t i = 0; i < set->n_shards; i++)
        n_missing += is_missing(&set->shards[i]);
    if (n_missing == 0) return;
    char list[LIST_BYTES];
    bool full = list_missing(list, set, 0, true) == set->n_shards;
    for (uint32_t i = 0; i < set->n_shards;) {
        uint32_t next = list_missing(list, set, i, full);
        if (next == i) break;
        plec_findings_add(&set->findings, PLEC_DEFECT, "SplitMissing",
                          "%u of %u files of the split set are missing: %s%s", n_missing,
                          set->n_shards, full ? "" : "numbers ", list);
        i = next;
    }
}

static void check_shard_keys(struct plec_gguf_set *set, uint32_t i) {
    const struct plec_gguf_shard *shard = &set->shards[i];
    const char *name = base_name(shard->path);
    uint64_t number = split_key(&shard->file, "split.no", UINT64_MAX);
    uint64_t count = split_key(&shard->file, "split.count", UINT64_MAX);
    if (number != i)
        plec_findings_add(&set->findings, PLEC_DEFECT, "SplitNumberMismatch",
                          "%s: its name says split.no %u, the file says %lld", name, i,
                          (long long)number);
    if (count != set->n_shards)
        plec_findings_add(&set->findings, PLEC_DEFECT, "SplitCountMismatch",
                          "%s: split.count is %lld, the set has %u", name, (long long)count,
                          set->n_shards);
}

/* split.tensors.count is the total of the set: only this sum catches a shard that lost some. */
static void check_tensor_sum(struct plec_gguf_set *set) {
    uint64_t found = 0;
    for (uint32_t i = 0; i < set->n_shards; i++) {
        if (!set->shards[i].present) return;
        found += set->shards[i].file.n_tensors;
    }
    for (uint32_t i = 0; i < set->n_shards; i++) {
        const struct plec_gguf *file = &set->shards[i].file;
        uint64_t stated = split_key(file, "split.tensors.count", UINT64_MAX);
        if (stated == UINT64_MAX || stated == found) continue;
        plec_findings_add(&set->findings, PLEC_DEFECT, "SplitTensorCount",
                          "%s: split.tensors.count is %llu, the shards hold %llu",
                          base_name(set->shards[i].path), (unsigned long long)stated,
                          (unsigned long long)found);
        return;
    }
}

static void gather_findings(struct plec_gguf_set *set) {
    for (uint32_t i = 0; i < set->n_shards; i++) {
        const struct plec_findings *list = &set->shards[i].file.findings;
        for (size_t k = 0; k < list->n_items; k++) {
            const struct plec_finding *item = &list->items[k];
            plec_findings_add(&set->findings, item->severity, item->name, "%s%s%s",
                              set->split ? base_name(set->shards[i].path) : "",
                              set->split ? ": " : "", item->text);
        }
    }
}

static struct plec_view tensor_name(const void *user, uint32_t index) {
    return ((const struct plec_gguf_set *)user)->tensors[index]->name;
}

static void tell_duplicate(struct plec_gguf_set *set, const struct plec_gguf_tensor *first,
                           const struct plec_gguf_tensor *again) {
    char name[PLEC_VIEW_TEXT_MAX];
    plec_findings_add(&set->findings, PLEC_DEFECT, "SplitDuplicateTensor",
                      "tensor \"%s\" is in %s and again in %s", plec_view_text(first->name, name),
                      base_name(set->shards[first->shard].path),
                      base_name(set->shards[again->shard].path));
}

static enum plec_status merge_tensors(struct plec_gguf_set *set, struct plec_error *err) {
    size_t n = 0;
    for (uint32_t i = 0; i < set->n_shards; i++)
        n += set->shards[i].file.n_tensors;
    set->tensors = malloc((n + 1) * sizeof *set->tensors);
    if (set->tensors == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a list of %zu tensors", n);
    for (uint32_t i = 0; i < set->n_shards; i++) {
        struct plec_gguf *file = &set->shards[i].file;
        for (uint32_t k = 0; k < file->n_tensors; k++) {
            file->tensors[k].shard = i;
            set->tensors[set->n_tensors] = &file->tensors[k];
            uint32_t twin;
            enum plec_status status = plec_name_index_add(&set->index, &twin, set->n_tensors, err);
            if (status != PLEC_OK) return status;
            if (twin != set->n_tensors) tell_duplicate(set, set->tensors[twin], &file->tensors[k]);
            set->n_tensors++;
        }
    }
    return PLEC_OK;
}

/* The set that the first file opened says it belongs to; false when its name does not fit its keys,
 * so that the others cannot be found (a finding tells). */
static bool name_fits(struct plec_gguf_set *set, struct plec_gguf_shard_name *name,
                      const char *path, uint64_t count, uint64_t number) {
    if (!plec_gguf_shard_name_parse(name, path)) {
        plec_findings_add(&set->findings, PLEC_DEFECT, "SplitRenamed",
                          "the file is part %llu of %llu of a split set, but its name %s does not "
                          "end in -%05llu-of-%05llu.gguf, so the others cannot be found",
                          (unsigned long long)number + 1, (unsigned long long)count,
                          base_name(path), (unsigned long long)number + 1,
                          (unsigned long long)count);
        return false;
    }
    if (name->count == count && (uint64_t)name->number == number + 1) return true;
    plec_findings_add(&set->findings, PLEC_DEFECT, "SplitNameMismatch",
                      "%s: the name says part %u of %u, the file says split.no %llu (part %llu) of "
                      "split.count %llu",
                      base_name(path), name->number, name->count, (unsigned long long)number,
                      (unsigned long long)number + 1, (unsigned long long)count);
    return false;
}

static enum plec_status open_others(struct plec_gguf_set *set, const char *path,
                                    struct plec_error *err) {
    const struct plec_gguf *first = &set->shards[0].file;
    uint64_t count = split_key(first, "split.count", 0);
    uint64_t number = split_key(first, "split.no", 0);
    if (count <= 1) return PLEC_OK;
    if (count > PLEC_GGUF_MAX_SHARDS)
        return plec_fail(err, PLEC_MALFORMED, "TooManyShards", "split.count is %llu; at most %d",
                         (unsigned long long)count, PLEC_GGUF_MAX_SHARDS);
    set->split = true;
    struct plec_gguf_shard_name name;
    if (number >= count) {
        plec_findings_add(&set->findings, PLEC_DEFECT, "SplitNumberMismatch",
                          "split.no is %llu of split.count %llu; numbers go from 0",
                          (unsigned long long)number, (unsigned long long)count);
        return PLEC_OK;
    }
    if (!name_fits(set, &name, path, count, number)) return PLEC_OK;

    struct plec_gguf_shard given = set->shards[0];
    free(set->shards);
    set->shards = NULL;
    set->n_shards = 0;
    enum plec_status status = make_shards(set, (uint32_t)count, err);
    if (status != PLEC_OK) {
        close_shard(&given);
        return status;
    }
    struct plec_gguf_shard *mine = &set->shards[number];
    mine->path = given.path;
    given.path = NULL;
    close_shard(&given); /* a reader is not moved: it is opened again in its place */
    status = open_shard(mine, err);
    if (status == PLEC_OK) status = open_siblings(set, path, &name, (uint32_t)number, err);
    if (status != PLEC_OK) return status;
    tell_missing(set);
    for (uint32_t i = 0; i < set->n_shards; i++)
        if (set->shards[i].present) check_shard_keys(set, i);
    check_tensor_sum(set);
    return PLEC_OK;
}

static enum plec_status open_all(struct plec_gguf_set *set, const char *path,
                                 struct plec_error *err) {
    enum plec_status status = make_shards(set, 1, err);
    if (status != PLEC_OK) return status;
    set->shards[0].path = strdup(path);
    if (set->shards[0].path == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a path");
    status = open_shard(&set->shards[0], err);
    if (status != PLEC_OK) {
        add_piece_hint(err, path);
        return status;
    }
    status = open_others(set, path, err);
    if (status != PLEC_OK) return status;
    gather_findings(set);
    return merge_tensors(set, err);
}

enum plec_status plec_gguf_set_open(struct plec_gguf_set *out, const char *path,
                                    enum plec_gguf_strictness strictness, struct plec_error *err) {
    memset(out, 0, sizeof *out);
    plec_name_index_init(&out->index, tensor_name, out);
    enum plec_status status = open_all(out, path, err);
    if (status == PLEC_OK && strictness == PLEC_GGUF_RUN) {
        status = plec_findings_to_error(&out->findings, PLEC_MALFORMED, err);
        if (status != PLEC_OK) {
            plec_error_context(err, "%s", path);
            add_piece_hint(err, path);
        }
    }
    if (status != PLEC_OK) plec_gguf_set_close(out);
    return status;
}

void plec_gguf_set_close(struct plec_gguf_set *set) {
    plec_name_index_free(&set->index);
    free(set->tensors);
    for (uint32_t i = 0; i < set->n_shards; i++)
        close_shard(&set->shards[i]);
    free(set->shards);
    plec_findings_clear(&set->findings);
    memset(set, 0, sizeof *set);
}

const struct plec_gguf *plec_gguf_set_main(const struct plec_gguf_set *set) {
    for (uint32_t i = 0; i < set->n_shards; i++)
        if (set->shards[i].present) return &set->shards[i].file;
    return NULL;
}

const struct plec_gguf_tensor *plec_gguf_set_find(const struct plec_gguf_set *set,
                                                  struct plec_view name) {
    uint32_t index = plec_name_index_find(&set->index, name);
    return index == UINT32_MAX ? NULL : set->tensors[index];
}

const struct plec_gguf *plec_gguf_set_file(const struct plec_gguf_set *set,
                                           const struct plec_gguf_tensor *tensor) {
    return &set->shards[tensor->shard].file;
}
