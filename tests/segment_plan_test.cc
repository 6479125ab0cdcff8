/* Where a plan puts every region of a LYRW file, and plans that are refused. */
#include "tests/support/segment_plans.h"

#include <algorithm>

using namespace plec_test;

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
    EXPECT_TRUE(list_folder(dir.path(), "").empty()) << "refused before anything is created";
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
