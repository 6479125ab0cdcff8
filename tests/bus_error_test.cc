#include "tools/plectrum/bus_error.h"

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <unistd.h>

#include "device/device.h"
#include "host/io.h"
#include "host/thread.h"
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

struct reading {
    std::string path;
    size_t at;
};

plec_status read_on_this_thread(void *user, plec_error *) {
    const auto *reading = static_cast<struct reading *>(user);
    read_of_cut_file(reading->path, reading->at);
    return PLEC_OK;
}

/* Experts used where their file is mapped are read on the threads of a backend's streams. */
void read_on_a_stream(const std::string &path, size_t at) {
    struct reading reading = {path, at};
    struct plec_device *device = nullptr;
    struct plec_stream *stream = nullptr;
    if (plec_device_open(&device, PLEC_DEVICE_CPU, nullptr, nullptr) != PLEC_OK) std::_Exit(97);
    if (plec_stream_open(&stream, device, nullptr) != PLEC_OK) std::_Exit(97);
    if (plec_stream_call(stream, read_on_this_thread, &reading, nullptr) != PLEC_OK) std::_Exit(97);
    std::_Exit(plec_stream_sync(stream, nullptr) == PLEC_OK ? 96 : 97);
}

void *read_on_a_thread(void *user) {
    (void)read_on_this_thread(user, nullptr);
    return nullptr;
}

void read_on_a_thread_of_the_library(const std::string &path, size_t at) {
    struct reading reading = {path, at};
    pthread_t thread;
    if (plec_thread_start(&thread, read_on_a_thread, &reading, "a thread", nullptr) != PLEC_OK)
        std::_Exit(97);
    pthread_join(thread, nullptr);
    std::_Exit(96);
}

int read_before_a_piece(void *user, uint32_t, uint64_t, uint64_t) {
    (void)read_on_this_thread(user, nullptr);
    return 0;
}

/* A thread that reads files comes upon the cut one. */
void read_on_a_reading_thread(const std::string &path, size_t at) {
    std::ofstream(path) << std::string(3 * 4096, 'x');
    struct reading reading = {path, at};
    plec_io_options options = {};
    options.engine = PLEC_IO_PREAD;
    options.fault = {read_before_a_piece, &reading};
    plec_io *io = nullptr;
    uint8_t to[4096];
    plec_io_read read = {};
    read.length = sizeof to;
    read.to = to;
    if (plec_io_open(&io, &options, nullptr) != PLEC_OK ||
        plec_io_add_file(&read.file, io, path.c_str(), nullptr) != PLEC_OK ||
        !plec_io_submit(io, &read))
        std::_Exit(97);
    plec_io_completion done;
    plec_io_reap(io, &done, 1, UINT32_MAX);
    std::_Exit(96);
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

TEST_F(BusErrorDeathTest, FileCutIsNamedOnTheThreadsThatCalculate) {
    EXPECT_EXIT(read_on_a_stream(path, 9000), testing::ExitedWithCode(PLEC_EXIT_MACHINE),
                "FileCutShort: .*plec_bus_error_.*: byte 9000 could not be read");
}

/* Threads that blocked every signal ended the process without a word. */
TEST_F(BusErrorDeathTest, FileCutIsNamedOnTheThreadsOfTheLibrary) {
    EXPECT_EXIT(read_on_a_thread_of_the_library(path, 9000),
                testing::ExitedWithCode(PLEC_EXIT_MACHINE),
                "FileCutShort: .*plec_bus_error_.*: byte 9000 could not be read");
    EXPECT_EXIT(read_on_a_reading_thread(path, 9000), testing::ExitedWithCode(PLEC_EXIT_MACHINE),
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
