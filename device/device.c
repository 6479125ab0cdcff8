/* device.c: the door itself: finds the backend of a kind, then passes every call on. */
#include "device/device.h"

#include <stdio.h>
#include <string.h>

#include "device/backend.h"

/* Which programs have a CUDA device is decided when they are linked: with the backend library
 * (plec_cuda), with the emulated one (plec_cuda_emu), or with neither. */
extern const struct plec_backend plec_cuda_backend __attribute__((weak));

static const struct plec_backend *find_backend(enum plec_device_kind kind) {
    switch (kind) {
    case PLEC_DEVICE_CPU: return &plec_cpu_backend;
    case PLEC_DEVICE_CUDA: return &plec_cuda_backend;
    }
    return NULL;
}

const char *plec_device_backend_name(enum plec_device_kind kind) {
    const struct plec_backend *backend = find_backend(kind);
    return backend != NULL ? backend->name : NULL;
}

enum plec_status plec_device_open(struct plec_device **out, enum plec_device_kind kind,
                                  const struct plec_device_options *options,
                                  struct plec_error *err) {
    static const struct plec_device_options defaults;
    *out = NULL;
    const struct plec_backend *backend = find_backend(kind);
    if (backend == NULL)
        return plec_fail(err, PLEC_NO_DEVICE, "DeviceNotBuilt",
                         "this build has no %s backend: it has cpu",
                         kind == PLEC_DEVICE_CUDA ? "CUDA" : "such");
    return backend->open(out, options != NULL ? options : &defaults, err);
}

void plec_device_get_info(struct plec_device_info *out, const struct plec_device *device) {
    device->backend->get_info(out, device);
}

void plec_device_close(struct plec_device *device) {
    if (device != NULL) device->backend->close(device);
}

enum plec_status plec_device_alloc(void **out, struct plec_device *device, uint64_t n_bytes,
                                   struct plec_error *err) {
    return device->backend->device_alloc(out, device, n_bytes, err);
}

void plec_device_free(struct plec_device *device, void *memory) {
    if (memory != NULL) device->backend->device_free(device, memory);
}

enum plec_status plec_pinned_alloc(void **out, struct plec_device *device, uint64_t n_bytes,
                                   struct plec_error *err) {
    return device->backend->pinned_alloc(out, device, n_bytes, err);
}

void plec_pinned_free(struct plec_device *device, void *memory) {
    if (memory != NULL) device->backend->pinned_free(device, memory);
}

enum plec_status plec_device_pin(struct plec_device *device, void *memory, uint64_t n_bytes,
                                 struct plec_error *err) {
    return device->backend->pin(device, memory, n_bytes, err);
}

void plec_device_unpin(struct plec_device *device, void *memory, uint64_t n_bytes) {
    device->backend->unpin(device, memory, n_bytes);
}

enum plec_status plec_stream_open(struct plec_stream **out, struct plec_device *device,
                                  struct plec_error *err) {
    return device->backend->stream_open(out, device, err);
}

void plec_stream_close(struct plec_stream *stream) {
    if (stream != NULL) stream->backend->stream_close(stream);
}

void plec_stream_set_name(struct plec_stream *stream, const char *name) {
    stream->backend->stream_set_name(stream, name);
}

enum plec_status plec_stream_sync(struct plec_stream *stream, struct plec_error *err) {
    return stream->backend->stream_sync(stream, err);
}

enum plec_status plec_event_open(struct plec_event **out, struct plec_device *device,
                                 struct plec_error *err) {
    return device->backend->event_open(out, device, err);
}

void plec_event_close(struct plec_event *event) {
    if (event != NULL) event->backend->event_close(event);
}

enum plec_status plec_event_record(struct plec_event *event, struct plec_stream *stream,
                                   struct plec_error *err) {
    return event->backend->event_record(event, stream, err);
}

enum plec_status plec_event_wait(struct plec_stream *stream, struct plec_event *event,
                                 struct plec_error *err) {
    return event->backend->event_wait(stream, event, err);
}

bool plec_event_done(const struct plec_event *event) {
    return event->backend->event_done(event);
}

void plec_event_sync(struct plec_event *event) {
    event->backend->event_sync(event);
}

enum plec_status plec_copy(void *to, const void *from, uint64_t n_bytes, struct plec_stream *stream,
                           struct plec_error *err) {
    return stream->backend->copy(to, from, n_bytes, stream, err);
}

enum plec_status plec_fill(void *to, uint8_t byte, uint64_t n_bytes, struct plec_stream *stream,
                           struct plec_error *err) {
    return stream->backend->fill(to, byte, n_bytes, stream, err);
}

enum plec_status plec_stream_call(struct plec_stream *stream,
                                  enum plec_status (*fn)(void *user, struct plec_error *err),
                                  void *user, struct plec_error *err) {
    return stream->backend->stream_call(stream, fn, user, err);
}

enum plec_status plec_launch_linear(struct plec_stream *stream, const struct plec_linear_args *args,
                                    struct plec_error *err) {
    return stream->backend->linear(stream, args, err);
}

bool plec_route_workspace(uint64_t *n_bytes, const struct plec_device *device,
                          const struct plec_router *router, uint32_t n_tokens) {
    return device->backend->route_workspace(n_bytes, device, router, n_tokens);
}

bool plec_device_routes(const struct plec_device *device, const struct plec_router *router) {
    return device->backend->routes(device, router);
}

enum plec_status plec_launch_route(struct plec_stream *stream, const struct plec_route_args *args,
                                   struct plec_error *err) {
    return stream->backend->route(stream, args, err);
}

enum plec_status plec_device_arrival(struct plec_arrival *out, const struct plec_device *device,
                                     const struct plec_bank *bank, struct plec_error *err) {
    return device->backend->arrival(out, device, bank, err);
}

enum plec_status plec_launch_arrive(struct plec_stream *stream, const struct plec_arrive_args *args,
                                    struct plec_error *err) {
    return stream->backend->arrive(stream, args, err);
}

bool plec_experts_workspace(uint64_t *n_bytes, const struct plec_device *device,
                            const struct plec_bank *bank, uint32_t n_tokens, uint32_t n_slots) {
    return device->backend->experts_workspace(n_bytes, device, bank, n_tokens, n_slots);
}

enum plec_status plec_launch_experts(struct plec_stream *stream,
                                     const struct plec_experts_args *args, struct plec_error *err) {
    return stream->backend->experts(stream, args, err);
}

enum plec_status plec_launch_norm(struct plec_stream *stream, const struct plec_norm_args *args,
                                  struct plec_error *err) {
    return stream->backend->norm(stream, args, err);
}

enum plec_status plec_launch_sigmoid(struct plec_stream *stream, float *x, uint64_t n,
                                     struct plec_error *err) {
    return stream->backend->sigmoid(stream, x, n, err);
}

enum plec_status plec_launch_scale(struct plec_stream *stream, float *x, uint64_t n, float factor,
                                   struct plec_error *err) {
    return stream->backend->scale(stream, x, n, factor, err);
}

enum plec_status plec_graph_begin(struct plec_stream *stream, struct plec_error *err) {
    return stream->backend->graph_begin(stream, err);
}

enum plec_status plec_graph_end(struct plec_graph **out, struct plec_stream *stream,
                                struct plec_error *err) {
    *out = NULL;
    return stream->backend->graph_end(out, stream, err);
}

enum plec_status plec_graph_launch(struct plec_graph *graph, struct plec_error *err) {
    return graph->backend->graph_launch(graph, err);
}

void plec_graph_close(struct plec_graph *graph) {
    if (graph != NULL) graph->backend->graph_close(graph);
}

enum plec_status plec_graph_refresh(struct plec_stream *stream, const struct plec_bank *bank,
                                    struct plec_error *err) {
    return stream->backend->graph_refresh(stream, bank, err);
}

const char *plec_device_kernel_name(const struct plec_device *device, uint16_t format, char *name) {
    return device->backend->kernel_name(device, format, name);
}

const char *plec_device_operand_kernel(const struct plec_device *device,
                                       const struct plec_bank *bank, enum plec_operand_id id,
                                       char *name) {
    if (bank->operands[id].rows == 0) return NULL;
    return device->backend->operand_kernel(device, bank, id, name);
}

void plec_device_experts_kernels(char *out, const struct plec_device *device,
                                 const struct plec_bank *bank) {
    static const char *const names[PLEC_N_MATRICES] = {"gate", "up", "down"};
    char format[PLEC_NAME_MAX], name[PLEC_KERNEL_NAME_MAX];
    size_t at = 0;
    out[0] = '\0';
    for (int id = 0; id < PLEC_N_MATRICES && at < PLEC_EXPERTS_KERNELS_MAX; id++) {
        const struct plec_operand *operand = &bank->operands[id];
        if (operand->rows == 0) continue;
        const char *kernel =
            plec_device_operand_kernel(device, bank, (enum plec_operand_id)id, name);
        bool by_class = kernel != NULL && strchr(kernel, ',') != NULL;
        bool fused = id == PLEC_GATE && bank->fusion != PLEC_NOT_FUSED;
        int n =
            snprintf(out + at, PLEC_EXPERTS_KERNELS_MAX - at, "%s%s %s %s%s%s", at > 0 ? ", " : "",
                     fused ? "gate_up" : names[id], plec_format_name(operand->format, format),
                     by_class ? "(" : "", kernel != NULL ? kernel : "none", by_class ? ")" : "");
        at += n > 0 ? (size_t)n : 0;
    }
}
