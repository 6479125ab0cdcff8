// `plectrum_emu run --device cuda --check` on every container, segment file, GGUF and TEZW under
// tests/data: what the CPU device runs, the emulated CUDA device runs, and within its tolerance.
// Built with PLEC_ON_GPU it is the same of `plectrum` and a GPU.
#include "tests/support/data.h"
#include "tests/support/json.h"
#include "tests/support/sources.h"
#include "tools/plectrum/npy.h"

#include <gtest/gtest.h>

#include <functional>

using namespace plec_test;

namespace {

#ifdef PLEC_ON_GPU
const bool emulated = false;
std::string tool() {
    return tool_path();
}
#else
const bool emulated = true;
std::string tool() {
    return PLEC_TOOL_EMULATED;
}
#endif

/* A routing for layers that have no router: two experts a token. */
std::vector<std::string> routing(const TempDir &dir, uint32_t n_experts, uint32_t n_tokens) {
    const uint32_t n_slots = 2;
    std::vector<int32_t> ids;
    std::vector<float> weights;
    for (uint32_t i = 0; i < n_tokens * n_slots; i++) {
        ids.push_back(static_cast<int32_t>((5 * i + 1) % (n_experts > 0 ? n_experts : 1)));
        weights.push_back(0.25f + 0.125f * static_cast<float>(i));
    }
    std::string at_ids = dir.path("ids.npy"), at_weights = dir.path("weights.npy");
    EXPECT_EQ(plec_npy_write(at_ids.c_str(), PLEC_NPY_I32, ids.data(), n_tokens, n_slots, nullptr),
              PLEC_OK);
    EXPECT_EQ(plec_npy_write(at_weights.c_str(), PLEC_NPY_F32, weights.data(), n_tokens, n_slots,
                             nullptr),
              PLEC_OK);
    return {"--ids", at_ids, "--weights", at_weights};
}

void expect_checked_on_cuda(const ToolResult &result) {
    ASSERT_EQ(result.exit_status, 0) << result.err;
    Json json(result.out);
    EXPECT_TRUE(json_is_true(json_object_get(json.get(), "within")));
    std::string device = json_string_value(json_object_get(json.get(), "device"));
    EXPECT_EQ(device.find("emulated") != std::string::npos, emulated) << device;
    EXPECT_LE(json_real_value(json_object_get(json.get(), "tolerance")), 4e-5);
}

double output_norm(const ToolResult &result) {
    Json json(result.out);
    return json_real_value(json_object_get(json.get(), "output_norm"));
}

/* Runs a layer with random tokens and more arguments; with a routing, which is added to them, where
 * it asks for one. */
ToolResult run_routed(std::vector<std::string> *args, const TempDir &dir, const SourceLayer &layer,
                      uint32_t n_tokens, const std::vector<std::string> &more) {
    auto run = [&] {
        std::vector<std::string> all = *args;
        all.insert(all.end(), more.begin(), more.end());
        return run_program(tool(), all);
    };
    args->insert(args->end(), {"--layer", std::to_string(layer.number), "--random",
                               std::to_string(n_tokens), "--json"});
    ToolResult result = run();
    if (result.err.find("RoutingRequired") == std::string::npos) return result;
    for (const std::string &word : routing(dir, layer.n_experts, n_tokens))
        args->push_back(word);
    return run();
}

/* Runs a layer on both devices; true when it ran. Tokens are enough that the rounding of single
 * values averages out. */
bool run_layer(const std::string &path, const SourceLayer &layer) {
    TempDir dir;
    SCOPED_TRACE(path + " layer " + std::to_string(layer.number));
    std::vector<std::string> args = {"run", path};
    ToolResult cpu = run_routed(&args, dir, layer, 32, {"--device", "cpu"});
    args.insert(args.end(), {"--device", "cuda", "--check"});
    ToolResult cuda = run_program(tool(), args);
    if (cpu.exit_status != 0) {
        EXPECT_EQ(cuda.exit_status, cpu.exit_status) << cuda.err;
        return false;
    }
    expect_checked_on_cuda(cuda);
    /* Streamed, experts arrive one by one: the bits are those of resident ones. */
    args.insert(args.end(), {"--device-budget", "64MiB", "--extent", "3"});
    ToolResult streamed = run_program(tool(), args);
    expect_checked_on_cuda(streamed);
    EXPECT_EQ(output_norm(streamed), output_norm(cuda));
    return true;
}

/* Checks a layer on CUDA alone; true when it ran. */
bool check_layer(const std::string &path, const SourceLayer &layer, uint32_t n_tokens) {
    TempDir dir;
    SCOPED_TRACE(path + " layer " + std::to_string(layer.number));
    std::vector<std::string> args = {"run", path, "--device", "cuda", "--check"};
    ToolResult result =
        run_routed(&args, dir, layer, n_tokens, {"--seed", std::to_string(n_tokens)});
    if (result.exit_status == 3) return false; /* as run_layer holds: the CPU refuses it, too */
    expect_checked_on_cuda(result);
    return true;
}

int every_layer(const std::string &under,
                const std::function<bool(const std::string &, const SourceLayer &)> &run) {
    int n = 0;
    for (const std::string &path : sources())
        if (path.rfind(data_path(under), 0) == 0)
            for (const SourceLayer &layer : layers_of(path))
                n += run(path, layer);
    return n;
}
int run_every_layer(const std::string &under) {
    return every_layer(under, run_layer);
}

TEST(EmulatedRun, ChecksEveryContainer) {
    EXPECT_GE(run_every_layer("containers"), 7);
}
TEST(EmulatedRun, ChecksEveryRunFixture) {
    EXPECT_GE(run_every_layer("run"), 3);
}
TEST(EmulatedRun, ChecksEverySegmentFile) {
    EXPECT_GE(run_every_layer("lyrw"), 8);
}
TEST(EmulatedRun, ChecksEveryGguf) {
    EXPECT_GE(run_every_layer("gguf"), 14);
}
TEST(EmulatedRun, ChecksEveryTezw) {
    EXPECT_GE(run_every_layer("tezw"), 1);
}

/* Experts of a row or two, of a tile and more, and of many: kernels of every class of rows. */
class EmulatedRunOf : public testing::TestWithParam<uint32_t> {};
TEST_P(EmulatedRunOf, TokensIsCheckedOnEverySource) {
    EXPECT_GE(every_layer("",
                          [](const std::string &path, const SourceLayer &layer) {
                              return check_layer(path, layer, GetParam());
                          }),
              33);
}
INSTANTIATE_TEST_SUITE_P(, EmulatedRunOf, testing::Values(1, 9, 90));

Json run_json(std::vector<std::string> more) {
    std::vector<std::string> args = {
        "run",   data_path("run/run01_sigmoid_two_segments"), "--device", "cuda", "--random", "12",
        "--json"};
    args.insert(args.end(), more.begin(), more.end());
    ToolResult result = run_program(tool(), args);
    EXPECT_EQ(result.exit_status, 0) << result.err;
    return Json(result.out);
}

int64_t graph_count(const Json &json, const char *name) {
    return json_integer_value(json_object_get(json_object_get(json.get(), "graphs"), name));
}

int64_t count_of(const Json &json, const char *object, const char *name) {
    json_t *in = object != nullptr ? json_object_get(json.get(), object) : json.get();
    json_t *value = json_object_get(in, name);
    EXPECT_TRUE(json_is_integer(value)) << name;
    return json_integer_value(value);
}

/* plan and run reckon the same slots and landings from a budget, as experts are on the device. */
TEST(CudaTool, PlansWhatARunTakes) {
    std::string path = data_path("gguf/01_mixtral/model.gguf");
    for (const char *budget : {"200KiB", "300KiB", "1MiB", "64MiB"}) {
        SCOPED_TRACE(budget);
        Json plan(run_program(tool(), {"plan", path, "--layer", "0", "--device", "cuda",
                                       "--disk-gbs", "1", "--link-gbs", "1", "--memory-gbs", "1",
                                       "--device-budget", budget, "--json"})
                      .out);
        Json run(run_program(tool(), {"run", path, "--layer", "0", "--device", "cuda", "--random",
                                      "2", "--device-budget", budget, "--json"})
                     .out);
        for (const char *name :
             {"extent_width", "frame_bytes", "slot_bytes", "landing_bytes", "slots", "frames"})
            EXPECT_EQ(count_of(plan, nullptr, name), count_of(run, "stream", name)) << name;
        EXPECT_GT(count_of(plan, nullptr, "landing_bytes"), 0);
    }
    ToolResult text =
        run_program(tool(), {"plan", path, "--layer", "0", "--device", "cuda", "--disk-gbs", "1",
                             "--link-gbs", "1", "--memory-gbs", "1", "--device-budget", "64MiB"});
    EXPECT_NE(text.out.find("for what arrives"), std::string::npos) << text.out;
}

TEST(CudaTool, ReplaysGraphsAndSaysHowOften) {
    Json on = run_json({"--step", "3"}), off = run_json({"--step", "3", "--graphs", "off"});
    EXPECT_EQ(graph_count(on, "captured"), 1);
    EXPECT_EQ(graph_count(on, "replayed"), 3);
    EXPECT_EQ(graph_count(on, "launched"), 1);
    EXPECT_TRUE(json_is_null(json_object_get(off.get(), "graphs")));
    EXPECT_EQ(json_real_value(json_object_get(on.get(), "output_norm")),
              json_real_value(json_object_get(off.get(), "output_norm")));
    EXPECT_EQ(run_program(tool(), {"run", "x", "--random", "1", "--graphs", "maybe"}).exit_status,
              2);
}

TEST(CudaTool, BenchesGraphsAndNamesKernels) {
    std::vector<std::string> args = {"bench",       data_path("run/run01_sigmoid_two_segments"),
                                     "--device",    "cuda",
                                     "--decode",    "1",
                                     "--prefill",   "",
                                     "--steps",     "2",
                                     "--warmup",    "1",
                                     "--limit-gbs", "1"};
    ToolResult text = run_program(tool(), args);
    EXPECT_NE(text.out.find("kernels   gate_up mxfp4 "), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("graphs    1 captured; of 4 steps of layers 3 replayed one"),
              std::string::npos)
        << text.out;
    args.push_back("--json");
    Json json(run_program(tool(), args).out);
    EXPECT_EQ(graph_count(json, "replayed"), 3);
    const char *kernels =
        json_string_value(json_array_get(json_object_get(json.get(), "kernels"), 0));
    ASSERT_NE(kernels, nullptr);
    EXPECT_NE(strstr(kernels, "down mxfp4 "), nullptr) << kernels;
}

std::string kernels_of(const Json &json) {
    const char *kernels = json_string_value(json_object_get(json.get(), "kernels"));
    return kernels != nullptr ? kernels : "";
}

TEST(CudaTool, RunsTheRungThatIsAskedForAndSaysWhenItIsAnother) {
    EXPECT_EQ(kernels_of(run_json({"--rung", "plain", "--check"})),
              "gate_up mxfp4 plain, down mxfp4 plain");
    EXPECT_EQ(kernels_of(run_json({"--rung", "mm_sync"})),
              "gate_up mxfp4 mm_sync, down mxfp4 mm_sync");
    ToolResult slower =
        run_program(tool(), {"run", data_path("gguf/16_tiny_f32/model.gguf"), "--layer", "0",
                             "--random", "2", "--device", "cuda", "--rung", "mm_sync"});
    EXPECT_NE(slower.err.find("asked for mm_sync, runs gate f32"), std::string::npos) << slower.err;
    ToolResult unknown = run_program(tool(), {"run", data_path("run/run01_sigmoid_two_segments"),
                                              "--random", "1", "--device", "cuda", "--rung", "x"});
    EXPECT_EQ(unknown.exit_status, 2);
    EXPECT_NE(unknown.err.find("no kernels are called x: there are auto, plain, mm_fma, mm_sync"),
              std::string::npos)
        << unknown.err;
}

#ifndef PLEC_ON_GPU
TEST(CudaTool, RunsTheBaselinesOfTheLibraryThatIsNamed) {
    for (const char *rung : {"cublas_loop", "cublas_grouped"}) {
        std::string name = rung;
        Json json = run_json({"--rung", rung, "--cublas", PLEC_CUBLAS_STANDIN, "--check"});
        EXPECT_EQ(kernels_of(json), "gate_up mxfp4 " + name + ", down mxfp4 " + name);
        EXPECT_TRUE(json_is_true(json_object_get(json.get(), "within")));
        EXPECT_TRUE(json_is_null(json_object_get(json.get(), "graphs")));
        ToolResult none = run_program(tool(), {"run", data_path("run/run01_sigmoid_two_segments"),
                                               "--random", "1", "--device", "cuda", "--rung", rung,
                                               "--cublas", "/nowhere/libcublas.so"});
        EXPECT_EQ(none.exit_status, 4);
        EXPECT_NE(none.err.find("NoCublas"), std::string::npos) << none.err;
        EXPECT_NE(none.err.find("/nowhere/libcublas.so"), std::string::npos) << none.err;
    }
}
#endif

/* One token, and two experts whose outputs cancel: rounding alone is further off than 4e-5. */
ToolResult check_cancelling(const TempDir &dir, const std::string &seed,
                            std::vector<std::string> more = {}) {
    const int32_t ids[] = {0, 1};
    const float weights[] = {0.5f, 0.5f};
    std::string at_ids = dir.path("ids.npy"), at_weights = dir.path("weights.npy");
    EXPECT_EQ(plec_npy_write(at_ids.c_str(), PLEC_NPY_I32, ids, 1, 2, nullptr), PLEC_OK);
    EXPECT_EQ(plec_npy_write(at_weights.c_str(), PLEC_NPY_F32, weights, 1, 2, nullptr), PLEC_OK);
    std::vector<std::string> args = {"run",       data_path("lyrw/09_fmt10_mxfp8_paired.lyrw"),
                                     "--random",  "1",
                                     "--seed",    seed,
                                     "--ids",     at_ids,
                                     "--weights", at_weights,
                                     "--device",  "cuda",
                                     "--check"};
    args.insert(args.end(), more.begin(), more.end());
    return run_program(tool(), args);
}

bool is_null(const Json &json, const char *name) {
    return json_is_null(json_object_get(json.get(), name));
}

TEST(CudaTool, CheckDoesNotFailByTheRoundingOfCancellingOutputs) {
    TempDir dir;
    int n_rounded = 0;
    for (int seed = 0; seed < 40; seed++) {
        ToolResult result = check_cancelling(dir, std::to_string(seed), {"--json"});
        ASSERT_EQ(result.exit_status, 0) << seed << ": " << result.out << result.err;
        Json json(result.out);
        EXPECT_TRUE(json_is_true(json_object_get(json.get(), "within")));
        double nmse = json_real_value(json_object_get(json.get(), "nmse"));
        bool rounded = !is_null(json, "nmse_rounded");
        EXPECT_EQ(rounded, nmse > 4e-5) << seed;
        EXPECT_EQ(rounded, !is_null(json, "note")) << seed;
        EXPECT_LT(json_real_value(json_object_get(json.get(), "nmse_rounded")), 1e-7) << seed;
        n_rounded += rounded;
    }
    EXPECT_GT(n_rounded, 0);
    ToolResult text = check_cancelling(dir, "29");
    for (const char *part : {"above the tolerance of 4e-05", "rounds as this device does: below",
                             "the difference is that rounding"})
        EXPECT_NE(text.out.find(part), std::string::npos) << part << ": " << text.out;
}

TEST(CudaTool, CheckHoldsATolerancesOwnWordWhateverRounds) {
    TempDir dir;
    ToolResult result = check_cancelling(dir, "29", {"--tolerance", "4e-5", "--json"});
    EXPECT_EQ(result.exit_status, 1) << result.out << result.err;
    EXPECT_TRUE(is_null(Json(result.out), "nmse_rounded")) << result.out;
}

#ifndef PLEC_ON_GPU
/* The baseline of grouped products rounds them to bf16 as well, which no kernel may: planted so. */
TEST(CudaTool, CheckFailsAKernelThatRoundsMoreThanTheRule) {
    TempDir dir;
    const std::vector<std::string> planted = {"--rung", "cublas_grouped", "--cublas",
                                              PLEC_CUBLAS_STANDIN};
    ToolResult text = check_cancelling(dir, "29", planted);
    EXPECT_EQ(text.exit_status, 1) << text.out << text.err;
    for (const char *part : {"rounds as this device does: not below 1e-07",
                             "the difference is more than that rounding"})
        EXPECT_NE(text.out.find(part), std::string::npos) << part << ": " << text.out;
    std::vector<std::string> more = planted;
    more.push_back("--json");
    Json json(check_cancelling(dir, "29", more).out);
    EXPECT_TRUE(json_is_false(json_object_get(json.get(), "within")));
    EXPECT_GT(json_real_value(json_object_get(json.get(), "nmse_rounded")), 1e-7);
}
#endif

/* A GPU where there is one; no emulated one, which is slower than the CPU. */
TEST(CudaTool, IsWhatAutoTakesWhereThereIsAGpu) {
    ToolResult result = run_program(tool(), {"run", data_path("run/run01_sigmoid_two_segments"),
                                             "--random", "2", "--check", "--json"});
    EXPECT_EQ(result.exit_status, 0) << result.err;
    Json json(result.out);
    std::string device = json_string_value(json_object_get(json.get(), "device"));
    EXPECT_EQ(device.rfind(emulated ? "CPU" : "CUDA", 0), 0u) << device;
    EXPECT_EQ(json_real_value(json_object_get(json.get(), "tolerance")), emulated ? 1e-9 : 4e-5);
}

#ifndef PLEC_ON_GPU
TEST(EmulatedTool, SaysSoInEveryOutput) {
    Json version(run_program(tool(), {"version", "--json"}).out);
    EXPECT_STREQ(json_string_value(json_object_get(version.get(), "cuda_backend")),
                 "CUDA emulated on the CPU");
    for (const std::vector<std::string> &args :
         {std::vector<std::string>{"version"}, {"kernels"}, {"kernels", "--json"}}) {
        ToolResult result = run_program(tool(), args);
        EXPECT_EQ(result.exit_status, 0) << result.err;
        EXPECT_NE(result.out.find("CUDA emulated on the CPU"), std::string::npos) << result.out;
    }
}

/* The option PLEC_CUDA decides which device plectrum itself has. */
TEST(EmulatedTool, IsPlectrumItselfWhenTheBuildSaysSo) {
    ToolResult result = run_tool({"version"});
    bool is_emulated = result.out.find("CUDA emulated on the CPU") != std::string::npos;
    EXPECT_EQ(is_emulated, PLEC_TOOL_IS_EMULATED != 0) << result.out;
}
#endif

TEST(EmulatedTool, HasACudaKernelForEveryFormat) {
    Json kernels(run_program(tool(), {"kernels", "--json"}).out);
    json_t *rows = json_object_get(kernels.get(), "rows"), *row;
    size_t i, n_cuda = 0, n_fast = 0;
    json_array_foreach(rows, i, row) {
        if (strcmp(json_string_value(json_object_get(row, "backend")), "cuda") != 0) continue;
        n_cuda++;
        EXPECT_STREQ(json_string_value(json_object_get(row, "rung")), "dispatched");
        const char *kernel = json_string_value(json_object_get(row, "kernel"));
        ASSERT_NE(kernel, nullptr);
        n_fast += strstr(kernel, "mm_sync") != nullptr;
    }
    EXPECT_GT(n_cuda, 0u);
    EXPECT_GE(n_fast * 26, n_cuda * 18); /* 18 of the 26 formats */
}

} // namespace
