// emu_check.cc -- race / uninitialised / out-of-bounds checker.  The compiler's -fsanitize=thread
// instrumentation calls __tsan_readN/__tsan_writeN; those are defined HERE instead of linking
// libtsan, so every memory access of the kernels (and of host C code compiled the same way) passes
// through a checker that knows blocks, barriers, streams and events.  Happens-before is vector
// clocks, so detection does not depend on the schedule.
#include "tests/emu/internal.h"
#include <algorithm>
#include <cstdarg>
#include <link.h>
#include <set>
#include <sys/mman.h>
#include <unistd.h>

namespace plec_emu {
void maybe_preempt();
// ---------------------------------------------------------------- sites (program counters or
// file:line)
static std::vector<std::pair<const char *, int>> locs;
static std::unordered_map<uint64_t, uint32_t> loc_ix;
static uintptr_t bias_;
static bool bias_set;
uint32_t loc_site(const char *f, int l) {
    uint64_t k = (uint64_t)(uintptr_t)f * 1000003u + (unsigned)l;
    auto it = loc_ix.find(k);
    if (it != loc_ix.end()) return it->second;
    locs.push_back({f, l});
    return loc_ix[k] = 0x80000000u | (uint32_t)(locs.size() - 1);
}
static int cb(struct dl_phdr_info *i, size_t, void *) {
    bias_ = i->dlpi_addr;
    bias_set = true;
    return 1;
}
uint32_t pc_site(const void *pc) {
    if (!bias_set) dl_iterate_phdr(cb, 0);
    return (uint32_t)((uintptr_t)pc - bias_);
}
std::string site_str(uint32_t s) {
    char b[300];
    if (s & 0x80000000u) {
        auto &p = locs[s & 0x7fffffff];
        const char *x = strrchr(p.first, '/');
        snprintf(b, sizeof b, "%s:%d", x ? x + 1 : p.first, p.second);
        return b;
    }
    static std::unordered_map<uint32_t, std::string> cache;
    auto it = cache.find(s);
    if (it != cache.end()) return it->second;
    char exe[256];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof exe - 1);
    exe[n > 0 ? n : 0] = 0;
    snprintf(b, sizeof b, "addr2line -s -i -e '%s' %#x 2>/dev/null", exe, s - 1);
    std::string r;
    FILE *p = popen(b, "r");
    if (p) {
        char ln[256];
        while (fgets(ln, sizeof ln, p)) {
            ln[strcspn(ln, "\n")] = 0;
            char *par = strstr(ln, " (disc");
            if (par) *par = 0;
            if (!r.empty()) r += " < ";
            r += ln;
        }
        pclose(p);
    }
    if (r.empty()) {
        snprintf(b, sizeof b, "pc %#x", s);
        r = b;
    }
    return cache[s] = r;
}
static bool once(const char *kind, uint32_t a, uint32_t b) { // once per pair of source lines
    static std::set<std::tuple<std::string, uint32_t, uint32_t>> seen;
    if (!seen.insert({kind, a, b}).second) return false;
    static std::set<std::string> lines;
    return lines.insert(std::string(kind) + "|" + site_str(a) + "|" + (b ? site_str(b) : ""))
        .second;
}

// ---------------------------------------------------------------- vector clocks
static uint32_t
    G; // one global counter gives all clock values, so they are comparable between blocks
static std::vector<VC *> vc_free;
static VC *vc_new() {
    VC *v;
    if (!vc_free.empty()) {
        v = vc_free.back();
        vc_free.pop_back();
    } else
        v = (VC *)malloc(sizeof(VC) + sizeof(uint32_t) * 1024);
    v->ref = 1;
    return v;
}
VC *vc_ref(VC *v) {
    if (v) v->ref++;
    return v;
}
void vc_unref(VC *v) {
    if (v && --v->ref == 0) vc_free.push_back(v);
}
static VC *vc_own(VC *v, int n) {
    if (v && v->ref == 1) return v;
    VC *x = vc_new();
    if (v)
        memcpy(x->c, v->c, sizeof(uint32_t) * (size_t)n);
    else
        memset(x->c, 0, sizeof(uint32_t) * (size_t)n);
    vc_unref(v);
    return x;
}
static void vc_max(VC *a, const VC *b, int n) {
    if (!b || a == b) return;
    uint32_t *__restrict x = a->c;
    const uint32_t *__restrict y = b->c;
    for (int i = 0; i < n; i++)
        x[i] = x[i] > y[i] ? x[i] : y[i];
}
void chk_release(Thread *t, VC **v) {
    int n = t->blk->nthreads;
    static const VC *last;
    static VC *lastv;
    if (*v && lastv == *v && last == t->vc && (*v)->ref == 1) { /* t's history is already in */
    } else {
        *v = vc_own(*v, n);
        vc_max(*v, t->vc, n);
        last = t->vc;
        lastv = *v;
    }
    (*v)->c[t->tid] = t->clk;
    t->clk = ++G;
}
void chk_acquire(Thread *t, VC *v) {
    if (!v) return;
    int n = t->blk->nthreads;
    bool sub = true; // common case: v already contains all t knows -> share the array
    if (t->vc && t->vc != v) {
        for (int i = 0; i < n; i++)
            sub &= t->vc->c[i] <= v->c[i];
    }
    if (sub) {
        VC *o = t->vc;
        t->vc = vc_ref(v);
        vc_unref(o);
    } else {
        t->vc = vc_own(t->vc, n);
        vc_max(t->vc, v, n);
    }
}
void chk_join(Thread **ts, int n) {
    VC *v = nullptr;
    for (int i = 0; i < n; i++)
        chk_release(ts[i], &v);
    for (int i = 0; i < n; i++) {
        VC *o = ts[i]->vc;
        ts[i]->vc = vc_ref(v);
        vc_unref(o);
    }
    vc_unref(v);
}
void chk_thread_begin(Thread *t) {
    vc_unref(t->vc);
    vc_unref(t->fence_vc);
    t->vc = t->fence_vc = nullptr;
    t->clk = ++G;
}
uint32_t chk_tick() {
    return ++G;
}
void chk_fence(Thread *t) {
    t->fenced = t->clk;
    t->clk = ++G;
    VC *o = t->fence_vc;
    t->fence_vc = vc_ref(t->vc);
    vc_unref(o);
}

// ---------------------------------------------------------------- shadow memory: 4 records for
// every 4-byte word
struct Rec {
    uint32_t op : 24, mask : 4, fl : 4;
    uint32_t thr, clk, site;
};
struct alignas(64) Cell {
    Rec w[2], r[2];
};
static_assert(sizeof(Cell) == 64, "one cache line");
static constexpr uint32_t HOST_OP = 0xffffff, HOST_THR = 0xffffffff, OP_THR = 0xfffffffe;
struct Page {
    Cell c[1024];
    uint8_t init[1024];
};
static std::vector<Page *> devpg, pinpg;
static Page *page(std::vector<Page *> &v, size_t total, size_t off) {
    if (v.empty()) v.resize((total >> 12) + 1);
    Page *&p = v[off >> 12];
    if (!p) p = (Page *)calloc(1, sizeof(Page));
    return p;
}
static std::vector<Cell> shc;
static std::vector<uint8_t> shinit;
static constexpr unsigned SW = SMEM_SLOT / 4;
void chk_block_begin(Block *b, unsigned used) {
    size_t need = (size_t)smem_slots * SW;
    if (shc.size() < need) {
        shc.resize(need);
        shinit.resize(need);
    }
    if (!used) return;
    size_t o = (size_t)b->slot * SW, n = (used + 3) / 4;
    memset((void *)&shc[o], 0, n * sizeof(Cell));
    memset(&shinit[o], 0, n);
}
void chk_smem_clear(Block *b, unsigned off, unsigned n) {
    size_t o = (size_t)b->slot * SW + off / 4, k = (n + 3) / 4;
    memset((void *)&shc[o], 0, k * sizeof(Cell));
    memset(&shinit[o], 0, k);
}
// release/acquire between blocks through atomics (or ld.acquire/st.release): what a thread
// publishes is what it, or the writing thread itself, has fenced; what is acquired becomes known to
// the whole acquiring block (lenient).
static std::map<const void *, std::map<unsigned, VC *>> &syncs =
    *new std::map<const void *, std::map<unsigned, VC *>>;
static int syncs_op = -2;
static void know(std::map<unsigned, VC *> &m, unsigned blk, VC *v, int n) {
    VC *&x = m[blk];
    if (x == v) return;
    if (!x)
        x = vc_ref(v);
    else {
        x = vc_own(x, n);
        vc_max(x, v, n);
    }
}
void chk_sync_loc(const void *p, Thread *t, bool acq, bool rel) {
    if (!t || !(is_dev(p) || is_pin(p))) return;
    if (syncs_op != cur_op) {
        for (auto &a : syncs)
            for (auto &b : a.second)
                vc_unref(b.second);
        syncs.clear();
        syncs_op = cur_op;
    }
    auto &s = syncs[p];
    Block *b = t->blk;
    int n = b->nthreads;
    if (acq)
        for (auto &k : s)
            if (k.first != b->lin) know(b->known, k.first, k.second, n);
    if (rel) {
        VC *v = vc_new();
        for (int u = 0; u < n; u++) {
            uint32_t hb = t->vc ? t->vc->c[u] : 0, a = t->fence_vc ? t->fence_vc->c[u] : 0,
                     f = b->th[(size_t)u]->fenced;
            v->c[u] = u == t->tid ? f : std::max(a, std::min(f, hb));
        }
        know(s, b->lin, v, n);
        vc_unref(v);
        for (auto &k : b->known)
            know(s, k.first, k.second, n);
    }
}
static bool ordered(const Rec &r, Thread *t, bool shared) {
    if (!shared) {
        uint32_t op = cur_op < 0 ? HOST_OP : (uint32_t)cur_op;
        if (r.op != op) return op_hb(r.op == HOST_OP ? -1 : (int)r.op, r.clk, cur_op);
        if (!t) return true;
        if (r.thr / 1024 != t->blk->lin) {
            auto it = t->blk->known.find(r.thr / 1024);
            return it != t->blk->known.end() && it->second->c[r.thr % 1024] >= r.clk;
        }
    }
    uint32_t tid = shared ? r.thr : r.thr % 1024;
    return (int)tid == t->tid || (t->vc && t->vc->c[tid] >= r.clk);
}
static std::string rec_str(const Rec &r, bool shared) {
    char b[400];
    std::string s = site_str(r.site);
    if (r.op == HOST_OP && !shared) {
        snprintf(b, sizeof b, "the host at %s", s.c_str());
        return b;
    }
    if (!shared && r.thr == OP_THR) {
        snprintf(b, sizeof b, "%s (op %u, stream %d)", ops[r.op].name.c_str(), (unsigned)r.op,
                 ops[r.op].stream);
        return b;
    }
    if (shared)
        snprintf(b, sizeof b, "thread %u (warp %u) at %s", r.thr, r.thr / 32, s.c_str());
    else
        snprintf(b, sizeof b, "%s (op %u, stream %d) block %u thread %u at %s",
                 ops[r.op].name.c_str(), (unsigned)r.op, ops[r.op].stream, r.thr / 1024,
                 r.thr % 1024, s.c_str());
    return b;
}
static std::string me_str(Thread *t, uint32_t site) {
    char b[400];
    if (t)
        snprintf(b, sizeof b, "%s at %s", who(t).c_str(), site_str(site).c_str());
    else if (cur_op >= 0)
        snprintf(b, sizeof b, "%s (op %d, stream %d)", ops[(size_t)cur_op].name.c_str(), cur_op,
                 ops[(size_t)cur_op].stream);
    else
        snprintf(b, sizeof b, "the host at %s", site_str(site).c_str());
    return b;
}
static void race(const char *kind, const void *p, const Rec &r, bool rw, Thread *t, int fl,
                 uint32_t site, bool shared) {
    if (!shared && r.op != (cur_op < 0 ? HOST_OP : (uint32_t)cur_op)) kind = "stream-race";
    if (!once(kind, r.site, site)) return;
    std::string where;
    if (shared) {
        char b[64];
        snprintf(b, sizeof b, "shared+%#lx",
                 (unsigned long)((uintptr_t)p - (uintptr_t)t->blk->smem - SMEM_BASE));
        where = b;
    } else
        where = describe_ptr(p);
    report(kind, "%s of %s by %s\n      is not ordered after the %s by %s",
           (fl & A_WRITE) ? "write" : "read", where.c_str(), me_str(t, site).c_str(),
           rw ? "write" : "read", rec_str(r, shared).c_str());
}
static void word(Cell &c, uint8_t &init, unsigned m, const void *p, int fl, uint32_t site,
                 Thread *t, bool shared) {
    Rec n;
    n.op = shared ? 0 : cur_op < 0 ? HOST_OP : (uint32_t)cur_op;
    n.mask = m & 15;
    n.fl = (unsigned)fl & 7;
    n.thr = t ? (shared ? (uint32_t)t->tid : t->gthr) : cur_op < 0 ? HOST_THR : OP_THR;
    n.clk = t ? t->clk : cur_op < 0 ? host_stamp() : 0;
    n.site = site;
    bool at = fl & A_ATOMIC;
    if (!(fl & A_WRITE)) {
        if ((init & m) != m && !(fl & A_NOINIT) && once("uninit", site, 0)) {
            std::string where;
            char b[64];
            if (shared) {
                snprintf(b, sizeof b, "shared+%#lx",
                         (unsigned long)((uintptr_t)p - (uintptr_t)t->blk->smem - SMEM_BASE));
                where = b;
            } else
                where = describe_ptr(p);
            report("uninit", "read of uninitialised %s by %s", where.c_str(),
                   me_str(t, site).c_str());
        }
        for (Rec &w : c.w)
            if (w.mask & m) {
                if (!(at && (w.fl & A_ATOMIC)) && !ordered(w, t, shared))
                    race("race", p, w, true, t, fl, site, shared);
                else if (shared && (fl & A_ASYNC) && !(w.fl & A_ASYNC) &&
                         t) { // async proxy reads what the generic proxy wrote
                    Thread *wt = t->blk->th[w.thr];
                    if (w.clk >= wt->pfence && once("proxy-fence", w.site, site))
                        report("proxy-fence",
                               "wgmma/TMA at %s reads shared memory written by ordinary stores of "
                               "thread %u at %s without fence.proxy.async",
                               site_str(site).c_str(), w.thr, site_str(w.site).c_str());
                }
            }
        int k = -1;
        for (int i = 0; i < 2; i++)
            if (!c.r[i].mask || (c.r[i].thr == n.thr && c.r[i].op == n.op)) {
                k = i;
                break;
            }
        if (k < 0)
            for (int i = 0; i < 2; i++)
                if (ordered(c.r[i], t, shared)) {
                    k = i;
                    break;
                }
        if (k < 0) k = (int)(rnd() & 1);
        if (c.r[k].mask && c.r[k].thr == n.thr && c.r[k].op == n.op && c.r[k].clk == n.clk)
            n.mask |= c.r[k].mask;
        c.r[k] = n;
    } else {
        for (Rec &w : c.w)
            if ((w.mask & m) && !(at && (w.fl & A_ATOMIC)) && !ordered(w, t, shared))
                race("race", p, w, true, t, fl, site, shared);
        for (Rec &r : c.r)
            if ((r.mask & m) && !(at && (r.fl & A_ATOMIC)) && !ordered(r, t, shared))
                race("race", p, r, false, t, fl, site, shared);
        if (fl & A_NOINIT)
            init &= (uint8_t)~m;
        else
            init |= (uint8_t)m;
        int k = -1;
        for (int i = 0; i < 2; i++)
            if (!(c.w[i].mask & ~m)) {
                k = i;
                break;
            }
        if (k < 0)
            for (int i = 0; i < 2; i++)
                if (c.w[i].thr == n.thr && c.w[i].op == n.op && c.w[i].clk == n.clk) {
                    k = i;
                    n.mask |= c.w[i].mask;
                    break;
                }
        if (k < 0) k = (int)(rnd() & 1);
        c.w[k] = n;
        Rec &o = c.w[k ^ 1];
        if (o.mask && !(o.mask & ~m)) o.mask = 0;
        for (Rec &r : c.r)
            if (!(r.mask & ~m)) r.mask = 0; // FastTrack: a write supersedes the reads before it
    }
}
[[noreturn]] void abort_launch();
static void oob(const void *p, size_t n, int fl, uint32_t site, Thread *t, const char *sp) {
    std::string d = is_dev(p) || is_pin(p) ? describe_ptr(p) : "";
    report("oob", "%s of %zu bytes at %p (%s) out of bounds by %s %s",
           (fl & A_WRITE) ? "write" : "read", n, p, sp, me_str(t, site).c_str(), d.c_str());
    if (t && t == cur) abort_launch();
}
struct Bank {
    uint64_t req = 0, waves = 0, ideal = 0;
    bool glob = false;
};
static std::map<uint32_t, Bank> banks;
static int want_bank = -1;
static bool bank_on() {
    if (want_bank < 0) {
        const char *s = getenv("PLEC_EMU_BANK");
        want_bank = s && atoi(s);
    }
    return want_bank;
}
void chk_access(const void *p, size_t n, int fl, uint32_t site, Thread *t) {
    uintptr_t a = (uintptr_t)p, so = a - (uintptr_t)smem_region;
    if (so < smem_region_sz) {
        if (!t) return;
        unsigned off = (unsigned)(so % SMEM_SLOT);
        int slot = (int)(so / SMEM_SLOT);
        bool ok = slot == t->blk->slot && off >= SMEM_BASE && off + n <= SMEM_BASE + curl->smem;
        if (!ok && slot == t->blk->slot)
            for (Static &s : curl->statics)
                ok |= off >= s.off && off + n <= s.off + s.size;
        if (!ok) {
            oob(p, n, fl, site, t,
                slot == t->blk->slot ? "shared memory" : "another block's shared memory");
            return;
        }
        if (n >= 2 && (n & (n - 1)) == 0 && n <= 16 && a % n && once("misaligned", site, 0))
            report("misaligned", "%zu-byte shared access at %s", n, me_str(t, site).c_str());
        if (fl & A_WRITE)
            for (WGroup &g : t->blk->wg)
                for (WgOp &o : g.ops)
                    if (o.issued == 128)
                        for (int h = 0; h < 2; h++) {
                            uint64_t d = h ? o.db : o.da;
                            unsigned lo = (unsigned)(d & 0x3fff) << 4,
                                     len = (unsigned)((h ? o.N : 64) / 8) *
                                           ((unsigned)(d >> 32 & 0x3fff) << 4);
                            if (off < lo - lo % 128 + len && off + n > lo - lo % 128 &&
                                once("wgmma-overwrite", site, loc_site(o.f, o.l)))
                                report("wgmma-overwrite",
                                       "shared memory written by %s while the wgmma issued at %s "
                                       "that reads it has not been waited for",
                                       me_str(t, site).c_str(),
                                       site_str(loc_site(o.f, o.l)).c_str());
                        }
        if (bank_on() && !(fl & (A_ASYNC | A_NOINIT | A_ATOMIC)))
            chk_lane_access(t, off, (int)n, fl, site);
        for (size_t i = 0; i < n;) {
            unsigned b = (off + i) & 3, k = (unsigned)std::min<size_t>(4 - b, n - i);
            size_t w = (size_t)slot * SW + (off + i) / 4;
            word(shc[w], shinit[w], ((1u << k) - 1) << b, (const char *)p + i, fl, site, t, true);
            i += k;
        }
        return;
    }
    bool dev = is_dev(p);
    if (!dev && !is_pin(p)) return;
    const Alloc *al = find_alloc(p);
    if (!al || (const char *)p + n > al->p + al->n) {
        if (t || cur_op >= 0 || !dev)
            oob(p, n, fl, site, t, dev ? "device memory" : "pinned memory");
        return;
    }
    if (t && n >= 2 && (n & (n - 1)) == 0 && n <= 16 && a % n && once("misaligned", site, 0))
        report("misaligned", "%zu-byte global access at %s", n, me_str(t, site).c_str());
    if (t && bank_on() && !(fl & A_ATOMIC) && n <= 16)
        chk_lane_access(t, (unsigned)(a & 0xffffffff), (int)n, fl | 0x100, site);
    size_t off = a - (uintptr_t)(dev ? dev_base : pin_base);
    for (size_t i = 0; i < n;) {
        size_t o = off + i;
        Page *pg = page(dev ? devpg : pinpg, dev ? dev_sz : pin_sz, o);
        unsigned b = o & 3, k = (unsigned)std::min<size_t>(4 - b, n - i);
        word(pg->c[(o >> 2) & 1023], pg->init[(o >> 2) & 1023], ((1u << k) - 1) << b,
             (const char *)p + i, dev ? fl : fl | ((fl & A_WRITE) ? 0 : A_NOINIT), site, t, false);
        i += k;
    }
}
void chk_mark_init(const void *p, size_t n, bool init) {
    bool dev = is_dev(p);
    if (!dev && !is_pin(p)) return;
    size_t off = (uintptr_t)p - (uintptr_t)(dev ? dev_base : pin_base);
    for (size_t i = 0; i < n; i += 4) {
        size_t o = off + i;
        Page *pg = page(dev ? devpg : pinpg, dev ? dev_sz : pin_sz, o);
        pg->init[(o >> 2) & 1023] = init ? 15 : 0;
    }
}
void chk_forget(const void *p, size_t n) {
    bool dev = is_dev(p);
    size_t off = (uintptr_t)p - (uintptr_t)(dev ? dev_base : pin_base);
    auto &v = dev ? devpg : pinpg;
    for (size_t i = 0; i < n; i += 4) {
        size_t o = off + i;
        if (v.empty()) return;
        Page *pg = v[o >> 12];
        if (pg) {
            memset((void *)&pg->c[(o >> 2) & 1023], 0, sizeof(Cell));
            pg->init[(o >> 2) & 1023] = 0;
        }
    }
}
// ---------------------------------------------------------------- bank conflicts and coalescing
// (PLEC_EMU_BANK=1)
static unsigned waves(const unsigned *addr, int n, int bytes) {
    unsigned tot = 0;
    int per = bytes <= 4 ? 32 : bytes == 8 ? 16 : 8;
    for (int g = 0; g < n; g += per) {
        std::set<unsigned> w[32];
        unsigned mx = 0;
        for (int i = g; i < n && i < g + per; i++)
            for (int b = 0; b < std::max(bytes, 4); b += 4) {
                unsigned x = addr[i] / 4 + (unsigned)b / 4;
                w[x % 32].insert(x);
            }
        for (auto &s : w)
            mx = std::max(mx, (unsigned)s.size());
        tot += mx;
    }
    return tot;
}
void chk_bank(const void *const *pa, int n, int bytes, uint32_t site) {
    if (!bank_on()) return;
    unsigned a[32];
    for (int i = 0; i < n; i++)
        a[i] = (unsigned)(uintptr_t)pa[i];
    Bank &b = banks[site];
    b.req++;
    b.waves += waves(a, n, bytes);
    b.ideal++;
}
struct LaneAcc {
    unsigned addr[32];
    unsigned mask = 0;
    int bytes = 0;
    bool glob = false;
};
static std::map<std::tuple<int, uint32_t, uint32_t>, LaneAcc> pend;
static std::unordered_map<uint64_t, uint32_t> occ;
static void lane_done(uint32_t site, LaneAcc &l) {
    unsigned a[32];
    int n = 0;
    for (int i = 0; i < 32; i++)
        if (l.mask >> i & 1) a[n++] = l.addr[i];
    Bank &b = banks[site];
    b.req++;
    b.glob = l.glob;
    if (l.glob) {
        std::set<unsigned> s;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < l.bytes; k++)
                s.insert((a[i] + (unsigned)k) / 32);
        b.waves += s.size();
        std::set<unsigned> by;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < l.bytes; k++)
                by.insert(a[i] + (unsigned)k);
        b.ideal += (by.size() + 31) / 32;
    } else {
        b.waves += waves(a, n, l.bytes);
        std::set<unsigned> w;
        for (int i = 0; i < n; i++)
            for (int k = 0; k < std::max(4, l.bytes); k += 4)
                w.insert(a[i] / 4 + (unsigned)k / 4);
        b.ideal += (w.size() + 31) / 32;
    }
}
void chk_lane_access(Thread *t, unsigned off, int n, int fl, uint32_t site) {
    if ((site & 0x80000000u) && !(fl & 0x200)) return; // emulated instructions report themselves
    uint32_t k =
        occ[(uint64_t)site << 16 | (unsigned)t->tid | (uint64_t)(unsigned)t->blk->slot << 10]++;
    auto key = std::make_tuple(t->blk->slot * 64 + t->tid / 32, site, k);
    LaneAcc &l = pend[key];
    l.addr[t->lane] = off;
    l.mask |= 1u << t->lane;
    l.bytes = n;
    l.glob = fl & 0x100;
}
void chk_flush_lanes(Block *) {
    if (pend.size() < 20000) return;
    for (auto &p : pend)
        lane_done(std::get<1>(p.first), p.second);
    pend.clear();
    occ.clear();
}
static struct BankOut {
    ~BankOut() {
        if (!bank_on()) return;
        for (auto &p : pend)
            lane_done(std::get<1>(p.first), p.second);
        fprintf(stderr, "EMU bank/coalescing: site, kind, warp requests, wavefronts or sectors per "
                        "request (ideal)\n");
        for (auto &b : banks)
            fprintf(stderr, "  %-60s %-6s %8llu  %.2f (%.2f)%s\n", site_str(b.first).c_str(),
                    b.second.glob ? "global" : "shared", (unsigned long long)b.second.req,
                    (double)b.second.waves / (double)b.second.req,
                    (double)b.second.ideal / (double)b.second.req,
                    b.second.waves > b.second.ideal * 5 / 4 ? "  <--" : ""),
                b.second.glob
                    ? (void)fprintf(
                          stderr,
                          "      bytes in sectors %llu, useful (rounded to 32 per request) %llu\n",
                          (unsigned long long)b.second.waves * 32,
                          (unsigned long long)b.second.ideal * 32)
                    : (void)0;
    }
} bank_out;
} // namespace plec_emu

// ---------------------------------------------------------------- compiler hooks
using namespace plec_emu;
static inline void hook(void *p, size_t n, int w, void *pc) {
    uintptr_t a = (uintptr_t)p;
    if (a - (uintptr_t)smem_region >= smem_region_sz && a - (uintptr_t)dev_base >= dev_sz &&
        a - (uintptr_t)pin_base >= pin_sz)
        return;
    cfg.check = true;
    if (cfg.preempt) maybe_preempt();
    if (cur) {
        chk_access(p, n, w, pc_site(pc), cur);
        return;
    }
    api_lock();
    chk_access(p, n, w, pc_site(pc), nullptr);
    api_unlock();
}
#define H(n)                                                                                       \
    extern "C" void __tsan_read##n(void *p) {                                                      \
        hook(p, n, A_READ, __builtin_return_address(0));                                           \
    }                                                                                              \
    extern "C" void __tsan_write##n(void *p) {                                                     \
        hook(p, n, A_WRITE, __builtin_return_address(0));                                          \
    }                                                                                              \
    extern "C" void __tsan_unaligned_read##n(void *p) {                                            \
        hook(p, n, A_READ, __builtin_return_address(0));                                           \
    }                                                                                              \
    extern "C" void __tsan_unaligned_write##n(void *p) {                                           \
        hook(p, n, A_WRITE, __builtin_return_address(0));                                          \
    }                                                                                              \
    extern "C" void __tsan_volatile_read##n(void *p) {                                             \
        hook(p, n, A_READ, __builtin_return_address(0));                                           \
    }                                                                                              \
    extern "C" void __tsan_volatile_write##n(void *p) {                                            \
        hook(p, n, A_WRITE, __builtin_return_address(0));                                          \
    }
H(1) H(2) H(4) H(8) H(16) extern "C" void __tsan_read_range(void *p, unsigned long n) {
    hook(p, n, A_READ, __builtin_return_address(0));
}
extern "C" void __tsan_write_range(void *p, unsigned long n) {
    hook(p, n, A_WRITE, __builtin_return_address(0));
}
extern "C" void __tsan_init() {
    cfg.check = true;
}
extern "C" void __tsan_func_entry(void *) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_vptr_update(void **, void *) {}
extern "C" void __tsan_vptr_read(void **) {}
#define AT(b, T)                                                                                   \
    extern "C" T __tsan_atomic##b##_load(const volatile T *p, int) {                               \
        return __atomic_load_n(p, 5);                                                              \
    }                                                                                              \
    extern "C" void __tsan_atomic##b##_store(volatile T *p, T v, int) {                            \
        __atomic_store_n(p, v, 5);                                                                 \
    }                                                                                              \
    extern "C" T __tsan_atomic##b##_exchange(volatile T *p, T v, int) {                            \
        return __atomic_exchange_n(p, v, 5);                                                       \
    }                                                                                              \
    extern "C" T __tsan_atomic##b##_fetch_add(volatile T *p, T v, int) {                           \
        return __atomic_fetch_add(p, v, 5);                                                        \
    }                                                                                              \
    extern "C" T __tsan_atomic##b##_fetch_sub(volatile T *p, T v, int) {                           \
        return __atomic_fetch_sub(p, v, 5);                                                        \
    }                                                                                              \
    extern "C" int __tsan_atomic##b##_compare_exchange_strong(volatile T *p, T *c, T v, int,       \
                                                              int) {                               \
        return __atomic_compare_exchange_n(p, c, v, 0, 5, 5);                                      \
    }
AT(8, unsigned char)
AT(16, unsigned short)
AT(32, unsigned)
AT(64, unsigned long)

// ---------------------------------------------------------------- -fsanitize=alignment,bounds
// without libubsan: same reports, with block and thread
struct UbLoc {
    const char *file;
    uint32_t line, col;
};
struct UbMismatch {
    UbLoc loc;
    void *type;
    unsigned char log_align, kind;
};
struct UbBounds {
    UbLoc loc;
    void *array_type, *index_type;
};
extern "C" void __attribute__((weak)) __ubsan_handle_type_mismatch_v1(UbMismatch *d, uintptr_t p) {
    if (!once("misaligned", loc_site(d->loc.file, (int)d->loc.line), 0)) return;
    report(p ? "misaligned" : "null", "access to %p needs %d-byte alignment, %s", (void *)p,
           1 << d->log_align, me_str(cur, loc_site(d->loc.file, (int)d->loc.line)).c_str());
    if (cur) abort_launch();
}
extern "C" void __attribute__((weak)) __ubsan_handle_out_of_bounds(UbBounds *d, uintptr_t ix) {
    if (!once("bounds", loc_site(d->loc.file, (int)d->loc.line), 0)) return;
    report("bounds", "array index %ld out of bounds, %s", (long)ix,
           me_str(cur, loc_site(d->loc.file, (int)d->loc.line)).c_str());
}
