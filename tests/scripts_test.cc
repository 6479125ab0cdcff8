// tools/deps.sh among stand-ins for the package manager: what it asks for, and of whom.
#include "tests/support/data.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

#include <sys/stat.h>
#include <sys/wait.h>

namespace {

// A folder of commands that is the whole PATH of a run of deps.sh.
class Machine {
  public:
    Machine() {
        for (const char *tool : {"sh", "cut", "awk", "cat", "env", "echo"})
            add(tool, std::string("exec /usr/bin/env PATH=/usr/bin:/bin ") + tool + " \"$@\"");
        add("env", "exec /usr/bin/env \"$@\"");
        add("dpkg-query", "exit 1");
    }
    void add(const std::string &name, const std::string &body) {
        std::string path = dir_.path(name), text = "#!/bin/sh\n" + body + "\n";
        plec_test::write_file(path, text.data(), text.size());
        chmod(path.c_str(), 0755);
    }
    // Everything a build needs, found without dpkg.
    void add_build_tools() {
        for (const char *tool : {"cc", "c++", "make", "pkg-config", "sqlite3"})
            add(tool, "exit 0");
        add("cmake", "echo cmake version 3.25.1");
    }
    void add_package_manager(const std::string &user) {
        add("id", "echo " + user);
        add("apt-get", "echo \"$DEBIAN_FRONTEND $*\" >> " + dir_.path("log"));
    }
    int run(const std::string &arguments = "") {
        std::string line = "PATH='" + dir_.path() +
                           "' /bin/sh '" PLEC_SOURCE_DIR "/tools/deps.sh' " + arguments +
                           " </dev/null >" + dir_.path("said") + " 2>&1";
        int status = system(line.c_str());
        return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    std::string said() { return plec_test::read_text(dir_.path("said")); }
    std::string log() { return plec_test::read_text(dir_.path("log")); }

  private:
    plec_test::TempDir dir_;
};

// tools/check_layers.sh on a tree of one kernel file.
class Tree {
  public:
    Tree() {
        for (const char *folder :
             {"lyrw", "manifests", "device/cuda", "host", "tools", "tests/emu/contract"})
            std::filesystem::create_directories(dir_.path(folder));
        write("device/cuda/ptx.cuh", "asm volatile(\"nop;\");\n");
        write("device/cuda/launch.cuh",
              "#define X(n) extern __shared__ char n[]\n/* `<<<>>>` */\n");
    }
    void write(const std::string &name, const std::string &text) {
        plec_test::write_file(dir_.path(name), text.data(), text.size());
    }
    // What the script says; nothing when it finds nothing.
    std::string faults() {
        std::string line = "sh '" PLEC_SOURCE_DIR "/tools/check_layers.sh' '" + dir_.path() +
                           "' >'" + dir_.path("said") + "' 2>&1";
        int status = system(line.c_str());
        std::string said = plec_test::read_text(dir_.path("said"));
        EXPECT_EQ(WEXITSTATUS(status) == 0, said == "layers: all includes flow one way\n") << said;
        return WEXITSTATUS(status) == 0 ? "" : said;
    }

  private:
    plec_test::TempDir dir_;
};

TEST(CheckLayers, KeepsKernelsToTheTwoHeadersThatDiffer) {
    const std::pair<const char *, const char *> planted[] = {
        {"kernel<<<1, 32>>>(x);\n", "__shared__ in launch.cuh"},
        {"__shared__ float sums[32];\n", "__shared__ in launch.cuh"},
        {"    asm volatile(\"bar.sync 0;\");\n", "PTX stands in device/cuda/ptx*.cuh"},
        {"    __asm__ volatile(\"bar.sync 0;\");\n", "PTX stands in device/cuda/ptx*.cuh"},
        {"    __asm(\"bar.sync 0;\");\n", "PTX stands in device/cuda/ptx*.cuh"},
        {"#include \"host/runner.h\"\n", "device may include only from"}};
    for (const auto &[text, said] : planted) {
        Tree tree;
        EXPECT_EQ(tree.faults(), "");
        tree.write("device/cuda/kernel.cu", text);
        EXPECT_NE(tree.faults().find(said), std::string::npos) << text;
        EXPECT_NE(tree.faults().find("device/cuda/kernel.cu:1:"), std::string::npos) << text;
    }
}

} // namespace

TEST(DepsScript, SaysNothingWhenNothingIsMissing) {
    Machine machine;
    machine.add_build_tools();
    EXPECT_EQ(machine.run(), 0);
    EXPECT_EQ(machine.said(), "");
}

TEST(DepsScript, WithoutRootOrSudoPrintsTheOneLineAndFails) {
    Machine machine;
    machine.add_build_tools();
    machine.add("cmake", "echo cmake version 3.24.9");
    machine.add("pkg-config", "[ \"$2\" != gtest ]");
    machine.add_package_manager("1000");
    EXPECT_EQ(machine.run(), 1);
    EXPECT_NE(machine.said().find("apt-get update && apt-get install -y --no-install-recommends "
                                  "cmake libgtest-dev\n"),
              std::string::npos)
        << machine.said();
}

TEST(DepsScript, AsRootInstallsOnlyWhatIsMissing) {
    Machine machine;
    machine.add_build_tools();
    machine.add("c++", "exit 0");
    machine.add("pkg-config", "[ \"$2\" != libcrypto ]");
    machine.add_package_manager("0");
    EXPECT_EQ(machine.run(), 0) << machine.said();
    EXPECT_EQ(machine.log(), "noninteractive update -qq\n"
                             "noninteractive install -y --no-install-recommends libssl-dev -qq -o "
                             "Dpkg::Use-Pty=0\n");
}

TEST(DepsScript, UsesSudoWhereItAsksNoPassword) {
    Machine machine;
    machine.add_build_tools();
    machine.add("pkg-config", "[ \"$2\" != gtest ]");
    machine.add_package_manager("1000");
    machine.add("sudo", "[ \"$1\" = -n ] && exit 0\nexec \"$@\"");
    EXPECT_EQ(machine.run(), 0) << machine.said();
    EXPECT_NE(machine.log().find("noninteractive install"), std::string::npos);
}

TEST(DepsScript, AFailedInstallationFailsAndTellsTheLine) {
    Machine machine;
    machine.add_build_tools();
    machine.add("pkg-config", "[ \"$2\" != gtest ]");
    machine.add_package_manager("0");
    machine.add("apt-get", "exit 100");
    EXPECT_EQ(machine.run(), 1);
    EXPECT_NE(machine.said().find("libgtest-dev"), std::string::npos) << machine.said();
}

TEST(DepsScript, TheCiListAddsTheFuzzersCompiler) {
    Machine machine;
    machine.add_build_tools();
    machine.add_package_manager("1000");
    EXPECT_EQ(machine.run("--ci"), 1);
    EXPECT_NE(machine.said().find("clang libclang-rt-dev clang-format ninja-build"),
              std::string::npos)
        << machine.said();
}
