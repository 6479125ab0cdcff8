/* state.h: the threads, warps and blocks of the grid that runs. One grid runs at a time, in one
 * host thread, under the lock of the runtime (runtime.h). */
#ifndef PLEC_TESTS_EMU_STATE_H
#define PLEC_TESTS_EMU_STATE_H

#include "tests/emu/clock.h"
#include "tests/emu/fiber.h"
#include "tests/emu/report.h"

#include <cuda_runtime_api.h>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>
#include <vector_types.h>

namespace plec_emu {

struct Block;
struct Warp;

/* A cp.async that was issued and not waited for. */
struct PendingCopy {
    unsigned to;
    const char *from;
    int n_bytes, n_there; /* the rest is zeroed */
    Place place;
};

enum class Run : uint8_t { READY, WAITING, DONE };

/* Where a thread waits, or spins. */
struct Waiting {
    const char *what = nullptr, *file = nullptr;
    int line = 0;
    unsigned id = 0; /* mask of lanes, barrier, address: what tells it from others there */
};

struct Thread : Fiber {
    Block *block = nullptr;
    Warp *warp = nullptr;
    int index = 0, lane = 0; /* in the block, in the warp */
    uint3 position = {};     /* threadIdx */
    Run run = Run::DONE;
    bool started = false;
    Waiting waiting;
    void *argument = nullptr; /* of the collective it waits in */
    uint64_t priority = 0;    /* under the schedule pct */

    std::vector<PendingCopy> copies;
    std::vector<int> copy_groups; /* committed: copies in each */
    int n_open_copies = 0;        /* issued since the last commit */

    /* Clocks of the checker, see clock.h. */
    Clock *knows = nullptr; /* of the other threads of the block */
    Clock *knew_at_fence = nullptr;
    uint32_t now = 0;
    uint32_t fenced = 0;       /* its own clock at its last fence between blocks */
    uint32_t proxy_fenced = 0; /* at its last fence towards the asynchronous proxy */
    uint32_t id = 0;           /* block * 1024 + index */
    bool grid_waited = false;  /* griddepcontrol.wait */

    unsigned n_wgmma = 0; /* issued */
    bool wgmma_fenced = false;
    std::vector<unsigned> wgmma_groups;              /* n_wgmma at each commit */
    std::unordered_map<uint64_t, uint32_t> n_visits; /* statistics: times at each place */
};

/* A collective that some lanes have reached. */
struct Collective {
    unsigned mask, arrived;
    const char *what, *file;
    int line;
    void (*complete)(void **arguments, unsigned mask);
    bool aligned, orders_memory;
};

struct Warp {
    Block *block = nullptr;
    int first = 0; /* thread of lane 0 */
    unsigned lanes = 0, exited = 0;
    Collective pending[32];
    int n_pending = 0;

    Thread *thread(int lane) const;
};

/* One of the 16 barriers of a block. */
struct Barrier {
    int n_arrived = 0, n_expected = 0;
    int n_true = 0;
    bool all = true, any = false;
    int result = 0;
    Waiting at; /* of the first to arrive */
    std::vector<Thread *> threads;
    Clock *released = nullptr;
};

struct Mbarrier {
    bool initialised = false;
    bool fenced = false; /* made known to the asynchronous proxy */
    Thread *initialiser = nullptr;
    Clock *arriving = nullptr, *completed = nullptr; /* this phase, the last */
};

struct MbarrierWait {
    Thread *thread;
    unsigned address, parity;
};

/* A bulk copy under way: done when the schedule says so. */
struct BulkCopy {
    Thread *thread;
    unsigned to, n_bytes, barrier;
    std::function<void(char *)> fill;
    Place place;
    uint32_t issued_at; /* the thread's clock */
};

/* cp.async.mbarrier.arrive: copies of one thread that land together, and arrive. */
struct AsyncArrival {
    Thread *thread;
    unsigned barrier;
    std::vector<PendingCopy> copies;
    Place place;
    uint32_t issued_at; /* the thread's clock */
};

/* A wgmma that the 128 threads of a warpgroup issue one by one. */
struct Wgmma {
    int n, kind, scale;
    uint64_t a, b; /* descriptors; a is unused when the fragment is in registers */
    bool from_registers;
    float *d[128];                /* of each thread: n / 2 accumulators */
    std::vector<float> held[128]; /* their values, while NaN stands in their place */
    unsigned fragment[128][4];
    const unsigned *registers[128]; /* where the fragments came from: unchanged until it is done */
    int n_issued = 0;
    Place place;
};

struct Warpgroup {
    std::deque<Wgmma> issued;
    unsigned n_done = 0; /* number of issued.front() */
    std::vector<Thread *> waiting;
};

/* What an atomic or acquiring load of one thread learned of another block's threads. */
struct Acquired {
    unsigned from; /* block */
    Clock *clock;
    int thread;
    uint32_t at, fenced_at; /* that thread's clock; 0: not fenced yet */
};

/* griddepcontrol.wait by a thread, and its clock then. */
struct GridWait {
    int thread;
    uint32_t at;
};

struct Block {
    unsigned index = 0;
    uint3 position = {}; /* blockIdx */
    int slot = 0;        /* of the shared memory arena */
    char *shared = nullptr;
    int n_threads = 0, n_live = 0;
    std::vector<Thread *> threads;
    std::vector<Warp> warps;
    Barrier barriers[16];
    std::vector<BulkCopy> bulk;
    std::vector<AsyncArrival> arrivals;
    /* griddepcontrol.launch_dependents: by a thread, and by one that had not waited. */
    bool released = false, released_early = false;
    std::map<unsigned, Mbarrier> mbarriers; /* by shared address */
    std::vector<MbarrierWait> mbarrier_waits;
    std::vector<Warpgroup> warpgroups;
    std::vector<Acquired> acquired;
    std::vector<GridWait> grid_waits;
};

/* A PLEC_SHARED_STATIC: the same offset in every block. */
struct StaticShared {
    const void *key;
    unsigned offset, n_bytes;
};

struct Launch {
    std::string name;
    dim3 grid, block;
    size_t shared_bytes = 0; /* dynamic */
    bool cooperative = false, dependent = false;
    /* A block let dependents start, or ended, after it had waited itself: whoever starts behind
     * this kernel starts after all that was ahead of it. */
    bool waited_first = false;
    void (*run)(const void *arguments) = nullptr; /* what a thread does */
    const char *arguments = nullptr;              /* readable by every thread */
    size_t argument_bytes = 0;
    std::vector<StaticShared> statics;
    unsigned shared_end = 0;
    bool failed = false;
};

/* Of the grid; null where the calling host thread runs code of its own. */
extern __thread Thread *running;
extern Launch *launch_running;
extern std::vector<Block *> &resident;

/* "kernel block (0,1,0) thread 33 (warp 1 lane 1)" */
std::string who(const Thread *thread);

inline Thread *Warp::thread(int lane) const {
    return block->threads[(size_t)(first + lane)];
}

} // namespace plec_emu

#endif
