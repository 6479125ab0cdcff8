/* verify_parts.h: what the parts of the verifier share. Internal to lyrw/. */
#ifndef PLEC_LYRW_VERIFY_PARTS_H
#define PLEC_LYRW_VERIFY_PARTS_H

#include "lyrw/verify.h"

struct plec_verifier {
    struct plec_findings *findings;
    struct plec_verify_report *report;
    const struct plec_segment *segment;
    struct plec_verify_options options;
};

/* A slot that the file holds, and what it says. */
struct plec_verify_slot {
    uint32_t segment; /* ordinal */
    uint32_t entry;   /* logical */
    const struct plec_lyrw_bank *bank;
    const struct plec_lyrw_schema *schema;
    uint64_t byte; /* of the slot */
    uint64_t offset, length;
};

/* Adds a finding with the options' `where` in front. */
void plec_verify_tell(struct plec_verifier *v, enum plec_severity severity, const char *name,
                      const char *format, ...) PLEC_PRINTF(4, 5);
/* The same with the coordinates of a slot. */
void plec_verify_tell_slot(struct plec_verifier *v, enum plec_severity severity, const char *name,
                           const struct plec_verify_slot *slot, const char *format, ...)
    PLEC_PRINTF(5, 6);

/* Slots of a segment record that stand whole in the file; *all: how many it should have. */
uint64_t plec_verify_slots_held(uint64_t *all, const struct plec_segment *segment,
                                uint32_t ordinal);
/* Slot k of a record, k below the slots held. */
struct plec_verify_slot plec_verify_slot_at(const struct plec_segment *segment, uint32_t ordinal,
                                            uint64_t k);
/* Whether the region lies within the file. */
bool plec_verify_in_bounds(const struct plec_segment *segment, const struct plec_verify_slot *slot);

/* A number to sort by and what it belongs to. */
struct plec_verify_key {
    uint64_t key;
    uint32_t ordinal;
};
/* By key, then by ordinal. */
void plec_verify_sort(struct plec_verify_key *keys, size_t n);

void plec_verify_header(struct plec_verifier *v);
PLEC_MUST_USE enum plec_status plec_verify_banks(struct plec_verifier *v, struct plec_error *err);
PLEC_MUST_USE enum plec_status plec_verify_segments(struct plec_verifier *v,
                                                    struct plec_error *err);
PLEC_MUST_USE enum plec_status plec_verify_regions(struct plec_verifier *v, struct plec_error *err);

#endif
