#include "tools/plectrum/files.h"

#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/vindex.h"
#include "lyrw/atomic_file.h"

/* Where a file that is not there yet would stand: its folder without links and dots, and its name.
 * out [2 * PATH_MAX]; false when the folder is not there either. */
static bool place_of(char *out, const char *path) {
    char copy[PATH_MAX], folder[PATH_MAX];
    if (strlen(path) >= sizeof copy) return false;
    strcpy(copy, path);
    if (realpath(dirname(copy), folder) == NULL) return false;
    strcpy(copy, path);
    snprintf(out, 2 * PATH_MAX, "%s/%s", folder, basename(copy));
    return true;
}

static bool same_file(const char *a, const char *b) {
    struct stat of_a, of_b;
    char place_a[2 * PATH_MAX], place_b[2 * PATH_MAX];
    bool has_a = stat(a, &of_a) == 0, has_b = stat(b, &of_b) == 0;
    if (has_a && has_b) /* of a device, or a pipe, two may make use */
        return S_ISREG(of_a.st_mode) && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
    if (has_a != has_b) return false;
    return strcmp(a, b) == 0 ||
           (place_of(place_a, a) && place_of(place_b, b) && strcmp(place_a, place_b) == 0);
}

static bool is_named(const char *path, const char *folder, const char *name) {
    char place[2 * PATH_MAX];
    int n = snprintf(place, sizeof place, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof place && same_file(path, place);
}

static bool is_file_of_folder(const char *path, const char *folder) {
    struct plec_vindex vindex;
    struct plec_error err;
    if (plec_vindex_open(&vindex, folder, NULL, NULL, &err) != PLEC_OK) return false;
    bool found =
        is_named(path, folder, "index.json") || is_named(path, folder, vindex.index.moe_manifest);
    for (size_t i = 0; i < vindex.store.n_files && !found; i++)
        found = same_file(path, vindex.store.files[i].path);
    plec_vindex_close(&vindex);
    return found;
}

/* A file, or a set of which it is one. */
static bool is_file_of_model(const char *path, const char *model) {
    struct plec_container *container;
    struct plec_error err;
    bool found = false;
    if (plec_container_open(&container, model, NULL, &err) != PLEC_OK) return false;
    for (uint32_t i = 0; i < plec_container_n_files(container) && !found; i++)
        found = same_file(path, plec_container_file_path(container, i));
    plec_container_close(container);
    return found;
}

/* Opens the container, but only where something would be replaced. One that cannot be opened is the
 * command's to tell of. */
static bool is_in_container(const struct plec_cli_file *file, const char *container) {
    struct stat there, of;
    if (file->path == NULL || file->use == PLEC_FILE_READ || stat(file->path, &there) != 0 ||
        !S_ISREG(there.st_mode))
        return false;
    bool folder = stat(container, &of) == 0 && S_ISDIR(of.st_mode);
    return folder ? is_file_of_folder(file->path, container)
                  : is_file_of_model(file->path, container);
}

static int check_container(const struct plec_cli_command *command,
                           const struct plec_cli_file *files, size_t n, const char *container) {
    for (size_t i = 0; i < n; i++)
        if (is_in_container(&files[i], container))
            return plec_cli_usage(command, "%s would replace a file of PATH %s: %s",
                                  files[i].option, container, files[i].path);
    return PLEC_CLI_GO_ON;
}

int plec_cli_check_files(const struct plec_cli_command *command, const struct plec_cli_file *files,
                         size_t n) {
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++) {
            const struct plec_cli_file *a = &files[i], *b = &files[j];
            if (a->path == NULL || b->path == NULL ||
                (a->use == PLEC_FILE_READ && b->use == PLEC_FILE_READ))
                continue;
            if (same_file(a->path, b->path))
                return plec_cli_usage(command, "%s and %s are one file: %s", a->option, b->option,
                                      b->path);
        }
    for (size_t i = 0; i < n; i++)
        if (strcmp(files[i].option, "PATH") == 0)
            return check_container(command, files, n, files[i].path);
    return PLEC_CLI_GO_ON;
}

enum plec_status plec_cli_try_files(const struct plec_cli_file *files, size_t n,
                                    struct plec_error *err) {
    enum plec_status status = PLEC_OK;
    for (size_t i = 0; i < n && status == PLEC_OK; i++) {
        struct plec_atomic_file file;
        struct stat there;
        if (files[i].path == NULL || files[i].use == PLEC_FILE_READ) continue;
        if (files[i].use == PLEC_FILE_WRITTEN && stat(files[i].path, &there) == 0 &&
            !S_ISREG(there.st_mode))
            continue;
        status = plec_atomic_file_open_beside(&file, files[i].path, err);
        if (status == PLEC_OK) plec_atomic_file_abort(&file);
    }
    return status;
}
