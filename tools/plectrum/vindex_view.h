/* vindex_view.h: a VINDEX3 container gathered for showing: its manifests, a survey of every segment
 * file, and where each bank lies. Owns all of it until close. Never: reads a payload.
 */
#ifndef PLEC_TOOLS_VINDEX_VIEW_H
#define PLEC_TOOLS_VINDEX_VIEW_H

#include "host/vindex.h"
#include "tools/plectrum/survey.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_file_view {
    const char *key;
    const struct plec_segment *segment; /* NULL: error says why */
    struct plec_survey survey;
    struct plec_error error;
};

struct plec_vindex_view {
    struct plec_vindex vindex;
    struct plec_findings findings; /* what refuses the container as a whole */
    struct plec_file_view *files;  /* [vindex.index.n_segments], in the index's order */
    const char **keys;             /* [vindex.index.n_segments], room to resolve a storage */
    bool complete; /* every region that a layer's programme needs is there, in all layers */
};

/* One bank of a layer, as far as its files tell. */
struct plec_bank_view {
    size_t n_files;
    uint64_t bytes, n_regions, n_missing; /* of those files; missing: entries no file holds too */
    const char *first_key;
    const struct plec_lyrw_bank *bank;      /* of the first file; NULL: not to be had */
    const struct plec_lyrw_schema *schemas; /* [bank->n_schemas] */
};

/* Gathers. Statuses of plec_vindex_open, PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_vindex_view_open(struct plec_vindex_view *out, const char *path,
                                                     struct plec_error *err);
void plec_vindex_view_close(struct plec_vindex_view *view);

/* The bank of kind `kind` in a storage. */
void plec_vindex_view_bank(struct plec_bank_view *out, struct plec_vindex_view *view,
                           const char *storage, enum plec_bank_kind kind);

/* The authority a declared profile earns. */
enum plec_fidelity plec_vindex_view_authority(const struct plec_vindex_view *view,
                                              const struct plec_resolved_profile *profile);

#ifdef __cplusplus
}
#endif
#endif
