/* The folder a conversion writes: whose it is, and what in it is whole.
 *
 * convert.state.json lists every file of the conversion, with size, time and hash once it stands
 * whole under its name, and a fingerprint of source and options. It is written before the first
 * file and removed after index.json: while it is there, the folder is ours to go on with or clear.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/convert_parts.h"
#include "manifests/index.h"

static const char state_name[] = "convert.state.json";

/* Where files of a conversion lie; "" is the root. */
static const char *const folders[] = {"", "routed", "shared", "dense", "control"};
enum { N_FOLDERS = sizeof folders / sizeof folders[0] };

char *plec_convert_folder_path(const struct plec_convert_folder *folder, const char *name,
                               struct plec_error *err) {
    size_t n_bytes = strlen(folder->root) + strlen(name) + 2;
    char *path = malloc(n_bytes);
    if (path == NULL)
        plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%s", name);
    else
        snprintf(path, n_bytes, "%s/%s", folder->root, name);
    return path;
}

static enum plec_status io_failed(const char *name, const char *path, struct plec_error *err) {
    return plec_fail(err, PLEC_IO, name, "%s: %s", path, strerror(errno));
}

/* -- taking the folder ------------------------------------------------------------------------ */

/* Makes the folder and those above it that are missing. */
static enum plec_status make_folder(const char *path, struct plec_error *err) {
    struct stat info;
    bool there = stat(path, &info) == 0;
    if (there && S_ISDIR(info.st_mode)) return PLEC_OK;
    if (there || path[0] == '\0')
        return plec_fail(err, PLEC_BAD_INPUT, "NotAFolder", "\"%s\" is no folder", path);
    char *scratch = strdup(path);
    if (scratch == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%s", path);
    enum plec_status status = PLEC_OK;
    for (char *end = scratch; status == PLEC_OK && end != NULL;) {
        end = strchr(end + 1, '/');
        if (end != NULL) *end = '\0';
        if (mkdir(scratch, 0777) != 0 && errno != EEXIST)
            status = io_failed("CannotCreate", scratch, err);
        if (end != NULL) *end = '/';
    }
    free(scratch);
    return status;
}

static enum plec_status lock_folder(struct plec_convert_folder *folder, struct plec_error *err) {
    folder->fd = open(folder->root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder->fd < 0) return io_failed("CannotCreate", folder->root, err);
    if (flock(folder->fd, LOCK_EX | LOCK_NB) == 0) return PLEC_OK;
    if (errno != EWOULDBLOCK) return PLEC_OK; /* a file system without locks */
    return plec_fail(err, PLEC_BAD_INPUT, "InUse", "%s: another process is converting into it",
                     folder->root);
}

/* A name of digits, "-", digits up to its end. */
static bool is_number_pair(const char *text) {
    size_t n = strspn(text, "0123456789");
    if (n == 0 || text[n] != '-') return false;
    size_t m = strspn(text + n + 1, "0123456789");
    return m > 0 && text[n + 1 + m] == '\0';
}

/* What an atomic write leaves when its process is killed: "<file>.part-N-N". */
static bool is_leftover(const char *name) {
    static const char *const endings[] = {".lyrw.part-", ".json.part-"};
    for (size_t i = 0; i < sizeof endings / sizeof endings[0]; i++) {
        const char *found = strstr(name, endings[i]);
        if (found != NULL && is_number_pair(found + strlen(endings[i]))) return true;
    }
    return false;
}

/* Calls each with every name in a folder under the root; a folder that is not there has none. */
static enum plec_status for_each_name(const struct plec_convert_folder *folder, const char *under,
                                      enum plec_status (*each)(int fd, const char *name, void *user,
                                                               struct plec_error *err),
                                      void *user, struct plec_error *err) {
    int fd = openat(folder->fd, under[0] != '\0' ? under : ".",
                    O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) return errno == ENOENT ? PLEC_OK : io_failed("ReadFailed", folder->root, err);
    DIR *list = fdopendir(fd);
    if (list == NULL) {
        close(fd);
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%s", folder->root);
    }
    enum plec_status status = PLEC_OK;
    for (struct dirent *item; status == PLEC_OK && (item = readdir(list)) != NULL;)
        if (strcmp(item->d_name, ".") != 0 && strcmp(item->d_name, "..") != 0)
            status = each(fd, item->d_name, user, err);
    closedir(list);
    return status;
}

static enum plec_status remove_leftover(int fd, const char *name, void *user,
                                        struct plec_error *err) {
    (void)user;
    if (!is_leftover(name) || unlinkat(fd, name, 0) == 0 || errno == ENOENT) return PLEC_OK;
    return io_failed("CannotRemove", name, err);
}

static enum plec_status remove_leftovers(const struct plec_convert_folder *folder,
                                         struct plec_error *err) {
    enum plec_status status = PLEC_OK;
    for (int i = 0; status == PLEC_OK && i < N_FOLDERS; i++)
        status = for_each_name(folder, folders[i], remove_leftover, NULL, err);
    return status;
}

/* Without a state the folder must hold nothing but what a kill before the state left. */
static enum plec_status refuse_name(int fd, const char *name, void *user, struct plec_error *err) {
    const struct plec_convert_folder *folder = user;
    (void)fd;
    if (strncmp(name, state_name, sizeof state_name - 1) == 0 && is_leftover(name)) return PLEC_OK;
    return plec_fail(err, PLEC_BAD_INPUT, "NotEmpty",
                     "%s holds \"%s\": a container is made in a new or empty folder, or where a "
                     "conversion was interrupted",
                     folder->root, name);
}

/* -- the state -------------------------------------------------------------------------------- */

static enum plec_status store_state(const struct plec_convert_folder *folder,
                                    struct plec_error *err) {
    char *path = plec_convert_folder_path(folder, state_name, err);
    if (path == NULL) return PLEC_NO_MEMORY;
    enum plec_status status = plec_json_store(path, folder->state, err);
    free(path);
    return status;
}

/* Every file as not yet whole. */
static enum plec_status new_state(struct plec_convert_folder *folder,
                                  const struct plec_convert *convert, struct plec_error *err) {
    json_t *files = json_object();
    int failed = 0;
    for (size_t i = 0; i < convert->n_files; i++)
        failed |= json_object_set_new(files, convert->files[i].name, json_null());
    failed |= json_object_set_new(files, "moe_manifest.json", json_null());
    json_decref(folder->state);
    folder->state = json_pack("{s:s, s:s, s:o}", "plectrum", "unfinished conversion", "fingerprint",
                              convert->fingerprint, "files", files);
    if (failed || folder->state == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "the state of a conversion");
    return store_state(folder, err);
}

/* Reads the state where there is one. */
static enum plec_status load_state(struct plec_convert_folder *folder, struct plec_error *err) {
    if (faccessat(folder->fd, state_name, F_OK, 0) != 0)
        return for_each_name(folder, "", refuse_name, folder, err);
    char *path = plec_convert_folder_path(folder, state_name, err);
    if (path == NULL) return PLEC_NO_MEMORY;
    enum plec_status status = plec_json_load(&folder->state, path, err);
    free(path);
    const char *kind = json_string_value(json_object_get(folder->state, "plectrum"));
    if (status == PLEC_OK && (kind == NULL || strcmp(kind, "unfinished conversion") != 0))
        status = plec_fail(err, PLEC_BAD_INPUT, "NotEmpty", "%s/%s was not written by a conversion",
                           folder->root, state_name);
    return status;
}

static bool same_conversion(const struct plec_convert_folder *folder,
                            const struct plec_convert *convert) {
    const char *fingerprint = json_string_value(json_object_get(folder->state, "fingerprint"));
    return fingerprint != NULL && strcmp(fingerprint, convert->fingerprint) == 0;
}

static uint64_t mtime_ns(const struct stat *info) {
    return (uint64_t)info->st_mtim.tv_sec * UINT64_C(1000000000) + (uint64_t)info->st_mtim.tv_nsec;
}

/* Whether a file is still what the state says it became. */
static bool is_whole(const struct plec_convert_folder *folder, const char *name,
                     const json_t *record) {
    struct stat info;
    const char *hash = json_string_value(json_object_get(record, "sha256"));
    return hash != NULL && strlen(hash) == PLEC_SHA256_TEXT - 1 &&
           fstatat(folder->fd, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(info.st_mode) &&
           json_integer_value(json_object_get(record, "bytes")) == (json_int_t)info.st_size &&
           json_integer_value(json_object_get(record, "mtime_ns")) == (json_int_t)mtime_ns(&info);
}

static void mark_whole(const struct plec_convert_folder *folder, struct plec_convert *convert) {
    json_t *files = json_object_get(folder->state, "files");
    for (size_t i = 0; i < convert->n_files; i++) {
        struct plec_convert_planned *file = &convert->files[i];
        const json_t *record = json_object_get(files, file->name);
        file->whole = is_whole(folder, file->name, record);
        if (!file->whole) continue;
        memcpy(file->sha256, json_string_value(json_object_get(record, "sha256")),
               PLEC_SHA256_TEXT);
    }
}

/* Removes what another conversion made: the index first, so that no half of it is a container. */
static enum plec_status clear(const struct plec_convert_folder *folder, struct plec_error *err) {
    json_t *files = json_object_get(folder->state, "files");
    const char *name;
    json_t *record;
    json_object_foreach(files, name,
                        record) if (plec_key_is_safe(name) && unlinkat(folder->fd, name, 0) != 0 &&
                                    errno != ENOENT) return io_failed("CannotRemove", name, err);
    for (int i = 1; i < N_FOLDERS; i++)
        (void)unlinkat(folder->fd, folders[i], AT_REMOVEDIR); /* where nothing is left in it */
    return PLEC_OK;
}

static enum plec_status remove_index(const struct plec_convert_folder *folder,
                                     struct plec_error *err) {
    if (unlinkat(folder->fd, "index.json", 0) != 0)
        return errno == ENOENT ? PLEC_OK : io_failed("CannotRemove", "index.json", err);
    return fsync(folder->fd) == 0 ? PLEC_OK : io_failed("SyncFailed", folder->root, err);
}

enum plec_status plec_convert_folder_open(struct plec_convert_folder *out, const char *path,
                                          struct plec_convert *convert, struct plec_error *err) {
    *out = (struct plec_convert_folder){.fd = -1};
    out->root = strdup(path);
    if (out->root == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%s", path);
    enum plec_status status = make_folder(path, err);
    if (status == PLEC_OK) status = lock_folder(out, err);
    if (status == PLEC_OK) status = load_state(out, err);
    if (status == PLEC_OK) status = remove_leftovers(out, err);
    if (status == PLEC_OK && out->state != NULL) status = remove_index(out, err);
    if (status != PLEC_OK) return status;
    if (out->state != NULL && same_conversion(out, convert)) {
        mark_whole(out, convert);
        return PLEC_OK;
    }
    status = out->state != NULL ? clear(out, err) : PLEC_OK;
    return status == PLEC_OK ? new_state(out, convert, err) : status;
}

enum plec_status plec_convert_folder_record(struct plec_convert_folder *folder,
                                            const struct plec_convert_planned *file,
                                            struct plec_error *err) {
    struct stat info;
    if (fstatat(folder->fd, file->name, &info, AT_SYMLINK_NOFOLLOW) != 0)
        return io_failed("ReadFailed", file->name, err);
    json_t *record = json_pack("{s:I, s:I, s:s}", "bytes", (json_int_t)info.st_size, "mtime_ns",
                               (json_int_t)mtime_ns(&info), "sha256", file->sha256);
    if (json_object_set_new(json_object_get(folder->state, "files"), file->name, record) != 0)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "the state of a conversion");
    return store_state(folder, err);
}

enum plec_status plec_convert_folder_finish(struct plec_convert_folder *folder,
                                            struct plec_error *err) {
    if (unlinkat(folder->fd, state_name, 0) != 0) return io_failed("CannotRemove", state_name, err);
    return fsync(folder->fd) == 0 ? PLEC_OK : io_failed("SyncFailed", folder->root, err);
}

void plec_convert_folder_close(struct plec_convert_folder *folder) {
    if (folder->fd >= 0) close(folder->fd);
    json_decref(folder->state);
    free(folder->root);
    *folder = (struct plec_convert_folder){.fd = -1};
}
