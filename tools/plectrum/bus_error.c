#include "tools/plectrum/bus_error.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "tools/plectrum/cli.h"

/* Everything here runs inside a signal handler: only calls that are safe there, no memory. */

enum { LINE_MAX_BYTES = 4352 }; /* of /proc/self/maps: numbers and a path */

/* One mapping: "start-end flags offset device inode path", numbers in hexadecimal. */
struct mapped_file {
    uint64_t start, end, offset;
    const char *path;
};

static const char *take_hex(uint64_t *out, const char *at) {
    *out = 0;
    for (;; at++) {
        int digit;
        if (*at >= '0' && *at <= '9')
            digit = *at - '0';
        else if (*at >= 'a' && *at <= 'f')
            digit = *at - 'a' + 10;
        else
            return at;
        *out = *out * 16 + (uint64_t)digit;
    }
}

static bool read_mapping(struct mapped_file *out, const char *line) {
    const char *at = take_hex(&out->start, line);
    if (*at++ != '-') return false;
    at = take_hex(&out->end, at);
    if (*at++ != ' ') return false;
    at = strchr(at, ' '); /* after the flags */
    if (at == NULL) return false;
    take_hex(&out->offset, at + 1);
    out->path = strchr(at, '/');
    return out->path != NULL;
}

/* Reads a line without its end; false at the end of the file. A longer line loses its tail. */
static bool next_line(int fd, char line[LINE_MAX_BYTES]) {
    size_t n = 0;
    char c;
    while (read(fd, &c, 1) == 1) {
        if (c == '\n') {
            line[n] = 0;
            return true;
        }
        if (n < LINE_MAX_BYTES - 1) line[n++] = c;
    }
    return false;
}

static void say(const char *text) {
    ssize_t written = write(STDERR_FILENO, text, strlen(text));
    (void)written; /* nobody is left to tell */
}

static void say_number(uint64_t number) {
    char digits[24];
    size_t at = sizeof digits - 1;
    digits[at] = 0;
    do {
        digits[--at] = (char)('0' + number % 10);
        number /= 10;
    } while (number != 0);
    say(digits + at);
}

static void leave(const struct mapped_file *file, uint64_t address) {
    say("plectrum: FileCutShort: ");
    say(file->path);
    say(": byte ");
    say_number(file->offset + (address - file->start));
    say(" could not be read: the file became shorter while it was in use, or its disk failed\n");
    _exit(PLEC_EXIT_MACHINE);
}

static void on_bus_error(int number, siginfo_t *info, void *context) {
    (void)context;
    uint64_t address = (uint64_t)(uintptr_t)info->si_addr;
    char line[LINE_MAX_BYTES];
    struct mapped_file file;
    int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && next_line(fd, line))
        if (read_mapping(&file, line) && address >= file.start && address < file.end)
            leave(&file, address);
    signal(number, SIG_DFL); /* the access runs again, to its default end */
}

void plec_catch_bus_errors(void) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, NULL);
}
