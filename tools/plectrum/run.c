/* run.c: `plectrum run`: one layer on arrays, or on random values, and its check against the
 * reference. */
#include "tools/plectrum/run.h"

#include <limits.h>
#include <stdio.h>

#include "tools/plectrum/cli.h"
#include "tools/plectrum/commands.h"
#include "tools/plectrum/files.h"

static const struct plec_cli_command command = {
    .name = "run",
    .summary = "run one MoE layer",
    .synopsis =
        "run PATH --layer N (--input x.npy | --random T [--seed S])\n"
        "    [--output y.npy] [--ids i.npy --weights w.npy] [--routing-out PREFIX]\n"
        "    [--profile NAME] [--router-input r.npy] [--tokens t.npy]\n"
        "    [--as ARCH] [--set KEY=VALUE,...] [--device NAME] [--threads N]\n"
        "    [--graphs on|off] [--rung NAME [--cublas FILE]] [--check] [--tolerance X]\n"
        "    [--step N] [--json]\n"
        "    [--device-budget BYTES [--pinned-budget BYTES] [--extent N] [--io ENGINE]\n"
        "     [--io-cache MODE] [--pin MODE] [--policy NAME] [--speculate MODE] [--bypass]]\n"
        "    [--trace FILE] [--plot FILE] [--nvtx LEVEL]",
    .description =
        "Opens a container (a bank directory, a .lyrw, GGUF or TEZW file; any shard of a split "
        "GGUF), binds layer N, routes the tokens and runs their experts. The input is the hidden "
        "state after the norm that precedes the feed-forward part, [tokens, hidden size]; the "
        "output is the sum of the routed and shared "
        "experts, without the residual.\n\n"
        "Arrays are .npy files in C order: f32 or f16 for --input and --router-input, i32 for "
        "--ids and --tokens, f32 for --weights; results are f32 and i32.\n\n"
        "The container's router chooses the experts unless --ids and --weights do: arrays "
        "[tokens, slots], each slot a term of the sum. A layer whose container holds no router "
        "needs them. Some routers of GGUF files read another vector than the experts "
        "(--router-input: for gemma4 the attention output before its norm, for smallthinker the "
        "block's input), and some layers of deepseek4 choose by token id (--tokens).\n\n"
        "A token with a NaN in its hidden state or its scores is named, its row of the output is "
        "NaN, the other rows are right, and the exit status is 3. Any other value of the output "
        "that is "
        "not finite is told, with how many there are and where the first is; the exit status is "
        "then "
        "1, unless every such token was given what is not finite.\n\n"
        "With --device-budget the routed experts do not stay where the file is mapped, but are "
        "read "
        "into host memory and copied to the device in extents, as steps need them; the output is "
        "the "
        "same, bit for bit.\n\n"
        "With --trace the file holds, in the end, what each thread did when, every read and copy, "
        "and how they led to a use: open it in Perfetto (ui.perfetto.dev) or chrome://tracing. It "
        "is also written at SIGUSR2, and before SIGINT or SIGTERM ends the run. With --plot a "
        "picture shows the same: "
        "a lane for each thread, the disk and the link. A profiler that "
        "listens to NVTX sees the same as ranges of the domain `plectrum`.\n\n"
        "--check allows a normalised mean squared error (NMSE) of 1e-9 against the reference, of "
        "4e-5 on cuda, where what enters experts is rounded to bf16. Of outputs that cancel that "
        "rounding leaves more: above 4e-5 the reference runs again and rounds as the device does, "
        "and the output is right if it is within 1e-7 of that. Both figures are then printed.\n\n"
        "The JSON object has path, kind, profile, layer, device, kernels (of the routed experts; "
        "null "
        "on the reference), tokens, hidden_size, experts, slots, shared_experts, routing (router, "
        "caller or dense), programme, activation, output, "
        "output_norm (null where it is not finite), not_finite (how many values of the output are "
        "not), and of --check nmse (null where the output or the reference is not finite), "
        "nmse_rounded (against the reference that rounds; null where it was not asked), tolerance, "
        "within (true or false) and note (what rounding explains, or null), all null without it; "
        "and stream, "
        "null without --device-budget: experts handed out, by where they were, bytes moved, "
        "stalls; and graphs, null where the device has none: how many were captured, steps that "
        "replayed one, and steps launched kernel by kernel.",
    .exit_status = "0  done\n"
                   "1  --check found the output further from the reference than it allows, or the\n"
                   "   output is not finite\n"
                   "3  the container or an array cannot be read or is refused; no such layer, "
                   "wrong input\n   width, bad ids, NaN",
    .examples = "$ plectrum run model.vindex --layer 3 --input x.npy --output y.npy --check\n"
                "$ plectrum run layer.lyrw --random 4 --ids i.npy --weights w.npy --json",
    .min_operands = 1,
    .max_operands = 1,
};

static int check_files(const struct plec_run_options *o) {
    const char *prefix = o->routing_out;
    char ids[PATH_MAX], weights[PATH_MAX];
    snprintf(ids, sizeof ids, "%s.ids.npy", prefix != NULL ? prefix : "");
    snprintf(weights, sizeof weights, "%s.weights.npy", prefix != NULL ? prefix : "");
    const struct plec_cli_file files[] = {
        {"--routing-out", prefix != NULL ? ids : NULL, PLEC_FILE_WRITTEN},
        {"--routing-out", prefix != NULL ? weights : NULL, PLEC_FILE_WRITTEN},
        {"PATH", o->path, PLEC_FILE_READ},
        {"--input", o->input, PLEC_FILE_READ},
        {"--ids", o->ids, PLEC_FILE_READ},
        {"--weights", o->weights, PLEC_FILE_READ},
        {"--router-input", o->router_input, PLEC_FILE_READ},
        {"--tokens", o->tokens, PLEC_FILE_READ},
        {"--output", o->output, PLEC_FILE_WRITTEN},
        {"--trace", o->how.tracing.path, PLEC_FILE_REPLACED},
        {"--plot", o->how.tracing.plot, PLEC_FILE_REPLACED}};
    const size_t n = sizeof files / sizeof files[0];
    struct plec_error err;
    int leave = plec_cli_check_files(&command, files, n);
    if (leave != PLEC_CLI_GO_ON) return leave;
    return plec_cli_try_files(files, n, &err) == PLEC_OK ? PLEC_CLI_GO_ON : plec_cli_error(&err);
}

static int check_options(struct plec_run_options *o) {
    if ((o->input != NULL) == o->random_given)
        return plec_cli_usage(&command, "give --input or --random, one of them");
    if (o->seed_given && !o->random_given)
        return plec_cli_usage(&command, "--seed goes with --random");
    if ((o->ids == NULL) != (o->weights == NULL))
        return plec_cli_usage(&command, "--ids and --weights go together");
    if (o->tolerance_given && !o->check)
        return plec_cli_usage(&command, "--tolerance goes with --check");
    if (o->tolerance < 0) return plec_cli_usage(&command, "--tolerance wants a number from 0 up");
    if (o->step_given && o->step == 0)
        return plec_cli_usage(&command, "--step wants at least one token");
    int leave = plec_execution_cli_read(&o->how);
    return leave == PLEC_CLI_GO_ON ? check_files(o) : leave;
}

static int read_options(struct plec_run_options *o, int argc, char **argv) {
    *o = (struct plec_run_options){0};
    const struct plec_cli_option own[] = {
        {"layer", PLEC_CLI_U32, &o->layer, &o->layer_given, "N",
         "The layer to run; may be left out where the container has one."},
        {"input", PLEC_CLI_TEXT, &o->input, NULL, "FILE", "Hidden states [tokens, hidden size]."},
        {"random", PLEC_CLI_U32, &o->random, &o->random_given, "T",
         "Run T tokens of normally distributed values instead."},
        {"seed", PLEC_CLI_U64, &o->seed, &o->seed_given, "S", "Which random values; 0."},
        {"output", PLEC_CLI_TEXT, &o->output, NULL, "FILE", "Write the output here."},
        {"ids", PLEC_CLI_TEXT, &o->ids, NULL, "FILE", "Experts of each token [tokens, slots]."},
        {"weights", PLEC_CLI_TEXT, &o->weights, NULL, "FILE", "Their weights [tokens, slots]."},
        {"routing-out", PLEC_CLI_TEXT, &o->routing_out, NULL, "PREFIX",
         "Write the routing used to PREFIX.ids.npy and PREFIX.weights.npy."},
        {"profile", PLEC_CLI_TEXT, &o->profile, NULL, "NAME",
         "The profile of the container's index that says which variants to read."},
        {"router-input", PLEC_CLI_TEXT, &o->router_input, NULL, "FILE",
         "What the router reads [tokens, hidden size], where that is another vector."},
        {"tokens", PLEC_CLI_TEXT, &o->tokens, NULL, "FILE",
         "Token ids [tokens], for layers that route by them."},
        {"as", PLEC_CLI_TEXT, &o->architecture, NULL, "ARCH",
         "Read a GGUF file as this architecture."},
        {"set", PLEC_CLI_TEXT, &o->set, NULL, "KEY=VALUE,...",
         "Values a GGUF file does not say: gating=sigmoid,norm=1."},
        {"check", PLEC_CLI_FLAG, &o->check, NULL, NULL,
         "Run the reference too and print the normalised mean squared error."},
        {"tolerance", PLEC_CLI_REAL, &o->tolerance, &o->tolerance_given, "X",
         "The error --check allows against the exact reference, and then nothing beyond it, "
         "whatever the device rounds; 1e-9, on cuda 4e-5."},
        {"step", PLEC_CLI_U32, &o->step, &o->step_given, "N", "Tokens of one step; 512."},
        {"json", PLEC_CLI_FLAG, &o->json, NULL, NULL, "Print one JSON object."},
    };
    struct plec_cli cli = {
        .command = &command, .options = own, .n_options = sizeof own / sizeof own[0]};
    int leave = plec_execution_cli_parse(&o->how, &cli, argc, argv);
    if (leave != PLEC_CLI_GO_ON) return leave;
    o->path = cli.operands[0];
    return check_options(o);
}

static int report(const struct plec_run *run) {
    int failed = PLEC_EXIT_OK;
    if (run->o.json)
        failed = plec_run_print_json(run);
    else
        plec_run_print(run);
    if (failed != PLEC_EXIT_OK) return failed;
    bool wrong = run->not_finite.n > 0 && !run->not_finite.given;
    return wrong || (run->check.done && !plec_run_within(run)) ? PLEC_EXIT_FOUND : PLEC_EXIT_OK;
}

int plec_command_run(int argc, char **argv) {
    struct plec_run run = {0};
    struct plec_error err;
    int leave = read_options(&run.o, argc, argv);
    if (leave != PLEC_CLI_GO_ON) return leave;
    if (plec_tracing_open(&run.tracing, &run.o.how.tracing, run.o.path, &err) != PLEC_OK)
        return plec_cli_error(&err);
    leave = plec_run_execute(&run, &err) == PLEC_OK ? report(&run)
                                                    : plec_execution_error(&run.o.how, &err);
    plec_run_say_not_finite(&run);
    plec_run_close(&run);
    /* After the runner: what it had begun has ended. */
    if (plec_tracing_close(run.tracing, &err) != PLEC_OK) {
        int failed = plec_cli_error(&err);
        if (leave == PLEC_EXIT_OK) leave = failed;
    }
    return leave;
}
