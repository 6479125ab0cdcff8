/* `run --trace` and `--nvtx` as users see them; what signals do to a run that is traced. */
#include "host/nvtx.h"
#include "tests/support/data.h"
#include "tests/support/json.h"
#include "tests/support/stream_model.h"
#include "tests/support/trace_json.h"

#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace plec_test;

namespace {

std::string case_path() {
    return data_path("run/run01_sigmoid_two_segments");
}

std::vector<std::string> run_args(const std::vector<std::string> &more) {
    std::vector<std::string> args = {"run",    case_path(), "--layer",  "3",
                                     "--step", "1",         "--device", "cpu"};
    args.insert(args.end(), more.begin(), more.end());
    return args;
}

TEST(TracingCommand, TheFileAgreesWithTheJsonOfTheRun) {
    TempDir dir;
    std::string path = dir.path("trace.json");
    /* Extents of one expert, and no guesses: nothing is under way when the run has ended. */
    ToolResult result = run_tool(run_args({"--random", "50", "--device-budget", "16KiB", "--extent",
                                           "1", "--speculate", "off", "--trace", path, "--json"}));
    ASSERT_EQ(result.exit_status, 0) << result.err;
    EXPECT_NE(result.err.find("events in " + path), std::string::npos) << result.err;
    Json said(result.out.c_str());
    json_t *stream = json_object_get(said.get(), "stream");
    auto count = [&](const char *name) {
        return static_cast<uint64_t>(json_integer_value(json_object_get(stream, name)));
    };
    TraceFile file(path);
    EXPECT_EQ(file.slice_ns["extent.wait"], count("stall_ns"));
    EXPECT_EQ(file.n_slices["extent.wait"], count("waits"));
    EXPECT_EQ(file.sums["extent.read.bytes"], count("read_bytes"));
    EXPECT_EQ(file.sums["extent.h2d.bytes"], count("copied_bytes"));
    EXPECT_EQ(file.sums["extent.use.device_bytes"], count("device_hit_bytes"));
    EXPECT_EQ(file.sums["extent.use.host_bytes"], count("host_hit_bytes"));
    EXPECT_EQ(file.sums["extent.use.disk_bytes"], count("disk_miss_bytes"));
    EXPECT_GT(count("read_bytes"), 0u);
    EXPECT_EQ(file.n_slices["moe.layer"], 50u);
    EXPECT_EQ(file.n_slices["request"], 1u);
    EXPECT_EQ(file.n_slices["steady"], 1u);
    EXPECT_EQ(file.n_truncated, 0u);
    EXPECT_STREQ(json_string_value(json_object_get(file.other(), "model")), case_path().c_str());
    EXPECT_NE(json_object_get(file.other(), "device"), nullptr);
}

TEST(TracingCommand, ThePictureAgreesWithTheJsonOfTheRun) {
    TempDir dir;
    std::string path = dir.path("run.svg");
    ToolResult result = run_tool(run_args({"--random", "9", "--device-budget", "16KiB", "--extent",
                                           "4", "--speculate", "off", "--plot", path, "--json"}));
    ASSERT_EQ(result.exit_status, 0) << result.err;
    EXPECT_NE(result.err.find("picture: " + path), std::string::npos) << result.err;
    Json said(result.out.c_str());
    json_t *stream = json_object_get(said.get(), "stream");
    auto count = [&](const char *name) {
        return std::to_string(json_integer_value(json_object_get(stream, name)));
    };
    std::string svg = read_text(path);
    EXPECT_NE(
        svg.find(" " + count("experts") + " experts, " + count("device_hits") + " from slots ("),
        std::string::npos)
        << svg;
    EXPECT_NE(svg.find(" " + count("host_hits") + " from frames, " + count("disk_misses") +
                       " from files; "),
              std::string::npos);
    for (const char *part : {"the whole run", ">layers<", ">disk reads<", ">wait for experts<"})
        EXPECT_NE(svg.find(part), std::string::npos) << part;
}

TEST(TracingCommand, WithoutStreamingThereAreLayersAlone) {
    TempDir dir;
    std::string path = dir.path("trace.json");
    for (const char *device : {"cpu", "reference"}) {
        ASSERT_EQ(
            run_tool(run_args({"--random", "3", "--device", device, "--trace", path, "--check"}))
                .exit_status,
            0);
        TraceFile file(path);
        EXPECT_EQ(file.n_slices["moe.layer"], 3u); /* not those of the check */
        EXPECT_EQ(file.n_slices["moe.route"], 3u);
        EXPECT_EQ(file.n_slices["extent.read"], 0u);
    }
}

TEST(TracingCommand, ARunThatFailsLeavesItsTrace) {
    TempDir dir;
    std::string path = dir.path("trace.json");
    ToolResult result =
        run_tool({"run", case_path(), "--layer", "99", "--random", "1", "--trace", path});
    EXPECT_EQ(result.exit_status, 3);
    TraceFile file(path);
    EXPECT_TRUE(file.n_slices.empty());
}

TEST(TracingCommand, WrongWordsAndPathsAreTold) {
    TempDir dir;
    EXPECT_EQ(run_tool(run_args({"--random", "1", "--nvtx", "some"})).exit_status, 2);
    EXPECT_EQ(run_tool(run_args({"--random", "1", "--trace", ""})).exit_status, 2);
    ToolResult result = run_tool(run_args({"--random", "1", "--trace", dir.path("no/t.json")}));
    EXPECT_EQ(result.exit_status, 4);
    EXPECT_NE(result.err.find("CannotCreate"), std::string::npos) << result.err;
    EXPECT_EQ(result.out, "");
    for (const char *level : {"off", "layers", "extents", "all"})
        EXPECT_EQ(run_tool(run_args({"--random", "1", "--nvtx", level})).exit_status, 0) << level;
}

TEST(TracingCommand, ADiskThatFillsUpIsNoSuccessAndLeavesNothing) {
    TempDir dir;
    rlimit before, small;
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = 1024;
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    ToolResult result = run_tool(run_args({"--random", "9", "--trace", dir.path("t.json")}));
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_EQ(result.exit_status, 4);
    EXPECT_NE(result.err.find("WriteFailed"), std::string::npos) << result.err;
    EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(TracingCommand, VersionTellsWhatAProfilerIsShown) {
    ToolResult result = run_tool({"version"});
    const char *built = plec_nvtx_built();
    EXPECT_NE(
        result.out.find(std::string("NVTX        ") + (built != nullptr ? built : "not found")),
        std::string::npos)
        << result.out;
}

/* --- signals --------------------------------------------------------------------------------- */

/* A run that would take minutes. */
class LongRun {
  public:
    explicit LongRun(const std::string &trace, int ignored = 0) {
        std::vector<std::string> args =
            run_args({"--random", "100000", "--device-budget", "16KiB", "--extent", "4"});
        if (!trace.empty()) args.insert(args.end(), {"--trace", trace});
        std::string program = tool_path();
        std::vector<char *> argv = {program.data()};
        for (std::string &arg : args)
            argv.push_back(arg.data());
        argv.push_back(nullptr);
        pid_ = fork();
        if (pid_ != 0) return;
        int null = open("/dev/null", O_RDWR);
        int err = open(dir_.path("err").c_str(), O_WRONLY | O_CREAT, 0600);
        for (int fd : {0, 1})
            dup2(null, fd);
        dup2(err, 2);
        if (ignored != 0) signal(ignored, SIG_IGN);
        execv(program.c_str(), argv.data());
        _exit(127);
    }
    ~LongRun() {
        if (pid_ > 0) kill(pid_, SIGKILL), wait();
    }
    void send(int number) { ASSERT_EQ(kill(pid_, number), 0); }
    /* Until it has said something; false after 20 s. */
    bool said(const std::string &what) {
        for (int i = 0; i < 2000; i++, usleep(10000))
            if (std::filesystem::exists(dir_.path("err")) &&
                read_text(dir_.path("err")).find(what) != std::string::npos)
                return true;
        return false;
    }
    bool goes_on() const { return waitpid(pid_, nullptr, WNOHANG) == 0; }
    int wait() {
        int status = 0;
        waitpid(pid_, &status, 0);
        pid_ = 0;
        return status;
    }

  private:
    TempDir dir_;
    pid_t pid_ = 0;
};

/* Has the trace of a run written as it is now. */
void write_now(LongRun *run, const std::string &path, int number = SIGUSR2) {
    std::filesystem::remove(path);
    run->send(number);
    for (int wait = 0; wait < 2000 && !std::filesystem::exists(path); wait++)
        usleep(10000);
}

/* Until the run has run layers. */
void wait_for_layers(LongRun *run, const std::string &path) {
    ASSERT_TRUE(run->said("device:"));
    for (int i = 0; i < 200; i++, usleep(20000)) {
        write_now(run, path);
        TraceFile file(path);
        if (file.n_slices["extent.read"] > 0) return;
    }
    FAIL() << "no layer was run";
}

TEST(TracingCommand, Sigusr2WritesWhileTheRunGoesOn) {
    TempDir dir;
    std::string path = dir.path("trace.json");
    LongRun run(path);
    ASSERT_NO_FATAL_FAILURE(wait_for_layers(&run, path));
    uint64_t before = 0;
    for (int i = 0; i < 2; i++) {
        usleep(50000);
        write_now(&run, path);
        TraceFile file(path);
        EXPECT_GT(file.n_slices["moe.layer"] + static_cast<uint64_t>(json_integer_value(
                                                   json_object_get(file.other(), "lost"))),
                  before);
        before = file.n_slices["moe.layer"];
        EXPECT_GT(file.n_slices["extent.read"], 0u);
        EXPECT_GT(file.n_truncated, 0u) << "the request goes on";
    }
}

TEST(TracingCommand, SigintAndSigtermLeaveAWholeFileAndTakeTheirCourse) {
    for (int number : {SIGINT, SIGTERM}) {
        TempDir dir;
        std::string path = dir.path("trace.json");
        LongRun run(path);
        ASSERT_NO_FATAL_FAILURE(wait_for_layers(&run, path));
        std::filesystem::remove(path);
        run.send(number);
        int status = run.wait();
        EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == number) << status;
        TraceFile file(path);
        EXPECT_GT(file.n_slices["moe.layer"], 0u);
        EXPECT_GT(file.n_truncated, 0u);
    }
}

/* A shell has what it runs in the background ignore SIGINT: the next ^C is not for it. */
TEST(TracingCommand, AnIgnoredSignalWritesTheFileAndTheRunGoesOn) {
    for (int number : {SIGINT, SIGTERM}) {
        TempDir dir;
        std::string path = dir.path("trace.json");
        LongRun run(path, number);
        ASSERT_NO_FATAL_FAILURE(wait_for_layers(&run, path));
        for (int next : {number, SIGUSR2, number}) {
            write_now(&run, path, next);
            ASSERT_TRUE(run.goes_on());
            EXPECT_GT(TraceFile(path).n_slices["moe.layer"], 0u);
        }
        usleep(20000);
        EXPECT_TRUE(run.goes_on());
    }
}

TEST(TracingCommand, WithoutATraceSignalsDoWhatTheyAlwaysDid) {
    LongRun run("");
    ASSERT_TRUE(run.said("device:"));
    run.send(SIGUSR2);
    int status = run.wait();
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGUSR2);
}

} // namespace
