// tools/gpu_check.sh: with the emulated programs, and with stand-ins for them that fail, hang, find
// no GPU or are not there.
#include "tests/support/data.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

#include <sys/stat.h>
#include <sys/wait.h>

namespace {

using plec_test::read_text;

/* Runs the script; its folder of outputs is new. */
class Script {
  public:
    int run(const std::string &arguments) {
        std::string line = "PATH='" + dir_.path("programs") +
                           "':\"$PATH\" /bin/sh '" PLEC_SOURCE_DIR "/tools/gpu_check.sh' --out '" +
                           dir_.path("out") + "' " + arguments + " </dev/null >'" +
                           dir_.path("said") + "' 2>&1";
        int status = system(line.c_str());
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    std::string said() { return read_text(dir_.path("said")); }
    bool says(const std::string &words) { return said().find(words) != std::string::npos; }
    std::string log(const std::string &step) {
        return read_text(dir_.path("out/" + step + ".log"));
    }
    std::string table() { return read_text(dir_.path("out/table.txt")); }

  protected:
    plec_test::TempDir dir_;
};

/* The same with a folder of stand-ins that all succeed, until one is replaced. */
class StandIns : public Script {
  public:
    StandIns() {
        std::filesystem::create_directory(dir_.path("programs"));
        for (const char *name :
             {"gpu_contract", "cuda_run_gpu_test", "cuda_device_gpu_test", "cuda_arrival_gpu_test",
              "cuda_experts_gpu_test", "cuda_graph_gpu_test", "cuda_library_gpu_test",
              "cuda_runner_gpu_test", "cuda_plan_gpu_test", "cuda_route_gpu_test",
              "cuda_mm_fma_gpu_test", "cuda_mm_bulk_gpu_test", "cuda_mm_sync_gpu_test",
              "cuda_mm_wg_gpu_test", "cuda_mm_fma_slow_gpu_test", "cuda_mm_bulk_slow_gpu_test",
              "cuda_mm_sync_slow_gpu_test", "cuda_mm_wg_slow_gpu_test", "plectrum"})
            add(name, "exit 0");
        add("compute-sanitizer", "exit 0");
        add("python3", "echo no torch: it is not there\nexit 77");
        add("gpu_ceilings", "echo device Some GPU, sm_90\n[ \"$1\" = --probe ] && exit 0\n"
                            "echo gbs 3000.5\necho tflops 700.25");
        add("bench_matrix", "echo \"asked $*\"\n"
                            "echo model format kernel tokens experts us GB/s TFLOP/s floor\n"
                            "echo mixtral-8x7b bf16 mm_sync 8 7.3 812.5 2300.0 1.25 0.767\n"
                            "echo left out: kimi-k3 bf16: no time");
    }
    void add(const std::string &name, const std::string &body) {
        std::string path = dir_.path("programs/" + name), text = "#!/bin/sh\n" + body + "\n";
        plec_test::write_file(path, text.data(), text.size());
        chmod(path.c_str(), 0755);
    }
    void remove(const std::string &name) { std::filesystem::remove(dir_.path("programs/" + name)); }
    int run(const std::string &arguments = "") {
        return Script::run("--binaries '" + dir_.path("programs") + "' " + arguments);
    }
};

/* Whether a log of tests says that more than none passed. */
bool passed_some(const std::string &log) {
    const std::string words = "PASSED  ] ";
    size_t at = log.find(words);
    return at != std::string::npos && std::atoi(log.c_str() + at + words.size()) > 0;
}

std::string single_spaced(const std::string &text) {
    std::string out;
    for (char c : text)
        if (c != ' ' || out.empty() || out.back() != ' ') out += c;
    return out;
}

TEST(GpuCheck, HoldsWithTheEmulatedPrograms) {
    Script script;
    ASSERT_EQ(script.run("--emulated --binaries '" PLEC_BINARY_DIR "'"), 0) << script.said();
    for (const char *step : {"contract", "ceilings", "cuda_device", "cuda_arrival", "cuda_experts",
                             "cuda_graph", "cuda_library", "cuda_runner", "cuda_plan", "cuda_route",
                             "cuda_mm_fma", "cuda_mm_bulk", "cuda_mm_sync", "cuda_mm_wg",
                             "run_fixtures", "matrix", "peer_cublas_grouped", "peer_cublas_loop"})
        EXPECT_TRUE(script.says(std::string("ok       ") + step + ",")) << script.said();
    EXPECT_NE(script.log("contract").find("contract on sm_90: holds"), std::string::npos);
    for (const char *step :
         {"cuda_device", "cuda_arrival", "cuda_experts", "cuda_graph", "cuda_library",
          "cuda_runner", "cuda_plan", "cuda_route", "cuda_mm_fma", "cuda_mm_bulk", "cuda_mm_sync",
          "cuda_mm_wg", "run_fixtures"})
        EXPECT_TRUE(passed_some(script.log(step))) << step;
    EXPECT_TRUE(script.says("emulated")) << script.said();
    EXPECT_TRUE(script.says("no cuBLAS"));
    /* the stand-in of cuBLAS beside mxfp4; of torch, what this machine has */
    std::string table = single_spaced(script.table());
    size_t row = table.find("llama-4-scout mxfp4 ");
    ASSERT_NE(row, std::string::npos) << table;
    std::istringstream words(table.substr(row));
    std::string word;
    for (int i = 0; i < 9; i++) {
        words >> word;
        EXPECT_TRUE(i < 7 || std::atof(word.c_str()) > 0) << table;
    }
}

/* Lines of a run of the emulated matrix; its exit status is 0. */
std::vector<std::string> matrix(std::vector<std::string> args) {
    args.insert(args.begin(),
                {"--device", "cuda", "--gbs", "1", "--batch", "0.001", "--memory-mib", "16"});
    plec_test::ToolResult result =
        plec_test::run_program(PLEC_BINARY_DIR "/tools/bench_matrix_emu", args);
    EXPECT_EQ(result.exit_status, 0) << result.out << result.err;
    std::vector<std::string> lines;
    std::istringstream text(result.out);
    for (std::string line; std::getline(text, line);)
        lines.push_back(single_spaced(line));
    return lines;
}

/* The words of the first row: below the device and the names of columns. */
std::vector<std::string> words_of_row(const std::vector<std::string> &lines) {
    std::istringstream row(lines.size() > 2 ? lines[2] : "");
    std::vector<std::string> words;
    for (std::string word; row >> word;)
        words.push_back(word);
    words.resize(std::max<size_t>(words.size(), 10));
    return words;
}

TEST(BenchMatrix, TimesReplaysOfAGraphOrSaysThatItTimesLaunches) {
    std::vector<std::string> args = {"--models", "llama-4-scout", "--formats", "mxfp4", "--tokens",
                                     "1",        "--shrink",      "100"};
    std::vector<std::string> row = words_of_row(matrix(args));
    EXPECT_NE(row[2].find("mm_"), std::string::npos);
    EXPECT_EQ(row[9], "graph");
    args.insert(args.end(), {"--graphs", "off"});
    EXPECT_EQ(words_of_row(matrix(args))[9], "launches");
    args.back() = "on"; /* what a library multiplies cannot be captured */
    args.insert(args.end(), {"--rung", "cublas_grouped", "--cublas",
                             PLEC_BINARY_DIR "/tests/libcublas_standin.so"});
    row = words_of_row(matrix(args));
    EXPECT_EQ(row[2], "cublas_grouped");
    EXPECT_EQ(row[9], "launches");
}

/* Layers that take turns had one bank in common: 42 x 32 experts, where 1024 are the most. */
TEST(BenchMatrix, TakesTurnsThroughMoreExpertsThanABankMayHave) {
    std::vector<std::string> lines = matrix(
        {"--models", "qwen3-30b-a3b", "--formats", "mxfp4", "--tokens", "1", "--shrink", "3"});
    std::vector<std::string> row = words_of_row(lines);
    EXPECT_EQ(row[0], "qwen3-30b-a3b");
    EXPECT_GT(std::atof(row[5].c_str()), 0);
}

TEST(BenchMatrix, SaysWhatItsModelsAre) {
    plec_test::ToolResult result = plec_test::run_program(PLEC_BINARY_DIR "/tools/bench_matrix_emu",
                                                          {"--shapes", "--models", "mixtral-8x7b"});
    EXPECT_EQ(result.out, "mixtral-8x7b 4096 14336 8 2\n");
}

/* us, GB/s and share of the floor of each row, and nothing behind them. */
TEST(GpuCheck, EndsInATableOfWhatWasMeasured) {
    StandIns script;
    ASSERT_EQ(script.run(), 0) << script.said();
    std::string table = script.table(), said = script.said();
    EXPECT_NE(table.find("all steps held"), std::string::npos) << table;
    EXPECT_NE(table.find("memory 3000.5 GB/s, bf16 700.25 TFLOP/s"), std::string::npos) << table;
    const char *row = "mixtral-8x7b bf16 mm_sync 8 812.5 2300.0 0.767 - - absent\n";
    EXPECT_NE(single_spaced(table).find(row), std::string::npos) << table;
    ASSERT_GE(said.size(), table.size());
    EXPECT_EQ(said.substr(said.size() - table.size()), table);
    EXPECT_TRUE(script.says("left out: kimi-k3 bf16: no time"));
}

TEST(GpuCheck, GivesTheMatrixTheCeilingsAndTheTimeLeft) {
    StandIns script;
    ASSERT_EQ(script.run("--seconds 300"), 0) << script.said();
    const std::string given = "--device cuda --gbs 3000.5 --tflops 700.25 --limit ";
    std::string log = script.log("matrix");
    size_t at = log.find(given);
    ASSERT_NE(at, std::string::npos) << log;
    int limit = std::atoi(log.c_str() + at + given.size());
    EXPECT_LE(limit, 290);
    EXPECT_GT(limit, 200);
}

TEST(GpuCheck, FailsWithAnyStepAndRunsTheRest) {
    for (const char *name : {"gpu_contract", "cuda_plan_gpu_test", "cuda_run_gpu_test",
                             "cuda_mm_sync_slow_gpu_test", "compute-sanitizer"}) {
        StandIns script;
        script.add(name, "echo it is broken\nexit 1");
        EXPECT_EQ(script.run(), 1) << name << ": " << script.said();
        EXPECT_TRUE(script.says("FAILED ")) << name;
        EXPECT_TRUE(script.says("it is broken")) << name;
        EXPECT_NE(script.table().find("FAILED, see above"), std::string::npos) << name;
        EXPECT_NE(script.table().find("mixtral-8x7b"), std::string::npos) << name;
    }
}

TEST(GpuCheck, FailsWhenTheMatrixFindsAWrongOutput) {
    StandIns script;
    script.add("bench_matrix", "echo mixtral-8x7b bf16 mm_sync 8 7.3 812.5 2300.0 1.25 0.767 WRONG "
                               "OUTPUT\nexit 1");
    EXPECT_EQ(script.run(), 1);
    EXPECT_NE(script.table().find("absent  WRONG OUTPUT"), std::string::npos) << script.table();
}

/* Rows in which each kernel and peer has a time of its own. */
const char *const matrix_of_peers =
    "kernel=mm_sync us=812.5\n"
    "case \"$*\" in *cublas_loop*) kernel=cublas_loop us=2000.5 ;;\n"
    "*cublas_grouped*) kernel=cublas_grouped us=1000.5 ;; esac\n"
    "echo mixtral-8x7b bf16 $kernel 8 7.3 $us 2300.0 1.25 0.767 graph";

TEST(GpuCheck, PutsPeersBesideOurRows) {
    StandIns script;
    script.add("bench_matrix", matrix_of_peers);
    script.add("python3", "echo torch 2 on cuda\n"
                          "echo mixtral-8x7b bf16 torch_grouped_mm 8 7.3 900.5 2.0 1.2 0.5 graph");
    ASSERT_EQ(script.run(), 0) << script.said();
    std::string table = single_spaced(script.table());
    EXPECT_NE(table.find("us GB/s floor cublas_grouped cublas_loop torch_grouped_mm\n"),
              std::string::npos)
        << table;
    EXPECT_NE(table.find("mixtral-8x7b bf16 mm_sync 8 812.5 2300.0 0.767 1000.5 2000.5 900.5\n"),
              std::string::npos)
        << table;
    EXPECT_EQ(table.find("absent"), std::string::npos) << table;
    EXPECT_EQ(table.find("cublas_loop 8"), std::string::npos) << table; /* no rows of their own */
}

TEST(GpuCheck, NamesPeersThatAreAbsent) {
    StandIns script;
    script.add("gpu_ceilings", "echo device Some GPU, sm_90\n[ \"$1\" = --probe ] && exit 0\n"
                               "echo gbs 3000.5\necho no cuBLAS: libcublas.so.13: not found");
    ASSERT_EQ(script.run(), 0) << script.said();
    for (const char *words : {"absent   cublas_grouped: libcublas.so.13: not found",
                              "absent   cublas_loop: libcublas.so.13: not found",
                              "absent   torch_grouped_mm: no torch: it is not there"})
        EXPECT_TRUE(script.says(words)) << script.said();
    std::string table = single_spaced(script.table());
    EXPECT_NE(table.find("absent: cublas_grouped cublas_loop torch_grouped_mm\n"),
              std::string::npos)
        << table;
    EXPECT_NE(table.find("0.767 absent absent absent\n"), std::string::npos) << table;
}

TEST(GpuCheck, FailsWhenAPeerFindsAWrongOutput) {
    StandIns script;
    script.add("bench_matrix", matrix_of_peers);
    script.add("python3", "echo mixtral-8x7b bf16 torch_grouped_mm 8 7.3 900.5 2.0 1.2 0.5 graph "
                          "WRONG OUTPUT\nexit 1");
    EXPECT_EQ(script.run(), 1);
    EXPECT_TRUE(script.says("FAILED   peer_torch_grouped_mm: exit status 1")) << script.said();
    EXPECT_NE(script.table().find("900.5!"), std::string::npos) << script.table();
}

TEST(GpuCheck, FailsWhenNothingWasMeasured) {
    StandIns script;
    script.add("bench_matrix", "exit 0");
    EXPECT_EQ(script.run(), 1);
    EXPECT_TRUE(script.says("nothing was measured")) << script.said();
}

TEST(GpuCheck, FailsWhenAProgramIsMissing) {
    StandIns script;
    script.remove("cuda_route_gpu_test");
    EXPECT_EQ(script.run(), 1);
    EXPECT_TRUE(script.says("FAILED   cuda_route:")) << script.said();
}

TEST(GpuCheck, EndsAStepThatTakesLongerThanItsBudget) {
    StandIns script;
    script.add("cuda_device_gpu_test", "exec sleep 100");
    EXPECT_EQ(script.run("--seconds 27"), 1);
    EXPECT_TRUE(script.says("FAILED   cuda_device: not done in its 3 s")) << script.said();
    EXPECT_TRUE(script.says("ok       cuda_experts,")) << script.said();
    EXPECT_NE(script.table().find("mixtral-8x7b"), std::string::npos) << script.said();
}

TEST(GpuCheck, SaysThatThereIsNoGpuAndExits77) {
    StandIns script;
    script.add("gpu_ceilings", "echo skipped: no GPU: no driver\nexit 77");
    EXPECT_EQ(script.run(), 77);
    EXPECT_EQ(script.said(), "gpu_check: skipped: no GPU: no driver\n");
}

TEST(GpuCheck, RefusesWhatItDoesNotKnow) {
    Script script;
    EXPECT_EQ(script.run("--fast"), 2);
    EXPECT_EQ(script.run("--seconds soon"), 2);
    EXPECT_EQ(script.run("--binaries"), 2);
    EXPECT_TRUE(script.says("Usage: gpu_check.sh")) << script.said();
}

} // namespace
