#include "tools/plectrum/survey.h"

#include <stdlib.h>
#include <string.h>

#include "tools/plectrum/cli.h"

static const struct plec_lyrw_bank *bank_of(const struct plec_segment *segment, uint32_t ordinal) {
    return &segment->banks[segment->segments[ordinal].bank_ordinal];
}

/* Slots that the tables of one segment record promise. */
static uint64_t promised(const struct plec_segment *segment, uint32_t ordinal) {
    return (uint64_t)segment->segments[ordinal].entry_count * bank_of(segment, ordinal)->n_schemas;
}

/* Slots of it that stand whole in the file. */
static uint64_t standing(const struct plec_segment *segment, uint32_t ordinal) {
    uint64_t table = segment->segments[ordinal].entry_table;
    uint64_t room = table > segment->size ? 0 : (segment->size - table) / PLEC_LYRW_SLOT_BYTES;
    uint64_t n = promised(segment, ordinal);
    return n < room ? n : room;
}

/* Resolves slot i of a segment record. */
static void resolve(struct plec_survey_region *out, const struct plec_segment *segment,
                    uint32_t ordinal, uint64_t i) {
    const struct plec_lyrw_segment *record = &segment->segments[ordinal];
    const struct plec_lyrw_bank *bank = bank_of(segment, ordinal);
    uint32_t local = (uint32_t)(i / bank->n_schemas), schema = (uint32_t)(i % bank->n_schemas);
    struct plec_region region;
    out->segment = ordinal;
    out->entry = record->first_entry + local;
    out->bank = bank;
    out->schema = &segment->schemas[bank->first_schema + schema];
    out->resolved =
        plec_segment_slot(&region, segment, ordinal, local, schema, &out->error) == PLEC_OK;
    out->offset = out->resolved ? region.offset : 0;
    out->length = out->resolved ? region.length : 0;
}

int plec_survey_walk(const struct plec_segment *segment,
                     int (*see)(void *user, const struct plec_survey_region *region), void *user) {
    struct plec_survey_region region;
    uint64_t n_seen = 0, n_missing = 0;
    for (uint32_t s = 0; s < segment->header.num_segments; s++) {
        uint64_t n_standing = standing(segment, s), n = promised(segment, s);
        for (uint64_t i = 0; i < n; i++) {
            if (n_seen++ == PLEC_SURVEY_MAX) return 0;
            if (i >= n_standing && n_missing++ == PLEC_SURVEY_MISSING_MAX) return 0;
            resolve(&region, segment, s, i);
            int stop = see(user, &region);
            if (stop != 0) return stop;
        }
    }
    return 0;
}

struct tally {
    struct plec_survey *survey;
    uint64_t tables_end, previous_end, n_spans, n_standing_seen;
    bool out_of_order;
};

static void note_overlap(struct plec_survey *survey, const struct plec_survey_region *region,
                         uint64_t taken_until) {
    char role[PLEC_NAME_MAX];
    if (survey->n_overlaps++ == 0)
        plec_fail_at(&survey->first_overlap, PLEC_MALFORMED, "Overlap", region->offset,
                     "bank=%u entry=%u role=%s: bytes up to %llu are taken", region->bank->id,
                     region->entry, plec_role_name(region->schema->role, role),
                     (unsigned long long)taken_until);
}

static int count(void *user, const struct plec_survey_region *region) {
    struct tally *tally = user;
    struct plec_survey *survey = tally->survey;
    if (!region->resolved && survey->first_missing.name == NULL)
        survey->first_missing = region->error;
    /* Slots beyond the end of the file are counted from the tables, not here. */
    if (!region->resolved && strcmp(region->error.name, "Truncated") == 0) return 0;
    tally->n_standing_seen++;
    if (!region->resolved) {
        survey->n_missing++;
        return 0;
    }
    survey->n_resolved++;
    survey->region_bytes += region->length;
    uint64_t end = region->offset + region->length;
    if (end > survey->end) survey->end = end;
    if (region->length == 0) return 0;
    tally->n_spans++;
    if (region->offset < tally->tables_end)
        note_overlap(survey, region, tally->tables_end);
    else if (region->offset < tally->previous_end)
        tally->out_of_order = true;
    tally->previous_end = end;
    return 0;
}

struct span {
    uint64_t offset, end;
};

struct spans {
    struct span *items;
    uint64_t n, capacity, tables_end;
};

static int collect(void *user, const struct plec_survey_region *region) {
    struct spans *spans = user;
    if (!region->resolved || region->length == 0 || region->offset < spans->tables_end) return 0;
    if (spans->n == spans->capacity) return 1;
    spans->items[spans->n++] = (struct span){region->offset, region->offset + region->length};
    return 0;
}

static int by_offset(const void *a, const void *b) {
    const struct span *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* A file whose regions do not ascend may still be sound: sort them and look again. */
static enum plec_status find_overlaps(struct plec_survey *out, const struct plec_segment *segment,
                                      const struct tally *tally, struct plec_error *err) {
    struct spans spans = {NULL, 0, tally->n_spans, tally->tables_end};
    spans.items = malloc((size_t)tally->n_spans * sizeof *spans.items);
    if (spans.items == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%llu regions to sort",
                         (unsigned long long)tally->n_spans);
    plec_survey_walk(segment, collect, &spans);
    qsort(spans.items, (size_t)spans.n, sizeof *spans.items, by_offset);
    uint64_t taken_until = 0;
    for (uint64_t i = 0; i < spans.n; i++) {
        const struct span *span = &spans.items[i];
        if (span->offset < taken_until && out->n_overlaps++ == 0)
            plec_fail_at(&out->first_overlap, PLEC_MALFORMED, "Overlap", span->offset,
                         "two regions claim the bytes up to %llu",
                         (unsigned long long)(span->end < taken_until ? span->end : taken_until));
        if (span->end > taken_until) taken_until = span->end;
    }
    free(spans.items);
    return PLEC_OK;
}

enum plec_status plec_survey_make(struct plec_survey *out, const struct plec_segment *segment,
                                  struct plec_error *err) {
    memset(out, 0, sizeof *out);
    struct tally tally = {.survey = out,
                          .tables_end = segment->entry_table + segment->entry_table_bytes};
    out->end = segment->payload_start < segment->size ? segment->payload_start : segment->size;
    plec_survey_walk(segment, count, &tally);
    uint64_t n_standing = 0;
    for (uint32_t s = 0; s < segment->header.num_segments; s++) {
        out->n_slots += promised(segment, s);
        n_standing += standing(segment, s);
    }
    out->n_missing += out->n_slots - n_standing;
    out->n_unseen = n_standing - tally.n_standing_seen;
    return tally.out_of_order ? find_overlaps(out, segment, &tally, err) : PLEC_OK;
}

int plec_survey_judge(const char *where, const struct plec_survey *survey) {
    if (survey->n_missing > 0)
        plec_cli_say("%s: %llu of %llu regions do not resolve; first: %s", where,
                     (unsigned long long)survey->n_missing, (unsigned long long)survey->n_slots,
                     survey->first_missing.name != NULL ? survey->first_missing.message
                                                        : "beyond the end of the file");
    if (survey->n_overlaps > 0)
        plec_cli_say("%s: %llu regions share bytes; first: %s", where,
                     (unsigned long long)survey->n_overlaps, survey->first_overlap.message);
    return survey->n_missing > 0 || survey->n_overlaps > 0 ? PLEC_EXIT_FOUND : PLEC_EXIT_OK;
}
