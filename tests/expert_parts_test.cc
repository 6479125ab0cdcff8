/* A launch of experts cut into parts, and the CPU device behind a simulated link. */
#include "device/device.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "tests/support/bank.h"
#include "tests/support/data.h"

namespace {

using plec_test::Bank;
using plec_test::BankSpec;
using plec_test::make_step;
using plec_test::Step;

const float NAN_F = std::numeric_limits<float>::quiet_NaN();

class Cpu {
  public:
    explicit Cpu(const plec_simulation *simulation = nullptr, uint32_t n_threads = 2) {
        plec_device_options options = {};
        options.n_threads = n_threads;
        options.simulation = simulation;
        EXPECT_EQ(plec_device_open(&device, PLEC_DEVICE_CPU, &options, nullptr), PLEC_OK);
        EXPECT_EQ(plec_stream_open(&stream, device, nullptr), PLEC_OK);
    }
    ~Cpu() {
        plec_stream_close(stream);
        plec_device_close(device);
    }
    Cpu(const Cpu &) = delete;
    Cpu &operator=(const Cpu &) = delete;

    plec_device *device = nullptr;
    plec_stream *stream = nullptr;
};

/* One step on a bank, launched whole or by phases; outputs and workspace start as NaN. */
struct Launch {
    Launch(Cpu *on, const plec_bank *bank, const Step &step) : cpu(on) {
        uint64_t n_bytes = 0;
        EXPECT_TRUE(
            plec_experts_workspace(&n_bytes, cpu->device, bank, step.n_tokens, step.n_slots));
        workspace.assign(n_bytes / sizeof(uint64_t) + 16, UINT64_MAX);
        y.assign(size_t(step.n_tokens) * bank->output_dim, NAN_F);
        args.bank = bank;
        args.ids = step.ids.empty() ? nullptr : step.ids.data();
        args.weights = step.weights.empty() ? nullptr : step.weights.data();
        args.n_tokens = step.n_tokens;
        args.n_slots = step.n_slots;
        args.weight_on_input = step.weight_on_input;
        args.x = step.x.data();
        args.y = y.data();
        args.workspace = reinterpret_cast<void *>(
            (reinterpret_cast<uintptr_t>(workspace.data()) + 63) & ~uintptr_t(63));
    }
    void phase(plec_experts_phase phase, const std::vector<uint32_t> &part = {}) {
        plec_experts_args cut = args;
        cut.phase = phase;
        parts.push_back(part);
        cut.part = parts.back().data();
        cut.n_part = static_cast<uint32_t>(part.size());
        EXPECT_EQ(plec_launch_experts(cpu->stream, &cut, nullptr), PLEC_OK);
    }
    plec_status sync() { return plec_stream_sync(cpu->stream, &err); }
    std::string failure() {
        EXPECT_NE(sync(), PLEC_OK);
        return err.name;
    }

    Cpu *cpu;
    std::deque<std::vector<uint32_t>> parts; /* read when the work runs */
    std::vector<uint64_t> workspace;
    std::vector<float> y;
    plec_experts_args args = {};
    plec_error err = {};
};

std::vector<uint32_t> active(const Step &step) {
    std::set<uint32_t> ids(step.ids.begin(), step.ids.end());
    return {ids.begin(), ids.end()};
}

bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
}

/* Every format with its own kind of image, cut at random places in random order. */
TEST(ExpertParts, GiveTheBitsOfTheWholeLaunch) {
    std::mt19937 random(5);
    for (uint16_t format : {PLEC_FORMAT_F32, PLEC_FORMAT_Q8_0, PLEC_FORMAT_Q4_K, PLEC_FORMAT_MXFP4})
        for (uint32_t n_tokens : {1u, 3u, 40u}) {
            Cpu cpu(nullptr, 1 + random() % 4);
            BankSpec spec;
            spec.gate = spec.up = spec.down = format;
            spec.n_entries = 9;
            spec.input_dim = 512;
            spec.intermediate_dim = 256;
            spec.output_dim = 33;
            Bank bank(spec);
            Step step = make_step(bank.get(), n_tokens, 4, n_tokens);
            step.weight_on_input = n_tokens == 3;
            Launch whole(&cpu, bank.get(), step);
            whole.phase(PLEC_EXPERTS_ALL);
            ASSERT_EQ(whole.sync(), PLEC_OK) << whole.err.message;
            for (int round = 0; round < 5; round++) {
                Launch cut(&cpu, bank.get(), step);
                std::vector<uint32_t> order = active(step);
                std::shuffle(order.begin(), order.end(), random);
                std::vector<std::vector<uint32_t>> parts;
                for (size_t at = 0; at < order.size();) {
                    size_t n = std::min<size_t>(random() % 4, order.size() - at);
                    parts.push_back({order.begin() + at, order.begin() + at + n});
                    at += n;
                }
                cut.phase(PLEC_EXPERTS_BEGIN);
                for (const auto &part : parts)
                    cut.phase(PLEC_EXPERTS_PART, part);
                cut.phase(PLEC_EXPERTS_FINISH);
                ASSERT_EQ(cut.sync(), PLEC_OK) << cut.err.message;
                EXPECT_TRUE(same_bits(cut.y, whole.y)) << format << ", " << n_tokens << " tokens";
            }
        }
}

/* The entries of experts not named yet may be anything. */
TEST(ExpertParts, ReadTheEntriesOfTheirOwnExpertsAlone) {
    Cpu cpu;
    BankSpec spec;
    spec.gate = spec.up = spec.down = PLEC_FORMAT_Q4_K;
    spec.input_dim = spec.intermediate_dim = 256;
    Bank bank(spec);
    Step step = make_step(bank.get(), 6, 3, 2);
    Launch whole(&cpu, bank.get(), step);
    whole.phase(PLEC_EXPERTS_ALL);
    ASSERT_EQ(whole.sync(), PLEC_OK);
    plec_bank arriving = *bank.get();
    std::vector<plec_entry> entries(arriving.n_entries, plec_entry{});
    arriving.entries = entries.data();
    Launch cut(&cpu, &arriving, step);
    cut.phase(PLEC_EXPERTS_BEGIN);
    for (uint32_t e : active(step)) {
        entries[e] = bank.get()->entries[e];
        cut.phase(PLEC_EXPERTS_PART, {e});
        ASSERT_EQ(cut.sync(), PLEC_OK);
        entries[e] = plec_entry{};
    }
    cut.phase(PLEC_EXPERTS_FINISH);
    ASSERT_EQ(cut.sync(), PLEC_OK);
    EXPECT_TRUE(same_bits(cut.y, whole.y));
}

TEST(ExpertParts, RefuseToSumWithoutEveryExpert) {
    Cpu cpu;
    Bank bank((BankSpec()));
    Step step = make_step(bank.get(), 5, 2, 3);
    std::vector<uint32_t> part = active(step);
    part.pop_back();
    Launch cut(&cpu, bank.get(), step);
    cut.phase(PLEC_EXPERTS_BEGIN);
    cut.phase(PLEC_EXPERTS_PART, part);
    cut.phase(PLEC_EXPERTS_FINISH);
    EXPECT_EQ(cut.failure(), "ExpertsLeftOut");
    for (float value : cut.y)
        EXPECT_TRUE(std::isnan(value));
}

TEST(ExpertParts, RefuseAnExpertTwiceOneWithoutPairsAndOneOutsideTheBank) {
    Cpu cpu;
    BankSpec spec;
    spec.n_entries = 9;
    Bank bank(spec);
    Step step = make_step(bank.get(), 1, 2, 3);
    std::vector<uint32_t> ids = active(step);
    uint32_t idle = 0;
    while (std::find(ids.begin(), ids.end(), idle) != ids.end())
        idle++;
    for (const std::vector<uint32_t> &part :
         {std::vector<uint32_t>{ids[0], ids[0]}, {idle}, {9u}}) {
        Launch cut(&cpu, bank.get(), step);
        cut.phase(PLEC_EXPERTS_BEGIN);
        cut.phase(PLEC_EXPERTS_PART, part);
        EXPECT_EQ(cut.failure(), "BadPart");
    }
}

/* --- the simulated link ---------------------------------------------------------------------- */

double seconds_since(std::chrono::steady_clock::time_point start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

TEST(Simulation, AllCopiesShareOneLink) {
    plec_simulation simulation = {};
    simulation.copy_bytes_per_s = 100 << 20;
    Cpu cpu(&simulation);
    plec_stream *other = nullptr;
    ASSERT_EQ(plec_stream_open(&other, cpu.device, nullptr), PLEC_OK);
    std::vector<uint8_t> from(1 << 20, 7), to(1 << 20), and_to(1 << 20);
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(plec_copy(to.data(), from.data(), from.size(), cpu.stream, nullptr), PLEC_OK);
        EXPECT_EQ(plec_copy(and_to.data(), from.data(), from.size(), other, nullptr), PLEC_OK);
    }
    EXPECT_EQ(plec_stream_sync(cpu.stream, nullptr), PLEC_OK);
    EXPECT_EQ(plec_stream_sync(other, nullptr), PLEC_OK);
    EXPECT_GE(seconds_since(start), 0.04); /* 4 MiB at 100 MiB/s */
    EXPECT_EQ(to, from);
    EXPECT_EQ(and_to, from);
    plec_stream_close(other);
}

TEST(Simulation, EveryCopyHasItsLatency) {
    plec_simulation simulation = {};
    simulation.copy_latency_ns = 10000000;
    Cpu cpu(&simulation);
    uint8_t from[3] = {1, 2, 3}, to[3] = {};
    auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < 3; i++)
        EXPECT_EQ(plec_copy(&to[i], &from[i], 1, cpu.stream, nullptr), PLEC_OK);
    EXPECT_EQ(plec_stream_sync(cpu.stream, nullptr), PLEC_OK);
    EXPECT_GE(seconds_since(start), 0.03);
    EXPECT_EQ(memcmp(from, to, 3), 0);
}

TEST(Simulation, FailsTheCopiesAndAllocationsItIsToldTo) {
    static std::atomic<int> left;
    left = 1;
    plec_simulation simulation = {};
    simulation.fail_copy = [](void *, const void *, uint64_t) { return left-- == 0; };
    simulation.fail_alloc = [](void *, uint64_t n_bytes) { return n_bytes > 1000; };
    Cpu cpu(&simulation);
    uint8_t from[2] = {1, 2}, to[2] = {};
    for (int i = 0; i < 2; i++)
        EXPECT_EQ(plec_copy(&to[i], &from[i], 1, cpu.stream, nullptr), PLEC_OK);
    plec_error err = {};
    EXPECT_EQ(plec_stream_sync(cpu.stream, &err), PLEC_NO_DEVICE);
    EXPECT_STREQ(err.name, "CopyFailed");
    EXPECT_EQ(to[0], 1);
    EXPECT_EQ(to[1], 0);
    void *memory = nullptr;
    EXPECT_EQ(plec_device_alloc(&memory, cpu.device, 1001, &err), PLEC_NO_MEMORY);
    EXPECT_EQ(plec_pinned_alloc(&memory, cpu.device, 1001, &err), PLEC_NO_MEMORY);
    EXPECT_EQ(plec_device_alloc(&memory, cpu.device, 1000, &err), PLEC_OK);
    plec_device_free(cpu.device, memory);
}

} // namespace
