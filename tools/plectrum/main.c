/* main.c: the command-line tool `plectrum`: finds the command and leaves with its exit status. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tools/plectrum/bus_error.h"
#include "tools/plectrum/cli.h"
#include "tools/plectrum/commands.h"

struct command {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
};

static const struct command commands[] = {
    {"bench", "time decode and prefill through the layers of a container", plec_command_bench},
    {"convert", "make a bank container of a GGUF, TEZW or other container", plec_command_convert},
    {"gguf", "look at a GGUF model in every way its bytes allow", plec_command_gguf},
    {"inspect", "show what a container holds", plec_command_inspect},
    {"kernels", "list which programmes run in which formats on which backends",
     plec_command_kernels},
    {"layout", "lay a bank out on paper: bytes of tables, payload, extents and files",
     plec_command_layout},
    {"plan", "tell what fits, what will stream, and how fast that can be", plec_command_plan},
    {"run", "run one MoE layer", plec_command_run},
    {"trace", "replay a recorded routing through caches of every policy", plec_command_trace},
    {"verify", "check everything that can be checked without running", plec_command_verify},
    {"version", "tell the version, what was built in and what the machine offers",
     plec_command_version},
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static void print_overview(FILE *stream) {
    fputs("NAME\n"
          "    plectrum - run Mixture-of-Experts layers from expert banks and GGUF files\n\n"
          "SYNOPSIS\n"
          "    plectrum COMMAND [OPTIONS] [PATH]\n"
          "    plectrum COMMAND --help\n\n"
          "COMMANDS\n",
          stream);
    for (size_t i = 0; i < N_COMMANDS; i++)
        fprintf(stream, "    %-10s %s\n", commands[i].name, commands[i].summary);
    fputs("\nEXIT STATUS\n"
          "    0  done\n"
          "    1  the check found problems\n"
          "    2  the command line is wrong\n"
          "    3  the input is unreadable or refused\n"
          "    4  the machine could not: memory, input/output, a device not built or absent\n",
          stream);
}

static const struct command *find_command(const char *name) {
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0) return &commands[i];
    return NULL;
}

static int no_such_command(const char *name) {
    plec_cli_say("no command '%s'; `plectrum --help` lists them", name);
    return PLEC_EXIT_USAGE;
}

/* `plectrum help inspect` is `plectrum inspect --help`. */
static int help(int argc, char **argv) {
    if (argc < 2) {
        print_overview(stdout);
        return PLEC_EXIT_OK;
    }
    const struct command *command = find_command(argv[1]);
    if (command == NULL) return no_such_command(argv[1]);
    char option[] = "--help";
    char *args[] = {argv[1], option, NULL};
    return command->run(2, args);
}

static int dispatch(int argc, char **argv) {
    if (argc < 2) {
        print_overview(stderr);
        return PLEC_EXIT_USAGE;
    }
    const char *name = argv[1];
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return help(argc - 1, argv + 1);
    if (strcmp(name, "--version") == 0) {
        printf("plectrum %s\n", PLEC_VERSION);
        return PLEC_EXIT_OK;
    }
    const struct command *command = find_command(name);
    if (command == NULL) return no_such_command(name);
    return command->run(argc - 1, argv + 1);
}

int main(int argc, char **argv) {
    /* A limit on file sizes is told like a full disk, and what was begun is cleaned up. */
    signal(SIGXFSZ, SIG_IGN);
    plec_catch_bus_errors();
    int status = dispatch(argc, argv);
    /* A full disk shows here at the latest: output that did not arrive is no success. */
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) {
        plec_cli_say("cannot write the output: %s", errno != 0 ? strerror(errno) : "write error");
        return PLEC_EXIT_MACHINE;
    }
    return status;
}
