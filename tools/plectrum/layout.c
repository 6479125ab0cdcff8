/* layout.c: `plectrum layout`: lays a bank out on paper. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lyrw/cursor.h"
#include "lyrw/segment_plan.h"
#include "tools/plectrum/cli.h"
#include "tools/plectrum/commands.h"
#include "tools/plectrum/units.h"

static const struct plec_cli_command command = {
    .name = "layout",
    .summary = "lay a bank out on paper: bytes of tables, payload, extents and files",
    .synopsis = "layout --experts N --input N --intermediate N --output N\n"
                "    --regions ROLE:FORMAT[,...] [--paired] [--segment-cap SIZE] [--extent N]\n"
                "    [--json]",
    .description =
        "Says how large the LYRW v2 files of one bank would be, part by part, before any byte is "
        "written. Sizes of matrices follow from the role: gate and up are intermediate x input, "
        "gate_up_fused is 2 * intermediate x input, down is output x intermediate. The columns of "
        "down are padded to whole blocks of its format, as files store it.\n\n"
        "Sizes have one decimal in KiB and MiB and two in GiB; the JSON object has exact bytes.",
    .exit_status = "0  done",
    .examples = "$ plectrum layout --experts 32 --input 2048 --intermediate 6144 \\\n"
                "    --output 2048 --regions gate_up_fused:mxfp4,down:mxfp4 --paired\n"
                "$ plectrum layout --experts 896 --input 3584 --intermediate 3072 \\\n"
                "    --output 3584 --regions gate_up_fused:q6_k,down:q6_k \\\n"
                "    --segment-cap 20GiB --extent 16",
};

/* Matrices and biases a bank may be asked for, and how their shape follows from the widths. */
enum shape { INTER_BY_INPUT, TWICE_INTER_BY_INPUT, OUTPUT_BY_INTER, INTER, TWICE_INTER, OUTPUT };

static const struct {
    const char *name;
    uint16_t role;
    enum shape shape;
} roles[] = {
    {"gate", PLEC_ROLE_GATE, INTER_BY_INPUT},
    {"up", PLEC_ROLE_UP, INTER_BY_INPUT},
    {"gate_up_fused", PLEC_ROLE_GATE_UP_FUSED, TWICE_INTER_BY_INPUT},
    {"down", PLEC_ROLE_DOWN, OUTPUT_BY_INTER},
    {"gate_bias", PLEC_ROLE_BIAS, INTER},
    {"up_bias", PLEC_ROLE_BIAS, INTER},
    {"gate_up_bias", PLEC_ROLE_BIAS, TWICE_INTER},
    {"down_bias", PLEC_ROLE_BIAS, OUTPUT},
};
enum { N_ROLES = sizeof roles / sizeof roles[0], REGIONS_MAX = 16 };

struct widths {
    uint32_t experts, input, intermediate, output;
};

/* One file of the plan. */
struct file {
    uint32_t first_entry, n_entries;
    struct plec_segment_layout layout;
};

struct plan {
    struct widths widths;
    struct plec_lyrw_schema schemas[REGIONS_MAX];
    uint64_t bytes[REGIONS_MAX];
    uint32_t n_schemas;
    uint64_t parameters;  /* of the matrices and biases of one expert, padding not counted */
    uint64_t entry_bytes; /* of its regions */
    uint32_t padded_down; /* columns of down where they exceed intermediate; else 0 */
    uint32_t extent;      /* 0: none */
    struct plec_segment_split split;
    struct file *files; /* [split.n_segments] */
};

static void set_shape(struct plec_lyrw_schema *schema, struct plan *plan, enum shape shape,
                      const struct plec_format *format) {
    const struct widths *w = &plan->widths;
    schema->rows = 1;
    switch (shape) {
    case INTER_BY_INPUT: schema->rows = w->intermediate, schema->cols = w->input; break;
    case TWICE_INTER_BY_INPUT: schema->rows = 2 * w->intermediate, schema->cols = w->input; break;
    case OUTPUT_BY_INTER: schema->rows = w->output, schema->cols = w->intermediate; break;
    case INTER: schema->cols = w->intermediate; break;
    case TWICE_INTER: schema->cols = 2 * w->intermediate; break;
    case OUTPUT: schema->cols = w->output; break;
    }
    plan->parameters += (uint64_t)schema->rows * schema->cols;
    uint32_t ragged = schema->cols % format->block_elems;
    if (shape == OUTPUT_BY_INTER && ragged != 0) {
        schema->cols += format->block_elems - ragged;
        plan->padded_down = schema->cols;
    }
}

/* Adds the region "role:format". */
static int add_region(struct plan *plan, const char *role, const char *format_name) {
    const struct plec_format *format = plec_format_by_name(format_name);
    if (format == NULL) return plec_cli_usage(&command, "--regions: no format '%s'", format_name);
    size_t i = 0;
    while (i < N_ROLES && strcmp(roles[i].name, role) != 0)
        i++;
    if (i == N_ROLES)
        return plec_cli_usage(&command,
                              "--regions: no role '%s'; there are gate, up, gate_up_fused, down, "
                              "gate_bias, up_bias, gate_up_bias, down_bias",
                              role);
    if (plan->n_schemas == REGIONS_MAX)
        return plec_cli_usage(&command, "--regions: more than %d regions", REGIONS_MAX);
    struct plec_lyrw_schema *schema = &plan->schemas[plan->n_schemas];
    *schema = (struct plec_lyrw_schema){
        .index = (uint16_t)plan->n_schemas,
        .role = roles[i].role,
        .format = format->tag,
        .layout = roles[i].role == PLEC_ROLE_GATE_UP_FUSED ? PLEC_LAYOUT_CONTIGUOUS_HALVES
                                                           : PLEC_LAYOUT_UNSPECIFIED,
        .packing = format->block_elems == 1 ? PLEC_PACKING_ROW_MAJOR : PLEC_PACKING_BLOCKS_INLINE,
        .pair_id = PLEC_LYRW_UNPAIRED};
    set_shape(schema, plan, roles[i].shape, format);
    plan->n_schemas++;
    return PLEC_CLI_GO_ON;
}

static int add_regions(struct plan *plan, const char *text) {
    char copy[512];
    if (strlen(text) >= sizeof copy) return plec_cli_usage(&command, "--regions is too long");
    strcpy(copy, text);
    for (char *part = copy, *next; part != NULL; part = next) {
        next = strchr(part, ',');
        if (next != NULL) *next++ = '\0';
        char *colon = strchr(part, ':');
        if (colon == NULL)
            return plec_cli_usage(&command, "--regions wants ROLE:FORMAT, found '%s'", part);
        *colon = '\0';
        int leave = add_region(plan, part, colon + 1);
        if (leave != PLEC_CLI_GO_ON) return leave;
    }
    return PLEC_CLI_GO_ON;
}

/* Gives every matrix with a scale stream of its own a second region, all scales after all values,
 * in the order of the values. */
static int pair_up(struct plan *plan) {
    uint32_t n_values = plan->n_schemas;
    uint16_t pair_id = 0;
    for (uint32_t i = 0; i < n_values; i++) {
        struct plec_lyrw_schema *values = &plan->schemas[i];
        if (plec_format_find(values->format)->geometry != PLEC_PAIRED) continue;
        if (plan->n_schemas == REGIONS_MAX)
            return plec_cli_usage(&command, "--regions: more than %d regions", REGIONS_MAX);
        values->packing = PLEC_PACKING_BLOCKS_VALUES;
        values->pair_id = ++pair_id;
        struct plec_lyrw_schema *scales = &plan->schemas[plan->n_schemas];
        *scales = *values;
        scales->index = (uint16_t)plan->n_schemas++;
        scales->role = PLEC_ROLE_SCALES;
        scales->layout = PLEC_LAYOUT_UNSPECIFIED;
        scales->packing = PLEC_PACKING_BLOCKS_SCALES;
    }
    if (pair_id == 0)
        return plec_cli_usage(&command, "--paired: no region has a format whose scales are a "
                                        "stream of their own (mxfp4, mxfp8)");
    return PLEC_CLI_GO_ON;
}

static int measure(struct plan *plan) {
    for (uint32_t i = 0; i < plan->n_schemas; i++) {
        struct plec_lyrw_schema *schema = &plan->schemas[i];
        char name[PLEC_NAME_MAX];
        if (!plec_lyrw_schema_bytes(&plan->bytes[i], schema))
            return plec_cli_usage(&command, "%s: %u columns are no whole blocks of %s (%u)",
                                  plec_role_name(schema->role, name), schema->cols,
                                  plec_format_find(schema->format)->name,
                                  plec_format_find(schema->format)->block_elems);
        if (!plec_add_u64(&plan->entry_bytes, plan->entry_bytes, plan->bytes[i]))
            return plec_cli_usage(&command, "an expert is larger than 2^64 bytes");
    }
    return PLEC_CLI_GO_ON;
}

static json_t *regions_json(const struct plan *plan) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < plan->n_schemas; i++) {
        const struct plec_lyrw_schema *schema = &plan->schemas[i];
        char role[PLEC_NAME_MAX], format[PLEC_NAME_MAX], packing[PLEC_NAME_MAX];
        json_array_append_new(
            list,
            json_pack("{s:s, s:s, s:s, s:I, s:I, s:I}", "role", plec_role_name(schema->role, role),
                      "format", plec_format_name(schema->format, format), "packing",
                      plec_packing_name(schema->packing, packing), "rows", (json_int_t)schema->rows,
                      "cols", (json_int_t)schema->cols, "bytes", (json_int_t)plan->bytes[i]));
    }
    return list;
}

/* What a file plan points to. */
struct records {
    struct plec_lyrw_bank bank;
    struct plec_lyrw_segment segment;
};

/* The plan of a file with n_entries of the bank; views of plan and records. */
static struct plec_segment_plan plan_file(struct records *records, const struct plan *plan,
                                          uint32_t first_entry, uint32_t n_entries,
                                          uint32_t extent) {
    const struct widths *w = &plan->widths;
    records->bank = (struct plec_lyrw_bank){.kind = PLEC_BANK_ROUTED,
                                            .n_schemas = (uint16_t)plan->n_schemas,
                                            .num_entries = w->experts,
                                            .input_dim = w->input,
                                            .intermediate_dim = w->intermediate,
                                            .output_dim = w->output};
    records->segment =
        (struct plec_lyrw_segment){.first_entry = first_entry, .entry_count = n_entries};
    return (struct plec_segment_plan){
        .header = {.format_version = PLEC_LYRW_VERSION, .num_banks = 1, .num_segments = 1},
        .banks = &records->bank,
        .segments = &records->segment,
        .schemas = plan->schemas,
        .n_schemas = plan->n_schemas,
        .extent = extent};
}

static enum plec_status lay_out(struct plec_segment_layout *out, const struct plan *plan,
                                uint32_t first_entry, uint32_t n_entries, uint32_t extent,
                                struct plec_error *err) {
    struct records records;
    struct plec_segment_plan file = plan_file(&records, plan, first_entry, n_entries, extent);
    return plec_segment_plan_layout(out, &file, err);
}

static enum plec_status split(struct plan *plan, uint64_t cap, struct plec_error *err) {
    struct records records;
    struct plec_segment_plan whole =
        plan_file(&records, plan, 0, plan->widths.experts, plan->extent);
    return plec_segment_plan_split(&plan->split, &whole, cap, err);
}

static enum plec_status lay_out_files(struct plan *plan, struct plec_error *err) {
    uint32_t n = plan->split.n_segments;
    plan->files = calloc(n, sizeof *plan->files);
    if (plan->files == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%u files", n);
    enum plec_status status = PLEC_OK;
    for (uint32_t i = 0; status == PLEC_OK && i < n; i++) {
        struct file *file = &plan->files[i];
        plec_segment_split_range(&file->first_entry, &file->n_entries, &plan->split, i);
        status =
            lay_out(&file->layout, plan, file->first_entry, file->n_entries, plan->extent, err);
    }
    return status;
}

/* Sums over all files. */
static struct plec_segment_layout add_up(const struct plan *plan) {
    struct plec_segment_layout total = {0};
    for (uint32_t i = 0; i < plan->split.n_segments; i++) {
        const struct plec_segment_layout *file = &plan->files[i].layout;
        total.structure_bytes += file->structure_bytes;
        total.payload_bytes += file->payload_bytes;
        total.file_bytes += file->file_bytes;
        if (file->extent_bytes > total.extent_bytes) total.extent_bytes = file->extent_bytes;
    }
    return total;
}

/* Byte of the first region: on its own boundary when there are extents. */
static uint64_t first_region(const struct plan *plan, const struct plec_segment_layout *layout) {
    uint64_t start = layout->payload_start, edge = PLEC_EXTENT_ALIGNMENT;
    return plan->extent == 0 ? start : (start + edge - 1) / edge * edge;
}

static json_t *segments_json(const struct plan *plan) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < plan->split.n_segments; i++) {
        const struct file *file = &plan->files[i];
        json_array_append_new(
            list, json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "first_entry",
                            (json_int_t)file->first_entry, "entries", (json_int_t)file->n_entries,
                            "extents", (json_int_t)file->layout.n_extents, "structure_bytes",
                            (json_int_t)file->layout.structure_bytes, "first_region",
                            (json_int_t)first_region(plan, &file->layout), "payload_bytes",
                            (json_int_t)file->layout.payload_bytes, "file_bytes",
                            (json_int_t)file->layout.file_bytes));
    }
    return list;
}

static int print_json(const struct plan *plan) {
    const struct widths *w = &plan->widths;
    struct plec_segment_layout total = add_up(plan);
    json_t *extent = json_null();
    if (plan->extent != 0)
        extent =
            json_pack("{s:I, s:I, s:I}", "width", (json_int_t)plan->extent, "bytes",
                      (json_int_t)total.extent_bytes, "count", (json_int_t)plan->split.n_extents);
    return plec_cli_print_json(json_pack(
        "{s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "experts",
        (json_int_t)w->experts, "input", (json_int_t)w->input, "intermediate",
        (json_int_t)w->intermediate, "output", (json_int_t)w->output, "regions", regions_json(plan),
        "parameters_per_expert", (json_int_t)plan->parameters, "bytes_per_expert",
        (json_int_t)plan->entry_bytes, "structure_bytes", (json_int_t)total.structure_bytes,
        "payload_bytes", (json_int_t)total.payload_bytes, "total_bytes",
        (json_int_t)total.file_bytes, "files", (json_int_t)plan->split.n_segments, "extent", extent,
        "segments", segments_json(plan)));
}

static void print_regions(const struct plan *plan) {
    char role[PLEC_NAME_MAX], format[PLEC_NAME_MAX], packing[PLEC_NAME_MAX];
    char size[PLEC_UNIT_TEXT_MAX], shape[32];
    for (uint32_t i = 0; i < plan->n_schemas; i++) {
        const struct plec_lyrw_schema *schema = &plan->schemas[i];
        snprintf(shape, sizeof shape, "%u x %u", schema->rows, schema->cols);
        printf("  %-14s %-10s %-26s %-16s %12s\n", plec_role_name(schema->role, role),
               plec_format_name(schema->format, format),
               plec_packing_name(schema->packing, packing), shape,
               plec_size_text(size, plan->bytes[i]));
    }
    if (plan->padded_down != 0)
        printf("  (down is stored %u columns wide: %u, padded to whole blocks)\n",
               plan->padded_down, plan->widths.intermediate);
}

/* One line for each run of files of one size. */
static void print_files(const struct plan *plan) {
    char a[PLEC_UNIT_TEXT_MAX], b[PLEC_UNIT_TEXT_MAX];
    for (uint32_t i = 0, run; i < plan->split.n_segments; i += run) {
        const struct file *file = &plan->files[i];
        for (run = 1; i + run < plan->split.n_segments; run++)
            if (file[run].n_entries != file->n_entries) break;
        printf("  %u file%s of %u experts", run, run == 1 ? "" : "s", file->n_entries);
        if (plan->extent != 0)
            printf(", %llu extents of %u", (unsigned long long)file->layout.n_extents,
                   plan->extent);
        printf(": %s, structure %s, payload from byte %llu\n",
               plec_size_text(a, file->layout.file_bytes),
               plec_size_text(b, file->layout.structure_bytes),
               (unsigned long long)first_region(plan, &file->layout));
    }
}

/* What extents would be, where none were asked for. */
static void print_possible_extents(const struct plan *plan) {
    char size[PLEC_UNIT_TEXT_MAX];
    uint32_t n_entries = plan->files[0].n_entries;
    struct plec_segment_layout layout;
    for (uint32_t width = 8; width <= 32; width *= 2)
        if (n_entries >= width && lay_out(&layout, plan, 0, n_entries, width, NULL) == PLEC_OK)
            printf("  --extent %-2u would make extents of %u: %llu a file, %s each\n", width, width,
                   (unsigned long long)layout.n_extents, plec_size_text(size, layout.extent_bytes));
}

static void print_text(const struct plan *plan) {
    const struct widths *w = &plan->widths;
    struct plec_segment_layout total = add_up(plan);
    uint32_t n_files = plan->split.n_segments;
    char a[PLEC_UNIT_TEXT_MAX], b[PLEC_UNIT_TEXT_MAX];
    printf("bank of %u experts, %u -> %u -> %u\n", w->experts, w->input, w->intermediate,
           w->output);
    print_regions(plan);
    printf("expert     %s parameters, %s\n", plec_count_text(a, plan->parameters),
           plec_size_text(b, plan->entry_bytes));
    printf("structure  %s (tables of %s bytes)\n", plec_size_text(a, total.structure_bytes),
           plec_count_text(b, total.structure_bytes));
    printf("payload    %s (%s bytes)\n", plec_size_text(a, total.payload_bytes),
           plec_count_text(b, total.payload_bytes));
    printf("layer      %s in %u file%s\n", plec_size_text(a, total.file_bytes), n_files,
           n_files == 1 ? "" : "s");
    print_files(plan);
    if (plan->extent != 0)
        printf("extent     %s, on a boundary of %d bytes\n", plec_size_text(a, total.extent_bytes),
               PLEC_EXTENT_ALIGNMENT);
    else
        print_possible_extents(plan);
}

static int report(const struct plan *plan, bool as_json) {
    if (as_json) return print_json(plan);
    print_text(plan);
    return PLEC_EXIT_OK;
}

static int make_plan(struct plan *plan, const char *regions, bool paired, uint64_t cap) {
    int leave = add_regions(plan, regions);
    if (leave == PLEC_CLI_GO_ON && paired) leave = pair_up(plan);
    if (leave == PLEC_CLI_GO_ON) leave = measure(plan);
    if (leave != PLEC_CLI_GO_ON) return leave;
    struct plec_error err;
    struct plec_segment_layout whole;
    /* The whole bank as one file bounds every sum over its files. */
    enum plec_status status = lay_out(&whole, plan, 0, plan->widths.experts, plan->extent, &err);
    if (status == PLEC_OK) status = split(plan, cap, &err);
    if (status == PLEC_OK) status = lay_out_files(plan, &err);
    if (status == PLEC_OK) return PLEC_CLI_GO_ON;
    if (status == PLEC_NO_MEMORY) return plec_cli_error(&err);
    return plec_cli_usage(&command, "%s", err.message);
}

int plec_command_layout(int argc, char **argv) {
    struct plan plan = {0};
    const char *regions = NULL;
    bool paired = false, as_json = false, has_extent = false, has_cap = false;
    uint64_t cap = 0;
    const struct plec_cli_option options[] = {
        {"experts", PLEC_CLI_U32, &plan.widths.experts, NULL, "N", "Entries of the bank."},
        {"input", PLEC_CLI_U32, &plan.widths.input, NULL, "N",
         "Width an expert reads: the hidden size, or the latent width."},
        {"intermediate", PLEC_CLI_U32, &plan.widths.intermediate, NULL, "N",
         "Width between the matrices."},
        {"output", PLEC_CLI_U32, &plan.widths.output, NULL, "N", "Width an expert writes."},
        {"regions", PLEC_CLI_TEXT, &regions, NULL, "ROLE:FORMAT[,...]",
         "What every entry holds. Roles: gate, up, gate_up_fused, down, gate_bias, up_bias, "
         "gate_up_bias, down_bias. Formats: f32, f16, bf16, q4_0, q4_k, q6_k, q8_0, fp4_larql, "
         "mxfp4, nvfp4, mxfp8 and the gguf_ ones of `plectrum kernels`."},
        {"paired", PLEC_CLI_FLAG, &paired, NULL, NULL,
         "Store mxfp4 and mxfp8 as two regions, values and scales, as files that run do; without "
         "it their scales are counted in the one region."},
        {"segment-cap", PLEC_CLI_SIZE, &cap, &has_cap, "SIZE",
         "No file larger than this: the fewest files that it allows, as equal as whole extents "
         "make them."},
        {"extent", PLEC_CLI_U32, &plan.extent, &has_extent, "N",
         "Group N neighbouring experts (8, 16 or 32 as a rule) and start each group on a boundary "
         "of 4096 bytes."},
        {"json", PLEC_CLI_FLAG, &as_json, NULL, NULL, "Print one JSON object, sizes in bytes."},
    };
    struct plec_cli cli = {
        .command = &command, .options = options, .n_options = sizeof options / sizeof options[0]};
    int leave = plec_cli_parse(&cli, argc, argv);
    if (leave != PLEC_CLI_GO_ON) return leave;
    const struct widths *w = &plan.widths;
    if (w->experts == 0 || w->input == 0 || w->intermediate == 0 || w->output == 0)
        return plec_cli_usage(&command,
                              "--experts, --input, --intermediate and --output are all needed, and "
                              "not 0");
    if (w->intermediate > UINT32_MAX / 2)
        return plec_cli_usage(&command, "--intermediate %u is too large", w->intermediate);
    if (regions == NULL) return plec_cli_usage(&command, "--regions is needed");
    if (has_extent && plan.extent == 0)
        return plec_cli_usage(&command, "--extent 0 holds no expert");
    if (has_cap && cap == 0) return plec_cli_usage(&command, "--segment-cap 0 holds no file");
    leave = make_plan(&plan, regions, paired, cap);
    if (leave == PLEC_CLI_GO_ON) leave = report(&plan, as_json);
    free(plan.files);
    return leave;
}
