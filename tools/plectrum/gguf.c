/* gguf.c: `plectrum gguf`: the ways of looking at a GGUF model, by name. */
#include <string.h>

#include "tools/plectrum/cli.h"
#include "tools/plectrum/commands.h"
#include "tools/plectrum/gguf_modes.h"

static const struct plec_cli_command command = {
    .name = "gguf",
    .summary = "look at a GGUF model in every way its bytes allow",
    .synopsis = "gguf head|meta|stack|account|bytes PATH [--json]\n"
                "gguf layer PATH N [--json]\n"
                "gguf floats PATH TENSOR [--noalign] [--json]\n"
                "gguf peek PATH TENSOR[:EXPERT[:ROW]] [-n N] [--json]\n"
                "gguf dump PATH [--check FILE]\n"
                "gguf sketch OUT [--align A] [--noalign] [--json]\n"
                "gguf hash PATH [--experts] [--write FILE | --check FILE] [--json]\n"
                "gguf diff PATH PATH [--json]",
    .description =
        "PATH is a GGUF file or any file of a split set, whose others are found beside it. Where a "
        "mode needs no weights (head, meta, stack, layer, account) PATH may also be what `gguf "
        "dump` wrote. Nothing is loaded: a mode reads the header, and the weights it shows.\n\n"
        " head     the fixed numbers, what the keys say the model is, where the\n"
        "          header stops and the data starts\n"
        " meta     every key in file order; arrays as their count\n"
        " stack    every tensor, what repeats once a block as one line; the\n"
        "          smallest and the largest block\n"
        " layer    one block tensor by tensor, and how the others compare\n"
        " account  every byte given to something; what is left over must be 0, and\n"
        "          every tensor must start where the one before it ended\n"
        " bytes    every field with its place and first bytes\n"
        " floats   the numbers of a tensor of plain floats\n"
        " peek     values of a tensor of any type and the raw fields of its blocks\n"
        " dump     the header as JSON\n"
        " sketch   writes a model of a few hundred bytes and reads it back\n"
        " hash     SHA-256 of every tensor\n"
        " diff     what differs between two models\n\n"
        "With --json each mode prints one object: \"mode\" and what the mode shows, 64-bit numbers "
        "exact (as strings of digits above 2^63). The dump is JSON with or without it: "
        "{kind, schema, files [{version, bytes, alignment, alignment_stated, keys_end, infos_end, "
        "data_start, keys [{name, type, bytes, value or element_type and count}], tensors [{name, "
        "dims, type, offset, bytes}]}]}; names and texts that are no UTF-8 stand as hexadecimal "
        "digits under name_hex and value_hex.",
    .exit_status = "0  done; remarks (unknown types, trailing bytes) do not change it\n"
                   "1  bytes are missing or claimed twice; account, dump --check, hash\n"
                   "   --check or diff found a difference\n"
                   "3  PATH is unreadable or refused; no such layer, tensor, expert or row",
    .examples = "$ plectrum gguf stack model.gguf\n"
                "$ plectrum gguf floats model.gguf output_norm.weight --noalign\n"
                "$ plectrum gguf dump model.gguf > header.json\n"
                "$ plectrum gguf account header.json",
    .min_operands = 2,
    .max_operands = 3,
};

struct mode {
    const char *name;
    size_t n_operands; /* behind the mode's name */
    const char *wanted;
    int (*run)(const char *const *operands, const struct plec_gguf_options *options);
};

static const struct mode modes[] = {
    {"head", 1, "PATH", plec_gguf_head},
    {"meta", 1, "PATH", plec_gguf_meta},
    {"stack", 1, "PATH", plec_gguf_stack},
    {"layer", 2, "PATH and N", plec_gguf_layer},
    {"account", 1, "PATH", plec_gguf_account},
    {"bytes", 1, "PATH", plec_gguf_bytes},
    {"floats", 2, "PATH and TENSOR", plec_gguf_floats},
    {"peek", 2, "PATH and TENSOR[:EXPERT[:ROW]]", plec_gguf_peek},
    {"dump", 1, "PATH", plec_gguf_dump},
    {"sketch", 1, "OUT", plec_gguf_sketch},
    {"hash", 1, "PATH", plec_gguf_hash},
    {"diff", 2, "two paths", plec_gguf_diff},
};

static const struct mode *find_mode(const char *name) {
    for (size_t i = 0; i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(modes[i].name, name) == 0) return &modes[i];
    return NULL;
}

/* Options are long, but for the one that every tool of this kind has short. */
static void lengthen(int argc, char **argv) {
    static char long_form[] = "--n";
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], "-n") == 0) argv[i] = long_form;
}

int plec_command_gguf(int argc, char **argv) {
    struct plec_gguf_options o = {.align = 64, .n = 8};
    const struct plec_cli_option options[] = {
        {"json", PLEC_CLI_FLAG, &o.json, NULL, NULL, "Print one JSON object."},
        {"noalign", PLEC_CLI_FLAG, &o.noalign, NULL, NULL,
         "floats, sketch: read from where the info records end, as a reader does that forgets the "
         "padding: numbers come out, and none of them is right."},
        {"align", PLEC_CLI_U32, &o.align, NULL, "A",
         "sketch: the alignment that the file states, a power of two (64)."},
        {"check", PLEC_CLI_TEXT, &o.check, NULL, "FILE",
         "dump: read a dump back, strictly, and compare it byte for byte with itself written again "
         "and with PATH. hash: compare PATH with a manifest."},
        {"write", PLEC_CLI_TEXT, &o.write, NULL, "FILE",
         "hash: write the manifest to a file, whole or not at all."},
        {"experts", PLEC_CLI_FLAG, &o.experts, NULL, NULL,
         "hash: also every expert of a tensor that has several."},
        {"n", PLEC_CLI_U64, &o.n, NULL, "N", "peek: how many values (8); also -n."},
    };
    struct plec_cli cli = {
        .command = &command, .options = options, .n_options = sizeof options / sizeof options[0]};
    lengthen(argc, argv);
    int leave = plec_cli_parse(&cli, argc, argv);
    if (leave != PLEC_CLI_GO_ON) return leave;
    const struct mode *mode = find_mode(cli.operands[0]);
    if (mode == NULL) return plec_cli_usage(&command, "gguf: no mode '%s'", cli.operands[0]);
    if (cli.n_operands != mode->n_operands + 1)
        return plec_cli_usage(&command, "gguf %s: wanted %s", mode->name, mode->wanted);
    return mode->run(cli.operands + 1, &o);
}
