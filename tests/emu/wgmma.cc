/* wgmma.cc: the asynchronous product of a warpgroup: d[64][n] (+)= a[64][16] * b[16][n]. It is done
 * when it is waited for; all 128 threads issue it. B lies in shared memory as rows of k for each
 * column of d, behind a descriptor; A likewise, or in registers as the fragments of mma.m16n8k16.
 */
#include "tests/emu/wgmma.h"
#include "tests/emu/check.h"
#include "tests/emu/instructions.h"
#include "tests/emu/numbers.h"
#include "tests/emu/scheduler.h"
#include "tests/emu/settings.h"
#include "tests/emu/shared.h"
#include "tests/emu/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace plec_emu {

enum { ROWS = 64, K = 16, MAX_N = 256, GROUP = 128 };

/* ---- descriptors ----------------------------------------------------------------------------- *
 * BITS     MEANING
 * 0..13    start address / 16
 * 16..29   leading byte offset / 16 (between the two halves of k, without swizzle)
 * 32..45   stride byte offset / 16 (between groups of eight rows)
 * 49..51   base offset, here 0
 * 62..63   swizzle: 0 none, 1 128 bytes, 2 64, 3 32 */
struct Descriptor {
    unsigned start, leading, stride, base, swizzle;
};

static Descriptor read_descriptor(uint64_t bits) {
    return {(unsigned)(bits & 0x3fff) << 4, (unsigned)(bits >> 16 & 0x3fff) << 4,
            (unsigned)(bits >> 32 & 0x3fff) << 4, (unsigned)(bits >> 49 & 7),
            (unsigned)(bits >> 62)};
}

/* Address of half h (8 elements of k) of a row. */
static unsigned half_row(const Descriptor &d, unsigned row, unsigned h) {
    unsigned group = d.start + row / 8 * d.stride;
    if (!d.swizzle) return group + row % 8 * 16 + h * d.leading;
    unsigned pitch = 256u >> d.swizzle, pieces = pitch / 16 - 1;
    unsigned address = group + row % 8 * pitch + h * 16;
    return address ^ ((address >> 7 & pieces) << 4);
}

static float widen(int kind, unsigned bits) {
    bool subnormal = kind == WGMMA_BF16 ? (bits & 0x7f80) == 0 : (bits & 0x7c00) == 0;
    if (subnormal && settings.wgmma_flushes) return 0;
    return kind == WGMMA_BF16 ? bf16_to_float(bits) : half_to_float(bits);
}

/* An operand in shared memory as out[rows][16]. */
static void read_operand(float *out, const Wgmma &op, uint64_t bits, int n_rows) {
    Descriptor d = read_descriptor(bits);
    std::string where = place_text(op.place);
    if (d.base) {
        report("wgmma", "%s: a descriptor's base offset is not emulated", where.c_str());
        abort_launch();
    }
    for (int row = 0; row < n_rows; row++)
        for (unsigned h = 0; h < 2; h++) {
            unsigned address = half_row(d, (unsigned)row, h);
            if (!shared_holds(address, 16)) {
                report("smem-oob", "%s: wgmma reads shared address %#x outside shared memory, %s",
                       where.c_str(), address, who(running).c_str());
                abort_launch();
            }
            const uint16_t *from = (const uint16_t *)(running->block->shared + address);
            check_access(running, from, 16, ACCESS_READ | ACCESS_ASYNC, op.place);
            for (int k = 0; k < 8; k++)
                out[row * K + (int)h * 8 + k] = widen(op.kind, from[k]);
        }
}

/* A GPU reads the registers of operand A at any time until the product is done. */
static void check_registers(const Wgmma &op) {
    for (int t = 0; t < GROUP; t++)
        if (!std::equal(op.fragment[t], op.fragment[t] + 4, op.registers[t])) {
            report("wgmma-registers",
                   "%s: registers of operand A changed before the wait, warp %d lane %d of the "
                   "warpgroup, %s",
                   place_text(op.place).c_str(), t / 32, t % 32, who(running).c_str());
            return;
        }
}

/* The fragments of the 128 threads as out[64][16]; a warp has 16 rows. */
static void read_fragments(float *out, const Wgmma &op) {
    check_registers(op);
    for (int t = 0; t < GROUP; t++) {
        int row = t / 32 * 16 + t % 32 / 4, column = t % 4 * 2;
        for (int r = 0; r < 4; r++) {
            float *to = out + (row + (r & 1) * 8) * K + column + (r >> 1) * 8;
            to[0] = widen(op.kind, op.fragment[t][r] & 0xffff);
            to[1] = widen(op.kind, op.fragment[t][r] >> 16);
        }
    }
}

/* ---- the product ----------------------------------------------------------------------------- */

/* d[row][column], in a register of one of the threads. */
static float *element(const Wgmma &op, int row, int column) {
    int thread = row / 16 * 32 + row % 8 * 4 + column % 8 / 2;
    return &op.d[thread][column / 8 * 4 + row % 16 / 8 * 2 + column % 2];
}

/* Whoever writes them before the wait loses what he wrote, or the product. */
static void check_accumulators(const Wgmma &op) {
    for (int t = 0; t < GROUP; t++)
        for (size_t i = 0; i < op.held[t].size(); i++)
            if (!std::isnan(op.d[t][i])) {
                report("wgmma", "%s: accumulators were written before the wait, %s",
                       place_text(op.place).c_str(), who(running).c_str());
                return;
            }
}

static void execute(const Wgmma &op) {
    check_accumulators(op);
    static float a[ROWS * K], b[MAX_N * K], transposed[K * MAX_N], sums[MAX_N];
    for (int t = 0; t < GROUP; t++)
        std::copy(op.held[t].begin(), op.held[t].end(), op.d[t]);
    if (op.from_registers)
        read_fragments(a, op);
    else
        read_operand(a, op, op.a, ROWS);
    read_operand(b, op, op.b, op.n);
    for (int k = 0; k < K; k++)
        for (int column = 0; column < op.n; column++)
            transposed[k * MAX_N + column] = b[column * K + k];
    for (int row = 0; row < ROWS; row++) {
        for (int column = 0; column < op.n; column++)
            sums[column] = op.scale ? *element(op, row, column) : 0.0f;
        for (int k = 0; k < K; k++)
            for (int column = 0; column < op.n; column++)
                sums[column] += a[row * K + k] * transposed[k * MAX_N + column];
        for (int column = 0; column < op.n; column++)
            *element(op, row, column) = sums[column];
    }
}

/* ---- issue and wait -------------------------------------------------------------------------- */

static Warpgroup &warpgroup(void) {
    size_t i = (size_t)running->index / GROUP;
    std::vector<Warpgroup> &groups = running->block->warpgroups;
    if (groups.size() <= i) groups.resize(i + 1);
    return groups[i];
}

static bool agree(const Wgmma &x, const Wgmma &y) {
    return x.place == y.place && x.n == y.n && x.kind == y.kind && x.a == y.a && x.b == y.b &&
           x.scale == y.scale && x.from_registers == y.from_registers;
}

static Wgmma &issue(const Wgmma &op, const char *file, int line) {
    if (op.n % 8 || op.n < 8 || op.n > MAX_N) trap("wgmma: no such n", file, line);
    if (!running->wgmma_fenced)
        report("wgmma", "%s:%d: wgmma without a wgmma.fence since the last wait (%s)",
               base_name(file), line, who(running).c_str());
    Warpgroup &group = warpgroup();
    size_t i = running->n_wgmma++ - group.n_done;
    if (i == group.issued.size()) group.issued.push_back(op);
    Wgmma &joined = group.issued[i];
    if (!agree(op, joined)) {
        report("wgmma", "%s:%d: threads of a warpgroup disagree on a wgmma, %s", base_name(file),
               line, who(running).c_str());
        abort_launch();
    }
    return joined;
}

/* Accumulators may not be read before the wait: until then they are NaN. Of several products that
 * follow each other into the same ones, the first that is not done holds their values. */
static void hide_accumulators(Wgmma &op, int t) {
    float *d = op.d[t];
    op.held[t].assign(d, d + op.n / 2);
    std::fill(d, d + op.n / 2, std::numeric_limits<float>::quiet_NaN());
}

static void take_accumulators(Wgmma &op, float *d) {
    int t = running->index % GROUP;
    op.d[t] = d;
    for (const Wgmma &before : warpgroup().issued)
        if (&before != &op && before.d[t] == d) return;
    hide_accumulators(op, t);
}

/* The first product under way is done: the next into the same accumulators hides them again. */
static void retire(Warpgroup &group) {
    Wgmma done = group.issued.front();
    group.issued.pop_front();
    group.n_done++;
    for (int t = 0; t < GROUP; t++)
        for (Wgmma &op : group.issued)
            if (op.d[t] == done.d[t]) {
                hide_accumulators(op, t);
                break;
            }
}

static void count_issue(Wgmma &op) {
    if (++op.n_issued < GROUP) return;
    statistics_count(PLEC_EMU_WGMMA, op.place);
    Warpgroup &group = warpgroup();
    for (Thread *t : group.waiting)
        make_ready(t);
    group.waiting.clear();
}

void wgmma_shared(WgmmaKind kind, int n, float *d, uint64_t a, uint64_t b, int scale_d,
                  const char *file, int line) {
    Wgmma op = {};
    op.n = n;
    op.kind = kind;
    op.scale = scale_d != 0;
    op.a = a;
    op.b = b;
    op.place = place_of_line(file, line);
    Wgmma &joined = issue(op, file, line);
    take_accumulators(joined, d);
    count_issue(joined);
}

void wgmma_registers(WgmmaKind kind, int n, float *d, const unsigned *a, uint64_t b, int scale_d,
                     const char *file, int line) {
    Wgmma op = {};
    op.n = n;
    op.kind = kind;
    op.scale = scale_d != 0;
    op.b = b;
    op.from_registers = true;
    op.place = place_of_line(file, line);
    Wgmma &joined = issue(op, file, line);
    take_accumulators(joined, d);
    int t = running->index % GROUP;
    joined.registers[t] = a;
    std::copy(a, a + 4, joined.fragment[t]);
    count_issue(joined);
}

void wgmma_fence(const char *, int) {
    running->wgmma_fenced = true;
}

void wgmma_commit(const char *, int) {
    running->wgmma_groups.push_back(running->n_wgmma);
}

/* Until at most n groups of this thread's are under way. */
void wgmma_wait(int n_under_way, const char *file, int line) {
    std::vector<unsigned> &groups = running->wgmma_groups;
    running->wgmma_fenced = false;
    if ((int)groups.size() <= n_under_way) return;
    unsigned target = groups[groups.size() - 1 - (size_t)n_under_way];
    while (warpgroup().n_done < target) {
        Warpgroup &group = warpgroup();
        if (group.issued.front().n_issued < GROUP) {
            group.waiting.push_back(running);
            wait_at("wgmma.wait_group", file, line, 0);
            let_others_run();
            continue;
        }
        execute(group.issued.front());
        retire(group);
    }
}

static bool reads(const Wgmma &op, uint64_t bits, int n_rows, unsigned offset, size_t n_bytes) {
    Descriptor d = read_descriptor(bits);
    unsigned first = d.start - d.start % 128;
    return offset < first + (unsigned)n_rows / 8 * d.stride && offset + n_bytes > first &&
           op.n_issued == GROUP;
}

Place wgmma_reading(const Block *block, unsigned offset, size_t n_bytes) {
    for (const Warpgroup &group : block->warpgroups)
        for (const Wgmma &op : group.issued) {
            if (reads(op, op.b, op.n, offset, n_bytes)) return op.place;
            if (!op.from_registers && reads(op, op.a, ROWS, offset, n_bytes)) return op.place;
        }
    return 0;
}

} // namespace plec_emu
