#include "lyrw/verify.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lyrw/cursor.h"
#include "lyrw/verify_parts.h"

static void tell(struct plec_verifier *v, enum plec_severity severity, const char *name,
                 const char *coordinates, const char *format, va_list args) {
    char text[PLEC_ERROR_MESSAGE_MAX];
    vsnprintf(text, sizeof text, format, args);
    const char *where = v->options.where;
    plec_findings_add(v->findings, severity, name, "%s%s%s%s", where != NULL ? where : "",
                      where != NULL ? ": " : "", coordinates, text);
}

/* Beyond the findings that are kept only their number counts: no text is made. */
static bool full(const struct plec_findings *findings) {
    return findings->n_items == PLEC_FINDINGS_MAX;
}

void plec_verify_tell(struct plec_verifier *v, enum plec_severity severity, const char *name,
                      const char *format, ...) {
    va_list args;
    va_start(args, format);
    if (full(v->findings))
        plec_findings_add(v->findings, severity, name, " ");
    else
        tell(v, severity, name, "", format, args);
    va_end(args);
}

void plec_verify_tell_slot(struct plec_verifier *v, enum plec_severity severity, const char *name,
                           const struct plec_verify_slot *slot, const char *format, ...) {
    if (full(v->findings)) {
        plec_findings_add(v->findings, severity, name, " ");
        return;
    }
    char coordinates[160], role[PLEC_NAME_MAX];
    snprintf(coordinates, sizeof coordinates,
             "segment=%u bank=%u entry=%u schema=%u role=%s byte=%" PRIu64 " ", slot->segment,
             slot->bank->id, slot->entry, slot->schema->index,
             plec_role_name(slot->schema->role, role), slot->byte);
    va_list args;
    va_start(args, format);
    tell(v, severity, name, coordinates, format, args);
    va_end(args);
}

uint64_t plec_verify_slots_held(uint64_t *all, const struct plec_segment *segment,
                                uint32_t ordinal) {
    const struct plec_lyrw_segment *record = &segment->segments[ordinal];
    *all = (uint64_t)record->entry_count * segment->banks[record->bank_ordinal].n_schemas;
    if (record->entry_table >= segment->size) return 0;
    uint64_t held = (segment->size - record->entry_table) / PLEC_LYRW_SLOT_BYTES;
    return held < *all ? held : *all;
}

struct plec_verify_slot plec_verify_slot_at(const struct plec_segment *segment, uint32_t ordinal,
                                            uint64_t k) {
    const struct plec_lyrw_segment *record = &segment->segments[ordinal];
    const struct plec_lyrw_bank *bank = &segment->banks[record->bank_ordinal];
    uint64_t byte = record->entry_table + k * PLEC_LYRW_SLOT_BYTES;
    return (struct plec_verify_slot){
        .segment = ordinal,
        .entry = record->first_entry + (uint32_t)(k / bank->n_schemas),
        .bank = bank,
        .schema = &segment->schemas[bank->first_schema + k % bank->n_schemas],
        .byte = byte,
        .offset = plec_load_u64(segment->data + byte),
        .length = plec_load_u64(segment->data + byte + 8)};
}

bool plec_verify_in_bounds(const struct plec_segment *segment,
                           const struct plec_verify_slot *slot) {
    return slot->offset <= segment->size && slot->length <= segment->size - slot->offset;
}

static int compare_keys(const void *a, const void *b) {
    const struct plec_verify_key *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return (x->ordinal > y->ordinal) - (x->ordinal < y->ordinal);
}

void plec_verify_sort(struct plec_verify_key *keys, size_t n) {
    qsort(keys, n, sizeof *keys, compare_keys);
}

void plec_verify_header(struct plec_verifier *v) {
    const struct plec_lyrw_header *header = &v->segment->header;
    if (header->reserved != 0)
        plec_verify_tell(v, PLEC_DEFECT, "ReservedNotZero",
                         "byte=20: the header's reserved word is 0x%08x", header->reserved);
    uint32_t unknown = header->flags & ~(uint32_t)PLEC_LYRW_FLAG_MULTI_SEGMENT;
    if (unknown != 0)
        plec_verify_tell(v, PLEC_NOTE, "UnknownHeaderFlags", "byte=16: bits 0x%08x are set",
                         unknown);
}

enum plec_status plec_segment_verify(struct plec_findings *findings,
                                     struct plec_verify_report *report,
                                     const struct plec_segment *segment,
                                     const struct plec_verify_options *options,
                                     struct plec_error *err) {
    struct plec_verifier v = {.findings = findings, .report = report, .segment = segment};
    if (options != NULL) v.options = *options;
    plec_verify_header(&v);
    enum plec_status status = plec_verify_banks(&v, err);
    if (status == PLEC_OK) status = plec_verify_segments(&v, err);
    if (status == PLEC_OK) status = plec_verify_regions(&v, err);
    return status;
}
