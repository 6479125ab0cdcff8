/* mistakes.h: for tests of the checker: a deliberate mistake must be reported under its name by
 * every schedule, and its correct twin by none. */
#ifndef PLEC_TESTS_EMU_MISTAKES_H
#define PLEC_TESTS_EMU_MISTAKES_H

#include "device/cuda/ptx.cuh"
#include "tests/emu/emulator.h"

#include <functional>
#include <gtest/gtest.h>

namespace plec_test {

const unsigned ALL_LANES = 0xffffffffu;
enum { N_INTS = 1024 };

class Mistakes : public testing::Test {
  protected:
    void SetUp() override { plec_emu_set_quiet(true); }
    void TearDown() override {
        plec_emu_reset();
        plec_emu_set_quiet(false);
    }

    /* run(true) makes the mistake, run(false) does not; after each, all work is waited for. */
    void expect_reported(const char *kind, const std::function<void(bool)> &run) {
        each_schedule([&](const std::string &schedule) {
            run(true);
            cudaDeviceSynchronize();
            EXPECT_GT(plec_emu_errors(kind), 0)
                << "not reported as " << (kind ? kind : "anything") << ", " << schedule;
            last_ = plec_emu_last_error(kind);
        });
        expect_clean([&] { run(false); });
    }

    void expect_clean(const std::function<void(void)> &run) {
        each_schedule([&](const std::string &schedule) {
            run();
            EXPECT_EQ(cudaSuccess, cudaDeviceSynchronize()) << schedule;
            EXPECT_EQ(0, plec_emu_errors(nullptr))
                << schedule << ": " << plec_emu_last_error(nullptr);
        });
    }

    /* What the last report said. */
    void expect_said(const char *part) {
        EXPECT_NE(std::string::npos, last_.find(part)) << part << " is not in: " << last_;
    }

    /* Fresh before each run: N_INTS zeroes each. */
    int *d, *e; /* device */
    int *h;     /* pinned */
    cudaStream_t a, b;
    cudaEvent_t event, event_2;

  private:
    void each_schedule(const std::function<void(const std::string &)> &run) {
        static const char *const names[] = {"fifo", "random", "lifo", "pct"};
        for (int schedule = PLEC_EMU_FIFO; schedule <= PLEC_EMU_PCT; schedule++)
            for (uint64_t seed = 1; seed <= 2; seed++) {
                plec_emu_reset();
                plec_emu_set_schedule((plec_emu_schedule)schedule, seed);
                make_things();
                run(std::string(names[schedule]) + ", seed " + std::to_string(seed));
            }
    }

    void make_things() {
        const size_t n_bytes = N_INTS * sizeof(int);
        ASSERT_EQ(cudaSuccess, cudaMalloc((void **)&d, n_bytes));
        ASSERT_EQ(cudaSuccess, cudaMalloc((void **)&e, n_bytes));
        ASSERT_EQ(cudaSuccess, cudaMallocHost((void **)&h, n_bytes));
        ASSERT_EQ(cudaSuccess, cudaMemset(d, 0, n_bytes));
        ASSERT_EQ(cudaSuccess, cudaMemset(e, 0, n_bytes));
        memset(h, 0, n_bytes);
        ASSERT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
        ASSERT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
        ASSERT_EQ(cudaSuccess, cudaEventCreate(&event));
        ASSERT_EQ(cudaSuccess, cudaEventCreate(&event_2));
        ASSERT_EQ(cudaSuccess, cudaDeviceSynchronize());
    }

    std::string last_;
};

} // namespace plec_test

#endif
