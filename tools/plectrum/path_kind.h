/* path_kind.h: what a path is, by its first bytes, and by its name where those say nothing. */
#ifndef PLEC_TOOLS_PATH_KIND_H
#define PLEC_TOOLS_PATH_KIND_H

#ifdef __cplusplus
extern "C" {
#endif

enum plec_path_kind {
    PLEC_PATH_LYRW,      /* a file that is none of the others, or that is not there */
    PLEC_PATH_CONTAINER, /* a folder with an index.json, or without anything known */
    PLEC_PATH_FOLDER,    /* a folder without an index.json and with GGUF or TEZW files */
    PLEC_PATH_GGUF,
    PLEC_PATH_TEZW
};

enum plec_path_kind plec_path_kind_of(const char *path);

#ifdef __cplusplus
}
#endif
#endif
