/* segment_tables.h: what a parsed file and a plan to write one share: the checks of the record
 * tables, and where everything starts. Internal to lyrw/.
 */
#ifndef PLEC_LYRW_SEGMENT_TABLES_H
#define PLEC_LYRW_SEGMENT_TABLES_H

#include "lyrw/segment.h"

/* Room for the decoded tables of segment->header, zeroed. PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_segment_allocate(struct plec_segment *segment,
                                                     uint64_t n_schemas, struct plec_error *err);

/* Checks decoded tables in the order that names the first fault: per bank and schema the pairing,
 * the layout, the index; per segment the bank and the range; then the size of the entry tables.
 * Fills first_schema, bank_order, bank_ordinal and every table's start. Errors as
 * plec_segment_parse. */
PLEC_MUST_USE enum plec_status plec_segment_derive(struct plec_segment *segment,
                                                   struct plec_error *err);

/* The schema of `bank` that carries partner_role and the pair id of its schema `schema`. NotPaired,
 * MissingPartner, AmbiguousPartner. */
PLEC_MUST_USE enum plec_status plec_segment_partner_schema(uint32_t *out,
                                                           const struct plec_segment *segment,
                                                           const struct plec_lyrw_bank *bank,
                                                           uint32_t schema, uint16_t partner_role,
                                                           struct plec_error *err);

/* "Truncated" with err->byte = at. */
PLEC_MUST_USE enum plec_status plec_segment_truncated(struct plec_error *err, const char *what,
                                                      uint64_t at, uint64_t need, uint64_t have);

#endif
