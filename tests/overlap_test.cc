/* tools/overlap.sql on an export made here, with the schema that nsys writes and answers worked out
 * by hand. */
#include "tests/support/data.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <sstream>

#include <sys/wait.h>

using namespace plec_test;

namespace {

const char *const SCHEMA = R"(
CREATE TABLE StringIds (id INTEGER PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE NVTX_EVENTS (start INTEGER NOT NULL, "end" INTEGER, eventType INTEGER NOT NULL,
    rangeId INTEGER, category INTEGER, color INTEGER, text TEXT, globalTid INTEGER,
    endGlobalTid INTEGER, textId INTEGER, domainId INTEGER, uint64Value INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (start INTEGER NOT NULL, "end" INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
    correlationId INTEGER, globalPid INTEGER, bytes INTEGER NOT NULL, copyKind INTEGER NOT NULL,
    srcKind INTEGER, dstKind INTEGER);
CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL (start INTEGER NOT NULL, "end" INTEGER NOT NULL,
    deviceId INTEGER NOT NULL, contextId INTEGER NOT NULL, streamId INTEGER NOT NULL,
    correlationId INTEGER, globalPid INTEGER, demangledName INTEGER NOT NULL);
CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME (start INTEGER NOT NULL, "end" INTEGER NOT NULL,
    globalTid INTEGER, correlationId INTEGER, nameId INTEGER NOT NULL,
    returnValue INTEGER NOT NULL);
INSERT INTO StringIds VALUES (1, 'moe.layer'), (2, 'moe.route'), (3, 'cudaLaunchKernel');
)";

/* Process 42, threads 7 and 8; process 43. */
const long long PROCESS = 42LL << 24, THREAD = PROCESS + 7, OTHER_THREAD = PROCESS + 8,
                OTHER_PROCESS = 43LL << 24;

class Export {
  public:
    Export() : sql_(SCHEMA) {}
    void range(long long start, const std::string &end, int type, const std::string &text,
               long long thread = THREAD) {
        add("NVTX_EVENTS (start, \"end\", eventType, text, textId, globalTid)",
            {std::to_string(start), end, std::to_string(type), text, std::to_string(thread)});
    }
    void copy(long long start, long long end, long long bytes, int kind, int from, int device = 0) {
        add("CUPTI_ACTIVITY_KIND_MEMCPY (start, \"end\", deviceId, contextId, streamId, bytes, "
            "copyKind, srcKind)",
            {std::to_string(start), std::to_string(end), std::to_string(device), "1", "14",
             std::to_string(bytes), std::to_string(kind), std::to_string(from)});
    }
    void launch(long long start, int id, long long thread = THREAD) {
        add("CUPTI_ACTIVITY_KIND_RUNTIME", {std::to_string(start), std::to_string(start + 50),
                                            std::to_string(thread), std::to_string(id), "3", "0"});
    }
    void kernel(long long start, long long end, int id, int stream = 13, int device = 0,
                long long process = PROCESS) {
        add("CUPTI_ACTIVITY_KIND_KERNEL",
            {std::to_string(start), std::to_string(end), std::to_string(device), "1",
             std::to_string(stream), std::to_string(id), std::to_string(process), "9"});
    }
    /* What the script prints, a vector a line that is not empty, split at blanks. */
    std::vector<std::vector<std::string>> ask(const std::string &tokens) {
        std::string script = dir_.path("make.sql"), database = dir_.path("run.sqlite");
        write_file(script, sql_.data(), sql_.size());
        EXPECT_EQ(shell("sqlite3 '" + database + "' < '" + script + "'"), 0);
        std::string set = tokens.empty() ? "" : "-cmd '.parameter set @tokens " + tokens + "' ";
        EXPECT_EQ(shell("sqlite3 -readonly " + set + "'" + database +
                        "' < '" PLEC_SOURCE_DIR "/tools/overlap.sql' > '" + dir_.path("out") +
                        "' 2> '" + dir_.path("err") + "'"),
                  0);
        EXPECT_EQ(read_text(dir_.path("err")), "");
        std::vector<std::vector<std::string>> lines;
        std::istringstream out(read_text(dir_.path("out")));
        for (std::string line, word; std::getline(out, line);) {
            std::istringstream words(line);
            std::vector<std::string> row;
            while (words >> word)
                row.push_back(word);
            if (!row.empty() && row[0][0] != '-') lines.push_back(row);
        }
        return lines;
    }
    static bool can_run() { return shell("command -v sqlite3 >/dev/null") == 0; }

  private:
    static int shell(const std::string &line) {
        int status = system(line.c_str());
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    void add(const std::string &table, const std::vector<std::string> &values) {
        sql_ += "INSERT INTO " + table + " VALUES (";
        for (size_t i = 0; i < values.size(); i++)
            sql_ += (i > 0 ? ", " : "") + values[i];
        sql_ += ");\n";
    }
    std::string sql_;
    TempDir dir_;
};

/* The lines under the heading that begins with `number`, without its row of names. */
std::vector<std::vector<std::string>> section(const std::vector<std::vector<std::string>> &lines,
                                              const std::string &number) {
    std::vector<std::vector<std::string>> rows;
    bool inside = false;
    for (const auto &line : lines) {
        bool heading = line[0].size() == 2 && line[0][1] == '.';
        if (heading) inside = line[0] == number;
        if (inside && !heading) rows.push_back(line);
    }
    if (!rows.empty()) rows.erase(rows.begin());
    return rows;
}

using Rows = std::vector<std::vector<std::string>>;

class Overlap : public ::testing::Test {
  protected:
    void SetUp() override {
        if (!Export::can_run()) GTEST_SKIP() << "there is no sqlite3: sh tools/deps.sh installs it";
    }
};

TEST_F(Overlap, AnswersTheFiveQuestions) {
    Export e;
    /* Two layers, one by number and one by text; what looks like one and is none. */
    e.range(1000, "9000", 59, "NULL, 1");
    e.range(10000, "20000", 59, "'moe.layer', NULL");
    e.range(21000, "29000", 60, "NULL, 1");
    e.range(21000, "29000", 59, "NULL, 2");
    e.range(50000, "NULL", 59, "NULL, 1");
    /* Layer 1: 2 to 4 us, 4.5 to 6 and 5.5 to 9: a gap of 0.5 us. Layer 2: a gap of 2 us. */
    e.launch(1100, 1), e.kernel(2000, 4000, 1);
    e.launch(2000, 2), e.kernel(4500, 6000, 2);
    e.launch(3000, 3), e.kernel(5500, 9000, 3);
    e.launch(11000, 4), e.kernel(12000, 13000, 4);
    e.launch(12000, 5), e.kernel(15000, 16000, 5);
    /* Launched between layers; by another thread; in another process under an id of ours. */
    e.launch(9500, 6), e.kernel(20000, 21000, 6);
    e.launch(1200, 7, OTHER_THREAD), e.kernel(30000, 31500, 7);
    e.kernel(0, 500000, 1, 13, 1, OTHER_PROCESS);
    /* To the device: 1 to 3 us, 2.5 to 4.75, and 40 to 140 from pageable memory; and one back. */
    e.copy(1000, 3000, 8000, 1, 1);
    e.copy(2500, 4750, 45000, 1, 1);
    e.copy(40000, 140000, 4194304, 1, 0);
    e.copy(0, 200000, 999999, 2, 2);
    auto lines = e.ask("4");
    /* Copies cover 103.75 us; kernels 2 of [2, 4] and 0.25 of [4.5, 4.75]. */
    EXPECT_EQ(section(lines, "1."), (Rows{{"0", "0.104", "0.011", "0.002", "2.2"}}));
    EXPECT_EQ(section(lines, "2."), (Rows{{"from", "4", "MiB", "40", "1", "4194304", "98.8"},
                                          {"below", "256", "KiB", "0", "1", "8000", "0.2"},
                                          {"below", "256", "KiB", "20", "1", "45000", "1.1"}}));
    EXPECT_EQ(section(lines, "3."), (Rows{{"4194304", "4247304", "98.75"}}));
    EXPECT_EQ(section(lines, "4."), (Rows{{"0", "13", "2", "5", "0.011", "0.003", "22.7", "2.0"}}));
    EXPECT_EQ(section(lines, "5."), (Rows{{"3", "4247304", "2", "2123652.0", "1061826.0"}}));
}

TEST_F(Overlap, HiddenCopiesFromPinnedMemoryAreAHundredAndZero) {
    Export e;
    e.range(0, "1000000", 59, "NULL, 1");
    e.launch(10, 1), e.kernel(0, 1000000, 1);
    for (int i = 0; i < 10; i++)
        e.copy(100000 * i, 100000 * i + 50000, 1 << 20, 1, 1);
    auto lines = e.ask("");
    EXPECT_EQ(section(lines, "1."), (Rows{{"0", "0.5", "1.0", "0.5", "100.0"}}));
    EXPECT_EQ(section(lines, "2."),
              (Rows{{"256", "KiB", "to", "4", "MiB", "20", "10", "10485760", "100.0"}}));
    EXPECT_EQ(section(lines, "3."), (Rows{{"0", "10485760", "0.0"}}));
    EXPECT_EQ(section(lines, "4."), (Rows{{"0", "13", "1", "1", "1.0", "0.0", "0.0", "0.0"}}));
    /* Without @tokens nothing is told of tokens. */
    EXPECT_EQ(section(lines, "5."), (Rows{{"10", "10485760", "1", "10485760.0"}}));
}

TEST_F(Overlap, DevicesAreToldApart) {
    Export e;
    e.kernel(0, 1000000, 1, 13, 0);
    e.kernel(500000, 750000, 2, 13, 1);
    e.copy(0, 500000, 5000000, 1, 1, 0);
    e.copy(0, 1000000, 5000000, 1, 1, 1);
    auto lines = e.ask("");
    EXPECT_EQ(section(lines, "1."),
              (Rows{{"0", "0.5", "1.0", "0.5", "100.0"}, {"1", "1.0", "0.25", "0.25", "25.0"}}));
    EXPECT_TRUE(section(lines, "4.").empty());
}

} // namespace
