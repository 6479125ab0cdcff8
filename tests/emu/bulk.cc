/* bulk.cc: mbarriers, and the bulk copies that they count. */
#include "tests/emu/bulk.h"
#include "tests/emu/check.h"
#include "tests/emu/instructions.h"
#include "tests/emu/scheduler.h"
#include "tests/emu/settings.h"
#include "tests/emu/shared.h"
#include "tests/emu/statistics.h"
#include "tests/emu/tensor_map.h"

#include <cstring>

namespace plec_emu {

/* ---- the word in shared memory --------------------------------------------------------------- *
 * BITS     MEANING
 * 0..19    arrivals that this phase waits for
 * 20..39   arrivals of a whole phase
 * 40..62   bytes that this phase waits for, plus 2^22
 * 63       parity of the phase
 * (a GPU keeps something of the kind; programs do not look) */
struct BarrierWord {
    unsigned n_pending, n_arrivals;
    int n_bytes;
    unsigned parity;
};

static BarrierWord read_word(const char *from) {
    uint64_t bits;
    memcpy(&bits, from, 8);
    return {(unsigned)(bits & 0xfffff), (unsigned)(bits >> 20 & 0xfffff),
            (int)(bits >> 40 & 0x7fffff) - (1 << 22), (unsigned)(bits >> 63)};
}

static void write_word(char *to, const BarrierWord &word) {
    uint64_t bits = (uint64_t)word.n_pending | (uint64_t)word.n_arrivals << 20 |
                    (uint64_t)((unsigned)(word.n_bytes + (1 << 22)) & 0x7fffff) << 40 |
                    (uint64_t)word.parity << 63;
    memcpy(to, &bits, 8);
}

/* ---- mbarrier -------------------------------------------------------------------------------- */

static Mbarrier &initialised(Block *block, unsigned address, const char *file, int line) {
    Mbarrier &barrier = block->mbarriers[address];
    if (!barrier.initialised) {
        report("mbarrier", "%s:%d: mbarrier at shared %#x is used but not initialised (%s)",
               base_name(file), line, address, who(running).c_str());
        abort_launch();
    }
    return barrier;
}

static void wake_waiting(Block *block, unsigned address, unsigned parity) {
    std::vector<MbarrierWait> &waits = block->mbarrier_waits;
    for (size_t i = 0; i < waits.size();) {
        if (waits[i].address == address && waits[i].parity != parity) {
            make_ready(waits[i].thread);
            waits.erase(waits.begin() + (long)i);
        } else {
            i++;
        }
    }
}

/* Begins the next phase when this one waits for nothing more. */
static void complete_phase(Block *block, unsigned address) {
    BarrierWord word = read_word(block->shared + address);
    Mbarrier &barrier = block->mbarriers[address];
    if (word.n_pending || word.n_bytes) return;
    word.parity ^= 1;
    word.n_pending = word.n_arrivals;
    write_word(block->shared + address, word);
    clock_drop(&barrier.completed);
    barrier.completed = barrier.arriving;
    barrier.arriving = nullptr;
    wake_waiting(block, address, word.parity);
}

void mbarrier_init(unsigned address, unsigned count, const char *file, int line) {
    if (address % 8 || !count) trap("mbarrier.init: misaligned, or zero arrivals", file, line);
    char *word = shared_pointer(address, 8, file, line);
    write_word(word, {count, count, 0, 0});
    check_access(running, word, 8, ACCESS_WRITE, place_of_line(file, line));
    Mbarrier &barrier = running->block->mbarriers[address];
    barrier.initialised = true;
    barrier.fenced = false;
    barrier.initialiser = running;
}

void mbarrier_init_fence(const char *, int) {
    for (auto &each : running->block->mbarriers)
        if (each.second.initialiser == running) each.second.fenced = true;
    fence();
}

void mbarrier_invalidate(unsigned address, const char *file, int line) {
    shared_pointer(address, 8, file, line);
    running->block->mbarriers.erase(address);
}

void mbarrier_arrive(unsigned address, unsigned expected_bytes, const char *file, int line) {
    Block *block = running->block;
    char *at = shared_pointer(address, 8, file, line);
    Mbarrier &barrier = initialised(block, address, file, line);
    check_access(running, at, 8, ACCESS_READ | ACCESS_ATOMIC, place_of_line(file, line));
    if (checking) clock_release(running, &barrier.arriving);
    BarrierWord word = read_word(at);
    if (!word.n_pending) trap("mbarrier.arrive: more arrivals than this phase expects", file, line);
    word.n_pending--;
    word.n_bytes += (int)expected_bytes;
    write_word(at, word);
    note_progress();
    complete_phase(block, address);
}

void mbarrier_check(unsigned address, const char *file, int line) {
    shared_pointer(address, 8, file, line);
    initialised(running->block, address, file, line);
}

/* An arrival that was announced and comes now, with what the thread knew then. */
void mbarrier_arrive_late(Thread *t, unsigned address, Place place) {
    Block *block = t->block;
    if (checking) clock_release(t, &block->mbarriers[address].arriving);
    BarrierWord word = read_word(block->shared + address);
    if (!word.n_pending) {
        report("mbarrier", "%s: an arrival of cp.async more than the phase expects (%s)",
               place_text(place).c_str(), who(t).c_str());
        return;
    }
    word.n_pending--;
    write_word(block->shared + address, word);
    note_progress();
    complete_phase(block, address);
}

bool mbarrier_test(unsigned address, unsigned parity, const char *file, int line) {
    const char *at = shared_pointer(address, 8, file, line);
    Mbarrier &barrier = initialised(running->block, address, file, line);
    check_access(running, at, 8, ACCESS_READ | ACCESS_ATOMIC, place_of_line(file, line));
    if (read_word(at).parity == parity) return false;
    if (checking) clock_acquire(running, barrier.completed);
    return true;
}

void mbarrier_wait(unsigned address, unsigned parity, const char *file, int line) {
    Block *block = running->block;
    if (!mbarrier_test(address, parity, file, line)) {
        block->mbarrier_waits.push_back({running, address, parity});
        wait_at("mbarrier.wait", file, line, address);
        let_others_run();
    } else if (settings.schedule != PLEC_EMU_FIFO && random_below(4) == 0) {
        make_ready_last(running);
        let_others_run();
    }
    if (checking) clock_acquire(running, block->mbarriers[address].completed);
}

/* ---- copies ---------------------------------------------------------------------------------- */

static void issue_copy(BulkCopy copy, const char *file, int line) {
    Block *block = running->block;
    Mbarrier &barrier = initialised(block, copy.barrier, file, line);
    if (!barrier.fenced && first_time("mbarrier-fence", copy.place, 0))
        report("mbarrier-fence",
               "%s:%d: a bulk copy counts on the mbarrier at shared %#x, whose initialisation by "
               "thread %d no fence made known (plec_mbarrier_init_fence), %s",
               base_name(file), line, copy.barrier, barrier.initialiser->index,
               who(running).c_str());
    char *to = shared_pointer(copy.to, copy.n_bytes, file, line);
    check_access(running, to, copy.n_bytes, ACCESS_WRITE | ACCESS_UNDEFINED | ACCESS_ASYNC,
                 copy.place);
    memset(to, 0xff, copy.n_bytes);
    copy.issued_at = running->now;
    running->now = clock_tick();
    block->bulk.push_back(std::move(copy));
}

/* The write is the issuing thread's, at the time of the issue. */
static void check_landed(Block *block, const BulkCopy &copy) {
    Thread *t = copy.thread;
    uint32_t now = t->now;
    t->now = copy.issued_at;
    check_access(t, block->shared + copy.to, copy.n_bytes, ACCESS_WRITE | ACCESS_ASYNC, copy.place);
    clock_release(t, &block->mbarriers[copy.barrier].arriving);
    t->now = now;
}

static void land(Block *block, size_t i) {
    BulkCopy copy = std::move(block->bulk[i]);
    block->bulk.erase(block->bulk.begin() + (long)i);
    copy.fill(block->shared + copy.to);
    note_progress();
    BarrierWord word = read_word(block->shared + copy.barrier);
    word.n_bytes -= (int)copy.n_bytes;
    write_word(block->shared + copy.barrier, word);
    if (checking) check_landed(block, copy);
    complete_phase(block, copy.barrier);
}

bool land_a_copy(void) {
    for (Block *block : resident) {
        size_t n_bulk = block->bulk.size(), n = n_bulk + block->arrivals.size();
        if (n == 0) continue;
        size_t chosen = by_chance() ? random_below(n) : 0;
        if (chosen < n_bulk)
            land(block, chosen);
        else
            land_arrival(block, chosen - n_bulk);
        return true;
    }
    return false;
}

void bulk_load(unsigned to, const void *from, unsigned n_bytes, unsigned barrier, const char *file,
               int line) {
    if (to % 16 || (uintptr_t)from % 16 || n_bytes % 16 || !n_bytes)
        trap("cp.async.bulk: address or size is not a multiple of 16", file, line);
    Place place = place_of_line(file, line);
    statistics_bulk(from, n_bytes, place);
    check_access(running, from, n_bytes, ACCESS_READ, place);
    const char *source = (const char *)from;
    auto fill = [source, n_bytes](char *target) { memcpy(target, source, n_bytes); };
    issue_copy({running, to, n_bytes, barrier, fill, place, 0}, file, line);
}

void tensor_load_2d(unsigned to, const void *map, int x, int y, unsigned barrier, const char *file,
                    int line) {
    TensorMap box;
    if (!read_tensor_map(&box, map))
        trap("cp.async.bulk.tensor: not an encoded tensor map", file, line);
    if (to % 128) trap("cp.async.bulk.tensor: the destination is misaligned", file, line);
    Place place = place_of_line(file, line);
    for (unsigned row = 0; row < box.box_rows; row++) {
        TensorSpan span = tensor_row(box, x, y, row);
        if (!span.n_bytes) continue;
        statistics_bulk(span.from, span.n_bytes, place);
        check_access(running, span.from, span.n_bytes, ACCESS_READ, place);
    }
    unsigned n_bytes = box.box_rows * box.box_columns * box.element_bytes;
    auto fill = [box, to, x, y](char *target) { tensor_fill(target, to, box, x, y); };
    issue_copy({running, to, n_bytes, barrier, fill, place, 0}, file, line);
}

} // namespace plec_emu
