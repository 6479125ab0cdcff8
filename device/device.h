/* device.h: the one door to memory and arithmetic on a device. C17, no type of any GPU toolkit.
 *
 * An implementation (device/cpu, device/cuda) may assume: every pointer it is given was checked by
 * the host layer, ids are in range, sizes are those of the struct plec_layer they come from. It
 * must promise: calls that take a stream enqueue and return; work of one stream runs in order;
 * streams are independent but for events; a pointer argument struct is copied before return, what
 * it points at must live until the work is done. A failure inside enqueued work sticks to its
 * stream: later work of that stream is skipped and the next plec_stream_sync returns it, once. (On
 * CUDA a copy or fill that was enqueued before the failure happened may still run.)
 * Nothing here allocates after plec_*_open. All calls may come from any thread; calls on one stream
 * are ordered as they are made.
 */
#ifndef PLEC_DEVICE_DEVICE_H
#define PLEC_DEVICE_DEVICE_H

#include "device/layer.h"
#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_device;
struct plec_stream;
struct plec_event;
struct plec_graph;

enum plec_device_kind { PLEC_DEVICE_CPU, PLEC_DEVICE_CUDA };

/* Makes the CPU device act as one behind a link, for tests and measurements without a GPU: all its
 * copies share the link, whatever their streams. Zeroed members change nothing. Called from any
 * thread. */
struct plec_simulation {
    uint64_t copy_bytes_per_s;
    uint64_t copy_latency_ns; /* of every copy, beside its bytes */
    bool (*fail_copy)(void *user, const void *to, uint64_t n_bytes);
    /* true: it fails, PLEC_NO_DEVICE "CopyFailed" */
    bool (*fail_alloc)(void *user, uint64_t n_bytes); /* of device or pinned memory, likewise
                                                         PLEC_NO_MEMORY "NoMemory" */
    void *user;
    bool arrives; /* banks have a form of the device's own: the file's bytes, operands of an entry
                     side by side. An arrival may fail as a copy does */
};

/* Told when matrices of an experts launch begin and end their work, on the thread that runs it
 * (CPU) or enqueues it (a GPU). Called from any thread; must be quick. */
enum plec_device_work { PLEC_WORK_GATE_UP, PLEC_WORK_DOWN };
struct plec_device_probe {
    void (*mark)(void *user, enum plec_device_work work, bool ends); /* NULL: nobody */
    void *user;
};

struct plec_device_options {
    uint32_t n_threads;      /* CPU: threads a launch is split over; 0: the processors available */
    uint32_t queue_capacity; /* enqueued operations a stream holds before a call waits for room;
                                0: 256 */
    bool plain_c;            /* CPU: use the plain C kernels whatever the processor can do; CUDA:
                                the plain rung of every format */
    const char
        *rung; /* CUDA: the kernels to run experts with at most, by name: plain, mm_sync, ... a
                  format without them runs on the next lower ones that it has; or a baseline,
                  cublas_loop or cublas_grouped, which run every format, with weights rounded
                  to bf16. CPU: plain is plain_c. NULL, "auto": the fastest */
    const char *cublas;     /* CUDA: path of the library of those baselines, one without a slash
                               too; NULL: the usual names, where the loader looks */
    bool batch_invariant;   /* CUDA: a token's bits do not depend on how many rows its expert has:
                               kernels of one order of sums run all classes of rows of an operand,
                               faster ones of another order are left out */
    uint32_t vector_bits;   /* CPU: the widest vectors to use, 256 (AVX2) or 512 (AVX-512); 0: what
                               the processor has */
    uint64_t reserve_bytes; /* CUDA: device memory taken at open, which plec_device_alloc gives out
                               without asking the driver; 0: each alloc asks it */
    const struct plec_simulation *simulation; /* CPU: NULL: none; copied by open */
    struct plec_device_probe probe;
};

struct plec_device_info {
    enum plec_device_kind kind;
    char name[128]; /* "CPU, 2 threads, AVX-512" */
    uint32_t n_threads;
    uint64_t memory_bytes; /* in all; 0 when unknown */
    int32_t numa_node;     /* the node of the host it is attached to; -1: none, or unknown */
    bool needs_upload;     /* launches read device memory alone: weights are copied there first */
    uint32_t graph_banks, graph_entries; /* most banks, and entries of all of them, that graphs may
                                            read; 0: the device has no graphs */
};

/* The backend of a kind in this program: "CPU", "CUDA", "CUDA emulated on the CPU"; NULL when it
 * was not built in. */
const char *plec_device_backend_name(enum plec_device_kind kind);

/* Opens a device. PLEC_NO_DEVICE "DeviceNotBuilt" or "DeviceAbsent", and "NoCublas" with a rung
 * that wants it; PLEC_UNSUPPORTED "NoSuchRung", or "NotBatchInvariant" with a baseline;
 * PLEC_NO_MEMORY. options NULL: the defaults. Texts are views until it returns. */
PLEC_MUST_USE enum plec_status plec_device_open(struct plec_device **out,
                                                enum plec_device_kind kind,
                                                const struct plec_device_options *options,
                                                struct plec_error *err);
void plec_device_get_info(struct plec_device_info *out, const struct plec_device *device);
/* All streams, events and memory of the device must be closed before. NULL is nothing. */
void plec_device_close(struct plec_device *device);

/* Device memory, aligned to PLEC_ARRIVAL_ALIGNMENT, and pinned host memory, to 64 bytes.
 * PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_device_alloc(void **out, struct plec_device *device,
                                                 uint64_t n_bytes, struct plec_error *err);
void plec_device_free(struct plec_device *device, void *memory);
PLEC_MUST_USE enum plec_status plec_pinned_alloc(void **out, struct plec_device *device,
                                                 uint64_t n_bytes, struct plec_error *err);
void plec_pinned_free(struct plec_device *device, void *memory);
/* Pins whole pages of the caller's own memory, so that copies from them need no staging. Unpin with
 * the same arguments before the memory goes. PLEC_NO_MEMORY "PinRefused" with the system's reason;
 * then nothing is pinned. */
PLEC_MUST_USE enum plec_status plec_device_pin(struct plec_device *device, void *memory,
                                               uint64_t n_bytes, struct plec_error *err);
void plec_device_unpin(struct plec_device *device, void *memory, uint64_t n_bytes);

/* Streams. Close waits for what was enqueued. */
PLEC_MUST_USE enum plec_status plec_stream_open(struct plec_stream **out,
                                                struct plec_device *device, struct plec_error *err);
void plec_stream_close(struct plec_stream *stream);
/* Names a stream for whoever watches: the CPU's thread of it, a GPU's stream in a profiler. At most
 * 15 bytes are kept. Best before its first work. */
void plec_stream_set_name(struct plec_stream *stream, const char *name);
/* Waits until all enqueued before has run; returns the stream's first failure since the last sync.
 */
PLEC_MUST_USE enum plec_status plec_stream_sync(struct plec_stream *stream, struct plec_error *err);

/* Events. A record marks the work enqueued so far; a wait makes later work of a stream wait for the
 * latest record made before the wait was called; an event never recorded is complete. */
PLEC_MUST_USE enum plec_status plec_event_open(struct plec_event **out, struct plec_device *device,
                                               struct plec_error *err);
void plec_event_close(struct plec_event *event);
PLEC_MUST_USE enum plec_status
plec_event_record(struct plec_event *event, struct plec_stream *stream, struct plec_error *err);
PLEC_MUST_USE enum plec_status plec_event_wait(struct plec_stream *stream, struct plec_event *event,
                                               struct plec_error *err);
/* Whether all that the latest record marked has run. Never blocks. */
bool plec_event_done(const struct plec_event *event);
/* Blocks the calling thread until it has. */
void plec_event_sync(struct plec_event *event);

/* Copies between host and device memory in any direction; regions must not overlap. */
PLEC_MUST_USE enum plec_status plec_copy(void *to, const void *from, uint64_t n_bytes,
                                         struct plec_stream *stream, struct plec_error *err);
PLEC_MUST_USE enum plec_status plec_fill(void *to, uint8_t byte, uint64_t n_bytes,
                                         struct plec_stream *stream, struct plec_error *err);
/* Calls fn(user) on the stream's own thread, in order. fn must not call back into the device. A
 * status other than PLEC_OK fails the stream with the error it filled. */
PLEC_MUST_USE enum plec_status plec_stream_call(struct plec_stream *stream,
                                                enum plec_status (*fn)(void *user,
                                                                       struct plec_error *err),
                                                void *user, struct plec_error *err);

/* y = matrix . x (+ y when accumulate), a row of x and y a token, f32 accumulation. */
struct plec_linear_args {
    struct plec_matrix matrix; /* [out, in] */
    const float *x;            /* [n_tokens, in] f32, device */
    float *y;                  /* [n_tokens, out] f32, device */
    uint32_t n_tokens;
    bool accumulate;
};
PLEC_MUST_USE enum plec_status plec_launch_linear(struct plec_stream *stream,
                                                  const struct plec_linear_args *args,
                                                  struct plec_error *err);

/* Each token's experts and their weights by a router, as plec_reference_route gives them. A token
 * whose scores are no numbers is marked; its ids are 0 and its weights NaN; no other token is
 * touched by it. The router's matrix and arrays are read by the device. PLEC_UNSUPPORTED
 * "TooManyExperts" and "NoKernel" on CUDA: more than 1024 experts, or 64 a token. */
struct plec_route_args {
    const struct plec_router *router;
    uint32_t n_tokens;
    const float *x;    /* [n_tokens, input_dim] f32, device */
    int32_t *ids;      /* [n_tokens, top_k] i32, device, out: best first */
    float *weights;    /* [n_tokens, top_k] f32, device, out */
    uint8_t *unrouted; /* [n_tokens], device, out: 1 for a marked token, else 0 */
    void *workspace;   /* plec_route_workspace bytes, device */
};
bool plec_route_workspace(uint64_t *n_bytes, const struct plec_device *device,
                          const struct plec_router *router, uint32_t n_tokens);
PLEC_MUST_USE enum plec_status plec_launch_route(struct plec_stream *stream,
                                                 const struct plec_route_args *args,
                                                 struct plec_error *err);

/* Whether the device runs this router: what plec_launch_route would refuse is known before. */
bool plec_device_routes(const struct plec_device *device, const struct plec_router *router);

/* The form in which a device's launches read the entries of a bank. Where it is not the file's, an
 * entry is made from the file's bytes once, when it arrives on the device (plec_launch_arrive), in
 * one block of memory; a launch then finds it and changes nothing. Of the bank's shapes and formats
 * and of the device alone. */
struct plec_arrival {
    bool changes;     /* false: the file's own form; operands may lie anywhere, arrived or not */
    uint64_t n_bytes; /* of an entry that has arrived, a multiple of PLEC_ARRIVAL_ALIGNMENT */
    uint64_t values_at[PLEC_N_OPERANDS]; /* in it; UINT64_MAX: there are none */
    uint64_t scales_at[PLEC_N_MATRICES]; /* likewise: values in a form of the device's own hold
                                            their scales */
};
enum { PLEC_ARRIVAL_ALIGNMENT = 256 };
/* PLEC_MALFORMED "SizeOverflow"; statuses of plec_format_size. A bank without kernels has the
 * file's form: its launch says so by name. */
PLEC_MUST_USE enum plec_status plec_device_arrival(struct plec_arrival *out,
                                                   const struct plec_device *device,
                                                   const struct plec_bank *bank,
                                                   struct plec_error *err);
/* The entry whose block is at `block`. */
void plec_arrived_entry(struct plec_entry *out, const struct plec_arrival *arrival,
                        const uint8_t *block);

/* Makes entries of a bank from the file's bytes, in the stream's order. Weights mean the same bit
 * for bit, NaN scales and codes too. Can be captured. */
struct plec_arrive_args {
    const struct plec_bank *bank; /* shapes and formats; its entries are not read */
    uint32_t n;
    const struct plec_entry *from; /* [n] the file's bytes in device memory, at any alignment; host
                                      array, read when the launch is made */
    uint8_t *const *to; /* [n] blocks of plec_arrival.n_bytes in device memory, aligned to
                           PLEC_ARRIVAL_ALIGNMENT; likewise. What lies between operands is left as
                           it is */
};
PLEC_MUST_USE enum plec_status plec_launch_arrive(struct plec_stream *stream,
                                                  const struct plec_arrive_args *args,
                                                  struct plec_error *err);

/* A launch of experts whole, or cut where experts arrive one after another: BEGIN, then PARTs that
 * name every expert with pairs once, in any order, then FINISH, with one workspace and otherwise
 * equal arguments, make what ALL makes, bit for bit. An entry is read by the PART that names it
 * alone. A PART that names an expert twice or one without pairs fails its stream with
 * PLEC_BAD_INPUT "BadPart"; FINISH before all were named with "ExpertsLeftOut". */
enum plec_experts_phase {
    PLEC_EXPERTS_ALL,
    PLEC_EXPERTS_BEGIN,
    PLEC_EXPERTS_PART,
    PLEC_EXPERTS_FINISH
};

/* y = (y +) sum over slots of weight * expert(x), in slot order, f32. Weights are read once a step,
 * grouped by expert; each output depends on its own token alone, bit for bit. Entries are in the
 * form of plec_device_arrival: PLEC_BAD_INPUT "NotArrived" where that changes and the bank says
 * they have not arrived. The bank, its entries and its scales are host arrays, and what an entry
 * points at is read by the device. CUDA reads the arrays (of a PART: the named entries) when the
 * launch is made, the CPU when it runs. */
struct plec_experts_args {
    const struct plec_bank *bank;
    const int32_t *ids;       /* [n_tokens, n_slots] i32 in [0, n_entries), device; NULL: slot j is
                                 entry j for every token (shared and dense banks) */
    const float *weights;     /* [n_tokens, n_slots] f32, device; NULL: 1 */
    const float *token_scale; /* [n_tokens] f32 multiplied into every weight, device; or NULL */
    uint32_t n_tokens, n_slots;
    bool weight_on_input;
    bool accumulate;
    const float *x;  /* [n_tokens, input_dim] f32, device */
    float *y;        /* [n_tokens, output_dim] f32, device */
    void *workspace; /* plec_experts_workspace bytes, device; free to use until the work is done */
    enum plec_experts_phase phase;
    uint32_t n_part;
    const uint32_t *part; /* [n_part] experts, host; read when the work runs */
};
/* Workspace bytes for up to n_tokens x n_slots; false when that overflows 64 bits. */
bool plec_experts_workspace(uint64_t *n_bytes, const struct plec_device *device,
                            const struct plec_bank *bank, uint32_t n_tokens, uint32_t n_slots);
PLEC_MUST_USE enum plec_status plec_launch_experts(struct plec_stream *stream,
                                                   const struct plec_experts_args *args,
                                                   struct plec_error *err);

/* RMSNorm in place: x *= gain * rsqrt(mean(x^2) + eps), a row a token. */
struct plec_norm_args {
    float *x;          /* [n_tokens, width] f32, device */
    const float *gain; /* [width] f32, device */
    uint32_t n_tokens, width;
    double eps;
};
PLEC_MUST_USE enum plec_status plec_launch_norm(struct plec_stream *stream,
                                                const struct plec_norm_args *args,
                                                struct plec_error *err);

/* x[i] = sigmoid(x[i]) or x[i] *= factor, in place. */
PLEC_MUST_USE enum plec_status plec_launch_sigmoid(struct plec_stream *stream, float *x, uint64_t n,
                                                   struct plec_error *err);
PLEC_MUST_USE enum plec_status plec_launch_scale(struct plec_stream *stream, float *x, uint64_t n,
                                                 float factor, struct plec_error *err);

/* Graphs: launches of a stream captured once, and replayed with what lies in device memory then:
 * ids, weights, x, where a bank's entries are. Nothing of a routing is in a graph. Only launches
 * and fills are captured: no copy, no call, no event, no experts launch in parts.
 *
 * Begin: launches on the stream are captured instead of run, until end; waits for the stream first.
 * Entries of a bank whose launch is captured must be those of an earlier launch or of a refresh:
 * else the launch is refused, PLEC_BAD_INPUT "TableNotCurrent". PLEC_UNSUPPORTED "NoGraphs" on a
 * device, or with kernels, that cannot be captured. */
PLEC_MUST_USE enum plec_status plec_graph_begin(struct plec_stream *stream, struct plec_error *err);
/* Ends the capture, on the thread that began it. PLEC_NO_DEVICE "CudaFailed" when something in
 * between cannot be captured; then *out is NULL and the stream works as before. */
PLEC_MUST_USE enum plec_status plec_graph_end(struct plec_graph **out, struct plec_stream *stream,
                                              struct plec_error *err);
/* Runs what was captured, in the order of the stream it was captured on: faults of its kernels are
 * told by that stream. */
PLEC_MUST_USE enum plec_status plec_graph_launch(struct plec_graph *graph, struct plec_error *err);
/* Waits for the stream, which must be open, and frees the graph. NULL is nothing. */
void plec_graph_close(struct plec_graph *graph);
/* Makes a bank's entries, as they are now, the ones that launches and replays behind it read:
 * before a capture, and before a replay when entries moved. */
PLEC_MUST_USE enum plec_status plec_graph_refresh(struct plec_stream *stream,
                                                  const struct plec_bank *bank,
                                                  struct plec_error *err);

/* Which kernel a format runs with on this device: "avx512", "avx2", "plain_c"; NULL when there is
 * none. Where it depends on how many rows an expert has, all of them by class, S (up to 8 rows), M
 * (up to 64) and L: "S mm_bulk, M mm_sync, L mm_wg". Returned is a constant, or name
 * [PLEC_KERNEL_NAME_MAX]. */
enum { PLEC_KERNEL_NAME_MAX = 64 };
const char *plec_device_kernel_name(const struct plec_device *device, uint16_t format, char *name);

/* The kernel, likewise, that an experts launch runs operand `id` (PLEC_GATE, PLEC_UP, PLEC_DOWN) of
 * a bank with on this device; NULL: none, or the bank lacks it. */
const char *plec_device_operand_kernel(const struct plec_device *device,
                                       const struct plec_bank *bank, enum plec_operand_id id,
                                       char *name);
enum { PLEC_EXPERTS_KERNELS_MAX = 256 };
/* All of them in words, "gate q4_k mm_sync, up q4_k mm_sync, down q6_k plain", in out
 * [PLEC_EXPERTS_KERNELS_MAX]; "none" for an operand without a kernel, parentheses around kernels by
 * class. */
void plec_device_experts_kernels(char *out, const struct plec_device *device,
                                 const struct plec_bank *bank);

#ifdef __cplusplus
}
#endif
#endif
