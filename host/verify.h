/* verify.h: everything about a container that can be checked without running it.
 *
 * lyrw/verify.h looks at each file alone; here the manifests are held against the files: layer
 * numbers, counts, widths, roles, segments that must tile a bank, recorded extents and hashes.
 * Last, every layer in which nothing was found is bound as a run would bind it, so that a container
 * without a defect is one that binds. What no code here can run (router features without a
 * published definition, formats without a codec) is a note.
 *
 *   DEFECT                  WHAT
 *   SegmentMissing          a declared segment whose file is not there
 *   StorageUndeclared       a storage that no segment of the index holds
 *   SegmentGap              S.segNN keys with one missing between them
 *   NoSuchBank              a file without the bank it should hold
 *   LayerContradicted       a file of another layer than the manifest says
 *   ExpertsContradicted     ... of another number of experts
 *   DimensionContradicted   ... of other widths
 *   UnsatisfiedProgramme    a bank without a role that its programme needs
 *   MissingRegion           an entry that no segment of the bank holds, one a role
 *   SegmentsDisagree, SegmentsOverlap, RepeatedSegmentIndex   segments that are not one bank
 *   ExtentNotWhole, ExtentsInterleave                         extents that are not as recorded
 *   HashDiffers, HashedFileMissing, UnknownHash               (hash)
 *   NothingChecked          no region, or with hash no file, was looked at
 *   and the defects of manifests/moe.h, of lyrw/verify.h, and the refusals of binding
 *
 *   NOTE: SharedExpertSink, NormAfterTopK, QuantileBalanced, SelectsNothing, SegmentUnused,
 *   VariantUndeclared, ExtentNotAligned (to 4096 bytes), NotHashed, and what binding cannot support
 */
#ifndef PLEC_HOST_VERIFY_H
#define PLEC_HOST_VERIFY_H

#include "lyrw/verify.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_container_verify_options {
    bool hash; /* compare files with the SHA-256 recorded in plectrum.integrity */
    bool scan; /* look for NaN and infinite values and scales: reads the weights */
    /* Bytes read so far of those that will be; NULL: not called. */
    void (*progress)(void *user, const char *what, uint64_t done, uint64_t total);
    void *user;
};

/* Zeroed: closed. */
struct plec_container_report {
    struct plec_findings findings;
    bool refused; /* opening the container for a run would fail as a whole */
    uint64_t n_files, n_layers;
    struct plec_verify_report counts;
    uint64_t n_hashed, hashed_bytes;
};

/* Verifies a VINDEX3 directory or a lone .lyrw file. options NULL: defaults. PLEC_OK whatever is
 * found; the statuses of the readers when the manifests, or a lone file, cannot be read at all. */
PLEC_MUST_USE enum plec_status
plec_container_verify(struct plec_container_report *out, const char *path,
                      const struct plec_container_verify_options *options, struct plec_error *err);
void plec_container_report_close(struct plec_container_report *report);

#ifdef __cplusplus
}
#endif
#endif
