/* exercise_segment.h: everything a reader does with a LYRW file, on bytes of any kind: parse,
 * resolve, decode, verify, scan, write again. Reads the ends of each region it is given, so that a
 * sanitizer sees a view that leaves the file. C and C++: fuzz targets and tests share it.
 */
#ifndef PLEC_TESTS_SUPPORT_EXERCISE_SEGMENT_H
#define PLEC_TESTS_SUPPORT_EXERCISE_SEGMENT_H

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lyrw/segment_matrix.h"
#include "lyrw/segment_write.h"
#include "lyrw/verify.h"

/* Bounds of the walk, so that a file's counts cannot make it long. */
enum { EXERCISE_BANKS = 8, EXERCISE_ENTRIES = 8, EXERCISE_SCHEMAS = 16, EXERCISE_ROWS = 4 };

static inline uint64_t exercise_min(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static inline unsigned exercise_region(const struct plec_segment *segment,
                                       const struct plec_region *region) {
    if (!region->present || region->length == 0) return 0;
    const uint8_t *bytes = segment->data + region->offset;
    return (unsigned)bytes[0] + bytes[region->length - 1];
}

/* Rows of a matrix that can be decoded. Its bytes are in the file, so a row is no longer than it.
 */
static inline unsigned exercise_matrix(const struct plec_segment *segment, uint16_t bank,
                                       uint32_t entry, uint32_t schema) {
    struct plec_matrix matrix;
    if (plec_segment_matrix(&matrix, segment, bank, entry, schema, NULL) != PLEC_OK) return 0;
    if (matrix.rows == 0 || matrix.cols == 0) return 0;
    float *row = (float *)malloc(matrix.cols * sizeof *row);
    assert(row != NULL);
    for (uint32_t i = 0; i < exercise_min(matrix.rows, EXERCISE_ROWS); i++)
        plec_matrix_row_f32(row, &matrix, i);
    unsigned sum = row[0] > 0 ? 1 : 0;
    free(row);
    return sum;
}

static inline unsigned exercise_entry(const struct plec_segment *segment,
                                      const struct plec_lyrw_bank *bank, uint32_t entry) {
    const struct plec_lyrw_schema *schemas = segment->schemas + bank->first_schema;
    unsigned sum = 0;
    for (uint32_t i = 0; i < exercise_min(bank->n_schemas, EXERCISE_SCHEMAS); i++) {
        struct plec_region region;
        struct plec_error err;
        if (plec_segment_region(&region, segment, bank->id, entry, i, &err) == PLEC_OK)
            sum += exercise_region(segment, &region);
        if (plec_segment_region_by_role(&region, segment, bank->id, entry, schemas[i].role, &err) ==
            PLEC_OK)
            sum += exercise_region(segment, &region);
        if (plec_segment_partner(&region, segment, bank->id, entry, schemas[i].role,
                                 PLEC_ROLE_SCALES, &err) == PLEC_OK)
            sum += exercise_region(segment, &region);
        sum += exercise_matrix(segment, bank->id, entry, i);
    }
    return sum;
}

static inline unsigned exercise_lookups(const struct plec_segment *segment) {
    unsigned sum = 0;
    for (uint32_t b = 0; b < exercise_min(segment->header.num_banks, EXERCISE_BANKS); b++) {
        const struct plec_lyrw_bank *bank = &segment->banks[b];
        for (uint32_t e = 0; e < exercise_min(bank->num_entries, EXERCISE_ENTRIES); e++)
            sum += exercise_entry(segment, bank, e);
        sum += exercise_entry(segment, bank, bank->num_entries - 1); /* 0 entries: the largest */
        sum += exercise_entry(segment, bank, bank->num_entries);
    }
    return sum;
}

static inline void exercise_verify(const struct plec_segment *segment) {
    struct plec_findings findings;
    struct plec_verify_report report;
    memset(&findings, 0, sizeof findings);
    memset(&report, 0, sizeof report);
    struct plec_error err;
    enum plec_status status = plec_segment_verify(&findings, &report, segment, NULL, &err);
    assert(status == PLEC_OK || status == PLEC_NO_MEMORY);
    plec_segment_scan(&findings, &report, segment, NULL);
    assert(report.scanned_bytes <= segment->size);
    plec_findings_clear(&findings);
}

/* What a sink saw: the structure comes first and at 0. */
struct exercise_sink {
    uint64_t end, total;
};

static inline enum plec_status exercise_write(void *user, uint64_t at, const void *bytes,
                                              uint64_t n_bytes, struct plec_error *err) {
    (void)err;
    struct exercise_sink *sink = (struct exercise_sink *)user;
    if (sink->total == 0) {
        struct plec_segment again;
        enum plec_status status = plec_segment_parse(&again, bytes, n_bytes, NULL);
        assert(at == 0 && status == PLEC_OK);
        plec_segment_close(&again);
    }
    sink->total += n_bytes;
    if (sink->end < at + n_bytes) sink->end = at + n_bytes;
    return PLEC_OK;
}

/* Writes the file again to nowhere: whatever parses and whose regions resolve can be rewritten. */
static inline void exercise_rewrite(const struct plec_segment *segment, enum plec_order order) {
    struct plec_segment_plan plan;
    struct plec_error err;
    if (plec_segment_plan_of(&plan, segment, &err) != PLEC_OK) return;
    plan.order = order;
    struct plec_segment_layout layout;
    enum plec_status status = plec_segment_plan_layout(&layout, &plan, &err);
    if (status != PLEC_OK) return; /* regions that overlap a lot: beyond 2^63 when apart */
    struct exercise_sink seen = {0, 0};
    struct plec_segment_sink sink = {exercise_write, &seen};
    struct plec_segment_writer *writer;
    status = plec_segment_writer_open_sink(&writer, &sink, &plan, &err);
    assert(status == PLEC_OK);
    status = plec_segment_writer_copy(writer, segment, &err);
    assert(status == PLEC_OK);
    status = plec_segment_writer_commit(writer, &err);
    assert(status == PLEC_OK);
    assert(seen.total == layout.structure_bytes + layout.payload_bytes);
    assert(seen.end <= layout.file_bytes);
}

/* All of it; the result only keeps the reads from being left out. */
static inline unsigned exercise_segment(const void *data, uint64_t size) {
    struct plec_segment segment;
    struct plec_error err;
    if (plec_segment_parse(&segment, data, size, &err) != PLEC_OK) return 0;
    unsigned sum = exercise_lookups(&segment);
    exercise_verify(&segment);
    exercise_rewrite(&segment, PLEC_ORDER_ENTRY);
    exercise_rewrite(&segment, PLEC_ORDER_ROLE);
    plec_segment_close(&segment);
    return sum;
}

#endif
