/* `plectrum bench` as scripts see it: what it counts, what it refuses, the files it writes. Times
 * are whatever they are. */
#include "tests/support/stream_model.h"
#include "tests/support/trace_json.h"

#include <fstream>
#include <sstream>

using namespace plec_test;

namespace {

const char *const KEYS[] = {"kind",   "path",         "container",           "device",  "kernels",
                            "layers", "weight_bytes", "other_bytes",         "routing", "seed",
                            "warmup", "cache_bytes",  "weights_read_before", "stream",  "graphs",
                            "rows"};
const char *const ROW[] = {"phase",
                           "tokens",
                           "steps",
                           "median_ms",
                           "mean_ms",
                           "fastest_ms",
                           "slowest_ms",
                           "tokens_s",
                           "active_bytes_a_step",
                           "gb_s",
                           "limit_gb_s",
                           "share",
                           "set_bytes",
                           "cached",
                           "norm",
                           "experts",
                           "device_hits",
                           "host_hits",
                           "disk_misses",
                           "device_bytes_a_token",
                           "host_bytes_a_token",
                           "disk_bytes_a_token",
                           "read_bytes_a_token",
                           "copied_bytes_a_token",
                           "waits",
                           "stall_ms_a_step",
                           "stall_disk_ms_a_step",
                           "stall_copy_ms_a_step",
                           "stall_slot_ms_a_step",
                           "stall_other_ms_a_step"};

/* bench with few steps, and without measuring the memory. */
ToolResult bench(const std::string &path, const std::vector<std::string> &more) {
    std::vector<std::string> args = {"bench",    path,       "--device",  "cpu",         "--steps",
                                     "4",        "--warmup", "1",         "--limit-gbs", "10",
                                     "--decode", "1,2",      "--prefill", "16"};
    args.insert(args.end(), more.begin(), more.end());
    return run_tool(args);
}

Json bench_json(const std::string &path, std::vector<std::string> more) {
    more.push_back("--json");
    ToolResult result = bench(path, more);
    EXPECT_EQ(result.exit_status, 0) << result.err;
    return Json(result.out);
}

struct Row {
    explicit Row(json_t *row) : object(row) {}
    double real(const char *name) const { return json_real_value(get(name)); }
    int64_t integer(const char *name) const { return json_integer_value(get(name)); }
    std::string text(const char *name) const { return json_string_value(get(name)); }
    json_t *get(const char *name) const {
        json_t *value = json_object_get(object, name);
        EXPECT_NE(value, nullptr) << name;
        return value;
    }
    json_t *object;
};

std::vector<Row> rows_of(const Json &json) {
    std::vector<Row> rows;
    size_t i;
    json_t *row;
    json_array_foreach(json_object_get(json.get(), "rows"), i, row) rows.emplace_back(row);
    return rows;
}

void expect_keys(json_t *object, const char *const *keys, size_t n) {
    size_t i = 0;
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        ASSERT_LT(i, n);
        EXPECT_STREQ(key, keys[i++]);
    }
    EXPECT_EQ(i, n);
}

TEST(BenchCommand, CountsTheWeightsThatAreUsed) {
    StreamModelSpec spec; /* 2 layers of 12 experts of 9216 bytes, 2 a token */
    spec.shared = true;
    StreamModel model(spec);
    Json json = bench_json(model.path(), {});
    expect_keys(json.get(), KEYS, std::size(KEYS));
    std::vector<Row> rows = rows_of(json);
    ASSERT_EQ(rows.size(), 4u);
    const struct {
        const char *phase;
        int64_t tokens, steps;
    } wanted[] = {{"first", 1, 1}, {"decode", 1, 4}, {"decode", 2, 4}, {"prefill", 16, 4}};
    for (size_t i = 0; i < 4; i++) {
        expect_keys(rows[i].object, ROW, std::size(ROW));
        EXPECT_EQ(rows[i].text("phase"), wanted[i].phase);
        EXPECT_EQ(rows[i].integer("tokens"), wanted[i].tokens);
        EXPECT_EQ(rows[i].integer("steps"), wanted[i].steps);
        EXPECT_GT(rows[i].real("norm"), 0);
        EXPECT_GT(rows[i].real("median_ms"), 0);
        EXPECT_LE(rows[i].real("fastest_ms"), rows[i].real("median_ms"));
        EXPECT_LE(rows[i].real("median_ms"), rows[i].real("slowest_ms"));
        EXPECT_LE(rows[i].real("fastest_ms"), rows[i].real("mean_ms") * (1 + 1e-12));
        EXPECT_LE(rows[i].real("mean_ms"), rows[i].real("slowest_ms") * (1 + 1e-12));
        EXPECT_NEAR(rows[i].real("tokens_s") * rows[i].real("median_ms"),
                    1e3 * double(wanted[i].tokens), 1e-6);
        EXPECT_NEAR(rows[i].real("gb_s") * rows[i].real("median_ms") * 1e6,
                    rows[i].real("active_bytes_a_step"), 1e-3);
        EXPECT_DOUBLE_EQ(rows[i].real("share"), rows[i].real("gb_s") / 10);
        EXPECT_EQ(rows[i].integer("experts"), 0); /* nothing is streamed */
        EXPECT_TRUE(json_is_true(rows[i].get("cached")));
    }
    /* Two experts and the shared one in each of two layers. */
    EXPECT_DOUBLE_EQ(rows[1].real("active_bytes_a_step"), 2 * 3 * 9216);
    EXPECT_EQ(rows[0].integer("set_bytes"), 2 * 3 * 9216);
    /* 2 to 4 experts a layer; and at least 9 of 12 for 16 tokens, by far. */
    EXPECT_GE(rows[2].real("active_bytes_a_step"), 2 * 3 * 9216);
    EXPECT_LE(rows[2].real("active_bytes_a_step"), 2 * 5 * 9216);
    EXPECT_GE(rows[3].real("active_bytes_a_step"), 2 * 10 * 9216);
    EXPECT_LE(rows[3].integer("set_bytes"), 2 * 13 * 9216);
    EXPECT_TRUE(json_is_null(json_object_get(json.get(), "stream")));
    EXPECT_TRUE(json_is_true(json_object_get(json.get(), "weights_read_before")));
}

TEST(BenchCommand, StreamedExpertsAreFoundOncePerUse) {
    StreamModel model;
    Json json = bench_json(model.path(),
                           {"--device-budget", "1MiB", "--extent", "2", "--speculate", "off"});
    std::vector<Row> rows = rows_of(json);
    int64_t misses = 0;
    for (const Row &row : rows) {
        int64_t experts = row.integer("experts");
        EXPECT_EQ(experts, row.integer("device_hits") + row.integer("host_hits") +
                               row.integer("disk_misses"));
        EXPECT_NEAR(double(experts) * 9216,
                    row.real("active_bytes_a_step") * double(row.integer("steps")), 1e-6);
        double tokens = double(row.integer("tokens") * row.integer("steps"));
        EXPECT_NEAR(row.real("device_bytes_a_token") * tokens,
                    double(row.integer("device_hits")) * 9216, 1e-6);
        EXPECT_LE(row.real("stall_ms_a_step"), row.real("mean_ms")) << "both are means";
        EXPECT_NEAR(row.real("stall_ms_a_step"),
                    row.real("stall_disk_ms_a_step") + row.real("stall_copy_ms_a_step") +
                        row.real("stall_slot_ms_a_step") + row.real("stall_other_ms_a_step"),
                    1e-9);
        misses += row.integer("disk_misses");
    }
    /* The first token finds nothing; a budget for everything reads each expert once at most. */
    EXPECT_EQ(rows[0].integer("disk_misses"), 4);
    EXPECT_EQ(rows[0].integer("device_hits"), 0);
    EXPECT_LE(misses, 24);
    EXPECT_EQ(rows[3].integer("disk_misses"), 0);
    EXPECT_EQ(
        json_integer_value(json_object_get(json_object_get(json.get(), "stream"), "extent_width")),
        2);
}

TEST(BenchCommand, OneLayerAndItsRouter) {
    StreamModelSpec spec;
    spec.router = true;
    StreamModel model(spec);
    Json json = bench_json(model.path(), {"--layer", "1", "--routing", "router"});
    EXPECT_EQ(json_integer_value(json_object_get(json.get(), "layers")), 1);
    EXPECT_STREQ(json_string_value(json_object_get(json.get(), "routing")), "router");
    EXPECT_DOUBLE_EQ(rows_of(json)[1].real("active_bytes_a_step"), 2 * 9216);
    /* The same seed gives the same experts. */
    EXPECT_EQ(rows_of(json)[3].real("active_bytes_a_step"),
              rows_of(bench_json(model.path(), {"--layer", "1", "--routing", "router"}))[3].real(
                  "active_bytes_a_step"));
}

TEST(BenchCommand, AFileWithoutARouterTakesAsManySlotsAsItIsTold) {
    std::string path = data_path("lyrw/06_two_segments_one_file.lyrw"); /* 6 experts of 72 bytes */
    EXPECT_DOUBLE_EQ(rows_of(bench_json(path, {}))[1].real("active_bytes_a_step"), 6 * 72);
    EXPECT_DOUBLE_EQ(rows_of(bench_json(path, {"--slots", "2"}))[1].real("active_bytes_a_step"),
                     2 * 72);
    /* A recorded routing says it itself. */
    TempDir dir;
    std::string trace = dir.path("routing.csv");
    bench_json(path, {"--slots", "3", "--record", trace});
    EXPECT_DOUBLE_EQ(rows_of(bench_json(path, {"--routing", trace}))[1].real("active_bytes_a_step"),
                     3 * 72);
}

TEST(BenchCommand, ARecordedRoutingRunsAgain) {
    StreamModel model;
    TempDir dir;
    std::string trace = dir.path("routing.csv");
    Json recorded = bench_json(model.path(), {"--record", trace});
    ToolResult replay = run_tool({"trace", "replay", trace, "--json"});
    ASSERT_EQ(replay.exit_status, 0) << replay.err;
    Json table(replay.out);
    /* 1 + 3 rows of (1 + 4) steps. */
    EXPECT_EQ(json_integer_value(json_object_get(table.get(), "steps")), 16);
    EXPECT_EQ(json_integer_value(json_object_get(table.get(), "dispatches")), 32);
    EXPECT_EQ(json_integer_value(json_object_get(table.get(), "entry_bytes")), 9216);

    Json again = bench_json(model.path(), {"--routing", trace});
    std::vector<Row> rows = rows_of(again);
    ASSERT_EQ(rows.size(), 3u);
    EXPECT_EQ(rows[0].text("phase"), "first");
    EXPECT_EQ(rows[1].text("phase"), "decode");
    EXPECT_EQ(rows[1].integer("steps"), 5);
    EXPECT_DOUBLE_EQ(rows[1].real("active_bytes_a_step"), 4 * 9216);
    EXPECT_EQ(rows[2].text("phase"), "prefill");
    EXPECT_EQ(rows[2].integer("steps"), 10);
    EXPECT_EQ(rows[2].integer("tokens"), 9); /* five of 2 and five of 16 */

    StreamModelSpec other;
    other.n_experts = 10;
    StreamModel wrong(other);
    ToolResult refused = bench(wrong.path(), {"--routing", trace});
    EXPECT_EQ(refused.exit_status, 3);
    EXPECT_NE(refused.err.find("routes among 12 experts, layer 0 has 10"), std::string::npos)
        << refused.err;
}

/* Sums went on behind the 4096th step, and were divided by 4096. */
TEST(BenchCommand, ALongRecordedRoutingIsCountedWhole) {
    StreamModel model;
    TempDir dir;
    std::string trace = dir.path("routing.csv");
    bench_json(model.path(), {"--layer", "0", "--record", trace, "--decode", "1", "--prefill", "",
                              "--warmup", "100", "--steps", "4096"});
    Json again = bench_json(model.path(), {"--layer", "0", "--routing", trace});
    std::vector<Row> rows = rows_of(again);
    ASSERT_EQ(rows.size(), 2u);
    EXPECT_EQ(rows[1].integer("steps"), 100 + 4096);
    EXPECT_DOUBLE_EQ(rows[1].real("active_bytes_a_step"), 2 * 9216);
    EXPECT_EQ(rows[1].integer("tokens"), 1);
}

TEST(BenchCommand, CsvHoldsTheRows) {
    StreamModel model;
    TempDir dir;
    std::string path = dir.path("out.csv");
    Json json = bench_json(model.path(), {"--csv", path});
    std::istringstream lines(read_text(path));
    std::string line, cell;
    std::getline(lines, line);
    std::istringstream head(line);
    for (const char *name : ROW) {
        std::getline(head, cell, ',');
        EXPECT_EQ(cell, name);
    }
    for (const Row &row : rows_of(json)) {
        ASSERT_TRUE(std::getline(lines, line));
        std::istringstream cells(line);
        std::getline(cells, cell, ',');
        EXPECT_EQ(cell, row.text("phase"));
        for (size_t i = 1; i < std::size(ROW); i++) {
            ASSERT_TRUE(std::getline(cells, cell, ','));
            json_t *value = row.get(ROW[i]);
            double wanted = json_is_boolean(value) ? json_is_true(value) : json_number_value(value);
            EXPECT_NEAR(std::stod(cell), wanted, 1e-7 * std::abs(wanted)) << ROW[i];
        }
    }
    EXPECT_FALSE(std::getline(lines, line));
}

TEST(BenchCommand, DrawsFirstTokenDecodeAndPrefill) {
    StreamModel model;
    TempDir dir;
    std::string path = dir.path("out.svg");
    std::string trace = dir.path("out.json");
    ToolResult result =
        bench(model.path(), {"--plot", path, "--trace", trace, "--device-budget", "64KiB"});
    ASSERT_EQ(result.exit_status, 0) << result.err;
    std::string svg = read_text(path);
    for (const char *part : {"first token, 1 token a step", "the last 4 steps of decode, 2 tokens",
                             "a step of prefill, 16 tokens", "disk reads", "copies to the device",
                             "wait for experts", "layers"})
        EXPECT_NE(svg.find(part), std::string::npos) << part;
    EXPECT_NE(result.out.find("picture   " + path), std::string::npos) << result.out;
    /* 1 + 3 rows of (1 + 4) steps through 2 layers. */
    TraceFile file(trace);
    EXPECT_EQ(file.n_slices["request"], 16u);
    EXPECT_EQ(file.n_slices["moe.layer"], 32u);
    EXPECT_EQ(file.n_slices["steady"], 1u);
}

TEST(BenchCommand, TellsAPersonTheSame) {
    StreamModel model;
    ToolResult result = bench(model.path(), {"--device-budget", "64KiB"});
    ASSERT_EQ(result.exit_status, 0) << result.err;
    for (const char *part :
         {": 2 layers on CPU", "216.0 KiB routed, 0 bytes beside them; experts drawn uniformly",
          "have a slot", "ms/step", "share", "files", "mean ms/step stall ms/step",
          "note: decode of 1 (", "fit the last-level cache"})
        EXPECT_NE(result.out.find(part), std::string::npos) << part << "\n" << result.out;
}

/* bench of two layers, all weights of the second made of one byte. */
ToolResult bench_spoilt(uint8_t byte) {
    StreamModel model;
    ToolResult inspected = run_tool({"inspect", "--json", model.file(1)});
    EXPECT_EQ(inspected.exit_status, 0) << inspected.err;
    Json view(inspected.out);
    size_t start = size_t(json_integer_value(json_object_get(view.get(), "payload_start")));
    std::vector<uint8_t> bytes = read_file(model.file(1));
    std::fill(bytes.begin() + long(start), bytes.end(), byte);
    write_file(model.file(1), bytes.data(), bytes.size());
    return bench(model.path(), {});
}

TEST(BenchCommand, AnOutputOfZerosIsAnError) {
    ToolResult result = bench_spoilt(0);
    EXPECT_EQ(result.exit_status, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find("layer 1 in step 0 of 1 token: ZeroNorm: all values of the output "
                              "are 0"),
              std::string::npos)
        << result.err;
}

TEST(BenchCommand, AnOutputThatIsNotFiniteIsAnErrorByTheNameThatRunGivesIt) {
    ToolResult result = bench_spoilt(0x7F);
    EXPECT_EQ(result.exit_status, 1);
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find("layer 1 in step 0 of 1 token: OutputNotFinite: "), std::string::npos)
        << result.err;
    EXPECT_NE(result.err.find("the first in column 0 of token 0"), std::string::npos) << result.err;
}

TEST(BenchCommand, MeasuresTheMemoryWhenNoLimitIsGiven) {
    StreamModel model;
    ToolResult result = run_tool({"bench", model.path(), "--device", "cpu", "--steps", "1",
                                  "--warmup", "0", "--decode", "", "--prefill", "", "--json"});
    ASSERT_EQ(result.exit_status, 0) << result.err;
    Json json(result.out);
    std::vector<Row> rows = rows_of(json);
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_GT(rows[0].real("limit_gb_s"), 0.1);
}

TEST(BenchCommand, RefusesByName) {
    StreamModel model;
    const struct {
        std::vector<std::string> more;
        int status;
        const char *says;
    } cases[] = {
        {{"--decode", "1,,2"}, 2, "--decode 1,,2: up to"},
        {{"--decode", "0"}, 2, "--decode 0: up to"},
        {{"--prefill", "8,"}, 2, "--prefill 8,: up to"},
        {{"--prefill", "70000"}, 2, "--prefill 70000: up to"},
        {{"--steps", "0"}, 2, "--steps wants 1 to"},
        {{"--warmup", "4097"}, 2, "--warmup wants 0 to 4096"},
        {{"--slots", "0"}, 2, "--slots wants at least one expert"},
        {{"--slots", "2", "--routing", "router"}, 2, "--slots goes with --routing random"},
        {{"--slots", "13"}, 3, "layer 0 has 12 experts, --slots wants 13"},
        {{"--slots", "4294967295"}, 3, "--slots wants 4294967295"}, /* room was made for them */
        {{"--device-budget", "1MiB", "--pinned-budget", "0"}, 2, "--pinned-budget wants at least"},
        {{"--limit-gbs", "0"}, 2, "--limit-gbs wants GB/s from 0.001 to 1000000, found '0'"},
        {{"--limit-gbs", "1e-308"}, 2, "--limit-gbs wants"}, /* was a share of 300 digits */
        {{"--limit-gbs", "1e308"}, 2, "--limit-gbs wants"},  /* and no number in JSON */
        {{"--extent", "2"}, 2, "options of streaming go with --device-budget"},
        {{"--layer", "7"}, 3, "layer 7 is none of its 2 layers"},
        {{"--routing", "/nonexistent.csv"}, 3, "/nonexistent.csv"},
        {{"--routing", "router"}, 3, "the container holds no router weights"},
        {{"--plot", "/nonexistent/a.svg"}, 4, "/nonexistent/a.svg"},
        {{"--csv", "/nonexistent/a.csv"}, 4, "/nonexistent/a.csv"},
        {{"--record", "/nonexistent/a.csv"}, 4, "/nonexistent/a.csv"},
    };
    for (auto &c : cases) {
        ToolResult result = bench(model.path(), c.more);
        EXPECT_EQ(result.exit_status, c.status) << c.says << result.err;
        EXPECT_EQ(result.out, "");
        EXPECT_NE(result.err.find(c.says), std::string::npos) << c.says << ": " << result.err;
    }
}

/* What cannot be written at the end is told before the first step, not after the last. */
TEST(BenchCommand, KnowsBeforeTheWorkWhatItCannotWrite) {
    StreamModel model;
    TempDir folder;
    for (const char *option : {"--csv", "--record"}) {
        std::string trace = folder.path("trace.json");
        ToolResult result =
            bench(model.path(), {option, folder.path("none/a.csv"), "--trace", trace});
        EXPECT_EQ(result.exit_status, 4) << result.err;
        EXPECT_FALSE(std::filesystem::exists(trace)) << "it ran: " << result.err;
    }
}

TEST(BenchCommand, NeverWritesOneFileTwice) {
    StreamModel model;
    TempDir folder;
    std::string a = folder.path("a"), dotted = folder.path("./a"), link = folder.path("b");
    const std::vector<std::vector<std::string>> cases = {{"--csv", a, "--record", a},
                                                         {"--csv", a, "--record", dotted},
                                                         {"--trace", a, "--plot", dotted},
                                                         {"--csv", a, "--plot", a}};
    for (const std::vector<std::string> &more : cases) {
        ToolResult result = bench(model.path(), more);
        EXPECT_EQ(result.exit_status, 2) << result.err;
        EXPECT_NE(result.err.find(more[0] + " and " + more[2] + " are one file"), std::string::npos)
            << result.err;
    }
    ASSERT_EQ(bench(model.path(), {"--record", a}).exit_status, 0);
    std::filesystem::create_hard_link(a, link);
    std::string before = read_text(a);
    ToolResult over = bench(model.path(), {"--routing", a, "--csv", link});
    EXPECT_EQ(over.exit_status, 2);
    EXPECT_NE(over.err.find("--routing and --csv are one file"), std::string::npos) << over.err;
    EXPECT_EQ(read_text(a), before);
}

TEST(BenchCommand, NeverWritesOverAFileOfTheContainer) {
    StreamModel model;
    std::string index = model.path() + "/index.json", before = read_text(index);
    for (const char *option : {"--csv", "--record", "--trace", "--plot"}) {
        ToolResult result = bench(model.path(), {option, index});
        EXPECT_EQ(result.exit_status, 2) << result.err;
        EXPECT_NE(result.err.find(std::string(option) + " would replace a file of PATH"),
                  std::string::npos)
            << result.err;
        EXPECT_EQ(read_text(index), before);
    }
}

/* With nothing kept every expert comes from the files, in every step. */
TEST(BenchCommand, BypassKeepsNothing) {
    StreamModel model;
    Json json = bench_json(model.path(), {"--device-budget", "1MiB", "--bypass"});
    for (const Row &row : rows_of(json)) {
        EXPECT_GT(row.integer("experts"), 0);
        EXPECT_EQ(row.integer("disk_misses"), row.integer("experts"));
    }
}

} // namespace
