#include "tests/emu/operation.h"
#include "tests/emu/capture.h"
#include "tests/emu/memory.h"
#include "tests/emu/report.h"
#include "tests/emu/runtime.h"
#include "tests/emu/settings.h"

#include <algorithm>

namespace plec_emu {

std::deque<Operation> &operations = *new std::deque<Operation>;
int operation_running = HOST;

static std::vector<CUstream_st *> &streams = *new std::vector<CUstream_st *>;
static std::vector<CUstream_st *> &retired = *new std::vector<CUstream_st *>;
static CUstream_st *legacy, *per_thread;
static int n_streams = 1; /* number 0 is the host */
static StreamClock &host_knows = *new StreamClock(1, 1u);
static cudaError_t last_error, sticking;

/* ---- errors ---------------------------------------------------------------------------------- */

cudaError_t fail(cudaError_t error) {
    if (error != cudaSuccess) last_error = error;
    return error;
}

cudaError_t take_error(void) {
    cudaError_t error = last_error;
    last_error = sticking;
    return error;
}

cudaError_t peek_error(void) {
    return last_error;
}
cudaError_t sticking_error(void) {
    return sticking;
}

void stick_error(cudaError_t error) {
    sticking = error;
    fail(error);
}

/* ---- clocks ---------------------------------------------------------------------------------- */

static uint32_t entry(const StreamClock &clock, int stream) {
    return (size_t)stream < clock.size() ? clock[(size_t)stream] : 0;
}

void learn(StreamClock *a, const StreamClock &b) {
    if (a->size() < b.size()) a->resize(b.size());
    for (size_t i = 0; i < b.size(); i++)
        (*a)[i] = std::max((*a)[i], b[i]);
}

void host_learns(const StreamClock &clock) {
    learn(&host_knows, clock);
}
uint32_t host_stamp(void) {
    return host_knows[0];
}

bool happened_before(int before, uint32_t stamp, bool early) {
    if (before == operation_running) return true;
    const StreamClock *now = &host_knows;
    if (operation_running != HOST) {
        const Operation &present = operations[(size_t)operation_running];
        now = early ? &present.knows_early : &present.knows;
    }
    if (before == HOST) return entry(*now, 0) >= stamp;
    const Operation &past = operations[(size_t)before];
    return entry(*now, past.stream->number) >= past.sequence;
}

/* ---- streams --------------------------------------------------------------------------------- */

const std::vector<CUstream_st *> &all_streams(void) {
    return streams;
}

CUstream_st *stream_create(bool blocking) {
    CUstream_st *stream = new CUstream_st;
    stream->number = n_streams++;
    stream->blocking = blocking;
    streams.push_back(stream);
    return stream;
}

CUstream_st *stream_of(cudaStream_t handle) {
    if (!legacy) {
        legacy = stream_create(true);
        legacy->legacy = true;
    }
    if (handle == cudaStreamPerThread) {
        if (!per_thread) per_thread = stream_create(true);
        return per_thread;
    }
    return handle == nullptr || handle == cudaStreamLegacy ? legacy : handle;
}

/* Operations go on naming it, so it is kept. */
void stream_retire(CUstream_st *stream) {
    streams.erase(std::find(streams.begin(), streams.end(), stream));
    retired.push_back(stream);
}

void streams_reset(void) {
    for (CUstream_st *stream : streams) {
        stream->queue.clear();
        stream->capture = nullptr;
    }
    retired.insert(retired.end(), streams.begin(), streams.end());
    streams.clear();
    legacy = per_thread = nullptr;
    sticking = last_error = cudaSuccess;
}

/* ---- queueing -------------------------------------------------------------------------------- */

/* The legacy stream waits for all blocking ones, and they for it. */
static void order_with_legacy(CUstream_st *stream, std::vector<int> *waits_for) {
    if (!stream->blocking) return;
    CUstream_st *zero = stream_of(nullptr);
    for (CUstream_st *other : streams) {
        if (other == stream || !other->blocking || other->last < 0) continue;
        if (!stream->legacy && other != zero) continue;
        waits_for->push_back(other->last);
        learn(&stream->knows, other->knows);
    }
}

/* What a dependent kernel knows before it waits: what the kernel ahead knew, not what it does. */
static StreamClock early_knowledge(const CUstream_st *stream, Work kind) {
    if (kind != Work::KERNEL && kind != Work::DEPENDENT) return {};
    const Operation *ahead = stream->last < 0 ? nullptr : &operations[(size_t)stream->last];
    bool behind_kernel = ahead && (ahead->kind == Work::KERNEL || ahead->kind == Work::DEPENDENT);
    if (kind == Work::KERNEL || !behind_kernel) return stream->knows;
    StreamClock early = ahead->knows_early;
    learn(&early, host_knows);
    return early;
}

int enqueue(CUstream_st *stream, const std::string &name, Work kind, std::function<void()> work,
            std::vector<int> waits_for, const StreamClock *also_knows) {
    int number = (int)operations.size();
    order_with_legacy(stream, &waits_for);
    learn(&stream->knows, host_knows);
    if (also_knows) learn(&stream->knows, *also_knows);
    StreamClock early = early_knowledge(stream, kind);
    size_t own = (size_t)stream->number;
    if (stream->knows.size() <= own) stream->knows.resize(own + 1);
    stream->knows[own] = ++stream->n_operations;
    int ahead = kind == Work::DEPENDENT ? stream->last : -1;
    operations.push_back({name, stream, stream->n_operations, kind, std::move(work),
                          std::move(waits_for), stream->knows, std::move(early), ahead});
    stream->queue.push_back(number);
    stream->last = number;
    host_knows[0]++;
    if (settings.eager) run_until(number);
    while (by_chance() && random_below(4) == 0 && run_one()) {
    }
    return number;
}

cudaError_t issue(cudaStream_t handle, const std::string &name, Work kind,
                  std::function<void()> work) {
    CUstream_st *stream = stream_of(handle);
    if (sticking) return fail(sticking);
    if (stream->capture) {
        capture_node(stream, name, kind, std::move(work));
        return cudaSuccess;
    }
    if (stream->legacy && capture_forbids(name.c_str()))
        return fail(cudaErrorStreamCaptureImplicit);
    enqueue(stream, name, kind, std::move(work));
    return cudaSuccess;
}

/* ---- running --------------------------------------------------------------------------------- */

static bool may_run(const CUstream_st *stream) {
    if (stream->queue.empty()) return false;
    const Operation &front = operations[(size_t)stream->queue.front()];
    if (front.running) return false;
    for (int other : front.waits_for)
        if (!operations[(size_t)other].done) return false;
    return true;
}

/* Behind a dependent kernel that waited before it let others start, all that was ahead of that one
 * has ended, too. */
static void learn_early(Operation *operation) {
    if (operation->ahead < 0) return;
    const Operation &ahead = operations[(size_t)operation->ahead];
    if (ahead.kind != Work::DEPENDENT) return;
    learn(&operation->knows_early, ahead.knows_early);
    if (!ahead.waited_first) return;
    StreamClock before = ahead.knows;
    before[(size_t)ahead.stream->number] = ahead.sequence - 1;
    learn(&operation->knows_early, before);
}

static void run_operation(int number) {
    Operation &operation = operations[(size_t)number];
    learn_early(&operation);
    CUstream_st *stream = operation.stream;
    int before = operation_running;
    operation.running = true;
    if (operation.work && operation.kind == Work::HOST) {
        run_host_function(number, operation.work);
    } else if (operation.work) {
        operation_running = number;
        DeviceWindow window;
        operation.work();
        operation_running = before;
    }
    operation.work = nullptr;
    operation.running = false;
    operation.done = true;
    if (!stream->queue.empty()) stream->queue.pop_front(); /* empty after a reset */
    runtime_changed();
}

bool run_one(void) {
    std::vector<int> able;
    for (CUstream_st *stream : streams)
        if (may_run(stream)) able.push_back(stream->queue.front());
    if (able.empty()) return false;
    int chosen;
    if (settings.schedule == PLEC_EMU_FIFO)
        chosen = *std::min_element(able.begin(), able.end());
    else if (settings.schedule == PLEC_EMU_LIFO)
        chosen = *std::max_element(able.begin(), able.end());
    else
        chosen = able[random_below(able.size())];
    run_operation(chosen);
    return true;
}

static bool another_thread_runs(void) {
    for (const CUstream_st *stream : streams)
        if (!stream->queue.empty() && operations[(size_t)stream->queue.front()].running)
            return true;
    return false;
}

cudaError_t run_until(int number) {
    while (number >= 0 && !operations[(size_t)number].done) {
        if (run_one()) continue;
        if (!another_thread_runs()) {
            report("stream-deadlock", "no queued operation can run");
            return cudaErrorUnknown;
        }
        runtime_wait_for_change();
    }
    return sticking;
}

cudaError_t wait_for_stream(CUstream_st *stream) {
    cudaError_t error = run_until(stream->last);
    host_learns(stream->knows);
    return fail(error);
}

cudaError_t wait_for_all(void) {
    for (;;) {
        if (run_one()) continue;
        if (!another_thread_runs()) break;
        runtime_wait_for_change();
    }
    for (CUstream_st *stream : streams)
        host_learns(stream->knows);
    return fail(sticking);
}

} // namespace plec_emu
