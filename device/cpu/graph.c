/* graph.c: the CPU device has no graphs: a launch there costs little beside its work. */
#include "device/cpu/cpu.h"

enum plec_status plec_cpu_graph_begin(struct plec_stream *stream, struct plec_error *err) {
    (void)stream;
    return plec_fail(err, PLEC_UNSUPPORTED, "NoGraphs", "the CPU device captures no launches");
}

enum plec_status plec_cpu_graph_end(struct plec_graph **out, struct plec_stream *stream,
                                    struct plec_error *err) {
    *out = NULL;
    return plec_cpu_graph_begin(stream, err);
}

enum plec_status plec_cpu_graph_launch(struct plec_graph *graph, struct plec_error *err) {
    (void)graph;
    return plec_cpu_graph_begin(NULL, err);
}

void plec_cpu_graph_close(struct plec_graph *graph) {
    (void)graph;
}

/* Launches read the entries themselves: they are always the ones of now. */
enum plec_status plec_cpu_graph_refresh(struct plec_stream *stream, const struct plec_bank *bank,
                                        struct plec_error *err) {
    (void)stream, (void)bank, (void)err;
    return PLEC_OK;
}
