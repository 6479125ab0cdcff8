/* gguf_split.h: a GGUF model as it lies on disk: one file, or a set of shards opened from any one.
 *
 * A shard PREFIX-00002-of-00003.gguf is a complete GGUF file that carries split.no (from 0, one
 * less than in its name), split.count and split.tensors.count (of the whole set). Model keys stand
 * in shard 0 only, which may hold no tensors. split.count 0 or 1 is a file that is not split.
 *
 * Owns: the mappings and readers of all shards, and one list of their tensors with an index by
 * name. Never: looks beyond the folder of the file it was given.
 */
#ifndef PLEC_LYRW_GGUF_SPLIT_H
#define PLEC_LYRW_GGUF_SPLIT_H

#include "lyrw/gguf.h"
#include "lyrw/mapping.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLEC_GGUF_MAX_SHARDS = 1024 };

enum plec_gguf_strictness {
    PLEC_GGUF_LOOK, /* open what can be shown; everything else is a finding */
    PLEC_GGUF_RUN   /* refuse on any defect of the set or of a shard */
};

struct plec_gguf_shard {
    char *path;
    bool present;    /* mapped and parsed; false only when looking */
    bool unreadable; /* there, but no GGUF file that can be walked */
    struct plec_mapping mapping;
    struct plec_gguf file; /* closed when not present */
};

/* A zeroed struct is closed. Not to be moved while open. */
struct plec_gguf_set {
    struct plec_gguf_shard *shards; /* [n_shards], in the order of split.no */
    uint32_t n_shards;              /* 1 when not split */
    bool split;
    const struct plec_gguf_tensor **tensors; /* [n_tensors]: shard after shard, in file order */
    uint32_t n_tensors;
    struct plec_name_index index;
    struct plec_findings
        findings; /* of the set and of every shard, with its file name when split */
};

/* Opens path and, when it is a shard, all others beside it. Refuses what plec_gguf_parse refuses of
 * the file at path, PLEC_MISSING "CannotOpen", PLEC_MALFORMED "TooManyShards". With PLEC_GGUF_RUN
 * also, and with PLEC_GGUF_LOOK as findings: "SplitMissing" (all missing names at once),
 * "SplitRenamed", "SplitNameMismatch", "SplitNumberMismatch", "SplitCountMismatch",
 * "SplitTensorCount", "SplitDuplicateTensor", "SplitShardUnreadable", and every defect of a shard.
 * On refusal *out is closed. */
PLEC_MUST_USE enum plec_status plec_gguf_set_open(struct plec_gguf_set *out, const char *path,
                                                  enum plec_gguf_strictness strictness,
                                                  struct plec_error *err);
void plec_gguf_set_close(struct plec_gguf_set *set);

/* The reader that holds the model's keys: shard 0, or the first that is there. */
const struct plec_gguf *plec_gguf_set_main(const struct plec_gguf_set *set);
/* NULL when there is none. */
const struct plec_gguf_tensor *plec_gguf_set_find(const struct plec_gguf_set *set,
                                                  struct plec_view name);
/* The reader a tensor of the set came from. */
const struct plec_gguf *plec_gguf_set_file(const struct plec_gguf_set *set,
                                           const struct plec_gguf_tensor *tensor);

/* What a file name says: "PREFIX-%05d-of-%05d.gguf". */
struct plec_gguf_shard_name {
    size_t prefix_size;     /* bytes of the path in front of "-00001-of-" */
    uint32_t number, count; /* number from 1 */
};
/* False when the path does not end that way. */
bool plec_gguf_shard_name_parse(struct plec_gguf_shard_name *out, const char *path);

#ifdef __cplusplus
}
#endif
#endif
