#include "tests/emu/capture.h"
#include "tests/emu/memory.h"
#include "tests/emu/report.h"
#include "tests/emu/runtime.h"

#include <set>

namespace plec_emu {

void capture_node(CUstream_st *stream, const std::string &name, Work kind,
                  std::function<void()> work) {
    stream->capture->nodes.push_back(
        {stream->branch, NodeKind::WORK, name, kind, std::move(work), -1});
}

Capture *capture_under_way(int number) {
    for (CUstream_st *stream : all_streams())
        if (stream->capture && stream->capture->number == number) return stream->capture;
    return nullptr;
}

static bool concerns(const Capture &capture) {
    if (capture.mode == cudaStreamCaptureModeGlobal) return true;
    return capture.mode == cudaStreamCaptureModeThreadLocal &&
           capture.thread == std::this_thread::get_id();
}

bool capture_forbids(const char *call, bool whole_device) {
    bool forbidden = false;
    for (CUstream_st *stream : all_streams()) {
        if (!stream->capture) continue;
        if (!whole_device && !concerns(*stream->capture)) continue;
        stream->capture->broken = true;
        forbidden = true;
    }
    if (forbidden) report("capture", "%s while a stream is captured: it breaks the capture", call);
    return forbidden;
}

/* Branches whose work, so far, each branch has waited for; and those with work that the origin has
 * not. */
struct Joins {
    std::vector<std::set<int>> of_branch, of_event;
    std::set<int> open;
};

static void follow(Joins *joins, const Node &node, int origin) {
    std::set<int> &own = joins->of_branch[(size_t)node.branch];
    if (node.kind == NodeKind::RECORD) {
        joins->of_event[(size_t)node.event] = own;
        return;
    }
    if (node.kind == NodeKind::WAIT) {
        const std::set<int> &brought = joins->of_event[(size_t)node.event];
        own.insert(brought.begin(), brought.end());
        for (int branch : brought)
            if (node.branch == origin) joins->open.erase(branch);
    }
    if (node.branch != origin) joins->open.insert(node.branch);
    for (size_t other = 0; other < joins->of_branch.size(); other++)
        if ((int)other != node.branch) joins->of_branch[other].erase(node.branch);
}

/* Does a forked branch end without the origin's waiting for it? */
static bool has_open_branch(const Capture &capture, int origin) {
    Joins joins;
    joins.of_branch.resize((size_t)capture.n_branches);
    joins.of_event.resize((size_t)capture.n_events);
    for (int branch = 0; branch < capture.n_branches; branch++)
        joins.of_branch[(size_t)branch].insert(branch);
    for (const Node &node : capture.nodes)
        follow(&joins, node, origin);
    return !joins.open.empty();
}

static cudaError_t end_capture(cudaStream_t handle, cudaGraph_t *graph) {
    Capture *capture = handle->capture;
    *graph = nullptr;
    if (!capture) return fail(cudaErrorIllegalState);
    if (capture->mode != cudaStreamCaptureModeRelaxed &&
        capture->thread != std::this_thread::get_id()) {
        report("capture", "cudaStreamEndCapture on another thread than the one that began");
        return fail(cudaErrorStreamCaptureWrongThread);
    }
    bool open = has_open_branch(*capture, handle->branch);
    for (CUstream_st *stream : all_streams())
        if (stream->capture == capture) stream->capture = nullptr;
    if (open && !capture->broken)
        report("capture", "a forked stream was not joined before cudaStreamEndCapture");
    if (open || capture->broken) {
        cudaError_t error =
            capture->broken ? cudaErrorStreamCaptureInvalidated : cudaErrorStreamCaptureUnjoined;
        delete (CUgraph_st *)capture;
        return fail(error);
    }
    count_live("graph(s)", 1);
    *graph = (CUgraph_st *)capture;
    return cudaSuccess;
}

/* One node of a replay; `events`: the operations that recorded them. */
static void replay(const Node &node, CUstream_st *branch, std::vector<int> *events) {
    if (node.kind == NodeKind::WORK) {
        enqueue(branch, node.name, node.work_kind, node.work);
    } else if (node.kind == NodeKind::RECORD) {
        (*events)[(size_t)node.event] = enqueue(branch, node.name, Work::MARK, nullptr);
    } else {
        int recorded = (*events)[(size_t)node.event];
        StreamClock knows = operations[(size_t)recorded].knows;
        enqueue(branch, node.name, Work::MARK, nullptr, {recorded}, &knows);
    }
}

static void launch_graph(CUgraphExec_st *exec, CUstream_st *stream) {
    int start = enqueue(stream, "graph begins", Work::MARK, nullptr);
    StreamClock knows = operations[(size_t)start].knows;
    std::vector<int> events((size_t)exec->graph.n_events, -1);
    std::set<int> begun;
    for (const Node &node : exec->graph.nodes) {
        CUstream_st *branch = exec->branches[(size_t)node.branch];
        if (begun.insert(node.branch).second)
            enqueue(branch, "graph forks", Work::MARK, nullptr, {start}, &knows);
        replay(node, branch, &events);
    }
    for (CUstream_st *branch : exec->branches) {
        if (branch->last < 0) continue;
        StreamClock joined = branch->knows;
        enqueue(stream, "graph joins", Work::MARK, nullptr, {branch->last}, &joined);
    }
}

} // namespace plec_emu

using namespace plec_emu;

cudaError_t cudaStreamBeginCapture(cudaStream_t handle, enum cudaStreamCaptureMode mode) {
    PLEC_EMU_CALL;
    static int n_captures;
    CUstream_st *stream = stream_of(handle);
    if (stream->legacy) return fail(cudaErrorStreamCaptureUnsupported);
    if (stream->capture) return fail(cudaErrorIllegalState);
    stream->capture = new CUgraph_st;
    stream->capture->number = ++n_captures;
    stream->capture->mode = mode;
    stream->capture->thread = std::this_thread::get_id();
    stream->branch = stream->capture->n_branches++;
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t *graph) {
    PLEC_EMU_CALL;
    return end_capture(stream_of(handle), graph);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t handle, enum cudaStreamCaptureStatus *status) {
    PLEC_EMU_CALL;
    const Capture *capture = stream_of(handle)->capture;
    *status = !capture          ? cudaStreamCaptureStatusNone
              : capture->broken ? cudaStreamCaptureStatusInvalidated
                                : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long) {
    PLEC_EMU_CALL;
    *exec = new CUgraphExec_st;
    (*exec)->graph = *graph;
    for (int i = 0; i < graph->n_branches; i++)
        (*exec)->branches.push_back(stream_create(false));
    count_live("graph(s) instantiated", 1);
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    PLEC_EMU_CALL;
    count_live("graph(s)", -1);
    delete graph;
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec) {
    PLEC_EMU_CALL;
    for (CUstream_st *branch : exec->branches) {
        run_until(branch->last);
        stream_retire(branch);
    }
    count_live("graph(s) instantiated", -1);
    delete exec;
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t handle) {
    PLEC_EMU_CALL;
    CUstream_st *stream = stream_of(handle);
    if (sticking_error()) return fail(sticking_error());
    if (stream->capture) return fail(cudaErrorStreamCaptureUnsupported);
    launch_graph(exec, stream);
    return cudaSuccess;
}
