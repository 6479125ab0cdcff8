/* Conversions that take long: every layout, kills at many moments, more bytes than memory allowed.
 */
#include "host/convert.h"
#include "lyrw/gguf_write.h"
#include "tests/support/converted.h"
#include "tests/support/json.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <random>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace plec_test;
namespace fs = std::filesystem;

namespace {

plec_convert_options layout(uint32_t extent, plec_order order, uint64_t cap) {
    plec_convert_options options = {};
    options.extent = extent;
    options.order = order;
    options.segment_cap = cap;
    return options;
}

/* The tool's exit as waitpid tells it; killed after kill_after_us when that is not negative. */
int run_child(const std::vector<std::string> &args, int64_t kill_after_us, rusage *usage) {
    std::string program = tool_path();
    std::vector<char *> argv = {&program[0]};
    std::vector<std::string> copies = args;
    for (std::string &arg : copies)
        argv.push_back(&arg[0]);
    argv.push_back(nullptr);
    pid_t child = fork();
    if (child == 0) {
        if (freopen("/dev/null", "w", stdout) == nullptr) _exit(126);
        execv(argv[0], argv.data());
        _exit(127);
    }
    if (kill_after_us >= 0) {
        usleep(static_cast<useconds_t>(kill_after_us));
        kill(child, SIGKILL);
    }
    int status = 0;
    rusage unread;
    wait4(child, &status, 0, usage != nullptr ? usage : &unread);
    return status;
}

} // namespace

TEST(ConvertSlow, ContainersComeBackInEveryOrderExtentAndSegmentation) {
    for (const char *name :
         {"run/run01_sigmoid_two_segments", "run/run02_gpt_oss_bias", "run/run03_latent"}) {
        Json document = load_json(data_path(std::string(name) + "/case.json"));
        auto layer =
            static_cast<uint32_t>(json_integer_value(json_object_get(document.get(), "layer")));
        for (uint32_t extent : {1u, 3u, 8u, 16u, 64u})
            for (plec_order order : {PLEC_ORDER_ENTRY, PLEC_ORDER_ROLE})
                for (uint64_t cap : {0u, 40000u}) {
                    SCOPED_TRACE(std::string(name) + " extent " + std::to_string(extent) +
                                 " order " + std::to_string(order) + " cap " + std::to_string(cap));
                    plec_convert *plan = nullptr;
                    plec_error error = {};
                    plec_convert_options options = layout(extent, order, cap);
                    plec_status status =
                        plec_convert_open(&plan, data_path(name).c_str(), &options, &error);
                    plec_convert_close(plan);
                    if (status == PLEC_OK) {
                        expect_converts(data_path(name), layer, options);
                    } else {
                        EXPECT_STREQ(error.name, "CapTooSmall") << error.message;
                        EXPECT_GT(extent, 3u);
                    }
                }
    }
}

/* Moments spread over the time the whole takes. */
TEST(ConvertSlow, KilledAtTwentyMomentsItResumesToTheSameBytes) {
    const std::string source = data_path("gguf/21_e896/model.gguf");
    const plec_convert_options options = layout(32, PLEC_ORDER_ENTRY, 300000);
    Converted wanted(source, options);
    ASSERT_EQ(wanted.status, PLEC_OK) << wanted.error.message;
    const auto args = [&](const std::string &to) {
        return std::vector<std::string>{"convert", "--extent", "32", "--segment-cap",
                                        "300000",  source,     to};
    };
    TempDir timing;
    const auto start = std::chrono::steady_clock::now();
    ASSERT_EQ(run_child(args(timing.path("out")), -1, nullptr), 0);
    const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(
        std::chrono::steady_clock::now() - start);
    std::mt19937 random(20);
    int n_partial = 0, n_killed = 0;
    for (int i = 0; i < 20; i++) {
        TempDir dir;
        const int64_t after =
            whole.count() * (i * 1000 + static_cast<int64_t>(random() % 1000)) / 20000;
        SCOPED_TRACE(std::to_string(after) + " us of " + std::to_string(whole.count()));
        const bool killed = WIFSIGNALED(run_child(args(dir.path("out")), after, nullptr));
        plec_container *container = nullptr;
        const bool opens =
            plec_container_open(&container, dir.path("out").c_str(), nullptr, nullptr) == PLEC_OK;
        plec_container_close(container);
        n_killed += killed;
        n_partial += killed && !opens && fs::exists(dir.path("out/routed"));
        /* It opens only when all of it is there; then only the state may still be to go. */
        if (opens) {
            EXPECT_EQ(run_tool({"verify", "--hash", dir.path("out")}).exit_status, 0);
        }
        if (!opens || fs::exists(dir.path("out/convert.state.json"))) {
            Converted resumed(source, dir.path("out"), options);
            ASSERT_EQ(resumed.status, PLEC_OK) << resumed.error.message;
        }
        expect_same_files(dir.path("out"), wanted.path());
    }
    EXPECT_GE(n_killed, 10);
    EXPECT_GE(n_partial, 5) << "the moments were not spread over the work";
}

/* 192 MiB of experts, six each, through a few buffers. */
TEST(ConvertSlow, MemoryDoesNotGrowWithTheModel) {
    TempDir dir;
    const uint64_t hidden = 1024, inner = 1024, n_experts = 32, each = hidden * inner * 2;
    plec_gguf_writer *writer = plec_gguf_writer_new(32);
    ASSERT_NE(writer, nullptr);
    plec_gguf_put_string(writer, "general.architecture", "llama");
    plec_gguf_put_u32(writer, "llama.block_count", 1);
    plec_gguf_put_u32(writer, "llama.expert_count", n_experts);
    plec_gguf_put_u32(writer, "llama.expert_used_count", 2);
    const uint64_t router[] = {hidden, n_experts}, matrix[] = {hidden, inner, n_experts};
    plec_gguf_put_tensor(writer, plec_view_of("blk.0.ffn_gate_inp.weight"), 0, 2, router, 0);
    for (const char *name :
         {"blk.0.ffn_gate_exps.weight", "blk.0.ffn_up_exps.weight", "blk.0.ffn_down_exps.weight"})
        plec_gguf_put_tensor(writer, plec_view_of(name), 1, 3, matrix, 0);
    plec_error error = {};
    const std::string path = dir.path("m.gguf");
    ASSERT_EQ(plec_gguf_writer_begin(writer, path.c_str(), &error), PLEC_OK) << error.message;
    const std::vector<uint8_t> zeros(hidden * n_experts * 4), bytes(each, 0x3C);
    ASSERT_EQ(plec_gguf_writer_data(writer, zeros.data(), zeros.size(), &error), PLEC_OK);
    for (uint64_t i = 0; i < 3 * n_experts; i++)
        ASSERT_EQ(plec_gguf_writer_data(writer, bytes.data(), each, &error), PLEC_OK);
    ASSERT_EQ(plec_gguf_writer_finish(writer, false, &error), PLEC_OK) << error.message;
    plec_gguf_writer_free(writer);
    ASSERT_GT(fs::file_size(path), 190u << 20);

    rusage usage = {};
    EXPECT_EQ(run_child({"convert", "--threads", "4", path, dir.path("out")}, -1, &usage), 0);
    EXPECT_LT(usage.ru_maxrss, 64 << 10) << "KiB: less than an extent of 16 experts, 96 MiB";
    EXPECT_EQ(run_tool({"verify", "--hash", dir.path("out")}).exit_status, 0);
}
