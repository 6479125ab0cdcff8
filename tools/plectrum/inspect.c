/* inspect.c: `plectrum inspect`: tells what a path is and hands it to the view of its kind. */
#include "tools/plectrum/inspect.h"

#include "tools/plectrum/cli.h"
#include "tools/plectrum/commands.h"
#include "tools/plectrum/gguf_select.h"
#include "tools/plectrum/path_kind.h"

static const struct plec_cli_command command = {
    .name = "inspect",
    .summary = "show what a container holds",
    .synopsis = "inspect [--entries] [--hash] [--json] PATH...\n"
                "inspect [--filter PATTERN] [--sort HOW] [--strict] [--json] MODEL.gguf\n"
                "inspect --key KEY MODEL.gguf\n"
                "inspect --strip-data OUT.gguf MODEL.gguf",
    .description =
        "PATH is a .lyrw file, a VINDEX3 container directory (the folder of an index.json), a GGUF "
        "file or any file of a split set, a TEZW file, or a folder of GGUF and TEZW files. "
        "Nothing but headers and tables is read, so the cost does not depend on the size of the "
        "weights.\n\n"
        "Of a .lyrw file: the header, banks, region schemas and segments, what is unknown by name, "
        "and whether every region lies in the file. With --entries every region's offset and "
        "length, in the order of the entry tables.\n\n"
        "Of a container: one line a layer with its router, experts and storage, equal layers "
        "together in one line; then profiles, variants and the authority each profile earns.\n\n"
        "Of a GGUF model: its files, keys (arrays as their count and first elements, strings cut "
        "with the length left out), tensors with shape, axes, bytes and place in the file, and "
        "totals by type; then its layers, equal neighbours together: experts, sizes, types, "
        "layout, "
        "biases, factors, shared expert, bytes an expert and a layer, and whether it converts to a "
        "bank or why not; what each layer computes, with the origin of every value (in the file, a "
        "default of the architecture, unknown); what experts and the rest come to, and what a "
        "token touches. What is odd is a remark; what keeps it from running is told and gives 1; "
        "a file cut short shows what is there.\n\n"
        "Of a folder of models: a line each; one that is refused does not keep the others from "
        "being shown.\n\n"
        "With --json one object is printed. Its keys for a .lyrw file:\n"
        "  kind, bytes, header {format_version, logical_layer, num_banks,\n"
        "  num_segments, flags, multi_segment, reserved}, payload_start,\n"
        "  banks [{ordinal, id, kind, schemas, browse, flags, num_entries,\n"
        "  input_dim, intermediate_dim, output_dim}], schemas [{bank_ordinal,\n"
        "  index, role, format, packing, pair_id, layout, rows, cols,\n"
        "  defined_len}], segments [{ordinal, bank, index, first_entry,\n"
        "  entry_count}], regions [{bank, entry, schema, role, offset, length}],\n"
        "  unknown [names of tags]\n"
        "pair_id is null when unpaired, defined_len (the bytes that shape and format imply) null "
        "when the format is unknown; regions is empty without --entries. A region that does not "
        "resolve has \"error\" in place of offset and length. Of a container:\n"
        "  kind, bytes, index {version, model, ...}, layers [{layer, input_space,\n"
        "  router, transforms, routed, shared, routed_output_norm, control}],\n"
        "  dense, profiles [{name, authority, selections}], variants, segments\n"
        "  [{key, count, bytes, regions, missing, overlaps, extent, error}],\n"
        "  regions (each with its segment), unknown, findings [{name, text}]\n\n"
        "Its keys for a GGUF model, schema 1 (integers above 2^63 are strings of digits):\n"
        "  kind, schema, bytes, byte_order, architecture, name, split,\n"
        "  files [{path, present, bytes, version, keys, tensors, alignment,\n"
        "  alignment_stated, complete, keys_end, infos_end, data_start,\n"
        "  trailing_bytes, missing_bytes}], keys [{key, file, type,\n"
        "  element_type, count, bytes, value}], tensors [{name, type, type_id,\n"
        "  shape, axes, elements, bytes, bits_per_weight, offset, file_offset,\n"
        "  file, flags}], totals [{type, type_id, tensors, elements, bytes}],\n"
        "  selected_tensors, selected_elements, selected_bytes, layers [{layer,\n"
        "  dense, experts, top_k, hidden, inner, shared_inner, latent, layout,\n"
        "  types {gate, up, down}, shared_types, router, router_bias,\n"
        "  selection_bias, expert_biases, expert_scales, shared_gate,\n"
        "  token_table, branch, expert_bytes, routed_bytes, layer_bytes,\n"
        "  touched_bytes, weights, active_weights, values [{name, value,\n"
        "  origin}], converts, reason}], experts {moe_layers, dense_layers,\n"
        "  converting_layers, heads_from_block, bytes, weights,\n"
        "  bits_per_weight, routed_bytes, routed_weights,\n"
        "  routed_bits_per_weight, touched_bytes, active_weights},\n"
        "  findings [{severity, name, text}], sound\n"
        "A TEZW file: kind, bytes, version, the header's fields, weights, tensors (with "
        "--entries). A folder: kind, files [{file, kind, readable, bytes, files, tensors, "
        "architecture, defects, notes, error}].",
    .exit_status = "0  done; remarks (unknown tags, trailing bytes) do not change it\n"
                   "1  bytes are missing, or claimed twice\n"
                   "3  PATH is unreadable, or not what it says it is",
    .examples = "$ plectrum inspect model/\n"
                "$ plectrum inspect --entries model/routed/layer_003.lyrw\n"
                "$ plectrum inspect --json --hash model/routed/layer_003.lyrw | jq .regions\n"
                "$ plectrum inspect --filter 'ffn_(up|down|gate)_exps' --sort bytes model.gguf\n"
                "$ plectrum inspect --key tokenizer.chat_template model.gguf > template.jinja",
    .min_operands = 1,
    .max_operands = PLEC_CLI_OPERANDS_MAX,
};

static bool asks_for_gguf(const struct plec_inspect_options *o) {
    return o->key != NULL || o->filter != NULL || o->sort != NULL || o->strip_data != NULL ||
           o->strict;
}

static int inspect_path(const char *path, const struct plec_inspect_options *options) {
    enum plec_path_kind kind = plec_path_kind_of(path);
    if (kind != PLEC_PATH_GGUF && asks_for_gguf(options))
        return plec_cli_usage(&command,
                              "%s: --key, --filter, --sort, --strict and --strip-data are "
                              "for GGUF models",
                              path);
    switch (kind) {
    case PLEC_PATH_CONTAINER: return plec_inspect_vindex(path, options);
    case PLEC_PATH_FOLDER: return plec_inspect_folder(path, options);
    case PLEC_PATH_GGUF: return plec_inspect_gguf(path, options);
    case PLEC_PATH_TEZW: return plec_inspect_tezw(path, options);
    case PLEC_PATH_LYRW: break;
    }
    return plec_inspect_lyrw(path, options);
}

/* One after the other; a bad one does not stop the rest. The worst exit status. */
static int inspect_all(const struct plec_cli *cli, const struct plec_inspect_options *options) {
    int worst = PLEC_EXIT_OK;
    for (size_t i = 0; i < cli->n_operands; i++) {
        int leave = inspect_path(cli->operands[i], options);
        if (leave > worst) worst = leave;
    }
    return worst;
}

int plec_command_inspect(int argc, char **argv) {
    struct plec_inspect_options o = {0};
    const struct plec_cli_option options[] = {
        {"entries", PLEC_CLI_FLAG, &o.entries, NULL, NULL,
         "List every region of every entry: offset and length."},
        {"hash", PLEC_CLI_FLAG, &o.hash, NULL, NULL,
         "With --entries (which it implies): the FNV-1a64 of each region's bytes, and of the "
         "values "
         "they decode to where the format has a codec. This reads the weights."},
        {"json", PLEC_CLI_FLAG, &o.json, NULL, NULL, "Print one JSON object."},
        {"key", PLEC_CLI_TEXT, &o.key, NULL, "KEY",
         "GGUF: print the whole value of one key as it is, an array one element a line."},
        {"filter", PLEC_CLI_TEXT, &o.filter, NULL, "PATTERN",
         "GGUF: only tensors whose whole name fits the glob PATTERN, or in whose name the extended "
         "regular expression PATTERN is found; with their totals."},
        {"sort", PLEC_CLI_TEXT, &o.sort, NULL, "HOW",
         "GGUF: tensors by name, bytes (largest first), offset or type; else as listed."},
        {"strict", PLEC_CLI_FLAG, &o.strict, NULL, NULL,
         "GGUF: also tell what llama.cpp would refuse, and leave with 1 for it."},
        {"strip-data", PLEC_CLI_TEXT, &o.strip_data, NULL, "OUT",
         "GGUF: write the header alone to OUT, for a report of a fault."},
    };
    struct plec_cli cli = {
        .command = &command, .options = options, .n_options = sizeof options / sizeof options[0]};
    int leave = plec_cli_parse(&cli, argc, argv);
    if (leave != PLEC_CLI_GO_ON) return leave;
    if (o.hash) o.entries = true;
    if (o.sort != NULL && !plec_sort_is_known(o.sort))
        return plec_cli_usage(&command, "--sort %s: wanted name, bytes, offset or type", o.sort);
    if (cli.n_operands > 1 && (o.json || o.strip_data != NULL))
        return plec_cli_usage(&command, "--json and --strip-data take one path");
    return inspect_all(&cli, &o);
}
