#include "tools/plectrum/path_kind.h"

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "lyrw/mapping.h"

static bool ends_in(const char *name, const char *suffix) {
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && strcmp(name + n - m, suffix) == 0;
}

/* The name without its folders; pieces of a cut file have more behind the suffix. */
static enum plec_path_kind by_name(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    if (strstr(name, ".gguf") != NULL) return PLEC_PATH_GGUF;
    return ends_in(name, ".tezw") ? PLEC_PATH_TEZW : PLEC_PATH_LYRW;
}

static enum plec_path_kind kind_of_folder(const char *path) {
    char index[PATH_MAX];
    struct stat info;
    snprintf(index, sizeof index, "%s/index.json", path);
    if (stat(index, &info) == 0) return PLEC_PATH_CONTAINER;
    DIR *folder = opendir(path);
    bool found = false;
    for (struct dirent *entry; folder != NULL && !found && (entry = readdir(folder)) != NULL;)
        found = ends_in(entry->d_name, ".gguf") || ends_in(entry->d_name, ".tezw");
    if (folder != NULL) closedir(folder);
    return found ? PLEC_PATH_FOLDER : PLEC_PATH_CONTAINER;
}

enum plec_path_kind plec_path_kind_of(const char *path) {
    struct stat info;
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) return kind_of_folder(path);
    struct plec_mapping mapping;
    if (plec_mapping_open(&mapping, path, NULL) != PLEC_OK) return by_name(path);
    enum plec_path_kind kind = by_name(path);
    if (mapping.size >= 4 && memcmp(mapping.data, "GGUF", 4) == 0) kind = PLEC_PATH_GGUF;
    if (mapping.size >= 4 && memcmp(mapping.data, "TZ2W", 4) == 0) kind = PLEC_PATH_TEZW;
    if (mapping.size >= 4 && memcmp(mapping.data, "LYRW", 4) == 0) kind = PLEC_PATH_LYRW;
    plec_mapping_close(&mapping);
    return kind;
}
