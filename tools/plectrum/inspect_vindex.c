#include "tools/plectrum/cli.h"
#include "tools/plectrum/inspect.h"

int plec_inspect_vindex(const char *path, const struct plec_inspect_options *options) {
    (void)options;
    plec_cli_say("%s: is a directory", path);
    return PLEC_EXIT_INPUT;
}
