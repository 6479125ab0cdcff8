/* What a profiler is shown: a library of ours is injected in its place and writes everything down.
 * Without NVTX's headers there is nothing to show, and these tests say so. */
#include "host/tracer.h"
#include "tests/support/child.h"
#include "tests/support/data.h"
#include "tests/support/json.h"
#include "tests/support/stream_model.h"

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <unistd.h>

using namespace plec_test;

namespace {

#ifdef PLEC_NVTX_RECORDER
const char *const RECORDER = PLEC_NVTX_RECORDER;
#else
const char *const RECORDER = nullptr;
#endif

/* --- a record -------------------------------------------------------------------------------- */

struct Line {
    std::string what, name;
    uint64_t at = 0, tid = 0, range = 0, packed = 0, category = 0, id = 0;
    int64_t value = 0;
    std::string domain;
    bool registered = false, has_packed = false, has_payload = false;
    std::map<std::string, uint64_t> payload;
};

class Record {
  public:
    /* Fails the test when there is no record, or nothing in it. */
    explicit Record(const std::string &path) {
        std::ifstream file(path);
        std::string text;
        while (std::getline(file, text))
            take(text);
        if (lines.empty())
            ADD_FAILURE() << "no record at " << path
                          << ": the library in NVTX_INJECTION64_PATH was not loaded";
    }
    std::vector<Line> lines;

    uint64_t count(const std::string &what, const std::string &name = "") const {
        uint64_t n = 0;
        for (const Line &line : lines)
            n += line.what == what && (name.empty() || line.name == name);
        return n;
    }
    /* ns between push and pop of a name, by thread. */
    uint64_t span(const std::string &name) const {
        std::map<uint64_t, std::vector<const Line *>> stacks;
        uint64_t total = 0;
        for (const Line &line : lines) {
            if (line.what == "push") stacks[line.tid].push_back(&line);
            if (line.what != "pop" || stacks[line.tid].empty()) continue;
            if (stacks[line.tid].back()->name == name)
                total += line.at - stacks[line.tid].back()->at;
            stacks[line.tid].pop_back();
        }
        return total;
    }
    std::set<std::string> names(const std::string &what) const {
        std::set<std::string> out;
        for (const Line &line : lines)
            if (line.what == what) out.insert(line.name);
        return out;
    }

  private:
    void take(const std::string &text) {
        json_error_t error;
        json_t *object = json_loads(text.c_str(), 0, &error);
        ASSERT_NE(object, nullptr) << error.text << ": " << text;
        Line line;
        line.what = string_of(object, "t");
        line.name = string_of(object, "name");
        line.domain = string_of(object, "domain");
        line.at = number_of(object, "at");
        line.tid = number_of(object, "tid");
        line.range = number_of(object, "range");
        line.category = number_of(object, "category");
        line.id = number_of(object, "id");
        line.value = json_integer_value(json_object_get(object, "value"));
        line.registered = json_is_true(json_object_get(object, "registered"));
        std::string packed = string_of(object, "packed");
        line.has_packed = !packed.empty();
        line.packed = packed.empty() ? 0 : std::stoull(packed, nullptr, 16);
        json_t *payload = json_object_get(object, "payload"), *value;
        line.has_payload = payload != nullptr;
        const char *key;
        json_object_foreach(payload, key, value) {
            /* Sixty-four bits, in a signed number. */
            line.payload[key] = static_cast<uint64_t>(json_integer_value(value));
        }
        json_decref(object);
        lines.push_back(line);
    }
    static std::string string_of(json_t *object, const char *name) {
        const char *text = json_string_value(json_object_get(object, name));
        return text != nullptr ? text : "";
    }
    static uint64_t number_of(json_t *object, const char *name) {
        return static_cast<uint64_t>(json_integer_value(json_object_get(object, name)));
    }
};

/* Has the recorder loaded by programs that start from here on, as an old tool if so wished. */
class Injection {
  public:
    explicit Injection(const std::string &library, bool plain = false) {
        setenv("NVTX_INJECTION64_PATH", library.c_str(), 1);
        setenv("PLEC_NVTX_RECORD", path().c_str(), 1);
        if (plain) setenv("PLEC_NVTX_PLAIN", "1", 1);
    }
    ~Injection() {
        for (const char *name : {"NVTX_INJECTION64_PATH", "PLEC_NVTX_RECORD", "PLEC_NVTX_PLAIN"})
            unsetenv(name);
    }
    std::string path() const { return dir_.path("record"); }

  private:
    TempDir dir_;
};

/* --- what must hold of every record ---------------------------------------------------------- */

const std::map<uint64_t, std::string> CATEGORIES = {{1, "route"}, {2, "prefetch"}, {3, "io"},
                                                    {4, "h2d"},   {5, "compute"},  {6, "evict"},
                                                    {7, "comm"},  {8, "serve"},    {9, "stall"}};
const std::map<std::string, uint64_t> CATEGORY_OF = {
    {"request", 8},        {"steady", 8},        {"moe.layer", 5},   {"moe.route", 1},
    {"moe.look_ahead", 2}, {"moe.dispatch", 2},  {"moe.plan", 2},    {"extent.wait", 9},
    {"moe.gate_up", 5},    {"moe.down", 5},      {"extent.read", 3}, {"extent.h2d", 4},
    {"extent.ready", 4},   {"extent.cancel", 2}, {"extent.hit", 2},  {"extent.miss", 2},
    {"extent.evict", 6}};

void expect_balanced(const Record &record) {
    std::map<uint64_t, int> depth;
    std::map<uint64_t, int> ranges;
    for (const Line &line : record.lines) {
        if (line.what == "push") depth[line.tid]++;
        if (line.what == "pop") depth[line.tid]--;
        if (line.what == "start") ranges[line.range]++;
        if (line.what == "end") ranges[line.range]--;
        EXPECT_GE(depth[line.tid], 0) << "a pop without its push";
        bool of_range = line.what == "start" || line.what == "end";
        EXPECT_TRUE(!of_range || ranges[line.range] == (line.what == "start"))
            << "range " << line.range << " starts and ends out of turn";
    }
    for (const auto &thread : depth)
        EXPECT_EQ(thread.second, 0) << "ranges open on thread " << thread.first;
    for (const auto &range : ranges)
        EXPECT_EQ(range.second, 0) << "range " << range.first << " never ended";
}

void expect_known(const Record &record) {
    std::map<uint64_t, std::string> named;
    for (const Line &line : record.lines) {
        if (line.what == "category") named[line.category] = line.name;
        bool event = line.what == "push" || line.what == "start" || line.what == "mark";
        if (!event) continue;
        EXPECT_EQ(line.domain, "plectrum");
        EXPECT_TRUE(line.registered) << line.name;
        ASSERT_EQ(CATEGORY_OF.count(line.name), 1u) << "unknown: " << line.name;
        EXPECT_EQ(line.category, CATEGORY_OF.at(line.name)) << line.name;
        EXPECT_TRUE(line.has_packed);
    }
    EXPECT_EQ(named, CATEGORIES);
    EXPECT_EQ(record.count("domain"), 1u);
}

/* Follows experts from start and end of reads and copies to ready or cancel. */
class Lives {
  public:
    void take(const Line &line) {
        if (line.what == "start") open_[line.range] = line;
        if (line.what == "end") end(open_.at(line.range));
        if (line.what == "start" && line.name == "extent.read")
            each(line, [](Life &life) { life.reads++, life.read = false; });
        if (line.what == "start") each(line, [](Life &life) { life.arriving = true; });
        if (line.what != "mark") return;
        if (line.name == "extent.ready")
            each(line, [](Life &life) {
                EXPECT_TRUE(life.copied && life.arriving);
                life.copied = life.arriving = false;
                life.ready++;
            });
        if (line.name == "extent.cancel")
            each(line, [](Life &life) {
                EXPECT_TRUE(life.arriving) << "cancelled, and did not move";
                life.arriving = false;
                life.cancelled++;
            });
    }
    /* Every read led to one ready or one cancel; copies of what was still in a frame too. */
    void expect_ended() const {
        for (const auto &life : lives_) {
            EXPECT_FALSE(life.second.arriving) << "moved, and neither ready nor cancelled";
            EXPECT_LE(life.second.reads, life.second.ready + life.second.cancelled);
            EXPECT_LE(life.second.ready, life.second.copies);
        }
    }
    void expect_each_once() const {
        for (const auto &life : lives_) {
            EXPECT_EQ(life.second.reads, 1);
            EXPECT_EQ(life.second.copies, 1);
            EXPECT_EQ(life.second.ready, 1);
            EXPECT_EQ(life.second.cancelled, 0);
        }
    }
    size_t n() const { return lives_.size(); }

  private:
    struct Life {
        int reads = 0, copies = 0, ready = 0, cancelled = 0;
        bool read = false, copied = false, arriving = false; /* arriving: moved, the end not told */
    };
    void end(const Line &begun) {
        if (begun.name == "extent.read") each(begun, [](Life &life) { life.read = true; });
        if (begun.name == "extent.h2d")
            each(begun, [](Life &life) {
                EXPECT_TRUE(life.read) << "copied before it was read";
                life.copies++;
                life.copied = true;
            });
    }
    template <typename Take> void each(const Line &line, Take take) {
        ASSERT_TRUE(line.has_payload);
        uint64_t experts = line.payload.at("experts");
        EXPECT_EQ(line.payload.at("n"), static_cast<uint64_t>(__builtin_popcountll(experts)));
        for (; experts != 0; experts &= experts - 1)
            take(lives_[{line.payload.at("layer"), line.payload.at("extent"),
                         static_cast<uint64_t>(__builtin_ctzll(experts))}]);
    }
    std::map<std::vector<uint64_t>, Life> lives_;
    std::map<uint64_t, Line> open_;
};

Lives lives_of(const Record &record) {
    Lives lives;
    for (const Line &line : record.lines)
        lives.take(line);
    return lives;
}

/* --- runs of the tool ------------------------------------------------------------------------ */

struct ToolRun {
    /* Extents of one expert are what is asked for, and no more. */
    explicit ToolRun(const std::string &level, const std::string &budget, bool plain = false,
                     const std::string &extent = "4") {
        Injection injection(RECORDER, plain);
        std::vector<std::string> args = {"run",
                                         data_path("run/run01_sigmoid_two_segments"),
                                         "--layer",
                                         "3",
                                         "--random",
                                         "30",
                                         "--step",
                                         "2",
                                         "--device",
                                         "cpu",
                                         "--device-budget",
                                         budget,
                                         "--extent",
                                         extent,
                                         "--io",
                                         "pread",
                                         "--speculate",
                                         "off",
                                         "--json"};
        if (!level.empty()) args.insert(args.end(), {"--nvtx", level});
        result = run_tool(args);
        EXPECT_EQ(result.exit_status, 0) << result.err;
        if (level == "off")
            EXPECT_FALSE(std::ifstream(injection.path()).good()) << "somebody was asked";
        else
            record = std::make_unique<Record>(injection.path());
        Json said(result.out.c_str());
        json_t *stream = json_object_get(said.get(), "stream");
        const char *key;
        json_t *value;
        json_object_foreach(stream, key, value) {
            if (json_is_integer(value))
                stats[key] = static_cast<uint64_t>(json_integer_value(value));
        }
    }
    ToolResult result;
    std::unique_ptr<Record> record;
    std::map<std::string, uint64_t> stats;
};

class Nvtx : public testing::Test {
  protected:
    void SetUp() override {
        if (RECORDER == nullptr) GTEST_SKIP() << "built without NVTX headers: nothing to record";
        ASSERT_NE(plec_nvtx_built(), nullptr);
    }
};

TEST_F(Nvtx, OffAsksNobody) {
    ToolRun run("off", "16KiB");
}

TEST_F(Nvtx, LayersAreShownUnlessOtherwiseAsked) {
    for (const char *level : {"", "layers"}) {
        ToolRun run(level, "16KiB");
        const Record &record = *run.record;
        expect_balanced(record);
        expect_known(record);
        EXPECT_EQ(record.count("push", "request"), 1u);
        EXPECT_EQ(record.count("push", "steady"), 1u);
        EXPECT_EQ(record.count("push", "moe.layer"), 15u);
        EXPECT_EQ(record.count("push", "moe.route"), 15u);
        EXPECT_EQ(record.count("push", "moe.plan"), run.stats["dispatches"]);
        EXPECT_EQ(record.count("push", "extent.wait"), run.stats["waits"]);
        EXPECT_GT(record.count("push", "extent.wait"), 0u);
        EXPECT_GE(record.count("push", "moe.gate_up"), run.stats["parts"]);
        EXPECT_EQ(record.count("push", "moe.gate_up"), record.count("push", "moe.down"));
        EXPECT_EQ(record.count("start"), 0u);
        EXPECT_EQ(record.count("mark"), 0u);
        EXPECT_EQ(record.count("sample"), 0u);
        std::set<std::string> threads = record.names("thread");
        for (const char *name : {"plectrum", "plec-streamer", "plec-io-0", "plec-compute"})
            EXPECT_EQ(threads.count(name), 1u) << name;
    }
}

TEST_F(Nvtx, EveryExtentIsReadCopiedAndReadyOnceOrCancelled) {
    for (const char *level : {"extents", "all"})
        for (const char *budget : {"8KiB", "16KiB", "1MiB"}) {
            SCOPED_TRACE(std::string(level) + " " + budget);
            ToolRun run(level, budget);
            const Record &record = *run.record;
            expect_balanced(record);
            expect_known(record);
            Lives lives = lives_of(record);
            lives.expect_ended();
            EXPECT_GT(lives.n(), 0u);
            if (std::string(budget) == "1MiB") lives.expect_each_once();
            EXPECT_EQ(record.count("push", "moe.dispatch"), run.stats["dispatches"]);
            EXPECT_GT(record.count("start", "extent.read"), 0u);
            EXPECT_GT(record.count("start", "extent.h2d"), 0u);
        }
}

TEST_F(Nvtx, AllShowsHitsAndCountersThatAgreeWithTheRun) {
    ToolRun run("all", "16KiB");
    const Record &record = *run.record;
    std::map<std::string, uint64_t> sums, n_marks;
    for (const Line &line : record.lines)
        if (line.what == "mark") sums[line.name] += line.payload.at("n"), n_marks[line.name]++;
    EXPECT_EQ(sums["extent.hit"], run.stats["device_hits"]);
    EXPECT_EQ(sums["extent.miss"], run.stats["host_hits"] + run.stats["disk_misses"]);
    EXPECT_LE(n_marks["extent.miss"], run.stats["dispatches"]) << "one a layer, not one an expert";
    std::map<uint64_t, std::string> counters;
    std::map<std::string, std::vector<int64_t>> samples;
    for (const Line &line : record.lines) {
        if (line.what == "counter") counters[line.id] = line.name;
        if (line.what == "sample") samples[counters.at(line.id)].push_back(line.value);
    }
    for (const char *name : {"in-flight bytes", "reads", "copies"}) {
        ASSERT_FALSE(samples[name].empty()) << name;
        EXPECT_EQ(samples[name].back(), 0) << name;
        for (int64_t value : samples[name])
            EXPECT_GE(value, 0) << name;
    }
    ASSERT_EQ(samples["pinned bytes"].size(), 1u);
    EXPECT_EQ(static_cast<uint64_t>(samples["pinned bytes"][0]), run.stats["pinned_bytes"]);
}

TEST_F(Nvtx, AnOldToolIsShownThePackedNumber) {
    ToolRun run("all", "16KiB", true);
    const Record &record = *run.record;
    expect_balanced(record);
    expect_known(record);
    EXPECT_EQ(record.count("schema"), 0u);
    EXPECT_EQ(record.count("counter"), 0u);
    uint64_t n_reads = 0, n_demanded = 0;
    for (const Line &line : record.lines) {
        if (line.what != "start" || line.name != "extent.read") continue;
        n_reads++;
        EXPECT_FALSE(line.has_payload);
        EXPECT_EQ(line.packed >> 52, 3u) << "layer";
        EXPECT_LT(line.packed >> 40 & 0xfff, 4u) << "extent";
        n_demanded += (line.packed >> 36 & 0xf) == PLEC_DEMAND;
        EXPECT_EQ(line.packed >> 32 & 0xf, static_cast<uint64_t>(PLEC_OK));
        EXPECT_EQ(line.packed & 0xffffffff, 1u) << "MiB, rounded up";
    }
    EXPECT_GT(n_demanded, 0u); /* the others: the rest of an extent */
    EXPECT_GE(n_reads, n_demanded);
}

TEST_F(Nvtx, ANewToolIsShownTheSchemaToo) {
    ToolRun run("extents", "16KiB", false, "1");
    EXPECT_EQ(run.record->count("schema"), 1u);
    uint64_t read_bytes = 0;
    for (const Line &line : run.record->lines) {
        if (line.what != "start") continue;
        ASSERT_TRUE(line.has_payload && line.has_packed);
        EXPECT_EQ(line.payload.at("layer"), line.packed >> 52);
        EXPECT_EQ(line.payload.at("extent"), line.packed >> 40 & 0xfff);
        EXPECT_EQ(line.payload.at("prio"), line.packed >> 36 & 0xf);
        EXPECT_EQ(line.payload.at("first_expert"), line.payload.at("extent"));
        EXPECT_EQ(line.payload.at("tier"), line.name == "extent.read" ? 2u : 1u);
        if (line.name == "extent.read") read_bytes += line.payload.at("bytes");
    }
    EXPECT_EQ(read_bytes, run.stats["read_bytes"]);
}

/* --- a run of our own, with a slow disk ------------------------------------------------------ */

/* Runs layers under injection at a level; the stall in ns. */
uint64_t slow_run(const StreamModel &model, enum plec_nvtx_level level) {
    plec_tracer_options options = {};
    options.nvtx = level;
    plec_tracer *tracer = nullptr;
    EXPECT_EQ(plec_tracer_open(&tracer, &options, nullptr), PLEC_OK);
    plec_stream_options stream = {};
    stream.device_budget = UINT64_C(1) << 16;
    stream.extent_width = 2;
    stream.speculation = PLEC_SPECULATE_OFF;
    stream.disk_bytes_per_s = 2 * model.expert_bytes() * 50; /* 20 ms a read of two */
    uint64_t stall_ns = 0;
    {
        StreamRunner runner(model.path(), stream, 1, 64, 64, tracer);
        std::mt19937 random(3);
        for (int32_t expert = 0; expert < 10; expert += 2)
            runner.run(StreamStep::of(random, model.spec, 0, {expert, expert + 1}));
        stall_ns = runner.settled().stall_ns;
    }
    plec_tracer_close(tracer);
    return stall_ns;
}

TEST_F(Nvtx, WaitsAreTheStall) {
    StreamModel model;
    for (auto level : {PLEC_NVTX_LAYERS, PLEC_NVTX_EXTENTS, PLEC_NVTX_ALL}) {
        Injection injection(RECORDER);
        std::string said = run_in_child([&] { return std::to_string(slow_run(model, level)); });
        double stall_ns = std::stod(said);
        Record record(injection.path());
        expect_balanced(record);
        EXPECT_GT(stall_ns, 50e6);
        EXPECT_NEAR(static_cast<double>(record.span("extent.wait")), stall_ns, 0.01 * stall_ns);
    }
}

TEST_F(Nvtx, RangesOfAProgramThatFailsBalanceToo) {
    StreamModel model;
    Injection injection(RECORDER);
    run_in_child([&]() -> std::string {
        plec_tracer_options options = {};
        options.nvtx = PLEC_NVTX_ALL;
        plec_tracer *tracer = nullptr;
        EXPECT_EQ(plec_tracer_open(&tracer, &options, nullptr), PLEC_OK);
        plec_stream_options stream = {};
        stream.device_budget = UINT64_C(1) << 16;
        stream.io_fault.before = [](void *, uint32_t, uint64_t, uint64_t) { return EIO; };
        {
            StreamRunner runner(model.path(), stream, 1, 64, 64, tracer);
            std::mt19937 random(1);
            std::vector<float> out;
            plec_error error = {};
            if (runner.forward(StreamStep::of(random, model.spec, 0, {1}), &out, &error) != PLEC_IO)
                _exit(1);
        }
        plec_tracer_close(tracer);
        return "";
    });
    Record record(injection.path());
    expect_balanced(record);
    expect_known(record);
    lives_of(record).expect_ended();
    EXPECT_GT(record.count("mark", "extent.cancel"), 0u);
    EXPECT_EQ(record.count("mark", "extent.ready"), 0u);
}

/* --- the tests themselves -------------------------------------------------------------------- */

/* NVTX says nothing when it cannot load the library: a test that finds no record must fail. */
TEST_F(Nvtx, AWrongInjectionPathFailsTheTestThatUsesIt) {
    Injection injection("/nowhere/" + std::string("recorder.so"));
    ASSERT_EQ(run_tool({"run", data_path("run/run01_sigmoid_two_segments"), "--layer", "3",
                        "--random", "1", "--nvtx", "all"})
                  .exit_status,
              0);
    EXPECT_NONFATAL_FAILURE(Record(injection.path()), "no record");
}

TEST_F(Nvtx, AnEmptyRecordFailsTheTestThatUsesIt) {
    TempDir dir;
    write_file(dir.path("empty"), "", 0);
    EXPECT_NONFATAL_FAILURE(Record(dir.path("empty")), "no record");
}

TEST_F(Nvtx, AMissingPopAndAnUnknownCategoryAreSeen) {
    TempDir dir;
    std::string push = R"({"t":"push","at":1,"tid":1,"domain":"plectrum","registered":true,)"
                       R"("name":"moe.layer","category":1,"packed":"0"})"
                       "\n";
    write_file(dir.path("open"), push.data(), push.size());
    Record record(dir.path("open"));
    EXPECT_NONFATAL_FAILURE(expect_balanced(record), "ranges open on thread 1");
    testing::TestPartResultArray found;
    {
        testing::ScopedFakeTestPartResultReporter reporter(
            testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &found);
        expect_known(record);
    }
    EXPECT_GE(found.size(), 2); /* the category is not that of a layer, and none was named */
}

} // namespace
