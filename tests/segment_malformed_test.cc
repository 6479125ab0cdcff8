/* Damaged LYRW files: whatever a byte says, reading, verifying and rewriting end, and end inside
 * the file. The sanitizer presets are what gives these tests teeth. */
#include "tests/support/exercise_segment.h"
#include "tests/support/segment_file.h"

#include <gtest/gtest.h>

using namespace plec_test;

namespace {

const char *const files[] = {"lyrw/odd/base", "lyrw/06_two_segments_one_file",
                             "lyrw/03_mxfp4_paired_importer_shape"};

size_t tables_end(const std::vector<uint8_t> &bytes) {
    SegmentFile file(bytes);
    return file.segment.entry_table + file.segment.entry_table_bytes;
}

} // namespace

TEST(SegmentMalformed, EveryPrefixIsReadToItsEnd) {
    for (const char *name : files) {
        auto bytes = segment_bytes(name);
        /* Behind the tables the prefixes differ in one payload byte: some are enough. */
        size_t step = bytes.size() > 4096 ? 61 : 1, tables = tables_end(bytes) + 64;
        for (size_t n = 0; n <= bytes.size(); n += n < tables ? 1 : step) {
            std::unique_ptr<uint8_t[]> prefix(new uint8_t[n]);
            memcpy(prefix.get(), bytes.data(), n);
            exercise_segment(prefix.get(), n);
        }
    }
}

TEST(SegmentMalformed, PrefixesBeforeTheEntryTablesAreTruncated) {
    for (const char *name : files) {
        auto bytes = segment_bytes(name);
        SegmentFile whole(bytes);
        for (size_t n = 0; n < whole.segment.entry_table; n++) {
            SegmentFile cut(
                std::vector<uint8_t>(bytes.begin(), bytes.begin() + static_cast<long>(n)));
            EXPECT_EQ(cut.status, PLEC_MALFORMED) << name << " " << n;
            EXPECT_STREQ(cut.err.name, "Truncated") << name << " " << n;
        }
    }
}

TEST(SegmentMalformed, ChangedTableBytesAreReadToTheirEnd) {
    const int changes[] = {1, 2, 4, 8, 16, 32, 64, 128, 255};
    for (const char *name : files) {
        auto bytes = segment_bytes(name);
        SegmentFile file(bytes);
        for (size_t at = 0; at < tables_end(bytes); at++) {
            for (int change : changes) {
                file.bytes[at] = static_cast<uint8_t>(bytes[at] ^ change);
                exercise_segment(file.bytes.get(), file.size);
            }
            file.bytes[at] = bytes[at];
        }
    }
}

TEST(SegmentMalformed, ExtremeWordsAreReadToTheirEnd) {
    const uint64_t words[] = {0,
                              1,
                              63,
                              0x7FFFFFFFFFFFFFFF,
                              0x8000000000000000,
                              0xFFFFFFFFFFFFFFFF,
                              0x00000000FFFFFFFF,
                              0x0000FFFF0000FFFF,
                              0xFFFFFFFFFFFFFFC0};
    for (const char *name : files) {
        auto bytes = segment_bytes(name);
        SegmentFile file(bytes);
        for (size_t at = 8; at + 8 <= tables_end(bytes); at += 2) {
            for (uint64_t word : words) {
                memcpy(&file.bytes[at], &word, 8);
                exercise_segment(file.bytes.get(), file.size);
            }
            memcpy(&file.bytes[at], &bytes[at], 8);
        }
    }
}
