#include "host/step_graphs.h"

#include <string.h>

static bool same(const struct plec_step_size *a, const struct plec_step_size *b) {
    return a->n_tokens == b->n_tokens && a->n_slots == b->n_slots &&
           a->routed_only == b->routed_only && a->routes == b->routes;
}

struct plec_step_graph *plec_step_graphs_find(bool *is_new, struct plec_step_graphs *graphs,
                                              const struct plec_step_size *size) {
    struct plec_step_graph *oldest = &graphs->places[0];
    *is_new = false;
    if (size->n_tokens == 0 || size->n_tokens > PLEC_GRAPH_TOKENS) return NULL;
    graphs->n_used++;
    for (int i = 0; i < PLEC_GRAPHS_A_LAYER; i++) {
        struct plec_step_graph *place = &graphs->places[i];
        if (same(&place->size, size)) {
            place->used = graphs->n_used;
            return place;
        }
        if (place->used < oldest->used) oldest = place;
    }
    plec_graph_close(oldest->graph);
    *oldest = (struct plec_step_graph){.size = *size, .used = graphs->n_used};
    *is_new = true;
    return oldest;
}

void plec_step_graphs_close(struct plec_step_graphs *graphs) {
    for (int i = 0; i < PLEC_GRAPHS_A_LAYER; i++)
        plec_graph_close(graphs->places[i].graph);
    memset(graphs, 0, sizeof *graphs);
}
