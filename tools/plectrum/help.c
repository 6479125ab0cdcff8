#include "tools/plectrum/help.h"

#include <string.h>

enum { PAGE_WIDTH = 80, TEXT_INDENT = 4, OPTION_INDENT = 12 };

/* Prints one line's worth of words, wrapped at the page's width behind an indent. */
static void print_wrapped(const char *text, size_t length, int indent) {
    int column = 0;
    size_t at = 0;
    while (at < length) {
        while (at < length && text[at] == ' ')
            at++;
        size_t end = at;
        while (end < length && text[end] != ' ')
            end++;
        int word = (int)(end - at);
        if (word == 0) break;
        if (column > 0 && column + 1 + word > PAGE_WIDTH) {
            putchar('\n');
            column = 0;
        }
        if (column == 0)
            column = printf("%*s%.*s", indent, "", word, text + at);
        else
            column += printf(" %.*s", word, text + at);
        at = end;
    }
    putchar('\n');
}

/* A line that starts with a space stands as it is; an empty one parts paragraphs. */
static void print_paragraphs(const char *text, int indent) {
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        if (length == 0)
            putchar('\n');
        else if (text[0] == ' ')
            printf("%*s%.*s\n", indent - 1, "", (int)length, text);
        else
            print_wrapped(text, length, indent);
        text += length;
        if (*text == '\n') text++;
    }
}

/* prefix: what stands before every line that is not indented itself. */
static void print_lines(const char *text, const char *prefix) {
    while (*text != '\0') {
        size_t length = strcspn(text, "\n");
        printf("%*s%s%.*s\n", TEXT_INDENT, "", text[0] == ' ' ? "" : prefix, (int)length, text);
        text += length;
        if (*text == '\n') text++;
    }
}

static void print_options(const struct plec_cli *cli) {
    for (size_t i = 0; i < cli->n_options; i++) {
        const struct plec_cli_option *option = &cli->options[i];
        printf("%*s--%s%s%s\n", TEXT_INDENT, "", option->name, option->argument ? " " : "",
               option->argument ? option->argument : "");
        print_paragraphs(option->help, OPTION_INDENT);
    }
    printf("%*s--help\n%*sPrint this page.\n", TEXT_INDENT, "", OPTION_INDENT, "");
}

/* The command's own statuses and those of every command, in order. */
static void print_exit_status(const char *own) {
    static const char usage[] = "2  the command line is wrong\n";
    static const char machine[] =
        "4  the machine could not: memory, input/output, a device not built or absent\n";
    const char *input = strstr(own, "\n3 ");
    int before = input == NULL ? (int)strlen(own) : (int)(input - own);
    char text[1024];
    snprintf(text, sizeof text, "%.*s\n%s%s%s%s", before, own, usage,
             input == NULL ? "" : input + 1, input == NULL ? "" : "\n", machine);
    print_lines(text, "");
}

void plec_help_print(const struct plec_cli *cli) {
    const struct plec_cli_command *command = cli->command;
    printf("NAME\n    plectrum %s - %s\n\nSYNOPSIS\n", command->name, command->summary);
    print_lines(command->synopsis, "plectrum ");
    puts("\nDESCRIPTION");
    print_paragraphs(command->description, TEXT_INDENT);
    puts("\nOPTIONS");
    print_options(cli);
    puts("\nEXIT STATUS");
    print_exit_status(command->exit_status != NULL ? command->exit_status : "0  done");
    puts("\nEXAMPLES");
    print_lines(command->examples, "");
}
