/* storage.h: one bank as it lies in files: the segments that hold it, checked to be one bank.
 *
 * A storage is a name of the manifest; its parts are segment files. All parts agree in every field
 * of the bank and its schemas; its runs cover [0, num_entries) exactly once. Owns nothing: tables
 * lie in the caller's arena, bytes in the store.
 */
#ifndef PLEC_HOST_STORAGE_H
#define PLEC_HOST_STORAGE_H

#include "host/arena.h"
#include "host/store.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_storage_part {
    const char *key; /* segment key */
    const struct plec_segment *segment;
};

/* Neighbouring entries that one segment record holds. */
struct plec_storage_run {
    uint32_t part; /* index into parts */
    uint32_t first, count;
    uint64_t entry_table; /* byte of the slot of entry `first` in that part */
};

struct plec_storage {
    const char *name;
    struct plec_storage_part *parts; /* [n_parts] */
    size_t n_parts;
    const struct plec_lyrw_bank *bank;      /* of the first part */
    const struct plec_lyrw_schema *schemas; /* [bank->n_schemas], of the first part */
    uint32_t logical_layer;
    struct plec_storage_run *runs; /* [n_runs] by first entry; plec_storage_tile */
    size_t n_runs;
};

/* Opens the parts `keys` [n_keys] of storage `name` and finds their bank: the first of kind `kind`,
 * else the only one. PLEC_MALFORMED: "NoSuchBank", "DuplicateBankId", "SegmentsDisagree" naming the
 * field, both values and both keys; and the statuses of plec_store_get. */
PLEC_MUST_USE enum plec_status plec_storage_open(struct plec_storage *out, struct plec_arena *arena,
                                                 struct plec_store *store, const char *name,
                                                 const char *const *keys, size_t n_keys,
                                                 enum plec_bank_kind kind, struct plec_error *err);

/* Orders the runs and refuses what is not an exact tiling: "MissingRegion" (first entry no part
 * holds), "SegmentsOverlap", "RepeatedSegmentIndex", "Truncated" (an entry table past its file).
 * After it, n_entries * n_schemas slots are known to lie inside the parts. */
PLEC_MUST_USE enum plec_status plec_storage_tile(struct plec_storage *storage,
                                                 struct plec_arena *arena, struct plec_error *err);

/* The only schema with a role: its index, or -1 when there is none. PLEC_MALFORMED "AmbiguousRole"
 * when there are several. */
PLEC_MUST_USE enum plec_status plec_storage_schema(int32_t *out, const struct plec_storage *storage,
                                                   uint16_t role, struct plec_error *err);
bool plec_storage_has_role(const struct plec_storage *storage, uint16_t role);

#ifdef __cplusplus
}
#endif
#endif
