/* help.h: the help page of a command, in the order of a manual page. */
#ifndef PLEC_TOOLS_HELP_H
#define PLEC_TOOLS_HELP_H

#include "tools/plectrum/cli.h"

/* NAME, SYNOPSIS, DESCRIPTION, OPTIONS, EXIT STATUS, EXAMPLES on stdout, 80 columns wide. */
void plec_help_print(const struct plec_cli *cli);

#endif
