#include "tests/emu/race.h"
#include "tests/emu/check.h"
#include "tests/emu/memory.h"
#include "tests/emu/operation.h"
#include "tests/emu/settings.h"
#include "tests/emu/shared.h"

namespace plec_emu {

/* ---- order ----------------------------------------------------------------------------------- */

/* Before griddepcontrol.wait a dependent kernel knows less; a thread has waited when it did itself,
 * or knows of one that did. */
bool before_grid_wait(const Thread *t) {
    if (!t || !launch_running->dependent || t->grid_waited) return false;
    for (const GridWait &wait : t->block->grid_waits)
        if (t->knows && t->knows->of[wait.thread] >= wait.at) return false;
    return true;
}

static uint32_t present_operation(void) {
    return operation_running == HOST ? HOST_OPERATION : (uint32_t)operation_running;
}

static bool knows_thread(const Thread *t, uint32_t index, uint32_t clock) {
    return (int)index == t->index || (t->knows && t->knows->of[index] >= clock);
}

/* Did the recorded access happen before this one? */
static bool ordered(const Record &r, const WordAccess &a) {
    if (a.shared) return knows_thread(a.thread, r.thread, r.clock);
    if (r.operation != present_operation()) {
        int before = r.operation == HOST_OPERATION ? HOST : (int)r.operation;
        return happened_before(before, r.clock, before_grid_wait(a.thread));
    }
    if (!a.thread) return true;
    unsigned block = r.thread / 1024, index = r.thread % 1024;
    if (block == a.thread->block->index) return knows_thread(a.thread, index, r.clock);
    return clock_knows_other_block(a.thread, block, index, r.clock);
}

/* ---- reports --------------------------------------------------------------------------------- */

static std::string operation_text(int number) {
    const Operation &operation = operations[(size_t)number];
    return text("%s (op %d, stream %d)", operation.name.c_str(), number, operation.stream->number);
}

std::string accessor(const Thread *thread, Place place) {
    if (thread) return who(thread) + " at " + place_text(place);
    if (operation_running != HOST) return operation_text(operation_running);
    return "the host at " + place_text(place);
}

static std::string recorded(const Record &r, bool shared) {
    std::string where = place_text(r.place);
    if (shared) return text("thread %u (warp %u) at %s", r.thread, r.thread / 32, where.c_str());
    if (r.operation == HOST_OPERATION) return "the host at " + where;
    std::string operation = operation_text((int)r.operation);
    if (r.thread == OPERATION_THREAD) return operation;
    return text("%s block %u thread %u at %s", operation.c_str(), r.thread / 1024, r.thread % 1024,
                where.c_str());
}

static std::string location(const WordAccess &a) {
    if (!a.shared) return describe_address(a.address);
    return text("shared+%#lx",
                (unsigned long)((const char *)a.address - a.thread->block->shared - SHARED_BASE));
}

static void report_race(const Record &r, bool record_writes, const WordAccess &a) {
    bool streams = !a.shared && r.operation != present_operation();
    const char *kind = streams ? "stream-race" : "race";
    if (!first_time(kind, r.place, a.place)) return;
    report(kind, "%s of %s by %s\n      is not ordered after the %s by %s",
           a.access & ACCESS_WRITE ? "write" : "read", location(a).c_str(),
           accessor(a.thread, a.place).c_str(), record_writes ? "write" : "read",
           recorded(r, a.shared).c_str());
}

static void check_initialised(const Word &word, const WordAccess &a) {
    if (a.access & ACCESS_UNDEFINED || (*word.initialised & a.bytes) == a.bytes) return;
    if (!first_time("uninit", a.place, 0)) return;
    report("uninit", "read of uninitialised %s by %s", location(a).c_str(),
           accessor(a.thread, a.place).c_str());
}

/* The asynchronous proxy reads, or writes over, what ordinary stores wrote: their thread must have
 * fenced since. */
static void check_proxy(const Record &write, const WordAccess &a) {
    if (!a.shared || !a.thread || !(a.access & ACCESS_ASYNC) || write.access & ACCESS_ASYNC) return;
    const Thread *writer = a.thread->block->threads[write.thread];
    if (write.clock < writer->proxy_fenced || !first_time("proxy-fence", write.place, a.place))
        return;
    report("proxy-fence",
           "%s, by wgmma or bulk copy, %s what ordinary stores of thread %u at %s wrote without "
           "fence.proxy.async",
           accessor(a.thread, a.place).c_str(), a.access & ACCESS_WRITE ? "writes over" : "reads",
           write.thread, place_text(write.place).c_str());
}

/* ---- remembering ----------------------------------------------------------------------------- */

static bool both_atomic(const Record &r, const WordAccess &a) {
    return r.access & ACCESS_ATOMIC && a.access & ACCESS_ATOMIC;
}

static Record record_of(const WordAccess &a) {
    Record r = {};
    r.operation = a.shared ? 0 : present_operation();
    r.bytes = a.bytes & 15;
    r.access = (unsigned)a.access & 7;
    r.place = a.place;
    if (a.thread) {
        r.thread = a.shared ? (uint32_t)a.thread->index : a.thread->id;
        r.clock = a.thread->now;
    } else if (operation_running == HOST) {
        r.thread = HOST_THREAD;
        r.clock = host_stamp();
    } else {
        r.thread = OPERATION_THREAD;
    }
    return r;
}

static bool same_accessor(const Record &a, const Record &b) {
    return a.bytes && a.thread == b.thread && a.operation == b.operation;
}

/* Of two reads kept, the accessor's own goes first, then one that this one comes after. */
static void remember_read(Cell *cell, const WordAccess &a) {
    Record r = record_of(a);
    Record *kept = nullptr;
    for (Record &read : cell->reads)
        if (!kept && (!read.bytes || same_accessor(read, r))) kept = &read;
    for (Record &read : cell->reads)
        if (!kept && ordered(read, a)) kept = &read;
    if (!kept) kept = &cell->reads[random_below(2)];
    if (same_accessor(*kept, r) && kept->clock == r.clock) r.bytes |= kept->bytes;
    *kept = r;
}

/* A write supersedes all accesses to the bytes it writes. */
static void remember_write(Cell *cell, const WordAccess &a) {
    Record r = record_of(a);
    Record *kept = nullptr;
    for (Record &write : cell->writes)
        if (!kept && !(write.bytes & ~a.bytes)) kept = &write;
    for (Record &write : cell->writes)
        if (!kept && same_accessor(write, r) && write.clock == r.clock) {
            kept = &write;
            r.bytes |= write.bytes;
        }
    if (!kept) kept = &cell->writes[random_below(2)];
    *kept = r;
    for (Record &write : cell->writes)
        if (&write != kept && !(write.bytes & ~a.bytes)) write.bytes = 0;
    for (Record &read : cell->reads)
        if (!(read.bytes & ~a.bytes)) read.bytes = 0;
}

void check_word(const Word &word, const WordAccess &a) {
    bool writes = a.access & ACCESS_WRITE;
    if (!writes) check_initialised(word, a);
    for (Record &write : word.cell->writes) {
        if (!(write.bytes & a.bytes)) continue;
        if (!both_atomic(write, a) && !ordered(write, a))
            report_race(write, true, a);
        else
            check_proxy(write, a);
    }
    if (!writes) {
        remember_read(word.cell, a);
        return;
    }
    for (Record &read : word.cell->reads)
        if (read.bytes & a.bytes && !both_atomic(read, a) && !ordered(read, a))
            report_race(read, false, a);
    if (a.access & ACCESS_UNDEFINED)
        *word.initialised &= (uint8_t)~a.bytes;
    else
        *word.initialised |= (uint8_t)a.bytes;
    remember_write(word.cell, a);
}

} // namespace plec_emu
