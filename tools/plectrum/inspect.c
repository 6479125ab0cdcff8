/* inspect.c: `plectrum inspect`: tells what a path is and hands it to the view of its kind. */
#include "tools/plectrum/inspect.h"

#include <sys/stat.h>

#include "tools/plectrum/cli.h"
#include "tools/plectrum/commands.h"

static const struct plec_cli_command command = {
    .name = "inspect",
    .summary = "show what a container holds",
    .synopsis = "inspect [--entries] [--hash] [--json] PATH",
    .description =
        "PATH is a .lyrw file or a VINDEX3 container directory (the folder of an index.json). "
        "Nothing but headers and tables is read, so the cost does not depend on the size of the "
        "weights.\n\n"
        "Of a .lyrw file: the header, banks, region schemas and segments, what is unknown by name, "
        "and whether every region lies in the file. With --entries every region's offset and "
        "length, in the order of the entry tables.\n\n"
        "Of a container: one line a layer with its router, experts and storage, equal layers "
        "together in one line; then profiles, variants and the authority each profile earns.\n\n"
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
        "  regions (each with its segment), unknown, findings [{name, text}]",
    .exit_status = "0  done; remarks (unknown tags, trailing bytes) do not change it\n"
                   "1  bytes are missing, or claimed twice\n"
                   "3  PATH is unreadable, or not what it says it is",
    .examples = "$ plectrum inspect model/\n"
                "$ plectrum inspect --entries model/routed/layer_003.lyrw\n"
                "$ plectrum inspect --json --hash model/routed/layer_003.lyrw | jq .regions",
    .min_operands = 1,
    .max_operands = 1,
};

static int inspect_path(const char *path, const struct plec_inspect_options *options) {
    struct stat info;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return plec_inspect_vindex(path, options);
    return plec_inspect_lyrw(path, options);
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
    };
    struct plec_cli cli = {
        .command = &command, .options = options, .n_options = sizeof options / sizeof options[0]};
    int leave = plec_cli_parse(&cli, argc, argv);
    if (leave != PLEC_CLI_GO_ON) return leave;
    if (o.hash) o.entries = true;
    return inspect_path(cli.operands[0], &o);
}
