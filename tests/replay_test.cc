#include "host/replay.h"

#include <jansson.h>

#include <algorithm>
#include <string>

#include "tests/support/data.h"
#include "tests/support/simulator.h"

namespace {

using namespace plec_test;

std::string header(const plec_trace_info &info) {
    char text[128];
    return std::string(text, plec_trace_write_header(text, sizeof text, &info));
}

std::string token(uint64_t step, uint32_t layer, uint32_t index, const std::vector<int32_t> &ids) {
    char text[512];
    return std::string(text, plec_trace_write_token(text, sizeof text, step, layer, index,
                                                    ids.data(), uint32_t(ids.size())));
}

/* A parsed trace that closes itself. */
struct Parsed {
    explicit Parsed(const std::string &text) {
        status = plec_trace_parse(&trace, text.data(), text.size(), &err);
    }
    ~Parsed() { plec_trace_close(&trace); }
    Parsed(const Parsed &) = delete;
    Parsed &operator=(const Parsed &) = delete;
    plec_trace trace = {};
    plec_error err = {};
    plec_status status;
};

const plec_trace_info INFO = {2, 16, 1000, 0xabc};

TEST(RoutingTrace, ReadsWhatItsWriterWrites) {
    std::string text = header(INFO) + "# a note\n" + token(0, 0, 0, {3, 1}) +
                       token(0, 0, 1, {1, 15}) + token(0, 1, 0, {}) + token(7, 1, 0, {0});
    Parsed p(text);
    ASSERT_EQ(p.status, PLEC_OK) << p.err.message;
    EXPECT_EQ(p.trace.info.n_layers, 2u);
    EXPECT_EQ(p.trace.info.n_experts, 16u);
    EXPECT_EQ(p.trace.info.entry_bytes, 1000u);
    EXPECT_EQ(p.trace.info.identity, 0xabcu);
    ASSERT_EQ(p.trace.n_dispatches, 3u);
    EXPECT_EQ(p.trace.n_steps, 2u);
    EXPECT_EQ(p.trace.n_tokens, 4u);
    const plec_trace_dispatch &first = p.trace.dispatches[0];
    EXPECT_EQ(first.n_tokens, 2u);
    EXPECT_EQ(std::vector<uint32_t>(p.trace.ids, p.trace.ids + first.n_ids),
              (std::vector<uint32_t>{1, 3, 15}));
    EXPECT_EQ(p.trace.dispatches[1].n_ids, 0u);
    EXPECT_EQ(p.trace.dispatches[2].step, 7u);
}

TEST(RoutingTrace, WritersSayWhenItDoesNotFit) {
    std::string whole = token(12, 3, 4, {5, 600});
    EXPECT_EQ(whole, "12,3,4,5,600\n");
    std::vector<int32_t> ids = {5, 600};
    for (size_t size = 0; size < whole.size(); size++) {
        std::string text(size + 1, 'x');
        EXPECT_EQ(plec_trace_write_token(&text[0], size, 12, 3, 4, ids.data(), 2), 0u);
        EXPECT_EQ(text[size], 'x');
    }
    char small[20];
    EXPECT_EQ(plec_trace_write_header(small, sizeof small, &INFO), 0u);
}

TEST(RoutingTrace, RefusesEveryPrefixThatEndsInALine) {
    std::string text = header(INFO) + token(0, 0, 0, {3, 1}) + token(0, 1, 0, {2});
    for (size_t n = 0; n < text.size(); n++) {
        Parsed p(text.substr(0, n));
        bool whole_lines = n > 0 && text[n - 1] == '\n';
        EXPECT_EQ(p.status, whole_lines ? PLEC_OK : PLEC_MALFORMED) << n;
    }
}

TEST(RoutingTrace, RefusalsNameLineAndFault) {
    const std::string top = header(INFO);
    const struct {
        std::string text;
        const char *name, *says;
    } cases[] = {
        {"step,layer\n", "NotATrace", "line 1"},
        {"", "NotATrace", "line 1"},
        {"plectrum-trace,2,2,16,1000,0\n", "TraceVersion", "line 1"},
        {"plectrum-trace,1,2,16,1000\n", "TraceLine", "comma"},
        {top + "0,0,0,16\n", "BadExpertId", "line 2"},
        {top + "0,0,0,-1\n", "TraceLine", "number"},
        {top + "0,0,0,1,2,1\n", "RepeatedExpert", "line 2"},
        {top + "0,2,0,1\n", "BadLayer", "line 2"},
        {top + "1,0,0,1\n# note\n0,0,0,1\n", "TraceOrder", "line 4"},
        {top + "0,1,0,1\n0,0,0,1\n", "TraceOrder", "line 3"},
        {top + "0,0,0,1 \n", "TraceLine", "end of the line"},
        {top + "0,0\n", "TraceLine", "comma"},
        {top + "0,0,0,99999999999999999999999\n", "TraceLine", "too large"},
    };
    for (const auto &c : cases) {
        Parsed p(c.text);
        EXPECT_EQ(p.status, PLEC_MALFORMED) << c.text;
        EXPECT_STREQ(p.err.name, c.name) << c.text;
        EXPECT_NE(std::string(p.err.message).find(c.says), std::string::npos) << p.err.message;
    }
    for (const char *sizes : {"4000000000,4000000000", "400000000,0", "0,400000000", "2,9999999"}) {
        Parsed huge("plectrum-trace,1," + std::string(sizes) + ",1000,0\n");
        EXPECT_EQ(huge.status, PLEC_UNSUPPORTED) << sizes;
        EXPECT_STREQ(huge.err.name, "TraceTooLarge");
    }
}

std::string made_trace(Trace kind, uint32_t n_steps) {
    std::string text = header({4, 64, 1000000, 1});
    auto steps = make_trace(kind, n_steps, 4, 64, 4, 3);
    for (uint64_t s = 0; s < steps.size(); s++)
        for (uint32_t layer = 0; layer < 4; layer++)
            text += token(s, layer, 0, steps[s][layer]);
    return text;
}

plec_replay_result replay(const plec_trace &trace, uint32_t width, uint64_t n_experts,
                          plec_residency_policy policy, double latency_ns = 0) {
    plec_replay_args args = {&trace, width, n_experts, policy, 0.2, latency_ns};
    plec_replay_result result;
    plec_error err = {};
    EXPECT_EQ(plec_replay_run(&result, &args, &err), PLEC_OK) << err.message;
    return result;
}

TEST(Replay, MemoryForNoneAndForAllGivesWhatArithmeticGives) {
    Parsed p(made_trace(Trace::ZIPF, 100));
    for (int policy = 0; policy < 3; policy++) {
        plec_replay_result none = replay(p.trace, 8, 0, plec_residency_policy(policy));
        EXPECT_EQ(none.uses, 1600u);
        EXPECT_EQ(none.hits, 0u);
        EXPECT_EQ(none.reads, 1600u);
        EXPECT_EQ(none.bytes, 1600u * 1000000);
        EXPECT_DOUBLE_EQ(none.read_ns, 1600 * 1000000 * 0.2);
        plec_replay_result all = replay(p.trace, 8, 256, plec_residency_policy(policy));
        uint64_t distinct = 0;
        for (uint32_t layer = 0; layer < 4; layer++) {
            std::vector<bool> seen(64);
            for (uint64_t d = layer; d < p.trace.n_dispatches; d += 4)
                for (uint32_t i = 0; i < p.trace.dispatches[d].n_ids; i++)
                    seen[p.trace.ids[p.trace.dispatches[d].first_id + i]] = true;
            distinct += uint64_t(std::count(seen.begin(), seen.end(), true));
        }
        EXPECT_EQ(all.reads, distinct);
        EXPECT_EQ(all.hits, 1600 - distinct);
        EXPECT_EQ(all.evictions, 0u);
    }
}

/* Elsewhere LRU hit 8 to 18%, a frequency oracle 46%: which policy, only a replay can say. */
TEST(Replay, NoPolicyBeatsTheOracleOnSingleExperts) {
    for (Trace kind : {Trace::UNIFORM, Trace::ZIPF, Trace::MARKOV}) {
        Parsed p(made_trace(kind, 150));
        for (uint64_t n_experts : {8, 32, 100, 200}) {
            uint64_t best = replay(p.trace, 1, n_experts, PLEC_RESIDENCY_ORACLE).reads;
            EXPECT_LE(best, replay(p.trace, 1, n_experts, PLEC_RESIDENCY_LRU).reads);
            EXPECT_LE(best, replay(p.trace, 1, n_experts, PLEC_RESIDENCY_LFU).reads);
        }
    }
}

TEST(Replay, FrequencyPaysWhereUseIsSkewedAndSteady) {
    Parsed p(made_trace(Trace::ZIPF, 300));
    uint64_t lfu = replay(p.trace, 1, 32, PLEC_RESIDENCY_LFU).hits;
    uint64_t lru = replay(p.trace, 1, 32, PLEC_RESIDENCY_LRU).hits;
    EXPECT_GT(double(lfu), 1.3 * double(lru));
}

TEST(Replay, ReadsAnExtentWholeOnlyWhereThatIsFaster) {
    std::string text = header({1, 8, 1000, 1}) + token(0, 0, 0, {0, 1, 2});
    Parsed p(text);
    plec_replay_result narrow = replay(p.trace, 8, 8, PLEC_RESIDENCY_LRU, 100);
    EXPECT_EQ(narrow.reads, 3u); /* 3 x (100 + 200) ns against 100 + 1600 */
    EXPECT_EQ(narrow.bytes, 3000u);
    EXPECT_DOUBLE_EQ(narrow.read_ns, 900);
    plec_replay_result whole = replay(p.trace, 8, 8, PLEC_RESIDENCY_LRU, 1000);
    EXPECT_EQ(whole.reads, 1u);
    EXPECT_EQ(whole.bytes, 8000u);
    EXPECT_DOUBLE_EQ(whole.read_ns, 2600);
}

json_t *replay_json(const std::string &path, std::vector<std::string> more) {
    std::vector<std::string> args = {"trace", "replay", path, "--json"};
    args.insert(args.end(), more.begin(), more.end());
    ToolResult result = run_tool(args);
    EXPECT_EQ(result.exit_status, 0) << result.err;
    json_t *root = json_loads(result.out.c_str(), 0, nullptr);
    EXPECT_NE(root, nullptr) << result.out;
    return root;
}

TEST(TraceCommand, PrintsARowForEachWidthAndPolicyAndTheBest) {
    TempDir folder;
    std::string text = made_trace(Trace::ZIPF, 100), path = folder.path("trace.csv");
    write_file(path, text.data(), text.size());
    json_t *root = replay_json(path, {"--slots", "64", "--width", "1,8"});
    json_t *rows = json_object_get(root, "rows");
    ASSERT_EQ(json_array_size(rows), 6u);
    EXPECT_EQ(json_integer_value(json_object_get(root, "memory_experts")), 64);
    EXPECT_EQ(json_integer_value(json_object_get(json_array_get(rows, 0), "slots")), 64);
    EXPECT_EQ(json_integer_value(json_object_get(json_array_get(rows, 3), "slots")), 8);
    Parsed p(text);
    EXPECT_EQ(uint64_t(json_integer_value(json_object_get(json_array_get(rows, 1), "hits"))),
              replay(p.trace, 1, 64, PLEC_RESIDENCY_LFU, 100000).hits);
    double least = 1e300;
    for (size_t i = 0; i < 6; i++) {
        json_t *row = json_array_get(rows, i);
        if (std::string(json_string_value(json_object_get(row, "policy"))) != "oracle")
            least = std::min(least, json_real_value(json_object_get(row, "read_ms")));
    }
    EXPECT_DOUBLE_EQ(json_real_value(json_object_get(json_object_get(root, "best"), "read_ms")),
                     least);
    json_decref(root);
    ToolResult text_result = run_tool({"trace", "replay", path});
    EXPECT_EQ(text_result.exit_status, 0);
    EXPECT_NE(text_result.out.find("best: width "), std::string::npos) << text_result.out;
}

TEST(TraceCommand, SaysWhenMemoryIsForMoreThanThereIsAndKeepsNothingWithNone) {
    TempDir folder;
    std::string text = made_trace(Trace::ZIPF, 10), path = folder.path("trace.csv");
    write_file(path, text.data(), text.size());
    ToolResult more = run_tool({"trace", "replay", path, "--slots", "1000"});
    EXPECT_EQ(more.exit_status, 0);
    EXPECT_NE(more.err.find("--slots 1000: the trace has 256 experts"), std::string::npos)
        << more.err;
    EXPECT_EQ(run_tool({"trace", "replay", path, "--slots", "256"}).err, "");
    json_t *none = replay_json(path, {"--slots", "0"});
    EXPECT_EQ(json_integer_value(json_object_get(none, "memory_experts")), 0);
    json_t *rows = json_object_get(none, "rows"), *row;
    size_t i;
    json_array_foreach(rows, i, row) EXPECT_EQ(json_integer_value(json_object_get(row, "hits")), 0);
    json_decref(none);
}

TEST(TraceCommand, RefusesWhatIsNoTraceAndWhatIsNoWidth) {
    TempDir folder;
    std::string path = folder.path("trace.csv"), text = header(INFO) + "0,0,0,77\n";
    write_file(path, text.data(), text.size());
    ToolResult bad = run_tool({"trace", "replay", path});
    EXPECT_EQ(bad.exit_status, 3);
    EXPECT_NE(bad.err.find("BadExpertId"), std::string::npos) << bad.err;
    EXPECT_NE(bad.err.find(path), std::string::npos) << bad.err;
    EXPECT_EQ(run_tool({"trace", "replay", folder.path("none")}).exit_status, 3);
    for (const char *width : {"0", "65", "8,", ",8", "x", "", "8,16,999999999999"})
        EXPECT_EQ(run_tool({"trace", "replay", path, "--width", width}).exit_status, 2) << width;
    EXPECT_EQ(run_tool({"trace", "record", path}).exit_status, 2);
    for (const char *speed : {"0", "1e-308", "1e308"})
        EXPECT_EQ(run_tool({"trace", "replay", path, "--bandwidth", speed}).exit_status, 2);
    for (const char *us : {"-1", "1e308"})
        EXPECT_EQ(run_tool({"trace", "replay", path, "--latency", us}).exit_status, 2);
}

} // namespace
