/* `plectrum run` as scripts see it: exit statuses, messages, JSON keys, files written. */
#include "tests/support/bank_files.h"
#include "tests/support/run_case.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include <sys/resource.h>

using namespace plec_test;

namespace {

const char *const KEYS[] = {
    "path",         "kind",        "profile", "layer",       "device",         "kernels",
    "tokens",       "hidden_size", "experts", "slots",       "shared_experts", "routing",
    "programme",    "activation",  "output",  "output_norm", "not_finite",     "nmse",
    "nmse_rounded", "tolerance",   "within",  "note",        "stream",         "graphs"};

TEST(RunCommand, EveryRunnableFixtureIsRight) {
    TempDir dir;
    for (const auto &entry : std::filesystem::directory_iterator(data_path("run"))) {
        if (!entry.is_directory()) continue;
        std::string path = entry.path().string();
        Json description = load_json(path + "/case.json");
        std::string layer =
            std::to_string(json_integer_value(json_object_get(description.get(), "layer")));
        for (std::string device : {"reference", "cpu", "auto"}) {
            ToolResult result =
                run_tool({"run", path, "--layer", layer, "--input", path + "/x.npy", "--output",
                          dir.path("y.npy"), "--routing-out", dir.path("r"), "--device", device});
            ASSERT_EQ(result.exit_status, 0) << result.err;
            EXPECT_LT(nmse(read_npy(dir.path("y.npy")).f32(), read_npy(path + "/y.npy").values),
                      device == "reference" ? 1e-12 : 1e-9);
            Npy ids = read_npy(dir.path("r.ids.npy")),
                weights = read_npy(dir.path("r.weights.npy"));
            Npy expected = read_npy(path + "/weights.npy");
            EXPECT_EQ(ids.i32(), read_npy(path + "/ids.npy").i32());
            EXPECT_EQ(weights.shape, expected.shape);
            for (size_t i = 0; i < weights.values.size(); i++)
                EXPECT_NEAR(weights.values[i], expected.values[i], 1e-6);
        }
    }
}

TEST(RunCommand, JsonHasEveryKeyInOrder) {
    for (bool check : {false, true}) {
        std::vector<std::string> more = {"--json", "--threads", "1"};
        if (check) more.push_back("--check");
        ToolResult result = run_case(more);
        ASSERT_EQ(result.exit_status, 0) << result.err;
        Json object(result.out);
        size_t i = 0;
        const char *key;
        json_t *value;
        json_object_foreach(object.get(), key, value) {
            ASSERT_LT(i, std::size(KEYS));
            EXPECT_STREQ(key, KEYS[i++]);
        }
        EXPECT_EQ(i, std::size(KEYS));
        EXPECT_EQ(json_integer_value(json_object_get(object.get(), "tokens")), 6);
        EXPECT_STREQ(json_string_value(json_object_get(object.get(), "routing")), "router");
        EXPECT_EQ(json_is_null(json_object_get(object.get(), "nmse")), !check);
        EXPECT_EQ(json_is_true(json_object_get(object.get(), "within")), check);
        EXPECT_NEAR(json_real_value(json_object_get(object.get(), "output_norm")), 397.487, 1e-2);
    }
}

TEST(RunCommand, BadUsageIsTwo) {
    std::string path = case_path(), x = case_path("x.npy");
    const std::vector<std::string> wrong[] = {
        {"run"},
        {"run", path, "--layer", "3"},
        {"run", path, "--layer", "3", "--input", x, "--random", "2"},
        {"run", path, "--layer", "3", "--input", x, "--seed", "1"},
        {"run", path, "--layer", "3", "--input", x, "--ids", case_path("ids.npy")},
        {"run", path, "--layer", "3", "--input", x, "--weights", case_path("weights.npy")},
        {"run", path, "--layer", "three", "--input", x},
        {"run", path, "--layer", "3", "--input", x, "--device", "tpu"},
        {"run", path, "--layer", "3", "--input", x, "--check", "--tolerance", "-1"},
        {"run", path, "--layer", "3", "--input", x, "--tolerance", "1"},
        {"run", path, "--layer", "3", "--input", x, "--frobnicate"},
        {"run", path, "more", "--layer", "3", "--input", x},
    };
    for (const auto &args : wrong) {
        ToolResult result = run_tool(args);
        EXPECT_EQ(result.exit_status, 2) << args.back() << ": " << result.err;
        EXPECT_NE(result.err, "");
    }
    EXPECT_EQ(run_tool({"run", "--help"}).exit_status, 0);
}

/* They were read, and changed nothing. */
TEST(RunCommand, RefusesOptionsThatTheDeviceMakesNothingOf) {
    expect_message(run_case({"--cublas", "x"}), 2, {"--cublas goes with --rung cublas_loop or"});
    expect_message(run_case({"--cublas", "x", "--rung", "auto"}), 2, {"--cublas goes with"});
    expect_message(run_case({"--cublas", "x", "--rung", "plain"}), 2, {"--cublas goes with"});
    for (const char *device : {"cpu", "reference"})
        expect_message(run_case({"--graphs", "off", "--device", device}), 2,
                       {"--graphs goes with cuda", device});
    for (const char *device : {"cuda", "reference"})
        expect_message(run_case({"--threads", "1", "--device", device}), 2,
                       {"--threads goes with the CPU", device});
    ToolResult found =
        run_program(tool_path(), {"run", case_path(), "--random", "1", "--graphs", "on"});
    EXPECT_EQ(found.exit_status, 0) << found.err;
    bool on_gpu = found.out.find(", on CUDA") != std::string::npos;
    EXPECT_EQ(found.err.find("--graphs changes nothing: CPU") != std::string::npos, !on_gpu)
        << found.err;
}

/* It was 3, and the container's fault. */
TEST(RunCommand, AWrongRungIsAWrongCommandLineAndNamesThoseThereAre) {
    expect_message(run_case({"--rung", "quick", "--device", "reference"}), 2, {"--rung"});
    for (const char *command : {"run", "bench"}) {
        std::vector<std::string> args = {command, case_path(), "--device",
                                         "cpu",   "--rung",    "quick"};
        if (args[0] == "run") args.insert(args.end(), {"--random", "1"});
        ToolResult result = run_tool(args);
        expect_message(result, 2, {"called quick: there are auto, plain", "--help"});
        EXPECT_EQ(result.err.find(case_path()), std::string::npos) << result.err;
    }
}

TEST(RunCommand, TheCallersRoutingIsUsed) {
    TempDir dir;
    ToolResult result =
        run_case({"--ids", case_path("ids.npy"), "--weights", case_path("weights.npy"), "--output",
                  dir.path("y.npy"), "--json"});
    ASSERT_EQ(result.exit_status, 0) << result.err;
    EXPECT_NE(result.out.find("\"routing\": \"caller\""), std::string::npos) << result.out;
    EXPECT_LT(nmse(read_npy(dir.path("y.npy")).f32(), read_npy(case_path("y.npy")).values), 1e-9);
}

TEST(RunCommand, RandomInputIsTheSameForOneSeed) {
    TempDir dir;
    auto run = [&](const std::string &seed, const std::string &name) {
        ToolResult result = run_tool({"run", case_path(), "--random", "3", "--seed", seed,
                                      "--output", dir.path(name), "--check"});
        EXPECT_EQ(result.exit_status, 0) << result.err;
        return read_file(dir.path(name));
    };
    std::vector<uint8_t> first = run("1", "a.npy");
    EXPECT_EQ(first, run("1", "b.npy"));
    EXPECT_NE(first, run("2", "c.npy"));
    EXPECT_EQ(read_npy(dir.path("a.npy")).shape, (std::vector<size_t>{3, 64}));
}

TEST(RunCommand, F16InputIsWidened) {
    TempDir dir;
    std::string header = "{'descr': '<f2', 'fortran_order': False, 'shape': (1, 64), }";
    std::string text = std::string("\x93NUMPY\x01\x00", 8);
    text += static_cast<char>(header.size());
    text += '\0';
    text += header;
    for (int i = 0; i < 64; i++)
        text += std::string(i % 2 ? "\x00\x3c" : "\x00\xb8", 2); /* 1 and -0.5 */
    write_file(dir.path("h.npy"), text.data(), text.size());
    std::vector<float> wide(64);
    for (size_t i = 0; i < 64; i++)
        wide[i] = i % 2 ? 1.0f : -0.5f;
    ToolResult half = run_case({"--output", dir.path("a.npy")}, dir.path("h.npy"));
    ToolResult full =
        run_case({"--output", dir.path("b.npy")}, save_f32(dir, "f.npy", wide, 1, 64));
    ASSERT_EQ(half.exit_status, 0) << half.err;
    ASSERT_EQ(full.exit_status, 0) << full.err;
    EXPECT_EQ(read_file(dir.path("a.npy")), read_file(dir.path("b.npy")));
}

TEST(RunCommand, UnreadableAndRefusedInputIsThree) {
    TempDir dir;
    std::vector<float> values(6 * 64, 0.5f);
    expect_message(run_tool({"run", dir.path("none"), "--layer", "0", "--random", "1"}), 3,
                   {"CannotOpen", "none"});
    expect_message(run_tool({"run", case_path(), "--layer", "4", "--random", "1"}), 3,
                   {"NoSuchLayer", "layer 4"});
    expect_message(run_case({}, dir.path("none.npy")), 3, {"none.npy"});
    expect_message(run_case({}, save_f32(dir, "wide.npy", values, 4, 96)), 3,
                   {"WrongWidth", "96", "64", "wide.npy"});
    expect_message(run_case({}, case_path("ids.npy")), 3, {"WrongDtype", "i32"});
    expect_message(run_case({"--ids", case_path("ids.npy"), "--weights", case_path("weights.npy")},
                            save_f32(dir, "five.npy", values, 5, 64)),
                   3, {"WrongRows", "ids.npy"});
    expect_message(run_case({"--ids", case_path("ids.npy"), "--weights",
                             save_f32(dir, "w.npy", values, 6, 3)}),
                   3, {"WrongWidth", "w.npy"});
    expect_message(run_case({"--ids", save_i32(dir, "none.npy", {}, 6, 0), "--weights",
                             save_f32(dir, "w.npy", {}, 6, 0)}),
                   3, {"NoSlots: ", "none.npy"});
    expect_message(run_case({"--profile", "nothing"}), 3, {"UndeclaredProfile", "exact"});
    write_file(dir.path("bad.npy"), "\x93NUMPY", 6);
    expect_message(run_case({}, dir.path("bad.npy")), 3, {"Truncated", "bad.npy"});
}

TEST(RunCommand, BadIdsNameTokenSlotAndId) {
    TempDir dir;
    for (int32_t bad : {-1, 16}) {
        std::vector<int32_t> ids = read_npy(case_path("ids.npy")).i32();
        ids[4 * 4 + 1] = bad;
        expect_message(run_case({"--ids", save_i32(dir, "i.npy", ids, 6, 4), "--weights",
                                 case_path("weights.npy")}),
                       3, {"BadExpertId", "token 4 slot 1: id " + std::to_string(bad)});
    }
}

TEST(RunCommand, ManyTokensRunInStepsAndKeepTheirNumbers) {
    TempDir dir;
    const uint64_t n = 530;
    std::vector<float> x = read_npy(case_path("x.npy")).f32(), many;
    for (uint64_t t = 0; t < n; t++)
        many.insert(many.end(), x.begin() + (t % 6) * 64, x.begin() + (t % 6 + 1) * 64);
    std::string input = save_f32(dir, "many.npy", many, n, 64);
    std::vector<double> expected = read_npy(case_path("y.npy")).values;
    std::vector<int32_t> ids = read_npy(case_path("ids.npy")).i32();
    for (const char *device : {"cpu", "reference"}) {
        ToolResult result = run_case({"--device", device, "--output", dir.path("y.npy"),
                                      "--routing-out", dir.path("r"), "--check"},
                                     input);
        ASSERT_EQ(result.exit_status, 0) << result.err;
        EXPECT_EQ(result.err, "") << "no progress line where there is no terminal";
        std::vector<double> y = read_npy(dir.path("y.npy")).values;
        std::vector<int32_t> used = read_npy(dir.path("r.ids.npy")).i32();
        ASSERT_EQ(y.size(), many.size());
        for (uint64_t i = 0; i < y.size(); i++)
            ASSERT_NEAR(y[i], expected[i / 64 % 6 * 64 + i % 64], 1e-3) << i;
        for (uint64_t i = 0; i < used.size(); i++)
            ASSERT_EQ(used[i], ids[i / 4 % 6 * 4 + i % 4]) << i;
    }
    many[525 * 64] = many[521 * 64 + 3] = std::numeric_limits<float>::quiet_NaN();
    input = save_f32(dir, "nan.npy", many, n, 64);
    for (const char *device : {"cpu", "reference"})
        expect_message(run_case({"--device", device}, input), 3, {"NanScores", "token 521"});
}

TEST(RunCommand, WhatTheMachineCannotIsFour) {
    TempDir dir;
    expect_message(run_case({"--output", dir.path("no/such/y.npy")}), 4,
                   {"CannotCreate: " + dir.path("no/such/y.npy") + ": No such file"});
    expect_message(run_case({"--output", "/dev/full"}), 4, {"WriteFailed", "/dev/full"});
    ToolResult cuda = run_case({"--device", "cuda"});
    if (cuda.exit_status != 0) expect_message(cuda, 4, {"Device"});
}

/* A limit on the size of files, like a full disk: no signal, no half an array, the old one stays.
 */
TEST(RunCommand, AnOutputThatDoesNotFitLeavesTheOldOneAlone) {
    TempDir dir;
    std::string path = save_f32(dir, "y.npy", {1, 2, 3}, 1, 3);
    struct rlimit before, small;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 1000;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    ToolResult result = run_case({"--output", path});
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    expect_message(result, 4, {"WriteFailed", path});
    EXPECT_EQ(read_npy(path).values, (std::vector<double>{1, 2, 3}));
    EXPECT_EQ(list_folder(dir.path(), "").size(), 1u) << "the temporary file is gone";
}

TEST(RunCommand, TokensAreMadeForTheBankAndNotForWhatAManifestSays) {
    BankDirectory dir;
    dir.set_index("hidden_size", "4294967295");
    ToolResult result = run_tool({"run", dir.write(), "--random", "1"});
    expect_message(result, 3, {"DimensionContradicted", "4294967295"});
}

TEST(RunCommand, WhatIsAssumedIsSaidOnce) {
    TempDir dir;
    BankDirectory bank;
    bank.set("plectrum", "{}");
    std::string ids = save_i32(dir, "i.npy", {0, 1}, 1, 2);
    std::string weights = save_f32(dir, "w.npy", {0.5f, 0.5f}, 1, 2);
    ToolResult result = run_tool(
        {"run", bank.write(), "--random", "1", "--ids", ids, "--weights", weights, "--check"});
    EXPECT_EQ(result.exit_status, 0) << result.err;
    EXPECT_EQ(result.err,
              "plectrum: routed experts: no activation is given; gated-mlp-v1 uses silu\n");
}

TEST(RunCommand, BrokenBanksAreThreeByName) {
    auto refused = [](BankDirectory &dir, const std::string &name) {
        TempDir arrays;
        std::string ids = save_i32(arrays, "i.npy", {0, 1}, 1, 2);
        std::string weights = save_f32(arrays, "w.npy", {0.5f, 0.5f}, 1, 2);
        ToolResult result = run_tool({"run", dir.write(), "--layer", "0", "--random", "1", "--ids",
                                      ids, "--weights", weights});
        if (name.empty()) {
            EXPECT_EQ(result.exit_status, 0) << result.err;
        } else {
            expect_message(result, 3, {name});
        }
    };
    BankDirectory good, role, length, half, variant, many;
    refused(good, "");
    BankFile file = gated_bank();
    file.schemas.pop_back();
    role.add("routed/layer_000", file);
    refused(role, "UnsatisfiedProgramme");
    set_length(length.files["routed/layer_000"], 1, 1, 5);
    refused(length, "LengthNotShape");
    file = gated_bank();
    file.segments = {{0, 0, 0, 2, 0, 0}};
    half.add("routed/layer_000", file);
    refused(half, "MissingRegion");
    variant.set_index("variants", R"({ "layer.0.routed.down": { "baseline": "a", "variants": {
        "a": { "storage": "routed/absent", "fidelity": "source-exact" } } } })");
    refused(variant, "StorageUndeclared");
    many.set("router/selection/k", "5");
    refused(many, "SelectionExceedsBank");
}

TEST(RunCommand, ALayerWithoutARouterSaysWhatItNeeds) {
    BankDirectory dir;
    expect_message(run_tool({"run", dir.write(), "--random", "1"}), 3,
                   {"RoutingRequired", "ids and weights"});
}

TEST(RunCommand, ALoneDenseFileNeedsNothingMore) {
    ToolResult result = run_tool({"run", data_path("lyrw/01_dense_decomposed_f32.lyrw"), "--random",
                                  "2", "--check", "--json"});
    ASSERT_EQ(result.exit_status, 0) << result.err;
    EXPECT_NE(result.out.find("\"routing\": \"dense\""), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("\"programme\": null"), std::string::npos) << result.out;
    EXPECT_NE(result.err.find("silu"), std::string::npos) << "what is assumed is said";
    result = run_tool({"run", data_path("lyrw/05_multi_segment.seg00.lyrw"), "--random", "1"});
    expect_message(result, 3, {"PartialBank"});
}

TEST(RunCommand, NoTokensGiveAnEmptyOutput) {
    TempDir dir;
    ToolResult result =
        run_case({"--output", dir.path("y.npy"), "--check"}, save_f32(dir, "x.npy", {}, 0, 64));
    ASSERT_EQ(result.exit_status, 0) << result.err;
    EXPECT_EQ(read_npy(dir.path("y.npy")).shape, (std::vector<size_t>{0, 64}));
}

/* --- streamed experts ------------------------------------------------------------------------- */

TEST(RunCommand, StreamedExpertsGiveTheSameBytes) {
    TempDir dir;
    std::string whole = dir.path("whole.npy"), streamed = dir.path("streamed.npy");
    ASSERT_EQ(run_case({"--output", whole}).exit_status, 0);
    ToolResult result = run_case(
        {"--output",    streamed,     "--device-budget", "64KiB", "--extent", "2",        "--io",
         "pread",       "--io-cache", "buffered",        "--pin", "off",      "--policy", "lfu",
         "--speculate", "on",         "--step",          "2",     "--check",  "--json"});
    ASSERT_EQ(result.exit_status, 0) << result.err;
    EXPECT_EQ(read_file(streamed), read_file(whole));
    Json object(result.out);
    json_t *stream = json_object_get(object.get(), "stream");
    auto count = [&](const char *name) {
        EXPECT_NE(json_object_get(stream, name), nullptr) << name;
        return json_integer_value(json_object_get(stream, name));
    };
    EXPECT_GT(count("experts"), 0);
    EXPECT_EQ(count("experts"), count("device_hits") + count("host_hits") + count("disk_misses"));
    EXPECT_EQ(count("extent_width"), 2);
    EXPECT_GT(count("read_bytes"), 0);
    EXPECT_GT(count("copied_bytes"), 0);
    EXPECT_EQ(count("pinned_bytes"), 0);
    EXPECT_STREQ(json_string_value(json_object_get(stream, "io")), "pread");
    EXPECT_STREQ(json_string_value(json_object_get(stream, "io_cache")), "buffered");
    EXPECT_NE(result.err.find("streaming"), std::string::npos) << result.err;
}

TEST(RunCommand, StreamingIsShownToAPerson) {
    ToolResult result = run_case({"--device-budget", "1MiB"});
    ASSERT_EQ(result.exit_status, 0) << result.err;
    for (const char *part :
         {"streamed     extents of ", "handed out   ", "moved        ", "stall        "})
        EXPECT_NE(result.out.find(part), std::string::npos) << part << ": " << result.out;
}

TEST(RunCommand, RefusesStreamingItCannotDo) {
    expect_message(run_case({"--extent", "4"}), 2, {"go with --device-budget"});
    expect_message(run_case({"--device-budget", "0"}), 2, {"at least one byte"});
    expect_message(run_case({"--device-budget", "1MiB", "--pinned-budget", "0"}), 2,
                   {"--pinned-budget wants at least one byte"});
    expect_message(run_case({"--bypass"}), 2, {"go with --device-budget"});
    expect_message(run_case({"--device-budget", "1MiB", "--extent", "65"}), 2, {"--extent", "65"});
    expect_message(run_case({"--device-budget", "1MiB", "--io", "tape"}), 2, {"--io", "tape"});
    expect_message(run_case({"--device-budget", "1MiB", "--pin", "no"}), 2, {"--pin", "'no'"});
    expect_message(run_case({"--step", "0"}), 2, {"--step"});
    expect_message(run_case({"--device-budget", "100"}), 3, {"BudgetTooSmall", "100"});
    expect_message(run_case({"--device-budget", "1MiB", "--device", "reference"}), 2,
                   {"--device-budget: the reference streams nothing"});
}

TEST(RunCommand, NeverWritesOverWhatItReadsOrWrites) {
    TempDir dir;
    std::string x = dir.path("x.npy"), prefix = dir.path("r");
    std::filesystem::copy_file(case_path("x.npy"), x);
    std::vector<uint8_t> before = read_file(x);
    expect_message(run_case({"--output", x}, x), 2, {"--input and --output are one file", x});
    expect_message(run_case({"--output", prefix + ".ids.npy", "--routing-out", prefix}), 2,
                   {"--routing-out and --output are one file"});
    expect_message(run_case({"--trace", dir.path("t"), "--plot", dir.path("./t")}), 2,
                   {"--trace and --plot are one file"});
    EXPECT_EQ(read_file(x), before);
    EXPECT_FALSE(std::filesystem::exists(dir.path("t")));
}

/* They were replaced, and the model was gone. */
TEST(RunCommand, NeverWritesOverAFileOfTheContainer) {
    const std::string models[] = {data_path("run/run01_sigmoid_two_segments"),
                                  data_path("gguf/17_split")};
    for (const std::string &model : models) {
        TempDir dir;
        std::filesystem::copy(model, dir.path("model"), std::filesystem::copy_options::recursive);
        std::string folder = dir.path("model"), shard = folder + "/model-00001-of-00003.gguf";
        bool split = std::filesystem::exists(shard);
        size_t n = 0;
        for (const auto &entry : std::filesystem::recursive_directory_iterator(folder)) {
            std::string file = entry.path(), extension = entry.path().extension();
            bool of_model = split
                                ? extension == ".gguf"
                                : extension == ".lyrw" || entry.path().filename() == "index.json" ||
                                      entry.path().filename() == "moe_manifest.json";
            if (!of_model) continue;
            std::vector<uint8_t> before = read_file(file);
            for (const char *option : {"--output", "--trace", "--plot"}) {
                ToolResult result = run_tool({"run", split ? shard : folder, "--layer",
                                              split ? "0" : "3", "--random", "1", option, file});
                EXPECT_EQ(result.exit_status, 2) << file << result.err;
                EXPECT_EQ(read_file(file), before) << file;
            }
            n++;
        }
        EXPECT_GE(n, 3u) << model;
    }
}

TEST(RunCommand, KnowsBeforeTheWorkThatItCannotWrite) {
    TempDir dir;
    std::string trace = dir.path("t.json");
    expect_message(run_case({"--output", dir.path("none/y.npy"), "--trace", trace}), 4,
                   {"CannotCreate", "none/y.npy"});
    expect_message(run_case({"--routing-out", dir.path("none/r"), "--trace", trace}), 4,
                   {"CannotCreate", "none/r.ids.npy"});
    EXPECT_FALSE(std::filesystem::exists(trace));
}

} // namespace
