/* Malformed segment files behind a container: every prefix and every changed byte of the tables is
 * refused or runs; none reads outside the file. What a sanitizer sees is the point. */
#include "host/runner.h"
#include "lyrw/segment.h"
#include "tests/support/bank_files.h"

#include <gtest/gtest.h>

#include <thread>

using namespace plec_test;

namespace {

/* Binds the first layer of a container and, when that works, runs one token on the reference.
 * Whether it ran. */
bool try_to_run(const std::string &path) {
    plec_error err = {};
    plec_container *container = nullptr;
    if (plec_container_open(&container, path.c_str(), nullptr, &err) != PLEC_OK) return false;
    plec_runner_options options = {};
    options.device = PLEC_RUN_REFERENCE;
    options.max_tokens = 1;
    options.max_slots = 1;
    plec_runner *runner = nullptr;
    bool ran = false;
    if (plec_container_n_layers(container) > 0 &&
        plec_runner_open(&runner, container, &options, &err) == PLEC_OK) {
        plec_layer_info info;
        plec_container_layer_info(&info, container, 0);
        uint32_t width = plec_runner_layer(runner, info.layer)->layer.hidden_size;
        EXPECT_LE(width, 4096u);
        std::vector<float> x(width, 0.25f), out(width);
        const int32_t id = static_cast<int32_t>(info.n_experts - 1);
        const float weight = 1;
        plec_forward_args args = {};
        args.layer = info.layer;
        args.n_tokens = 1;
        args.hidden = x.data();
        args.ids = &id;
        args.weights = &weight;
        args.n_slots = 1;
        args.out = out.data();
        EXPECT_EQ(plec_runner_forward(runner, &args, &err), PLEC_OK) << err.message;
        ran = true;
    } else {
        EXPECT_NE(std::string(err.name == nullptr ? "" : err.name), "") << path;
    }
    plec_runner_close(runner);
    plec_container_close(container);
    return ran;
}

uint64_t payload_start(const std::vector<uint8_t> &bytes) {
    plec_segment segment;
    EXPECT_EQ(plec_segment_parse(&segment, bytes.data(), bytes.size(), nullptr), PLEC_OK);
    uint64_t start = segment.payload_start;
    plec_segment_close(&segment);
    return start;
}

const char *const FILES[] = {"03_mxfp4_paired_importer_shape", "06_two_segments_one_file",
                             "16_gpt_oss_like_two_biases"};

TEST(Malformed, EveryChangedByteOfTheTablesIsRefusedOrRuns) {
    for (const char *name : FILES) {
        TempDir dir;
        std::string path = dir.path("file.lyrw");
        std::vector<uint8_t> bytes = read_file(data_path(std::string("lyrw/") + name + ".lyrw"));
        write_file(path, bytes.data(), bytes.size());
        ASSERT_TRUE(try_to_run(path)) << name;
        uint64_t end = payload_start(bytes);
        size_t n_refused = 0;
        for (uint64_t at = 0; at < end; at++)
            for (uint8_t change : {0x01, 0x80, 0xFF}) {
                bytes[at] ^= change;
                write_file(path, bytes.data(), bytes.size());
                n_refused += !try_to_run(path);
                bytes[at] ^= change;
            }
        EXPECT_GT(n_refused, end) << name << ": most changes matter";
    }
}

TEST(Malformed, NoPrefixRuns) {
    for (const char *name : FILES) {
        TempDir dir;
        std::string path = dir.path("file.lyrw");
        std::vector<uint8_t> bytes = read_file(data_path(std::string("lyrw/") + name + ".lyrw"));
        uint64_t end = payload_start(bytes);
        for (uint64_t n = 0; n < bytes.size(); n += n < end + 64 ? 1 : 997) {
            write_file(path, bytes.data(), n);
            EXPECT_FALSE(try_to_run(path)) << name << " cut to " << n;
        }
    }
}

TEST(Malformed, AControlFileIsReadAsCarefully) {
    BankDirectory dir;
    dir.add_control({matrix(PLEC_ROLE_ROUTER_WEIGHT, 4, 8), matrix(PLEC_ROLE_SELECTION_BIAS, 1, 4),
                     matrix(PLEC_ROLE_SHARED_GATE, 1, 8), matrix(PLEC_ROLE_DOWN_SCALE, 1, 4)});
    std::string path = dir.write();
    ASSERT_TRUE(try_to_run(path));
    std::vector<uint8_t> bytes = dir.files["control/layer_000"];
    uint64_t end = payload_start(bytes);
    for (uint64_t at = 0; at < end; at++) {
        bytes[at] ^= 0x81;
        write_file(path + "/control/layer_000.lyrw", bytes.data(), bytes.size());
        try_to_run(path);
        bytes[at] ^= 0x81;
    }
    for (uint64_t n = 0; n < bytes.size(); n++) {
        write_file(path + "/control/layer_000.lyrw", bytes.data(), n);
        EXPECT_FALSE(try_to_run(path)) << n;
    }
}

TEST(Malformed, SeveralThreadsMayBindOneContainer) {
    std::string path = data_path("run/run01_sigmoid_two_segments");
    plec_container *container = nullptr;
    ASSERT_EQ(plec_container_open(&container, path.c_str(), nullptr, nullptr), PLEC_OK);
    std::vector<std::thread> threads;
    plec_status statuses[8];
    for (plec_status &status : statuses)
        threads.emplace_back([container, &status] {
            plec_bound_layer bound;
            status = plec_container_bind(&bound, container, 3, nullptr);
            if (status == PLEC_OK) plec_bound_layer_close(&bound);
        });
    for (std::thread &thread : threads)
        thread.join();
    for (plec_status status : statuses)
        EXPECT_EQ(status, PLEC_OK);
    plec_container_close(container);
}

} // namespace
