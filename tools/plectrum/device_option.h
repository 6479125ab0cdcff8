/* device_option.h: the device on a command line: --device, and how it is used. */
#ifndef PLEC_TOOLS_DEVICE_OPTION_H
#define PLEC_TOOLS_DEVICE_OPTION_H

#include <jansson.h>

#include "host/runner.h"
#include "tools/plectrum/cli.h"

/* "auto", "cpu", "cuda", "reference". PLEC_CLI_GO_ON, or the exit status after a message. */
int plec_cli_device(enum plec_run_device *out, const struct plec_cli_command *command,
                    const char *name);

/* As given; zeroed: nothing was. */
struct plec_device_words {
    const char *device, *graphs, *rung, *cublas;
    uint32_t n_threads;
};
struct plec_device_choice {
    enum plec_run_device device;
    uint32_t n_threads;
    bool eager;
    const char *rung, *cublas;
};

enum { PLEC_DEVICE_CLI_OPTIONS = 5 };
/* Rows of a command's options, into out [PLEC_DEVICE_CLI_OPTIONS]; words must outlive them. */
void plec_device_cli_options(struct plec_cli_option *out, struct plec_device_words *words);
/* What the words say. PLEC_CLI_GO_ON, or the exit status after a message. */
int plec_device_cli_read(struct plec_device_choice *out, const struct plec_cli_command *command,
                         const struct plec_device_words *words);
/* Sets what a runner takes of it. */
void plec_device_choose(struct plec_runner_options *out, const struct plec_device_choice *choice);

/* {"captured", "replayed", "launched"}, or null where there are no graphs. */
json_t *plec_graphs_json(const struct plec_runner *runner);

#endif
