/* bench_options.c: the command line of `plectrum bench`. */
#include <string.h>

#include "tools/plectrum/bench.h"
#include "tools/plectrum/files.h"
#include "tools/plectrum/units.h"

static const struct plec_cli_command command = {
    .name = "bench",
    .summary = "time decode and prefill through the layers of a container",
    .synopsis =
        "bench PATH [--layer N] [--decode LIST] [--prefill LIST] [--steps N]\n"
        "    [--warmup N] [--routing random|router|TRACE] [--slots K] [--seed S] [--device NAME]\n"
        "    [--threads N] [--graphs on|off] [--rung NAME [--cublas FILE]] [--limit-gbs X]\n"
        "    [--record TRACE] [--csv out.csv]\n"
        "    [--profile NAME] [--as ARCH] [--set KEY=VALUE,...] [--json]\n"
        "    [--device-budget BYTES [--pinned-budget BYTES] [--extent N] [--io ENGINE]\n"
        "     [--io-cache MODE] [--pin MODE] [--policy NAME] [--speculate MODE] [--bypass]]\n"
        "    [--trace out.json] [--plot out.svg] [--nvtx LEVEL]",
    .description =
        "Runs steps of T tokens through every layer with experts to choose from, or through one, "
        "and prints medians: tokens a second, GB/s of the weights that a step uses (each expert "
        "once, shared and dense experts too), and the share that is of the speed at which the "
        "device reads its memory, measured in turns with the steps. The first token, with nothing "
        "cached, steady decode and prefill are told apart. With --device-budget experts are "
        "streamed: where they were found, bytes a token from each tier, and what the steps waited "
        "for, in means beside the mean step.\n\n"
        "Hidden states are random. Experts are drawn uniformly, which no cache can foresee; or the "
        "container's router chooses on those random states; or a recorded routing is run again, "
        "step by step (a trace holds which experts a step used, and they are dealt to its tokens "
        "in turn). An output that is all zeros or not finite is an error.\n\n"
        "Without --steps a row takes as many steps as two seconds hold, 5 at least and 200 at "
        "most. Where experts are used from the mapped file, all weights are read once after the "
        "first token, so that no page fault is timed. A note says when the weights that were in "
        "use fit the last-level cache: GB/s is then the cache's.\n\n"
        "The picture shows the first token, the last steps of decoding and the last step of "
        "prefill.",
    .exit_status = "0  done\n1  an output was all zeros or not finite\n"
                   "3  the container or the trace cannot be read or is refused; no such layer",
    .examples = "$ plectrum bench model.vindex --device-budget 20GiB --plot out.svg\n"
                "$ plectrum bench layer.lyrw --decode 1,2,4 --prefill 256 --csv out.csv",
    .min_operands = 1,
    .max_operands = 1,
};

enum { DEFAULT_WARMUP = 3, MAX_TOKENS = 65536 };

/* "1,8,64" into a list of numbers of tokens; an empty text is an empty list. */
static bool read_list(uint32_t *out, uint32_t *n, const char *text) {
    for (*n = 0; *text != 0 && *n < PLEC_BENCH_LIST_MAX;) {
        size_t length = strcspn(text, ",");
        char word[16];
        uint64_t value;
        if (length == 0 || length >= sizeof word) return false;
        memcpy(word, text, length);
        word[length] = 0;
        if (!plec_count_parse(&value, word, MAX_TOKENS) || value == 0) return false;
        out[(*n)++] = (uint32_t)value;
        text += length;
        if (*text == 0) return true;
        text++;
        if (*text == 0) return false;
    }
    return *text == 0;
}

static int check_files(const struct plec_bench_options *o) {
    const struct plec_cli_file files[] = {
        {"PATH", o->path, PLEC_FILE_READ},
        {"--routing", o->routing == PLEC_BENCH_RECORDED ? o->routing_word : NULL, PLEC_FILE_READ},
        {"--csv", o->csv, PLEC_FILE_REPLACED},
        {"--record", o->record, PLEC_FILE_REPLACED},
        {"--trace", o->how.tracing.path, PLEC_FILE_REPLACED},
        {"--plot", o->how.tracing.plot, PLEC_FILE_REPLACED}};
    return plec_cli_check_files(&command, files, sizeof files / sizeof files[0]);
}

static int check_options(struct plec_bench_options *o) {
    if (!read_list(o->decode, &o->n_decode, o->decode_text))
        return plec_cli_usage(&command, "--decode %s: up to %d numbers from 1 to %d",
                              o->decode_text, PLEC_BENCH_LIST_MAX, MAX_TOKENS);
    if (!read_list(o->prefill, &o->n_prefill, o->prefill_text))
        return plec_cli_usage(&command, "--prefill %s: up to %d numbers from 1 to %d",
                              o->prefill_text, PLEC_BENCH_LIST_MAX, MAX_TOKENS);
    if (o->steps_given && (o->n_steps == 0 || o->n_steps > PLEC_BENCH_STEPS_MAX))
        return plec_cli_usage(&command, "--steps wants 1 to %d", PLEC_BENCH_STEPS_MAX);
    if (o->n_warmup > PLEC_BENCH_STEPS_MAX)
        return plec_cli_usage(&command, "--warmup wants 0 to %d", PLEC_BENCH_STEPS_MAX);
    o->routing = PLEC_BENCH_RECORDED;
    if (strcmp(o->routing_word, "random") == 0) o->routing = PLEC_BENCH_RANDOM;
    if (strcmp(o->routing_word, "router") == 0) o->routing = PLEC_BENCH_ROUTER;
    if (o->routing == PLEC_BENCH_RECORDED) o->n_decode = o->n_prefill = 0;
    if (o->slots_given && o->n_slots == 0)
        return plec_cli_usage(&command, "--slots wants at least one expert");
    if (o->slots_given && o->routing != PLEC_BENCH_RANDOM)
        return plec_cli_usage(&command, "--slots goes with --routing random");
    int leave = plec_execution_cli_read(&o->how);
    o->how.tracing.own_picture = true;
    return leave == PLEC_CLI_GO_ON ? check_files(o) : leave;
}

int plec_bench_options_read(struct plec_bench_options *o, int argc, char **argv) {
    *o = (struct plec_bench_options){.routing_word = "random",
                                     .decode_text = "1,8",
                                     .prefill_text = "128,512",
                                     .n_warmup = DEFAULT_WARMUP};
    const struct plec_cli_option own[] = {
        {"layer", PLEC_CLI_U32, &o->layer, &o->layer_given, "N",
         "Run this layer alone; every layer with experts to choose from without it."},
        {"decode", PLEC_CLI_TEXT, &o->decode_text, NULL, "LIST",
         "Tokens of a step of decoding, divided by commas; 1,8."},
        {"prefill", PLEC_CLI_TEXT, &o->prefill_text, NULL, "LIST",
         "Tokens of a step of prefill; 128,512."},
        {"steps", PLEC_CLI_U32, &o->n_steps, &o->steps_given, "N", "Timed steps of each row."},
        {"warmup", PLEC_CLI_U32, &o->n_warmup, NULL, "N", "Steps before them; 3."},
        {"routing", PLEC_CLI_TEXT, &o->routing_word, NULL, "WHAT",
         "random, router, or the path of a recorded routing, whose steps are then all there is."},
        {"slots", PLEC_CLI_U32, &o->n_slots, &o->slots_given, "K",
         "Experts a token where they are drawn; as many as the layer's router chooses, or 8 where "
         "there is none."},
        {"seed", PLEC_CLI_U64, &o->seed, NULL, "S", "Which random numbers; 0."},
        {"limit-gbs", PLEC_CLI_SPEED, &o->limit_gbs, &o->limit_given, "X",
         "GB/s at which the device reads its memory, instead of measuring."},
        {"record", PLEC_CLI_TEXT, &o->record, NULL, "FILE",
         "Write the routing of all steps here, for `plectrum trace replay` and --routing."},
        {"csv", PLEC_CLI_TEXT, &o->csv, NULL, "FILE", "Write the rows here."},
        {"profile", PLEC_CLI_TEXT, &o->profile, NULL, "NAME",
         "The profile of the container's index that says which variants to read."},
        {"as", PLEC_CLI_TEXT, &o->architecture, NULL, "ARCH",
         "Read a GGUF file as this architecture."},
        {"set", PLEC_CLI_TEXT, &o->set, NULL, "KEY=VALUE,...",
         "Values a GGUF file does not say: gating=sigmoid,norm=1."},
        {"json", PLEC_CLI_FLAG, &o->json, NULL, NULL, "Print one JSON object."},
    };
    struct plec_cli cli = {
        .command = &command, .options = own, .n_options = sizeof own / sizeof own[0]};
    int leave = plec_execution_cli_parse(&o->how, &cli, argc, argv);
    if (leave != PLEC_CLI_GO_ON) return leave;
    o->path = cli.operands[0];
    return check_options(o);
}
