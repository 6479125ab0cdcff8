/* step_graphs.h: the launches of one layer's steps as graphs of the device, one for each size.
 *
 * A size is captured when it comes for the second time: what comes once is not worth it. Owns the
 * graphs; the stream they were captured on must be open until close. One thread at a time.
 */
#ifndef PLEC_HOST_STEP_GRAPHS_H
#define PLEC_HOST_STEP_GRAPHS_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PLEC_GRAPH_TOKENS =
        64, /* of a step worth capturing: beyond, launches cost little beside work */
    PLEC_GRAPHS_A_LAYER = 8 /* sizes kept; the one used longest ago makes room */
};

/* What two steps of a layer share when one graph serves both. */
struct plec_step_size {
    uint32_t n_tokens, n_slots;
    bool routed_only, routes; /* the device routes */
};

struct plec_step_graph {
    struct plec_step_size size; /* n_tokens 0: the place is free */
    struct plec_graph *graph;   /* NULL: the size came once */
    uint64_t used;              /* when, by plec_step_graphs.n_used */
};

/* Zeroed: none. */
struct plec_step_graphs {
    struct plec_step_graph places[PLEC_GRAPHS_A_LAYER];
    uint64_t n_used;
};

/* The place of a size, made free for it when it is new: then its graph is NULL and *is_new true.
 * NULL: such steps are not captured. */
struct plec_step_graph *plec_step_graphs_find(bool *is_new, struct plec_step_graphs *graphs,
                                              const struct plec_step_size *size);
void plec_step_graphs_close(struct plec_step_graphs *graphs);

#ifdef __cplusplus
}
#endif
#endif
