#include "tools/plectrum/execution.h"

#include <assert.h>
#include <string.h>

int plec_execution_cli_parse(struct plec_execution *out, struct plec_cli *own, int argc,
                             char **argv) {
    enum { OPTIONS = PLEC_DEVICE_CLI_OPTIONS + PLEC_STREAM_CLI_OPTIONS + PLEC_TRACING_CLI_OPTIONS };
    struct plec_cli_option options[PLEC_EXECUTION_OWN_MAX + OPTIONS], *more = options;
    struct plec_cli cli = {
        .command = own->command, .options = options, .n_options = own->n_options + OPTIONS};
    out->command = own->command;
    assert(own->n_options <= PLEC_EXECUTION_OWN_MAX);
    memcpy(options, own->options, own->n_options * sizeof *options);
    plec_device_cli_options(more += own->n_options, &out->words.device);
    plec_stream_cli_options(more += PLEC_DEVICE_CLI_OPTIONS, &out->words.stream);
    plec_tracing_cli_options(more += PLEC_STREAM_CLI_OPTIONS, &out->words.tracing);
    int leave = plec_cli_parse(&cli, argc, argv);
    memcpy(own->operands, cli.operands, sizeof cli.operands);
    own->n_operands = cli.n_operands;
    return leave;
}

static bool is_baseline(const char *rung) {
    return rung != NULL && strncmp(rung, "cublas_", strlen("cublas_")) == 0;
}

/* What the device on the command line makes nothing of. */
static int check_device(const struct plec_execution *e) {
    const struct plec_device_words *words = &e->words.device;
    enum plec_run_device device = e->device.device;
    bool reference = device == PLEC_RUN_REFERENCE;
    if (words->cublas != NULL && !is_baseline(words->rung))
        return plec_cli_usage(e->command,
                              "--cublas goes with --rung cublas_loop or cublas_grouped");
    if (words->graphs != NULL && (reference || device == PLEC_RUN_CPU))
        return plec_cli_usage(e->command, "--graphs goes with cuda, not with --device %s",
                              words->device);
    if (words->n_threads != 0 && (reference || device == PLEC_RUN_CUDA))
        return plec_cli_usage(e->command, "--threads goes with the CPU, not with --device %s",
                              words->device);
    if (reference && words->rung != NULL)
        return plec_cli_usage(e->command, "--rung: the reference has no kernels to choose from");
    if (reference && e->words.stream.device_given)
        return plec_cli_usage(e->command, "--device-budget: the reference streams nothing");
    return PLEC_CLI_GO_ON;
}

int plec_execution_cli_read(struct plec_execution *e) {
    int leave = plec_stream_cli_read(&e->stream, e->command, &e->words.stream);
    if (leave == PLEC_CLI_GO_ON)
        leave = plec_tracing_cli_read(&e->tracing, e->command, &e->words.tracing);
    if (leave == PLEC_CLI_GO_ON)
        leave = plec_device_cli_read(&e->device, e->command, &e->words.device);
    return leave == PLEC_CLI_GO_ON ? check_device(e) : leave;
}

void plec_execution_say_unused(const struct plec_execution *execution,
                               const struct plec_runner *runner) {
    const struct plec_device_words *words = &execution->words.device;
    enum plec_run_device device = plec_runner_device(runner);
    if (words->graphs != NULL && device != PLEC_RUN_CUDA)
        plec_cli_say("--graphs changes nothing: %s has none", plec_runner_device_name(runner));
    if (words->n_threads != 0 && device != PLEC_RUN_CPU)
        plec_cli_say("--threads changes nothing on %s", plec_runner_device_name(runner));
}

static bool is_no_such_rung(const struct plec_error *err) {
    return strcmp(err->name, "NoSuchRung") == 0;
}

void plec_execution_blame(struct plec_error *err, const char *path) {
    if (err->code != PLEC_NO_DEVICE && !is_no_such_rung(err)) plec_error_context(err, "%s", path);
}

int plec_execution_error(const struct plec_execution *execution, const struct plec_error *err) {
    if (is_no_such_rung(err)) return plec_cli_usage(execution->command, "--rung: %s", err->message);
    return plec_cli_error(err);
}
