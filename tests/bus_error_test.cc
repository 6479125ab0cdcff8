#include "tools/plectrum/bus_error.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

#include "lyrw/mapping.h"
#include "tools/plectrum/cli.h"

namespace {

volatile uint8_t seen;

/* Maps a file of three pages, cuts it to one, and reads byte `at`. */
void read_of_cut_file(const std::string &path, size_t at) {
    std::ofstream(path) << std::string(3 * 4096, 'x');
    struct plec_mapping mapping;
    if (plec_mapping_open(&mapping, path.c_str(), nullptr) != PLEC_OK) std::_Exit(99);
    if (truncate(path.c_str(), 4096) != 0) std::_Exit(98);
    plec_catch_bus_errors();
    seen = mapping.data[at];
    std::_Exit(0);
}

class BusErrorDeathTest : public testing::Test {
  protected:
    const std::string path = testing::TempDir() + "plec_bus_error_" + std::to_string(getpid());
    void TearDown() override { unlink(path.c_str()); }
};

TEST_F(BusErrorDeathTest, FileCutWhileMappedIsNamedWithItsByte) {
    EXPECT_EXIT(read_of_cut_file(path, 9000), testing::ExitedWithCode(PLEC_EXIT_MACHINE),
                "FileCutShort: .*plec_bus_error_.*: byte 9000 could not be read");
}

TEST_F(BusErrorDeathTest, WhatIsLeftOfACutFileIsRead) {
    EXPECT_EXIT(read_of_cut_file(path, 100), testing::ExitedWithCode(0), "^$");
}

TEST_F(BusErrorDeathTest, BusErrorOutsideAnyFileKeepsItsDefaultEnd) {
    EXPECT_EXIT(
        {
            plec_catch_bus_errors();
            raise(SIGBUS);
            raise(SIGBUS);
        },
        testing::KilledBySignal(SIGBUS), "^$");
}

} // namespace
