/* backend.h: what a backend gives device.c: one table of functions behind the calls of device.h.
 *
 * Each handle of device.h starts with one of the structs below; a backend embeds it as the first
 * member of its own struct and casts back. device.c only looks the table up: it checks nothing and
 * keeps nothing, so that device.h's promises are each backend's own. A table has no empty place.
 */
#ifndef PLEC_DEVICE_BACKEND_H
#define PLEC_DEVICE_BACKEND_H

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_backend;

struct plec_device {
    const struct plec_backend *backend;
};
struct plec_stream {
    const struct plec_backend *backend;
};
struct plec_event {
    const struct plec_backend *backend;
};
struct plec_graph {
    const struct plec_backend *backend;
};

typedef enum plec_status plec_stream_function(void *user, struct plec_error *err);

/* Every function has the contract of its namesake in device.h. */
struct plec_backend {
    const char *name; /* "CPU", "CUDA", "CUDA emulated on the CPU" */
    enum plec_status (*open)(struct plec_device **out, const struct plec_device_options *options,
                             struct plec_error *err);
    void (*get_info)(struct plec_device_info *out, const struct plec_device *device);
    void (*close)(struct plec_device *device);
    enum plec_status (*device_alloc)(void **out, struct plec_device *device, uint64_t n_bytes,
                                     struct plec_error *err);
    void (*device_free)(struct plec_device *device, void *memory);
    enum plec_status (*pinned_alloc)(void **out, struct plec_device *device, uint64_t n_bytes,
                                     struct plec_error *err);
    void (*pinned_free)(struct plec_device *device, void *memory);
    enum plec_status (*pin)(struct plec_device *device, void *memory, uint64_t n_bytes,
                            struct plec_error *err);
    void (*unpin)(struct plec_device *device, void *memory, uint64_t n_bytes);

    enum plec_status (*stream_open)(struct plec_stream **out, struct plec_device *device,
                                    struct plec_error *err);
    void (*stream_close)(struct plec_stream *stream);
    void (*stream_set_name)(struct plec_stream *stream, const char *name);
    enum plec_status (*stream_sync)(struct plec_stream *stream, struct plec_error *err);
    enum plec_status (*stream_call)(struct plec_stream *stream, plec_stream_function *fn,
                                    void *user, struct plec_error *err);
    enum plec_status (*copy)(void *to, const void *from, uint64_t n_bytes,
                             struct plec_stream *stream, struct plec_error *err);
    enum plec_status (*fill)(void *to, uint8_t byte, uint64_t n_bytes, struct plec_stream *stream,
                             struct plec_error *err);

    enum plec_status (*event_open)(struct plec_event **out, struct plec_device *device,
                                   struct plec_error *err);
    void (*event_close)(struct plec_event *event);
    enum plec_status (*event_record)(struct plec_event *event, struct plec_stream *stream,
                                     struct plec_error *err);
    enum plec_status (*event_wait)(struct plec_stream *stream, struct plec_event *event,
                                   struct plec_error *err);
    bool (*event_done)(const struct plec_event *event);
    void (*event_sync)(struct plec_event *event);

    enum plec_status (*linear)(struct plec_stream *stream, const struct plec_linear_args *args,
                               struct plec_error *err);
    bool (*route_workspace)(uint64_t *n_bytes, const struct plec_device *device,
                            const struct plec_router *router, uint32_t n_tokens);
    bool (*routes)(const struct plec_device *device, const struct plec_router *router);
    enum plec_status (*route)(struct plec_stream *stream, const struct plec_route_args *args,
                              struct plec_error *err);
    enum plec_status (*arrival)(struct plec_arrival *out, const struct plec_device *device,
                                const struct plec_bank *bank, struct plec_error *err);
    enum plec_status (*arrive)(struct plec_stream *stream, const struct plec_arrive_args *args,
                               struct plec_error *err);
    bool (*experts_workspace)(uint64_t *n_bytes, const struct plec_device *device,
                              const struct plec_bank *bank, uint32_t n_tokens, uint32_t n_slots);
    enum plec_status (*experts)(struct plec_stream *stream, const struct plec_experts_args *args,
                                struct plec_error *err);
    enum plec_status (*norm)(struct plec_stream *stream, const struct plec_norm_args *args,
                             struct plec_error *err);
    enum plec_status (*sigmoid)(struct plec_stream *stream, float *x, uint64_t n,
                                struct plec_error *err);
    enum plec_status (*scale)(struct plec_stream *stream, float *x, uint64_t n, float factor,
                              struct plec_error *err);
    enum plec_status (*graph_begin)(struct plec_stream *stream, struct plec_error *err);
    enum plec_status (*graph_end)(struct plec_graph **out, struct plec_stream *stream,
                                  struct plec_error *err);
    enum plec_status (*graph_launch)(struct plec_graph *graph, struct plec_error *err);
    void (*graph_close)(struct plec_graph *graph);
    enum plec_status (*graph_refresh)(struct plec_stream *stream, const struct plec_bank *bank,
                                      struct plec_error *err);
    /* name [PLEC_KERNEL_NAME_MAX] holds what is no constant */
    const char *(*kernel_name)(const struct plec_device *device, uint16_t format, char *name);
    const char *(*operand_kernel)(const struct plec_device *device, const struct plec_bank *bank,
                                  enum plec_operand_id id, char *name);
};

/* Places the operands of an entry of a bank in one block. form_bytes [PLEC_N_MATRICES]: of matrices
 * in a form of the device's own; 0: the file's bytes. Statuses of plec_device_arrival. */
enum plec_status plec_arrival_place(struct plec_arrival *out, const struct plec_bank *bank,
                                    const uint64_t *form_bytes, struct plec_error *err);

extern const struct plec_backend plec_cpu_backend;
extern const struct plec_backend plec_cuda_backend; /* in programs linked with it */

#ifdef __cplusplus
}
#endif
#endif
