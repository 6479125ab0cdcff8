/* sparse.h: containers of real size that take no room: true tables, and holes for weights.
 *
 * For measuring and testing what reads tables only. The weights read as zeros.
 */
#ifndef PLEC_BENCH_SPARSE_H
#define PLEC_BENCH_SPARSE_H

#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_sparse_args {
    uint32_t n_layers, n_experts,
        n_segments; /* segments: files a layer, which divide the experts */
    uint32_t hidden, intermediate;
    uint32_t extent; /* entries an extent */
    uint16_t format; /* of gate_up_fused and down, scales inline */
};

/* Makes the container in `root`, a folder that exists. PLEC_BAD_INPUT, PLEC_IO. */
PLEC_MUST_USE enum plec_status
plec_sparse_make(const char *root, const struct plec_sparse_args *args, struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
