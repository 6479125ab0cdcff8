/* graph.c: a stream's launches as one CUDA graph. What a replay reads is what lies in device memory
 * then: expert pointers come from the banks' device tables (entries.c), never from parameters. */
#include <stdlib.h>

#include "device/cuda/cuda.h"

struct plec_cuda_graph {
    struct plec_graph base;
    struct plec_cuda_stream *stream;
    cudaGraphExec_t executable;
};

enum plec_status plec_cuda_graph_begin(struct plec_stream *base, struct plec_error *err) {
    struct plec_cuda_stream *stream = (struct plec_cuda_stream *)base;
    if (stream->device->library != NULL)
        return plec_fail(err, PLEC_UNSUPPORTED, "NoGraphs",
                         "products of cuBLAS: the host has to know the rows of each expert");
    enum plec_status status = plec_cuda_stream_sync(base, err);
    if (status != PLEC_OK) return status;
    pthread_mutex_lock(&stream->device->captures);
    pthread_mutex_lock(&stream->mutex);
    pthread_mutex_lock(&stream->device->mutex);
    /* Other threads go on: they ask events and take memory while this one captures. */
    status =
        plec_cuda_check(cudaStreamBeginCapture(stream->handle, cudaStreamCaptureModeThreadLocal),
                        err, "beginning a capture");
    stream->capturing = status == PLEC_OK;
    pthread_mutex_unlock(&stream->device->mutex);
    pthread_mutex_unlock(&stream->mutex);
    if (status != PLEC_OK) pthread_mutex_unlock(&stream->device->captures);
    return status;
}

/* The captured graph made executable; the graph itself is not needed any more. */
static enum plec_status instantiate(struct plec_cuda_graph *out, cudaGraph_t captured,
                                    struct plec_error *err) {
    enum plec_status status = plec_cuda_check(cudaGraphInstantiate(&out->executable, captured, 0),
                                              err, "making a graph executable");
    (void)cudaGraphDestroy(captured);
    return status;
}

enum plec_status plec_cuda_graph_end(struct plec_graph **out, struct plec_stream *base,
                                     struct plec_error *err) {
    struct plec_cuda_stream *stream = (struct plec_cuda_stream *)base;
    cudaGraph_t captured = NULL;
    *out = NULL;
    pthread_mutex_lock(&stream->mutex);
    pthread_mutex_lock(&stream->device->mutex);
    enum plec_status status =
        plec_cuda_check(cudaStreamEndCapture(stream->handle, &captured), err, "ending a capture");
    stream->capturing = false;
    pthread_mutex_unlock(&stream->device->mutex);
    pthread_mutex_unlock(&stream->mutex);
    pthread_mutex_unlock(&stream->device->captures);
    if (status != PLEC_OK) return status;
    struct plec_cuda_graph *graph = calloc(1, sizeof *graph);
    if (graph == NULL) {
        (void)cudaGraphDestroy(captured);
        return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "a graph");
    }
    graph->base.backend = base->backend;
    graph->stream = stream;
    status = instantiate(graph, captured, err);
    if (status != PLEC_OK) {
        free(graph);
        return status;
    }
    *out = &graph->base;
    return PLEC_OK;
}

enum plec_status plec_cuda_graph_launch(struct plec_graph *base, struct plec_error *err) {
    struct plec_cuda_graph *graph = (struct plec_cuda_graph *)base;
    struct plec_cuda_launch launch =
        plec_cuda_launch_begin(&graph->stream->base, err, "a captured step");
    graph->stream->may_fault = true;
    if (!launch.skip)
        plec_cuda_launched(&launch, cudaGraphLaunch(graph->executable, graph->stream->handle),
                           "graph");
    return plec_cuda_launch_end(&launch);
}

void plec_cuda_graph_close(struct plec_graph *base) {
    struct plec_cuda_graph *graph = (struct plec_cuda_graph *)base;
    if (plec_cuda_enter(graph->stream->device, NULL) == PLEC_OK) {
        (void)cudaStreamSynchronize(graph->stream->handle);
        (void)cudaGraphExecDestroy(graph->executable);
    }
    free(graph);
}

enum plec_status plec_cuda_graph_refresh(struct plec_stream *base, const struct plec_bank *bank,
                                         struct plec_error *err) {
    struct plec_cuda_launch launch =
        plec_cuda_launch_begin(base, err, "the table of %u experts", bank->n_entries);
    if (!launch.skip) plec_cuda_entries_take(&launch, bank, NULL, UINT32_MAX);
    return plec_cuda_launch_end(&launch);
}
