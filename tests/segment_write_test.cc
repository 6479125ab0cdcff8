#include "lyrw/cursor.h"
#include "lyrw/mapping.h"
#include "tests/support/segment_plans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <map>
#include <set>

#include <sys/resource.h>

using namespace plec_test;

namespace {

/* Files that the reference writer cannot have made: offsets permuted or changed by hand, slots
 * shifted by its own empty segment, bytes behind the end. */
const std::set<std::string> not_by_the_writer = {"lyrw/07_permuted_role_major",
                                                 "lyrw/odd/length_not_matching_shape",
                                                 "lyrw/odd/offset_at_file_end_length_zero",
                                                 "lyrw/odd/offset_not_aligned",
                                                 "lyrw/odd/trailing_garbage",
                                                 "lyrw/odd/writer_quirk_empty_segment"};

std::vector<std::string> accepted_files() {
    std::vector<std::string> names;
    for (const std::string &name : all_segment_files())
        if (name.find("/bad/") == std::string::npos) names.push_back(name);
    EXPECT_EQ(names.size(), 35u);
    return names;
}

void expect_same_tables(const plec_segment &a, const plec_segment &b) {
    EXPECT_EQ(memcmp(&a.header, &b.header, sizeof a.header), 0);
    ASSERT_EQ(a.n_schemas, b.n_schemas);
    for (uint32_t i = 0; i < a.header.num_banks; i++)
        EXPECT_EQ(memcmp(&a.banks[i], &b.banks[i], sizeof a.banks[i]), 0) << "bank " << i;
    for (uint32_t i = 0; i < a.header.num_segments; i++)
        EXPECT_EQ(memcmp(&a.segments[i], &b.segments[i], sizeof a.segments[i]), 0) << i;
    for (uint64_t i = 0; i < a.n_schemas; i++)
        EXPECT_EQ(memcmp(&a.schemas[i], &b.schemas[i], sizeof a.schemas[i]), 0) << "schema " << i;
    EXPECT_EQ(a.payload_start, b.payload_start);
}

void expect_same_regions(const plec_segment &a, const plec_segment &b) {
    auto of_a = regions(a), of_b = regions(b);
    ASSERT_EQ(of_a.size(), of_b.size());
    for (size_t i = 0; i < of_a.size(); i++) {
        const plec_region &x = of_a[i].region, &y = of_b[i].region;
        ASSERT_EQ(x.length, y.length) << i;
        EXPECT_EQ(memcmp(a.data + x.offset, b.data + y.offset, x.length), 0) << i;
        EXPECT_EQ(y.offset % 64, 0u) << i;
    }
}

std::vector<std::string> names_in(const std::string &folder) {
    return list_folder(folder, "");
}

} // namespace

TEST(SegmentWrite, FilesOfTheReferenceWriterComeBackByteForByte) {
    TempDir dir;
    for (const std::string &name : accepted_files()) {
        SegmentFile file(segment_bytes(name));
        plec_error err;
        ASSERT_EQ(
            plec_segment_rewrite(dir.path("x").c_str(), &file.segment, nullptr, nullptr, &err),
            PLEC_OK)
            << name << err.message;
        auto again = read_file(dir.path("x"));
        bool same = again == segment_bytes(name);
        EXPECT_EQ(same, not_by_the_writer.count(name) == 0) << name;
    }
}

TEST(SegmentWrite, EveryFieldAndRegionSurvivesEveryPlacement) {
    TempDir dir;
    for (const std::string &name : accepted_files()) {
        SegmentFile file(segment_bytes(name));
        for (plec_order order : {PLEC_ORDER_ENTRY, PLEC_ORDER_ROLE})
            for (uint32_t extent : {0u, 1u}) {
                SCOPED_TRACE(name + " extent " + std::to_string(extent));
                plec_rewrite_options options = {order, extent};
                plec_rewrite_report report;
                plec_error err;
                ASSERT_EQ(plec_segment_rewrite(dir.path("x").c_str(), &file.segment, &options,
                                               &report, &err),
                          PLEC_OK)
                    << err.message;
                SegmentFile again(read_file(dir.path("x")));
                ASSERT_EQ(again.status, PLEC_OK) << again.err.message;
                EXPECT_EQ(again.size, report.file_bytes);
                expect_same_tables(file.segment, again.segment);
                expect_same_regions(file.segment, again.segment);
            }
    }
}

TEST(SegmentWrite, TrailingBytesAreLeftOutAndCounted) {
    TempDir dir;
    SegmentFile file(segment_bytes("lyrw/odd/trailing_garbage"));
    plec_rewrite_report report;
    ASSERT_EQ(plec_segment_rewrite(dir.path("x").c_str(), &file.segment, nullptr, &report, nullptr),
              PLEC_OK);
    EXPECT_EQ(report.trailing_dropped, 77u);
    EXPECT_EQ(read_file(dir.path("x")), segment_bytes("lyrw/odd/base"));
}

TEST(SegmentWrite, WhatPointsOutsideTheFileIsNotRewritten) {
    TempDir dir;
    plec_error err;
    SegmentFile far(segment_bytes("lyrw/bad/region_offset_past_end"));
    EXPECT_EQ(plec_segment_rewrite(dir.path("x").c_str(), &far.segment, nullptr, nullptr, &err),
              PLEC_MALFORMED);
    EXPECT_STREQ(err.name, "RegionOutOfBounds");
    auto bytes = segment_bytes("lyrw/odd/base");
    bytes.resize(150);
    std::fill(bytes.begin() + 100, bytes.end(), 0); /* the slots that are left are good ones */
    SegmentFile cut(bytes);
    EXPECT_EQ(plec_segment_rewrite(dir.path("x").c_str(), &cut.segment, nullptr, nullptr, &err),
              PLEC_MALFORMED);
    EXPECT_STREQ(err.name, "Truncated");
    EXPECT_TRUE(names_in(dir.path()).empty());
}

TEST(SegmentWrite, RewritesTheFileItReads) {
    TempDir dir;
    std::string path = dir.path("x");
    auto bytes = segment_bytes("lyrw/07_permuted_role_major");
    write_file(path, bytes.data(), bytes.size());
    plec_mapping mapping;
    plec_segment segment;
    ASSERT_EQ(plec_mapping_open(&mapping, path.c_str(), nullptr), PLEC_OK);
    ASSERT_EQ(plec_segment_parse(&segment, mapping.data, mapping.size, nullptr), PLEC_OK);
    EXPECT_EQ(plec_segment_rewrite(path.c_str(), &segment, nullptr, nullptr, nullptr), PLEC_OK);
    SegmentFile again(read_file(path));
    expect_same_regions(segment, again.segment);
    plec_segment_close(&segment);
    plec_mapping_close(&mapping);
}

TEST(SegmentWrite, RegionsMayComeInAnyOrderAndInPieces) {
    TempDir dir;
    Plan plan = small_plan(3);
    write_plan(dir.path("whole"), plan.get());
    plec_segment_writer *writer;
    plec_error err;
    ASSERT_EQ(plec_segment_writer_open(&writer, dir.path("pieces").c_str(), plan.get(), &err),
              PLEC_OK);
    for (uint64_t piece = 0; piece < 132; piece += 44)
        for (uint32_t i = 6; i-- > 0;) {
            uint32_t entry = i / 2, schema_index = i % 2;
            uint64_t length = schema_index == 0 ? 60 : 132;
            if (piece >= length) continue;
            auto bytes = content(entry, schema_index, length);
            ASSERT_EQ(plec_segment_writer_append(writer, 0, entry, schema_index,
                                                 bytes.data() + piece,
                                                 std::min<uint64_t>(44, length - piece), &err),
                      PLEC_OK);
        }
    ASSERT_EQ(plec_segment_writer_commit(writer, &err), PLEC_OK) << err.message;
    EXPECT_EQ(read_file(dir.path("pieces")), read_file(dir.path("whole")));
}

TEST(SegmentWrite, MoreThanPlannedIsRefused) {
    TempDir dir;
    Plan plan = small_plan(1);
    plec_segment_writer *writer;
    plec_error err;
    ASSERT_EQ(plec_segment_writer_open(&writer, dir.path("x").c_str(), plan.get(), &err), PLEC_OK);
    uint8_t bytes[61] = {};
    EXPECT_EQ(plec_segment_writer_append(writer, 0, 0, 0, bytes, 61, &err), PLEC_BAD_INPUT);
    EXPECT_STREQ(err.name, "RegionTooLong");
    EXPECT_EQ(plec_segment_writer_append(writer, 0, 1, 0, bytes, 1, &err), PLEC_BAD_INPUT);
    EXPECT_STREQ(err.name, "NoSuchRegion");
    EXPECT_EQ(plec_segment_writer_append(writer, 0, 0, 2, bytes, 1, &err), PLEC_BAD_INPUT);
    EXPECT_EQ(plec_segment_writer_append(writer, 1, 0, 0, bytes, 1, &err), PLEC_BAD_INPUT);
    plec_segment_writer_abort(writer);
}

TEST(SegmentWrite, ClosingEarlyNamesTheNextRegionAndLeavesNothing) {
    TempDir dir;
    Plan plan = small_plan(2);
    plec_segment_writer *writer;
    plec_error err;
    ASSERT_EQ(plec_segment_writer_open(&writer, dir.path("x").c_str(), plan.get(), &err), PLEC_OK);
    auto bytes = content(0, 0, 60);
    ASSERT_EQ(plec_segment_writer_append(writer, 0, 0, 0, bytes.data(), 60, &err), PLEC_OK);
    ASSERT_EQ(plec_segment_writer_append(writer, 0, 0, 1, bytes.data(), 7, &err), PLEC_OK);
    EXPECT_EQ(plec_segment_writer_commit(writer, &err), PLEC_BAD_INPUT);
    EXPECT_STREQ(err.message, "RegionsMissing: segment=0 entry=0 schema=1: 7 of 132 bytes written");
    EXPECT_TRUE(names_in(dir.path()).empty());
}

TEST(SegmentWrite, TargetNeverExistsHalfWritten) {
    TempDir dir;
    std::string path = dir.path("deep/er/x.lyrw");
    Plan plan = small_plan(4);
    plec_segment_writer *writer;
    plec_error err;
    ASSERT_EQ(plec_segment_writer_open(&writer, path.c_str(), plan.get(), &err), PLEC_OK)
        << err.message;
    EXPECT_FALSE(std::filesystem::exists(path));
    ASSERT_EQ(write_all(writer, &err), PLEC_OK);
    EXPECT_FALSE(std::filesystem::exists(path)) << "not before commit";
    plec_segment_writer_abort(writer);
    EXPECT_TRUE(names_in(dir.path("deep/er")).empty()) << "abort leaves no file";
    write_plan(path, plan.get());
    EXPECT_EQ(names_in(dir.path("deep/er")), std::vector<std::string>{"x.lyrw"});

    auto old = read_file(path);
    Plan other = small_plan(9);
    ASSERT_EQ(plec_segment_writer_open(&writer, path.c_str(), other.get(), &err), PLEC_OK);
    ASSERT_EQ(write_all(writer, &err), PLEC_OK);
    EXPECT_EQ(read_file(path), old) << "an older file stays whole until the new one is";
    ASSERT_EQ(plec_segment_writer_commit(writer, &err), PLEC_OK);
    EXPECT_NE(read_file(path), old);
}

TEST(SegmentWrite, TwoWritersOfOnePathDoNotMix) {
    TempDir dir;
    std::string path = dir.path("x");
    Plan small = small_plan(1), large = small_plan(9);
    plec_segment_writer *a, *b;
    plec_error err;
    ASSERT_EQ(plec_segment_writer_open(&a, path.c_str(), small.get(), &err), PLEC_OK);
    ASSERT_EQ(plec_segment_writer_open(&b, path.c_str(), large.get(), &err), PLEC_OK);
    ASSERT_EQ(write_all(b, &err), PLEC_OK);
    ASSERT_EQ(write_all(a, &err), PLEC_OK);
    ASSERT_EQ(plec_segment_writer_commit(a, &err), PLEC_OK);
    EXPECT_EQ(SegmentFile(read_file(path)).segment.banks[0].num_entries, 1u);
    ASSERT_EQ(plec_segment_writer_commit(b, &err), PLEC_OK);
    EXPECT_EQ(SegmentFile(read_file(path)).segment.banks[0].num_entries, 9u);
}

TEST(SegmentWrite, FolderThatIsAFileIsNamed) {
    TempDir dir;
    write_file(dir.path("a"), "", 0);
    Plan plan = small_plan(1);
    plec_segment_writer *writer;
    plec_error err;
    EXPECT_EQ(plec_segment_writer_open(&writer, dir.path("a/x").c_str(), plan.get(), &err),
              PLEC_IO);
    EXPECT_STREQ(err.name, "CannotCreate");
    EXPECT_NE(std::string(err.message).find(dir.path("a")), std::string::npos);
}

/* The message named a file that nobody asked for, "x.part-4711-0". */
TEST(SegmentWrite, WhatCannotBeCreatedIsNamedAsTheCallerNamesIt) {
    TempDir dir;
    Plan plan = small_plan(1);
    plec_segment_writer *writer;
    plec_error err;
    auto refused = [&](const std::string &path) {
        EXPECT_EQ(plec_segment_writer_open(&writer, path.c_str(), plan.get(), &err), PLEC_IO);
        EXPECT_STREQ(err.name, "CannotCreate");
        return std::string(err.message);
    };
    std::string path = dir.path(std::string(300, 'n'));
    EXPECT_EQ(refused(path).rfind("CannotCreate: " + path + ": ", 0), 0u) << err.message;
    EXPECT_EQ(refused("/proc/none"), "CannotCreate: /proc/none: No such file or directory");
    /* It would fit; what is put behind it for a while does not, and is told. */
    path = dir.path(std::string(250, 'n'));
    EXPECT_EQ(refused(path).rfind("CannotCreate: " + path + ": as " + path + ".part-", 0), 0u)
        << err.message;
}

namespace {

/* A soft limit on the size of files, as a full disk: writes beyond it come back short, then fail.
 */
class FileLimit {
  public:
    explicit FileLimit(uint64_t bytes) {
        getrlimit(RLIMIT_FSIZE, &old_);
        handler_ = signal(SIGXFSZ, SIG_IGN);
        rlimit limit = {bytes, old_.rlim_max};
        EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
    }
    ~FileLimit() {
        setrlimit(RLIMIT_FSIZE, &old_);
        signal(SIGXFSZ, handler_);
    }

  private:
    rlimit old_;
    void (*handler_)(int);
};

} // namespace

TEST(SegmentWrite, NoRoomIsToldBeforeTheFirstByte) {
    TempDir dir;
    Plan plan = small_plan(100);
    FileLimit limit(4096);
    plec_segment_writer *writer = nullptr;
    plec_error err;
    EXPECT_EQ(plec_segment_writer_open(&writer, dir.path("x").c_str(), plan.get(), &err), PLEC_IO);
    EXPECT_STREQ(err.name, "CannotReserve");
    EXPECT_EQ(writer, nullptr);
    EXPECT_TRUE(names_in(dir.path()).empty());
}

TEST(SegmentWrite, DiskThatFillsUpMidwayIsReportedAndLeavesNothing) {
    TempDir dir;
    Plan plan = small_plan(100);
    plec_segment_writer *writer;
    plec_error err;
    ASSERT_EQ(plec_segment_writer_open(&writer, dir.path("x").c_str(), plan.get(), &err), PLEC_OK);
    {
        FileLimit limit(10007); /* inside a region: its write is cut short first */
        EXPECT_EQ(write_all(writer, &err), PLEC_IO);
        EXPECT_STREQ(err.name, "WriteFailed");
        EXPECT_EQ(err.byte, 10007u);
        EXPECT_NE(std::string(err.message).find(dir.path("x")), std::string::npos);
    }
    plec_segment_writer_abort(writer);
    EXPECT_TRUE(names_in(dir.path()).empty());
}

TEST(SegmentWrite, SinkGetsEachByteOnceAndItsErrorComesBack) {
    struct Memory {
        std::map<uint64_t, uint64_t> ranges;
        uint64_t total = 0, fail_after = UINT64_MAX;
    } memory;
    plec_segment_sink sink = {
        [](void *user, uint64_t at, const void *, uint64_t n, plec_error *err) {
            auto *m = static_cast<Memory *>(user);
            if (m->total + n > m->fail_after) return plec_fail(err, PLEC_CANCELLED, "Stop", "here");
            EXPECT_TRUE(m->ranges.emplace(at, at + n).second);
            m->total += n;
            return PLEC_OK;
        },
        &memory};
    SegmentFile file(segment_bytes("lyrw/03_mxfp4_paired_importer_shape"));
    plec_segment_plan plan;
    plec_segment_writer *writer;
    plec_error err;
    ASSERT_EQ(plec_segment_plan_of(&plan, &file.segment, &err), PLEC_OK);
    ASSERT_EQ(plec_segment_writer_open_sink(&writer, &sink, &plan, &err), PLEC_OK);
    ASSERT_EQ(plec_segment_writer_copy(writer, &file.segment, &err), PLEC_OK);
    ASSERT_EQ(plec_segment_writer_commit(writer, &err), PLEC_OK);
    uint64_t end = 0;
    for (auto [from, to] : memory.ranges) {
        EXPECT_GE(from, end);
        end = to;
    }
    EXPECT_EQ(end, file.size);

    memory = Memory();
    memory.fail_after = 20000;
    ASSERT_EQ(plec_segment_writer_open_sink(&writer, &sink, &plan, &err), PLEC_OK);
    EXPECT_EQ(plec_segment_writer_copy(writer, &file.segment, &err), PLEC_CANCELLED);
    plec_segment_writer_abort(writer);
}

TEST(SegmentWrite, CopyOfAnotherFileIsRefused) {
    SegmentFile file(segment_bytes("lyrw/odd/base"));
    SegmentFile other(segment_bytes("lyrw/odd/length_not_matching_shape"));
    plec_segment_sink sink = {
        [](void *, uint64_t, const void *, uint64_t, plec_error *) { return PLEC_OK; }, nullptr};
    plec_segment_plan plan;
    plec_segment_writer *writer;
    plec_error err;
    ASSERT_EQ(plec_segment_plan_of(&plan, &file.segment, &err), PLEC_OK);
    ASSERT_EQ(plec_segment_writer_open_sink(&writer, &sink, &plan, &err), PLEC_OK);
    EXPECT_EQ(plec_segment_writer_copy(writer, &other.segment, &err), PLEC_BAD_INPUT);
    EXPECT_STREQ(err.name, "NoSuchRegion");
    plec_segment_writer_abort(writer);
}
