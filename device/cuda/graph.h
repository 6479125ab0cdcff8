/* graph.h: a step's launches as one CUDA graph: captured once, replayed with any routing.
 *
 * What a replay reads is what lies in device memory then: ids, weights, x, and the tables of expert
 * pointers. Nothing of a routing is in the graph. Only launches are captured: no copy of pageable
 * memory, no call, no experts launch in parts. Of the CUDA backend alone.
 */
#ifndef PLEC_DEVICE_CUDA_GRAPH_H
#define PLEC_DEVICE_CUDA_GRAPH_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_cuda_graph; /* opaque */

/* Launches on the stream are captured (in global mode) instead of run, until end. Waits for the
 * stream first. The entries of a bank whose launch is captured must be those of an earlier launch,
 * or of a refresh: else the launch is refused, PLEC_BAD_INPUT "TableNotCurrent". */
PLEC_MUST_USE enum plec_status plec_cuda_graph_begin(struct plec_stream *stream,
                                                     struct plec_error *err);
/* Ends the capture. PLEC_NO_DEVICE "CudaFailed" when something in between cannot be captured; then
 * *out is NULL and the stream works as before. */
PLEC_MUST_USE enum plec_status plec_cuda_graph_end(struct plec_cuda_graph **out,
                                                   struct plec_stream *stream,
                                                   struct plec_error *err);
/* Runs what was captured, in the stream's order. On the stream it was captured on: faults of its
 * kernels are told by that stream. */
PLEC_MUST_USE enum plec_status plec_cuda_graph_launch(struct plec_cuda_graph *graph,
                                                      struct plec_error *err);
/* Waits for the stream, and frees the graph. NULL is nothing. */
void plec_cuda_graph_close(struct plec_cuda_graph *graph);

/* Brings the device table of a bank up to its entries, in the stream's order: before a capture, and
 * before a replay when entries moved. */
PLEC_MUST_USE enum plec_status plec_cuda_graph_refresh(struct plec_stream *stream,
                                                       const struct plec_bank *bank,
                                                       struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
