/* device_option.h: the option --device. */
#ifndef PLEC_TOOLS_DEVICE_OPTION_H
#define PLEC_TOOLS_DEVICE_OPTION_H

#include "host/runner.h"
#include "tools/plectrum/cli.h"

/* "auto", "cpu", "cuda", "reference". PLEC_CLI_GO_ON, or the exit status after a message. */
int plec_cli_device(enum plec_run_device *out, const struct plec_cli_command *command,
                    const char *name);

#endif
