/* capture.h: graphs. A stream that is captured records its calls; a launch replays them on streams
 * of the graph's own, one a branch. Calls that would break a capture on a GPU are reported here. */
#ifndef PLEC_TESTS_EMU_CAPTURE_H
#define PLEC_TESTS_EMU_CAPTURE_H

#include "tests/emu/operation.h"

#include <thread>

namespace plec_emu {

enum class NodeKind { WORK, RECORD, WAIT };

struct Node {
    int branch;
    NodeKind kind;
    std::string name;
    Work work_kind;
    std::function<void()> work;
    int event; /* of RECORD and WAIT */
};

struct Capture {
    int number = 0; /* from 1, as events remember it */
    std::vector<Node> nodes;
    int n_branches = 0, n_events = 0;
    cudaStreamCaptureMode mode;
    std::thread::id thread;
    bool broken = false;
};

void capture_node(CUstream_st *stream, const std::string &name, Work kind,
                  std::function<void()> work);

/* The capture of this number, while it lasts; null: it has ended. */
Capture *capture_under_way(int number);

/* True, reported and the capture broken, when `call` may not be made while a stream is captured:
 * by any thread in global mode, by the thread that began in thread-local mode. One that waits for
 * the whole device: by nobody in any mode. */
bool capture_forbids(const char *call, bool whole_device = false);

} // namespace plec_emu

struct CUevent_st {
    int operation = -1;
    plec_emu::StreamClock knows;
    int capture = 0; /* the number of the one it was recorded in, as its `captured`; 0: none */
    int captured = -1;
};

struct CUgraph_st : plec_emu::Capture {};

struct CUgraphExec_st {
    plec_emu::Capture graph;
    std::vector<CUstream_st *> branches;
};

#endif
