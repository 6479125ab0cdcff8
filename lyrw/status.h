/* status.h: how every part of Plectrum reports success, failure, findings and news.
 *
 * Owns: the status codes, the error record a failing call fills, the log sink a caller may set.
 * Never: prints, allocates, aborts.
 *
 * One convention everywhere: functions that can fail return enum plec_status, 0 is success, and
 * take a `struct plec_error *` last (NULL is accepted). What only a bug of ours can cause is an
 * assert, not a status.
 */
#ifndef PLEC_LYRW_STATUS_H
#define PLEC_LYRW_STATUS_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define PLEC_MUST_USE         __attribute__((warn_unused_result))
#define PLEC_PRINTF(fmt, arg) __attribute__((format(printf, fmt, arg)))
#else
#define PLEC_MUST_USE
#define PLEC_PRINTF(fmt, arg)
#endif

enum plec_status {
    PLEC_OK = 0,
    PLEC_MALFORMED,   /* bytes or JSON that are not what they say they are */
    PLEC_UNSUPPORTED, /* well-formed, but no definition, codec or kernel here can run it */
    PLEC_MISSING,     /* a file, layer, segment, region or variant that is not there */
    PLEC_BAD_INPUT,   /* the caller's request or arrays do not fit: width, ids, NaN scores */
    PLEC_NO_MEMORY,   /* the machine could not: allocation */
    PLEC_IO,          /* the machine could not: read, write, sync, map */
    PLEC_NO_DEVICE,   /* the machine could not: device not built, absent or failing */
    PLEC_CANCELLED    /* asked to stop before the work was done */
};

enum { PLEC_ERROR_MESSAGE_MAX = 768 };

/* Filled by a failing call. `name` is a static string, stable across releases: the word that
 * scripts and tests match ("Truncated", "SelectionExceedsBank"). `message` reads
 * "<context>: <name>: <text>": path, bank, entry, role, byte, what was wanted and what was found.
 */
struct plec_error {
    enum plec_status code;
    const char *name;
    uint64_t byte; /* offset in the file, where one applies; else 0 */
    char message[PLEC_ERROR_MESSAGE_MAX];
};

/* Fills *err (NULL: nothing) with code, name and "<name>: <text>", and returns code. Control
 * characters in the text, and bytes that are not UTF-8, are written as \xNN: no file name or JSON
 * string can drive a terminal, and every message is a JSON string. */
enum plec_status plec_fail(struct plec_error *err, enum plec_status code, const char *name,
                           const char *format, ...) PLEC_PRINTF(4, 5);

/* Like plec_fail, for a fault at a byte of a file; sets err->byte and adds " at byte N". */
enum plec_status plec_fail_at(struct plec_error *err, enum plec_status code, const char *name,
                              uint64_t byte, const char *format, ...) PLEC_PRINTF(5, 6);

/* Puts "<text>: " in front of the message of an error already filled: each layer that passes an
 * error on adds the coordinate it knows (path, layer, storage key). NULL err: nothing. */
void plec_error_context(struct plec_error *err, const char *format, ...) PLEC_PRINTF(2, 3);

/* "ok", "malformed", ... for a status. */
const char *plec_status_name(enum plec_status status);

/* News for a person, by how often the event can happen. */
enum plec_log_level { PLEC_LOG_RUN, PLEC_LOG_STEP, PLEC_LOG_EXPERT };

/* Where news goes. A zeroed sink is silent. `write` may be called from any thread. */
struct plec_log {
    void (*write)(void *user, enum plec_log_level level, const char *message);
    void *user;
};

/* Formats into the sink; nothing when log is NULL or has no writer. Thread-safe if the sink is. */
void plec_log_write(const struct plec_log *log, enum plec_log_level level, const char *format, ...)
    PLEC_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif
#endif
