#include "tools/plectrum/execution.h"

#include <assert.h>
#include <string.h>

int plec_execution_cli_parse(struct plec_execution *out, struct plec_cli *own, int argc,
                             char **argv) {
    enum { OPTIONS = PLEC_DEVICE_CLI_OPTIONS + PLEC_STREAM_CLI_OPTIONS + PLEC_TRACING_CLI_OPTIONS };
    struct plec_cli_option options[PLEC_EXECUTION_OWN_MAX + OPTIONS], *more = options;
    struct plec_cli cli = {
        .command = own->command, .options = options, .n_options = own->n_options + OPTIONS};
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

int plec_execution_cli_read(struct plec_execution *execution,
                            const struct plec_cli_command *command) {
    int leave = plec_stream_cli_read(&execution->stream, command, &execution->words.stream);
    if (leave == PLEC_CLI_GO_ON)
        leave = plec_tracing_cli_read(&execution->tracing, command, &execution->words.tracing);
    if (leave == PLEC_CLI_GO_ON)
        leave = plec_device_cli_read(&execution->device, command, &execution->words.device);
    return leave;
}
