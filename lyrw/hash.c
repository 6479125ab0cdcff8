#include "lyrw/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Large enough that reading and hashing dominate, small enough for any machine. */
enum { PIECE = 1 << 20 };

static enum plec_status digest_failed(struct plec_error *err) {
    return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "SHA-256 cannot be set up");
}

static enum plec_status finish(char *out, EVP_MD_CTX *context, struct plec_error *err) {
    static const char digits[] = "0123456789abcdef";
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (EVP_DigestFinal_ex(context, digest, &n) != 1 || n != 32) return digest_failed(err);
    for (unsigned i = 0; i < n; i++) {
        out[2 * i] = digits[digest[i] >> 4];
        out[2 * i + 1] = digits[digest[i] & 15];
    }
    out[2 * n] = '\0';
    return PLEC_OK;
}

static enum plec_status begin(EVP_MD_CTX **out, struct plec_error *err) {
    *out = EVP_MD_CTX_new();
    if (*out == NULL || EVP_DigestInit_ex(*out, EVP_sha256(), NULL) != 1) return digest_failed(err);
    return PLEC_OK;
}

enum plec_status plec_sha256(char out[PLEC_SHA256_TEXT], const void *bytes, size_t n_bytes,
                             struct plec_error *err) {
    EVP_MD_CTX *context;
    enum plec_status status = begin(&context, err);
    if (status == PLEC_OK && n_bytes > 0 && EVP_DigestUpdate(context, bytes, n_bytes) != 1)
        status = digest_failed(err);
    if (status == PLEC_OK) status = finish(out, context, err);
    EVP_MD_CTX_free(context);
    return status;
}

struct plec_sha256_stream {
    EVP_MD_CTX *context;
};

enum plec_status plec_sha256_open(struct plec_sha256_stream **out, struct plec_error *err) {
    *out = calloc(1, sizeof **out);
    enum plec_status status = *out == NULL ? digest_failed(err) : begin(&(*out)->context, err);
    if (status == PLEC_OK) return PLEC_OK;
    plec_sha256_close(*out);
    *out = NULL;
    return status;
}

enum plec_status plec_sha256_update(struct plec_sha256_stream *stream, const void *bytes,
                                    size_t n_bytes, struct plec_error *err) {
    if (n_bytes == 0 || EVP_DigestUpdate(stream->context, bytes, n_bytes) == 1) return PLEC_OK;
    return digest_failed(err);
}

enum plec_status plec_sha256_finish(char out[PLEC_SHA256_TEXT], struct plec_sha256_stream *stream,
                                    struct plec_error *err) {
    return finish(out, stream->context, err);
}

void plec_sha256_close(struct plec_sha256_stream *stream) {
    if (stream == NULL) return;
    EVP_MD_CTX_free(stream->context);
    free(stream);
}

struct progress {
    void (*call)(void *user, uint64_t n_bytes);
    void *user;
};

static enum plec_status hash_descriptor(EVP_MD_CTX *context, int fd, const char *path, char *piece,
                                        const struct progress *progress, struct plec_error *err) {
    uint64_t at = 0;
    for (;;) {
        ssize_t n = read(fd, piece, PIECE);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0)
            return plec_fail_at(err, PLEC_IO, "ReadFailed", at, "%s: %s", path, strerror(errno));
        if (n == 0) return PLEC_OK;
        if (EVP_DigestUpdate(context, piece, (size_t)n) != 1) return digest_failed(err);
        at += (uint64_t)n;
        if (progress->call != NULL) progress->call(progress->user, (uint64_t)n);
    }
}

/* A device or a pipe need never end. */
static enum plec_status check_regular(int fd, const char *path, struct plec_error *err) {
    struct stat info;
    if (fstat(fd, &info) != 0)
        return plec_fail(err, PLEC_IO, "StatFailed", "%s: %s", path, strerror(errno));
    if (S_ISREG(info.st_mode)) return PLEC_OK;
    return plec_fail(err, PLEC_MISSING, "NotAFile", "%s: not a regular file", path);
}

enum plec_status plec_sha256_file(char out[PLEC_SHA256_TEXT], const char *path,
                                  void (*progress)(void *user, uint64_t n_bytes), void *user,
                                  struct plec_error *err) {
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return plec_fail(err, PLEC_MISSING, "CannotOpen", "%s: %s", path, strerror(errno));
    EVP_MD_CTX *context = NULL;
    char *piece = malloc(PIECE);
    enum plec_status status = piece == NULL ? digest_failed(err) : check_regular(fd, path, err);
    if (status == PLEC_OK) status = begin(&context, err);
    if (status == PLEC_OK)
        status = hash_descriptor(context, fd, path, piece, &(struct progress){progress, user}, err);
    if (status == PLEC_OK) status = finish(out, context, err);
    EVP_MD_CTX_free(context);
    free(piece);
    close(fd);
    return status;
}
