/* io_reads.h: reads through host/io.h for tests: known files, poisoned memory, what must come. */
#ifndef PLEC_TESTS_SUPPORT_IO_READS_H
#define PLEC_TESTS_SUPPORT_IO_READS_H

#include "host/io.h"
#include "tests/support/data.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

namespace plec_test {

const uint64_t MIB = 1 << 20;

inline std::vector<uint8_t> random_bytes(size_t n, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> out(n);
    for (size_t i = 0; i < n; i++)
        out[i] = static_cast<uint8_t>(random());
    return out;
}

/* A log sink that keeps its lines. */
class Log {
  public:
    plec_log sink() { return {write, this}; }
    std::string text() {
        std::lock_guard<std::mutex> lock(mutex_);
        return text_;
    }
    size_t count(const std::string &part) {
        size_t n = 0;
        std::string all = text();
        for (size_t at = 0; (at = all.find(part, at)) != std::string::npos; at += part.size())
            n++;
        return n;
    }

  private:
    static void write(void *user, plec_log_level, const char *message) {
        auto *log = static_cast<Log *>(user);
        std::lock_guard<std::mutex> lock(log->mutex_);
        log->text_ += std::string(message) + "\n";
    }
    std::mutex mutex_;
    std::string text_;
};

/* Page-aligned memory full of one byte. */
class Memory {
  public:
    enum { POISON = 0xA5 };
    explicit Memory(size_t n_bytes) : n_bytes_(n_bytes) {
        void *p = nullptr;
        EXPECT_EQ(posix_memalign(&p, 4096, n_bytes), 0);
        bytes_ = static_cast<uint8_t *>(p);
        memset(bytes_, POISON, n_bytes);
    }
    ~Memory() { free(bytes_); }
    Memory(const Memory &) = delete;
    Memory &operator=(const Memory &) = delete;
    uint8_t *at(size_t i = 0) { return bytes_ + i; }
    size_t size() const { return n_bytes_; }

  private:
    uint8_t *bytes_;
    size_t n_bytes_;
};

/* One range with memory of its own: whole blocks around it, congruent to the file unless shifted.
 */
struct Range {
    Range(uint32_t file_, uint64_t offset_, uint64_t length_, bool slack_ = false,
          uint32_t shift_ = 0)
        : file(file_), offset(offset_), length(length_), slack(slack_), shift(shift_),
          memory(std::make_unique<Memory>(length_ + 4 * 4096)) {}
    uint8_t *to() const { return memory->at(4096 + offset % 4096 + shift); }
    plec_io_read read(uint64_t user) const {
        plec_io_read r = {};
        r.file = file, r.offset = offset, r.length = length, r.to = to(), r.user = user;
        if (slack) {
            r.slack_before = offset % 4096;
            r.slack_after = (4096 - (offset + length) % 4096) % 4096;
        }
        return r;
    }
    /* The bytes of the file, and nothing outside them and the slack. */
    void expect_exact(const std::vector<uint8_t> &bytes) const {
        plec_io_read r = read(0);
        ASSERT_LE(offset + length, bytes.size());
        EXPECT_EQ(memcmp(to(), &bytes[offset], length), 0)
            << length << " bytes from " << offset << " shift " << shift << " slack " << slack;
        const uint8_t *first = memory->at(), *end = first + memory->size();
        for (const uint8_t *p = first; p < end; p++) {
            if (p == to() - r.slack_before) p = to() + length + r.slack_after;
            if (p < end && *p != Memory::POISON) {
                ADD_FAILURE() << "byte " << (p - to()) << " of a read of " << length << " from "
                              << offset << " was written";
                return;
            }
        }
    }

    uint32_t file;
    uint64_t offset, length;
    bool slack;
    uint32_t shift;
    std::unique_ptr<Memory> memory;
};

class Io {
  public:
    explicit Io(const plec_io_options &options) {
        plec_error err = {};
        EXPECT_EQ(plec_io_open(&io_, &options, &err), PLEC_OK) << err.message;
    }
    ~Io() { plec_io_close(io_); }
    Io(const Io &) = delete;
    Io &operator=(const Io &) = delete;
    plec_io *get() const { return io_; }
    uint32_t add(const std::string &path) const {
        uint32_t file = UINT32_MAX;
        plec_error err = {};
        EXPECT_EQ(plec_io_add_file(&file, io_, path.c_str(), &err), PLEC_OK) << err.message;
        return file;
    }
    plec_io_counters counters() const {
        plec_io_counters out;
        plec_io_get_counters(&out, io_);
        return out;
    }
    /* Submits all ranges, their places in the list as user values, and reaps them. */
    std::vector<plec_io_completion> run(const std::vector<Range> &ranges) const {
        std::vector<plec_io_completion> out(ranges.size()), some(16);
        std::vector<int> seen(ranges.size());
        size_t submitted = 0, reaped = 0;
        while (reaped < ranges.size()) {
            while (submitted < ranges.size()) {
                plec_io_read read = ranges[submitted].read(submitted);
                if (!plec_io_submit(io_, &read)) break;
                submitted++;
            }
            size_t n = plec_io_reap(io_, some.data(), some.size(), UINT32_MAX);
            EXPECT_GT(n, 0u);
            for (size_t i = 0; i < n; i++) {
                EXPECT_EQ(seen[some[i].user]++, 0);
                out[some[i].user] = some[i];
            }
            reaped += n;
        }
        EXPECT_EQ(counters().in_flight_bytes, 0u);
        return out;
    }
    /* The same, every one of which must come. */
    void expect_exact(const std::vector<Range> &ranges, const std::vector<uint8_t> &bytes) const {
        std::vector<plec_io_completion> completions = run(ranges);
        for (size_t i = 0; i < ranges.size(); i++) {
            EXPECT_EQ(completions[i].status, PLEC_OK) << completions[i].error.message;
            EXPECT_EQ(completions[i].n_bytes, ranges[i].length);
            ranges[i].expect_exact(bytes);
        }
    }

  private:
    plec_io *io_ = nullptr;
};

} // namespace plec_test
#endif
