#include "tools/plectrum/cli.h"

#include <stdlib.h>
#include <string.h>

#include "lyrw/view.h"
#include "tools/plectrum/help.h"
#include "tools/plectrum/units.h"

int plec_cli_exit_status(enum plec_status status) {
    switch (status) {
    case PLEC_OK: return PLEC_EXIT_OK;
    case PLEC_MALFORMED:
    case PLEC_UNSUPPORTED:
    case PLEC_MISSING:
    case PLEC_BAD_INPUT: return PLEC_EXIT_INPUT;
    case PLEC_NO_MEMORY:
    case PLEC_IO:
    case PLEC_NO_DEVICE:
    case PLEC_CANCELLED: return PLEC_EXIT_MACHINE;
    }
    return PLEC_EXIT_MACHINE;
}

void plec_cli_put(FILE *stream, const char *text) {
    for (size_t left = strlen(text), n; left > 0; text += n, left -= n) {
        n = plec_view_clean_length(text, left);
        if (n > 0) {
            fwrite(text, 1, n, stream);
        } else {
            fprintf(stream, "\\x%02x", (unsigned char)*text);
            n = 1;
        }
    }
}

static void say(const char *format, va_list args) {
    char text[PLEC_ERROR_MESSAGE_MAX + 256];
    vsnprintf(text, sizeof text, format, args);
    fflush(stdout);
    fputs("plectrum: ", stderr);
    plec_cli_put(stderr, text);
    fputc('\n', stderr);
}

void plec_cli_say(const char *format, ...) {
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
}

int plec_cli_error(const struct plec_error *err) {
    plec_cli_say("%s", err->message);
    return plec_cli_exit_status(err->code);
}

int plec_cli_usage(const struct plec_cli_command *command, const char *format, ...) {
    va_list args;
    va_start(args, format);
    say(format, args);
    va_end(args);
    plec_cli_say("see `plectrum %s --help`", command->name);
    return PLEC_EXIT_USAGE;
}

static void log_to_stderr(void *user, enum plec_log_level level, const char *message) {
    (void)user;
    if (level == PLEC_LOG_RUN) plec_cli_say("%s", message);
}

struct plec_log plec_cli_log(void) {
    return (struct plec_log){log_to_stderr, NULL};
}

static void log_unless_said(void *user, enum plec_log_level level, const char *message) {
    struct plec_cli_said *said = user;
    if (level != PLEC_LOG_RUN || strncmp(message, said->last, sizeof said->last - 1) == 0) return;
    snprintf(said->last, sizeof said->last, "%s", message);
    plec_cli_say("%s", message);
}

struct plec_log plec_cli_log_once(struct plec_cli_said *said) {
    return (struct plec_log){log_unless_said, said};
}

int plec_cli_print_json(json_t *object) {
    if (object == NULL) {
        plec_cli_say("out of memory");
        return PLEC_EXIT_MACHINE;
    }
    int failed = json_dumpf(object, stdout, 0);
    json_decref(object);
    if (fputc('\n', stdout) == EOF) failed = 1;
    if (failed) plec_cli_say("cannot write the output");
    return failed ? PLEC_EXIT_MACHINE : PLEC_EXIT_OK;
}

static const struct plec_cli_option *find_option(const struct plec_cli *cli, const char *name,
                                                 size_t length) {
    for (size_t i = 0; i < cli->n_options; i++) {
        const char *candidate = cli->options[i].name;
        if (strlen(candidate) == length && memcmp(candidate, name, length) == 0)
            return &cli->options[i];
    }
    return NULL;
}

/* Edits (insert, delete, replace) between two short words; longer ones count as far apart. */
static size_t edit_distance(const char *a, const char *b) {
    enum { WORD_MAX = 32 };
    size_t n = strlen(a), m = strlen(b), row[WORD_MAX + 1];
    if (n > WORD_MAX || m > WORD_MAX) return WORD_MAX;
    for (size_t j = 0; j <= m; j++)
        row[j] = j;
    for (size_t i = 1; i <= n; i++) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= m; j++) {
            size_t best = diagonal + (a[i - 1] != b[j - 1]);
            if (row[j] + 1 < best) best = row[j] + 1;
            if (row[j - 1] + 1 < best) best = row[j - 1] + 1;
            diagonal = row[j];
            row[j] = best;
        }
    }
    return row[m];
}

static int unknown_option(const struct plec_cli *cli, const char *arg) {
    const char *nearest = NULL;
    size_t distance = 4;
    for (size_t i = 0; i < cli->n_options; i++) {
        size_t d = edit_distance(arg + 2, cli->options[i].name);
        if (d < distance) {
            distance = d;
            nearest = cli->options[i].name;
        }
    }
    if (nearest != NULL)
        return plec_cli_usage(cli->command, "unknown option '%s'; did you mean --%s?", arg,
                              nearest);
    return plec_cli_usage(cli->command, "unknown option '%s'", arg);
}

static bool read_real(double *out, const char *text) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end != '\0' || !(value - value == 0)) return false;
    *out = value;
    return true;
}

static bool read_real_from(double *out, const char *text, double least, double most) {
    double value;
    if (!read_real(&value, text) || value < least || value > most) return false;
    *out = value;
    return true;
}

/* NULL when text fits the option; else what was wanted. */
static const char *store(const struct plec_cli_option *option, const char *text) {
    uint64_t n = 0;
    switch (option->kind) {
    case PLEC_CLI_FLAG: *(bool *)option->value = true; return NULL;
    case PLEC_CLI_TEXT: *(const char **)option->value = text; return NULL;
    case PLEC_CLI_U32:
        if (!plec_count_parse(&n, text, UINT32_MAX)) return "a whole number below 2^32";
        *(uint32_t *)option->value = (uint32_t)n;
        return NULL;
    case PLEC_CLI_U64:
        if (!plec_count_parse(&n, text, UINT64_MAX)) return "a whole number below 2^64";
        *(uint64_t *)option->value = n;
        return NULL;
    case PLEC_CLI_SIZE:
        if (!plec_size_parse(&n, text)) return "a size such as 4096, 64KiB or 20GiB";
        *(uint64_t *)option->value = n;
        return NULL;
    case PLEC_CLI_REAL:
        if (!read_real((double *)option->value, text)) return "a finite number";
        return NULL;
    case PLEC_CLI_SPEED:
        if (!read_real_from((double *)option->value, text, 1e-3, 1e6))
            return "GB/s from 0.001 to 1000000";
        return NULL;
    case PLEC_CLI_MICROSECONDS:
        if (!read_real_from((double *)option->value, text, 0, 1e6))
            return "microseconds from 0 to 1000000";
        return NULL;
    }
    return "another kind";
}

/* Takes the option at argv[*i] and, when it needs one, the value after it. */
static int take_option(struct plec_cli *cli, int argc, char **argv, int *i) {
    const char *arg = argv[*i];
    const char *equals = strchr(arg, '=');
    size_t length = equals != NULL ? (size_t)(equals - arg) - 2 : strlen(arg) - 2;
    const struct plec_cli_option *option = find_option(cli, arg + 2, length);
    if (option == NULL) return unknown_option(cli, arg);
    const char *text = equals != NULL ? equals + 1 : NULL;
    if (option->kind == PLEC_CLI_FLAG && text != NULL)
        return plec_cli_usage(cli->command, "--%s takes no value", option->name);
    if (option->kind != PLEC_CLI_FLAG && text == NULL) {
        if (*i + 1 >= argc)
            return plec_cli_usage(cli->command, "--%s wants a value: %s", option->name,
                                  option->argument);
        text = argv[++*i];
    }
    const char *wanted = store(option, text);
    if (wanted != NULL)
        return plec_cli_usage(cli->command, "--%s wants %s, found '%s'", option->name, wanted,
                              text);
    if (option->given != NULL) *option->given = true;
    return PLEC_CLI_GO_ON;
}

static int take_operand(struct plec_cli *cli, const char *arg) {
    if (cli->n_operands == cli->command->max_operands)
        return plec_cli_usage(cli->command, "one argument too many: '%s'", arg);
    cli->operands[cli->n_operands++] = arg;
    return PLEC_CLI_GO_ON;
}

static bool wants_help(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0) return true;
    return false;
}

int plec_cli_parse(struct plec_cli *cli, int argc, char **argv) {
    if (wants_help(argc, argv)) {
        plec_help_print(cli);
        return PLEC_EXIT_OK;
    }
    bool options_ended = false;
    cli->n_operands = 0;
    for (int i = 1; i < argc; i++) {
        int leave = PLEC_CLI_GO_ON;
        if (!options_ended && strcmp(argv[i], "--") == 0)
            options_ended = true;
        else if (!options_ended && strncmp(argv[i], "--", 2) == 0)
            leave = take_option(cli, argc, argv, &i);
        else if (!options_ended && argv[i][0] == '-' && argv[i][1] != '\0')
            leave = plec_cli_usage(cli->command, "unknown option '%s'; options are long: --name",
                                   argv[i]);
        else
            leave = take_operand(cli, argv[i]);
        if (leave != PLEC_CLI_GO_ON) return leave;
    }
    if (cli->n_operands < cli->command->min_operands)
        return plec_cli_usage(cli->command, "%s: an argument is missing", cli->command->name);
    return PLEC_CLI_GO_ON;
}
