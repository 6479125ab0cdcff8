// Extents against a brute-force reading of the same bank: where every byte lies, how few ranges
// there are, and that direct reads of them can be rounded outwards.
#include "host/extent.h"

#include "host/container.h"
#include "host/file_table.h"
#include "lyrw/mapping.h"
#include "lyrw/segment_write.h"
#include "tests/support/data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

using namespace plec_test;

namespace {

const uint32_t WIDTHS[] = {1, 3, 8, 16, 32, 100, UINT32_MAX};

// Files that exist as address ranges only: nothing here reads a byte.
class Files {
  public:
    explicit Files(uint32_t n_files) {
        plec_error err = {};
        EXPECT_EQ(plec_file_table_open(&table_, n_files, &err), PLEC_OK);
        for (uint32_t i = 0; i < n_files; i++) // later files lie lower, with a hole between
            table_.files[i] = {"", reinterpret_cast<const uint8_t *>((uint64_t{n_files} - i) << 40),
                               uint64_t{1} << 39};
        plec_file_table_sort(&table_);
    }
    ~Files() { plec_file_table_close(&table_); }
    const uint8_t *at(uint32_t file, uint64_t offset) const {
        return table_.files[file].data + offset;
    }
    plec_locator locator() { return {locate, &table_}; }

  private:
    static bool locate(void *user, const uint8_t *p, uint32_t *file, uint64_t *offset) {
        return plec_file_table_find(file, offset, static_cast<plec_file_table *>(user), p);
    }
    plec_file_table table_ = {};
};

struct Place {
    uint32_t file;
    uint64_t offset;
};

// A bank by where each region lies.
struct Layout {
    explicit Layout(uint32_t n_entries, bool paired = false) : entries(n_entries) {
        bank.n_entries = n_entries;
        uint16_t format = paired ? PLEC_FORMAT_MXFP4 : PLEC_FORMAT_BF16;
        bank.operands[PLEC_GATE] = {format, 6, 96};
        bank.operands[PLEC_UP] = {format, 6, 96};
        bank.operands[PLEC_DOWN] = {format, 5, 160};
        bank.operands[PLEC_DOWN_BIAS] = {PLEC_FORMAT_F32, 1, 5};
        for (uint32_t i = 0; i < PLEC_N_OPERANDS; i++) {
            const plec_operand &operand = bank.operands[i];
            uint64_t scales = 0;
            if (operand.rows == 0) continue;
            EXPECT_EQ(plec_format_size(&n_bytes[i], &scales, operand.format, operand.rows,
                                       operand.cols, nullptr),
                      PLEC_OK);
            if (scales > 0) n_bytes[PLEC_N_OPERANDS + i] = scales;
        }
        bank.entries = entries.data();
        places.resize(n_entries);
    }
    Layout(const Layout &) = delete;
    std::vector<uint32_t> streams() const {
        std::vector<uint32_t> out;
        for (uint32_t i = 0; i < PLEC_N_STREAMS; i++)
            if (n_bytes[i] > 0) out.push_back(i);
        return out;
    }
    void put(const Files &files, uint32_t entry, uint32_t stream, Place place) {
        const uint8_t *p = files.at(place.file, place.offset);
        if (stream < PLEC_N_OPERANDS)
            entries[entry].values[stream] = p;
        else
            entries[entry].scales[stream - PLEC_N_OPERANDS] = p;
        places[entry][stream] = place;
    }

    plec_bank bank = {};
    std::vector<plec_entry> entries;
    uint64_t n_bytes[PLEC_N_STREAMS] = {};
    std::vector<std::map<uint32_t, Place>> places; // [entry][stream]
};

uint64_t up(uint64_t x, uint64_t alignment) {
    return (x + alignment - 1) / alignment * alignment;
}

// As the LYRW writer lays a bank out: extents of `extent` on 4096, regions on 64.
void lay_lyrw(Layout *layout, const Files &files, uint32_t extent, bool by_role, uint32_t file = 0,
              uint32_t first = 0, uint32_t count = UINT32_MAX) {
    count = std::min(count, layout->bank.n_entries - first);
    uint64_t at = 4096;
    for (uint32_t x = 0; x < count; x += extent) {
        uint32_t n = std::min(extent, count - x);
        size_t n_streams = layout->streams().size();
        at = up(at, 4096);
        for (size_t i = 0; i < n * n_streams; i++) {
            size_t entry = by_role ? i % n : i / n_streams;
            uint32_t stream = layout->streams()[by_role ? i / n : i % n_streams];
            layout->put(files, first + x + static_cast<uint32_t>(entry), stream, {file, at});
            at = up(at + layout->n_bytes[stream], 64);
        }
    }
}

// As GGUF does: one tensor a stream, all entries in it, tensors on `alignment`.
void lay_gguf(Layout *layout, const Files &files, uint64_t alignment, uint32_t n_files) {
    std::vector<uint64_t> at(n_files, 4000);
    uint32_t file = 0;
    for (uint32_t stream : layout->streams()) {
        for (uint32_t e = 0; e < layout->bank.n_entries; e++) {
            layout->put(files, e, stream, {file, at[file]});
            at[file] += layout->n_bytes[stream];
        }
        at[file] = up(at[file], alignment) + alignment;
        file = (file + 1) % n_files;
    }
}

using Span = std::pair<uint64_t, uint64_t>; // first byte, end

// The fewest ranges over entries [first, end), by file, found the slow way.
std::map<uint32_t, std::vector<Span>> fewest(const Layout &layout, uint32_t first, uint32_t end) {
    std::map<uint32_t, std::vector<Span>> out;
    for (uint32_t e = first; e < end; e++)
        for (const auto &[stream, place] : layout.places[e])
            out[place.file].push_back({place.offset, place.offset + layout.n_bytes[stream]});
    for (auto &[file, spans] : out)
        for (bool joined = true; joined;) {
            joined = false;
            for (size_t i = 0; i < spans.size() && !joined; i++)
                for (size_t j = 0; j < spans.size() && !joined; j++) {
                    if (i == j || spans[j].first < spans[i].first ||
                        spans[j].first >= spans[i].second + PLEC_RANGE_GAP)
                        continue;
                    spans[i].second = std::max(spans[i].second, spans[j].second);
                    spans.erase(spans.begin() + static_cast<long>(j));
                    joined = true;
                }
        }
    for (auto &[file, spans] : out)
        std::sort(spans.begin(), spans.end());
    return out;
}

void expect_fewest(const Layout &layout, uint32_t first, uint32_t end, const plec_range *ranges,
                   const plec_range *ranges_end) {
    std::map<uint32_t, std::vector<Span>> found;
    for (const plec_range *range = ranges; range < ranges_end; range++)
        found[range->file].push_back({range->offset, range->offset + range->length});
    EXPECT_EQ(found, fewest(layout, first, end)) << "entries " << first << " to " << end;
}

void expect_whole_blocks(const plec_extent_map &map, uint32_t extent) {
    std::set<uint64_t> blocks;
    for (uint32_t i = map.extent_first[extent]; i < map.extent_first[extent + 1]; i++) {
        const plec_range &range = map.extent_ranges[i];
        EXPECT_EQ(range.frame_at % PLEC_FRAME_ALIGNMENT, range.offset % PLEC_FRAME_ALIGNMENT);
        uint64_t before = plec_range_slack_before(&range), after = plec_range_slack_after(&range);
        EXPECT_LT(before, 4096u);
        EXPECT_LT(after, 4096u);
        EXPECT_EQ((range.frame_at - before) % 4096, 0u);
        EXPECT_EQ((range.frame_at + range.length + after) % 4096, 0u);
        EXPECT_LE(range.frame_at + range.length + after, map.frame_bytes);
        for (uint64_t b = (range.frame_at - before) / 4096;
             b < (range.frame_at + range.length + after) / 4096; b++)
            EXPECT_TRUE(blocks.insert(b).second) << "block " << b << " holds two ranges";
    }
}

// The range of `list` that holds [offset, offset + n_bytes) of a file.
const plec_range *holder(const plec_range *list, uint32_t n, uint32_t file, uint64_t offset,
                         uint64_t n_bytes) {
    for (uint32_t i = 0; i < n; i++)
        if (list[i].file == file && list[i].offset <= offset &&
            offset + n_bytes <= list[i].offset + list[i].length)
            return &list[i];
    return nullptr;
}

void expect_region(const plec_extent_map &map, uint32_t entry, uint32_t stream, Place place,
                   uint64_t n_bytes) {
    uint32_t extent = plec_extent_of_entry(&map, entry);
    uint64_t at = map.stream_at[size_t{entry} * PLEC_N_STREAMS + stream];
    const plec_range *whole = holder(&map.extent_ranges[map.extent_first[extent]],
                                     map.extent_first[extent + 1] - map.extent_first[extent],
                                     place.file, place.offset, n_bytes);
    const plec_range *alone = holder(&map.entry_ranges[map.entry_first[entry]],
                                     map.entry_first[entry + 1] - map.entry_first[entry],
                                     place.file, place.offset, n_bytes);
    ASSERT_NE(whole, nullptr) << "entry " << entry << " stream " << stream;
    ASSERT_NE(alone, nullptr) << "entry " << entry << " stream " << stream;
    EXPECT_EQ(whole->frame_at + (place.offset - whole->offset), at);
    EXPECT_EQ(alone->frame_at + (place.offset - alone->offset), at);
    EXPECT_GE(alone->frame_at, whole->frame_at);
    EXPECT_LE(alone->frame_at + alone->length, whole->frame_at + whole->length);
}

void expect_entry_at(const plec_extent_map &map, const Layout &layout, uint32_t entry) {
    plec_entry there;
    auto *frame = reinterpret_cast<const uint8_t *>(uint64_t{1} << 20);
    plec_extent_entry_at(&there, &map, entry, frame);
    for (uint32_t i = 0; i < PLEC_N_STREAMS; i++) {
        uint64_t at = map.stream_at[size_t{entry} * PLEC_N_STREAMS + i];
        const uint8_t *p =
            i < PLEC_N_OPERANDS ? there.values[i] : there.scales[i - PLEC_N_OPERANDS];
        EXPECT_EQ(at == UINT64_MAX, layout.n_bytes[i] == 0);
        EXPECT_EQ(p, layout.n_bytes[i] == 0 ? nullptr : frame + at);
    }
}

// All that the header promises.
void expect_exact(const Layout &layout, Files *files, uint32_t width) {
    SCOPED_TRACE("width " + std::to_string(width));
    plec_locator locator = files->locator();
    plec_extent_map map;
    plec_error err = {};
    ASSERT_EQ(plec_extent_map_open(&map, &layout.bank, width, &locator, &err), PLEC_OK)
        << err.message;
    uint64_t read = 0, largest = 0;
    EXPECT_EQ(map.first_entry[map.n_extents], layout.bank.n_entries);
    for (uint32_t x = 0; x < map.n_extents; x++) {
        uint32_t first = map.first_entry[x], end = map.first_entry[x + 1];
        const plec_range *ranges = &map.extent_ranges[map.extent_first[x]];
        const plec_range *ranges_end = &map.extent_ranges[map.extent_first[x + 1]];
        EXPECT_TRUE(first < end && end - first <= width);
        expect_fewest(layout, first, end, ranges, ranges_end);
        expect_whole_blocks(map, x);
        uint64_t bytes = 0;
        for (const plec_range *range = ranges; range < ranges_end; range++) {
            bytes += range->length;
            largest = std::max(largest, up(range->frame_at + range->length, 4096));
        }
        EXPECT_EQ(plec_extent_bytes(&map, x), bytes);
        read += bytes;
    }
    EXPECT_EQ(map.frame_bytes, largest);
    EXPECT_LE(map.payload_bytes, read);
    for (uint32_t e = 0; e < layout.bank.n_entries; e++) {
        const plec_range *alone = &map.entry_ranges[map.entry_first[e]];
        const plec_range *alone_end = &map.entry_ranges[map.entry_first[e + 1]];
        uint64_t bytes = 0;
        expect_fewest(layout, e, e + 1, alone, alone_end);
        for (const plec_range *range = alone; range < alone_end; range++)
            bytes += range->length;
        EXPECT_EQ(plec_extent_entry_bytes(&map, e), bytes);
        for (const auto &[stream, place] : layout.places[e])
            expect_region(map, e, stream, place, layout.n_bytes[stream]);
        expect_entry_at(map, layout, e);
    }
    plec_extent_map_close(&map);
    EXPECT_EQ(map.extent_ranges, nullptr);
}

struct Shape {
    uint32_t n_extents, ranges_of_first, ranges_of_last;
    uint64_t payload;
};

Shape shape_of(const Layout &layout, Files *files, uint32_t width) {
    plec_locator locator = files->locator();
    plec_extent_map map;
    plec_error err = {};
    EXPECT_EQ(plec_extent_map_open(&map, &layout.bank, width, &locator, &err), PLEC_OK)
        << err.message;
    Shape shape = {map.n_extents, map.extent_first[1],
                   map.extent_first[map.n_extents] - map.extent_first[map.n_extents - 1],
                   map.payload_bytes};
    plec_extent_map_close(&map);
    return shape;
}

uint64_t payload(const Layout &layout) {
    uint64_t n_bytes = 0;
    for (uint32_t stream : layout.streams())
        n_bytes += layout.n_bytes[stream];
    return n_bytes * layout.bank.n_entries;
}

} // namespace

TEST(Extent, EntryMajorFilesAreOneRangeAnExtent) {
    for (bool paired : {false, true}) {
        Files files(1);
        Layout layout(205, paired);
        lay_lyrw(&layout, files, 16, false);
        Shape shape = shape_of(layout, &files, 16);
        EXPECT_EQ(shape.n_extents, 13u); // the last one holds 13
        EXPECT_EQ(shape.ranges_of_first, 1u);
        EXPECT_EQ(shape.ranges_of_last, 1u);
        EXPECT_EQ(shape.payload, payload(layout));
        for (uint32_t width : WIDTHS)
            expect_exact(layout, &files, width);
    }
}

TEST(Extent, RoleMajorFilesAreOneRangeAnExtentAndAsManyAsRolesAnEntry) {
    Files files(1);
    Layout layout(40, true);
    lay_lyrw(&layout, files, 8, true);
    Shape shape = shape_of(layout, &files, 8);
    EXPECT_EQ(shape.n_extents, 5u);
    EXPECT_EQ(shape.ranges_of_first, 1u);
    EXPECT_EQ(shape.ranges_of_last, 1u);
    EXPECT_EQ(shape_of(layout, &files, 1).ranges_of_first, 7u);
    for (uint32_t width : WIDTHS)
        expect_exact(layout, &files, width);
}

TEST(Extent, ImporterOrderWithoutExtentsIsOneRange) {
    Files files(1);
    Layout layout(60);
    lay_lyrw(&layout, files, 60, false);
    EXPECT_EQ(shape_of(layout, &files, 32).ranges_of_first, 1u);
    EXPECT_EQ(shape_of(layout, &files, 32).n_extents, 2u);
    for (uint32_t width : WIDTHS)
        expect_exact(layout, &files, width);
}

TEST(Extent, GgufTensorsAreARangeEach) {
    for (uint32_t n_files : {1, 2, 3}) {
        Files files(n_files);
        Layout layout(128);
        layout.bank.operands[PLEC_DOWN_BIAS] = {};
        layout.n_bytes[PLEC_DOWN_BIAS] = 0;
        lay_gguf(&layout, files, 64, n_files);
        Shape shape = shape_of(layout, &files, 8);
        EXPECT_EQ(shape.n_extents, 16u);
        EXPECT_EQ(shape.ranges_of_first, 3u);
        EXPECT_EQ(shape.ranges_of_last, 3u);
        for (uint32_t width : WIDTHS)
            expect_exact(layout, &files, width);
    }
}

TEST(Extent, TheLastExtentHoldsWhatIsLeft) {
    Files files(1);
    Layout layout(205);
    lay_gguf(&layout, files, 32, 1);
    plec_locator locator = files.locator();
    plec_extent_map map;
    ASSERT_EQ(plec_extent_map_open(&map, &layout.bank, 32, &locator, nullptr), PLEC_OK);
    EXPECT_EQ(map.n_extents, 7u);
    EXPECT_EQ(map.first_entry[6], 192u);
    EXPECT_EQ(map.first_entry[7], 205u);
    EXPECT_EQ(plec_extent_of_entry(&map, 191), 5u);
    EXPECT_EQ(plec_extent_of_entry(&map, 192), 6u);
    plec_extent_map_close(&map);
}

TEST(Extent, NoneCrossesFromOneSegmentFileToTheNext) {
    Files files(3);
    Layout layout(60);
    lay_lyrw(&layout, files, 8, false, 0, 0, 20);
    lay_lyrw(&layout, files, 8, false, 2, 20, 30);
    lay_lyrw(&layout, files, 8, false, 1, 50, 10);
    plec_locator locator = files.locator();
    plec_extent_map map;
    ASSERT_EQ(plec_extent_map_open(&map, &layout.bank, 8, &locator, nullptr), PLEC_OK);
    const std::vector<uint32_t> wanted = {0, 8, 16, 20, 28, 36, 44, 50, 58, 60};
    EXPECT_EQ(std::vector<uint32_t>(map.first_entry, map.first_entry + map.n_extents + 1), wanted);
    plec_extent_map_close(&map);
    for (uint32_t width : WIDTHS)
        expect_exact(layout, &files, width);
}

TEST(Extent, AnyLayoutAtAnyWidthCoversEveryByteOnce) {
    std::mt19937 random(20);
    for (int round = 0; round < 40; round++) {
        SCOPED_TRACE("round " + std::to_string(round));
        uint32_t n_files = 1 + random() % 3, n_entries = 1 + random() % 30;
        Files files(n_files);
        Layout layout(n_entries, random() % 2 == 0);
        std::vector<std::pair<uint32_t, uint32_t>> order;
        for (uint32_t e = 0; e < n_entries; e++)
            for (uint32_t stream : layout.streams())
                order.push_back({e, stream});
        if (round % 4 != 0) std::shuffle(order.begin(), order.end(), random);
        std::vector<uint64_t> at(n_files, random() % 9000);
        uint32_t file_of_stream[PLEC_N_STREAMS];
        for (uint32_t &file : file_of_stream)
            file = random() % n_files;
        for (auto [entry, stream] : order) {
            uint32_t file = round % 3 == 0 ? random() % n_files : file_of_stream[stream];
            const uint64_t gaps[] = {0, 1, 62, 63, 64, 65, 200, 4096, 9999};
            at[file] += gaps[random() % 9];
            layout.put(files, entry, stream, {file, at[file]});
            at[file] += layout.n_bytes[stream];
        }
        for (uint32_t width : {1u, 2u, 8u, 1 + static_cast<uint32_t>(random() % 40)})
            expect_exact(layout, &files, width);
    }
}

TEST(Extent, RegionsThatShareBytesAreCountedOnce) {
    Files files(1);
    Layout layout(4);
    lay_lyrw(&layout, files, 4, false);
    for (uint32_t e = 1; e < 4; e++) // one bias for all of them
        layout.put(files, e, PLEC_DOWN_BIAS, layout.places[0][PLEC_DOWN_BIAS]);
    EXPECT_EQ(shape_of(layout, &files, 4).payload, payload(layout) - 3 * 20);
    expect_exact(layout, &files, 4);
}

TEST(Extent, ABankWithoutEntriesHasNoExtents) {
    Files files(1);
    Layout layout(0);
    plec_locator locator = files.locator();
    plec_extent_map map;
    ASSERT_EQ(plec_extent_map_open(&map, &layout.bank, 8, &locator, nullptr), PLEC_OK);
    EXPECT_EQ(map.n_extents, 0u);
    EXPECT_EQ(map.frame_bytes, 0u);
    plec_extent_map_close(&map);
}

TEST(Extent, BytesThatAreInNoFileAreRefusedByEntryAndOperand) {
    Files files(1);
    Layout layout(4, true);
    lay_lyrw(&layout, files, 4, false);
    plec_locator locator = files.locator();
    plec_extent_map map;
    plec_error err = {};
    const uint8_t *kept = layout.entries[2].scales[PLEC_UP];
    for (const uint8_t *p : {static_cast<const uint8_t *>(nullptr), files.at(0, 0) - 1,
                             files.at(0, (uint64_t{1} << 39) - 3)}) {
        layout.entries[2].scales[PLEC_UP] = p;
        ASSERT_EQ(plec_extent_map_open(&map, &layout.bank, 8, &locator, &err), PLEC_UNSUPPORTED);
        EXPECT_STREQ(err.name, "NotInAFile");
        EXPECT_NE(std::string(err.message).find("entry 2 operand up_scales"), std::string::npos)
            << err.message;
        EXPECT_EQ(map.stream_at, nullptr);
    }
    layout.entries[2].scales[PLEC_UP] = kept;
    expect_exact(layout, &files, 8);
}

namespace {

// A locator of regions so large that only their ends exist.
struct Ends {
    std::map<const uint8_t *, Place> places;
    static bool locate(void *user, const uint8_t *p, uint32_t *file, uint64_t *offset) {
        auto &places = static_cast<Ends *>(user)->places;
        auto found = places.find(p);
        if (found == places.end()) return false;
        *file = found->second.file;
        *offset = found->second.offset;
        return true;
    }
    const uint8_t *add(uint64_t address, uint64_t n_bytes, Place place) {
        auto *p = reinterpret_cast<const uint8_t *>(address);
        places[p] = place;
        places[p + (n_bytes - 1)] = {place.file, place.offset + (n_bytes - 1)};
        return p;
    }
};

const char *open_error(const plec_bank &bank, uint32_t width, Ends *ends) {
    plec_locator locator = {Ends::locate, ends};
    plec_extent_map map;
    plec_error err = {};
    plec_status status = plec_extent_map_open(&map, &bank, width, &locator, &err);
    if (status == PLEC_OK) plec_extent_map_close(&map);
    EXPECT_NE(status, PLEC_UNSUPPORTED) << err.message;
    return status == PLEC_OK ? "" : err.name;
}

} // namespace

TEST(Extent, SizesBeyond64BitsAreRefused) {
    const uint64_t half = uint64_t{1} << 63;
    plec_entry entries[2] = {};
    plec_bank bank = {};
    bank.entries = entries;
    bank.n_entries = 1;

    Ends past;
    bank.operands[PLEC_GATE] = {PLEC_FORMAT_F16, 1u << 31, 1u << 31}; // half of 64 bits
    entries[0].values[PLEC_GATE] = past.add(64, half, {0, half});     // ends on 2^64
    EXPECT_STREQ(open_error(bank, 1, &past), "SizeOverflow");

    Ends two_ranges;
    bank.operands[PLEC_UP] = bank.operands[PLEC_GATE];
    entries[0].values[PLEC_GATE] = two_ranges.add(64, half, {0, 0});
    entries[0].values[PLEC_UP] = two_ranges.add(65, half, {1, 0});
    EXPECT_STREQ(open_error(bank, 1, &two_ranges), "SizeOverflow");

    Ends two_extents;
    bank.operands[PLEC_UP] = {};
    bank.n_entries = 2;
    entries[0].values[PLEC_GATE] = two_extents.add(64, half, {0, 0});
    entries[1].values[PLEC_GATE] = two_extents.add(65, half, {1, 0});
    EXPECT_STREQ(open_error(bank, 1, &two_extents), "SizeOverflow");
    bank.n_entries = 1;
    EXPECT_STREQ(open_error(bank, 1, &two_extents), "");

    bank.operands[PLEC_GATE] = {PLEC_FORMAT_F32, UINT32_MAX, UINT32_MAX};
    EXPECT_STREQ(open_error(bank, 1, &two_extents), "SizeOverflow");
}

namespace {

// Reads every operand of every entry through the map out of the files, and compares it with what
// the container shows.
void expect_map_reads_the_views(plec_container *container, const plec_bank &bank, uint32_t width) {
    plec_locator locator;
    plec_container_locator(&locator, container);
    plec_extent_map map;
    plec_error err = {};
    ASSERT_EQ(plec_extent_map_open(&map, &bank, width, &locator, &err), PLEC_OK) << err.message;
    for (uint32_t x = 0; x < map.n_extents; x++) {
        std::vector<uint8_t> frame(map.frame_bytes, 0xEE);
        for (uint32_t i = map.extent_first[x]; i < map.extent_first[x + 1]; i++) {
            const plec_range &range = map.extent_ranges[i];
            std::vector<uint8_t> file = read_file(plec_container_file_path(container, range.file));
            ASSERT_LE(range.offset + range.length, file.size());
            memcpy(&frame[range.frame_at], &file[range.offset], range.length);
        }
        for (uint32_t e = map.first_entry[x]; e < map.first_entry[x + 1]; e++) {
            plec_entry there;
            plec_extent_entry_at(&there, &map, e, frame.data());
            for (uint32_t i = 0; i < PLEC_N_OPERANDS; i++) {
                const plec_operand &operand = bank.operands[i];
                uint64_t values = 0, scales = 0;
                if (operand.rows == 0) continue;
                ASSERT_EQ(plec_format_size(&values, &scales, operand.format, operand.rows,
                                           operand.cols, nullptr),
                          PLEC_OK);
                EXPECT_EQ(memcmp(there.values[i], bank.entries[e].values[i], values), 0);
                if (scales > 0) {
                    EXPECT_EQ(memcmp(there.scales[i], bank.entries[e].scales[i], scales), 0);
                }
            }
        }
    }
    plec_extent_map_close(&map);
}

// How many banks of the container were mapped.
size_t check_container(const std::string &path) {
    SCOPED_TRACE(path);
    plec_container *container = nullptr;
    size_t n_banks = 0;
    if (plec_container_open(&container, path.c_str(), nullptr, nullptr) != PLEC_OK) return 0;
    for (size_t i = 0; i < plec_container_n_layers(container); i++) {
        plec_layer_info info;
        plec_container_layer_info(&info, container, i);
        plec_bound_layer bound;
        if (plec_container_bind(&bound, container, info.layer, nullptr) != PLEC_OK) continue;
        for (const plec_bank *bank :
             {&bound.layer.routed, &bound.layer.shared, &bound.layer.dense}) {
            if (bank->n_entries == 0) continue;
            for (uint32_t width : {1u, 2u, 8u, 16u, 32u})
                expect_map_reads_the_views(container, *bank, width);
            n_banks++;
        }
        plec_bound_layer_close(&bound);
    }
    plec_container_close(container);
    return n_banks;
}

} // namespace

TEST(ExtentOfContainer, WhatItsRangesReadIsWhatTheContainerShows) {
    size_t n_banks = 0;
    for (const std::string &name : list_folder(data_path("containers"), ".txt"))
        n_banks += check_container(data_path("containers/" + name));
    for (const char *name : {"run01_sigmoid_two_segments", "run02_gpt_oss_bias", "run03_latent"})
        n_banks += check_container(data_path(std::string("run/") + name));
    for (const std::string &name : list_folder(data_path("lyrw"), ".lyrw"))
        n_banks += check_container(data_path("lyrw/" + name + ".lyrw"));
    EXPECT_GE(n_banks, 25u);
}

TEST(ExtentOfContainer, OurWritersFilesAreOneRangeAnExtentInBothOrders) {
    TempDir dir;
    plec_error err = {};
    plec_mapping mapping;
    plec_segment segment;
    std::string source = data_path("run/run02_gpt_oss_bias/routed/layer_000.lyrw");
    for (plec_order order : {PLEC_ORDER_ENTRY, PLEC_ORDER_ROLE})
        for (uint32_t extent : {1u, 2u, 4u, 8u}) {
            SCOPED_TRACE(std::to_string(order) + " " + std::to_string(extent));
            std::string path = dir.path("bank.lyrw");
            plec_rewrite_options options = {order, extent};
            ASSERT_EQ(plec_mapping_open(&mapping, source.c_str(), &err), PLEC_OK) << err.message;
            ASSERT_EQ(plec_segment_parse(&segment, mapping.data, mapping.size, &err), PLEC_OK);
            ASSERT_EQ(plec_segment_rewrite(path.c_str(), &segment, &options, nullptr, &err),
                      PLEC_OK)
                << err.message;
            plec_segment_close(&segment);
            plec_mapping_close(&mapping);
            plec_container *container = nullptr;
            ASSERT_EQ(plec_container_open(&container, path.c_str(), nullptr, &err), PLEC_OK)
                << err.message;
            plec_layer_info info;
            plec_container_layer_info(&info, container, 0);
            plec_bound_layer bound;
            ASSERT_EQ(plec_container_bind(&bound, container, info.layer, &err), PLEC_OK)
                << err.message;
            plec_locator locator;
            plec_container_locator(&locator, container);
            plec_extent_map map;
            ASSERT_EQ(plec_extent_map_open(&map, &bound.layer.routed, extent, &locator, &err),
                      PLEC_OK)
                << err.message;
            EXPECT_EQ(map.extent_first[map.n_extents], map.n_extents);
            for (uint32_t i = 0; i < map.n_extents; i++)
                EXPECT_EQ(map.extent_ranges[i].offset % PLEC_EXTENT_ALIGNMENT, 0u);
            plec_extent_map_close(&map);
            plec_bound_layer_close(&bound);
            plec_container_close(container);
        }
}

TEST(ContainerFiles, ArePathsFromTheStartAndHoldNothingOfTheCallers) {
    plec_container *container = nullptr;
    plec_error err = {};
    std::string path = data_path("run/run01_sigmoid_two_segments");
    ASSERT_EQ(plec_container_open(&container, path.c_str(), nullptr, &err), PLEC_OK) << err.message;
    std::set<std::string> paths;
    for (uint32_t i = 0; i < plec_container_n_files(container); i++)
        paths.insert(plec_container_file_path(container, i));
    EXPECT_EQ(paths.size(), plec_container_n_files(container));
    EXPECT_EQ(paths.count(path + "/routed/layer_003.seg00.lyrw"), 1u);
    uint32_t file;
    uint64_t offset;
    EXPECT_FALSE(plec_container_locate(&file, &offset, container,
                                       reinterpret_cast<const uint8_t *>(&offset)));
    plec_container_close(container);
}
