/* segment_matrix.h: one region of one entry as a matrix that a codec can read.
 *
 * Owns nothing: views of the segment's bytes. It joins what the format keeps apart: the schema's
 * shape, the region, and for values stored without their scales the partner region. What cannot be
 * decoded is refused with its coordinates; no region is read as something it does not say it is.
 */
#ifndef PLEC_LYRW_SEGMENT_MATRIX_H
#define PLEC_LYRW_SEGMENT_MATRIX_H

#include "lyrw/segment.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The matrix of schema `schema` for an entry. PLEC_MISSING "MissingRegion": bank, schema or entry
 * is not in this file. PLEC_UNSUPPORTED: "UnknownFormat", "UnknownPacking", "StreamsStoredApart"
 * (the format keeps its scales in a second region, the schema names one), "NoTensorScale" (nvfp4
 * split in two), "NoScaleStream" (a format with inline scales split in two), "NotAMatrix" (a scales
 * region). PLEC_MALFORMED: what plec_segment_region and plec_segment_partner say, "NotWholeBlocks",
 * "SizeOverflow", "LengthNotShape" (either region), "PairFormatDiffers", "PairShapeDiffers". */
PLEC_MUST_USE enum plec_status plec_segment_matrix(struct plec_matrix *out,
                                                   const struct plec_segment *segment,
                                                   uint16_t bank_id, uint32_t entry,
                                                   uint32_t schema, struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
