/* verify_parts.h: what the parts of the container verifier share. Internal to host/. */
#ifndef PLEC_HOST_VERIFY_PARTS_H
#define PLEC_HOST_VERIFY_PARTS_H

#include "host/verify.h"
#include "host/vindex.h"

struct plec_container_verifier {
    const char *path;
    struct plec_container_verify_options options;
    struct plec_container_report *report;
    struct plec_vindex vindex;
    bool *unsound;                    /* [n_segments] files with defects of their own */
    bool *used;                       /* [n_segments] files some layer reads */
    const char **keys;                /* [n_segments] room to resolve a storage */
    uint64_t read_bytes, total_bytes; /* progress of scan and hash */
    const char *reading;              /* "scanning", "hashing" */
};

/* Progress of n_bytes more; `user` is a verifier. */
void plec_container_read(void *user, uint64_t n_bytes);

/* One layer: its banks against the manifest, then bound. PLEC_NO_MEMORY, PLEC_IO. */
PLEC_MUST_USE enum plec_status plec_verify_moe_layer(struct plec_container_verifier *v,
                                                     const struct plec_moe_layer *layer,
                                                     struct plec_error *err);
PLEC_MUST_USE enum plec_status plec_verify_dense_layer(struct plec_container_verifier *v,
                                                       const struct plec_moe_dense *dense,
                                                       struct plec_error *err);
/* The recorded extents of one segment file. */
void plec_verify_extents(struct plec_container_verifier *v, const char *key,
                         const struct plec_segment *segment);
/* The recorded hashes. PLEC_NO_MEMORY, PLEC_IO. */
PLEC_MUST_USE enum plec_status plec_verify_hashes(struct plec_container_verifier *v,
                                                  struct plec_error *err);

#endif
