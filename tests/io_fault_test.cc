// Faults put before every piece of a read, in every engine and cache: the read fails by name or
// comes whole, the rest goes on, nothing stays in flight.
#include "host/io.h"
#include "tests/support/data.h"
#include "tests/support/io_reads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <set>

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
    {PLEC_IO_MMAP, PLEC_CACHE_BUFFERED, "Mmap"},
};

// What to say of the pieces [first, first + count), counted from 0 as they come.
class Faults {
  public:
    plec_io_fault hook() { return {before, this}; }
    void set(int verdict, uint64_t first = 0, uint64_t count = 1) {
        verdict_ = verdict, first_ = first,
        end_ = count > UINT64_MAX - first ? UINT64_MAX : first + count;
        n_ = 0;
    }
    uint64_t n() const { return n_; }

  private:
    static int before(void *user, uint32_t, uint64_t, uint64_t) {
        auto *faults = static_cast<Faults *>(user);
        uint64_t i = faults->n_++;
        return i >= faults->first_ && i < faults->end_ ? faults->verdict_.load() : 0;
    }
    std::atomic<int> verdict_{0};
    std::atomic<uint64_t> first_{0}, end_{0}, n_{0};
};

class FaultyMode : public testing::TestWithParam<Mode> {
  protected:
    static constexpr uint64_t PIECE = 16 << 10;
    static constexpr uint64_t FILE_BYTES = 20 * PIECE + 333;

    static void SetUpTestSuite() {
        dir = new TempDir;
        bytes = random_bytes(FILE_BYTES, 9);
        write_file(dir->path("file"), bytes.data(), bytes.size());
        write_file(dir->path("other"), bytes.data(), bytes.size());
    }
    static void TearDownTestSuite() {
        delete dir;
        dir = nullptr;
    }
    FaultyMode() {
        options.engine = GetParam().engine;
        options.cache = GetParam().cache;
        options.piece_bytes = PIECE;
        options.log = log.sink();
        options.fault = faults.hook();
    }
    // Odd at both ends, some pieces long.
    static std::vector<Range> ranges(bool slack) {
        std::vector<Range> out;
        out.emplace_back(0, 100, 4 * PIECE + 1000, slack);
        out.emplace_back(0, FILE_BYTES - PIECE - 50, PIECE + 50, slack);
        out.emplace_back(0, 8 * PIECE, PIECE, slack);
        return out;
    }
    // Pieces of the ranges when nothing goes wrong.
    uint64_t n_pieces(bool slack) {
        faults.set(0);
        Io io(options);
        io.add(dir->path("file"));
        io.expect_exact(ranges(slack), bytes);
        return faults.n();
    }

    static TempDir *dir;
    static std::vector<uint8_t> bytes;
    Log log;
    Faults faults;
    plec_io_options options = {};
};
TempDir *FaultyMode::dir;
std::vector<uint8_t> FaultyMode::bytes;

} // namespace

TEST_P(FaultyMode, AReadErrorAtAnyPieceFailsThatReadByNameAndNoOther) {
    for (bool slack : {false, true})
        for (uint64_t i = 0, n = n_pieces(slack); i < n; i++) {
            SCOPED_TRACE("piece " + std::to_string(i));
            Io io(options);
            io.add(dir->path("file"));
            faults.set(EIO, i);
            std::vector<Range> list = ranges(slack);
            std::vector<plec_io_completion> done = io.run(list);
            int n_failed = 0;
            for (size_t k = 0; k < list.size(); k++) {
                if (done[k].status == PLEC_OK) {
                    EXPECT_EQ(done[k].n_bytes, list[k].length);
                    list[k].expect_exact(bytes);
                    continue;
                }
                n_failed++;
                EXPECT_EQ(done[k].status, PLEC_IO);
                EXPECT_STREQ(done[k].error.name, "ReadFailed");
                EXPECT_LT(done[k].n_bytes, list[k].length);
                EXPECT_GE(done[k].error.byte, list[k].offset);
                EXPECT_LT(done[k].error.byte, list[k].offset + list[k].length);
                std::string message = done[k].error.message;
                for (const std::string &part :
                     {dir->path("file"), "wanted " + std::to_string(list[k].length) + " bytes",
                      "found " + std::to_string(done[k].n_bytes), std::string(strerror(EIO))})
                    EXPECT_NE(message.find(part), std::string::npos) << part << ": " << message;
            }
            EXPECT_EQ(n_failed, 1);
            EXPECT_EQ(io.counters().failed, 1u);
            EXPECT_EQ(io.counters().waiting, 0u);
            io.expect_exact(ranges(slack), bytes); // the file itself is still good
        }
}

TEST_P(FaultyMode, EveryPieceFailingFailsEveryReadOnce) {
    Io io(options);
    io.add(dir->path("file"));
    faults.set(EIO, 0, UINT64_MAX);
    for (const plec_io_completion &done : io.run(ranges(false))) {
        EXPECT_EQ(done.status, PLEC_IO);
        EXPECT_EQ(done.n_bytes, 0u);
    }
    EXPECT_EQ(io.counters().failed, 3u);
    EXPECT_EQ(io.counters().bytes, 0u);
    faults.set(0);
    io.expect_exact(ranges(true), bytes);
}

TEST_P(FaultyMode, AShortReadAnywhereGoesOnWhereItStopped) {
    for (bool slack : {false, true})
        for (int cut : {1, 100, 511, 512, 4096, 4097, 16000}) {
            for (uint64_t i = 0, n = n_pieces(slack); i < n; i++) {
                SCOPED_TRACE("cut " + std::to_string(cut) + " piece " + std::to_string(i));
                Io io(options);
                io.add(dir->path("file"));
                faults.set(-cut, i);
                std::vector<Range> list = ranges(slack);
                io.expect_exact(list, bytes);
                plec_io_counters c = io.counters();
                EXPECT_EQ(c.bytes, list[0].length + list[1].length + list[2].length);
                EXPECT_LE(c.short_reads, 1u);
            }
        }
}

TEST_P(FaultyMode, ShortReadsAllTheWayStillDeliver) {
    for (int cut : {700, 5000}) {
        Io io(options);
        io.add(dir->path("file"));
        faults.set(-cut, 0, UINT64_MAX);
        io.expect_exact(ranges(true), bytes);
        EXPECT_GT(io.counters().short_reads, 10u);
    }
}

TEST_P(FaultyMode, InterruptionsAreTriedAgainAndCounted) {
    for (int error : {EINTR, EAGAIN, ECANCELED})
        for (uint64_t i = 0, n = n_pieces(false); i < n; i++) {
            Io io(options);
            io.add(dir->path("file"));
            faults.set(error, i, 3);
            io.expect_exact(ranges(false), bytes);
            uint64_t retries = io.counters().retries;
            EXPECT_GE(retries, 1u) << "piece " << i;
            EXPECT_LE(retries, 3u);
        }
}

TEST_P(FaultyMode, AnInterruptionThatNeverEndsFailsAfterABoundedTime) {
    Io io(options);
    io.add(dir->path("file"));
    faults.set(EAGAIN, 0, UINT64_MAX);
    std::vector<Range> list;
    list.emplace_back(0, 0, PIECE);
    plec_io_completion done = io.run(list)[0];
    EXPECT_EQ(done.status, PLEC_IO);
    EXPECT_STREQ(done.error.name, "ReadFailed");
    EXPECT_EQ(io.counters().retries, 1000u);
}

TEST_P(FaultyMode, ARefusedDirectReadTurnsThatFileToBufferedOnce) {
    for (int error : {EINVAL, EOPNOTSUPP})
        for (uint64_t i = 0, n = n_pieces(true); i < n; i++) {
            SCOPED_TRACE("piece " + std::to_string(i));
            Log said;
            plec_io_options o = options;
            o.log = said.sink();
            Io io(o);
            io.add(dir->path("file"));
            io.add(dir->path("other"));
            faults.set(error, i, 2);
            std::vector<Range> list = ranges(true);
            std::vector<plec_io_completion> done = io.run(list);
            plec_io_counters c = io.counters();
            if (std::string(c.cache) == "buffered") { // nothing left to turn to
                EXPECT_GE(c.failed, 1u);
                EXPECT_EQ(c.fallbacks, 0u);
                for (const plec_io_completion &d : done)
                    if (d.status != PLEC_OK) {
                        EXPECT_STREQ(d.error.name, "ReadFailed");
                    }
                continue;
            }
            if (c.buffered_files > 1) GTEST_SKIP() << "no direct reads in " << dir->path();
            EXPECT_EQ(c.fallbacks, 1u);
            EXPECT_EQ(c.buffered_files, 1u);
            EXPECT_EQ(said.count("was refused"), 1u) << said.text();
            EXPECT_NE(said.text().find(dir->path("file")), std::string::npos) << said.text();
            // A second refusal may have met a piece that was already buffered: that one fails.
            for (size_t k = 0; k < list.size(); k++)
                if (done[k].status == PLEC_OK) list[k].expect_exact(bytes);
            faults.set(0);
            uint64_t direct = c.direct_bytes;
            io.expect_exact(ranges(true), bytes);
            EXPECT_EQ(io.counters().direct_bytes, direct) << "buffered from here on";
            std::vector<Range> other;
            other.emplace_back(1, 0, PIECE);
            io.expect_exact(other, bytes);
            EXPECT_EQ(io.counters().direct_bytes, direct + PIECE) << "only that file";
            EXPECT_EQ(io.counters().fallbacks, 1u);
        }
}

TEST_P(FaultyMode, OneRefusalLosesNoByte) {
    for (uint64_t i = 0, n = n_pieces(false); i < n; i++) {
        Io io(options);
        io.add(dir->path("file"));
        faults.set(EINVAL, i, 1);
        std::vector<Range> list = ranges(false);
        std::vector<plec_io_completion> done = io.run(list);
        plec_io_counters c = io.counters();
        EXPECT_EQ(c.fallbacks + c.failed, 1u);
        for (size_t k = 0; k < list.size(); k++) {
            if (done[k].status == PLEC_OK) list[k].expect_exact(bytes);
        }
    }
}

TEST_P(FaultyMode, AnyMixOfFaultsEndsEveryReadExactlyOnce) {
    std::mt19937 random(77);
    std::atomic<uint32_t> state{12345};
    auto any = [](void *user, uint32_t, uint64_t, uint64_t) -> int {
        auto *s = static_cast<std::atomic<uint32_t> *>(user);
        uint32_t x = (*s += 0x9E3779B9u);
        x = (x ^ (x >> 15)) * 0x85EBCA6Bu;
        x ^= x >> 13;
        switch (x % 12) {
        case 0: return EIO;
        case 1: return EINTR;
        case 2: return EAGAIN;
        case 3:
        case 4: return -static_cast<int>(1 + (x >> 8) % 20000);
        default: return 0;
        }
    };
    options.fault = {any, &state};
    options.queue_depth = 5;
    options.max_bytes = 3 * PIECE;
    options.max_requests = 7;
    Io io(options);
    io.add(dir->path("file"));
    uint64_t n_failed = 0;
    for (int round = 0; round < 20; round++) {
        std::vector<Range> list;
        for (int i = 0; i < 20; i++) {
            uint64_t length = 1 + random() % (5 * PIECE);
            list.emplace_back(0, random() % (FILE_BYTES - length), length, random() % 2 == 0);
        }
        std::vector<plec_io_completion> done = io.run(list);
        for (size_t k = 0; k < list.size(); k++) {
            if (done[k].status == PLEC_OK)
                list[k].expect_exact(bytes);
            else
                n_failed++;
        }
    }
    plec_io_counters c = io.counters();
    EXPECT_EQ(c.reads, 400u);
    EXPECT_EQ(c.failed, n_failed);
    EXPECT_GT(n_failed, 20u);
    EXPECT_LT(n_failed, 380u);
    EXPECT_EQ(c.bytes, c.direct_bytes + c.buffered_bytes);
    EXPECT_LE(c.max_in_flight_bytes, options.max_bytes);
}

INSTANTIATE_TEST_SUITE_P(Io, FaultyMode, testing::ValuesIn(MODES),
                         [](const auto &mode) { return mode.param.name; });
