// The mm_sync kernels of every format against the reference that rounds where they do.
#ifndef PLEC_ON_GPU
#include "tests/emu/emulator.h"
#endif
#include "tests/support/mm_claims.h"

namespace {

using namespace plec_test;

const int32_t MOST_RUNG = mm_most_rung() = PLEC_CUDA_MM_SYNC;

TEST(CudaMmSync, IsWhatEveryFormatItNamesRunsOn) {
    MmDevice cuda;
    char name[PLEC_KERNEL_NAME_MAX];
    for (uint16_t format : MM_FORMATS)
        EXPECT_STREQ(plec_device_kernel_name(cuda.device, format, name), "mm_sync")
            << plec_format_find(format)->name;
}

class CudaMmSyncFormats : public testing::TestWithParam<size_t> {};

TEST_P(CudaMmSyncFormats, EqualsTheReferenceInEveryLayout) {
    const uint32_t n_tokens[] = {3, 11, 3, 3};
    for_each_layout(GetParam(), 3, 2, n_tokens,
                    [](const BankSpec &spec, const Step &step) { expect_case(spec, step); });
}

TEST_P(CudaMmSyncFormats, TakesLongRowsInSteps) {
    BankSpec spec = long_rows(MM_FORMATS[GetParam()], 1184, 72);
    spec.n_entries = 2;
    expect_case(spec, 3, 1);
}

/* 70 rows of one expert: a tile of 64 and one of 6 of that width. */
TEST_P(CudaMmSyncFormats, TakesManyRowsInWideTiles) {
    int format = MM_FORMATS[GetParam()];
    BankSpec spec = mm_spec(format, format, format, 32, 40);
    spec.input_dim = whole_blocks(format, 288); /* past a step of any format */
    spec.n_entries = 1;
    expect_case(spec, 70, 1);
}

TEST_P(CudaMmSyncFormats, KeepsTheDigitsOfTokensOfAnySize) {
    MmDevice cuda;
    for (uint32_t n_tokens : {7, 14})
        expect_digits_at_any_size(&cuda, MM_FORMATS[GetParam()], n_tokens);
}

TEST_P(CudaMmSyncFormats, EqualsTheReferenceOnTokensOfAnySize) {
    MmDevice cuda;
    expect_right_at_any_size(&cuda, MM_FORMATS[GetParam()], 5);
}

INSTANTIATE_TEST_SUITE_P(, CudaMmSyncFormats, testing::Range<size_t>(0, N_MM_FORMATS),
                         mm_format_name);

/* None, one, a tile less one, a tile, more; narrow and wide tiles beside each other. */
TEST(CudaMmSync, TakesAnyNumberOfRowsOfAnExpert) {
    for (uint16_t format : {PLEC_FORMAT_Q4_0, PLEC_FORMAT_GGUF_Q2_K, PLEC_FORMAT_F16}) {
        BankSpec spec = mm_spec(format, format, format, 32, 40);
        spec.n_entries = 9;
        Bank bank(spec);
        SCOPED_TRACE(plec_format_find(format)->name);
        expect_case(spec, step_with_rows(bank.get(), {0, 1, 7, 8, 9, 31, 33, 0, 64}));
        expect_case(spec, step_with_rows(bank.get(), {3, 65, 0, 32, 129}));
    }
}

/* The emulated device has 4 processors, so 32 blocks are launched: each takes several tiles. */
TEST(CudaMmSync, WorksThroughMoreTilesThanBlocks) {
    for (uint16_t format : {PLEC_FORMAT_Q4_0, PLEC_FORMAT_MXFP4}) {
        BankSpec spec = mm_spec(format, format, format, 96, 160);
        spec.output_dim = 576;
        spec.n_entries = 9;
        expect_case(spec, 18, 2);
    }
}

#ifndef PLEC_ON_GPU
/* Odd seeds complete copies as late as they may be. */
TEST(CudaMmSync, HoldsInAnyOrderOfThreadsBlocksAndCopies) {
    const struct {
        enum plec_emu_schedule schedule;
        uint64_t seed;
    } orders[] = {{PLEC_EMU_LIFO, 1}, {PLEC_EMU_PCT, 3}, {PLEC_EMU_RANDOM, 5}};
    for (const auto &order : orders) {
        plec_emu_set_schedule(order.schedule, order.seed);
        for (uint16_t format : {PLEC_FORMAT_Q4_K, PLEC_FORMAT_NVFP4}) {
            BankSpec spec = mm_spec(format, format, PLEC_FORMAT_Q8_0, 1024, 96);
            spec.n_entries = 3;
            expect_case(spec, 13, 2);
            spec.n_entries = 1;
            expect_case(spec, 65, 1);
        }
    }
    plec_emu_set_schedule(PLEC_EMU_FIFO, 0);
}
#endif

/* Few outputs of many columns: the columns are split over blocks, 4 (bf16) and 2 of them. */
TEST(CudaMmSync, SplitsTheColumnsOfANarrowDown) {
    for (uint16_t format : {PLEC_FORMAT_BF16, PLEC_FORMAT_Q4_0}) {
        BankSpec spec = mm_spec(PLEC_FORMAT_Q8_0, PLEC_FORMAT_Q8_0, format, 32, 2080);
        spec.output_dim = 40;
        spec.bias = PLEC_FORMAT_F32;
        expect_case(spec, 3, 2);
    }
}

TEST(CudaMmSync, LetsGateUpAndDownDifferInFormat) {
    const uint32_t h[] = {256, 96, 96, 64}, n[] = {96, 96, 64, 96}, n_tokens[] = {3, 10, 3, 3};
    for (size_t i = 0; i < std::size(MM_MIXES); i++)
        expect_case(mm_spec(MM_MIXES[i][0], MM_MIXES[i][1], MM_MIXES[i][2], h[i], n[i]),
                    n_tokens[i], 2);
}

TEST(CudaMmSync, WorksWithoutAGate) {
    for (int activation : {PLEC_RELU_SQR, PLEC_GELU_ERF, PLEC_SILU}) {
        BankSpec spec = mm_spec(-1, PLEC_FORMAT_Q8_0, PLEC_FORMAT_Q4_0, 64, 96);
        set_maths(&spec, activation);
        spec.bias = PLEC_FORMAT_F16;
        expect_case(spec, 4, 2);
    }
}

/* A token's output does not depend on its neighbours, nor on the width of its tile. */
TEST(CudaMmSync, GivesATokenTheSameBitsAloneAndAmongMany) {
    for (uint16_t format : {PLEC_FORMAT_Q6_K, PLEC_FORMAT_MXFP4, PLEC_FORMAT_GGUF_Q5_1}) {
        BankSpec spec = mm_spec(format, format, format, 256, 96);
        spec.n_entries = 1;
        MmDevice cuda;
        Bank bank(spec);
        PackedBank uploaded(&cuda, bank.get());
        Step many = make_step(bank.get(), 67, 1, 7);
        std::vector<float> all = run_with_canary(&cuda, uploaded.get(), many);
        size_t in = spec.input_dim, out = spec.output_dim;
        for (uint32_t n : {1u, 21u}) /* narrow tiles and those of 32 */
            for (uint32_t t : {0u, 46u}) {
                Step few = many;
                few.n_tokens = n;
                few.ids.resize(n), few.weights.assign(&many.weights[t], &many.weights[t] + n);
                few.x.assign(many.x.begin() + t * in, many.x.begin() + (t + n) * in);
                std::vector<float> got = run_with_canary(&cuda, uploaded.get(), few);
                EXPECT_EQ(memcmp(got.data(), &all[t * out], n * out * sizeof(float)), 0)
                    << n << " from " << t;
            }
    }
}

TEST(CudaMmSync, KeepsATokenOfNanToItself) {
    BankSpec spec = mm_spec(PLEC_FORMAT_Q4_K, PLEC_FORMAT_Q4_K, PLEC_FORMAT_Q8_0, 256, 64);
    spec.n_entries = 2;
    MmDevice cuda;
    expect_nan_to_stay(&cuda, spec, make_step(Bank(spec).get(), 4, 2, 7), 1);
}

TEST(CudaMmSync, MakesNanOfARowWithAWeightThatIsNoNumber) {
    MmDevice cuda;
    expect_nan_of_scales_beyond_f32(&cuda, 2);
}

TEST(CudaMmSync, KeepsTheRangeOfItsTokens) {
    MmDevice cuda;
    for (int format : {PLEC_FORMAT_Q4_0, PLEC_FORMAT_MXFP4, PLEC_FORMAT_NVFP4})
        expect_range_to_be_kept(&cuda, format, 3);
}

TEST(CudaMmSync, MakesInPartsWhatItMakesAtOnce) {
    BankSpec spec = mm_spec(PLEC_FORMAT_Q4_0, PLEC_FORMAT_Q8_0, PLEC_FORMAT_Q6_K, 64, 256);
    spec.n_entries = 5;
    MmDevice cuda;
    Bank bank(spec);
    expect_parts_to_equal_all(&cuda, bank.get(), make_step(bank.get(), 13, 2, 7),
                              {{3, 0}, {4, 1, 2}});
}

} // namespace
