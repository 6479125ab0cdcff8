#include "manifests/json.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "manifests/json_place.h"

static const char *error_name(const json_error_t *error) {
    switch (json_error_code(error)) {
    case json_error_duplicate_key: return "DuplicateKey";
    case json_error_null_byte_in_key: return "NulInKey";
    case json_error_numeric_overflow:
        return strncmp(error->text, "real", 4) == 0 ? "RealRange" : "IntegerRange";
    default: return "JsonSyntax";
    }
}

static enum plec_status parse_failed(const char *text, size_t n_bytes, const json_error_t *error,
                                     struct plec_error *err) {
    /* jansson names no error where an allocation of its own failed. */
    if (json_error_code(error) == json_error_out_of_memory || error->text[0] == '\0')
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "JSON of %zu bytes", n_bytes);
    size_t at = error->position < 0 ? 0 : (size_t)error->position;
    if (at > n_bytes) at = n_bytes;
    char path[PLEC_JSON_PATH_MAX];
    plec_json_place_path(path, text, at);
    return plec_fail_at(err, PLEC_MALFORMED, error_name(error), at,
                        "%s: %s, line %d column %d, ending", path, error->text, error->line,
                        error->column);
}

enum plec_status plec_json_parse(json_t **out, const char *text, size_t n_bytes,
                                 struct plec_error *err) {
    *out = NULL;
    if (n_bytes > PLEC_JSON_BYTES_MAX)
        return plec_fail(err, PLEC_MALFORMED, "TooLarge", "%zu bytes of JSON, at most %d", n_bytes,
                         PLEC_JSON_BYTES_MAX);
    size_t deep;
    if (!plec_json_place_depth(&deep, text, n_bytes))
        return plec_fail_at(err, PLEC_MALFORMED, "TooDeep", deep, "JSON nested deeper than %d",
                            PLEC_JSON_DEPTH_MAX);
    json_error_t error;
    *out = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    return *out != NULL ? PLEC_OK : parse_failed(text, n_bytes, &error, err);
}

static enum plec_status read_all(char *text, size_t n_bytes, int fd, const char *path,
                                 struct plec_error *err) {
    for (size_t at = 0; at < n_bytes;) {
        ssize_t n = read(fd, text + at, n_bytes - at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return plec_fail(err, PLEC_IO, "ReadFailed", "%s: %s", path, strerror(errno));
        if (n == 0)
            return plec_fail(err, PLEC_IO, "ReadFailed", "%s: %zu bytes, then the end, of %zu",
                             path, at, n_bytes);
        at += (size_t)n;
    }
    return PLEC_OK;
}

static enum plec_status load_descriptor(json_t **out, int fd, const char *path,
                                        struct plec_error *err) {
    struct stat info;
    if (fstat(fd, &info) != 0)
        return plec_fail(err, PLEC_IO, "StatFailed", "%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return plec_fail(err, PLEC_MISSING, "NotAFile", "%s: not a regular file", path);
    if (info.st_size > PLEC_JSON_BYTES_MAX)
        return plec_fail(err, PLEC_MALFORMED, "TooLarge", "%s: %lld bytes of JSON, at most %d",
                         path, (long long)info.st_size, PLEC_JSON_BYTES_MAX);
    size_t n_bytes = (size_t)info.st_size;
    char *text = malloc(n_bytes + 1);
    if (text == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%s: %zu bytes", path, n_bytes);
    enum plec_status status = read_all(text, n_bytes, fd, path, err);
    if (status == PLEC_OK) {
        status = plec_json_parse(out, text, n_bytes, err);
        if (status != PLEC_OK) plec_error_context(err, "%s", path);
    }
    free(text);
    return status;
}

enum plec_status plec_json_load(json_t **out, const char *path, struct plec_error *err) {
    *out = NULL;
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return plec_fail(err, PLEC_MISSING, "CannotOpen", "%s: %s", path, strerror(errno));
    enum plec_status status = load_descriptor(out, fd, path, err);
    close(fd);
    return status;
}
