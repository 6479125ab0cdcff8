// Every engine and cache of host/io against the bytes of a known file: any range, any cut, short
// reads, bounds, exact counters.
#include "host/io.h"
#include "tests/support/allocation_guard.h"
#include "tests/support/data.h"
#include "tests/support/io_reads.h"

extern "C" {
#include "host/io_parts.h"
}

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

using namespace plec_test;

namespace {

struct Mode {
    plec_io_engine engine;
    plec_io_cache cache;
    const char *name;
};
const Mode MODES[] = {
    {PLEC_IO_URING, PLEC_CACHE_DIRECT, "UringDirect"},
    {PLEC_IO_URING, PLEC_CACHE_BUFFERED, "UringBuffered"},
    {PLEC_IO_PREAD, PLEC_CACHE_DIRECT, "PreadDirect"},
    {PLEC_IO_PREAD, PLEC_CACHE_BUFFERED, "PreadBuffered"},
    {PLEC_IO_MMAP, PLEC_CACHE_DIRECT, "MmapDirect"},
    {PLEC_IO_MMAP, PLEC_CACHE_BUFFERED, "MmapBuffered"},
    {PLEC_IO_AUTO, PLEC_CACHE_AUTO, "Auto"},
};
const uint64_t FILE_BYTES = 5 * MIB + 333; // no multiple of 512

class EveryMode : public testing::TestWithParam<Mode> {
  protected:
    // One file for all tests: direct reads of a new one wait for it to reach the disk.
    static void SetUpTestSuite() {
        kept = new TempDir;
        bytes = random_bytes(FILE_BYTES, 1);
        path = kept->path("file");
        write_file(path, bytes.data(), bytes.size());
    }
    static void TearDownTestSuite() {
        delete kept;
        kept = nullptr;
    }
    EveryMode() {
        options.engine = GetParam().engine;
        options.cache = GetParam().cache;
        options.log = log.sink();
    }
    // Whether reads of the file are in fact direct.
    static bool is_direct(const Io &io) {
        plec_io_counters c = io.counters();
        return std::string(c.cache) == "direct" && c.buffered_files == 0;
    }

    static TempDir *kept;
    static std::vector<uint8_t> bytes;
    static std::string path;
    TempDir dir;
    Log log;
    plec_io_options options = {};
};
TempDir *EveryMode::kept;
std::vector<uint8_t> EveryMode::bytes;
std::string EveryMode::path;

// Whole blocks, odd ends, more than a piece, the last bytes of the file.
std::vector<Range> all_kinds(bool slack, uint32_t shift) {
    std::vector<Range> out;
    const uint64_t offsets[] = {0,    1,    63,   511,     512,     513,
                                4095, 4096, 4097, MIB - 1, 2 * MIB, 123457};
    const uint64_t lengths[] = {1,    2,    511,   512,     513,         4095,       4096,
                                4097, 8192, 65536, 2 * MIB, 2 * MIB + 1, 3 * MIB - 7};
    for (uint64_t offset : offsets)
        for (uint64_t length : lengths)
            if (length < MIB || offset % 511 == 0)
                out.emplace_back(0, offset, length, slack, shift);
    for (uint64_t length : {1, 332, 333, 334, 512, 4096, 4097, 3000001})
        out.emplace_back(0, FILE_BYTES - length, length, slack, shift);
    out.emplace_back(0, 0, FILE_BYTES, slack, shift);
    return out;
}

uint64_t total(const std::vector<Range> &ranges) {
    uint64_t n_bytes = 0;
    for (const Range &range : ranges)
        n_bytes += range.length;
    return n_bytes;
}

} // namespace

TEST_P(EveryMode, DeliversAnyRangeToTheByteAndWritesNothingElse) {
    Io io(options);
    ASSERT_EQ(io.add(path), 0u);
    uint64_t wanted = 0, n_reads = 0;
    for (bool slack : {false, true})
        for (uint32_t shift : {0u, 1u, 64u}) {
            SCOPED_TRACE(std::string("slack ") + (slack ? "yes" : "no") + " shift " +
                         std::to_string(shift));
            std::vector<Range> ranges = all_kinds(slack, shift);
            io.expect_exact(ranges, bytes);
            wanted += total(ranges);
            n_reads += ranges.size();
        }
    plec_io_counters c = io.counters();
    EXPECT_EQ(c.reads, n_reads);
    EXPECT_EQ(c.failed, 0u);
    EXPECT_EQ(c.bytes, wanted);
    EXPECT_EQ(c.direct_bytes + c.buffered_bytes, wanted);
    EXPECT_EQ(c.short_reads, 0u);
    EXPECT_EQ(c.overflows, 0u);
    EXPECT_EQ(c.waiting, 0u);
    if (std::string(c.cache) == "buffered") {
        EXPECT_EQ(c.direct_bytes, 0u);
        EXPECT_EQ(c.rounding_bytes, 0u);
    } else if (c.buffered_files == 0) {
        EXPECT_GT(c.direct_bytes, wanted / 4);
        EXPECT_GT(c.rounding_bytes, 0u);
    }
}

TEST_P(EveryMode, UsesTheEngineAndTheCacheItSays) {
    Io io(options);
    io.add(path);
    io.run({});
    std::vector<Range> ranges;
    ranges.emplace_back(0, 0, 4096);
    io.expect_exact(ranges, bytes);
    plec_io_counters c = io.counters();
    switch (GetParam().engine) {
    case PLEC_IO_PREAD: EXPECT_STREQ(c.engine, "pread"); break;
    case PLEC_IO_MMAP: EXPECT_STREQ(c.engine, "mmap"); break;
    case PLEC_IO_URING:
    case PLEC_IO_AUTO: // here or refused, never neither
        EXPECT_EQ(std::string(c.engine) == "pread", c.engine_fallbacks == 1);
        EXPECT_EQ(std::string(c.engine) == "io_uring", c.engine_fallbacks == 0);
        break;
    }
    bool direct = GetParam().cache == PLEC_CACHE_DIRECT && GetParam().engine != PLEC_IO_MMAP;
    EXPECT_STREQ(c.cache, direct ? "direct" : "buffered") << "five MiB fit any memory";
    EXPECT_EQ(log.count("io: " + std::string(c.engine) + ", " + c.cache), 1u) << log.text();
}

TEST_P(EveryMode, CountsWhatCameDirectlyAndWhatDidNotExactly) {
    Io io(options);
    io.add(path);
    std::vector<Range> aligned, ends, slack;
    aligned.emplace_back(0, 8192, 4 * MIB);
    io.expect_exact(aligned, bytes);
    bool direct = is_direct(io);
    plec_io_counters c = io.counters();
    EXPECT_EQ(c.direct_bytes, direct ? 4 * MIB : 0);
    EXPECT_EQ(c.pieces, 2u) << "two pieces of 2 MiB";

    ends.emplace_back(0, 4096 - 100, 100 + 65536 + 200);
    io.expect_exact(ends, bytes);
    plec_io_counters d = io.counters();
    EXPECT_EQ(d.direct_bytes - c.direct_bytes, direct ? 65536u : 0u);
    EXPECT_EQ(d.buffered_bytes - c.buffered_bytes, direct ? 300u : 65836u);
    EXPECT_EQ(d.rounding_bytes, 0u);
    EXPECT_EQ(d.pieces - c.pieces, direct ? 3u : 1u);

    slack.emplace_back(0, 4096 - 100, 100 + 65536 + 200, true);
    io.expect_exact(slack, bytes);
    plec_io_counters e = io.counters();
    EXPECT_EQ(e.pieces - d.pieces, 1u) << "with room around it one read is enough";
    EXPECT_EQ(e.direct_bytes - d.direct_bytes, direct ? 65836u : 0u);
    if (direct) {
        EXPECT_GE(e.rounding_bytes, 512u - 100 + 512 - 200);
        EXPECT_LE(e.rounding_bytes, 4096u - 100 + 4096 - 200);
    } else {
        EXPECT_EQ(e.rounding_bytes, 0u);
    }
}

TEST_P(EveryMode, ReadsTheEndOfAFileOfAnyLength) {
    for (uint64_t size : {1u, 511u, 512u, 513u, 4095u, 4096u, 4097u, 8191u, 12288u}) {
        std::string small = dir.path("size" + std::to_string(size));
        write_file(small, bytes.data(), size);
        Io io(options);
        io.add(small);
        std::vector<Range> ranges;
        for (bool slack : {false, true}) {
            ranges.emplace_back(0, 0, size, slack);
            ranges.emplace_back(0, size - 1, 1, slack);
            ranges.emplace_back(0, size / 2, size - size / 2, slack);
        }
        io.expect_exact(ranges, bytes);
    }
}

TEST_P(EveryMode, RangesPastTheEndAreShortAndSayWhereItIs) {
    Io io(options);
    io.add(path);
    struct {
        uint64_t offset, length, found;
    } const cases[] = {{FILE_BYTES - 10, 11, 10},
                       {FILE_BYTES, 1, 0},
                       {FILE_BYTES + 100000, 5, 0},
                       {0, FILE_BYTES + 1, FILE_BYTES},
                       {4096, 9 * MIB, FILE_BYTES - 4096}};
    for (const auto &k : cases)
        for (bool slack : {false, true}) {
            std::vector<Range> ranges;
            ranges.emplace_back(0, k.offset, k.length, slack);
            plec_io_completion done = io.run(ranges)[0];
            EXPECT_EQ(done.status, PLEC_IO);
            EXPECT_STREQ(done.error.name, "ShortFile");
            EXPECT_EQ(done.error.byte, k.offset + k.found);
            std::string message = done.error.message;
            EXPECT_NE(message.find(path), std::string::npos) << message;
            EXPECT_NE(message.find("found " + std::to_string(k.found) + " "), std::string::npos)
                << message;
        }
    EXPECT_EQ(io.counters().failed, 10u);
}

TEST_P(EveryMode, AFileCutWhileOpenIsShortNotACrash) {
    for (uint64_t size : {MIB, MIB + 1, MIB + 511, uint64_t{512}, uint64_t{1}, uint64_t{0}}) {
        std::string cut = dir.path("cut" + std::to_string(size));
        write_file(cut, bytes.data(), bytes.size());
        Io io(options);
        io.add(cut);
        std::vector<Range> whole, rest;
        whole.emplace_back(0, 0, FILE_BYTES);
        io.expect_exact(whole, bytes);
        ASSERT_EQ(truncate(cut.c_str(), static_cast<off_t>(size)), 0);
        whole.clear();
        whole.emplace_back(0, 0, FILE_BYTES);
        plec_io_completion done = io.run(whole)[0];
        EXPECT_EQ(done.status, PLEC_IO);
        EXPECT_STREQ(done.error.name, "ShortFile");
        EXPECT_EQ(done.error.byte, size) << done.error.message;
        if (size == 0) continue;
        rest.emplace_back(0, 0, size);
        io.expect_exact(rest, bytes);
    }
}

TEST_P(EveryMode, BytesInFlightStayWithinTheBound) {
    options.max_bytes = 64 << 10;
    options.piece_bytes = 16 << 10;
    Io io(options);
    io.add(path);
    for (bool slack : {false, true}) {
        std::vector<Range> ranges;
        for (uint64_t i = 0; i < 20; i++)
            ranges.emplace_back(0, i * 100001, 200000 + i, slack);
        io.expect_exact(ranges, bytes);
    }
    plec_io_counters c = io.counters();
    EXPECT_LE(c.max_in_flight_bytes, options.max_bytes);
    EXPECT_GT(c.max_in_flight_bytes, options.piece_bytes);
    EXPECT_EQ(c.in_flight_bytes, 0u);
}

TEST_P(EveryMode, ABoundOfOnePageStillReadsEverything) {
    options.max_bytes = 1;
    options.queue_depth = 1;
    options.n_threads = 1;
    options.max_requests = 1;
    Io io(options);
    io.add(path);
    std::vector<Range> ranges;
    ranges.emplace_back(0, 5, 100000);
    ranges.emplace_back(0, FILE_BYTES - 7777, 7777, true);
    io.expect_exact(ranges, bytes);
    EXPECT_LE(io.counters().max_in_flight_bytes, 4096u);
}

TEST_P(EveryMode, AFullQueueSaysSoAndTakesMoreAfterAReap) {
    options.max_requests = 3;
    Io io(options);
    io.add(path);
    std::vector<Range> ranges;
    std::vector<plec_io_read> reads;
    for (uint64_t i = 0; i < 5; i++) {
        ranges.emplace_back(0, i * 4096, 4096);
        reads.push_back(ranges[i].read(i));
    }
    EXPECT_EQ(plec_io_submit_many(io.get(), reads.data(), 5), 3u);
    EXPECT_FALSE(plec_io_submit(io.get(), &reads[3])) << "what is not reaped has no room";
    plec_io_completion done[5];
    size_t n = plec_io_reap(io.get(), done, 1, UINT32_MAX);
    EXPECT_EQ(n, 1u);
    EXPECT_TRUE(plec_io_submit(io.get(), &reads[3]));
    EXPECT_FALSE(plec_io_submit(io.get(), &reads[4]));
    for (n = 1; n < 4;)
        n += plec_io_reap(io.get(), done, 5, UINT32_MAX);
    EXPECT_EQ(n, 4u);
    EXPECT_EQ(io.counters().reads, 4u);
    for (size_t i = 0; i < 4; i++)
        ranges[i].expect_exact(bytes);
}

TEST_P(EveryMode, ReapReturnsAtOnceWhenNothingIsToCome) {
    Io io(options);
    io.add(path);
    plec_io_completion done;
    EXPECT_EQ(plec_io_reap(io.get(), &done, 1, UINT32_MAX), 0u);
    EXPECT_EQ(plec_io_reap(io.get(), &done, 1, 0), 0u);
    std::vector<Range> ranges;
    ranges.emplace_back(0, 0, 1);
    io.expect_exact(ranges, bytes);
    EXPECT_EQ(plec_io_reap(io.get(), &done, 1, UINT32_MAX), 0u);
}

TEST_P(EveryMode, CloseWaitsForReadsInFlightAndDropsTheRest) {
    for (int round = 0; round < 5; round++) {
        std::vector<Range> ranges;
        for (uint64_t i = 0; i < 30; i++)
            ranges.emplace_back(0, i, MIB / 2);
        options.piece_bytes = 64 << 10;
        Io io(options);
        io.add(path);
        for (const Range &range : ranges) {
            plec_io_read read = range.read(0);
            ASSERT_TRUE(plec_io_submit(io.get(), &read));
        }
    } // a read that went on after its memory was freed is what the sanitizers would see
}

TEST_P(EveryMode, ManyThreadsSubmitWhileOneReaps) {
    const size_t n_threads = 4, n_each = 150;
    options.max_requests = 16;
    options.piece_bytes = 64 << 10;
    Io io(options);
    io.add(path);
    std::vector<std::vector<Range>> ranges(n_threads);
    std::mt19937 random(3);
    for (auto &list : ranges)
        for (size_t i = 0; i < n_each; i++) {
            uint64_t length = 1 + random() % (i % 10 == 0 ? 300000 : 9000);
            list.emplace_back(0, random() % (FILE_BYTES - length), length, random() % 2 == 0);
        }
    std::vector<std::thread> threads;
    for (size_t t = 0; t < n_threads; t++)
        threads.emplace_back([&, t] {
            for (size_t i = 0; i < n_each; i++) {
                plec_io_read read = ranges[t][i].read(t * n_each + i);
                read.urgent = i % 3 == 0;
                while (!plec_io_submit(io.get(), &read))
                    std::this_thread::yield();
            }
        });
    std::vector<int> seen(n_threads * n_each);
    for (size_t n_reaped = 0; n_reaped < seen.size();) {
        plec_io_completion done[8];
        size_t n = plec_io_reap(io.get(), done, 8, 5);
        for (size_t i = 0; i < n; i++) {
            EXPECT_EQ(done[i].status, PLEC_OK) << done[i].error.message;
            seen[done[i].user]++;
        }
        n_reaped += n;
    }
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), static_cast<long>(seen.size()));
    for (const auto &list : ranges)
        for (const Range &range : list)
            range.expect_exact(bytes);
}

TEST_P(EveryMode, NothingIsAllocatedBetweenOpenAndClose) {
#if PLEC_TEST_COUNTS_ALLOCATIONS
    Io io(options);
    io.add(path);
    std::vector<Range> ranges;
    for (uint64_t i = 0; i < 8; i++)
        ranges.emplace_back(0, i * 1000, 3 * MIB, i % 2 == 0);
    ranges.emplace_back(0, FILE_BYTES, 1); // fails
    plec_io_completion done[9];
    n_allocations = 0;
    counting = true;
    for (size_t i = 0; i < ranges.size(); i++) {
        plec_io_read read = ranges[i].read(i);
        ASSERT_TRUE(plec_io_submit(io.get(), &read));
    }
    size_t n = 0;
    while (n < ranges.size())
        n += plec_io_reap(io.get(), done, 9, UINT32_MAX);
    counting = false;
    // What the log sink of this test allocates for its one line is not ours.
    EXPECT_LE(n_allocations, 4u * (log.count("\n") > 0 ? 1 : 0));
#endif
}

TEST_P(EveryMode, LargeReadsStayLarge) {
    Io io(options);
    io.add(path);
    std::vector<Range> ranges;
    for (uint64_t i = 0; i < 20; i++)
        ranges.emplace_back(0, i * 4096, 4 * MIB);
    io.expect_exact(ranges, bytes);
    plec_io_counters c = io.counters();
    EXPECT_GE(c.bytes / c.pieces, MIB) << "mean bytes a read of the system";
}

TEST_P(EveryMode, MemoryThatIsRegisteredIsReadIntoAsAnyOther) {
    Io io(options);
    io.add(path);
    Memory arena(8 * MIB);
    plec_io_register(io.get(), arena.at(4 * MIB), 4 * MIB);
    plec_io_register(io.get(), arena.at(0), 3 * MIB);
    plec_io_counters c = io.counters();
    EXPECT_EQ(c.registered_bytes + c.unregistered_bytes, 7 * MIB);
    if (std::string(c.engine) != "io_uring") {
        EXPECT_EQ(c.registered_bytes, 0u);
    }
    // Inside the first, inside the second, across the gap, outside both.
    const uint64_t places[] = {0, 4 * MIB, 2 * MIB, 3 * MIB};
    for (uint64_t place : places) {
        plec_io_read read = {};
        read.offset = 4096;
        read.length = place == 2 * MIB ? 3 * MIB : MIB;
        read.to = arena.at(place);
        ASSERT_TRUE(plec_io_submit(io.get(), &read));
        plec_io_completion done;
        ASSERT_EQ(plec_io_reap(io.get(), &done, 1, UINT32_MAX), 1u);
        EXPECT_EQ(done.status, PLEC_OK) << done.error.message;
        EXPECT_EQ(memcmp(arena.at(place), &bytes[4096], read.length), 0) << place;
    }
}

TEST_P(EveryMode, WakeMakesTheNextWaitReturn) {
    Io io(options);
    io.add(path);
    plec_io_completion done;
    Range range(0, 0, FILE_BYTES);
    plec_io_read read = range.read(0);
    size_t n = 0;
    for (int round = 0; round < 20; round++, n = 0) {
        ASSERT_TRUE(plec_io_submit(io.get(), &read));
        std::thread waker([&] { plec_io_wake(io.get()); });
        n += plec_io_reap(io.get(), &done, 1, UINT32_MAX); // by the wake or by the read
        waker.join();
        for (int tries = 0; n == 0 && tries < 3; tries++) // the wake may have come after the reap
            n += plec_io_reap(io.get(), &done, 1, UINT32_MAX);
        ASSERT_EQ(n, 1u);
    }
}

INSTANTIATE_TEST_SUITE_P(Io, EveryMode, testing::ValuesIn(MODES),
                         [](const auto &mode) { return mode.param.name; });

namespace {

// A gate in front of the one thread that reads.
class Gate {
  public:
    plec_io_fault fault() { return {before, this}; }
    void open() {
        std::lock_guard<std::mutex> lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }
    void wait_for_a_reader() {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return n_waiting_ > 0 || open_; });
    }
    std::vector<uint64_t> offsets() {
        std::lock_guard<std::mutex> lock(mutex_);
        return offsets_;
    }

  private:
    static int before(void *user, uint32_t, uint64_t offset, uint64_t) {
        auto *gate = static_cast<Gate *>(user);
        std::unique_lock<std::mutex> lock(gate->mutex_);
        gate->offsets_.push_back(offset);
        gate->n_waiting_++;
        gate->changed_.notify_all();
        gate->changed_.wait(lock, [gate] { return gate->open_; });
        return 0;
    }
    std::mutex mutex_;
    std::condition_variable changed_;
    bool open_ = false;
    int n_waiting_ = 0;
    std::vector<uint64_t> offsets_;
};

} // namespace

TEST(Io, AnUrgentReadGoesBeforeAllThatIsNotInFlight) {
    TempDir dir;
    std::vector<uint8_t> bytes = random_bytes(MIB, 2);
    write_file(dir.path("file"), bytes.data(), bytes.size());
    Gate gate;
    plec_io_options options = {};
    options.engine = PLEC_IO_PREAD;
    options.cache = PLEC_CACHE_BUFFERED;
    options.n_threads = 1;
    options.piece_bytes = 64 << 10;
    options.fault = gate.fault();
    Io io(options);
    io.add(dir.path("file"));
    std::vector<Range> ranges;
    ranges.emplace_back(0, 0, 4 * (64 << 10));         // four pieces, the first in flight
    ranges.emplace_back(0, 512 << 10, 64 << 10);       // waits
    ranges.emplace_back(0, 768 << 10, 2 * (64 << 10)); // urgent, two pieces
    ranges.emplace_back(0, 960 << 10, 64 << 10);       // urgent, after the other
    for (size_t i = 0; i < ranges.size(); i++) {
        plec_io_read read = ranges[i].read(i);
        read.urgent = i >= 2;
        ASSERT_TRUE(plec_io_submit(io.get(), &read));
        gate.wait_for_a_reader();
    }
    EXPECT_EQ(io.counters().waiting, 4u);
    gate.open();
    std::vector<uint64_t> order;
    while (order.size() < ranges.size()) {
        plec_io_completion done[4];
        size_t n = plec_io_reap(io.get(), done, 4, UINT32_MAX);
        for (size_t i = 0; i < n; i++)
            order.push_back(done[i].user);
    }
    EXPECT_EQ(order, (std::vector<uint64_t>{2, 3, 0, 1}));
    const uint64_t kib[] = {0, 768, 832, 960, 64, 128, 192, 512};
    std::vector<uint64_t> wanted;
    for (uint64_t k : kib)
        wanted.push_back(k << 10);
    EXPECT_EQ(gate.offsets(), wanted);
}

TEST(Io, AWaitEndsByItsTimeAndByWake) {
    TempDir dir;
    write_file(dir.path("file"), "x", 1);
    Gate gate;
    plec_io_options options = {};
    options.engine = PLEC_IO_PREAD;
    options.fault = gate.fault();
    Io io(options);
    io.add(dir.path("file"));
    Range range(0, 0, 1);
    plec_io_read read = range.read(7);
    ASSERT_TRUE(plec_io_submit(io.get(), &read));
    plec_io_completion done;
    EXPECT_EQ(plec_io_reap(io.get(), &done, 1, 0), 0u);
    EXPECT_EQ(plec_io_reap(io.get(), &done, 1, 2), 0u);
    plec_io_wake(io.get());
    EXPECT_EQ(plec_io_reap(io.get(), &done, 1, UINT32_MAX), 0u);
    std::thread waker([&] { plec_io_wake(io.get()); });
    EXPECT_EQ(plec_io_reap(io.get(), &done, 1, UINT32_MAX), 0u);
    waker.join();
    gate.open();
    while (plec_io_reap(io.get(), &done, 1, UINT32_MAX) == 0)
        ;
    EXPECT_EQ(done.user, 7u);
    EXPECT_EQ(*range.to(), 'x');
}

TEST(Io, LatencyRunsFromSubmitToDone) {
    TempDir dir;
    write_file(dir.path("file"), "x", 1);
    Gate gate;
    plec_io_options options = {};
    options.engine = PLEC_IO_PREAD;
    options.fault = gate.fault();
    Io io(options);
    io.add(dir.path("file"));
    Range range(0, 0, 1);
    plec_io_read read = range.read(0);
    ASSERT_TRUE(plec_io_submit(io.get(), &read));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    gate.open();
    plec_io_completion done;
    ASSERT_EQ(plec_io_reap(io.get(), &done, 1, UINT32_MAX), 1u);
    EXPECT_GE(done.latency_ns, 5000000u);
    EXPECT_LT(done.latency_ns, 60000000000u);
}

TEST(IoPlan, ChunksCoverARangeOnceAlignedAndWithinItsSlack) {
    std::mt19937 random(11);
    for (int round = 0; round < 20000; round++) {
        plec_io_file file = {};
        file.offset_align = 1u << (random() % 14);
        file.memory_align = file.offset_align >> (random() % 4);
        if (file.memory_align == 0) file.memory_align = 1;
        plec_io_read read = {};
        read.offset = random() % 100000;
        read.length = 1 + random() % (round % 2 == 0 ? 300 : 60000);
        uint64_t base = (uint64_t{1} << 30) + (random() % 4 == 0 ? random() % 8192 : 0);
        read.to = reinterpret_cast<void *>(base + read.offset);
        if (random() % 2 == 0) read.slack_before = random() % 9000;
        if (random() % 2 == 0) read.slack_after = random() % 9000;
        uint64_t piece = 4096u << (random() % 3), end = read.offset + read.length;
        bool may_be_direct = random() % 8 != 0, exact = random() % 8 == 0;
        bool agrees = base % file.memory_align == 0;
        for (uint64_t at = read.offset; at < end;) {
            plec_io_chunk chunk;
            plec_io_plan(&chunk, &read, &file, at, end, piece, may_be_direct, exact);
            ASSERT_GT(chunk.end, at);
            ASSERT_LE(chunk.end, end);
            ASSERT_LE(chunk.length, piece);
            ASSERT_EQ(reinterpret_cast<uint64_t>(chunk.to), base + chunk.from);
            ASSERT_GE(chunk.from + chunk.length, chunk.end);
            if (!chunk.direct) {
                ASSERT_EQ(chunk.from, at);
                ASSERT_EQ(chunk.from + chunk.length, chunk.end);
                // Only an end, or what cannot be direct at all.
                if (may_be_direct && agrees && file.offset_align <= piece) {
                    ASSERT_LE(chunk.length, file.offset_align);
                }
            } else {
                ASSERT_TRUE(may_be_direct && agrees);
                ASSERT_EQ(chunk.from % file.offset_align, 0u);
                ASSERT_EQ(chunk.length % file.offset_align, 0u);
                ASSERT_EQ(reinterpret_cast<uint64_t>(chunk.to) % file.memory_align, 0u);
                ASSERT_LE(chunk.from, at);
                if (chunk.from < at) {
                    ASSERT_EQ(at, read.offset);
                    ASSERT_FALSE(exact);
                    ASSERT_LE(at - chunk.from, read.slack_before);
                }
                if (chunk.from + chunk.length > chunk.end) {
                    ASSERT_EQ(chunk.end, end);
                    ASSERT_LE(chunk.from + chunk.length - end, read.slack_after);
                }
            }
            at = chunk.end;
        }
    }
}
