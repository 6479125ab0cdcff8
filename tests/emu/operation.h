/* operation.h: what streams do, and in which order. Work is queued and done one operation at a
 * time, when somebody waits: the schedule picks among those that stream order and events allow.
 * Each operation carries a vector clock over streams (entry 0: the host), by which the checker
 * knows what happened before it. */
#ifndef PLEC_TESTS_EMU_OPERATION_H
#define PLEC_TESTS_EMU_OPERATION_H

#include <cuda_runtime_api.h>
#include <deque>
#include <functional>
#include <string>
#include <vector>

struct CUstream_st;

namespace plec_emu {

using StreamClock = std::vector<uint32_t>; /* by stream number; what is missing is 0 */

struct Graph;
struct Capture;

/* How an operation is run. */
enum class Work {
    MARK,   /* an event, a fork, a join: nothing to do */
    DEVICE, /* copies, memsets */
    KERNEL,
    DEPENDENT, /* a kernel that may start before the one ahead has ended */
    HOST       /* a host function */
};

struct Operation {
    std::string name;
    CUstream_st *stream;
    uint32_t sequence; /* in its stream */
    Work kind;
    std::function<void()> work;
    std::vector<int> waits_for; /* operations */
    StreamClock knows;          /* itself included */
    StreamClock knows_early;    /* a kernel's knowledge before griddepcontrol.wait */
    int ahead = -1;             /* the kernel ahead of a dependent one */
    bool waited_first = false;  /* a dependent kernel let others start after it had waited itself */
    bool done = false, running = false;
};

enum { HOST = -1 };
extern std::deque<Operation> &operations;
extern int operation_running; /* HOST while host code runs */

/* Did operation `before` (or the host, when its clock was `host_stamp`) happen before what runs
 * now? early: as a dependent kernel may know before it waits for the kernel ahead. */
bool happened_before(int before, uint32_t host_stamp, bool early);
uint32_t host_stamp(void);

/* Queues work on a stream; the number of the operation. */
int enqueue(CUstream_st *stream, const std::string &name, Work kind, std::function<void()> work,
            std::vector<int> waits_for = {}, const StreamClock *also_knows = nullptr);
/* The same, or a node of the graph that the stream captures; a kernel failure that sticks. */
cudaError_t issue(cudaStream_t stream, const std::string &name, Work kind,
                  std::function<void()> work);

/* Runs one operation that may run; false: there is none. */
bool run_one(void);
/* Until it is done, with all that it waits for. */
cudaError_t run_until(int operation);
cudaError_t wait_for_stream(CUstream_st *stream);
cudaError_t wait_for_all(void);

/* Streams of a handle: null and cudaStreamLegacy, cudaStreamPerThread, or its own. */
CUstream_st *stream_of(cudaStream_t handle);
CUstream_st *stream_create(bool blocking);
void stream_retire(CUstream_st *stream);
void streams_reset(void);
const std::vector<CUstream_st *> &all_streams(void);

void learn(StreamClock *a, const StreamClock &b);
void host_learns(const StreamClock &clock);

/* The last error, and the one that every later call gives after a kernel failed. */
cudaError_t fail(cudaError_t error);
cudaError_t take_error(void);
cudaError_t peek_error(void);
cudaError_t sticking_error(void);
void stick_error(cudaError_t error);

} // namespace plec_emu

struct CUstream_st {
    int number = 0;
    bool blocking = true; /* ordered with the legacy stream */
    bool legacy = false;
    std::deque<int> queue;
    plec_emu::StreamClock knows;
    uint32_t n_operations = 0;
    int last = -1;
    plec_emu::Capture *capture = nullptr; /* what it records, as `branch` */
    int branch = 0;
};

#endif
