/* stream_options.h: streaming of experts on a command line: its options, and what it did. */
#ifndef PLEC_TOOLS_STREAM_OPTIONS_H
#define PLEC_TOOLS_STREAM_OPTIONS_H

#include <jansson.h>

#include "host/runner.h"
#include "tools/plectrum/cli.h"

/* As given; zeroed: nothing was. */
struct plec_stream_words {
    uint64_t device_budget, pinned_budget;
    uint32_t extent;
    const char *io, *io_cache, *pin, *policy, *speculate;
    bool device_given, pinned_given, extent_given, bypass;
};

enum { PLEC_STREAM_CLI_OPTIONS = 9 };
/* Rows of a command's options, into out [PLEC_STREAM_CLI_OPTIONS]; words must outlive them. */
void plec_stream_cli_options(struct plec_cli_option *out, struct plec_stream_words *words);
/* What the words say. PLEC_CLI_GO_ON, or the exit status after a message. */
int plec_stream_cli_read(struct plec_stream_options *out, const struct plec_cli_command *command,
                         const struct plec_stream_words *words);

enum { PLEC_STREAM_TEXT_MAX = 96 };
/* "3 slots and 4 frames of 12.0 MiB"; "3 slots of 12.1 MiB and 4 frames of 12.0 MiB" where experts
 * arrive in another form. */
void plec_stream_text_tiers(char out[PLEC_STREAM_TEXT_MAX], const struct plec_stream_stats *stats);
/* Lines for a person on stdout, and an object: experts, hits and bytes by tier, stalls. */
void plec_stream_print(const struct plec_stream_stats *stats);
json_t *plec_stream_json(const struct plec_stream_stats *stats);

#endif
