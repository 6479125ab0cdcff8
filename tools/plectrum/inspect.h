/* inspect.h: the views of `plectrum inspect`, one a kind of container. Each prints what the path
 * holds on stdout, remarks and errors on stderr, and returns the exit status: 0, also with remarks;
 * 1 where bytes are missing or claimed twice; 3 or 4 when nothing can be told. */
#ifndef PLEC_TOOLS_INSPECT_H
#define PLEC_TOOLS_INSPECT_H

#include <stdbool.h>

struct plec_inspect_options {
    bool entries; /* list every region */
    bool hash;    /* with the hashes of its bytes and values */
    bool json;
    /* GGUF only; NULL or false when not asked for. */
    const char *key, *filter, *sort, *strip_data;
    bool strict; /* also tell what llama.cpp would refuse */
};

int plec_inspect_lyrw(const char *path, const struct plec_inspect_options *options);
int plec_inspect_vindex(const char *path, const struct plec_inspect_options *options);
int plec_inspect_gguf(const char *path, const struct plec_inspect_options *options);
int plec_inspect_tezw(const char *path, const struct plec_inspect_options *options);
/* A folder of GGUF and TEZW files: a line each; the exit status of the worst. */
int plec_inspect_folder(const char *path, const struct plec_inspect_options *options);

#endif
