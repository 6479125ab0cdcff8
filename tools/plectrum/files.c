#include "tools/plectrum/files.h"

#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
