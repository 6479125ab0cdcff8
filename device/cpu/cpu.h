/* cpu.h: the device struct of the CPU backend, and what its parts call of each other. */
#ifndef PLEC_DEVICE_CPU_CPU_H
#define PLEC_DEVICE_CPU_CPU_H

#include "device/backend.h"
#include "device/cpu/kernel.h"
#include "device/cpu/pool.h"
#include "device/cpu/stream.h"

struct plec_cpu_device {
    struct plec_device base;
    uint32_t n_threads, queue_capacity;
    enum plec_cpu_set kernels;
    struct plec_cpu_pool pool;
    atomic_uint n_open;                   /* streams open: none may be left at close */
    pthread_mutex_t mutex;                /* over free_streams */
    struct plec_cpu_stream *free_streams; /* closed, kept for their counters */
    struct plec_simulation simulation;
    struct plec_device_probe probe;
    pthread_mutex_t link;  /* over link_free_ns */
    uint64_t link_free_ns; /* when the simulated link has moved all that was given to it */
};

/* launch.c: linear, norm, sigmoid, scale. */
enum plec_status plec_cpu_linear(struct plec_stream *stream, const struct plec_linear_args *args,
                                 struct plec_error *err);
enum plec_status plec_cpu_norm(struct plec_stream *stream, const struct plec_norm_args *args,
                               struct plec_error *err);
enum plec_status plec_cpu_sigmoid_launch(struct plec_stream *stream, float *x, uint64_t n,
                                         struct plec_error *err);
enum plec_status plec_cpu_scale(struct plec_stream *stream, float *x, uint64_t n, float factor,
                                struct plec_error *err);
/* PLEC_UNSUPPORTED "NoKernel" when the format has none. */
PLEC_MUST_USE enum plec_status plec_cpu_check_kernel(uint16_t format, const char *operand,
                                                     struct plec_error *err);

/* graph.c */
enum plec_status plec_cpu_graph_begin(struct plec_stream *stream, struct plec_error *err);
enum plec_status plec_cpu_graph_end(struct plec_graph **out, struct plec_stream *stream,
                                    struct plec_error *err);
enum plec_status plec_cpu_graph_launch(struct plec_graph *graph, struct plec_error *err);
void plec_cpu_graph_close(struct plec_graph *graph);
enum plec_status plec_cpu_graph_refresh(struct plec_stream *stream, const struct plec_bank *bank,
                                        struct plec_error *err);

/* route.c */
bool plec_cpu_route_workspace(uint64_t *n_bytes, const struct plec_device *device,
                              const struct plec_router *router, uint32_t n_tokens);
bool plec_cpu_routes(const struct plec_device *device, const struct plec_router *router);
enum plec_status plec_cpu_route(struct plec_stream *stream, const struct plec_route_args *args,
                                struct plec_error *err);

/* arrive.c */
enum plec_status plec_cpu_arrival(struct plec_arrival *out, const struct plec_device *device,
                                  const struct plec_bank *bank, struct plec_error *err);
enum plec_status plec_cpu_arrive(struct plec_stream *stream, const struct plec_arrive_args *args,
                                 struct plec_error *err);

/* experts.c */
bool plec_cpu_experts_workspace(uint64_t *n_bytes, const struct plec_device *device,
                                const struct plec_bank *bank, uint32_t n_tokens, uint32_t n_slots);
enum plec_status plec_cpu_experts(struct plec_stream *stream, const struct plec_experts_args *args,
                                  struct plec_error *err);

/* Floats that are the least worth handing to a helper. */
enum { PLEC_CPU_GRAIN = 1 << 13 };
/* Weight bytes that are the least worth handing to a helper, and the most that many tokens go over
 * before the next are read: they must stay in a core's second-level cache. */
enum { PLEC_CPU_GRAIN_BYTES = 1 << 15, PLEC_CPU_BLOCK_BYTES = 1 << 18 };

/* Rows of n_bytes, one row having row_bytes: 1 to PLEC_CPU_ROWS. */
static inline uint32_t plec_cpu_rows_in(uint64_t n_bytes, uint64_t row_bytes) {
    uint64_t rows = n_bytes / (row_bytes + 1);
    return rows < 1 ? 1 : rows > PLEC_CPU_ROWS ? PLEC_CPU_ROWS : (uint32_t)rows;
}

#endif
