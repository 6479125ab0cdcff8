/* progress.h: a line that tells how far long work has come, for a person at a terminal.
 *
 * Nothing is written when stderr is no terminal, nor in the first second; after that the line is
 * redrawn at most ten times a second and wiped at the end. Not thread-safe: one thread updates.
 */
#ifndef PLEC_TOOLS_PROGRESS_H
#define PLEC_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum plec_progress_unit { PLEC_PROGRESS_COUNT, PLEC_PROGRESS_BYTES };

struct plec_progress {
    FILE *stream;        /* where; NULL: nowhere, the calls do nothing */
    double (*now)(void); /* seconds; tests set their own */
    const char *what;    /* "hashing", a static string */
    enum plec_progress_unit unit;
    uint64_t total;        /* 0: not known */
    double started, drawn; /* seconds; drawn: last redraw */
    bool visible;          /* a line stands on the terminal */
};

/* Starts on stderr when that is a terminal. */
struct plec_progress plec_progress_start(const char *what, uint64_t total,
                                         enum plec_progress_unit unit);
/* `done` of `total`; cheap enough for an inner loop of a few thousand calls a second. */
void plec_progress_update(struct plec_progress *progress, uint64_t done);
/* Wipes the line. Safe to call twice. */
void plec_progress_end(struct plec_progress *progress);

#ifdef __cplusplus
}
#endif
#endif
