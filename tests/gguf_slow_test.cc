/* Sweeps over whole headers: every byte, every value. */
#include "lyrw/gguf.h"
#include "tests/support/data.h"
#include "tests/support/gguf_models.h"
#include "tools/plectrum/gguf_sheet.h"

#include <gtest/gtest.h>

#include <chrono>

#include <sys/resource.h>

namespace {

/* Parses and touches all that a caller might. */
void use(const std::vector<uint8_t> &bytes) {
    plec_gguf file;
    plec_error err = {};
    if (plec_gguf_parse(&file, bytes.data(), bytes.size(), &err) != PLEC_OK) {
        ASSERT_LE(err.byte, bytes.size()) << err.message;
        ASSERT_NE(err.message[0], '\0');
        return;
    }
    bool sound = plec_gguf_require_sound(&file, &err) == PLEC_OK;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < file.n_tensors; i++) {
        const uint8_t *data = nullptr;
        const plec_gguf_tensor *tensor = &file.tensors[i];
        if (plec_gguf_use_tensor(&data, &file, tensor, &err) != PLEC_OK) continue;
        ASSERT_GE(data, bytes.data() + file.data_at);
        ASSERT_LE(tensor->n_bytes, static_cast<uint64_t>(bytes.data() + bytes.size() - data));
        sum += data[0] + data[tensor->n_bytes - 1];
    }
    for (uint32_t i = 0; i < file.n_keys; i++) {
        double value;
        plec_view view;
        uint64_t last = file.keys[i].count == 0 ? 0 : file.keys[i].count - 1;
        sum += plec_gguf_f64(&value, &file, &file.keys[i], last, nullptr) == PLEC_OK;
        sum += plec_gguf_string(&view, &file, &file.keys[i], last, nullptr) == PLEC_OK;
    }
    ASSERT_TRUE(sound || file.findings.n_defects > 0) << sum;
    plec_gguf_close(&file);
}

size_t header_size(const std::vector<uint8_t> &bytes) {
    plec_gguf file;
    EXPECT_EQ(plec_gguf_parse(&file, bytes.data(), bytes.size(), nullptr), PLEC_OK);
    size_t size = static_cast<size_t>(file.data_at);
    plec_gguf_close(&file);
    return size;
}

long peak_kib() {
    rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
}

} // namespace

TEST(GgufSweep, EverySingleByteChangeInTwoHeadersIsBounded) {
    for (const std::vector<uint8_t> &whole :
         {plec_test::sketch_bytes(),
          plec_test::read_file(plec_test::data_path("gguf/16_tiny_f32/model.gguf"))}) {
        std::vector<uint8_t> changed = whole;
        long before = peak_kib();
        for (size_t at = 0; at < header_size(whole); at++) {
            auto start = std::chrono::steady_clock::now();
            for (unsigned value = 0; value < 256; value++) {
                changed[at] = static_cast<uint8_t>(value);
                use(changed);
            }
            changed[at] = whole[at];
            std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
            ASSERT_LT(took.count(), 5) << "byte " << at;
        }
#ifndef __SANITIZE_ADDRESS__ /* which keeps freed memory for a while */
        EXPECT_LT(peak_kib() - before, 64 * 1024) << "memory follows the file, not its words";
#else
        (void)before;
#endif
    }
}

TEST(GgufSweep, EveryEightBytesOfAllOnesInAHeaderAreBounded) {
    std::vector<uint8_t> whole =
        plec_test::read_file(plec_test::data_path("gguf/16_tiny_f32/model.gguf"));
    for (size_t at = 0; at + 8 <= header_size(whole); at++)
        for (unsigned top : {0xFFu, 0x7Fu, 0x00u}) {
            std::vector<uint8_t> changed = whole;
            for (size_t i = 0; i < 7; i++)
                changed[at + i] = 0xFF;
            changed[at + 7] = static_cast<uint8_t>(top);
            use(changed);
        }
}

// A dump is a file of somebody else's too: whatever stands in it is read or refused.
TEST(GgufSweep, EveryByteOfADumpMayBeWrong) {
    plec_test::TempDir dir;
    std::string model = plec_test::data_path("gguf/malformed/gap.gguf");
    std::string dump = plec_test::run_tool({"gguf", "dump", model}).out;
    ASSERT_GT(dump.size(), 300u);
    std::string path = dir.path("h.json");
    unsigned n_read = 0;
    for (size_t at = 0; at < dump.size(); at++)
        for (char value : {'0', '9', '-', '"', ' ', ']', '\x01', '\xff'}) {
            std::string changed = dump;
            changed[at] = value;
            plec_test::write_file(path, changed.data(), changed.size());
            plec_sheet sheet;
            plec_error err = {};
            plec_status status = plec_sheet_read(&sheet, path.c_str(), &err);
            ASSERT_TRUE(status == PLEC_OK || status == PLEC_MALFORMED) << err.message;
            n_read += status == PLEC_OK;
            char *text = nullptr;
            size_t size = 0;
            FILE *stream = open_memstream(&text, &size);
            if (status == PLEC_OK) plec_sheet_write(stream, &sheet);
            fclose(stream);
            free(text);
            if (status == PLEC_OK) plec_sheet_close(&sheet);
        }
    EXPECT_GT(n_read, dump.size() / 8) << "numbers and names may be others";
}
