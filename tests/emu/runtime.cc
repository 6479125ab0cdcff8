// emu_rt.cc -- replacement of libcudart: memory, streams, events, graphs.  Same prototypes as
// cuda_runtime_api.h, so host objects (C or C++) are compiled once and linked against either
// libcudart or this. All work is queued and run lazily, one operation at a time, in an order chosen
// by PLEC_EMU_SCHED/PLEC_EMU_SEED among those that stream order and events allow.  Every operation
// carries a vector clock over streams for the checker.
#include "tests/emu/emulator.h"
#include "tests/emu/internal.h"
#include <algorithm>
#include <csignal>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <mutex>
#include <set>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

struct CUstream_st {
    int id;
    bool nonblocking, legacy = false;
    int prio = 0;
    std::deque<int> q;
    std::vector<uint32_t> vc;
    uint32_t seq = 0;
    int last = -1;
    std::vector<int> deps;
    struct Graph *cap = nullptr;
    int capix = 0;
};
struct CUevent_st {
    int op = -1;
    std::vector<uint32_t> vc;
    uint64_t t = 0;
    struct Graph *cap = nullptr;
    int capev = -1;
};
struct Graph {
    struct N {
        int stream, kind;
        std::string name;
        std::function<void()> fn;
        int ev;
    };
    std::vector<N> n;
    int nstreams = 0, nev = 0;
    cudaStream_t origin = nullptr;
    std::vector<CUstream_st *> hidden;
};
struct CUgraph_st : Graph {};
struct CUgraphExec_st : Graph {};

namespace plec_emu {
static std::recursive_mutex &api_mu = *new std::recursive_mutex; // one host thread at a time
struct Lock {
    Lock() { api_mu.lock(); }
    ~Lock() { api_mu.unlock(); }
};
void api_lock() {
    api_mu.lock();
}
void api_unlock() {
    api_mu.unlock();
}
struct launch_shape {
    dim3 grid, block;
    size_t smem;
    cudaStream_t stream;
    int kind;
};
int tmap_encode_2d(void *out, const void *basep, int esz, uint64_t d0, uint64_t d1, uint64_t stride,
                   uint32_t b0, uint32_t b1, int swz);
std::vector<OpInfo> &ops = *new std::vector<OpInfo>;
int cur_op = -1;
struct QOp {
    std::function<void()> fn;
    std::vector<int> deps;
    bool done = false, dev = true;
    CUstream_st *s;
};
static auto &qops = *new std::deque<QOp>;
static auto &streams = *new std::vector<CUstream_st *>;
static auto &hostvc = *new std::vector<uint32_t>(1, 1u);
static int nstreams_live, nevents_live;
static cudaError_t last_err, sticky;
static int curdev;
static uint64_t nexec;
static unsigned nstream_ids = 1;
static cudaError_t fail(cudaError_t e) {
    if (e != cudaSuccess) last_err = e;
    return e;
}
static CUstream_st *new_stream(bool nb) {
    CUstream_st *s = new CUstream_st;
    s->id = (int)nstream_ids++;
    s->nonblocking = nb;
    streams.push_back(s);
    return s;
}
static CUstream_st *leg, *per; // the legacy default stream, and the per-thread one
static CUstream_st *S(cudaStream_t s) {
    if (!leg) {
        leg = new_stream(false);
        leg->legacy = true;
    }
    if (s == cudaStreamPerThread) {
        if (!per) per = new_stream(false);
        return per;
    }
    return s == nullptr || s == cudaStreamLegacy ? leg : s;
}
static void vmax(std::vector<uint32_t> &a, const std::vector<uint32_t> &b) {
    if (a.size() < b.size()) a.resize(b.size());
    for (size_t i = 0; i < b.size(); i++)
        a[i] = std::max(a[i], b[i]);
}
static uint32_t at(const std::vector<uint32_t> &v, int i) {
    return (size_t)i < v.size() ? v[(size_t)i] : 0;
}
uint32_t host_stamp() {
    return hostvc[0];
}
bool op_hb(int a, uint32_t st, int b) {
    if (a == b) return true;
    const std::vector<uint32_t> &v = b < 0 ? hostvc : ops[(size_t)b].vc;
    return a < 0 ? at(v, 0) >= st : at(v, ops[(size_t)a].stream) >= ops[(size_t)a].seq;
}
// ---------------------------------------------------------------- memory
char *dev_base, *pin_base;
size_t dev_sz, pin_sz;
static size_t dev_top, pin_top, dev_used;
static int window, nalloc;
static auto &allocs = *new std::map<char *, Alloc>;
static auto &registered = *new std::map<char *, size_t>;
static auto &graveyard = *new std::vector<CUstream_st *>;
static void prot(bool rw) {
    if (cfg.guard && dev_top) mprotect(dev_base, dev_top, rw ? PROT_READ | PROT_WRITE : PROT_NONE);
}
struct Window {
    Window() {
        if (!window++) prot(true);
    }
    ~Window() {
        if (!--window) prot(false);
    }
};
static struct sigaction old_segv;
static void segv(int sig, siginfo_t *si, void *uc) {
    char *p = (char *)si->si_addr;
    if (is_dev(p) && !window) {
        fprintf(stderr, "EMU: host-deref: the host touches device memory at %p (%s)\n", (void *)p,
                describe_ptr(p).c_str());
        fflush(0);
        _exit(67);
    }
    if (cur && p >= cur->stk - 4096 && p < cur->stk) {
        fprintf(stderr, "EMU: stack-overflow of %s: raise PLEC_EMU_STACK (KiB)\n",
                who(cur).c_str());
        _exit(68);
    }
    if (cur) {
        fprintf(
            stderr, "EMU: bad address %p in %s, near %s\n", (void *)p, who(cur).c_str(),
            site_str(pc_site((void *)((ucontext_t *)uc)->uc_mcontext.gregs[REG_RIP]) + 1).c_str());
        fflush(0);
        _exit(69);
    }
    sigaction(sig, &old_segv, 0);
    raise(sig);
}
static void mem_init() {
    if (dev_base) return;
    dev_sz = (size_t)64 << 30;
    pin_sz = (size_t)16 << 30;
    dev_base =
        (char *)mmap(0, dev_sz, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    pin_base = (char *)mmap(0, pin_sz, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
#if !PLEC_EMU_ASAN // AddressSanitizer installs its own
    static char alt[1 << 16];
    stack_t ss = {alt, 0, sizeof alt};
    sigaltstack(&ss, 0);
#endif
    struct sigaction sa {};
    sa.sa_sigaction = segv;
    sa.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &sa, &old_segv);
}
bool is_dev(const void *p) {
    return (uintptr_t)p - (uintptr_t)dev_base < dev_sz && dev_base;
}
bool is_pin(const void *p) {
    return (uintptr_t)p - (uintptr_t)pin_base < pin_sz && pin_base;
}
static const Alloc *find_any(const void *p) {
    static const Alloc *c;
    if (c && c->live && (const char *)p >= c->p && (const char *)p < c->p + c->n) return c;
    auto it = allocs.upper_bound((char *)const_cast<void *>(p));
    if (it == allocs.begin()) return nullptr;
    --it;
    return (const char *)p < it->second.p + it->second.cap ? (c = &it->second) : nullptr;
}
const Alloc *find_alloc(const void *p) {
    const Alloc *a = find_any(p);
    return a && a->live && (const char *)p < a->p + a->n ? a : nullptr;
}
std::string describe_ptr(const void *p) {
    char b[200];
    const Alloc *a = find_any(p);
    if (!a) {
        auto it = allocs.upper_bound((char *)const_cast<void *>(p));
        if (it == allocs.begin()) return "wild pointer";
        --it;
        a = &it->second;
    }
    long d = (long)((const char *)p - a->p);
    if (d < (long)a->n)
        snprintf(b, sizeof b, "%s allocation #%d+%ld (of %zu bytes%s)",
                 a->kind ? "pinned" : "device", a->id, d, a->n, a->live ? "" : ", FREED");
    else
        snprintf(b, sizeof b, "%ld bytes past the end of %s allocation #%d (%zu bytes)",
                 d - (long)a->n, a->kind ? "pinned" : "device", a->id, a->n);
    return b;
}
static cudaError_t mem_alloc(void **out, size_t n, int kind) {
    mem_init();
    if (!out) return fail(cudaErrorInvalidValue);
    if (!n) {
        *out = nullptr;
        return cudaSuccess;
    }
    if (!kind && dev_used + n > cfg.devmem) return fail(cudaErrorMemoryAllocation);
    size_t cap = (n + 255 + 256) & ~(size_t)255, al = n >= 65536 ? 4096 : 256;
    size_t &top = kind ? pin_top : dev_top;
    char *p = (kind ? pin_base : dev_base) + ((top + al - 1) & ~(al - 1));
    Window w;
    top = (size_t)(p - (kind ? pin_base : dev_base)) + cap;
    if (!kind) prot(true);
    ASAN_POISON_MEMORY_REGION(p, cap);
    ASAN_UNPOISON_MEMORY_REGION(p, n);
    memset(p, 0xff, n);
    Alloc a{p, n, cap, curdev, kind, true, ++nalloc, -1};
    allocs[p] = a;
    if (!kind) dev_used += n;
    *out = p;
    return cudaSuccess;
}
static cudaError_t mem_free(void *p, int kind) {
    auto it = allocs.find((char *)p);
    if (it == allocs.end() || !it->second.live || it->second.kind != kind)
        return fail(cudaErrorInvalidValue);
    it->second.live = false;
    if (!kind) dev_used -= it->second.n;
    if (cfg.check) chk_forget(p, it->second.n);
    ASAN_POISON_MEMORY_REGION(p, it->second.n);
    madvise((void *)(((uintptr_t)p + 4095) & ~(uintptr_t)4095),
            it->second.n > 8192 ? (it->second.n - 4096) & ~(size_t)4095 : 0, MADV_DONTNEED);
    return cudaSuccess;
}
int live_allocs(std::string *w) {
    int n = 0;
    char b[100];
    for (auto &a : allocs)
        if (a.second.live) {
            n++;
            snprintf(b, sizeof b, "%s allocation #%d of %zu bytes not freed; ",
                     a.second.kind ? "pinned" : "device", a.second.id, a.second.n);
            if (n < 6) *w += b;
        }
    if (nstreams_live > 0) {
        snprintf(b, sizeof b, "%d stream(s) not destroyed; ", nstreams_live);
        *w += b;
        n++;
    }
    if (nevents_live > 0) {
        snprintf(b, sizeof b, "%d event(s) not destroyed; ", nevents_live);
        *w += b;
        n++;
    }
    return n;
}
// ---------------------------------------------------------------- the queue
static void exec(int id) {
    QOp &q = qops[(size_t)id];
    CUstream_st *s = q.s;
    int sv = cur_op;
    cur_op = id;
    if (q.fn) {
        if (q.dev) {
            Window w;
            q.fn();
        } else
            q.fn();
    }
    cur_op = sv;
    q.done = true;
    q.fn = nullptr;
    s->q.pop_front();
    nexec++;
}
static bool runnable(CUstream_st *s) {
    if (s->q.empty()) return false;
    for (int d : qops[(size_t)s->q.front()].deps)
        if (!qops[(size_t)d].done) return false;
    return true;
}
static bool step() { // run one operation; which one is the schedule's choice
    std::vector<int> c;
    for (CUstream_st *s : streams)
        if (runnable(s)) c.push_back(s->q.front());
    if (c.empty()) return false;
    int id = cfg.sched == S_FIFO   ? *std::min_element(c.begin(), c.end())
             : cfg.sched == S_LIFO ? *std::max_element(c.begin(), c.end())
                                   : c[rnd(c.size())];
    exec(id);
    return true;
}
static cudaError_t run_until(int id) {
    while (id >= 0 && !qops[(size_t)id].done)
        if (!step()) {
            report("stream-deadlock", "no queued operation can run");
            return cudaErrorUnknown;
        }
    return sticky ? sticky : cudaSuccess;
}
static int enqueue(CUstream_st *s, const std::string &name, std::function<void()> fn,
                   bool dev = true, std::vector<int> deps = {},
                   const std::vector<uint32_t> *vc = nullptr) {
    int id = (int)qops.size();
    if (!s->nonblocking) {
        if (s->legacy) {
            for (CUstream_st *o : streams)
                if (o != s && !o->nonblocking && o->last >= 0) {
                    deps.push_back(o->last);
                    vmax(s->vc, o->vc);
                }
        } else {
            CUstream_st *lg = S(nullptr);
            if (lg->last >= 0) {
                deps.push_back(lg->last);
                vmax(s->vc, lg->vc);
            }
        }
    }
    vmax(s->vc, hostvc);
    if (vc) vmax(s->vc, *vc);
    if (s->vc.size() <= (size_t)s->id) s->vc.resize((size_t)s->id + 1);
    s->vc[(size_t)s->id] = ++s->seq;
    ops.push_back({name, s->id, s->seq, s->vc});
    qops.push_back({std::move(fn), std::move(deps), false, dev, s});
    s->q.push_back(id);
    s->last = id;
    hostvc[0]++;
    if (cfg.eager)
        run_until(id);
    else if (cfg.sched >= S_RANDOM && cfg.sched != S_LIFO)
        while (rnd(4) == 0 && step()) {
        }
    return id;
}
static cudaError_t issue(cudaStream_t st, const std::string &name, std::function<void()> fn,
                         bool dev = true) {
    CUstream_st *s = S(st);
    if (sticky) return fail(sticky);
    if (s->cap) {
        s->cap->n.push_back({s->capix, 0, name, std::move(fn), dev ? 0 : 1});
        return cudaSuccess;
    }
    enqueue(s, name, std::move(fn), dev);
    return cudaSuccess;
}
static cudaError_t sync_stream(CUstream_st *s) {
    if (s->cap) return fail(cudaErrorStreamCaptureUnsupported);
    cudaError_t e = run_until(s->last);
    vmax(hostvc, s->vc);
    return fail(e);
}
static cudaError_t sync_all() {
    for (CUstream_st *s : std::vector<CUstream_st *>(streams))
        if (s->cap) return fail(cudaErrorStreamCaptureUnsupported);
    while (step()) {
    }
    for (CUstream_st *s : streams)
        vmax(hostvc, s->vc);
    return fail(sticky);
}
static std::map<const void *, int> smem_limit;
cudaError_t enqueue_kernel(const char *name, const void *fn, const launch_shape &c,
                           std::function<void()> body) {
    Lock lk_;
    unsigned long nt = (unsigned long)c.block.x * c.block.y * c.block.z,
                  nb = (unsigned long)c.grid.x * c.grid.y * c.grid.z;
    if (!nt || nt > 1024 || c.block.z > 64 || !nb || c.grid.y > 65535 || c.grid.z > 65535 ||
        c.grid.x > 0x7fffffff) {
        report("launch", "%s: bad configuration grid (%u,%u,%u) block (%u,%u,%u)", name, c.grid.x,
               c.grid.y, c.grid.z, c.block.x, c.block.y, c.block.z);
        return fail(cudaErrorInvalidConfiguration);
    }
    size_t lim = 48 << 10;
    auto it = smem_limit.find(fn);
    if (it != smem_limit.end()) lim = (size_t)it->second;
    if (c.smem > lim) {
        report("launch", "%s: %zu bytes of dynamic shared memory, limit %zu (cudaFuncSetAttribute)",
               name, c.smem, lim);
        return fail(cudaErrorInvalidValue);
    }
    std::string nm = name;
    size_t p = nm.find_first_not_of("( ");
    if (p) nm = nm.substr(p);
    while (!nm.empty() && (nm.back() == ')' || nm.back() == ' '))
        nm.pop_back();
    launch_shape cc = c;
    return issue(c.stream, nm, [nm, cc, body] {
        if (sticky) return;
        Launch L;
        L.name = nm;
        L.grid = cc.grid;
        L.block = cc.block;
        L.smem = cc.smem;
        L.coop = cc.kind == 1;
        L.body = body;
        L.op = cur_op;
        if (!run_kernel(L)) {
            sticky = cudaErrorLaunchFailure;
            last_err = sticky;
        }
    });
}
static void do_copy(void *d, const void *s, size_t n, const std::vector<char> *staged) {
    if (cfg.check) {
        if (!staged) chk_access(s, n, A_READ | A_NOINIT, 0, nullptr);
        chk_access(d, n, A_WRITE, 0, nullptr);
    }
    memcpy(d, staged ? staged->data() : s, n);
}
static bool pinned(const void *p) {
    if (is_pin(p)) return true;
    for (auto &r : registered)
        if ((char *)const_cast<void *>(p) >= r.first &&
            (char *)const_cast<void *>(p) < r.first + r.second)
            return true;
    return false;
}
static cudaError_t copy(void *d, const void *s, size_t n, enum cudaMemcpyKind k, cudaStream_t st,
                        bool async) {
    if (!n) return cudaSuccess;
    bool dd = is_dev(d), sd = is_dev(s);
    if (k != cudaMemcpyDefault &&
        (((k == cudaMemcpyHostToDevice || k == cudaMemcpyDeviceToDevice) != dd) ||
         ((k == cudaMemcpyDeviceToHost || k == cudaMemcpyDeviceToDevice) != sd))) {
        report("memcpy", "direction %d does not match dst %s, src %s", (int)k,
               dd ? "device" : "host", sd ? "device" : "host");
        return fail(cudaErrorInvalidValue);
    }
    for (const void *p : {(const void *)d, s})
        if (is_dev(p)) {
            const Alloc *a = find_alloc(p);
            if (!a || (const char *)p + n > a->p + a->n) {
                report("memcpy", "%zu bytes run out of %s", n, describe_ptr(p).c_str());
                return fail(cudaErrorInvalidValue);
            }
        }
    const char *nm = dd && sd ? "memcpyD2D" : dd ? "memcpyH2D" : sd ? "memcpyD2H" : "memcpyH2H";
    cudaError_t e;
    if (!sd && !pinned(s)) {
        auto stg = std::make_shared<std::vector<char>>((const char *)s, (const char *)s + n);
        e = issue(st, nm, [=] { do_copy(d, s, n, stg.get()); });
    } else
        e = issue(st, nm, [=] { do_copy(d, s, n, nullptr); });
    if (e == cudaSuccess && (!async || (!dd && !pinned(d)))) e = sync_stream(S(st));
    return e;
}
} // namespace plec_emu
using namespace plec_emu;
extern "C" {
void plec_emu_reset(void) {
    Lock lk_;
    for (CUstream_st *s : streams) {
        s->q.clear();
        s->cap = nullptr;
        graveyard.push_back(s);
    }
    streams.clear();
    leg = per = nullptr;
    sticky = last_err = cudaSuccess;
    Window w;
    for (auto &a : allocs)
        if (a.second.live) mem_free(a.first, a.second.kind);
    nstreams_live = nevents_live = 0;
    registered.clear();
    plec_emu_clear_errors();
}
cudaError_t cudaMalloc(void **p, size_t n) {
    Lock lk_;
    return mem_alloc(p, n, 0);
}
cudaError_t cudaMallocManaged(void **p, size_t n, unsigned) {
    Lock lk_;
    return mem_alloc(p, n, 1);
}
cudaError_t cudaMallocHost(void **p, size_t n) {
    Lock lk_;
    return mem_alloc(p, n, 1);
}
cudaError_t cudaHostAlloc(void **p, size_t n, unsigned) {
    Lock lk_;
    return mem_alloc(p, n, 1);
}
cudaError_t cudaHostGetDevicePointer(void **d, void *h, unsigned) {
    Lock lk_;
    *d = h;
    return cudaSuccess;
}
cudaError_t cudaFree(void *p) {
    Lock lk_;
    if (!p) return cudaSuccess;
    cudaError_t e = sync_all();
    Window w;
    return e ? e : mem_free(p, 0);
}
cudaError_t cudaFreeHost(void *p) {
    Lock lk_;
    if (!p) return cudaSuccess;
    cudaError_t e = sync_all();
    return e ? e : mem_free(p, 1);
}
cudaError_t cudaMallocAsync(void **p, size_t n, cudaStream_t s) {
    Lock lk_;
    cudaError_t e = mem_alloc(p, n, 0);
    void *q = e ? nullptr : *p;
    if (!q) return e;
    return issue(s, "mallocAsync", [=] {
        if (cfg.check) chk_access(q, n, A_WRITE | A_NOINIT, 0, nullptr);
    });
}
cudaError_t cudaFreeAsync(void *p, cudaStream_t s) {
    Lock lk_;
    if (!p) return cudaSuccess;
    const Alloc *a = find_alloc(p);
    if (!a || a->p != p) return fail(cudaErrorInvalidValue);
    size_t n = a->n;
    return issue(s, "freeAsync", [=] {
        if (cfg.check) chk_access(p, n, A_WRITE | A_NOINIT, 0, nullptr);
        auto it = allocs.find((char *)p);
        it->second.live = false;
        dev_used -= n;
        memset(p, 0xff, n);
        ASAN_POISON_MEMORY_REGION(p, n);
    });
}
cudaError_t cudaHostRegister(void *p, size_t n, unsigned) {
    Lock lk_;
    registered[(char *)p] = n;
    return cudaSuccess;
}
cudaError_t cudaHostUnregister(void *p) {
    Lock lk_;
    registered.erase((char *)p);
    return cudaSuccess;
}
cudaError_t cudaMemcpy(void *d, const void *s, size_t n, enum cudaMemcpyKind k) {
    Lock lk_;
    return copy(d, s, n, k, 0, false);
}
cudaError_t cudaMemcpyAsync(void *d, const void *s, size_t n, enum cudaMemcpyKind k,
                            cudaStream_t st) {
    Lock lk_;
    return copy(d, s, n, k, st, true);
}
cudaError_t cudaMemcpy2DAsync(void *d, size_t dp, const void *s, size_t sp, size_t w, size_t h,
                              enum cudaMemcpyKind k, cudaStream_t st) {
    Lock lk_;
    for (size_t i = 0; i < h; i++) {
        cudaError_t e = copy((char *)d + i * dp, (const char *)s + i * sp, w, k, st, true);
        if (e) return e;
    }
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void *d, int v, size_t n, cudaStream_t s) {
    Lock lk_;
    const Alloc *a = find_alloc(d);
    if (n && (!a || (char *)d + n > a->p + a->n)) {
        report("memset", "%zu bytes run out of %s", n, describe_ptr(d).c_str());
        return fail(cudaErrorInvalidValue);
    }
    return issue(s, "memset", [=] {
        if (cfg.check) chk_access(d, n, A_WRITE, 0, nullptr);
        memset(d, v, n);
    });
}
cudaError_t cudaMemset(void *d, int v, size_t n) {
    Lock lk_;
    return cudaMemsetAsync(d, v, n, 0);
}
cudaError_t cudaMemGetInfo(size_t *f, size_t *t) {
    Lock lk_;
    *t = cfg.devmem;
    *f = cfg.devmem - dev_used;
    return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t *s) {
    Lock lk_;
    S(0);
    nstreams_live++;
    *s = new_stream(false);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *s, unsigned f) {
    Lock lk_;
    S(0);
    nstreams_live++;
    *s = new_stream(f & cudaStreamNonBlocking);
    return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t *s, unsigned f, int p) {
    Lock lk_;
    cudaStreamCreateWithFlags(s, f);
    (*s)->prio = p;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetStreamPriorityRange(int *lo, int *hi) {
    Lock lk_;
    *lo = 0;
    *hi = -5;
    return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t s) {
    Lock lk_;
    run_until(s->last);
    streams.erase(std::find(streams.begin(), streams.end(), s));
    graveyard.push_back(s);
    nstreams_live--;
    return cudaSuccess;
} // kept for reports
cudaError_t cudaStreamSynchronize(cudaStream_t s) {
    Lock lk_;
    return sync_stream(S(s));
}
cudaError_t cudaDeviceSynchronize(void) {
    Lock lk_;
    return sync_all();
}
cudaError_t cudaStreamQuery(cudaStream_t st) {
    Lock lk_;
    CUstream_st *s = S(st);
    if (s->q.empty()) {
        vmax(hostvc, s->vc);
        return sticky;
    }
    step();
    if (s->q.empty()) {
        vmax(hostvc, s->vc);
        return sticky;
    }
    return cudaErrorNotReady;
}
cudaError_t cudaEventCreateWithFlags(cudaEvent_t *e, unsigned) {
    Lock lk_;
    *e = new CUevent_st;
    nevents_live++;
    return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t *e) {
    Lock lk_;
    return cudaEventCreateWithFlags(e, 0);
}
cudaError_t cudaEventDestroy(cudaEvent_t e) {
    Lock lk_;
    delete e;
    nevents_live--;
    return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t e, cudaStream_t st) {
    Lock lk_;
    CUstream_st *s = S(st);
    if (s->cap) {
        e->cap = s->cap;
        e->capev = s->cap->nev++;
        s->cap->n.push_back({s->capix, 1, "eventRecord", nullptr, e->capev});
        return cudaSuccess;
    }
    e->cap = nullptr;
    e->op = enqueue(s, "eventRecord", nullptr, false);
    e->vc = ops[(size_t)e->op].vc;
    return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t e, cudaStream_t st, unsigned) {
    Lock lk_;
    return cudaEventRecord(e, st);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t st, cudaEvent_t e, unsigned) {
    Lock lk_;
    CUstream_st *s = S(st);
    if (e->cap) {
        if (!s->cap) {
            s->cap = e->cap;
            s->capix = e->cap->nstreams++;
        }
        s->cap->n.push_back({s->capix, 2, "waitEvent", nullptr, e->capev});
        return cudaSuccess;
    }
    if (e->op < 0) return cudaSuccess; // never recorded: no effect, as in CUDA
    enqueue(s, "waitEvent", nullptr, false, {e->op}, &e->vc);
    return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t e) {
    Lock lk_;
    if (e->op < 0) return cudaSuccess;
    cudaError_t r = run_until(e->op);
    vmax(hostvc, e->vc);
    return fail(r);
}
cudaError_t cudaEventQuery(cudaEvent_t e) {
    Lock lk_;
    if (e->op < 0) return cudaSuccess;
    if (!qops[(size_t)e->op].done) step();
    if (!qops[(size_t)e->op].done) return cudaErrorNotReady;
    vmax(hostvc, e->vc);
    return sticky;
}
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t a, cudaEvent_t b) {
    Lock lk_;
    if (a->op < 0 || b->op < 0) return fail(cudaErrorInvalidResourceHandle);
    *ms = 1e-3f * (float)(b->op - a->op);
    return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t s, cudaHostFn_t f, void *u) {
    Lock lk_;
    return issue(
        s, "hostFunc", [=] { f(u); }, false);
}
// graphs by stream capture: the calls are recorded and replayed on hidden streams
cudaError_t cudaStreamBeginCapture(cudaStream_t s, enum cudaStreamCaptureMode) {
    Lock lk_;
    if (S(s)->legacy) return fail(cudaErrorStreamCaptureUnsupported);
    Graph *g = new CUgraph_st;
    g->origin = s;
    s->cap = g;
    s->capix = g->nstreams++;
    return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t s, cudaGraph_t *g) {
    Lock lk_;
    Graph *c = s->cap;
    if (!c) return fail(cudaErrorIllegalState);
    std::set<int> open;
    for (auto &n : c->n) {
        if (n.stream == s->capix) {
            if (n.kind == 2) {
                for (auto &m : c->n)
                    if (m.kind == 1 && m.ev == n.ev) open.erase(m.stream);
            }
        } else
            open.insert(n.stream);
    }
    for (CUstream_st *x : streams)
        if (x->cap == c) x->cap = nullptr;
    if (!open.empty()) {
        report("capture", "a forked stream was not joined before cudaStreamEndCapture");
        *g = nullptr;
        return fail(cudaErrorStreamCaptureUnjoined);
    }
    *g = (CUgraph_st *)c;
    return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t s, enum cudaStreamCaptureStatus *st) {
    Lock lk_;
    *st = S(s)->cap ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
    return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t *x, cudaGraph_t g, unsigned long long) {
    Lock lk_;
    CUgraphExec_st *e = new CUgraphExec_st;
    (Graph &)*e = (Graph &)*g;
    for (int i = 0; i < e->nstreams; i++)
        e->hidden.push_back(new_stream(true));
    *x = e;
    return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) {
    Lock lk_;
    delete g;
    return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g) {
    Lock lk_;
    sync_all();
    delete g;
    return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t g, cudaStream_t st) {
    Lock lk_;
    CUstream_st *s = S(st);
    int start = enqueue(s, "graphBegin", nullptr, false);
    std::vector<uint32_t> vc = ops[(size_t)start].vc;
    std::vector<int> evop((size_t)g->nev, -1);
    std::vector<bool> begun((size_t)g->nstreams);
    for (auto &n : g->n) {
        CUstream_st *h = g->hidden[(size_t)n.stream];
        if (!begun[(size_t)n.stream]) {
            enqueue(h, "graphFork", nullptr, false, {start}, &vc);
            begun[(size_t)n.stream] = true;
        }
        if (n.kind == 0)
            enqueue(h, n.name, n.fn, n.ev == 0);
        else if (n.kind == 1)
            evop[(size_t)n.ev] = enqueue(h, n.name, nullptr, false);
        else {
            int d = evop[(size_t)n.ev];
            enqueue(h, n.name, nullptr, false, {d}, &ops[(size_t)d].vc);
        }
    }
    for (CUstream_st *h : g->hidden)
        if (h->last >= 0) {
            std::vector<uint32_t> v = h->vc;
            enqueue(s, "graphJoin", nullptr, false, {h->last}, &v);
        }
    return cudaSuccess;
}
cudaError_t cudaGetLastError(void) {
    Lock lk_;
    cudaError_t e = last_err;
    last_err = sticky;
    return e;
}
cudaError_t cudaPeekAtLastError(void) {
    Lock lk_;
    return last_err;
}
const char *cudaGetErrorString(cudaError_t e) {
    static char b[64];
    snprintf(b, sizeof b, "emulated CUDA error %d", (int)e);
    return e ? b : "no error";
}
const char *cudaGetErrorName(cudaError_t e) {
    return cudaGetErrorString(e);
}
cudaError_t cudaGetDeviceCount(int *n) {
    Lock lk_;
    *n = cfg.devices;
    return cudaSuccess;
}
cudaError_t cudaSetDevice(int d) {
    Lock lk_;
    if (d < 0 || d >= cfg.devices) return fail(cudaErrorInvalidDevice);
    curdev = d;
    return cudaSuccess;
}
cudaError_t cudaGetDevice(int *d) {
    Lock lk_;
    *d = curdev;
    return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int *c, int, int) {
    Lock lk_;
    *c = 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
    Lock lk_;
    return cudaSuccess;
}
cudaError_t cudaDeviceReset(void) {
    Lock lk_;
    return sync_all();
}
cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int) {
    Lock lk_;
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "CPU emulation of sm_%d", cfg.cc);
    p->major = cfg.cc / 10;
    p->minor = cfg.cc % 10;
    p->multiProcessorCount = cfg.sms;
    p->warpSize = 32;
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = cfg.cc == 120 ? 99 << 10 : cfg.cc < 90 ? 163 << 10 : 227 << 10;
    p->sharedMemPerMultiprocessor = 228 << 10;
    p->totalGlobalMem = cfg.devmem;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->regsPerBlock = 65536;
    p->l2CacheSize = 50 << 20;
    p->unifiedAddressing = 1;
    p->concurrentKernels = 1;
    return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int *v, enum cudaDeviceAttr a, int) {
    Lock lk_;
    cudaDeviceProp p;
    cudaGetDeviceProperties(&p, 0);
    switch (a) {
    case cudaDevAttrComputeCapabilityMajor: *v = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *v = p.minor; break;
    case cudaDevAttrMultiProcessorCount: *v = cfg.sms; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *v = (int)p.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *v = 48 << 10; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *v = 228 << 10; break;
    case cudaDevAttrWarpSize: *v = 32; break;
    case cudaDevAttrL2CacheSize: *v = p.l2CacheSize; break;
    case cudaDevAttrCooperativeLaunch: *v = 1; break;
    default: *v = 0;
    }
    return cudaSuccess;
}
cudaError_t cudaFuncSetAttribute(const void *f, enum cudaFuncAttribute a, int v) {
    Lock lk_;
    if (a == cudaFuncAttributeMaxDynamicSharedMemorySize) {
        cudaDeviceProp p;
        cudaGetDeviceProperties(&p, 0);
        if (v > (int)p.sharedMemPerBlockOptin) return fail(cudaErrorInvalidValue);
        smem_limit[f] = std::max(v, 48 << 10);
    }
    return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *) {
    Lock lk_;
    memset(a, 0, sizeof *a);
    a->maxThreadsPerBlock = 1024;
    a->numRegs = 128;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *, int bs,
                                                          size_t smem) {
    Lock lk_;
    *n = std::min(2048 / bs, (int)((228 << 10) / (smem + 1024)));
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *f, int bs,
                                                                   size_t smem, unsigned) {
    Lock lk_;
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(n, f, bs, smem);
}
cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *p) {
    Lock lk_;
    memset(a, 0, sizeof *a);
    a->type = is_dev(p)   ? cudaMemoryTypeDevice
              : pinned(p) ? cudaMemoryTypeHost
                          : cudaMemoryTypeUnregistered;
    a->devicePointer = a->type ? const_cast<void *>(p) : nullptr;
    a->hostPointer = is_dev(p) ? nullptr : const_cast<void *>(p);
    return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int *v) {
    Lock lk_;
    *v = 13000;
    return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int *v) {
    Lock lk_;
    *v = 13000;
    return cudaSuccess;
}
CUresult cuTensorMapEncodeTiled(CUtensorMap *m, CUtensorMapDataType ty, cuuint32_t rank, void *g,
                                const cuuint64_t *dim, const cuuint64_t *str, const cuuint32_t *box,
                                const cuuint32_t *es, CUtensorMapInterleave il,
                                CUtensorMapSwizzle sw, CUtensorMapL2promotion,
                                CUtensorMapFloatOOBfill) {
    static const int sz[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2, 4, 4, 4};
    if (rank != 2 || (int)ty > 12 || il != CU_TENSOR_MAP_INTERLEAVE_NONE || (int)sw > 3 ||
        es[0] != 1 || es[1] != 1)
        return CUDA_ERROR_NOT_SUPPORTED;
    return tmap_encode_2d(m, g, sz[ty], dim[0], dim[1], str[0], box[0], box[1], (int)sw)
               ? CUDA_ERROR_INVALID_VALUE
               : CUDA_SUCCESS;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char *sym, void **f, unsigned,
                                             unsigned long long,
                                             enum cudaDriverEntryPointQueryResult *st) {
    Lock lk_;
    if (!strcmp(sym, "cuTensorMapEncodeTiled")) {
        *f = (void *)cuTensorMapEncodeTiled;
        if (st) *st = cudaDriverEntryPointSuccess;
        return cudaSuccess;
    }
    *f = nullptr;
    if (st) *st = cudaDriverEntryPointSymbolNotFound;
    return fail(cudaErrorSymbolNotFound);
}
}
