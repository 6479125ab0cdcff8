// The mm_bulk kernels: what they give is what mm_sync gives, bit for bit, and right.
#ifndef PLEC_ON_GPU
#include "tests/emu/emulator.h"
#endif
#include "tests/support/mm_claims.h"

namespace {

using namespace plec_test;

/* A device that runs no rung above. */
class RungDevice : public CudaDevice {
  public:
    explicit RungDevice(int32_t rung) { plec_cuda_limit_rung(device, rung); }
};

std::vector<float> run_on(int32_t rung, const struct plec_bank *bank, const Step &step) {
    RungDevice cuda(rung);
    PackedBank uploaded(&cuda, bank);
    return run_with_canary(&cuda, uploaded.get(), step);
}

#ifdef PLEC_ON_GPU
bool has_bulk() {
    RungDevice cuda(PLEC_CUDA_MM_BULK);
    char name[PLEC_KERNEL_NAME_MAX];
    return strstr(plec_device_kernel_name(cuda.device, PLEC_FORMAT_Q4_0, name), "mm_bulk");
}
#define NEEDS_BULK()                                                                               \
    if (!has_bulk()) GTEST_SKIP() << "this GPU has no bulk copies"
#else
#define NEEDS_BULK() (void)0
#endif

void expect_same(const BankSpec &spec, const Step &step) {
    Bank bank(spec);
    std::vector<float> bulk = run_on(PLEC_CUDA_MM_BULK, bank.get(), step);
    std::vector<float> sync = run_on(PLEC_CUDA_MM_SYNC, bank.get(), step);
    EXPECT_EQ(memcmp(bulk.data(), sync.data(), sync.size() * sizeof sync[0]), 0);
    expect_right(bulk, bank.get(), step);
}

void expect_same(const BankSpec &spec, uint32_t n_tokens, uint32_t n_slots) {
    Bank bank(spec); /* of its shape alone */
    expect_same(spec, make_step(bank.get(), n_tokens, n_slots, 7));
}

TEST(CudaMmBulk, RunsExpertsOfFewRows) {
    NEEDS_BULK();
    RungDevice cuda(PLEC_CUDA_MM_BULK);
    char name[PLEC_KERNEL_NAME_MAX];
    for (uint16_t format : MM_FORMATS)
        EXPECT_EQ(std::string(plec_device_kernel_name(cuda.device, format, name))
                      .rfind("S mm_bulk, M mm_sync", 0),
                  0u)
            << plec_format_find(format)->name;
}

TEST(CudaMmBulk, LeavesToMmSyncWhatHasRowsOutOfGroups) {
    NEEDS_BULK();
    RungDevice cuda(PLEC_CUDA_MM_BULK);
    char name[PLEC_KERNEL_NAME_MAX];
    const int Q8 = PLEC_FORMAT_Q8_0;
    const struct {
        uint32_t n_channels, n_outputs;
        const char *up, *down;
    } cases[] = {{40, 64, "S mm_bulk, M mm_sync", "S mm_bulk, M mm_sync"},
                 {44, 64, "mm_sync", "S mm_bulk, M mm_sync"},
                 {40, 60, "S mm_bulk, M mm_sync", "mm_sync"}};
    for (const auto &c : cases) {
        BankSpec spec = mm_spec(Q8, Q8, Q8, 64, c.n_channels);
        spec.output_dim = c.n_outputs;
        spec.fusion = PLEC_FUSED_INTERLEAVED;
        Bank bank(spec);
        auto kernel = [&](enum plec_operand_id id) {
            return std::string(plec_device_operand_kernel(cuda.device, bank.get(), id, name));
        };
        EXPECT_EQ(kernel(PLEC_GATE).rfind(c.up, 0), 0u) << c.n_channels;
        EXPECT_EQ(kernel(PLEC_DOWN).rfind(c.down, 0), 0u) << c.n_outputs;
        expect_same(spec, 5, 2);
    }
}

class CudaMmBulkFormats : public testing::TestWithParam<size_t> {};

/* Tiles that are full and not, channels that fill a block and not. */
TEST_P(CudaMmBulkFormats, EqualsMmSyncInEveryLayout) {
    NEEDS_BULK();
    const uint32_t n_tokens[] = {3, 11, 3, 3};
    for_each_layout(GetParam(), 3, 2, n_tokens,
                    [](const BankSpec &spec, const Step &step) { expect_same(spec, step); });
}

/* More steps than stages, and a last step that is not whole. */
TEST_P(CudaMmBulkFormats, EqualsMmSyncOverLongRows) {
    NEEDS_BULK();
    BankSpec spec = long_rows(MM_FORMATS[GetParam()], 3104, 72);
    spec.n_entries = 2;
    expect_same(spec, 3, 1);
}

TEST_P(CudaMmBulkFormats, KeepsTheDigitsOfTokensOfAnySize) {
    NEEDS_BULK();
    RungDevice cuda(PLEC_CUDA_MM_BULK);
    expect_digits_at_any_size(&cuda, MM_FORMATS[GetParam()], 7);
}

INSTANTIATE_TEST_SUITE_P(, CudaMmBulkFormats, testing::Range<size_t>(0, N_MM_FORMATS),
                         mm_format_name);

/* The emulated device has 4 processors that hold 4 blocks each: a block takes several tiles, the
 * next one's weights under way while it finishes one. */
TEST(CudaMmBulk, WorksThroughMoreTilesThanBlocks) {
    NEEDS_BULK();
    for (uint16_t format : {PLEC_FORMAT_MXFP4, PLEC_FORMAT_BF16}) {
        BankSpec spec = mm_spec(format, format, format, 288, 160);
        spec.output_dim = 584;
        spec.n_entries = 6;
        expect_same(spec, 6, 2);
    }
}

TEST(CudaMmBulk, TakesAnyNumberOfRowsOfAnExpert) {
    NEEDS_BULK();
    for (uint16_t format : {PLEC_FORMAT_Q4_0, PLEC_FORMAT_GGUF_Q2_K, PLEC_FORMAT_F16}) {
        BankSpec spec = mm_spec(format, format, format, 32, 40);
        spec.n_entries = 9;
        Bank bank(spec);
        expect_same(spec, step_with_rows(bank.get(), {0, 1, 7, 8, 9, 31, 33, 0, 65}));
    }
}

/* 4 (bf16), 2 and 1 of them. */
TEST(CudaMmBulk, EqualsMmSyncInEverySplit) {
    NEEDS_BULK();
    for (uint16_t format : {PLEC_FORMAT_BF16, PLEC_FORMAT_Q4_0, PLEC_FORMAT_Q6_K})
        for (uint32_t n : {512u, 2080u}) {
            BankSpec spec = mm_spec(PLEC_FORMAT_Q8_0, PLEC_FORMAT_Q8_0, format, 32, n);
            spec.down_cols = whole_blocks(format, n);
            spec.output_dim = 40;
            spec.bias = PLEC_FORMAT_F32;
            expect_same(spec, 2, 1);
        }
}

TEST(CudaMmBulk, LetsGateUpAndDownDifferInFormat) {
    NEEDS_BULK();
    const uint32_t h[] = {256, 96, 96, 64}, n[] = {96, 96, 64, 96}, n_tokens[] = {3, 10, 3, 3};
    for (size_t i = 0; i < std::size(MM_MIXES); i++)
        expect_same(mm_spec(MM_MIXES[i][0], MM_MIXES[i][1], MM_MIXES[i][2], h[i], n[i]),
                    n_tokens[i], 2);
}

TEST(CudaMmBulk, WorksWithoutAGate) {
    NEEDS_BULK();
    BankSpec spec = mm_spec(-1, PLEC_FORMAT_Q8_0, PLEC_FORMAT_Q4_0, 64, 96);
    set_maths(&spec, PLEC_RELU_SQR);
    spec.bias = PLEC_FORMAT_F16;
    expect_same(spec, 4, 2);
}

TEST(CudaMmBulk, MakesInPartsWhatItMakesAtOnce) {
    NEEDS_BULK();
    BankSpec spec = mm_spec(PLEC_FORMAT_Q4_0, PLEC_FORMAT_Q8_0, PLEC_FORMAT_Q6_K, 64, 256);
    spec.n_entries = 5;
    RungDevice cuda(PLEC_CUDA_MM_BULK);
    Bank bank(spec);
    expect_parts_to_equal_all(&cuda, bank.get(), make_step(bank.get(), 13, 2, 7),
                              {{3, 0}, {4, 1, 2}});
}

/* A second launch's kernels may start while the first one's end: both use one workspace. */
TEST(CudaMmBulk, LaunchesOneBehindTheOtherInOneWorkspace) {
    NEEDS_BULK();
    BankSpec spec = mm_spec(PLEC_FORMAT_Q4_0, PLEC_FORMAT_Q4_0, PLEC_FORMAT_Q4_0, 64, 96);
    spec.n_entries = 4;
    RungDevice cuda(PLEC_CUDA_MM_BULK);
    Bank bank(spec);
    PackedBank uploaded(&cuda, bank.get());
    Step one = make_step(bank.get(), 3, 2, 7), two = make_step(bank.get(), 3, 2, 8);
    CudaLaunch first(&cuda, uploaded.get(), one), second(&cuda, uploaded.get(), two);
    second.args.workspace = first.args.workspace;
    first.phase(PLEC_EXPERTS_ALL);
    second.phase(PLEC_EXPERTS_ALL);
    expect_right(first.y(), bank.get(), one);
    expect_right(second.y(), bank.get(), two);
}

#ifndef PLEC_ON_GPU
/* Odd seeds complete copies as late as they may be. */
TEST(CudaMmBulk, HoldsInAnyOrderOfThreadsBlocksAndCopies) {
    const struct {
        enum plec_emu_schedule schedule;
        uint64_t seed;
    } orders[] = {{PLEC_EMU_LIFO, 1},   {PLEC_EMU_PCT, 2},    {PLEC_EMU_PCT, 3},
                  {PLEC_EMU_RANDOM, 4}, {PLEC_EMU_RANDOM, 5}, {PLEC_EMU_FIFO, 0}};
    for (const auto &order : orders) {
        plec_emu_set_schedule(order.schedule, order.seed);
        for (uint16_t format : {PLEC_FORMAT_Q4_K, PLEC_FORMAT_NVFP4}) {
            BankSpec spec = mm_spec(format, format, PLEC_FORMAT_Q8_0, 1024, 64);
            spec.fusion = format == PLEC_FORMAT_Q4_K ? PLEC_NOT_FUSED : PLEC_FUSED_INTERLEAVED;
            spec.n_entries = 2;
            expect_same(spec, 7, 1);
        }
    }
    plec_emu_set_schedule(PLEC_EMU_FIFO, 0);
}
#endif

} // namespace
