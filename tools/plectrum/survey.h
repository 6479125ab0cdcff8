/* survey.h: a walk over every region of one LYRW file, in the order of its entry tables.
 *
 * Bounded whatever the file says: it costs the slots that stand in the file, at most
 * PLEC_SURVEY_MAX of them; slots that the tables promise beyond the end of the file are counted,
 * not walked. Owns nothing but a table of offsets while it looks for overlaps.
 */
#ifndef PLEC_TOOLS_SURVEY_H
#define PLEC_TOOLS_SURVEY_H

#include "lyrw/segment.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Most slots looked at, and most slots beyond the end of the file that are told one by one. */
enum { PLEC_SURVEY_MAX = 1 << 24, PLEC_SURVEY_MISSING_MAX = 1 << 16 };

struct plec_survey_region {
    uint32_t segment; /* ordinal of its segment record */
    uint32_t entry;   /* of the logical bank */
    const struct plec_lyrw_bank *bank;
    const struct plec_lyrw_schema *schema;
    bool resolved; /* else error says why */
    uint64_t offset, length;
    struct plec_error error;
};

/* Calls see(user, region) for each region in file order; stops early when it returns non-zero and
 * returns that. */
int plec_survey_walk(const struct plec_segment *segment,
                     int (*see)(void *user, const struct plec_survey_region *region), void *user);

struct plec_survey {
    uint64_t n_slots;      /* that the tables promise */
    uint64_t n_resolved;   /* that point into the file */
    uint64_t n_missing;    /* that do not, or are not in the file themselves */
    uint64_t n_unseen;     /* beyond PLEC_SURVEY_MAX */
    uint64_t n_overlaps;   /* regions that share bytes with another or with the tables */
    uint64_t region_bytes; /* of the resolved ones */
    uint64_t end;          /* of the last one's bytes; at least the payload's start */
    struct plec_error first_missing, first_overlap; /* name NULL: none */
};

/* PLEC_NO_MEMORY when a file out of order is too large to sort. */
PLEC_MUST_USE enum plec_status plec_survey_make(struct plec_survey *out,
                                                const struct plec_segment *segment,
                                                struct plec_error *err);

/* Says what is missing and what overlaps on stderr, behind `where`; returns the exit status that
 * earns: 0 or 1. */
int plec_survey_judge(const char *where, const struct plec_survey *survey);

#ifdef __cplusplus
}
#endif
#endif
