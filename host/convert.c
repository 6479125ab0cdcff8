#include "host/convert.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/convert_parts.h"
#include "manifests/index_build.h"

/* Reads of one thread wait for the disk: a few more than processors keep it busy. */
enum { MIN_THREADS = 4, MAX_DEFAULT_THREADS = 16 };

/* -- opening ---------------------------------------------------------------------------------- */

static enum plec_status check_options(const struct plec_convert_options *options,
                                      struct plec_error *err) {
    if (options->some_layers && options->first_layer > options->last_layer)
        return plec_fail(err, PLEC_BAD_INPUT, "BadLayers", "from %u to %u", options->first_layer,
                         options->last_layer);
    if (options->extent > PLEC_CONVERT_MAX_EXTENT)
        return plec_fail(err, PLEC_BAD_INPUT, "BadExtent", "%u entries, at most %d",
                         options->extent, PLEC_CONVERT_MAX_EXTENT);
    if (options->n_threads > PLEC_CONVERT_MAX_THREADS)
        return plec_fail(err, PLEC_BAD_INPUT, "BadThreads", "%u, at most %d", options->n_threads,
                         PLEC_CONVERT_MAX_THREADS);
    return PLEC_OK;
}

static uint32_t default_threads(void) {
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    if (n < MIN_THREADS) return MIN_THREADS;
    return n > MAX_DEFAULT_THREADS ? MAX_DEFAULT_THREADS : (uint32_t)n;
}

enum plec_status plec_convert_open(struct plec_convert **out, const char *source,
                                   const struct plec_convert_options *options,
                                   struct plec_error *err) {
    static const struct plec_convert_options defaults;
    if (options == NULL) options = &defaults;
    *out = NULL;
    enum plec_status status = check_options(options, err);
    if (status != PLEC_OK) return status;
    struct plec_convert *convert = calloc(1, sizeof *convert);
    if (convert == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%s", source);
    convert->options = *options;
    if (options->extent == 0) convert->options.extent = PLEC_CONVERT_EXTENT;
    convert->n_threads = options->n_threads != 0 ? options->n_threads : default_threads();
    status = plec_container_open(&convert->container, source, &options->source, err);
    if (status == PLEC_OK) {
        plec_container_get_about(&convert->about, convert->container);
        status = plec_convert_make_plan(convert, err);
        if (status != PLEC_OK) plec_error_context(err, "%s", source);
    }
    if (status != PLEC_OK) {
        plec_convert_close(convert);
        return status;
    }
    *out = convert;
    return PLEC_OK;
}

void plec_convert_close(struct plec_convert *convert) {
    if (convert == NULL) return;
    plec_convert_close_inputs(convert);
    json_decref(convert->manifest);
    free(convert->inputs);
    free(convert->files);
    free(convert->layers);
    plec_container_close(convert->container);
    free(convert);
}

size_t plec_convert_n_files(const struct plec_convert *convert) {
    return convert->n_files;
}

struct plec_convert_file plec_convert_file_at(const struct plec_convert *convert, size_t i) {
    const struct plec_convert_planned *file = &convert->files[i];
    return (struct plec_convert_file){file->name,        convert->layers[file->layer],
                                      file->first_entry, file->n_entries,
                                      file->extent,      file->n_bytes,
                                      file->repacks};
}

size_t plec_convert_n_layers(const struct plec_convert *convert) {
    return convert->n_layers;
}

uint64_t plec_convert_bytes(const struct plec_convert *convert) {
    return convert->n_bytes;
}

/* -- one file --------------------------------------------------------------------------------- */

/* A file whose bytes are all written: made durable beside the making of the next. */
struct pending {
    bool running;
    pthread_t thread;
    struct plec_atomic_file file;
    struct plec_convert_planned *planned;
    enum plec_status status;
    struct plec_error error;
};

struct run {
    struct plec_convert *convert;
    struct plec_convert_report *report;
    struct plec_convert_folder folder;
    struct pending pending;
};

static void *commit(void *user) {
    struct pending *pending = user;
    pending->status = plec_atomic_file_commit(&pending->file, &pending->error);
    return NULL;
}

/* Waits for the file before, and notes that it is whole. */
static enum plec_status settle(struct run *run, struct plec_error *err) {
    struct pending *pending = &run->pending;
    if (!pending->running) return PLEC_OK;
    pthread_join(pending->thread, NULL);
    pending->running = false;
    if (pending->status != PLEC_OK) {
        if (err != NULL) *err = pending->error;
        return pending->status;
    }
    pending->planned->whole = true;
    return plec_convert_folder_record(&run->folder, pending->planned, err);
}

/* Takes the file. */
static enum plec_status hand_over(struct run *run, struct plec_atomic_file *file,
                                  struct plec_convert_planned *planned, struct plec_error *err) {
    enum plec_status status = settle(run, err);
    if (status != PLEC_OK) {
        plec_atomic_file_abort(file);
        return status;
    }
    run->pending = (struct pending){.running = true, .file = *file, .planned = planned};
    if (pthread_create(&run->pending.thread, NULL, commit, &run->pending) == 0) return PLEC_OK;
    run->pending.running = false;
    plec_atomic_file_abort(&run->pending.file);
    return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "no thread could be started");
}

static enum plec_status write_image(struct run *run, const struct plec_convert_image *image,
                                    struct plec_convert_planned *planned, struct plec_error *err) {
    struct plec_atomic_file file;
    char *path = plec_convert_folder_path(&run->folder, planned->name, err);
    if (path == NULL) return PLEC_NO_MEMORY;
    enum plec_status status = plec_atomic_file_open(&file, path, err);
    free(path);
    if (status != PLEC_OK) return status;
    status = plec_atomic_file_reserve(&file, image->n_bytes, err);
    if (status == PLEC_OK)
        status = plec_convert_pipe(planned->sha256, run->convert, image, &file, err);
    if (status == PLEC_OK) return hand_over(run, &file, planned, err);
    plec_atomic_file_abort(&file);
    return status;
}

static enum plec_status make_file(struct run *run, const struct plec_convert_shape *shape,
                                  struct plec_convert_planned *planned, struct plec_error *err) {
    struct plec_convert_image image;
    enum plec_status status = plec_convert_image_open(&image, run->convert, shape, planned, err);
    if (status == PLEC_OK) status = write_image(run, &image, planned, err);
    plec_convert_image_close(&image);
    plec_convert_close_inputs(run->convert);
    /* What was planned larger than it became is no longer to come. */
    if (status == PLEC_OK) run->convert->done += planned->n_bytes - image.n_bytes;
    if (status != PLEC_OK) plec_error_context(err, "%s", planned->name);
    return status;
}

/* -- layers ----------------------------------------------------------------------------------- */

static void count_matrices(struct plec_convert_report *report, uint32_t repackable, uint32_t left,
                           uint32_t n_entries) {
    for (int id = 0; id < PLEC_N_MATRICES; id++) {
        if ((repackable >> id & 1) == 0) continue;
        if (left >> id & 1)
            report->n_left += n_entries;
        else
            report->n_repacked += n_entries;
    }
}

/* The files [first, end) of one part of a layer that are not whole yet. */
static enum plec_status make_part(struct run *run, const struct plec_bound_layer *bound,
                                  size_t first, size_t end, struct plec_error *err) {
    struct plec_convert *convert = run->convert;
    struct plec_convert_planned *files = convert->files;
    const struct plec_bank *bank = plec_convert_bank_of(bound, files[first].part);
    struct plec_convert_shape shape;
    uint32_t left = 0, repackable = bank != NULL ? plec_convert_repackable(bank) : 0;
    while (first < end && files[first].whole)
        first++;
    if (first == end) return PLEC_OK;
    enum plec_status status = bank != NULL ? plec_convert_scan(&left, convert, bank, err) : PLEC_OK;
    if (status == PLEC_OK)
        status = plec_convert_shape_part(&shape, bound, files[first].part, left, err);
    for (size_t i = first; status == PLEC_OK && i < end; i++) {
        if (files[i].whole) continue;
        status = make_file(run, &shape, &files[i], err);
        if (status == PLEC_OK) count_matrices(run->report, repackable, left, files[i].n_entries);
    }
    return status;
}

static bool all_whole(const struct plec_convert_planned *files, size_t first, size_t end) {
    while (first < end && files[first].whole)
        first++;
    return first == end;
}

/* The files [first, end) of one layer. */
static enum plec_status make_layer(struct run *run, size_t first, size_t end,
                                   struct plec_error *err) {
    struct plec_convert *convert = run->convert;
    const struct plec_convert_planned *files = convert->files;
    struct plec_bound_layer bound;
    if (all_whole(files, first, end)) return PLEC_OK;
    enum plec_status status =
        plec_container_bind(&bound, convert->container, convert->layers[files[first].layer], err);
    if (status != PLEC_OK) return status;
    for (size_t i = first, next; status == PLEC_OK && i < end; i = next) {
        for (next = i; next < end && files[next].part == files[i].part; next++)
            continue;
        status = make_part(run, &bound, i, next, err);
    }
    plec_convert_close_inputs(convert);
    plec_bound_layer_close(&bound);
    return status;
}

static enum plec_status make_layers(struct run *run, struct plec_error *err) {
    const struct plec_convert *convert = run->convert;
    const struct plec_convert_planned *files = convert->files;
    enum plec_status status = PLEC_OK;
    for (size_t i = 0, next; status == PLEC_OK && i < convert->n_files; i = next) {
        for (next = i; next < convert->n_files && files[next].layer == files[i].layer; next++)
            continue;
        status = make_layer(run, i, next, err);
    }
    /* What is written is made whole also when a later file failed. */
    enum plec_status settled = settle(run, status == PLEC_OK ? err : NULL);
    return status != PLEC_OK ? status : settled;
}

/* -- manifests -------------------------------------------------------------------------------- */

static int hex_digit(char c) {
    return c <= '9' ? c - '0' : c - 'a' + 10;
}

static enum plec_status add_hash(json_t *index, const char *file, const char *hex,
                                 struct plec_error *err) {
    uint8_t digest[PLEC_SHA256_BYTES];
    for (int i = 0; i < PLEC_SHA256_BYTES; i++)
        digest[i] = (uint8_t)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
    return plec_index_build_sha256(index, file, digest, err);
}

static enum plec_status store(const struct run *run, const char *name, const json_t *document,
                              struct plec_error *err) {
    char *path = plec_convert_folder_path(&run->folder, name, err);
    if (path == NULL) return PLEC_NO_MEMORY;
    enum plec_status status = plec_json_store(path, document, err);
    free(path);
    return status;
}

static enum plec_status hash_manifest(char sha256[PLEC_SHA256_TEXT], const json_t *manifest,
                                      struct plec_error *err) {
    char *text;
    size_t n_bytes;
    enum plec_status status = plec_json_format(&text, &n_bytes, manifest, err);
    if (status != PLEC_OK) return status;
    status = plec_sha256(sha256, text, n_bytes, err);
    free(text);
    return status;
}

static enum plec_status fill_index(json_t *index, const struct plec_convert *convert,
                                   struct plec_error *err) {
    char sha256[PLEC_SHA256_TEXT];
    enum plec_status status = PLEC_OK;
    for (size_t i = 0; status == PLEC_OK && i < convert->n_files; i++)
        status = plec_index_build_segment(index, convert->files[i].key, err);
    for (size_t i = 0; status == PLEC_OK && i < convert->n_files; i++)
        status = add_hash(index, convert->files[i].name, convert->files[i].sha256, err);
    if (status == PLEC_OK) status = hash_manifest(sha256, convert->manifest, err);
    if (status == PLEC_OK) status = add_hash(index, "moe_manifest.json", sha256, err);
    for (size_t i = 0; status == PLEC_OK && i < convert->n_files; i++)
        if (convert->files[i].extent != 0)
            status = plec_index_build_extent(index, convert->files[i].key, convert->files[i].extent,
                                             err);
    return status;
}

/* The manifest, then the index: with it DST becomes a container. */
static enum plec_status store_manifests(const struct run *run, struct plec_error *err) {
    const struct plec_convert *convert = run->convert;
    uint32_t n_layers = convert->about.n_layers;
    if (n_layers <= convert->last_layer) n_layers = convert->last_layer + 1;
    const struct plec_index_build_args args = {.model = convert->about.model,
                                               .family = convert->about.family,
                                               .hidden_size = convert->hidden_size,
                                               .num_layers = n_layers,
                                               .moe_manifest = "moe_manifest.json",
                                               .derived_from_model = convert->about.derived_from,
                                               .derived = convert->about.derived};
    json_t *index;
    enum plec_status status = plec_index_build(&index, &args, err);
    if (status != PLEC_OK) return status;
    status = fill_index(index, convert, err);
    if (status == PLEC_OK) status = store(run, "moe_manifest.json", convert->manifest, err);
    if (status == PLEC_OK) status = store(run, "index.json", index, err);
    json_decref(index);
    return status;
}

/* -- running ---------------------------------------------------------------------------------- */

static void count_kept(struct run *run) {
    struct plec_convert *convert = run->convert;
    struct plec_convert_report *report = run->report;
    *report = (struct plec_convert_report){
        .n_layers = convert->n_layers, .n_files = convert->n_files, .bytes = convert->n_bytes};
    convert->done = 0;
    for (size_t i = 0; i < convert->n_files; i++) {
        if (!convert->files[i].whole) continue;
        report->n_kept++;
        report->bytes_kept += convert->files[i].n_bytes;
        convert->done += convert->files[i].n_bytes;
    }
}

enum plec_status plec_convert_run(struct plec_convert_report *out, struct plec_convert *convert,
                                  const char *destination, struct plec_error *err) {
    struct run run = {.convert = convert, .report = out};
    memset(out, 0, sizeof *out);
    enum plec_status status = plec_convert_folder_open(&run.folder, destination, convert, err);
    if (status == PLEC_OK) {
        count_kept(&run);
        status = make_layers(&run, err);
    }
    if (status == PLEC_OK) status = store_manifests(&run, err);
    if (status == PLEC_OK) status = plec_convert_folder_finish(&run.folder, err);
    if (status != PLEC_OK) plec_error_context(err, "%s", destination);
    plec_convert_folder_close(&run.folder);
    return status;
}
