#include "lyrw/cursor.h"
#include "lyrw/mapping.h"
#include "lyrw/segment_write.h"
#include "tests/support/segment_file.h"

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

struct Placed {
    uint32_t segment, entry, schema;
    plec_region region;
};

/* Every region of a file, in the order of its entry tables. */
std::vector<Placed> regions(const plec_segment &s) {
    std::vector<Placed> all;
    for (uint32_t i = 0; i < s.header.num_segments; i++) {
        const plec_lyrw_segment &record = s.segments[i];
        for (uint32_t e = 0; e < record.entry_count; e++)
            for (uint32_t m = 0; m < s.banks[record.bank_ordinal].n_schemas; m++) {
                Placed place = {i, record.first_entry + e, m, {}};
                plec_error err;
                EXPECT_EQ(plec_segment_slot(&place.region, &s, i, e, m, &err), PLEC_OK)
                    << err.message;
                all.push_back(place);
            }
    }
    return all;
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

/* A plan of routed banks to vary. */
struct Plan {
    std::vector<plec_lyrw_bank> banks;
    std::vector<plec_lyrw_segment> segments;
    std::vector<plec_lyrw_schema> schemas;
    plec_segment_plan plan = {};

    Plan(uint32_t entries, std::vector<plec_lyrw_schema> of_bank) {
        plec_lyrw_bank bank = {};
        bank.kind = PLEC_BANK_ROUTED;
        bank.n_schemas = static_cast<uint16_t>(of_bank.size());
        bank.num_entries = entries;
        banks.push_back(bank);
        plec_lyrw_segment record = {};
        record.entry_count = entries;
        segments.push_back(record);
        schemas = std::move(of_bank);
        plan.header.format_version = PLEC_LYRW_VERSION;
    }
    plec_segment_plan *get() {
        plan.header.num_banks = static_cast<uint16_t>(banks.size());
        plan.header.num_segments = static_cast<uint16_t>(segments.size());
        plan.banks = banks.data();
        plan.segments = segments.data();
        plan.schemas = schemas.data();
        plan.n_schemas = schemas.size();
        return &plan;
    }
};

plec_lyrw_schema schema(uint16_t index, uint16_t role, uint16_t format, uint32_t rows,
                        uint32_t cols, uint16_t packing = PLEC_PACKING_ROW_MAJOR,
                        uint16_t pair = PLEC_LYRW_UNPAIRED) {
    plec_lyrw_schema s = {index, role, format, packing, pair, 0, rows, cols};
    if (role == PLEC_ROLE_GATE_UP_FUSED) s.layout = PLEC_LAYOUT_CONTIGUOUS_HALVES;
    return s;
}

/* Two schemas whose lengths, 60 and 132 bytes, are no multiples of 64. */
Plan small_plan(uint32_t entries) {
    return Plan(entries, {schema(0, PLEC_ROLE_GATE_UP_FUSED, PLEC_FORMAT_F32, 5, 3),
                          schema(1, PLEC_ROLE_DOWN, PLEC_FORMAT_F32, 3, 11)});
}

std::vector<uint8_t> content(uint32_t entry, uint32_t schema_index, uint64_t length) {
    std::vector<uint8_t> bytes(length);
    for (uint64_t i = 0; i < length; i++)
        bytes[i] = static_cast<uint8_t>(entry * 31 + schema_index * 7 + i + 1);
    return bytes;
}

plec_status write_all(plec_segment_writer *writer, plec_error *err) {
    for (plec_region_place place; plec_segment_writer_next(&place, writer);) {
        auto bytes = content(place.entry, place.schema, place.length);
        plec_status status = plec_segment_writer_append(
            writer, place.segment, place.entry, place.schema, bytes.data(), bytes.size(), err);
        if (status != PLEC_OK) return status;
    }
    return PLEC_OK;
}

void write_plan(const std::string &path, const plec_segment_plan *plan) {
    plec_error err;
    plec_segment_writer *writer;
    ASSERT_EQ(plec_segment_writer_open(&writer, path.c_str(), plan, &err), PLEC_OK) << err.message;
    ASSERT_EQ(write_all(writer, &err), PLEC_OK) << err.message;
    ASSERT_EQ(plec_segment_writer_commit(writer, &err), PLEC_OK) << err.message;
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

TEST(SegmentPlan, LayoutIsTheFileThatComesOut) {
    TempDir dir;
    for (uint32_t extent : {0u, 1u, 5u, 8u, 16u, 32u})
        for (plec_order order : {PLEC_ORDER_ENTRY, PLEC_ORDER_ROLE})
            for (uint32_t entries : {0u, 1u, 7u, 8u, 33u}) {
                SCOPED_TRACE(std::to_string(extent) + " of " + std::to_string(entries));
                Plan plan = small_plan(entries);
                plan.plan.order = order;
                plan.plan.extent = extent;
                plec_segment_layout equal, given;
                ASSERT_EQ(plec_segment_plan_layout(&equal, plan.get(), nullptr), PLEC_OK);
                plan.plan.length = [](const void *, uint64_t slot) -> uint64_t {
                    return slot % 2 == 0 ? 60 : 132;
                };
                ASSERT_EQ(plec_segment_plan_layout(&given, plan.get(), nullptr), PLEC_OK);
                EXPECT_EQ(memcmp(&equal, &given, sizeof equal), 0)
                    << "the closed form and the walk agree";
                plan.plan.length = nullptr;
                write_plan(dir.path("x"), plan.get());
                SegmentFile file(read_file(dir.path("x")));
                ASSERT_EQ(file.status, PLEC_OK);
                EXPECT_EQ(file.size, equal.file_bytes);
                EXPECT_EQ(file.segment.payload_start, equal.payload_start);
                EXPECT_EQ(file.segment.entry_table + file.segment.entry_table_bytes,
                          equal.structure_bytes);
                EXPECT_EQ(equal.n_regions, 2u * entries);
                EXPECT_EQ(equal.payload_bytes, uint64_t(entries) * 192);
                EXPECT_EQ(equal.n_extents, extent == 0 ? 0 : (entries + extent - 1) / extent);
            }
}

TEST(SegmentPlan, ExtentsAreContiguousAndBeginOnPages) {
    TempDir dir;
    constexpr uint32_t entries = 60; /* the last extent of 8 has 4, of 16 has 12 */
    for (uint32_t width : {1u, 8u, 16u, 32u})
        for (plec_order order : {PLEC_ORDER_ENTRY, PLEC_ORDER_ROLE}) {
            SCOPED_TRACE(std::to_string(width) + " order " + std::to_string(order));
            Plan plan = small_plan(entries);
            plan.plan.order = order;
            plan.plan.extent = width;
            write_plan(dir.path("x"), plan.get());
            SegmentFile file(read_file(dir.path("x")));
            uint64_t before = file.segment.payload_start;
            for (uint32_t first = 0; first < entries; first += width) {
                uint32_t last = std::min(first + width, entries);
                std::vector<Placed> inside;
                for (const Placed &place : regions(file.segment))
                    if (place.entry >= first && place.entry < last) inside.push_back(place);
                std::sort(inside.begin(), inside.end(), [](const Placed &a, const Placed &b) {
                    return a.region.offset < b.region.offset;
                });
                uint64_t at = (before + 4095) / 4096 * 4096;
                EXPECT_EQ(inside.front().region.offset, at);
                for (size_t i = 0; i < inside.size(); i++) {
                    const Placed &place = inside[i];
                    at = (at + 63) / 64 * 64;
                    EXPECT_EQ(place.region.offset, at) << "no hole inside an extent";
                    at += place.region.length;
                    uint32_t n = last - first;
                    bool by_entry = order == PLEC_ORDER_ENTRY;
                    EXPECT_EQ(place.entry - first, by_entry ? i / 2 : i % n);
                    EXPECT_EQ(place.schema, by_entry ? i % 2 : i / n);
                    auto want = content(place.entry, place.schema, place.region.length);
                    EXPECT_EQ(
                        memcmp(file.segment.data + place.region.offset, want.data(), want.size()),
                        0);
                }
                before = at;
            }
            EXPECT_EQ(before, file.size);
        }
}

TEST(SegmentPlan, GapsAreZero) {
    TempDir dir;
    Plan plan = small_plan(9);
    plan.plan.extent = 8;
    write_plan(dir.path("x"), plan.get());
    SegmentFile file(read_file(dir.path("x")));
    std::vector<bool> owned(file.size);
    std::fill(owned.begin(), owned.begin() + 24 + 24 + 12 + 40 + 9 * 32, true);
    for (const Placed &place : regions(file.segment))
        std::fill_n(owned.begin() + static_cast<long>(place.region.offset), place.region.length,
                    true);
    for (size_t i = 0; i < file.size; i++)
        ASSERT_TRUE(owned[i] || file.bytes[i] == 0) << i;
}

TEST(SegmentPlan, ExtentsMustMeetTheEndsOfSegments) {
    const struct {
        uint32_t extent, first, count, entries;
        bool good;
    } cases[] = {{8, 0, 205, 205, true},    {16, 0, 60, 60, true}, {16, 0, 448, 896, true},
                 {16, 448, 448, 896, true}, {8, 4, 8, 12, false},  {8, 0, 5, 8, false},
                 {5, 0, 5, 8, true},        {5, 5, 3, 8, true},    {3, 5, 3, 8, false}};
    for (const auto &c : cases) {
        Plan plan = small_plan(c.entries);
        plan.plan.extent = c.extent;
        plan.segments[0].first_entry = c.first;
        plan.segments[0].entry_count = c.count;
        plec_error err = {};
        plec_status status = plec_segment_plan_check(plan.get(), &err);
        EXPECT_EQ(status, c.good ? PLEC_OK : PLEC_BAD_INPUT) << c.extent << " at " << c.first;
        EXPECT_STREQ(err.name, c.good ? nullptr : "ExtentNotWhole");
    }
}

TEST(SegmentPlan, PublishedExampleOfThirtyTwoExperts) {
    uint32_t inter = 6144, hidden = 2048;
    Plan inside(32, {schema(0, PLEC_ROLE_GATE_UP_FUSED, PLEC_FORMAT_MXFP4, 2 * inter, hidden,
                            PLEC_PACKING_BLOCKS_INLINE),
                     schema(1, PLEC_ROLE_DOWN, PLEC_FORMAT_MXFP4, hidden, inter,
                            PLEC_PACKING_BLOCKS_INLINE)});
    plec_segment_layout layout;
    ASSERT_EQ(plec_segment_plan_layout(&layout, inside.get(), nullptr), PLEC_OK);
    EXPECT_EQ(layout.structure_bytes, 1124u);
    EXPECT_EQ(layout.payload_bytes, uint64_t(612) << 20);
    Plan paired(32, {schema(0, PLEC_ROLE_GATE_UP_FUSED, PLEC_FORMAT_MXFP4, 2 * inter, hidden,
                            PLEC_PACKING_BLOCKS_VALUES, 1),
                     schema(1, PLEC_ROLE_DOWN, PLEC_FORMAT_MXFP4, hidden, inter,
                            PLEC_PACKING_BLOCKS_VALUES, 2),
                     schema(2, PLEC_ROLE_SCALES, PLEC_FORMAT_MXFP4, 2 * inter, hidden,
                            PLEC_PACKING_BLOCKS_SCALES, 1),
                     schema(3, PLEC_ROLE_SCALES, PLEC_FORMAT_MXFP4, hidden, inter,
                            PLEC_PACKING_BLOCKS_SCALES, 2)});
    ASSERT_EQ(plec_segment_plan_layout(&layout, paired.get(), nullptr), PLEC_OK);
    EXPECT_EQ(layout.structure_bytes, 2188u);
    EXPECT_EQ(layout.payload_bytes, uint64_t(612) << 20);
}

namespace {

/* One routed layer of 896 experts at 3584/3072 in q6_k: 33,030,144 parameters an expert. */
Plan large_layer() {
    return Plan(896, {schema(0, PLEC_ROLE_GATE_UP_FUSED, PLEC_FORMAT_Q6_K, 2 * 3072, 3584),
                      schema(1, PLEC_ROLE_DOWN, PLEC_FORMAT_Q6_K, 3584, 3072)});
}

} // namespace

TEST(SegmentPlan, LargeLayerSplitsInTwoUnderTwentyGiB) {
    Plan plan = large_layer();
    plan.plan.extent = 16;
    plec_segment_layout layout;
    ASSERT_EQ(plec_segment_plan_layout(&layout, plan.get(), nullptr), PLEC_OK);
    EXPECT_EQ(layout.payload_bytes, uint64_t(896) * 33030144 / 256 * 210);
    EXPECT_NEAR(static_cast<double>(layout.payload_bytes) / (1 << 30), 22.61, 0.005);
    plec_segment_split split;
    ASSERT_EQ(plec_segment_plan_split(&split, plan.get(), uint64_t(20) << 30, nullptr), PLEC_OK);
    EXPECT_EQ(split.n_segments, 2u);
    EXPECT_EQ(split.n_extents, 56u);
    uint32_t first, count;
    plec_segment_split_range(&first, &count, &split, 1);
    EXPECT_EQ(first, 448u);
    EXPECT_EQ(count, 448u);
    ASSERT_EQ(plec_segment_plan_split(&split, plan.get(), 0, nullptr), PLEC_OK);
    EXPECT_EQ(split.n_segments, 1u) << "no cap, one file";
}

TEST(SegmentPlan, SplitIsTheFewestThenEqualOfWholeExtents) {
    for (uint32_t entries : {1u, 40u, 60u, 205u, 896u})
        for (uint32_t extent : {0u, 1u, 8u, 16u, 32u})
            for (uint64_t cap : {12000u, 20000u, 33000u, 65536u, 1u << 20}) {
                SCOPED_TRACE(std::to_string(entries) + "/" + std::to_string(extent) + "/" +
                             std::to_string(cap));
                Plan plan = small_plan(entries);
                plan.plan.extent = extent;
                plec_segment_split split;
                plec_error err;
                plec_status status = plec_segment_plan_split(&split, plan.get(), cap, &err);
                if (status != PLEC_OK) {
                    EXPECT_STREQ(err.name, "CapTooSmall");
                    continue;
                }
                uint32_t width = extent == 0 ? 1 : extent, next = 0, most = 0, least = ~0u;
                auto file_bytes = [&](uint32_t first, uint32_t count) {
                    plan.segments[0].first_entry = first;
                    plan.segments[0].entry_count = count;
                    plec_segment_layout layout;
                    EXPECT_EQ(plec_segment_plan_layout(&layout, plan.get(), &err), PLEC_OK)
                        << err.message;
                    return layout.file_bytes;
                };
                for (uint32_t i = 0; i < split.n_segments; i++) {
                    uint32_t first, count;
                    plec_segment_split_range(&first, &count, &split, i);
                    EXPECT_EQ(first, next);
                    next = first + count;
                    EXPECT_TRUE(next == entries || count % width == 0);
                    uint32_t extents = (count + width - 1) / width;
                    most = std::max(most, extents);
                    least = std::min(least, extents);
                    EXPECT_LE(file_bytes(first, count), cap);
                }
                EXPECT_EQ(next, entries);
                EXPECT_LE(most - least, 1u) << "equal to within one extent";
                if (split.n_segments > 1) { /* one file fewer would not do */
                    uint32_t fewer = split.n_segments - 1;
                    uint32_t needed = (split.n_extents + fewer - 1) / fewer * width;
                    EXPECT_GT(file_bytes(0, std::min(needed, entries)), cap);
                }
            }
}

TEST(SegmentPlan, CapBelowOneExtentIsRefused) {
    Plan plan = large_layer();
    plan.plan.extent = 16;
    plec_segment_split split;
    plec_error err;
    EXPECT_EQ(plec_segment_plan_split(&split, plan.get(), 1 << 20, &err), PLEC_BAD_INPUT);
    EXPECT_STREQ(err.name, "CapTooSmall");
}

TEST(SegmentPlan, RefusesWhatTheFormatRefuses) {
    const struct {
        const char *name;
        void (*spoil)(Plan &);
    } cases[] = {
        {"InconsistentPairing", [](Plan &p) { p.schemas[1].pair_id = 4; }},
        {"LayoutOnNonFusedRegion", [](Plan &p) { p.schemas[1].layout = 2; }},
        {"BankSchemaCountMismatch", [](Plan &p) { p.schemas[1].index = 2; }},
        {"BankSchemaCountMismatch", [](Plan &p) { p.banks[0].n_schemas = 3; }},
        {"UndeclaredFusedLayout", [](Plan &p) { p.schemas[0].layout = 0; }},
        {"SegmentNamesUnknownBank", [](Plan &p) { p.segments[0].bank_id = 1; }},
        {"SegmentOutOfBounds", [](Plan &p) { p.segments[0].entry_count = 5; }},
        {"WrongGeneration", [](Plan &p) { p.plan.header.format_version = 3; }},
        {"LengthUndefined", [](Plan &p) { p.schemas[1].format = 901; }},
        {"FileTooLarge",
         [](Plan &p) {
             p.schemas[1].rows = UINT32_MAX;
             p.schemas[1].cols = UINT32_MAX / 4;
         }},
    };
    TempDir dir;
    for (const auto &c : cases) {
        Plan plan = small_plan(4);
        c.spoil(plan);
        plec_error err = {};
        plec_segment_writer *writer = nullptr;
        EXPECT_NE(plec_segment_writer_open(&writer, dir.path("a/b").c_str(), plan.get(), &err),
                  PLEC_OK);
        EXPECT_EQ(writer, nullptr);
        EXPECT_STREQ(err.name, c.name);
        plec_segment_layout layout;
        EXPECT_NE(plec_segment_plan_layout(&layout, plan.get(), &err), PLEC_OK) << c.name;
        EXPECT_STREQ(err.name, c.name);
    }
    EXPECT_TRUE(names_in(dir.path()).empty()) << "refused before anything is created";
}

TEST(SegmentPlan, UndeclaredLayoutMayBeRewritten) {
    Plan plan = small_plan(4);
    plan.schemas[0].layout = 0;
    plan.plan.rewrite = true;
    EXPECT_EQ(plec_segment_plan_check(plan.get(), nullptr), PLEC_OK);
}

TEST(SegmentPlan, SegmentWithoutEntriesHasNoSlot) {
    TempDir dir;
    Plan plan = small_plan(2);
    plan.segments.insert(plan.segments.begin(), plec_lyrw_segment{});
    plan.segments[1].index = 1;
    write_plan(dir.path("x"), plan.get());
    SegmentFile file(read_file(dir.path("x")));
    ASSERT_EQ(file.status, PLEC_OK);
    for (const Placed &place : regions(file.segment)) {
        auto want = content(place.entry, place.schema, place.schema == 0 ? 60 : 132);
        ASSERT_EQ(place.region.length, want.size());
        EXPECT_EQ(memcmp(file.segment.data + place.region.offset, want.data(), want.size()), 0);
    }
}

TEST(SegmentPlan, StructureAloneIsTheFrontOfTheFile) {
    TempDir dir;
    Plan plan = small_plan(5);
    plan.plan.header.flags = 0x80000001;
    plan.plan.header.reserved = 0xDEADBEEF;
    plan.banks[0].flags = 0xFFFF;
    write_plan(dir.path("x"), plan.get());
    plec_segment_layout layout;
    ASSERT_EQ(plec_segment_plan_layout(&layout, plan.get(), nullptr), PLEC_OK);
    std::vector<uint8_t> structure(layout.structure_bytes);
    ASSERT_EQ(plec_segment_plan_render(structure.data(), plan.get(), nullptr), PLEC_OK);
    auto file = read_file(dir.path("x"));
    file.resize(structure.size());
    EXPECT_EQ(structure, file);
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
