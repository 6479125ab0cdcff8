/* segment_file.h: a LYRW file's bytes and its parse, for tests. */
#ifndef PLEC_TESTS_SUPPORT_SEGMENT_FILE_H
#define PLEC_TESTS_SUPPORT_SEGMENT_FILE_H

#include "lyrw/segment.h"
#include "tests/support/data.h"

#include <cstring>
#include <memory>

namespace plec_test {

/* The bytes lie in a block of exactly their size, so that a sanitizer sees the first one past. */
struct SegmentFile {
    explicit SegmentFile(const std::vector<uint8_t> &from)
        : bytes(new uint8_t[from.size()]), size(from.size()) {
        if (size > 0) memcpy(bytes.get(), from.data(), size);
        status = plec_segment_parse(&segment, bytes.get(), size, &err);
    }
    ~SegmentFile() { plec_segment_close(&segment); }
    SegmentFile(const SegmentFile &) = delete;
    SegmentFile &operator=(const SegmentFile &) = delete;

    std::unique_ptr<uint8_t[]> bytes;
    size_t size;
    plec_segment segment = {};
    plec_error err = {};
    plec_status status;
};

/* Names under data/ of every LYRW test file: well-formed, odd, bad. */
inline std::vector<std::string> all_segment_files() {
    std::vector<std::string> names;
    for (const char *folder : {"lyrw", "lyrw/odd", "lyrw/bad"})
        for (const std::string &name : list_folder(data_path(folder), ".lyrw"))
            names.push_back(std::string(folder) + "/" + name);
    return names;
}

inline std::vector<uint8_t> segment_bytes(const std::string &name) {
    return read_file(data_path(name + ".lyrw"));
}

} // namespace plec_test
#endif
