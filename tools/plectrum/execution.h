/* execution.h: the options that `run` and `bench` share: the device, how experts are streamed, and
 * what is told of it. */
#ifndef PLEC_TOOLS_EXECUTION_H
#define PLEC_TOOLS_EXECUTION_H

#include "tools/plectrum/device_option.h"
#include "tools/plectrum/stream_options.h"
#include "tools/plectrum/tracing.h"

struct plec_execution {
    const struct plec_cli_command *command; /* whose line it is */
    struct plec_device_choice device;
    struct plec_stream_options stream;
    struct plec_tracing_options tracing;
    struct {
        struct plec_device_words device;
        struct plec_stream_words stream;
        struct plec_tracing_words tracing;
    } words; /* as given */
};

/* Most options that a command has beside these. */
enum { PLEC_EXECUTION_OWN_MAX = 24 };
/* plec_cli_parse of the command's own options and of these. */
int plec_execution_cli_parse(struct plec_execution *out, struct plec_cli *own, int argc,
                             char **argv);
/* What the words say. PLEC_CLI_GO_ON, or the exit status after a message. */
int plec_execution_cli_read(struct plec_execution *execution);
/* Says which of the options mean nothing to the device that was opened, on stderr. */
void plec_execution_say_unused(const struct plec_execution *execution,
                               const struct plec_runner *runner);
/* Puts the container's path in front of why a runner did not open, unless that is the device's. */
void plec_execution_blame(struct plec_error *err, const char *path);
/* Says why a runner did not open, or what failed then; returns the exit status, which is that of a
 * wrong command line where the device knows no such rung. */
int plec_execution_error(const struct plec_execution *execution, const struct plec_error *err);

#endif
