/* gguf_scan.h: reads every weight of a GGUF model once and tells which are not what weights are.
 *
 *   DEFECT           WHAT
 *   NonFiniteValue   NaN or infinite elements of a tensor of floats
 *   NonFiniteScale   NaN or infinite block scales: every token routed to that expert is poisoned
 *   ZeroScale        a factor of an expert (".scale") that is 0
 *
 *   NOTE
 *   NanScaleByte     block scales that other definitions read as NaN: E8M0 255, UE4M3 0x7f
 *   ZeroExpert       an expert whose every weight is 0
 *   IdenticalExperts two experts of one tensor with the same bytes
 *   ExtremeScale     finite block scales of 1024 and more
 *   NotScanned       a tensor of a type without a definition here
 *
 * Each finding names the tensor, the expert where there are several, how many and where the first
 * is.
 */
#ifndef PLEC_TOOLS_GGUF_SCAN_H
#define PLEC_TOOLS_GGUF_SCAN_H

#include "lyrw/gguf_split.h"
#include "tools/plectrum/progress.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_scan_counts {
    uint64_t n_tensors, n_bytes; /* looked at */
};

/* Scans all tensors that can be used, by all cores. PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_gguf_scan(struct plec_findings *findings,
                                              struct plec_scan_counts *counts,
                                              const struct plec_gguf_set *set,
                                              struct plec_progress *progress,
                                              struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
