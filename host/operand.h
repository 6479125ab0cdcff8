/* operand.h: one matrix or vector of a bank as its schemas declare it, checked to be runnable.
 *
 * Turns a schema (and its scales partner) into format, shape, the bytes each stream has, and then
 * finds those bytes for an entry. Refusals name bank, entry, role and segment.
 */
#ifndef PLEC_HOST_OPERAND_H
#define PLEC_HOST_OPERAND_H

#include "device/layer.h"
#include "host/storage.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLEC_NO_SCHEMA = -1 };

/* One stream of an operand, to be found in every entry. */
struct plec_stream_schema {
    int32_t schema;   /* PLEC_NO_SCHEMA: the operand has no such stream */
    uint64_t n_bytes; /* exact length each entry's region must have */
};

struct plec_bank_operand {
    const struct plec_storage *storage; /* NULL: absent */
    uint16_t role, layout;
    struct plec_operand shape;
    struct plec_stream_schema values, scales;
};

/* The operand of schema `schema` of a storage. PLEC_UNSUPPORTED: "UnknownFormat", "UnknownPacking",
 * "NoScaleStream" (values and scales apart in a format without a scale stream; nvfp4 has no place
 * for its tensor scale), "ScalesStoredApart" (a paired format in one region). PLEC_MALFORMED:
 * "ZeroDimension", "NotWholeBlocks", "SizeOverflow", "MissingPartner", "AmbiguousPartner",
 * "PartnerMismatch". */
PLEC_MUST_USE enum plec_status plec_operand_from_schema(struct plec_bank_operand *out,
                                                        const struct plec_storage *storage,
                                                        uint32_t schema, struct plec_error *err);

/* The bytes of one region that the operation touches. */
struct plec_touched {
    uint64_t offset, length;
    uint32_t part, entry;
    uint16_t role;
};

/* Finds the bytes of one stream of `entry`, a member of `run`. Refuses, as PLEC_MALFORMED:
 * "RegionOutOfBounds", "RegionInTables", "OffsetNotAligned", "LengthNotShape". Records what it
 * touches in *touched. */
PLEC_MUST_USE enum plec_status plec_operand_bytes(const uint8_t **out, struct plec_touched *touched,
                                                  const struct plec_bank_operand *operand,
                                                  const struct plec_stream_schema *stream,
                                                  const struct plec_storage_run *run,
                                                  uint32_t entry, struct plec_error *err);

/* Refuses overlaps: PLEC_MALFORMED "RegionsOverlap" naming both regions. Sorts touched. */
PLEC_MUST_USE enum plec_status plec_operand_check_overlaps(struct plec_touched *touched,
                                                           size_t n_touched,
                                                           const struct plec_storage *storage,
                                                           struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
