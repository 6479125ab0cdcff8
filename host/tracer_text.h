/* tracer_text.h: JSON text into a file by way of a buffer. The first failure sticks. */
#ifndef PLEC_HOST_TRACER_TEXT_H
#define PLEC_HOST_TRACER_TEXT_H

#include "lyrw/atomic_file.h"

enum { PLEC_TEXT_BUFFER = 1 << 16, PLEC_TEXT_LINE = 1024 };

struct plec_text {
    struct plec_atomic_file file;
    uint64_t written;
    size_t n;
    enum plec_status status;
    struct plec_error error;
    char buffer[PLEC_TEXT_BUFFER];
};

/* Statuses of plec_atomic_file_open_beside. */
PLEC_MUST_USE enum plec_status plec_text_open(struct plec_text *text, const char *path,
                                              struct plec_error *err);
/* At most PLEC_TEXT_LINE - 1 bytes at once. */
void plec_text_add(struct plec_text *text, const char *format, ...) PLEC_PRINTF(2, 3);
/* A JSON string of any bytes, in quotes; what cannot be printed is shown as '?'. */
void plec_text_add_string(struct plec_text *text, const char *value);
/* Makes the file stand under its path, unless something failed: then nothing is left. */
PLEC_MUST_USE enum plec_status plec_text_close(struct plec_text *text, struct plec_error *err);

#endif
