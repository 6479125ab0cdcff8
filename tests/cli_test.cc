// The frame of the command-line tool: usage, help, exit statuses.
#include "tests/support/data.h"
#include "tools/plectrum/cli.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>

using plec_test::run_tool;
using plec_test::ToolResult;

// The commands that the overview lists, so that a new one is tested without a line here.
static std::vector<std::string> listed_commands() {
    std::istringstream overview(run_tool({"--help"}).out);
    std::vector<std::string> names;
    bool inside = false;
    for (std::string line; std::getline(overview, line);) {
        if (line == "COMMANDS")
            inside = true;
        else if (line.empty())
            inside = false;
        else if (inside)
            names.push_back(line.substr(4, line.find(' ', 4) - 4));
    }
    return names;
}

TEST(Cli, OverviewListsTheCommands) {
    EXPECT_EQ(run_tool({"--help"}).exit_status, 0);
    std::vector<std::string> names = listed_commands();
    EXPECT_NE(std::find(names.begin(), names.end(), "version"), names.end());
}

TEST(Cli, EveryCommandHasAWholeHelpPage) {
    for (const std::string &name : listed_commands()) {
        ToolResult page = run_tool({name, "--help"});
        EXPECT_EQ(page.exit_status, 0) << name;
        EXPECT_EQ(page.err, "") << name;
        size_t at = 0;
        for (const char *section :
             {"NAME\n    plectrum ", "\nSYNOPSIS\n    plectrum ", "\nDESCRIPTION\n", "\nOPTIONS\n",
              "\nEXIT STATUS\n    0 ", "\nEXAMPLES\n    $ plectrum "}) {
            size_t found = page.out.find(section, at);
            ASSERT_NE(found, std::string::npos) << name << " lacks " << section;
            at = found;
        }
        std::string statuses = page.out.substr(page.out.find("\nEXIT STATUS\n"));
        size_t last = 0;
        for (const char *status : {"\n    0  ", "\n    2  ", "\n    4  "}) {
            size_t place = statuses.find(status);
            ASSERT_NE(place, std::string::npos) << name << statuses;
            EXPECT_GT(place, last) << name;
            last = place;
        }
        std::istringstream lines(page.out);
        for (std::string line; std::getline(lines, line);)
            EXPECT_LE(line.size(), 100u) << name << ": " << line;
        EXPECT_EQ(run_tool({"help", name}).out, page.out);
    }
}

TEST(Cli, EveryCommandRefusesAnUnknownOptionWithAHint) {
    for (const std::string &name : listed_commands()) {
        ToolResult result = run_tool({name, "--no-such-option"});
        EXPECT_EQ(result.exit_status, 2) << name;
        EXPECT_EQ(result.out, "") << name;
        EXPECT_NE(result.err.find("--no-such-option"), std::string::npos) << result.err;
        EXPECT_NE(result.err.find("--help"), std::string::npos) << result.err;
    }
}

TEST(Cli, NearMissesAreNamed) {
    EXPECT_NE(run_tool({"version", "--jsno"}).err.find("did you mean --json?"), std::string::npos);
}

TEST(Cli, BadUsageIsTwo) {
    EXPECT_EQ(run_tool({}).exit_status, 2);
    EXPECT_EQ(run_tool({"strum"}).exit_status, 2);
    EXPECT_EQ(run_tool({"help", "strum"}).exit_status, 2);
    EXPECT_EQ(run_tool({"version", "extra"}).exit_status, 2);
    EXPECT_EQ(run_tool({"version", "-j"}).exit_status, 2);
    EXPECT_EQ(run_tool({"version", "--json=yes"}).exit_status, 2);
}

TEST(Cli, VersionJsonHasEveryKeyInOrder) {
    ToolResult result = run_tool({"version", "--json"});
    ASSERT_EQ(result.exit_status, 0);
    size_t at = 0;
    for (const char *key : {"{\"version\"", "\"compiler\"", "\"jansson\"", "\"openssl\"",
                            "\"liburing\"", "\"hwloc\"", "\"nvtx\"", "\"cuda\"", "\"cuda_toolkit\"",
                            "\"machine\"", "\"processors\"", "\"features\""}) {
        size_t found = result.out.find(key, at);
        ASSERT_NE(found, std::string::npos) << key;
        at = found;
    }
}

// A command of the test's own, to see every kind of option.
namespace {
const plec_cli_command tune = {"tune", "x", "tune PATH", "x", nullptr, "$ x", 1, 2};
struct Options {
    bool flag = false, given = false;
    const char *text = "";
    uint32_t u32 = 0;
    uint64_t u64 = 0, size = 0;
    double real = 0;
};

int parse(Options *o, plec_cli *cli, std::vector<std::string> args) {
    static plec_cli_option options[6];
    options[0] = {"flag", PLEC_CLI_FLAG, &o->flag, nullptr, nullptr, "x"};
    options[1] = {"text", PLEC_CLI_TEXT, &o->text, &o->given, "T", "x"};
    options[2] = {"u32", PLEC_CLI_U32, &o->u32, nullptr, "N", "x"};
    options[3] = {"u64", PLEC_CLI_U64, &o->u64, nullptr, "N", "x"};
    options[4] = {"size", PLEC_CLI_SIZE, &o->size, nullptr, "S", "x"};
    options[5] = {"real", PLEC_CLI_REAL, &o->real, nullptr, "R", "x"};
    *cli = {};
    cli->command = &tune;
    cli->options = options;
    cli->n_options = 6;
    static std::vector<std::string> kept;
    kept = std::move(args);
    kept.insert(kept.begin(), "tune");
    std::vector<char *> argv;
    for (std::string &arg : kept)
        argv.push_back(arg.data());
    testing::internal::CaptureStderr();
    int leave = plec_cli_parse(cli, static_cast<int>(argv.size()), argv.data());
    testing::internal::GetCapturedStderr();
    return leave;
}
} // namespace

TEST(CliParse, OptionsStandAnywhereAndTakeEitherForm) {
    Options o;
    plec_cli cli;
    ASSERT_EQ(parse(&o, &cli,
                    {"--u32=7", "first", "--flag", "--text", "--flag", "second", "--size", "20GiB",
                     "--u64", "18446744073709551615", "--real=-1.5"}),
              PLEC_CLI_GO_ON);
    EXPECT_EQ(o.u32, 7u);
    EXPECT_TRUE(o.flag);
    EXPECT_STREQ(o.text, "--flag") << "a value may look like an option";
    EXPECT_TRUE(o.given);
    EXPECT_EQ(o.size, UINT64_C(20) << 30);
    EXPECT_EQ(o.u64, UINT64_MAX);
    EXPECT_EQ(o.real, -1.5);
    ASSERT_EQ(cli.n_operands, 2u);
    EXPECT_STREQ(cli.operands[0], "first");
    EXPECT_STREQ(cli.operands[1], "second");
}

TEST(CliParse, TwoDashesEndTheOptions) {
    Options o;
    plec_cli cli;
    ASSERT_EQ(parse(&o, &cli, {"--", "--flag"}), PLEC_CLI_GO_ON);
    EXPECT_FALSE(o.flag);
    EXPECT_STREQ(cli.operands[0], "--flag");
}

TEST(CliParse, RefusesValuesThatDoNotFit) {
    for (const std::vector<std::string> &args :
         std::vector<std::vector<std::string>>{{"p", "--u32", "4294967296"},
                                               {"p", "--u32", "-1"},
                                               {"p", "--u32", ""},
                                               {"p", "--u32", "7x"},
                                               {"p", "--u64", "18446744073709551616"},
                                               {"p", "--size", "20Gb"},
                                               {"p", "--size", "GiB"},
                                               {"p", "--size", "18446744073709551615KiB"},
                                               {"p", "--real", "nan"},
                                               {"p", "--real", "inf"},
                                               {"p", "--real", "1.5z"},
                                               {"p", "--text"},
                                               {"p", "--fla"},
                                               {"p", "-f"},
                                               {"a", "b", "c"},
                                               {}}) {
        Options o;
        plec_cli cli;
        EXPECT_EQ(parse(&o, &cli, args), 2) << (args.empty() ? "nothing" : args.back());
    }
}

TEST(CliStatus, ExitStatusTellsInputFromMachine) {
    EXPECT_EQ(plec_cli_exit_status(PLEC_OK), 0);
    for (plec_status status : {PLEC_MALFORMED, PLEC_UNSUPPORTED, PLEC_MISSING, PLEC_BAD_INPUT})
        EXPECT_EQ(plec_cli_exit_status(status), 3);
    for (plec_status status : {PLEC_NO_MEMORY, PLEC_IO, PLEC_NO_DEVICE})
        EXPECT_EQ(plec_cli_exit_status(status), 4);
}
