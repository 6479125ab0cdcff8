/* name_index.h: names of a table -> their index, and the first name that is there twice.
 *
 * Owns: an open-addressing table of indices; the names stay with the caller and must outlive it.
 * Hashed with a key drawn at random once an index, so that no file can be made to collide: filling
 * stays linear in the bytes of the names.
 */
#ifndef PLEC_LYRW_NAME_INDEX_H
#define PLEC_LYRW_NAME_INDEX_H

#include "lyrw/view.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A zeroed index is empty. */
struct plec_name_index {
    uint64_t *slots;  /* [n_slots]: upper 32 bits of the hash, index + 1; 0 is free */
    uint64_t n_slots; /* a power of two, at least twice the names held */
    uint64_t n_names;
    uint64_t key[2];
    /* The name of an index; `user` as given to init. */
    struct plec_view (*name)(const void *user, uint32_t index);
    const void *user;
};

/* Nothing is allocated until the first name. */
void plec_name_index_init(struct plec_name_index *out,
                          struct plec_view (*name)(const void *user, uint32_t index),
                          const void *user);

/* Adds `index`, whose name the callback can already tell. *twin is its own index, or that of an
 * equal name already held (then nothing is added). PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_name_index_add(struct plec_name_index *names, uint32_t *twin,
                                                   uint32_t index, struct plec_error *err);

/* The index of a name; UINT32_MAX when it is not held. */
uint32_t plec_name_index_find(const struct plec_name_index *names, struct plec_view name);

void plec_name_index_free(struct plec_name_index *names);

#ifdef __cplusplus
}
#endif
#endif
