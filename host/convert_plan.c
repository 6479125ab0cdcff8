/* The plan of a conversion: every file with its size, the manifest, and a fingerprint of all that
 * decides what comes out. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/convert_parts.h"
#include "manifests/moe_build.h"

/* Changes when the same sources and options give other files than before. */
enum { FINGERPRINT_VERSION = 1 };

/* -- the parts of a layer --------------------------------------------------------------------- */

const struct plec_bank *plec_convert_bank_of(const struct plec_bound_layer *bound,
                                             enum plec_convert_part part) {
    const struct plec_layer *layer = &bound->layer;
    const struct plec_bank *bank = NULL;
    switch (part) {
    case PLEC_CONVERT_ROUTED: bank = bound->dense ? NULL : &layer->routed; break;
    case PLEC_CONVERT_SHARED: bank = &layer->shared; break;
    case PLEC_CONVERT_DENSE: bank = bound->dense ? &layer->routed : &layer->dense; break;
    default: break;
    }
    return bank != NULL && bank->n_entries > 0 ? bank : NULL;
}

enum plec_status plec_convert_shape_part(struct plec_convert_shape *out,
                                         const struct plec_bound_layer *bound,
                                         enum plec_convert_part part, uint32_t left,
                                         struct plec_error *err) {
    static const enum plec_bank_kind kinds[] = {PLEC_BANK_ROUTED, PLEC_BANK_SHARED,
                                                PLEC_BANK_DENSE};
    const struct plec_bank *bank = plec_convert_bank_of(bound, part);
    bool needed;
    if (bank != NULL) return plec_convert_shape_bank(out, bank, kinds[part], left, err);
    plec_convert_shape_control(out, &needed, bound);
    return PLEC_OK;
}

/* Bytes of a control file's regions: a table of ids has no codec that would say. */
static uint64_t control_bytes(const void *user, uint64_t slot) {
    const struct plec_convert_shape *shape = user;
    const struct plec_lyrw_schema *schema = &shape->schemas[slot];
    uint64_t n_bytes;
    if (plec_lyrw_schema_bytes(&n_bytes, schema)) return n_bytes;
    return (uint64_t)schema->rows * schema->cols * sizeof(int32_t);
}

struct plec_segment_plan plec_convert_segment_plan(const struct plec_convert_shape *shape,
                                                   const struct plec_lyrw_segment *record,
                                                   uint32_t layer, bool several,
                                                   const struct plec_convert_options *options,
                                                   uint32_t extent) {
    return (struct plec_segment_plan){
        .header = {.format_version = PLEC_LYRW_VERSION,
                   .logical_layer = layer,
                   .num_banks = 1,
                   .num_segments = 1,
                   .flags = several ? PLEC_LYRW_FLAG_MULTI_SEGMENT : 0},
        .banks = &shape->bank,
        .segments = record,
        .schemas = shape->schemas,
        .n_schemas = shape->bank.n_schemas,
        .order = options->order,
        .extent = extent,
        .length = shape->source == NULL ? control_bytes : NULL,
        .user = shape};
}

/* -- files ------------------------------------------------------------------------------------ */

static enum plec_status no_room(struct plec_error *err) {
    return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "the plan of a conversion");
}

static struct plec_convert_planned *new_file(struct plec_convert *convert) {
    if (convert->n_files == convert->files_room) {
        size_t room = convert->files_room == 0 ? 64 : convert->files_room * 2;
        struct plec_convert_planned *grown = realloc(convert->files, room * sizeof *grown);
        if (grown == NULL) return NULL;
        convert->files = grown;
        convert->files_room = room;
    }
    struct plec_convert_planned *file = &convert->files[convert->n_files++];
    memset(file, 0, sizeof *file);
    return file;
}

/* Experts are read by extents where a token chooses among them; the others are read whole. */
static uint32_t extent_of(const struct plec_convert *convert, enum plec_convert_part part) {
    if (part == PLEC_CONVERT_CONTROL) return 0;
    return part == PLEC_CONVERT_ROUTED ? convert->options.extent : 1;
}

/* One segment as a file. */
static enum plec_status add_file(struct plec_convert *convert,
                                 const struct plec_convert_shape *shape,
                                 const struct plec_convert_planned *like, struct plec_error *err) {
    struct plec_convert_planned *file = new_file(convert);
    if (file == NULL) return no_room(err);
    *file = *like;
    const struct plec_lyrw_segment record = {
        .index = file->segment, .first_entry = file->first_entry, .entry_count = file->n_entries};
    struct plec_segment_plan plan =
        plec_convert_segment_plan(shape, &record, convert->layers[file->layer],
                                  file->n_segments > 1, &convert->options, file->extent);
    struct plec_segment_layout layout;
    enum plec_status status = plec_segment_plan_layout(&layout, &plan, err);
    file->n_bytes = layout.file_bytes;
    convert->n_bytes += layout.file_bytes;
    uint64_t cap = convert->options.segment_cap;
    if (status == PLEC_OK && cap != 0 && layout.file_bytes > cap)
        status = plec_fail(err, PLEC_BAD_INPUT, "CapTooSmall",
                           "%s has %" PRIu64 " bytes, the cap is %" PRIu64, file->key,
                           layout.file_bytes, cap);
    if (file->n_segments > 1)
        snprintf(file->key + strlen(file->key), sizeof file->key - strlen(file->key), ".seg%02u",
                 file->segment);
    snprintf(file->name, sizeof file->name, "%s.lyrw", file->key);
    return status;
}

/* How a part's entries are shared out to files; a control file has one entry. */
static enum plec_status split_part(struct plec_segment_split *out,
                                   const struct plec_convert *convert,
                                   const struct plec_convert_shape *shape, uint32_t extent,
                                   struct plec_error *err) {
    *out = (struct plec_segment_split){1, 1, 1, 1};
    if (shape->source == NULL) return PLEC_OK;
    const struct plec_lyrw_segment whole = {.entry_count = shape->bank.num_entries};
    struct plec_segment_plan plan =
        plec_convert_segment_plan(shape, &whole, 0, false, &convert->options, extent);
    return plec_segment_plan_split(out, &plan, convert->options.segment_cap, err);
}

/* The files of a part. A bank is split by its repacked form, which is never the smaller one, so
 * that what scales decide later moves no boundary. */
static enum plec_status add_part(struct plec_convert *convert, const struct plec_bound_layer *bound,
                                 const struct plec_convert_names *names,
                                 enum plec_convert_part part, struct plec_error *err) {
    const struct plec_bank *bank = plec_convert_bank_of(bound, part);
    struct plec_convert_shape shape;
    struct plec_segment_split split;
    struct plec_convert_planned file = {.layer = convert->n_layers,
                                        .part = part,
                                        .extent = extent_of(convert, part),
                                        .repacks =
                                            bank != NULL && plec_convert_repackable(bank) != 0};
    memcpy(file.key, names->keys[part], sizeof file.key);
    enum plec_status status = plec_convert_shape_part(&shape, bound, part, 0, err);
    if (status == PLEC_OK) status = split_part(&split, convert, &shape, file.extent, err);
    if (status != PLEC_OK) return status;
    for (uint32_t i = 0; status == PLEC_OK && i < split.n_segments; i++) {
        file.segment = (uint16_t)i;
        file.n_segments = (uint16_t)split.n_segments;
        plec_segment_split_range(&file.first_entry, &file.n_entries, &split, i);
        status = add_file(convert, &shape, &file, err);
    }
    return status;
}

/* -- layers ----------------------------------------------------------------------------------- */

/* Tensor names as the source has them, where it names tensors. */
static void name_tensors(struct plec_convert_names *out, const struct plec_convert *convert,
                         const struct plec_layer_info *info) {
    bool gguf = plec_container_get_kind(convert->container) == PLEC_CONTAINER_GGUF;
    char prefix[32];
    snprintf(prefix, sizeof prefix, gguf ? "blk.%u" : "layers.%u", info->layer);
    const struct {
        char *to;
        const char *gguf, *other;
    } names[] = {
        {out->scores, "ffn_gate_inp.weight", "router.weight"},
        {out->gate_bias, "exp_probs_b.bias", "router.selection_bias"},
        {out->latent_in, "ffn_latent_down.weight", "latent_in"},
        {out->latent_out, "ffn_latent_up.weight", "latent_out"},
        {out->norm, "routed_norm", "routed_norm"},
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        snprintf(names[i].to, sizeof out->scores, "%s.%s", prefix,
                 gguf ? names[i].gguf : names[i].other);
}

static enum plec_status check_hidden_size(struct plec_convert *convert, uint32_t hidden_size,
                                          struct plec_error *err) {
    if (convert->hidden_size == 0) convert->hidden_size = hidden_size;
    if (convert->hidden_size == hidden_size) return PLEC_OK;
    return plec_fail(err, PLEC_UNSUPPORTED, "HiddenSizesDiffer",
                     "a hidden size of %u, the layers before have %u: a container has one",
                     hidden_size, convert->hidden_size);
}

static enum plec_status plan_bound(struct plec_convert *convert,
                                   const struct plec_bound_layer *bound,
                                   const struct plec_layer_info *info, struct plec_error *err) {
    struct plec_convert_names names;
    struct plec_convert_shape control;
    bool has_control;
    plec_convert_keys(&names, info->layer);
    name_tensors(&names, convert, info);
    plec_convert_shape_control(&control, &has_control, bound);
    enum plec_status status = check_hidden_size(convert, bound->layer.hidden_size, err);
    for (int part = 0; status == PLEC_OK && part < PLEC_CONVERT_CONTROL; part++)
        if (plec_convert_bank_of(bound, (enum plec_convert_part)part) != NULL)
            status = add_part(convert, bound, &names, (enum plec_convert_part)part, err);
    if (status == PLEC_OK && has_control)
        status = add_part(convert, bound, &names, PLEC_CONVERT_CONTROL, err);
    if (status != PLEC_OK) {
        plec_error_context(err, "layer %u", info->layer);
        return status;
    }
    return plec_convert_describe(convert->manifest, &names, bound, info->layer, has_control, err);
}

static bool wanted(const struct plec_convert_options *options, uint32_t layer) {
    return !options->some_layers || (layer >= options->first_layer && layer <= options->last_layer);
}

static enum plec_status plan_layer(struct plec_convert *convert, size_t i, struct plec_error *err) {
    struct plec_layer_info info;
    struct plec_bound_layer bound;
    plec_container_layer_info(&info, convert->container, i);
    if (!wanted(&convert->options, info.layer)) return PLEC_OK;
    enum plec_status status = plec_container_bind(&bound, convert->container, info.layer, err);
    if (status != PLEC_OK) return status;
    convert->layers[convert->n_layers] = info.layer;
    status = plan_bound(convert, &bound, &info, err);
    plec_bound_layer_close(&bound);
    convert->n_layers++;
    if (convert->last_layer < info.layer) convert->last_layer = info.layer;
    return status;
}

static enum plec_status plan_layers(struct plec_convert *convert, struct plec_error *err) {
    size_t n = plec_container_n_layers(convert->container);
    const struct plec_convert_options *options = &convert->options;
    convert->layers = calloc(n + 1, sizeof *convert->layers);
    if (convert->layers == NULL) return no_room(err);
    enum plec_status status = plec_moe_build(&convert->manifest, err);
    for (size_t i = 0; status == PLEC_OK && i < n; i++)
        status = plan_layer(convert, i, err);
    if (status != PLEC_OK || convert->n_layers > 0) return status;
    if (!options->some_layers)
        return plec_fail(err, PLEC_MISSING, "NoSuchLayer", "the source has nothing to run");
    return plec_fail(err, PLEC_MISSING, "NoSuchLayer",
                     "none of its %zu layers with something to run is from %u to %u", n,
                     options->first_layer, options->last_layer);
}

/* -- the fingerprint -------------------------------------------------------------------------- */

static enum plec_status list_inputs(struct plec_convert *convert, struct plec_error *err) {
    uint32_t n = plec_container_n_files(convert->container);
    convert->inputs = calloc((size_t)n + 1, sizeof *convert->inputs);
    if (convert->inputs == NULL) return no_room(err);
    for (uint32_t i = 0; i < n; i++) {
        struct plec_convert_input *input = &convert->inputs[i];
        struct stat info;
        input->fd = -1;
        input->path = plec_container_file_path(convert->container, i);
        convert->n_inputs++;
        if (stat(input->path, &info) != 0)
            return plec_fail(err, PLEC_MISSING, "CannotOpen", "%s: %s", input->path,
                             strerror(errno));
        input->size = (uint64_t)info.st_size;
        input->mtime_ns =
            (uint64_t)info.st_mtim.tv_sec * UINT64_C(1000000000) + (uint64_t)info.st_mtim.tv_nsec;
    }
    return PLEC_OK;
}

/* A hash of texts and numbers; the first failure sticks. */
struct hashing {
    struct plec_sha256_stream *stream;
    enum plec_status status;
    struct plec_error *err;
};

static void put(struct hashing *to, const char *text) {
    if (to->status == PLEC_OK) /* the end of each text too: "ab", "c" is not "a", "bc" */
        to->status = plec_sha256_update(to->stream, text, strlen(text) + 1, to->err);
}

static void put_number(struct hashing *to, uint64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    put(to, text);
}

static void put_inputs(struct hashing *to, const struct plec_convert *convert) {
    for (uint32_t i = 0; i < convert->n_inputs; i++) {
        const struct plec_convert_input *input = &convert->inputs[i];
        char *path = realpath(input->path, NULL);
        put(to, path != NULL ? path : input->path);
        put_number(to, input->size);
        put_number(to, input->mtime_ns);
        free(path);
    }
}

static void put_files(struct hashing *to, const struct plec_convert *convert) {
    for (size_t i = 0; i < convert->n_files; i++) {
        const struct plec_convert_planned *file = &convert->files[i];
        put(to, file->name);
        put_number(to, file->n_bytes);
        put_number(to, file->first_entry);
        put_number(to, file->n_entries);
        put_number(to, file->extent);
    }
}

/* Everything that decides what comes out. */
static void put_plan(struct hashing *to, const struct plec_convert *convert, const char *manifest) {
    put_number(to, FINGERPRINT_VERSION);
    put_number(to, (uint64_t)convert->options.order);
    put(to, convert->about.model);
    put(to, convert->about.family);
    put_number(to, convert->about.n_layers);
    put(to, manifest);
    put_inputs(to, convert);
    put_files(to, convert);
}

static enum plec_status make_fingerprint(struct plec_convert *convert, struct plec_error *err) {
    char *manifest = NULL;
    size_t n_bytes;
    struct hashing to = {.err = err};
    enum plec_status status = plec_json_format(&manifest, &n_bytes, convert->manifest, err);
    if (status == PLEC_OK) status = plec_sha256_open(&to.stream, err);
    if (status == PLEC_OK) {
        put_plan(&to, convert, manifest);
        status = to.status;
    }
    if (status == PLEC_OK) status = plec_sha256_finish(convert->fingerprint, to.stream, err);
    plec_sha256_close(to.stream);
    free(manifest);
    return status;
}

enum plec_status plec_convert_make_plan(struct plec_convert *convert, struct plec_error *err) {
    enum plec_status status = plan_layers(convert, err);
    if (status == PLEC_OK) status = list_inputs(convert, err);
    return status == PLEC_OK ? make_fingerprint(convert, err) : status;
}
