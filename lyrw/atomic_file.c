#include "lyrw/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Temporary names tried before giving up: each is taken only by a writer of the same path in a
 * process of the same number, alive or crashed. */
enum { TEMPORARY_NAMES = 1000 };
/* Bytes asked of one system call. */
enum { WRITE_MAX = 1 << 30 };

static enum plec_status io_failed(struct plec_error *err, const char *name, const char *path) {
    return plec_fail(err, PLEC_IO, name, "%s: %s", path, strerror(errno));
}

static enum plec_status sync_folder(const char *folder, struct plec_error *err) {
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return io_failed(err, "SyncFailed", folder);
    enum plec_status status = PLEC_OK;
    /* Some file systems cannot sync a folder, and then have nothing to sync. */
    if (fsync(fd) != 0 && errno != EINVAL) status = io_failed(err, "SyncFailed", folder);
    close(fd);
    return status;
}

/* Syncs the folder that `path` stands in. */
static enum plec_status sync_parent(const char *path, struct plec_error *err) {
    const char *slash = strrchr(path, '/');
    if (slash == NULL) return sync_folder(".", err);
    if (slash == path) return sync_folder("/", err);
    char *folder = strndup(path, (size_t)(slash - path));
    if (folder == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%s", path);
    enum plec_status status = sync_folder(folder, err);
    free(folder);
    return status;
}

/* Makes each folder in front of the last slash; scratch is a copy of the path to cut in. */
static enum plec_status make_folders(char *scratch, struct plec_error *err) {
    for (char *slash = strchr(scratch + 1, '/'); slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        int made = mkdir(scratch, 0777);
        if (made != 0 && errno != EEXIST) return io_failed(err, "CannotCreate", scratch);
        enum plec_status status = made == 0 ? sync_parent(scratch, err) : PLEC_OK;
        *slash = '/';
        if (status != PLEC_OK) return status;
    }
    return PLEC_OK;
}

/* A rename puts a regular file in the place of whatever has the name: for root also of /dev/full,
 * or of the link /dev/stdout. A folder it refuses itself. */
static enum plec_status check_replaceable(const char *path, struct plec_error *err) {
    struct stat there;
    if (lstat(path, &there) != 0 || S_ISREG(there.st_mode) || S_ISDIR(there.st_mode))
        return PLEC_OK;
    return plec_fail(err, PLEC_IO, "CannotCreate", "%s: it is %s, which a file would replace", path,
                     S_ISLNK(there.st_mode) ? "a symbolic link" : "a device, pipe or socket");
}

static enum plec_status create_temporary(struct plec_atomic_file *file, size_t capacity,
                                         struct plec_error *err) {
    for (int i = 0; i < TEMPORARY_NAMES; i++) {
        snprintf(file->temporary, capacity, "%s.part-%ld-%d", file->path, (long)getpid(), i);
        file->fd = open(file->temporary, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
        if (file->fd >= 0) return PLEC_OK;
        if (errno != EEXIST) break;
    }
    /* The caller knows its own name of the file; the longer one is only told where it is why. */
    bool of_temporary = errno == ENAMETOOLONG || errno == EEXIST;
    if (!of_temporary) return io_failed(err, "CannotCreate", file->path);
    return plec_fail(err, PLEC_IO, "CannotCreate", "%s: as %s: %s", file->path, file->temporary,
                     strerror(errno));
}

static enum plec_status open_file(struct plec_atomic_file *out, const char *path, bool with_folders,
                                  struct plec_error *err) {
    *out = (struct plec_atomic_file){.fd = -1};
    size_t capacity = strlen(path) + 64;
    out->path = strdup(path);
    out->temporary = malloc(capacity);
    enum plec_status status = PLEC_OK;
    if (out->path == NULL || out->temporary == NULL)
        status = plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%s", path);
    else if (path[0] == '\0')
        status = plec_fail(err, PLEC_IO, "CannotCreate", "an empty path names no file");
    if (status == PLEC_OK) status = check_replaceable(path, err);
    if (status == PLEC_OK && with_folders) status = make_folders(strcpy(out->temporary, path), err);
    if (status == PLEC_OK) status = create_temporary(out, capacity, err);
    out->open = status == PLEC_OK;
    if (status != PLEC_OK) plec_atomic_file_abort(out);
    return status;
}

enum plec_status plec_atomic_file_open(struct plec_atomic_file *out, const char *path,
                                       struct plec_error *err) {
    return open_file(out, path, true, err);
}

enum plec_status plec_atomic_file_open_beside(struct plec_atomic_file *out, const char *path,
                                              struct plec_error *err) {
    return open_file(out, path, false, err);
}

enum plec_status plec_atomic_file_reserve(struct plec_atomic_file *file, uint64_t size,
                                          struct plec_error *err) {
    if (size > INT64_MAX)
        return plec_fail(err, PLEC_IO, "CannotReserve", "%s: %" PRIu64 " bytes", file->path, size);
    int failed = 0;
    do
        failed = size == 0 ? 0 : fallocate(file->fd, 0, 0, (off_t)size);
    while (failed != 0 && errno == EINTR);
    if (failed != 0 && (errno == EOPNOTSUPP || errno == ENOSYS))
        failed = ftruncate(file->fd, (off_t)size);
    if (failed == 0) return PLEC_OK;
    return plec_fail(err, PLEC_IO, "CannotReserve", "%s: %" PRIu64 " bytes: %s", file->path, size,
                     strerror(errno));
}

enum plec_status plec_atomic_file_write(struct plec_atomic_file *file, uint64_t at,
                                        const void *bytes, uint64_t n_bytes,
                                        struct plec_error *err) {
    const char *from = bytes;
    uint64_t done = 0;
    while (done < n_bytes) {
        size_t want = n_bytes - done > WRITE_MAX ? WRITE_MAX : (size_t)(n_bytes - done);
        ssize_t taken = pwrite(file->fd, from + done, want, (off_t)(at + done));
        if (taken < 0 && errno == EINTR) continue;
        if (taken <= 0)
            return plec_fail_at(err, PLEC_IO, "WriteFailed", at + done,
                                "%s: %" PRIu64 " of %" PRIu64 " bytes taken: %s", file->path, done,
                                n_bytes, taken < 0 ? strerror(errno) : "the device takes no more");
        done += (uint64_t)taken;
    }
    return PLEC_OK;
}

static void forget(struct plec_atomic_file *file) {
    if (file->fd >= 0) close(file->fd);
    free(file->path);
    free(file->temporary);
    *file = (struct plec_atomic_file){.fd = -1};
}

enum plec_status plec_atomic_file_commit(struct plec_atomic_file *file, struct plec_error *err) {
    enum plec_status status = PLEC_OK;
    if (fsync(file->fd) != 0) status = io_failed(err, "SyncFailed", file->path);
    int fd = file->fd;
    file->fd = -1;
    if (close(fd) != 0 && status == PLEC_OK) status = io_failed(err, "SyncFailed", file->path);
    if (status == PLEC_OK && rename(file->temporary, file->path) != 0)
        status = io_failed(err, "RenameFailed", file->path);
    if (status != PLEC_OK) {
        plec_atomic_file_abort(file);
        return status;
    }
    status = sync_parent(file->path, err);
    forget(file);
    return status;
}

void plec_atomic_file_abort(struct plec_atomic_file *file) {
    if (file->open) unlink(file->temporary);
    forget(file);
}

enum plec_status plec_atomic_file_store(const char *path, const void *bytes, uint64_t n_bytes,
                                        struct plec_error *err) {
    struct plec_atomic_file file;
    enum plec_status status = plec_atomic_file_open_beside(&file, path, err);
    if (status != PLEC_OK) return status;
    status = plec_atomic_file_write(&file, 0, bytes, n_bytes, err);
    if (status == PLEC_OK) return plec_atomic_file_commit(&file, err);
    plec_atomic_file_abort(&file);
    return status;
}
