/* tracing.h: --trace, --plot and --nvtx of commands that run something: a tracer, and the files it
 * ends in.
 *
 * With --trace SIGUSR2 writes what was recorded so far, and SIGINT and SIGTERM do so before they
 * take their course: the file under the name is always a whole one. A thread of its own waits for
 * them; they are blocked elsewhere from open to close.
 */
#ifndef PLEC_TOOLS_TRACING_H
#define PLEC_TOOLS_TRACING_H

#include "host/tracer.h"
#include "tools/plectrum/cli.h"

struct plec_tracing;

/* As given; zeroed: nothing was. */
struct plec_tracing_words {
    const char *trace, *plot, *nvtx;
};
struct plec_tracing_options {
    const char *path; /* NULL: no file */
    const char *plot; /* NULL: no picture */
    bool own_picture; /* the command draws it; close does not */
    enum plec_nvtx_level nvtx;
};

enum { PLEC_TRACING_CLI_OPTIONS = 3 };
/* Rows of a command's options, into out [PLEC_TRACING_CLI_OPTIONS]; words must outlive them. */
void plec_tracing_cli_options(struct plec_cli_option *out, struct plec_tracing_words *words);
/* What the words say. PLEC_CLI_GO_ON, or the exit status after a message. */
int plec_tracing_cli_read(struct plec_tracing_options *out, const struct plec_cli_command *command,
                          const struct plec_tracing_words *words);

/* Before any other thread is started. model: what the trace is of, a view that lives until close.
 * PLEC_NO_MEMORY; PLEC_IO "CannotCreate": a file could not be written later either. */
PLEC_MUST_USE enum plec_status plec_tracing_open(struct plec_tracing **out,
                                                 const struct plec_tracing_options *options,
                                                 const char *model, struct plec_error *err);
/* NULL when there is neither a file nor a profiler. */
struct plec_tracer *plec_tracing_tracer(const struct plec_tracing *tracing);
/* What the device is called in the file. */
void plec_tracing_name_device(struct plec_tracing *tracing, const char *name);
/* Writes the files and says how many events there are, and how many were lost. Nobody may record
 * any more. NULL is nothing. */
PLEC_MUST_USE enum plec_status plec_tracing_close(struct plec_tracing *tracing,
                                                  struct plec_error *err);

#endif
