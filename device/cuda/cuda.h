/* cuda.h: the structs of the CUDA backend's host side, and what its files call of each other.
 *
 * The host side is C against the CUDA runtime API. Every call of the runtime that can fail is
 * checked where it is made; a launch's own status is what its launch function returns, so that no
 * failure is told to the next call. What fails while it runs comes with the next sync of the
 * stream, with the kernel launched last and its shape.
 */
#ifndef PLEC_DEVICE_CUDA_CUDA_H
#define PLEC_DEVICE_CUDA_CUDA_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/backend.h"
#include "device/cuda/kernels.h"
#include "device/cuda/pool.h"
#include "device/cuda/table.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PLEC_CUDA_TABLES_MAX = 512,       /* banks whose device tables are kept */
    PLEC_CUDA_TABLE_ROWS_MAX = 32768, /* of all tables together */
    PLEC_CUDA_CALLS_DEFAULT = 256,    /* calls of a stream that may be under way */
    PLEC_CUDA_CALLS_MAX = 1 << 20,
    PLEC_CUDA_BLOCKS_PER_SM = 8, /* worth launching */
    PLEC_CUDA_LEAST_ARCH = 80,
    PLEC_CUDA_CHAINS_ARCH = 90, /* from here on kernels may start before the one ahead has ended */
    PLEC_CUDA_WHAT_BYTES = 120,
    PLEC_CUDA_WHATS = 32 /* launches that messages can name */
};

/* What every name of an emulated device says. */
#ifdef PLEC_CUDA_EMULATED
#define PLEC_CUDA_EMULATED_TEXT " emulated on the CPU"
#else
#define PLEC_CUDA_EMULATED_TEXT ""
#endif

struct plec_cuda_stream;
struct plec_cuda_library; /* library.h */

/* The device table of one bank: where its rows are, and what is written there, or will be when the
 * streams get to it. A bank is known by its entries; what another bank left under the same address
 * is found out by comparison. */
struct plec_cuda_table {
    const struct plec_entry *key;
    uint32_t first_row, n_rows;      /* in the device's table memory and shadow */
    struct plec_cuda_stream *stream; /* that wrote or read it last; NULL: none still open */
    bool captured;                   /* a graph reads it: it stays where it is */
};

struct plec_cuda_device {
    struct plec_device base;
    int number;
    uint32_t arch;       /* 90: of the device */
    uint32_t image_arch; /* of what was loaded for it, which may be earlier: kernels are chosen and
                            launched by this one */
    int32_t most_rung;   /* lower where slow kernels were asked for; _MM_FMA at most when flushes */
    struct plec_cuda_library *library; /* where its rungs were asked for, else NULL */
    bool flushes;                      /* tensor cores take subnormal operands for 0 */
    bool lacks_wgmma;     /* an sm_90 whose image is not of sm_90a, or whose wgmma takes them so */
    bool batch_invariant; /* of each operand kernels of one order of sums alone */
    uint32_t n_multiprocessors, n_calls;
    uint32_t shared_bytes; /* of a multiprocessor */
    uint64_t memory_bytes;
    int32_t numa_node;
    char name[96];
    struct plec_device_probe probe; /* told on the threads that enqueue */
    atomic_uint n_open;             /* streams open */
    pthread_mutex_t
        captures;          /* recursive, taken before all others: the thread that captures a graph
                              has it, and who waits for the whole device, which breaks a capture */
    pthread_mutex_t mutex; /* over the tables and the pool */
    uint8_t *reserved;     /* [pool.n_bytes] device; NULL: nothing */
    struct plec_cuda_pool pool;
    struct plec_cuda_entry *rows;   /* [PLEC_CUDA_TABLE_ROWS_MAX] device */
    struct plec_cuda_entry *shadow; /* [PLEC_CUDA_TABLE_ROWS_MAX] host: what rows hold */
    struct plec_cuda_table tables[PLEC_CUDA_TABLES_MAX];
    uint32_t n_tables, n_rows;
    cudaEvent_t order; /* between two streams that use one table */
};

/* What a launch was of, for messages: "experts: 8 of 64 -> 32 -> 64, 3 tokens of 2 slots". */
struct plec_cuda_what {
    uint32_t launch;
    char text[PLEC_CUDA_WHAT_BYTES];
};

struct plec_cuda_call {
    struct plec_cuda_stream *stream;
    plec_stream_function *fn;
    void *user;
};

struct plec_cuda_stream {
    struct plec_stream base;
    struct plec_cuda_device *device;
    cudaStream_t handle;
    struct plec_cuda_fault *fault;      /* [1] device: what kernels found */
    struct plec_cuda_fault *fault_host; /* [1] pinned: the last copy of it */
    pthread_mutex_t mutex;              /* over all below; held while a call enqueues */
    bool may_fault;                     /* kernels that can were enqueued since the last copy */
    bool capturing;                     /* into a graph; changes under the device's mutex as well */
    uint32_t n_launches;                /* ever; launch k is k modulo 2^32 */
    struct plec_cuda_what whats[PLEC_CUDA_WHATS]; /* launch k at k % PLEC_CUDA_WHATS */
    struct plec_cuda_call *calls;                 /* [device->n_calls], call k at k % n_calls */
    uint64_t n_called;                            /* ever enqueued */
    _Atomic uint64_t n_returned;
    pthread_mutex_t error_mutex; /* over failed and error: taken by the thread that runs calls */
    bool failed;
    struct plec_error error;
};

struct plec_cuda_event {
    struct plec_event base;
    struct plec_cuda_device *device;
    cudaEvent_t handle;
};

/* error.c ----------------------------------------------------------------------------------------
 */

/* PLEC_OK for cudaSuccess; else fills *err: PLEC_NO_MEMORY "NoMemory", PLEC_NO_DEVICE "CudaFailed",
 * with what was tried and the runtime's name and words for the failure. */
PLEC_MUST_USE enum plec_status plec_cuda_check(cudaError_t status, struct plec_error *err,
                                               const char *format, ...) PLEC_PRINTF(3, 4);
/* What a device-side fault means. */
enum plec_status plec_cuda_fault_status(const struct plec_cuda_fault *fault, const char *what,
                                        struct plec_error *err);

/* Makes the device the calling thread's. */
PLEC_MUST_USE enum plec_status plec_cuda_enter(const struct plec_cuda_device *device,
                                               struct plec_error *err);

/* memory.c ---------------------------------------------------------------------------------------
 */
enum plec_status plec_cuda_device_alloc(void **out, struct plec_device *device, uint64_t n_bytes,
                                        struct plec_error *err);
void plec_cuda_device_free(struct plec_device *device, void *memory);
enum plec_status plec_cuda_pinned_alloc(void **out, struct plec_device *device, uint64_t n_bytes,
                                        struct plec_error *err);
void plec_cuda_pinned_free(struct plec_device *device, void *memory);
enum plec_status plec_cuda_pin(struct plec_device *device, void *memory, uint64_t n_bytes,
                               struct plec_error *err);
void plec_cuda_unpin(struct plec_device *device, void *memory, uint64_t n_bytes);

/* stream.c, event.c ------------------------------------------------------------------------------
 */
enum plec_status plec_cuda_stream_open(struct plec_stream **out, struct plec_device *device,
                                       struct plec_error *err);
void plec_cuda_stream_close(struct plec_stream *stream);
void plec_cuda_stream_set_name(struct plec_stream *stream, const char *name);
enum plec_status plec_cuda_stream_sync(struct plec_stream *stream, struct plec_error *err);
enum plec_status plec_cuda_stream_call(struct plec_stream *stream, plec_stream_function *fn,
                                       void *user, struct plec_error *err);
enum plec_status plec_cuda_copy(void *to, const void *from, uint64_t n_bytes,
                                struct plec_stream *stream, struct plec_error *err);
enum plec_status plec_cuda_fill(void *to, uint8_t byte, uint64_t n_bytes,
                                struct plec_stream *stream, struct plec_error *err);
/* Whether work is skipped: a call of the stream has failed since the last sync. */
bool plec_cuda_stream_failed(struct plec_cuda_stream *stream);

enum plec_status plec_cuda_event_open(struct plec_event **out, struct plec_device *device,
                                      struct plec_error *err);
void plec_cuda_event_close(struct plec_event *event);
enum plec_status plec_cuda_event_record(struct plec_event *event, struct plec_stream *stream,
                                        struct plec_error *err);
enum plec_status plec_cuda_event_wait(struct plec_stream *stream, struct plec_event *event,
                                      struct plec_error *err);
bool plec_cuda_event_done(const struct plec_event *event);
void plec_cuda_event_sync(struct plec_event *event);

/* Begins a launch: takes the stream's mutex unless the work is skipped; notes what is launched, for
 * messages. Between begin and end the caller enqueues kernels and checks each. */
struct plec_cuda_launch {
    struct plec_cuda_stream *stream;
    struct plec_error *err;
    enum plec_status status; /* of the first launch that was refused */
    uint32_t number;         /* of the launch on its stream */
    bool skip;
};
struct plec_cuda_launch plec_cuda_launch_begin(struct plec_stream *stream, struct plec_error *err,
                                               const char *format, ...) PLEC_PRINTF(3, 4);
/* Takes the result of one launch function; false when it, or one before it, was refused. */
bool plec_cuda_launched(struct plec_cuda_launch *launch, int status, const char *kernel);
enum plec_status plec_cuda_launch_end(struct plec_cuda_launch *launch);

/* entries.c --------------------------------------------------------------------------------------
 */
/* The device table of a bank, its rows as the bank's entries are now: all of them, or the n_part
 * that `part` names (the rest is left as it was). Part of a launch; NULL when that failed: then
 * launch->status says how. PLEC_NO_MEMORY "TablesFull"; while a graph is captured PLEC_BAD_INPUT
 * "TableNotCurrent". */
const struct plec_cuda_entry *plec_cuda_entries_take(struct plec_cuda_launch *launch,
                                                     const struct plec_bank *bank,
                                                     const uint32_t *part, uint32_t n_part);
/* Forgets a stream that closes. */
void plec_cuda_entries_leave(struct plec_cuda_stream *stream);

/* graph.c ----------------------------------------------------------------------------------------
 */
enum plec_status plec_cuda_graph_begin(struct plec_stream *stream, struct plec_error *err);
enum plec_status plec_cuda_graph_end(struct plec_graph **out, struct plec_stream *stream,
                                     struct plec_error *err);
enum plec_status plec_cuda_graph_launch(struct plec_graph *graph, struct plec_error *err);
void plec_cuda_graph_close(struct plec_graph *graph);
enum plec_status plec_cuda_graph_refresh(struct plec_stream *stream, const struct plec_bank *bank,
                                         struct plec_error *err);

/* arrive.c ---------------------------------------------------------------------------------------
 */
enum plec_status plec_cuda_arrival(struct plec_arrival *out, const struct plec_device *device,
                                   const struct plec_bank *bank, struct plec_error *err);
enum plec_status plec_cuda_arrive(struct plec_stream *stream, const struct plec_arrive_args *args,
                                  struct plec_error *err);
/* The form in which a kernel reads weights; NULL: the file's. */
const struct plec_cuda_form *plec_cuda_gemm_form(const struct plec_cuda_gemm *gemm);

/* launches.c, routes.c, experts.c
 * --------------------------------------------------------------------------
 */
enum plec_status plec_cuda_linear(struct plec_stream *stream, const struct plec_linear_args *args,
                                  struct plec_error *err);
enum plec_status plec_cuda_norm(struct plec_stream *stream, const struct plec_norm_args *args,
                                struct plec_error *err);
enum plec_status plec_cuda_sigmoid(struct plec_stream *stream, float *x, uint64_t n,
                                   struct plec_error *err);
enum plec_status plec_cuda_scale(struct plec_stream *stream, float *x, uint64_t n, float factor,
                                 struct plec_error *err);
bool plec_cuda_routes(const struct plec_device *device, const struct plec_router *router);
bool plec_cuda_route_workspace(uint64_t *n_bytes, const struct plec_device *device,
                               const struct plec_router *router, uint32_t n_tokens);
enum plec_status plec_cuda_route(struct plec_stream *stream, const struct plec_route_args *args,
                                 struct plec_error *err);
bool plec_cuda_experts_workspace(uint64_t *n_bytes, const struct plec_device *device,
                                 const struct plec_bank *bank, uint32_t n_tokens, uint32_t n_slots);
enum plec_status plec_cuda_experts(struct plec_stream *stream, const struct plec_experts_args *args,
                                   struct plec_error *err);

/* table.c ----------------------------------------------------------------------------------------
 */
/* What is asked of the launch table for a device. */
struct plec_cuda_ask plec_cuda_ask_for(const struct plec_cuda_device *device, uint16_t format);
const char *plec_cuda_operand_kernel(const struct plec_device *device, const struct plec_bank *bank,
                                     enum plec_operand_id id, char *name);
const char *plec_cuda_kernel_name(const struct plec_device *device, uint16_t format, char *name);

#ifdef __cplusplus
}
#endif
#endif
