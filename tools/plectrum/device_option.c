#include "tools/plectrum/device_option.h"

#include <string.h>

int plec_cli_device(enum plec_run_device *out, const struct plec_cli_command *command,
                    const char *name) {
    static const struct {
        const char *name;
        enum plec_run_device device;
    } names[] = {{"auto", PLEC_RUN_AUTO},
                 {"cpu", PLEC_RUN_CPU},
                 {"cuda", PLEC_RUN_CUDA},
                 {"reference", PLEC_RUN_REFERENCE}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i].name) == 0) {
            *out = names[i].device;
            return PLEC_CLI_GO_ON;
        }
    return plec_cli_usage(command, "--device wants auto, cpu, cuda or reference, found '%s'", name);
}
