/* verify_model.h: `plectrum verify` of models that are not LYRW: GGUF and TEZW files. Everything
 * that can be checked without running, into the report that containers have too.
 */
#ifndef PLEC_TOOLS_VERIFY_MODEL_H
#define PLEC_TOOLS_VERIFY_MODEL_H

#include "host/verify.h"

#ifdef __cplusplus
extern "C" {
#endif

/* As plec_container_verify, for a GGUF file or split set. PLEC_OK whatever is found. Records are
 * keys and tensor records, regions the tensors. A model without a tensor is the defect
 * "NothingChecked": a check that looked at nothing is no success. A GGUF file records no hashes:
 * asking for them is a note. */
PLEC_MUST_USE enum plec_status plec_gguf_verify(struct plec_container_report *out, const char *path,
                                                const struct plec_container_verify_options *options,
                                                struct plec_error *err);

/* The same for a TEZW file; with scan, its f64 weights must be finite. */
PLEC_MUST_USE enum plec_status plec_tezw_verify(struct plec_container_report *out, const char *path,
                                                const struct plec_container_verify_options *options,
                                                struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
