/* files.h: the files that a command line names: what is written stands in nobody's place, and can
 * be written, both known before the work. */
#ifndef PLEC_TOOLS_FILES_H
#define PLEC_TOOLS_FILES_H

#include "tools/plectrum/cli.h"

enum plec_file_use {
    PLEC_FILE_READ,
    PLEC_FILE_REPLACED, /* a new file takes the name */
    PLEC_FILE_WRITTEN   /* likewise, but a device or pipe that stands there is written to */
};
struct plec_cli_file {
    const char *option; /* "--csv", or "PATH": a container, whose files are not written to either */
    const char *path;   /* NULL: not given */
    enum plec_file_use use;
};

/* Refuses a file that is written under two names of the command line, or read and written: of PATH
 * also its manifests, its segments, the other shards of its set. PLEC_CLI_GO_ON, or the exit status
 * after a message. */
int plec_cli_check_files(const struct plec_cli_command *command, const struct plec_cli_file *files,
                         size_t n);
/* PLEC_IO "CannotCreate" for the first written one that could not be created. */
PLEC_MUST_USE enum plec_status plec_cli_try_files(const struct plec_cli_file *files, size_t n,
                                                  struct plec_error *err);

#endif
