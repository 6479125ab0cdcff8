/* warp.cc: collectives of a warp: shuffles, votes, reductions. */
#include "tests/emu/check.h"
#include "tests/emu/collective.h"
#include "tests/emu/core.h"
#include "tests/emu/scheduler.h"
#include "tests/emu/settings.h"
#include "tests/emu/statistics.h"

#include <algorithm>

namespace plec_emu {

/* ---- rendezvous ------------------------------------------------------------------------------ */

static void finish(Warp *warp, int i) {
    Collective done = warp->pending[i];
    warp->pending[i] = warp->pending[--warp->n_pending];
    void *arguments[32] = {};
    Thread *threads[32];
    int n = 0;
    for (int lane = 0; lane < 32; lane++) {
        if (!(done.arrived >> lane & 1)) continue;
        threads[n] = warp->thread(lane);
        arguments[lane] = threads[n++]->argument;
    }
    if (done.complete) done.complete(arguments, done.arrived);
    if (checking && done.orders_memory) clock_join(threads, n);
    for (int k = 0; k < n; k++)
        make_ready(threads[k]);
}

/* The mask of those who will come; reports lanes it cannot rightly name. */
static unsigned mask_of(const CollectiveCall &call, const Thread *self) {
    const Warp *warp = self->warp;
    unsigned own = 1u << self->lane;
    unsigned mask = call.mask & warp->lanes; /* a last warp may be partial */
    if (!(mask & own))
        report("warp-mask", "%s %s:%d: %s is not in its own mask %#x", call.what,
               base_name(call.file), call.line, who(self).c_str(), mask);
    if (mask & warp->exited)
        report("warp-mask", "%s %s:%d: mask %#x names exited lanes %#x (%s)", call.what,
               base_name(call.file), call.line, mask, mask & warp->exited, who(self).c_str());
    return (mask & ~warp->exited) | own;
}

[[noreturn]] static void diverges(const CollectiveCall &call, unsigned mask,
                                  const Collective &other) {
    report("divergent-collective", "%s at %s:%d with mask %#x meets %s at %s:%d with mask %#x (%s)",
           call.what, base_name(call.file), call.line, mask, other.what, base_name(other.file),
           other.line, other.mask, who(running).c_str());
    abort_launch();
}

/* The pending collective that the call joins; n_pending when it is the first. */
static int find_pending(const CollectiveCall &call, unsigned mask, const Warp *warp, unsigned own) {
    for (int i = 0; i < warp->n_pending; i++) {
        const Collective &other = warp->pending[i];
        if (other.mask == mask) {
            bool elsewhere = other.line != call.line || other.file != call.file;
            if (other.what != call.what || ((call.aligned || other.aligned) && elsewhere))
                diverges(call, mask, other);
            return i;
        }
        /* They wait for me there, I would wait for them here. */
        if ((other.mask & own) && (mask & other.arrived)) diverges(call, mask, other);
    }
    return warp->n_pending;
}

void collective(const CollectiveCall &call) {
    Thread *self = running;
    Warp *warp = self->warp;
    unsigned own = 1u << self->lane, mask = mask_of(call, self);
    int i = find_pending(call, mask, warp, own);
    if (i == warp->n_pending)
        warp->pending[warp->n_pending++] = {mask,         0,
                                            call.what,    call.file,
                                            call.line,    call.complete,
                                            call.aligned, call.orders_memory};
    Collective &joined = warp->pending[i];
    self->argument = call.argument;
    joined.arrived |= own;
    wait_at(call.what, call.file, call.line, mask);
    if (joined.arrived == joined.mask) {
        statistics_count(call.kind, place_of_line(call.file, call.line));
        finish(warp, i);
    }
    let_others_run();
}

void leave_collectives(Thread *thread) {
    Warp *warp = thread->warp;
    unsigned own = 1u << thread->lane;
    warp->exited |= own;
    for (int i = 0; i < warp->n_pending; i++) {
        Collective &waiting = warp->pending[i];
        if (!(waiting.mask & own)) continue;
        report("warp-mask", "%s exits while lanes %#x wait for it at %s %s:%d", who(thread).c_str(),
               waiting.arrived, waiting.what, base_name(waiting.file), waiting.line);
        waiting.mask &= ~own;
        if (waiting.arrived != waiting.mask) continue;
        finish(warp, i);
        return;
    }
}

void sync_warp(unsigned mask, const char *file, int line) {
    collective({"__syncwarp", mask, nullptr, nullptr, PLEC_EMU_BARRIER, false, true, file, line});
}

/* ---- shuffles -------------------------------------------------------------------------------- */

struct Shuffle {
    ShuffleKind kind;
    uint64_t in, out;
    int lane, width;
    bool from_outside; /* the mask */
};

/* The lane that `lane` reads from. */
static int source_lane(const Shuffle &s, int lane) {
    int first = lane & ~(s.width - 1), source;
    switch (s.kind) {
    case SHUFFLE_INDEX: return first + (s.lane & (s.width - 1));
    case SHUFFLE_UP: source = lane - s.lane; return source < first ? lane : source;
    case SHUFFLE_DOWN: source = lane + s.lane; break;
    default: source = lane ^ s.lane; break;
    }
    return source >= first + s.width ? lane : source;
}

static void complete_shuffle(void **arguments, unsigned mask) {
    for (int lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        Shuffle &s = *(Shuffle *)arguments[lane];
        int source = source_lane(s, lane);
        s.from_outside = source < 0 || source > 31 || !(mask >> source & 1);
        s.out = s.from_outside ? ~0ull : ((Shuffle *)arguments[source])->in;
    }
}

uint64_t shuffle(ShuffleKind kind, unsigned mask, uint64_t value, int lane, int width,
                 const char *file, int line) {
    static const char *const names[] = {"__shfl_sync", "__shfl_up_sync", "__shfl_down_sync",
                                        "__shfl_xor_sync"};
    Shuffle s = {kind, value, 0, lane, width, false};
    collective(
        {names[kind], mask, &s, complete_shuffle, PLEC_EMU_SHUFFLE, false, false, file, line});
    if (s.from_outside)
        report("shfl-inactive", "%s at %s:%d: %s reads a lane outside mask %#x", names[kind],
               base_name(file), line, who(running).c_str(), mask);
    return s.out;
}

/* ---- votes ----------------------------------------------------------------------------------- */

struct Vote {
    VoteKind kind;
    bool in;
    unsigned out;
};

static void complete_vote(void **arguments, unsigned mask) {
    unsigned ballot = 0;
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1 && ((Vote *)arguments[lane])->in) ballot |= 1u << lane;
    for (int lane = 0; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        Vote &v = *(Vote *)arguments[lane];
        v.out = v.kind == VOTE_BALLOT ? ballot : v.kind == VOTE_ANY ? ballot != 0 : ballot == mask;
    }
}

unsigned vote(VoteKind kind, unsigned mask, int predicate, const char *file, int line) {
    static const char *const names[] = {"__ballot_sync", "__any_sync", "__all_sync"};
    Vote v = {kind, predicate != 0, 0};
    collective({names[kind], mask, &v, complete_vote, PLEC_EMU_SHUFFLE, false, false, file, line});
    return v.out;
}

struct Match {
    uint64_t in;
    unsigned out;
};

static void complete_match(void **arguments, unsigned mask) {
    for (int a = 0; a < 32; a++)
        for (int b = 0; b < 32 && mask >> a & 1; b++) {
            if (!(mask >> b & 1)) continue;
            Match &match = *(Match *)arguments[a];
            if (match.in == ((Match *)arguments[b])->in) match.out |= 1u << b;
        }
}

unsigned match_any(unsigned mask, uint64_t value, const char *file, int line) {
    Match match = {value, 0};
    collective({"__match_any_sync", mask, &match, complete_match, PLEC_EMU_SHUFFLE, false, false,
                file, line});
    return match.out;
}

/* ---- reductions ------------------------------------------------------------------------------ */

struct Reduction {
    ReduceKind kind;
    unsigned in, out;
};

static unsigned reduce_two(ReduceKind kind, unsigned a, unsigned b) {
    switch (kind) {
    case REDUCE_ADD: return a + b;
    case REDUCE_MIN: return std::min(a, b);
    case REDUCE_MAX: return std::max(a, b);
    case REDUCE_MIN_SIGNED: return (unsigned)std::min((int)a, (int)b);
    case REDUCE_MAX_SIGNED: return (unsigned)std::max((int)a, (int)b);
    case REDUCE_AND: return a & b;
    case REDUCE_OR: return a | b;
    case REDUCE_XOR: return a ^ b;
    }
    return 0;
}

static void complete_reduction(void **arguments, unsigned mask) {
    int first = __builtin_ctz(mask);
    unsigned result = ((Reduction *)arguments[first])->in;
    for (int lane = first + 1; lane < 32; lane++) {
        if (!(mask >> lane & 1)) continue;
        const Reduction &r = *(Reduction *)arguments[lane];
        result = reduce_two(r.kind, result, r.in);
    }
    for (int lane = 0; lane < 32; lane++)
        if (mask >> lane & 1) ((Reduction *)arguments[lane])->out = result;
}

unsigned reduce(ReduceKind kind, unsigned mask, unsigned value, const char *file, int line) {
    static const char *const names[] = {
        "__reduce_add_sync", "__reduce_min_sync", "__reduce_max_sync", "__reduce_min_sync",
        "__reduce_max_sync", "__reduce_and_sync", "__reduce_or_sync",  "__reduce_xor_sync"};
    Reduction r = {kind, value, 0};
    collective(
        {names[kind], mask, &r, complete_reduction, PLEC_EMU_SHUFFLE, false, false, file, line});
    return r.out;
}

unsigned active_mask(void) {
    return running->warp->lanes & ~running->warp->exited;
}
unsigned lane(void) {
    return (unsigned)running->lane;
}

} // namespace plec_emu
