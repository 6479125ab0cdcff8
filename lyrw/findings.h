/* findings.h: a bounded list of things a check found, gathered so that all are told at once.
 *
 * Owns: the copies of the texts. Never: decides what a finding means for the exit status beyond
 * its severity. Verification of files and the defects of manifests both end here.
 */
#ifndef PLEC_LYRW_FINDINGS_H
#define PLEC_LYRW_FINDINGS_H

#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum plec_severity {
    PLEC_NOTE,  /* worth saying; does not change an exit status */
    PLEC_DEFECT /* something is wrong */
};

struct plec_finding {
    enum plec_severity severity;
    const char *name; /* static, stable: "OffsetNotAligned", "DuplicateLayer" */
    char *text;       /* owned by the list; coordinates, wanted, found */
};

/* At most this many are kept; further ones are only counted. */
enum { PLEC_FINDINGS_MAX = 4096 };

/* A zeroed list is an empty list. */
struct plec_findings {
    struct plec_finding *items; /* [n_items] */
    size_t n_items, capacity;
    uint64_t n_defects, n_notes; /* counted, kept or not */
    int out_of_memory;           /* set once when a finding could not be kept */
};

/* Adds one; control bytes are escaped. Never fails: what cannot be kept is counted. */
void plec_findings_add(struct plec_findings *list, enum plec_severity severity, const char *name,
                       const char *format, ...) PLEC_PRINTF(4, 5);

/* Adds an error as a finding: its name, and its message without it. */
void plec_findings_add_error(struct plec_findings *list, enum plec_severity severity,
                             const struct plec_error *err);

/* PLEC_OK when no defect was counted; else fills err with status `code`, the name of the first
 * defect and all defect texts joined by "; " (cut with the number left out). */
PLEC_MUST_USE enum plec_status plec_findings_to_error(const struct plec_findings *list,
                                                      enum plec_status code,
                                                      struct plec_error *err);

/* Frees the texts and the list; the struct is then an empty list again. */
void plec_findings_clear(struct plec_findings *list);

#ifdef __cplusplus
}
#endif
#endif
