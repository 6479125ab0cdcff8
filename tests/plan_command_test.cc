/* `plectrum plan` as scripts see it: exact numbers on small banks, keys, statuses, messages. */
#include "tests/support/gguf_moe.h"
#include "tests/support/stream_model.h"

using namespace plec_test;

namespace {

const char *const KEYS[] = {"kind",
                            "path",
                            "container",
                            "device",
                            "device_budget",
                            "device_budget_measured",
                            "pinned_budget",
                            "pinned_budget_measured",
                            "extent_width",
                            "advised_extent_width",
                            "experts",
                            "extents",
                            "frame_bytes",
                            "slot_bytes",
                            "landing_bytes",
                            "slots",
                            "slots_staging",
                            "frames",
                            "frames_staging",
                            "resident",
                            "devices_for_all",
                            "weight_bytes",
                            "other_bytes",
                            "layers_without_routing",
                            "bytes_without_routing",
                            "disk_gb_s",
                            "read_us",
                            "io",
                            "io_cache",
                            "link_gb_s",
                            "link_measured",
                            "memory_gb_s",
                            "memory_measured",
                            "layers",
                            "steps",
                            "widths"};

/* plan with every speed given, so that nothing is measured. */
ToolResult plan(const std::string &path, const std::vector<std::string> &more) {
    std::vector<std::string> args = {"plan", path,         "--device", "cpu",          "--disk-gbs",
                                     "1",    "--link-gbs", "4",        "--memory-gbs", "8"};
    args.insert(args.end(), more.begin(), more.end());
    return run_tool(args);
}

Json plan_json(const std::string &path, std::vector<std::string> more) {
    more.push_back("--json");
    ToolResult result = plan(path, more);
    EXPECT_EQ(result.exit_status, 0) << result.err;
    return Json(result.out);
}

json_t *at(const Json &document, const std::string &path) {
    auto [object, name] = locate(document.get(), path);
    json_t *value = json_is_array(object) ? json_array_get(object, std::stoul(name))
                                          : json_object_get(object, name.c_str());
    EXPECT_NE(value, nullptr) << path;
    return value;
}
int64_t integer(const Json &document, const std::string &path) {
    return json_integer_value(at(document, path));
}
double real(const Json &document, const std::string &path) {
    return json_real_value(at(document, path));
}

/* 2 layers of 12 experts of 9216 bytes, 2 a token; extents of 4 in frames of 10 pages. */
TEST(PlanCommand, ABudgetForEverythingStreamsNothing) {
    StreamModel model;
    Json json = plan_json(model.path(), {"--device-budget", "1MiB", "--extent", "4"});
    EXPECT_EQ(integer(json, "experts"), 24);
    EXPECT_EQ(integer(json, "extents"), 6);
    EXPECT_EQ(integer(json, "slots"), 6);
    EXPECT_EQ(integer(json, "frames"), 6);
    EXPECT_EQ(integer(json, "slots_staging"), 0);
    EXPECT_TRUE(json_is_true(at(json, "resident")));
    EXPECT_EQ(integer(json, "devices_for_all"), 1);
    EXPECT_EQ(integer(json, "weight_bytes"), 24 * 9216);
    EXPECT_EQ(integer(json, "other_bytes"), 0);
    EXPECT_EQ(real(json, "steps/0/misses"), 0);
    EXPECT_EQ(real(json, "steps/0/read_bytes_a_token"), 0);
    EXPECT_DOUBLE_EQ(real(json, "steps/0/active_bytes_a_token"), 4 * 9216);
    EXPECT_DOUBLE_EQ(real(json, "steps/0/ms_a_token"), 4 * 9216 / 8e6);
    EXPECT_DOUBLE_EQ(real(json, "steps/0/tokens_s"), 8e9 / (4 * 9216));
    EXPECT_DOUBLE_EQ(real(json, "steps/0/streamed_floor_ms_a_token"), 4 * 9216 / 1e6);
    /* 512 tokens use all of it: 12 (1 - (5/6)^512) experts a layer. */
    EXPECT_EQ(integer(json, "steps/1/tokens"), 512);
    EXPECT_DOUBLE_EQ(real(json, "steps/1/active_bytes_a_token"), 24 * 9216 / 512.0);
    EXPECT_DOUBLE_EQ(real(json, "layers/0/prefill_experts"), 12);
}

TEST(PlanCommand, OneSlotReadsAndCopiesAllThatIsUsed) {
    StreamModel model;
    Json json = plan_json(model.path(), {"--device-budget", "16KiB", "--extent", "1", "--tokens",
                                         "2", "--read-us", "100"});
    int64_t frame = integer(json, "frame_bytes");
    EXPECT_EQ(frame % 4096, 0);
    EXPECT_EQ(integer(json, "slots"), 16384 / frame);
    ASSERT_EQ(integer(json, "slots"), 1);
    EXPECT_EQ(integer(json, "frames"), 1);
    EXPECT_TRUE(json_is_null(at(json, "devices_for_all")));
    EXPECT_DOUBLE_EQ(real(json, "steps/0/misses"), 4);
    EXPECT_DOUBLE_EQ(real(json, "steps/0/reads"), 4);
    EXPECT_DOUBLE_EQ(real(json, "steps/0/read_bytes_a_token"), 4 * 9216);
    EXPECT_DOUBLE_EQ(real(json, "steps/0/copied_bytes_a_token"), 4 * 9216);
    EXPECT_DOUBLE_EQ(real(json, "steps/0/disk_ms_a_token"), 4 * (0.1 + 9216 / 1e6));
    EXPECT_DOUBLE_EQ(real(json, "steps/0/link_ms_a_token"), 4 * 9216 / 4e6);
    EXPECT_DOUBLE_EQ(real(json, "steps/0/memory_ms_a_token"), 4 * 9216 / 8e6);
    /* In each layer the disk, and the first of two experts through the link and the kernel. */
    EXPECT_DOUBLE_EQ(real(json, "steps/0/ms_a_token"),
                     2 * (2 * (0.1 + 9216 / 1e6) + 9216 / 4e6 + 9216 / 8e6));
    /* Two tokens: 12 (1 - (5/6)^2) experts a layer. */
    double used = 2 * 12 * (1 - 25.0 / 36);
    EXPECT_NEAR(real(json, "steps/1/experts"), used, 1e-12);
    EXPECT_NEAR(real(json, "steps/1/copied_bytes_a_token"), used * 9216 / 2, 1e-9);
}

TEST(PlanCommand, EveryKeyIsThereInOrder) {
    StreamModel model;
    Json json = plan_json(model.path(), {"--device-budget", "100KiB"});
    size_t i = 0;
    const char *key;
    json_t *value;
    json_object_foreach(json.get(), key, value) {
        ASSERT_LT(i, std::size(KEYS));
        EXPECT_STREQ(key, KEYS[i++]);
    }
    EXPECT_EQ(i, std::size(KEYS));
    EXPECT_STREQ(json_string_value(at(json, "container")), "vindex");
    EXPECT_TRUE(json_is_null(at(json, "io")));
    EXPECT_TRUE(json_is_false(at(json, "link_measured")));
    EXPECT_EQ(integer(json, "device_budget"), 102400);
    EXPECT_EQ(integer(json, "pinned_budget"), 102400);
    /* Equal layers are one row. */
    EXPECT_EQ(json_array_size(at(json, "layers")), 1u);
    EXPECT_EQ(integer(json, "layers/0/first"), 0);
    EXPECT_EQ(integer(json, "layers/0/last"), 1);
    EXPECT_EQ(json_array_size(at(json, "widths")), 7u);
}

TEST(PlanCommand, WidthsThatDoNotFitAreHalvedAsTheStreamerDoes) {
    StreamModel model;
    for (std::string asked : {"16", "24", "7", "64"})
        for (uint64_t budget : {20000u, 60000u, 200000u}) {
            Json json = plan_json(model.path(),
                                  {"--device-budget", std::to_string(budget), "--extent", asked});
            plec_stream_options stream = {};
            stream.device_budget = budget;
            stream.extent_width = static_cast<uint32_t>(std::stoul(asked));
            StreamRunner runner(model.path(), stream, 1);
            ASSERT_EQ(runner.status, PLEC_OK) << runner.err.message;
            EXPECT_EQ(integer(json, "extent_width"), runner.stats().extent_width);
            EXPECT_EQ(integer(json, "slots"), runner.stats().n_slots);
            EXPECT_EQ(integer(json, "frame_bytes"), int64_t(runner.stats().frame_bytes));
        }
}

TEST(PlanCommand, AdvisesNarrowExtentsForDecodeInASmallCache) {
    StreamModelSpec spec;
    spec.n_experts = 64;
    spec.n_layers = 4;
    StreamModel model(spec);
    Json json = plan_json(model.path(), {"--device-budget", "1MiB"});
    EXPECT_LE(integer(json, "advised_extent_width"), 2);
    /* Where a read costs much and all is used, wide ones. */
    json = plan_json(model.path(),
                     {"--device-budget", "4MiB", "--read-us", "1000", "--tokens", "4096"});
    EXPECT_TRUE(json_is_true(at(json, "resident")));
    EXPECT_EQ(integer(json, "advised_extent_width"), 64);
}

TEST(PlanCommand, PlansOneLayerAsRunStreamsIt) {
    StreamModelSpec spec;
    spec.shared = true;
    StreamModel model(spec);
    Json json = plan_json(model.path(), {"--device-budget", "1MiB", "--layer", "1"});
    EXPECT_EQ(integer(json, "experts"), 12);
    EXPECT_EQ(integer(json, "other_bytes"), 9216);
    EXPECT_EQ(integer(json, "layers/0/first"), 1);
    ToolResult result = plan(model.path(), {"--device-budget", "1MiB", "--layer", "2"});
    EXPECT_EQ(result.exit_status, 3);
    EXPECT_NE(result.err.find("layer 2 is none of its 2 layers"), std::string::npos) << result.err;
}

TEST(PlanCommand, ReadsGgufModels) {
    TempDir dir;
    Moe moe(64, 32, 8, 2);
    std::string path = dir.path("model.gguf");
    moe.file("qwen3moe").write(path);
    Json json = plan_json(path, {"--device-budget", "1MiB", "--extent", "4"});
    EXPECT_STREQ(json_string_value(at(json, "container")), "gguf");
    EXPECT_EQ(integer(json, "experts"), 8);
    EXPECT_EQ(integer(json, "weight_bytes"), 8 * 3 * 64 * 32 * 4);
    /* Three tensors: three reads an expert, three an extent. */
    EXPECT_EQ(integer(json, "layers/0/entry_reads"), 24);
    EXPECT_EQ(integer(json, "layers/0/extent_reads"), 6);
}

TEST(PlanCommand, AFileWithoutARouterTakesAsManySlotsAsItIsTold) {
    std::string path = data_path("lyrw/06_two_segments_one_file.lyrw"); /* 6 experts */
    EXPECT_EQ(integer(plan_json(path, {"--device-budget", "1MiB"}), "layers/0/experts_a_token"), 6);
    EXPECT_EQ(integer(plan_json(path, {"--device-budget", "1MiB", "--slots", "2"}),
                      "layers/0/experts_a_token"),
              2);
}

TEST(PlanCommand, MeasuresWhatIsNotGiven) {
    StreamModel model;
    ToolResult result = run_tool({"plan", model.path(), "--json"});
    ASSERT_EQ(result.exit_status, 0) << result.err;
    Json json(result.out);
    EXPECT_TRUE(json_is_true(at(json, "device_budget_measured")));
    EXPECT_TRUE(json_is_true(at(json, "pinned_budget_measured")));
    EXPECT_GT(integer(json, "device_budget"), 1 << 20);
    EXPECT_GT(real(json, "disk_gb_s"), 0);
    EXPECT_GE(real(json, "read_us"), 0);
    EXPECT_GT(real(json, "link_gb_s"), 0);
    EXPECT_GT(real(json, "memory_gb_s"), 0);
    EXPECT_TRUE(json_is_string(at(json, "io")));
    EXPECT_TRUE(json_is_true(at(json, "resident")));
}

TEST(PlanCommand, SaysInATableWhatTheObjectSays) {
    StreamModel model;
    ToolResult result = plan(model.path(), {"--device-budget", "16KiB", "--extent", "1"});
    ASSERT_EQ(result.exit_status, 0) << result.err;
    for (const char *part :
         {"24 routed of 2 layers, 216.0 KiB", "1 slot of", "23 of 24 extents have no slot",
          "from files                   100.0%", "as above", "1.00 GB/s and 0.0 us a read (given)",
          "read from files            36.0 KiB"})
        EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
}

TEST(PlanCommand, SaysOfAlikeLayersOnce) {
    StreamModelSpec spec;
    spec.n_layers = 5;
    StreamModel model(spec);
    Json manifest = load_json(model.path() + "/moe_manifest.json");
    size_t i;
    json_t *layer;
    json_array_foreach(json_object_get(manifest.get(), "layers"), i, layer)
        json_object_del(layer, "plectrum");
    std::string text = format_json(manifest.get());
    write_file(model.path() + "/moe_manifest.json", text.data(), text.size());
    ToolResult result = plan(model.path(), {"--device-budget", "1MiB"});
    ASSERT_EQ(result.exit_status, 0) << result.err;
    size_t first = result.err.find("no activation is given");
    ASSERT_NE(first, std::string::npos) << result.err;
    EXPECT_EQ(result.err.find("no activation is given", first + 1), std::string::npos)
        << result.err;
}

/* The slowest speeds there may be: tables of 300 digits were printed. */
TEST(PlanCommand, TheSlowestAndTheFastestSpeedsPrintNumbersForAPerson) {
    StreamModel model;
    for (const char *speed : {"0.001", "1e6"}) {
        std::vector<std::string> more = {"--device-budget", "100KiB", "--disk-gbs",   speed,
                                         "--link-gbs",      speed,    "--memory-gbs", speed,
                                         "--read-us",       "1e6"};
        ToolResult text = plan(model.path(), more);
        EXPECT_EQ(text.exit_status, 0) << text.err;
        for (size_t at = 0, end; at < text.out.size(); at = end + 1) {
            end = text.out.find('\n', at);
            EXPECT_LE(end - at, 120u) << text.out.substr(at, end - at);
        }
        Json json = plan_json(model.path(), more);
        EXPECT_GT(real(json, "steps/0/tokens_s"), 0);
        EXPECT_EQ(json_object_size(json.get()), std::size(KEYS));
    }
}

TEST(PlanCommand, RefusesByName) {
    StreamModel model;
    const struct {
        std::vector<std::string> more;
        int status;
        const char *says;
    } cases[] = {
        {{"--device-budget", "4KiB"}, 3, "one expert takes"},
        {{"--device-budget", "0"}, 2, "--device-budget wants at least one byte"},
        {{"--pinned-budget", "0"}, 2, "--pinned-budget wants at least one byte"},
        {{"--slots", "0"}, 2, "--slots wants at least one expert"},
        {{"--slots", "13"}, 3, "layer 0 has 12 experts, --slots wants 13"},
        {{"--disk-gbs", "0"}, 2, "--disk-gbs wants GB/s from 0.001"},
        {{"--memory-gbs", "1e308"}, 2, "--memory-gbs wants GB/s from 0.001 to 1000000"},
        {{"--link-gbs", "-1"}, 2, "--link-gbs wants GB/s"},
        {{"--read-us", "-1"}, 2, "--read-us wants microseconds from 0 to 1000000"},
        {{"--io", "pread"}, 2, "--io and --io-cache measure: not with --disk-gbs"},
        {{"--tokens", "0"}, 2, "--tokens wants at least one"},
        {{"--extent", "65"}, 2, "--extent wants 1 to 64"},
        {{"--device", "reference"}, 2, "the reference streams nothing"},
        {{"--device", "gpu"}, 2, "--device wants auto, cpu, cuda"},
    };
    for (auto &c : cases) {
        ToolResult result = plan(model.path(), c.more);
        EXPECT_EQ(result.exit_status, c.status) << c.says;
        EXPECT_EQ(result.out, "");
        EXPECT_NE(result.err.find(c.says), std::string::npos) << c.says << ": " << result.err;
    }
    EXPECT_EQ(plan(model.path() + "/absent", {}).exit_status, 3);
    ToolResult alone = run_tool({"plan", model.path(), "--read-us", "1"});
    EXPECT_EQ(alone.exit_status, 2);
    EXPECT_NE(alone.err.find("--read-us wants --disk-gbs too"), std::string::npos) << alone.err;
}

} // namespace
