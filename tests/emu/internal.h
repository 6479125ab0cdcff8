// internal.h -- shared by emu_core.cc, emu_check.cc, emu_rt.cc
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime_api.h>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>
#include <vector_types.h>
#if defined(__SANITIZE_ADDRESS__) || defined(PLEC_EMU_WITH_ASAN)
#ifndef __SANITIZE_ADDRESS__
#define __SANITIZE_ADDRESS__ 1 // the interface only: the emulation itself is not instrumented
#endif
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#define PLEC_EMU_ASAN 1
#else
#define PLEC_EMU_ASAN                     0
#define ASAN_POISON_MEMORY_REGION(p, n)   ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)0)
#endif
namespace plec_emu {
enum Sched { S_FIFO, S_RANDOM, S_LIFO, S_PCT };
struct Config {
    uint64_t seed = 1;
    int sched = S_FIFO;
    int resident = 1;
    size_t stack = 128 << 10;
    int cc = 90, sms = 4, devices = 1;
    bool guard = true, strict = true, check = false;
    int max_reports = 20;
    int eager = 0;
    int preempt = 0;
    size_t devmem = 1ull << 30;
};
extern Config cfg;
uint64_t rnd();
inline uint64_t rnd(uint64_t n) {
    return rnd() % n;
}

struct VC {
    int ref;
    uint32_t c[1];
};
struct Block;
struct Warp;
struct WGroup;
struct CpOp {
    unsigned dst;
    const char *src;
    int n, srcn;
    const char *f;
    int l;
};
enum State : uint8_t { READY, WAITING, DONE };
struct Ctx {
    void *sp = nullptr;
    char *stk = nullptr;
    size_t stksz = 0;
    void *fake = nullptr;
};
struct Thread : Ctx {
    Block *blk;
    Warp *warp;
    int tid, lane;
    uint3 idx;
    State state;
    bool started = false;
    const char *what, *file;
    int line;
    unsigned mask;
    void *arg;
    uint64_t prio;
    std::vector<CpOp> cp;
    std::vector<int> cpg;
    int cp_open = 0;
    VC *vc = nullptr, *fence_vc = nullptr;
    uint32_t clk, pfence, fenced;
    uint32_t gthr;
    unsigned wg_issued, wg_last;
    bool wg_fenced;
    std::vector<unsigned> wg_commit;
};
typedef void (*CollFn)(void **args, unsigned mask);
struct PendColl {
    unsigned mask, arrived;
    const char *what, *file;
    int line;
    CollFn fn;
    bool aligned, memsync;
};
struct Warp {
    Block *blk;
    int base, n;
    unsigned lanes, exited;
    PendColl pc[32];
    int npc;
};
struct Bar {
    int arrived = 0, expected = 0;
    int cnt = 0, all = 1, any = 0;
    std::vector<Thread *> waiting;
    const char *what = nullptr, *file = nullptr;
    int line = 0;
    VC *vc = nullptr;
    const VC *lastm = nullptr;
    int result = 0;
};
struct WgOp {
    int N;
    uint64_t da, db;
    int scale;
    float *d[128];
    int issued;
    const char *f;
    int l;
};
struct WGroup {
    std::deque<WgOp> ops;
    unsigned base = 0;
    std::vector<Thread *> waiters;
};
struct AsyncOp {
    Thread *t;
    unsigned dst, bytes, mbar;
    std::function<void(char *)> fill;
    const char *f;
    int l;
    uint32_t clk;
};
struct MbWait {
    Thread *t;
    unsigned addr, parity;
};
struct Block {
    unsigned lin;
    uint3 bidx;
    int slot;
    char *smem;
    int nthreads, nlive;
    std::vector<Thread *> th;
    std::vector<Warp> warps;
    Bar bar[16];
    std::vector<AsyncOp> async;
    std::vector<MbWait> mbw;
    std::vector<WGroup> wg;
    struct MbState {
        VC *cur = nullptr, *done = nullptr;
        bool init = false;
        const char *f;
        int l;
    };
    std::map<unsigned, MbState> mb;
    std::map<unsigned, VC *>
        known; // other block -> clocks known of its threads (acquired through atomics)
};
struct Static {
    const void *key;
    unsigned off, size;
};
struct Launch {
    std::string name;
    dim3 grid, block;
    size_t smem;
    bool coop;
    std::function<void()> body;
    int op;
    std::vector<Static> statics;
    unsigned used_end;
    bool failed = false;
    uint64_t switches = 0;
};
extern thread_local Thread *cur;
extern Launch *curl;
void api_lock();
void api_unlock();
bool run_kernel(Launch &L); // false: failed (deadlock, trap)
void report(const char *kind, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
std::string who(const Thread *t);

static constexpr unsigned SMEM_SLOT = 256 << 10, SMEM_BASE = 1024, SMEM_MAXBLK = 227 << 10;
extern char *smem_region;
extern size_t smem_region_sz;
extern int smem_slots;
// memory arenas (emu_rt.cc)
struct Alloc {
    char *p;
    size_t n, cap;
    int dev;
    int kind;
    bool live;
    int id;
    int free_op;
}; // kind 0 device 1 pinned
extern char *dev_base, *pin_base;
extern size_t dev_sz, pin_sz;
const Alloc *find_alloc(const void *p);
bool is_dev(const void *p);
bool is_pin(const void *p);
std::string describe_ptr(const void *p);

// happens-before over operations (emu_rt.cc); op -1 is the host
struct OpInfo {
    std::string name;
    int stream;
    uint32_t seq;
    std::vector<uint32_t> vc;
};
extern std::vector<OpInfo> &ops;
extern int cur_op;
bool op_hb(int a, uint32_t a_stamp, int b); // a happened before the running op / host b
uint32_t host_stamp();

// checker (emu_check.cc)
enum { A_READ = 0, A_WRITE = 1, A_ATOMIC = 2, A_ASYNC = 4, A_NOINIT = 8 };
struct Site {
    uint32_t id;
};
uint32_t loc_site(const char *f, int l);
uint32_t pc_site(const void *pc);
std::string site_str(uint32_t s);
void chk_access(const void *p, size_t n, int flags, uint32_t site,
                Thread *t); // dispatches on the arena
void chk_block_begin(Block *b, unsigned used_end);
void chk_smem_clear(Block *b, unsigned off, unsigned n);
void chk_fence(Thread *t);
uint32_t chk_tick();
void chk_release(Thread *t, VC **v);     // *v |= t's clock, t's clock advances
void chk_acquire(Thread *t, VC *v);      // t |= v
inline void chk_share(Thread *t, VC *v); // the same where v is known to contain all of t's history
void chk_join(Thread **ts, int n);       // all-to-all synchronisation
VC *vc_ref(VC *v);
void vc_unref(VC *v);
inline void chk_share(Thread *t, VC *v) {
    VC *o = t->vc;
    t->vc = vc_ref(v);
    vc_unref(o);
}
void chk_thread_begin(Thread *t);
void chk_sync_loc(const void *p, Thread *t, bool acq, bool rel);
void chk_mark_init(const void *p, size_t n, bool init); // cudaMalloc / memset by the runtime
void chk_forget(const void *p, size_t n);
void chk_bank(const void *const *addr, int nlanes, int bytes, uint32_t site);
void chk_lane_access(Thread *t, unsigned off, int n, int flags, uint32_t site);
void chk_flush_lanes(Block *b);
} // namespace plec_emu
