// emu_core.cc -- fibers, scheduler, barriers, warp collectives, cp.async, mbarrier, bulk copies,
// mma, wgmma.
#include "tests/emu/emulator.h"
#include "tests/emu/instructions.h"
#include "tests/emu/internal.h"
#include <algorithm>
#include <cassert>
#include <csetjmp>
#include <cstdarg>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <pthread.h>
#include <set>
#include <sys/mman.h>
#include <unistd.h>
#if defined(PLEC_EMU_UCONTEXT) || !defined(__x86_64__)
#define PLEC_EMU_USE_UCONTEXT 1
#include <ucontext.h>
#endif

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace plec_emu {
Config cfg;
thread_local Thread *cur;
Launch *curl;
static thread_local Ctx main_ctx;
char *smem_region;
size_t smem_region_sz;
int smem_slots;
static uint64_t rng_state = 88172645463325252ull;
uint64_t rnd() {
    uint64_t x = rng_state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return rng_state = x;
}

// ---------------------------------------------------------------- configuration, reports
static long env(const char *n, long d) {
    const char *s = getenv(n);
    return s && *s ? strtol(s, 0, 0) : d;
}
static int nerrors;
static auto &err_kinds = *new std::map<std::string, int>;
int live_allocs(std::string *what);
static struct Init {
    Init() {
        cfg.seed = (uint64_t)env("PLEC_EMU_SEED", 0);
        const char *s = getenv("PLEC_EMU_SCHED");
        cfg.sched = cfg.seed ? S_RANDOM : S_FIFO;
        if (s)
            cfg.sched = !strcmp(s, "fifo")   ? S_FIFO
                        : !strcmp(s, "lifo") ? S_LIFO
                        : !strcmp(s, "pct")  ? S_PCT
                                             : S_RANDOM;
        cfg.resident = (int)env("PLEC_EMU_RESIDENT", 1);
        cfg.stack = (size_t)env("PLEC_EMU_STACK", 128) << 10;
        cfg.cc = (int)env("PLEC_EMU_CC", 90);
        cfg.sms = (int)env("PLEC_EMU_SMS", 4);
        cfg.devices = (int)env("PLEC_EMU_DEVICES", 1);
        cfg.guard = env("PLEC_EMU_GUARD", 1);
        cfg.strict = env("PLEC_EMU_STRICT", 1);
        cfg.max_reports = (int)env("PLEC_EMU_MAX_REPORTS", 20);
        cfg.eager = (int)env("PLEC_EMU_EAGER", 0);
        cfg.preempt = (int)env("PLEC_EMU_PREEMPT", 0);
        cfg.devmem = (size_t)env("PLEC_EMU_DEVMEM_MB", 1024) << 20;
        rng_state ^= cfg.seed * 0x9E3779B97F4A7C15ull;
        for (int i = 0; i < 8; i++)
            rnd();
    }
    ~Init() {
        std::string lk;
        if (!nerrors && env("PLEC_EMU_LEAKS", 1) && live_allocs(&lk))
            report("leak", "%s", lk.c_str());
        if (nerrors && env("PLEC_EMU_EXITCODE", 66)) {
            fprintf(stderr, "EMU: %d problem(s) reported\n", nerrors);
            fflush(0);
            _exit((int)env("PLEC_EMU_EXITCODE", 66));
        }
    }
} init_;
void report(const char *kind, const char *fmt, ...) {
    nerrors++;
    err_kinds[kind]++;
    if (err_kinds[kind] > cfg.max_reports) return;
    char buf[4096];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    fprintf(stderr, "EMU: %s: %s\n", kind, buf);
}
extern "C" int plec_emu_errors(const char *kind) {
    return kind ? (err_kinds.count(kind) ? err_kinds[kind] : 0) : nerrors;
}
extern "C" void plec_emu_clear_errors(void) {
    nerrors = 0;
    err_kinds.clear();
}
extern "C" void plec_emu_set_schedule(enum plec_emu_schedule sched, uint64_t seed) {
    cfg.sched = sched;
    cfg.seed = seed;
    rng_state = 88172645463325252ull ^ (seed * 0x9E3779B97F4A7C15ull);
    for (int i = 0; i < 8; i++)
        rnd();
}
static const char *base(const char *f) {
    const char *s = f ? strrchr(f, '/') : 0;
    return s ? s + 1 : f ? f : "?";
}
std::string who(const Thread *t) {
    char b[160];
    if (!t) return "host";
    snprintf(b, sizeof b, "%s block (%u,%u,%u) thread %d (warp %d lane %d)",
             curl ? curl->name.c_str() : "?", t->blk->bidx.x, t->blk->bidx.y, t->blk->bidx.z,
             t->tid, t->tid / 32, t->lane);
    return b;
}

// ---------------------------------------------------------------- context switch
#ifndef PLEC_EMU_USE_UCONTEXT
extern "C" void plec_emu_swap(void **save, void *load);
asm(R"(
.text
.globl plec_emu_swap
.type plec_emu_swap,@function
plec_emu_swap:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size plec_emu_swap,.-plec_emu_swap
.globl plec_emu_tramp
.type plec_emu_tramp,@function
plec_emu_tramp:
  .cfi_startproc
  .cfi_undefined rip
  call plec_emu_fiber_main
  ud2
  .cfi_endproc
.size plec_emu_tramp,.-plec_emu_tramp
)");
extern "C" void plec_emu_tramp();
#endif
static inline void swap_ctx(Ctx *from, Ctx *to) {
#if PLEC_EMU_ASAN
    __sanitizer_start_switch_fiber(&from->fake, to->stk, to->stksz);
#endif
#ifdef PLEC_EMU_USE_UCONTEXT
    swapcontext((ucontext_t *)from->sp, (ucontext_t *)to->sp);
#else
    plec_emu_swap(&from->sp, to->sp);
#endif
#if PLEC_EMU_ASAN
    __sanitizer_finish_switch_fiber(from->fake, nullptr, nullptr);
#endif
}
static void thread_exit();
extern "C" void plec_emu_fiber_main() {
#if PLEC_EMU_ASAN
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
    for (;;) {
        curl->body();
        thread_exit();
    }
}
static void prepare_fiber(Thread *t) { // fresh stack
    if (!t->stk) {
        size_t pg = 4096, sz = cfg.stack;
        char *m = (char *)mmap(0, sz + pg, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (m == MAP_FAILED) {
            perror("emu: fiber stack");
            abort();
        }
        mprotect(m, pg, PROT_NONE);
        t->stk = m + pg;
        t->stksz = sz;
    }
    ASAN_UNPOISON_MEMORY_REGION(t->stk, t->stksz);
#ifdef PLEC_EMU_USE_UCONTEXT
    if (!t->sp) t->sp = new ucontext_t;
    ucontext_t *u = (ucontext_t *)t->sp;
    getcontext(u);
    u->uc_stack.ss_sp = t->stk;
    u->uc_stack.ss_size = t->stksz;
    u->uc_link = 0;
    makecontext(u, (void (*)())plec_emu_fiber_main, 0);
#else
    static unsigned colour; // spread the stack tops over the cache sets
    uintptr_t top = (((uintptr_t)t->stk + t->stksz) & ~(uintptr_t)15) - (colour++ % 29) * 320;
    void **s = (void **)top;
    *--s = 0;
    *--s = 0;
    *--s = (void *)plec_emu_tramp;
    for (int i = 0; i < 6; i++)
        *--s = 0;
    t->sp = s;
#endif
    t->started = true;
    t->fake = nullptr;
}

// ---------------------------------------------------------------- ready queue and scheduler
static auto &rq = *new std::vector<Thread *>;
static size_t rqh, rqt, rqm;
static inline void make_ready(Thread *t) {
    t->state = READY;
    rq[rqt++ & rqm] = t;
}
static inline void make_ready_last(Thread *t) {
    t->state = READY;
    rq[--rqh & rqm] = t;
} // chosen last under LIFO
static Thread *pop() {
    if (rqh == rqt) return nullptr;
    size_t n = rqt - rqh, k;
    switch (cfg.sched) {
    case S_FIFO: return rq[rqh++ & rqm];
    case S_LIFO: return rq[--rqt & rqm];
    case S_RANDOM: k = rqh + rnd(n); break;
    default:
        k = rqh;
        for (size_t i = 1; i < n; i++)
            if (rq[(rqh + i) & rqm]->prio > rq[k & rqm]->prio) k = rqh + i;
    }
    Thread *t = rq[k & rqm];
    rq[k & rqm] = rq[rqh & rqm];
    rqh++;
    return t;
}
// (globals are heap objects that are never destroyed: kernels may still run from atexit handlers,
// and LeakSanitizer stays quiet)
static auto &resident = *new std::vector<Block *>;
static auto &pool = *new std::vector<Thread *>;
static uint64_t spin_streak, nswitch;
static void run_async(Block *b, size_t i);
static bool run_some_async(bool must) {
    for (Block *b : resident)
        if (!b->async.empty()) {
            run_async(b, cfg.sched == S_FIFO || cfg.sched == S_LIFO ? 0 : rnd(b->async.size()));
            return true;
        }
    (void)must;
    return false;
}
[[noreturn]] void abort_launch();
void abort_launch() {
    curl->failed = true;
    Thread *me = cur;
    cur = nullptr;
    for (Thread *t : pool)
        t->started = false; // abandon all fibers
    swap_ctx(me, &main_ctx);
    __builtin_unreachable();
}
static void deadlock(const char *kind) {
    std::string out;
    char line[600];
    for (Block *b : resident) {
        if (!b->nlive) continue;
        snprintf(line, sizeof line, "\n    block (%u,%u,%u):", b->bidx.x, b->bidx.y, b->bidx.z);
        out += line;
        for (int i = 0; i < b->nthreads;) { // group runs of threads waiting at the same place
            Thread *t = b->th[i];
            int j = i + 1;
            auto same = [&](Thread *u) {
                return u->state == t->state &&
                       (t->state != WAITING || (u->what == t->what && u->line == t->line &&
                                                u->mask == t->mask && u->file == t->file));
            };
            while (j < b->nthreads && same(b->th[j]))
                j++;
            if (t->state == DONE)
                snprintf(line, sizeof line, "\n      threads %d-%d have exited", i, j - 1);
            else if (t->state == WAITING)
                snprintf(line, sizeof line, "\n      threads %d-%d wait at %s, %s:%d (mask/id %#x)",
                         i, j - 1, t->what, base(t->file), t->line, t->mask);
            else
                snprintf(line, sizeof line, "\n      threads %d-%d are spinning", i, j - 1);
            out += line;
            i = j;
        }
    }
    report(kind, "%s: no thread can make progress%s", curl->name.c_str(), out.c_str());
    abort_launch();
}
static inline void resume(Thread *me, Thread *n) {
    nswitch++;
    cur = n;
    threadIdx = n->idx;
    blockIdx = n->blk->bidx;
    if (!n->started) prepare_fiber(n);
    if (me != n) swap_ctx(me, n);
}
static void block_cur() { // cur is WAITING (or queued); run somebody else
    Thread *me = cur;
    if ((cfg.sched == S_RANDOM || cfg.sched == S_PCT) && !(cfg.seed & 1) && rnd(8) == 0)
        run_some_async(false); // odd seeds: as late as possible
    Thread *n;
    while (!(n = pop()))
        if (!run_some_async(true)) deadlock("deadlock");
    resume(me, n);
}
static inline void wait_at(const char *what, const char *f, int l, unsigned mask) {
    cur->state = WAITING;
    cur->what = what;
    cur->file = f;
    cur->line = l;
    cur->mask = mask;
    spin_streak = 0;
}
void spin_hint(const char *f, int l) {
    if (++spin_streak > 2000000) {
        cur->what = "spin";
        cur->file = f;
        cur->line = l;
        deadlock("livelock");
    }
    if (spin_streak % 64 == 0) run_some_async(false);
    cur->prio = cur->prio > 1000 ? cur->prio / 2 : rnd(1000);
    make_ready_last(cur);
    cur->what = "spin";
    cur->file = f;
    cur->line = l;
    if (cfg.sched == S_FIFO) {
        rqh++;
        rq[rqt++ & rqm] = cur;
    } // to the tail
    block_cur();
}
void maybe_preempt() {
    if (cur && cfg.preempt && rnd((uint64_t)cfg.preempt) == 0) {
        make_ready_last(cur);
        block_cur();
    }
}
void trap(const char *what, const char *f, int l) {
    report("trap", "%s at %s:%d by %s", what, base(f), l, who(cur).c_str());
    abort_launch();
}
uint64_t clock_now() {
    return nswitch;
}
unsigned lane() {
    return (unsigned)cur->lane;
}

// ---------------------------------------------------------------- block barriers
static void bar_finish(Block *b, Bar &r, int redop) {
    r.result = redop == 1 ? r.cnt : redop == 2 ? r.all : r.any;
    std::vector<Thread *> w;
    w.swap(r.waiting);
    if (cfg.check) {
        for (Thread *t : w)
            chk_share(t, r.vc);
        vc_unref(r.vc);
        r.vc = nullptr;
        r.lastm = nullptr;
    }
    r.arrived = r.cnt = r.any = 0;
    r.all = 1;
    r.expected = 0;
    for (Thread *t : w)
        make_ready(t);
    (void)b;
}
int block_barrier(const char *what, int id, int nthreads, int pred, int redop, bool wait,
                  const char *f, int l) {
    Thread *me = cur;
    Block *b = me->blk;
    Bar &r = b->bar[id & 15];
    int expected = nthreads ? nthreads : b->nthreads;
    if (cfg.check) chk_flush_lanes(b);
    if (nthreads % 32)
        report("barrier", "%s:%d: named barrier %d with count %d, not a multiple of 32", base(f), l,
               id, nthreads);
    if (r.arrived == 0) {
        r.expected = expected;
        r.what = what;
        r.file = f;
        r.line = l;
    } else {
        if (r.expected != expected)
            report("barrier", "%s at %s:%d: barrier %d expects %d threads, %s asks for %d", what,
                   base(f), l, id, r.expected, who(me).c_str(), expected);
        if (cfg.strict && !nthreads && (r.line != l || r.file != f || r.what != what)) {
            report("divergent-barrier",
                   "%s arrives at %s %s:%d while others of the block wait at %s %s:%d",
                   who(me).c_str(), what, base(f), l, r.what, base(r.file), r.line);
            r.line = l;
            r.file = f;
            r.what = what; // once per pair
        }
    }
    r.arrived++;
    r.cnt += pred != 0;
    r.all &= pred != 0;
    r.any |= pred != 0;
    if (cfg.check) chk_release(me, &r.vc);
    int exited = b->nthreads - b->nlive;
    if (wait) {
        r.waiting.push_back(me);
        wait_at(what, f, l, (unsigned)id);
    }
    if (r.arrived + (nthreads ? 0 : exited) >= r.expected) {
        if (!nthreads && exited && r.arrived + exited >= r.expected)
            report("exited-before-barrier",
                   "%s:%d: %d thread(s) of block (%u,%u,%u) exited before %s", base(f), l, exited,
                   b->bidx.x, b->bidx.y, b->bidx.z, what);
        bar_finish(b, r, redop);
    }
    if (wait) block_cur();
    return r.result;
}

// ---------------------------------------------------------------- warp collectives
static void coll_finish(Warp *w, int i) {
    PendColl c = w->pc[i];
    w->pc[i] = w->pc[--w->npc];
    void *args[32];
    Thread *ts[32];
    int n = 0;
    for (int k = 0; k < 32; k++) {
        args[k] = nullptr;
        if (c.arrived >> k & 1) {
            Thread *t = w->blk->th[w->base + k];
            args[k] = t->arg;
            ts[n++] = t;
        }
    }
    if (c.fn) c.fn(args, c.arrived);
    if (cfg.check && c.memsync) chk_join(ts, n);
    for (int k = 0; k < n; k++)
        make_ready(ts[k]);
}
void warp_coll(const char *what, unsigned mask, void *arg, CollFn fn, bool aligned, bool memsync,
               const char *f, int l) {
    Thread *me = cur;
    Warp *w = me->warp;
    unsigned bit = 1u << me->lane;
    mask &= w->lanes; // a partial last warp
    if (!(mask & bit))
        report("warp-mask", "%s %s:%d: %s is not in its own mask %#x", what, base(f), l,
               who(me).c_str(), mask);
    if (mask & w->exited)
        report("warp-mask", "%s %s:%d: mask %#x names exited lanes %#x (%s)", what, base(f), l,
               mask, mask & w->exited, who(me).c_str());
    mask &= ~w->exited;
    mask |= bit;
    int i;
    auto bad = [&](PendColl &c) {
        report("divergent-collective",
               "%s at %s:%d with mask %#x meets %s at %s:%d with mask %#x (%s)", what, base(f), l,
               mask, c.what, base(c.file), c.line, c.mask, who(me).c_str());
        abort_launch();
    };
    for (i = 0; i < w->npc; i++) {
        PendColl &c = w->pc[i];
        if (c.mask == mask) {
            if (c.what != what || ((aligned || c.aligned) && (c.line != l || c.file != f))) bad(c);
            break;
        }
        if ((c.mask & bit) && (mask & c.arrived))
            bad(c); // they wait for me there, I wait for them here
    }
    if (i == w->npc) w->pc[w->npc++] = PendColl{mask, 0, what, f, l, fn, aligned, memsync};
    PendColl &c = w->pc[i];
    me->arg = arg;
    c.arrived |= bit;
    wait_at(what, f, l, mask);
    if (c.arrived == c.mask) coll_finish(w, i);
    block_cur();
}
struct ShflA {
    uint64_t in, out;
    int src, mode, width;
    const char *f;
    int l;
    bool bad;
};
uint64_t shfl(int mode, unsigned mask, uint64_t v, int src, int width, const char *f, int l) {
    static const char *const nm[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync",
                                     "__shfl_xor_sync"};
    ShflA a{v, 0, src, mode, width, f, l, false};
    warp_coll(
        nm[mode], mask, &a,
        [](void **args, unsigned m) {
            for (int i = 0; i < 32; i++)
                if (m >> i & 1) {
                    ShflA &x = *(ShflA *)args[i];
                    int w = x.width, lo = i & ~(w - 1), j;
                    if (x.mode == 0)
                        j = lo + (x.src & (w - 1));
                    else if (x.mode == 1) {
                        j = i - x.src;
                        if (j < lo) j = i;
                    } else if (x.mode == 2) {
                        j = i + x.src;
                        if (j >= lo + w) j = i;
                    } else {
                        j = i ^ x.src;
                        if (j >= lo + w) j = i;
                    }
                    if (j >= 0 && j < 32 && (m >> j & 1))
                        x.out = ((ShflA *)args[j])->in;
                    else {
                        x.out = ~0ull;
                        x.bad = true;
                    }
                }
        },
        false, false, f, l);
    if (a.bad)
        report("shfl-inactive", "%s at %s:%d: %s reads a lane outside mask %#x", nm[mode], base(f),
               l, who(cur).c_str(), mask);
    return a.out;
}
struct VoteA {
    unsigned in, out;
    int kind;
};
unsigned vote(int kind, unsigned mask, int pred, const char *f, int l) {
    static const char *const nm[] = {"__ballot_sync", "__any_sync", "__all_sync"};
    VoteA a{pred != 0, 0, kind};
    warp_coll(
        nm[kind], mask, &a,
        [](void **args, unsigned m) {
            unsigned b = 0;
            for (int i = 0; i < 32; i++)
                if ((m >> i & 1) && ((VoteA *)args[i])->in) b |= 1u << i;
            for (int i = 0; i < 32; i++)
                if (m >> i & 1) {
                    VoteA &x = *(VoteA *)args[i];
                    x.out = x.kind == 0 ? b : x.kind == 1 ? b != 0 : b == m;
                }
        },
        false, false, f, l);
    return a.out;
}
struct MatchA {
    uint64_t in;
    unsigned out;
};
unsigned match_any(unsigned mask, uint64_t v, const char *f, int l) {
    MatchA a{v, 0};
    warp_coll(
        "__match_any_sync", mask, &a,
        [](void **args, unsigned m) {
            for (int i = 0; i < 32; i++)
                if (m >> i & 1)
                    for (int j = 0; j < 32; j++)
                        if ((m >> j & 1) && ((MatchA *)args[i])->in == ((MatchA *)args[j])->in)
                            ((MatchA *)args[i])->out |= 1u << j;
        },
        false, false, f, l);
    return a.out;
}
struct RedA {
    unsigned in, out;
    int op;
};
unsigned reduce(int op, unsigned mask, unsigned v, const char *f, int l) {
    static const char *const nm[] = {"__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync",
                                     "__reduce_min_sync", "__reduce_max_sync", "__reduce_and_sync",
                                     "__reduce_or_sync",  "__reduce_xor_sync"};
    RedA a{v, 0, op};
    warp_coll(
        nm[op], mask, &a,
        [](void **args, unsigned m) {
            bool first = true;
            unsigned r = 0;
            int kind = 0;
            for (int i = 0; i < 32; i++)
                if (m >> i & 1) {
                    RedA &x = *(RedA *)args[i];
                    unsigned y = x.in;
                    kind = x.op;
                    if (first)
                        r = y;
                    else
                        switch (kind) {
                        case 0: r += y; break;
                        case 1: r = std::min(r, y); break;
                        case 2: r = std::max(r, y); break;
                        case 3: r = (unsigned)std::min((int)r, (int)y); break;
                        case 4: r = (unsigned)std::max((int)r, (int)y); break;
                        case 5: r &= y; break;
                        case 6: r |= y; break;
                        default: r ^= y;
                        }
                    first = false;
                }
            for (int i = 0; i < 32; i++)
                if (m >> i & 1) ((RedA *)args[i])->out = r;
        },
        false, false, f, l);
    return a.out;
}
unsigned activemask() {
    return cur->warp->lanes & ~cur->warp->exited;
}

// ---------------------------------------------------------------- atomics, fences
template <class T, class F> static uint64_t rmw(void *p, F f) {
    T o;
    memcpy(&o, p, sizeof o);
    T n = f(o);
    memcpy(p, &n, sizeof n);
    uint64_t r = 0;
    memcpy(&r, &o, sizeof o);
    return r;
}
template <class T> static T as(uint64_t v) {
    T t;
    memcpy(&t, &v, sizeof t);
    return t;
}
template <class T> static uint64_t rmw_arith(int op, void *p, uint64_t v, uint64_t cmp) {
    T x = as<T>(v), c = as<T>(cmp);
    return rmw<T>(p, [&](T o) -> T {
        switch (op) {
        case 0: return (T)(o + x);
        case 1: return std::min(o, x);
        case 2: return std::max(o, x);
        case 3: return x;
        case 4: return o == c ? x : o;
        case 8: return o >= x ? T(0) : (T)(o + T(1));
        case 9: return (T)(o - x);
        default: return o;
        }
    });
}
uint64_t atomic_rmw(int op, int ty, void *p, uint64_t v, uint64_t cmp, const char *f, int l) {
    int sz = ty == 3 || ty >= 4 ? 8 : 4;
    if ((uintptr_t)p % (unsigned)sz) trap("misaligned atomic", f, l);
    if (cfg.check) {
        chk_access(p, (size_t)sz, A_WRITE | A_ATOMIC, loc_site(f, l), cur);
        chk_sync_loc(p, cur, true, true);
    }
    spin_streak = 0;
    if (op >= 5 && op <= 7) {
        auto bit = [&](auto o) {
            auto x = as<decltype(o)>(v);
            return op == 5   ? (decltype(o))(o & x)
                   : op == 6 ? (decltype(o))(o | x)
                             : (decltype(o))(o ^ x);
        };
        return sz == 4 ? rmw<uint32_t>(p, bit) : rmw<uint64_t>(p, bit);
    }
    switch (ty) {
    case 0: return rmw_arith<int32_t>(op, p, v, cmp);
    case 1: return rmw_arith<uint32_t>(op, p, v, cmp);
    case 2: return rmw_arith<float>(op, p, v, cmp);
    case 3: return rmw_arith<double>(op, p, v, cmp);
    case 4: return rmw_arith<uint64_t>(op, p, v, cmp);
    default: return rmw_arith<int64_t>(op, p, v, cmp);
    }
}
void fence(int) {
    if (cfg.check) chk_fence(cur);
}
uint32_t load_acquire(const uint32_t *p, const char *f, int l) {
    if (cfg.check) {
        chk_access(p, 4, A_READ | A_ATOMIC, loc_site(f, l), cur);
        chk_sync_loc(p, cur, true, false);
    }
    uint32_t v;
    memcpy(&v, p, 4);
    return v;
}
void store_release(uint32_t *p, uint32_t v, const char *f, int l) {
    fence(1);
    if (cfg.check) {
        chk_access(p, 4, A_WRITE | A_ATOMIC, loc_site(f, l), cur);
        chk_sync_loc(p, cur, false, true);
    }
    memcpy(p, &v, 4);
    spin_streak = 0;
}

// ---------------------------------------------------------------- shared memory
static void smem_init(int slots) {
    if (smem_region && smem_slots >= slots) return;
    if (smem_region) munmap(smem_region, smem_region_sz);
    smem_slots = slots;
    smem_region_sz = (size_t)slots * SMEM_SLOT;
    smem_region = (char *)mmap(0, smem_region_sz + SMEM_SLOT, PROT_READ | PROT_WRITE,
                               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    smem_region = (char *)(((uintptr_t)smem_region + 4095) & ~(uintptr_t)4095);
}
void *dyn_smem(const char *f, int l) {
    if (!curl->smem)
        report("smem", "%s:%d: kernel %s uses dynamic shared memory but was launched with 0 bytes",
               base(f), l, curl->name.c_str());
    return cur->blk->smem + SMEM_BASE;
}
void *static_smem(const void *key, unsigned size, unsigned align, const char *f, int l) {
    Block *b = cur->blk;
    for (Static &s : curl->statics)
        if (s.key == key) return b->smem + s.off;
    if (align < 16) align = 16;
    unsigned off = (curl->used_end + 64 + align - 1) & ~(align - 1);
    curl->statics.push_back({key, off, size});
    curl->used_end = off + size;
    size_t tot = curl->smem;
    for (Static &s : curl->statics)
        tot += s.size;
    if (tot > SMEM_MAXBLK)
        report("smem", "%s:%d: %s uses %zu bytes of shared memory", base(f), l, curl->name.c_str(),
               tot);
    for (Block *r : resident) {
        ASAN_UNPOISON_MEMORY_REGION(r->smem + off, size);
        memset(r->smem + off, 0xff, size);
        if (cfg.check) chk_smem_clear(r, off, size);
    }
    return b->smem + off;
}
unsigned shared_address(const void *p, const char *f, int l) {
    uintptr_t d = (uintptr_t)p - (uintptr_t)cur->blk->smem;
    if (d >= SMEM_SLOT)
        trap("address of a shared object expected (__cvta_generic_to_shared)", f, l);
    return (unsigned)d;
}
void *shared_pointer(unsigned a, unsigned bytes, const char *f, int l) {
    bool ok = a >= SMEM_BASE && a + bytes <= SMEM_BASE + curl->smem;
    if (!ok)
        for (Static &s : curl->statics)
            ok |= a >= s.off && a + bytes <= s.off + s.size;
    if (!ok) {
        report("smem-oob", "%s:%d: shared address %#x+%u outside shared memory, %s", base(f), l, a,
               bytes, who(cur).c_str());
        abort_launch();
    }
    return cur->blk->smem + a;
}

// ---------------------------------------------------------------- ldmatrix, mma
struct LdmA {
    unsigned *r;
    unsigned addr;
    int n;
    bool trans;
    const char *f;
    int l;
};
void ldmatrix(unsigned *r, int n, bool trans, unsigned saddr, const char *f, int l) {
    if (saddr % 16) trap("ldmatrix: row address not 16-byte aligned", f, l);
    LdmA a{r, saddr, n, trans, f, l};
    warp_coll(
        "ldmatrix", ~0u, &a,
        [](void **args, unsigned) {
            LdmA &a0 = *(LdmA *)args[0];
            Warp *w = cur->warp;
            const void *pa[32];
            for (int m = 0; m < a0.n; m++) {
                const uint16_t *row[8];
                for (int i = 0; i < 8; i++) {
                    LdmA &x = *(LdmA *)args[m * 8 + i];
                    Thread *t = w->blk->th[w->base + m * 8 + i];
                    Thread *sv = cur;
                    cur = t;
                    row[i] = (const uint16_t *)shared_pointer(x.addr, 16, x.f, x.l);
                    cur = sv;
                    pa[i] = row[i];
                    if (cfg.check) chk_access(row[i], 16, A_READ, loc_site(x.f, x.l), t);
                }
                if (cfg.check) chk_bank(pa, 8, 16, loc_site(a0.f, a0.l));
                for (int k = 0; k < 32; k++) {
                    LdmA &x = *(LdmA *)args[k];
                    unsigned lo, hi;
                    if (!a0.trans) {
                        lo = row[k / 4][(k % 4) * 2];
                        hi = row[k / 4][(k % 4) * 2 + 1];
                    } else {
                        lo = row[(k % 4) * 2][k / 4];
                        hi = row[(k % 4) * 2 + 1][k / 4];
                    }
                    x.r[m] = lo | hi << 16;
                }
            }
        },
        true, false, f, l);
}
void stmatrix(const unsigned *r, int n, bool trans, unsigned saddr, const char *f, int l) {
    if (saddr % 16) trap("stmatrix: row address not 16-byte aligned", f, l);
    LdmA a{const_cast<unsigned *>(r), saddr, n, trans, f, l};
    warp_coll(
        "stmatrix", ~0u, &a,
        [](void **args, unsigned) {
            LdmA &a0 = *(LdmA *)args[0];
            Warp *w = cur->warp;
            for (int m = 0; m < a0.n; m++) {
                uint16_t *row[8];
                for (int i = 0; i < 8; i++) {
                    LdmA &x = *(LdmA *)args[m * 8 + i];
                    row[i] = (uint16_t *)shared_pointer(x.addr, 16, x.f, x.l);
                    if (cfg.check)
                        chk_access(row[i], 16, A_WRITE, loc_site(x.f, x.l),
                                   w->blk->th[w->base + m * 8 + i]);
                }
                for (int k = 0; k < 32; k++) {
                    LdmA &x = *(LdmA *)args[k];
                    uint16_t lo = (uint16_t)x.r[m], hi = (uint16_t)(x.r[m] >> 16);
                    if (!a0.trans) {
                        row[k / 4][(k % 4) * 2] = lo;
                        row[k / 4][(k % 4) * 2 + 1] = hi;
                    } else {
                        row[(k % 4) * 2][k / 4] = lo;
                        row[(k % 4) * 2 + 1][k / 4] = hi;
                    }
                }
            }
        },
        true, false, f, l);
}
static inline float bf(unsigned h) {
    unsigned u = h << 16;
    float x;
    memcpy(&x, &u, 4);
    return x;
}
static inline float hf(unsigned h) {
    __half_raw r;
    r.x = (unsigned short)h;
    return __half2float(__half(r));
}
struct MmaA {
    void *d;
    const unsigned *a, *b;
    const void *c;
    int k;
};
template <float (*cv)(unsigned)> static void mma16816(void **args, unsigned) {
    float A[16][16], Bt[16][8], C[16][8];
    for (int t = 0; t < 32; t++) {
        MmaA &x = *(MmaA *)args[t];
        int g = t >> 2, q = (t & 3) * 2;
        for (int r = 0; r < 4; r++) {
            int row = g + (r & 1) * 8, col = q + (r >> 1) * 8;
            A[row][col] = cv(x.a[r] & 0xffff);
            A[row][col + 1] = cv(x.a[r] >> 16);
        }
        for (int r = 0; r < 2; r++) {
            int k = q + r * 8;
            Bt[k][g] = cv(x.b[r] & 0xffff);
            Bt[k + 1][g] = cv(x.b[r] >> 16);
        }
        const float *c = (const float *)x.c;
        C[g][q] = c[0];
        C[g][q + 1] = c[1];
        C[g + 8][q] = c[2];
        C[g + 8][q + 1] = c[3];
    }
    for (int m = 0; m < 16; m++)
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < 8; n++)
                C[m][n] += A[m][k] * Bt[k][n];
    for (int t = 0; t < 32; t++) {
        MmaA &x = *(MmaA *)args[t];
        int g = t >> 2, q = (t & 3) * 2;
        float *d = (float *)x.d;
        d[0] = C[g][q];
        d[1] = C[g][q + 1];
        d[2] = C[g + 8][q];
        d[3] = C[g + 8][q + 1];
    }
}
enum MmaKind { MMA_BF16_16816, MMA_F16_16816, MMA_S8_16832 };
static void mma(MmaKind k, void *d, const unsigned *a, const unsigned *b, const void *c,
                const char *f, int l) {
    MmaA x{d, a, b, c, k};
    if (k == MMA_BF16_16816)
        warp_coll("mma.m16n8k16.bf16", ~0u, &x, mma16816<bf>, true, false, f, l);
    else if (k == MMA_F16_16816)
        warp_coll("mma.m16n8k16.f16", ~0u, &x, mma16816<hf>, true, false, f, l);
    else
        warp_coll(
            "mma.m16n8k32.s8", ~0u, &x,
            [](void **args, unsigned) {
                int8_t A[16][32], B[32][8];
                int C[16][8];
                for (int t = 0; t < 32; t++) {
                    MmaA &y = *(MmaA *)args[t];
                    int g = t >> 2, q = (t & 3) * 4;
                    for (int r = 0; r < 4; r++)
                        memcpy(&A[g + (r & 1) * 8][q + (r >> 1) * 16], &y.a[r], 4);
                    for (int r = 0; r < 2; r++)
                        for (int i = 0; i < 4; i++)
                            B[q + r * 16 + i][g] = (int8_t)(y.b[r] >> (8 * i));
                    const int *cc = (const int *)y.c;
                    int p = (t & 3) * 2;
                    C[g][p] = cc[0];
                    C[g][p + 1] = cc[1];
                    C[g + 8][p] = cc[2];
                    C[g + 8][p + 1] = cc[3];
                }
                for (int m = 0; m < 16; m++)
                    for (int kk = 0; kk < 32; kk++)
                        for (int n = 0; n < 8; n++)
                            C[m][n] += A[m][kk] * B[kk][n];
                for (int t = 0; t < 32; t++) {
                    MmaA &y = *(MmaA *)args[t];
                    int g = t >> 2, p = (t & 3) * 2;
                    int *dd = (int *)y.d;
                    dd[0] = C[g][p];
                    dd[1] = C[g][p + 1];
                    dd[2] = C[g + 8][p];
                    dd[3] = C[g + 8][p + 1];
                }
            },
            true, false, f, l);
}

void mma_bf16(float *d, const unsigned *a, unsigned b0, unsigned b1, const char *f, int l) {
    unsigned b[2] = {b0, b1};
    mma(MMA_BF16_16816, d, a, b, d, f, l);
}
void mma_f16(float *d, const unsigned *a, unsigned b0, unsigned b1, const char *f, int l) {
    unsigned b[2] = {b0, b1};
    mma(MMA_F16_16816, d, a, b, d, f, l);
}
void mma_s8(int *d, const unsigned *a, unsigned b0, unsigned b1, const char *f, int l) {
    unsigned b[2] = {b0, b1};
    mma(MMA_S8_16832, d, a, b, d, f, l);
}
// ---------------------------------------------------------------- cp.async
void copy_async(unsigned saddr, const void *g, int bytes, int src_bytes, const char *f, int l) {
    Thread *t = cur;
    if (saddr % (unsigned)bytes || (uintptr_t)g % (unsigned)bytes)
        trap("cp.async: misaligned address", f, l);
    char *d = (char *)shared_pointer(saddr, (unsigned)bytes, f, l);
    if (cfg.check && src_bytes) {
        static int on = -1;
        if (on < 0) on = getenv("PLEC_EMU_BANK") != nullptr;
        if (on) chk_lane_access(t, (unsigned)(uintptr_t)g, src_bytes, 0x300, loc_site(f, l));
    }
    if (cfg.check) {
        if (src_bytes) chk_access(g, (size_t)src_bytes, A_READ, loc_site(f, l), t);
        chk_access(d, (size_t)bytes, A_WRITE | A_NOINIT, loc_site(f, l), t);
    } else if (src_bytes && !is_dev(g))
        trap("cp.async: source is not device memory", f, l);
#if PLEC_EMU_ASAN
    if (src_bytes) {
        volatile const char *v = (volatile const char *)g;
        (void)v[0];
        (void)v[src_bytes - 1];
    }
#endif
    memset(d, 0xff, (size_t)bytes); // poisoned until waited for
    t->cp.push_back({saddr, (const char *)g, bytes, src_bytes, f, l});
    t->cp_open++;
}
void copy_async_commit(const char *, int) {
    cur->cpg.push_back(cur->cp_open);
    cur->cp_open = 0;
}
void copy_async_wait(int n, const char *, int) { // n < 0: wait_all
    Thread *t = cur;
    if (n < 0) {
        copy_async_commit(0, 0);
        n = 0;
    }
    int ndone = (int)t->cpg.size() - n;
    size_t k = 0;
    for (int i = 0; i < ndone; i++)
        for (int j = 0; j < t->cpg[(size_t)i]; j++) {
            CpOp &o = t->cp[k++];
            char *d = t->blk->smem + o.dst;
            memcpy(d, o.src, (size_t)o.srcn);
            memset(d + o.srcn, 0, (size_t)(o.n - o.srcn));
            if (cfg.check) chk_access(d, (size_t)o.n, A_WRITE, loc_site(o.f, o.l), t);
        }
    if (ndone > 0) {
        t->cp.erase(t->cp.begin(), t->cp.begin() + (long)k);
        t->cpg.erase(t->cpg.begin(), t->cpg.begin() + ndone);
    }
}

// ---------------------------------------------------------------- mbarrier and bulk copies
// 64-bit state: pending arrivals [0,20), expected count [20,40), outstanding bytes + 2^22 [40,63),
// phase 63
struct MB {
    unsigned pend, cnt;
    int tx;
    unsigned phase;
};
static MB mb_get(const char *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return {(unsigned)(v & 0xfffff), (unsigned)(v >> 20 & 0xfffff),
            (int)(v >> 40 & 0x7fffff) - (1 << 22), (unsigned)(v >> 63)};
}
static void mb_put(char *p, MB m) {
    uint64_t v = (uint64_t)m.pend | (uint64_t)m.cnt << 20 |
                 (uint64_t)((unsigned)(m.tx + (1 << 22)) & 0x7fffff) << 40 |
                 (uint64_t)m.phase << 63;
    memcpy(p, &v, 8);
}
static Block::MbState &mb_state(Block *b, unsigned a, const char *f, int l) {
    auto &s = b->mb[a];
    if (!s.init) {
        report("mbarrier", "%s:%d: mbarrier at shared %#x used but not initialised (%s)", base(f),
               l, a, who(cur).c_str());
        abort_launch();
    }
    return s;
}
static void mb_check_done(Block *b, unsigned a) {
    MB m = mb_get(b->smem + a);
    auto &s = b->mb[a];
    if (m.pend || m.tx) return;
    m.phase ^= 1;
    m.pend = m.cnt;
    mb_put(b->smem + a, m);
    if (cfg.check) {
        vc_unref(s.done);
        s.done = s.cur;
        s.cur = nullptr;
    }
    for (size_t i = 0; i < b->mbw.size();) {
        MbWait w = b->mbw[i];
        if (w.addr == a && m.phase != w.parity) {
            make_ready(w.t);
            b->mbw.erase(b->mbw.begin() + (long)i);
        } else
            i++;
    }
}
void mbarrier_init(unsigned a, unsigned count, const char *f, int l) {
    if (a % 8 || !count) trap("mbarrier.init: misaligned or zero count", f, l);
    char *p = (char *)shared_pointer(a, 8, f, l);
    mb_put(p, {count, count, 0, 0});
    if (cfg.check) chk_access(p, 8, A_WRITE, loc_site(f, l), cur);
    auto &s = cur->blk->mb[a];
    s.init = true;
    s.f = f;
    s.l = l;
}
void mbarrier_init_fence(const char *, int) {
    fence(1);
}
void mbarrier_inval(unsigned a, const char *f, int l) {
    shared_pointer(a, 8, f, l);
    cur->blk->mb.erase(a);
}
void mbarrier_arrive(unsigned a, unsigned tx, const char *f, int l) {
    Block *b = cur->blk;
    char *p = (char *)shared_pointer(a, 8, f, l);
    auto &s = mb_state(b, a, f, l);
    if (cfg.check) {
        chk_access(p, 8, A_READ | A_ATOMIC, loc_site(f, l), cur);
        chk_release(cur, &s.cur);
    }
    MB m = mb_get(p);
    if (!m.pend) trap("mbarrier.arrive: more arrivals than expected in this phase", f, l);
    m.pend--;
    m.tx += (int)tx;
    mb_put(p, m);
    mb_check_done(b, a);
}
void mbarrier_wait(unsigned a, unsigned parity, const char *f, int l) {
    Block *b = cur->blk;
    char *p = (char *)shared_pointer(a, 8, f, l);
    mb_state(b, a, f, l);
    if (cfg.check) chk_access(p, 8, A_READ | A_ATOMIC, loc_site(f, l), cur);
    if (mb_get(p).phase == parity) {
        b->mbw.push_back({cur, a, parity});
        wait_at("mbarrier.wait", f, l, a);
        block_cur();
    } else if (cfg.sched != S_FIFO && rnd(4) == 0) {
        make_ready_last(cur);
        wait_at("yield", f, l, 0);
        cur->state = READY;
        block_cur();
    }
    if (cfg.check) chk_acquire(cur, b->mb[a].done);
}
static void issue_async(AsyncOp o) {
    Block *b = o.t->blk;
    mb_state(b, o.mbar, o.f, o.l);
    char *d = (char *)shared_pointer(o.dst, o.bytes, o.f, o.l);
    if (cfg.check) chk_access(d, o.bytes, A_WRITE | A_NOINIT | A_ASYNC, loc_site(o.f, o.l), o.t);
    memset(d, 0xff, o.bytes);
    o.clk = o.t->clk;
    o.t->clk = chk_tick();
    b->async.push_back(std::move(o));
}
static void run_async(Block *b, size_t i) {
    AsyncOp o = std::move(b->async[i]);
    b->async.erase(b->async.begin() + (long)i);
    o.fill(b->smem + o.dst);
    spin_streak = 0;
    MB m = mb_get(b->smem + o.mbar);
    m.tx -= (int)o.bytes;
    mb_put(b->smem + o.mbar, m);
    if (cfg.check) {
        uint32_t sv = o.t->clk;
        o.t->clk = o.clk; // the copy belongs to the issuing thread at the time of issue
        chk_access(b->smem + o.dst, o.bytes, A_WRITE | A_ASYNC, loc_site(o.f, o.l), o.t);
        chk_release(o.t, &b->mb[o.mbar].cur);
        o.t->clk = sv;
    }
    mb_check_done(b, o.mbar);
}
void bulk_load(unsigned dst, const void *src, unsigned bytes, unsigned mbar, const char *f, int l) {
    if (dst % 16 || (uintptr_t)src % 16 || bytes % 16)
        trap("cp.async.bulk: address or size not a multiple of 16", f, l);
    if (cfg.check) chk_access(src, bytes, A_READ, loc_site(f, l), cur);
    const char *s = (const char *)src;
    issue_async({cur, dst, bytes, mbar, [s, bytes](char *d) { memcpy(d, s, bytes); }, f, l, 0});
}
struct TMap2D {
    uint64_t magic;
    const char *base;
    uint32_t esz, d0, d1, b0, b1, swz;
    uint64_t stride;
    uint64_t pad[10];
};
static_assert(sizeof(TMap2D) == 128, "CUtensorMap is 128 bytes");
int tmap_encode_2d(void *out, const void *basep, int esz, uint64_t d0, uint64_t d1, uint64_t stride,
                   uint32_t b0, uint32_t b1, int swz) {
    if ((uintptr_t)basep % 16 || stride % 16 || b0 > 256 || b1 > 256 ||
        (uint64_t)b0 * (unsigned)esz % 16)
        return 1;
    if (swz && (uint64_t)b0 * (unsigned)esz > (16u << swz))
        return 1; // inner box must fit the swizzle span (32/64/128 B)
    TMap2D t{};
    t.magic = 0x454d55544d415032ull;
    t.base = (const char *)basep;
    t.esz = (uint32_t)esz;
    t.d0 = (uint32_t)d0;
    t.d1 = (uint32_t)d1;
    t.b0 = b0;
    t.b1 = b1;
    t.swz = (uint32_t)swz;
    t.stride = stride;
    memcpy(out, &t, 128);
    return 0;
}
void tensor_load_2d(unsigned dst, const void *tmap, int x, int y, unsigned mbar, const char *f,
                    int l) {
    TMap2D t;
    memcpy(&t, tmap, 128);
    if (t.magic != 0x454d55544d415032ull)
        trap("cp.async.bulk.tensor: not an encoded tensor map", f, l);
    unsigned align = 128u, bytes = t.b0 * t.b1 * t.esz;
    if (dst % align) trap("cp.async.bulk.tensor: destination misaligned for its swizzle", f, l);
    unsigned row = t.b0 * t.esz, span = t.swz ? 16u << t.swz : 0; // swz 1,2,3 = 32,64,128 bytes
    if (cfg.check)
        for (unsigned r = 0; r < t.b1; r++)
            if (y + (int)r >= 0 && y + (int)r < (int)t.d1) {
                int x0 = std::max(x, 0), x1 = std::min(x + (int)t.b0, (int)t.d0);
                if (x1 > x0)
                    chk_access(t.base + (uint64_t)(y + (int)r) * t.stride + (uint64_t)x0 * t.esz,
                               (size_t)(x1 - x0) * t.esz, A_READ, loc_site(f, l), cur);
            }
    issue_async({cur, dst, bytes, mbar,
                 [=](char *d) {
                     for (unsigned r = 0; r < t.b1; r++)
                         for (unsigned c = 0; c < t.b0; c++) {
                             int gx = x + (int)c, gy = y + (int)r;
                             unsigned o = r * row + c * t.esz;
                             if (span) {
                                 unsigned a = dst + o, m = (span >> 4) - 1;
                                 a ^= ((a >> 7) & m) << 4;
                                 o = a - dst;
                             }
                             if (gx < 0 || gy < 0 || gx >= (int)t.d0 || gy >= (int)t.d1)
                                 memset(d + o, 0, t.esz);
                             else
                                 memcpy(d + o,
                                        t.base + (uint64_t)gy * t.stride + (uint64_t)gx * t.esz,
                                        t.esz);
                         }
                 },
                 f, l, 0});
}
void fence_proxy_async(const char *, int) {
    cur->pfence = cur->clk = chk_tick();
}

// ---------------------------------------------------------------- wgmma (m64 n{N} k16, bf16, both
// operands K-major in shared memory)
void wgmma_fence(const char *, int) {
    cur->wg_fenced = true;
}
static WGroup &wgroup() {
    Block *b = cur->blk;
    size_t g = (size_t)cur->tid / 128;
    if (b->wg.size() <= g) b->wg.resize(g + 1);
    return b->wg[g];
}
void wgmma_ss(int N, float *d, uint64_t da, uint64_t db, int scale, const char *f, int l) {
    if (!cur->wg_fenced)
        report("wgmma", "%s:%d: wgmma without a wgmma.fence since the last wait (%s)", base(f), l,
               who(cur).c_str());
    WGroup &g = wgroup();
    unsigned i = cur->wg_issued++ - g.base;
    int me = cur->tid % 128;
    if (i == g.ops.size()) {
        WgOp o{};
        o.N = N;
        o.da = da;
        o.db = db;
        o.scale = scale;
        o.f = f;
        o.l = l;
        g.ops.push_back(o);
    }
    WgOp &o = g.ops[i];
    if (o.l != l || o.f != f || o.da != da || o.db != db || o.scale != scale) {
        report("wgmma",
               "%s:%d: threads of a warpgroup disagree on a wgmma (descriptors %#llx/%#llx vs "
               "%#llx/%#llx), %s",
               base(f), l, (unsigned long long)da, (unsigned long long)db, (unsigned long long)o.da,
               (unsigned long long)o.db, who(cur).c_str());
        abort_launch();
    }
    o.d[me] = d;
    if (++o.issued == 128) {
        for (Thread *t : g.waiters)
            make_ready(t);
        g.waiters.clear();
    }
}
void wgmma_commit(const char *, int) {
    cur->wg_commit.push_back(cur->wg_issued);
}
static void wg_operand(Block *b, uint64_t desc, int rows, float *out, const char *f,
                       int l) { // rows x 16
    unsigned start = (unsigned)(desc & 0x3fff) << 4, sbo = (unsigned)(desc >> 32 & 0x3fff) << 4,
             lbo = (unsigned)(desc >> 16 & 0x3fff) << 4, sw = (unsigned)(desc >> 62),
             bo = (unsigned)(desc >> 49 & 7);
    if (bo) {
        report("wgmma", "%s:%d: descriptor base offset not emulated", base(f), l);
        abort_launch();
    }
    for (int r = 0; r < rows; r++)
        for (int h = 0; h < 2; h++) { // two 16-byte chunks per row
            unsigned a;
            if (sw == 0)
                a = start + (unsigned)(r / 8) * sbo + (unsigned)(r % 8) * 16 +
                    (unsigned)h * lbo; // core matrices of 8x16 bytes
            else {
                unsigned pitch = sw == 1   ? 128
                                 : sw == 2 ? 64
                                           : 32,
                         m = sw == 1   ? 7
                             : sw == 2 ? 3
                                       : 1;
                a = start + (unsigned)(r / 8) * sbo + (unsigned)(r % 8) * pitch + (unsigned)h * 16;
                a ^= ((a >> 7) & m) << 4;
            }
            const uint16_t *p = (const uint16_t *)shared_pointer(a, 16, f, l);
            if (cfg.check) chk_access(p, 16, A_READ | A_ASYNC, loc_site(f, l), cur);
            for (int k = 0; k < 8; k++)
                out[r * 16 + h * 8 + k] = bf(p[k]);
        }
    (void)b;
}
static void wg_exec(WgOp &o) {
    static float A[64 * 16], B[256 * 16], Bt[16 * 256];
    Block *b = cur->blk;
    int N = o.N;
    wg_operand(b, o.da, 64, A, o.f, o.l);
    wg_operand(b, o.db, N, B, o.f, o.l);
    for (int n = 0; n < N; n++)
        for (int k = 0; k < 16; k++)
            Bt[k * N + n] = B[n * 16 + k];
    for (int r = 0; r < 64; r++) {
        float acc[256];
        int w = r / 16, rr = r % 16;
        auto el = [&](int n) -> float & {
            int lane = (rr % 8) * 4 + (n % 8) / 2;
            return o.d[w * 32 + lane][(n / 8) * 4 + (rr / 8) * 2 + n % 2];
        };
        for (int n = 0; n < N; n++)
            acc[n] = o.scale ? el(n) : 0.0f;
        for (int k = 0; k < 16; k++)
            for (int n = 0; n < N; n++)
                acc[n] += A[r * 16 + k] * Bt[k * N + n];
        for (int n = 0; n < N; n++)
            el(n) = acc[n];
    }
}
void wgmma_wait(int n, const char *f, int l) {
    WGroup *g = &wgroup();
    int idx = (int)cur->wg_commit.size() - 1 - n;
    cur->wg_fenced = false;
    if (idx < 0) return;
    unsigned target = cur->wg_commit[(size_t)idx];
    while (g->base < target) {
        WgOp &o = g->ops.front();
        if (o.issued == 128) {
            wg_exec(o);
            g->ops.pop_front();
            g->base++;
        } else {
            g->waiters.push_back(cur);
            wait_at("wgmma.wait_group", f, l, 0);
            block_cur();
            g = &wgroup();
        }
    }
}

// ---------------------------------------------------------------- running a grid
static void thread_exit() {
    Thread *t = cur;
    Block *b = t->blk;
    Warp *w = t->warp;
    if (!t->cp.empty())
        report("cp-async", "%s exits with cp.async copies not waited for (issued at %s:%d)",
               who(t).c_str(), base(t->cp[0].f), t->cp[0].l);
    if (b->wg.size() > (size_t)t->tid / 128 && b->wg[(size_t)t->tid / 128].base < t->wg_issued)
        report("wgmma", "%s exits with wgmma operations not waited for", who(t).c_str());
    t->state = DONE;
    b->nlive--;
    w->exited |= 1u << t->lane;
    spin_streak = 0;
    for (int i = 0; i < w->npc; i++)
        if (w->pc[i].mask >> t->lane & 1) {
            report("warp-mask", "%s exits while lanes %#x wait for it at %s %s:%d", who(t).c_str(),
                   w->pc[i].arrived, w->pc[i].what, base(w->pc[i].file), w->pc[i].line);
            w->pc[i].mask &= ~(1u << t->lane);
            if (w->pc[i].arrived == w->pc[i].mask) {
                coll_finish(w, i);
                break;
            }
        }
    Bar &r = b->bar[0];
    if (b->nlive && r.arrived && r.arrived + (b->nthreads - b->nlive) >= r.expected &&
        r.expected == b->nthreads) {
        report("exited-before-barrier", "%s exited without reaching %s %s:%d where %d threads wait",
               who(t).c_str(), r.what, base(r.file), r.line, r.arrived);
        bar_finish(b, r, 0);
    }
    Thread *n;
    while (!(n = pop())) {
        bool live = false;
        for (Block *x : resident)
            live |= x->nlive > 0;
        if (!live) {
            swap_ctx(t, &main_ctx);
            return;
        } // all done; the fiber is reused for the next block
        if (!run_some_async(true)) deadlock("deadlock");
    }
    resume(t, n);
}
bool run_kernel(Launch &L) {
    curl = &L;
    unsigned nb = L.grid.x * L.grid.y * L.grid.z;
    int nt = (int)(L.block.x * L.block.y * L.block.z);
    int R = L.coop ? (int)nb : std::max(1, std::min(cfg.resident, (int)nb));
    smem_init(std::max(R, smem_slots));
    L.used_end = SMEM_BASE + (unsigned)L.smem;
    if (!main_ctx.stk) {
        pthread_attr_t a;
        void *p;
        size_t n;
        pthread_getattr_np(pthread_self(), &a);
        pthread_attr_getstack(&a, &p, &n);
        pthread_attr_destroy(&a);
        main_ctx.stk = (char *)p;
        main_ctx.stksz = n;
#ifdef PLEC_EMU_USE_UCONTEXT
        main_ctx.sp = new ucontext_t;
#endif
    }
    while ((int)pool.size() < R * nt)
        pool.push_back(new Thread());
    size_t q = 64;
    while (q < (size_t)(R * nt) * 2 + 64)
        q *= 2;
    if (rq.size() < q) {
        rq.assign(q, nullptr);
    }
    rqm = rq.size() - 1;
    rqh = rqt = rq.size() * 1024;
    blockDim = L.block;
    gridDim = L.grid;
    std::vector<unsigned> order(nb);
    for (unsigned i = 0; i < nb; i++)
        order[i] = cfg.sched == S_LIFO ? nb - 1 - i : i;
    if (cfg.sched == S_RANDOM || cfg.sched == S_PCT)
        for (unsigned i = nb; i > 1; i--)
            std::swap(order[i - 1], order[rnd(i)]);
    std::vector<Block> blocks((size_t)R);
    uint64_t sw0 = nswitch;
    for (unsigned g = 0; g < nb && !L.failed; g += (unsigned)R) {
        resident.clear();
        rqh = rqt = rq.size() * 1024;
        spin_streak = 0;
        for (int s = 0; s < R && g + (unsigned)s < nb; s++) {
            Block &b = blocks[(size_t)s];
            b.lin = order[g + (unsigned)s];
            b.bidx = {b.lin % L.grid.x, b.lin / L.grid.x % L.grid.y, b.lin / (L.grid.x * L.grid.y)};
            b.slot = s;
            b.smem = smem_region + (size_t)s * SMEM_SLOT;
            b.nthreads = b.nlive = nt;
            for (Bar &r : b.bar) {
                r.arrived = r.cnt = r.any = 0;
                r.all = 1;
                r.waiting.clear();
                if (r.vc) vc_unref(r.vc);
                r.vc = nullptr;
                r.lastm = nullptr;
            }
            for (auto &m : b.mb) {
                vc_unref(m.second.cur);
                vc_unref(m.second.done);
            }
            b.async.clear();
            b.mbw.clear();
            b.wg.clear();
            b.mb.clear();
            for (auto &k : b.known)
                vc_unref(k.second);
            b.known.clear();
            ASAN_POISON_MEMORY_REGION(b.smem, SMEM_SLOT);
            ASAN_UNPOISON_MEMORY_REGION(b.smem + SMEM_BASE, L.smem);
            for (Static &x : L.statics) {
                ASAN_UNPOISON_MEMORY_REGION(b.smem + x.off, x.size);
                (void)x;
            }
            if (!PLEC_EMU_ASAN)
                memset(b.smem + SMEM_BASE, 0xff, L.used_end - SMEM_BASE);
            else {
                memset(b.smem + SMEM_BASE, 0xff, L.smem);
                for (Static &x : L.statics)
                    memset(b.smem + x.off, 0xff, x.size);
            }
            if (cfg.check) chk_block_begin(&b, L.used_end);
            int nw = (nt + 31) / 32;
            b.warps.assign((size_t)nw, Warp());
            b.th.resize((size_t)nt);
            for (int i = 0; i < nw; i++) {
                Warp &w = b.warps[(size_t)i];
                w.blk = &b;
                w.base = i * 32;
                w.n = std::min(32, nt - i * 32);
                w.lanes = w.n == 32 ? ~0u : (1u << w.n) - 1;
                w.exited = 0;
                w.npc = 0;
            }
            for (int i = 0; i < nt; i++) {
                Thread *t = b.th[(size_t)i] = pool[(size_t)(s * nt + i)];
                t->blk = &b;
                t->warp = &b.warps[(size_t)i / 32];
                t->tid = i;
                t->lane = i % 32;
                t->idx = {(unsigned)i % L.block.x, (unsigned)i / L.block.x % L.block.y,
                          (unsigned)i / (L.block.x * L.block.y)};
                t->state = READY;
                t->cp.clear();
                t->cpg.clear();
                t->cp_open = 0;
                t->clk = 1;
                t->pfence = t->fenced = 0;
                t->gthr = b.lin * 1024 + (unsigned)i;
                t->wg_issued = 0;
                t->wg_fenced = false;
                t->wg_commit.clear();
                if (cfg.check) chk_thread_begin(t);
            }
            // PCT: a random priority per warp, so that some warps run far ahead of others
            for (int i = 0; i < nw; i++) {
                uint64_t p = rnd() >> 16;
                for (int k = 0; k < b.warps[(size_t)i].n; k++)
                    b.th[(size_t)(i * 32 + k)]->prio = (p & ~0xffull) + (rnd() & 0xff);
            }
            resident.push_back(&b);
        }
        for (Block *b : resident)
            for (Thread *t : b->th)
                make_ready(t);
        Thread *n = pop();
        nswitch++;
        cur = n;
        threadIdx = n->idx;
        blockIdx = n->blk->bidx;
        if (!n->started) prepare_fiber(n);
        swap_ctx(&main_ctx, n);
        cur = nullptr;
    }
    L.switches = nswitch - sw0;
    resident.clear();
    curl = nullptr;
    return !L.failed;
}
extern "C" unsigned long long plec_emu_switches(void) {
    return nswitch;
}
} // namespace plec_emu
