/* The whole of what segment_malformed_test samples. */
#include "tests/support/exercise_segment.h"
#include "tests/support/segment_file.h"

#include <gtest/gtest.h>

using namespace plec_test;

namespace {

const char *const files[] = {"lyrw/odd/base", "lyrw/06_two_segments_one_file",
                             "lyrw/03_mxfp4_paired_importer_shape"};

} // namespace

TEST(SegmentSlow, EveryPrefix) {
    for (const char *name : files) {
        auto bytes = segment_bytes(name);
        for (size_t n = 0; n <= bytes.size(); n++) {
            std::unique_ptr<uint8_t[]> prefix(new uint8_t[n]);
            memcpy(prefix.get(), bytes.data(), n);
            exercise_segment(prefix.get(), n);
        }
    }
}

TEST(SegmentSlow, EveryValueOfEveryTableByte) {
    for (const char *name : files) {
        auto bytes = segment_bytes(name);
        SegmentFile file(bytes);
        size_t end = file.segment.entry_table + file.segment.entry_table_bytes;
        for (size_t at = 0; at < end; at++) {
            for (int change = 1; change < 256; change++) {
                file.bytes[at] = static_cast<uint8_t>(bytes[at] ^ change);
                exercise_segment(file.bytes.get(), file.size);
            }
            file.bytes[at] = bytes[at];
        }
    }
}
