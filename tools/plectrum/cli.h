/* cli.h: what the commands of `plectrum` share: options, help pages, exit statuses, messages.
 *
 * Owns: the parsing of a command line, the form of help pages, what goes to stdout and stderr.
 * Never: knows a command. A command is a function that fills a struct plec_cli, calls
 * plec_cli_parse, does its work and returns an exit status; main.c lists them.
 */
#ifndef PLEC_TOOLS_CLI_H
#define PLEC_TOOLS_CLI_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Exit statuses: scripts rely on them. */
enum plec_exit {
    PLEC_EXIT_OK = 0,
    PLEC_EXIT_FOUND = 1,  /* the check found problems */
    PLEC_EXIT_USAGE = 2,  /* the command line is wrong */
    PLEC_EXIT_INPUT = 3,  /* the input is unreadable or refused */
    PLEC_EXIT_MACHINE = 4 /* memory, input/output, a device not built or absent */
};

enum plec_cli_kind {
    PLEC_CLI_FLAG,  /* bool: set true */
    PLEC_CLI_TEXT,  /* const char *: a view into argv */
    PLEC_CLI_U32,   /* uint32_t */
    PLEC_CLI_U64,   /* uint64_t */
    PLEC_CLI_SIZE,  /* uint64_t bytes: 4096, 64KiB, 20GiB, 1TiB, 20GB */
    PLEC_CLI_REAL,  /* double, finite */
    PLEC_CLI_SPEED, /* double: GB/s (10^9 bytes), 0.001 to a million, so that what is reckoned from
                       it is a number for a person */
    PLEC_CLI_MICROSECONDS /* double: 0 to a million */
};

/* One long option. `value` points to a variable of the kind's type that already holds the default;
 * `given` (or NULL) is set true when the option stands on the line. The last one given wins. */
struct plec_cli_option {
    const char *name; /* "segment-cap", without dashes */
    enum plec_cli_kind kind;
    void *value;
    bool *given;
    const char *argument; /* "N", "FILE"; NULL for a flag */
    const char *help;     /* one paragraph; wrapped when printed */
};

/* The help page of a command, as text. Paragraphs are divided by an empty line; a line that starts
 * with a space is printed as it stands. */
struct plec_cli_command {
    const char *name;        /* "inspect" */
    const char *summary;     /* after the name, no full stop */
    const char *synopsis;    /* lines without "plectrum "; a continued line begins with spaces */
    const char *description; /* paragraphs */
    const char *exit_status; /* lines "0  ...", "1  ...", "3  ..."; NULL: "0  done" */
    const char *examples;    /* lines "$ plectrum ..." and what they give */
    size_t min_operands, max_operands;
};

enum { PLEC_CLI_OPERANDS_MAX = 64 };

struct plec_cli {
    const struct plec_cli_command *command;
    const struct plec_cli_option *options; /* [n_options] */
    size_t n_options;
    const char *operands[PLEC_CLI_OPERANDS_MAX]; /* [n_operands], views into argv */
    size_t n_operands;
};

enum { PLEC_CLI_GO_ON = -1 };

/* Reads the arguments after the command's name (argv[0] is the name). Options may stand anywhere,
 * as `--name value` or `--name=value`; `--` ends them. Returns PLEC_CLI_GO_ON, or the exit status
 * to leave with: 0 after --help was printed, 2 after a usage message. */
int plec_cli_parse(struct plec_cli *cli, int argc, char **argv);

/* Says what is wrong with the command line, on stderr with a pointer to --help; returns 2. */
int plec_cli_usage(const struct plec_cli_command *command, const char *format, ...)
    PLEC_PRINTF(2, 3);
/* Prints the error on stderr; returns the exit status of its code. */
int plec_cli_error(const struct plec_error *err);
/* The exit status of a status: 0, 3 for what the input caused, 4 for what the machine did. */
int plec_cli_exit_status(enum plec_status status);
/* "plectrum: <text>" on stderr, escaped as by plec_cli_put. */
void plec_cli_say(const char *format, ...) PLEC_PRINTF(1, 2);
/* A sink that says what libraries have to tell, on stderr. */
struct plec_log plec_cli_log(void);

/* The same, but what was just said is not said again: layers of a model are often alike. One thread
 * at a time; the state, zeroed at first, must outlive the sink. */
struct plec_cli_said {
    char last[512];
};
struct plec_log plec_cli_log_once(struct plec_cli_said *said);

/* One JSON object on stdout, members in the order they were set, integers exact. Takes the
 * reference; NULL is "out of memory". Returns 0 or 4. */
int plec_cli_print_json(json_t *object);
/* Text of a file's making on a stream; control characters and what is no UTF-8 as \xNN. */
void plec_cli_put(FILE *stream, const char *text);

#ifdef __cplusplus
}
#endif
#endif
