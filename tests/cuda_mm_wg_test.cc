// The mm_wg kernels of every format against the reference that rounds where they do.
#ifndef PLEC_ON_GPU
#include "tests/emu/emulator.h"
#endif
#include "tests/support/mm_claims.h"

namespace {

using namespace plec_test;

/* Of a device that has it. */
bool has_mm_wg(CudaDevice *cuda) {
    char name[PLEC_KERNEL_NAME_MAX];
    const char *kernel = plec_device_kernel_name(cuda->device, PLEC_FORMAT_Q4_0, name);
    return kernel != nullptr && strstr(kernel, "L mm_wg") != nullptr;
}

class CudaMmWg : public testing::Test {
  protected:
    void SetUp() override {
        CudaDevice cuda;
        if (!has_mm_wg(&cuda)) GTEST_SKIP() << "no wgmma on this device";
    }
};

TEST_F(CudaMmWg, RunsManyRowsOfEveryFormatOfMmSync) {
    CudaDevice cuda;
    char name[PLEC_KERNEL_NAME_MAX];
    for (uint16_t format : MM_FORMATS) {
        const char *kernel = plec_device_kernel_name(cuda.device, format, name);
        ASSERT_NE(kernel, nullptr);
        EXPECT_NE(strstr(kernel, "L mm_wg"), nullptr) << plec_format_find(format)->name << kernel;
    }
}

class CudaMmWgFormats : public CudaMmWg, public testing::WithParamInterface<size_t> {};

/* A tile of every width that there is. */
TEST_P(CudaMmWgFormats, EqualsTheReferenceInEveryLayout) {
    const uint32_t n_tokens[] = {66, 97, 128, 131};
    for_each_layout(GetParam(), 1, 1, n_tokens,
                    [](const BankSpec &spec, const Step &step) { expect_case(spec, step); });
}

/* Several steps of every format, the last of them cut short. */
TEST_P(CudaMmWgFormats, TakesLongRowsInSteps) {
    BankSpec spec = long_rows(MM_FORMATS[GetParam()], 1120, 40);
    spec.n_entries = 1;
    expect_case(spec, 65, 1);
}

TEST_P(CudaMmWgFormats, KeepsTheDigitsOfTokensOfAnySize) {
    CudaDevice cuda;
    expect_digits_at_any_size(&cuda, MM_FORMATS[GetParam()], 66);
}

INSTANTIATE_TEST_SUITE_P(, CudaMmWgFormats, testing::Range<size_t>(0, N_MM_FORMATS),
                         mm_format_name);

/* Rows of the class's end, of one tile, of two, of a last tile of every width; skew beside them. */
TEST_F(CudaMmWg, TakesAnyNumberOfRowsOfAnExpert) {
    for (uint16_t format : {PLEC_FORMAT_Q4_0, PLEC_FORMAT_GGUF_Q5_1, PLEC_FORMAT_F16}) {
        BankSpec spec = mm_spec(format, format, format, 32, 40);
        spec.n_entries = 9;
        Bank bank(spec);
        SCOPED_TRACE(plec_format_find(format)->name);
        expect_case(spec, step_with_rows(bank.get(), {64, 65, 0, 127, 128, 129, 1, 97, 300}));
    }
}

/* bf16 has products of every multiple of 8 columns: last tiles of each of them, and of a row more.
 */
TEST_F(CudaMmWg, HasAProductOfEveryWidthInBf16) {
    BankSpec spec = mm_spec(PLEC_FORMAT_BF16, PLEC_FORMAT_BF16, PLEC_FORMAT_BF16, 96, 40);
    spec.n_entries = 1;
    spec.output_dim = 64;
    Bank bank(spec);
    for (uint32_t n_tokens = 128; n_tokens <= 256; n_tokens += n_tokens % 8 ? 7 : 1)
        expect_case(spec, n_tokens, 1);
}

/* The emulated device has 4 processors, so 32 blocks are launched: each takes several tiles, of
 * experts of two tiles and more. */
TEST_F(CudaMmWg, WorksThroughMoreTilesThanBlocks) {
    BankSpec spec = mm_spec(PLEC_FORMAT_MXFP4, PLEC_FORMAT_MXFP4, PLEC_FORMAT_Q4_0, 96, 320);
    spec.n_entries = 8;
    Bank bank(spec);
    expect_case(spec, step_with_rows(bank.get(), {65, 66, 67, 130, 65, 65, 80, 65}));
}

/* Blocks of 256 rows, one a processor; more steps than stages, and fewer. */
TEST_F(CudaMmWg, CopiesBf16IntoTheNextTileWhileItFinishesOne) {
    for (uint32_t n_columns : {64u, 224u, 608u}) {
        BankSpec spec =
            mm_spec(PLEC_FORMAT_BF16, PLEC_FORMAT_BF16, PLEC_FORMAT_BF16, n_columns, 416);
        spec.n_entries = 3;
        Bank bank(spec);
        expect_case(spec, step_with_rows(bank.get(), {65, 200, 136}));
    }
}

/* Two blocks of channels and more, the last of them with its second run cut short, or none. */
TEST_F(CudaMmWg, FindsTheRunsOfBf16InEveryLayout) {
    const int bf16 = PLEC_FORMAT_BF16;
    BankSpec alone = mm_spec(bf16, PLEC_FORMAT_Q8_0, PLEC_FORMAT_Q8_0, 64, 328);
    BankSpec no_gate = mm_spec(-1, bf16, PLEC_FORMAT_Q8_0, 64, 328);
    set_maths(&no_gate, PLEC_RELU_SQR);
    std::vector<BankSpec> specs = {alone, no_gate};
    for (enum plec_fusion fusion : MM_LAYOUTS) {
        specs.push_back(mm_spec(bf16, bf16, PLEC_FORMAT_Q8_0, 64, 216));
        specs.back().fusion = fusion;
    }
    for (size_t i = 0; i < specs.size(); i++) {
        SCOPED_TRACE(i);
        specs[i].n_entries = 1;
        expect_case(specs[i], 70, 1);
    }
}

/* Bulk copies want rows in groups of eight; others go to mm_sync. */
TEST_F(CudaMmWg, LeavesOddRowsOfBf16ToMmSync) {
    BankSpec spec = mm_spec(PLEC_FORMAT_BF16, PLEC_FORMAT_BF16, PLEC_FORMAT_BF16, 96, 40);
    spec.output_dim = 44;
    spec.n_entries = 1;
    CudaDevice cuda;
    Bank bank(spec);
    char name[PLEC_KERNEL_NAME_MAX];
    EXPECT_NE(strstr(plec_device_operand_kernel(cuda.device, bank.get(), PLEC_UP, name), "L mm_wg"),
              nullptr);
    EXPECT_STREQ(plec_device_operand_kernel(cuda.device, bank.get(), PLEC_DOWN, name), "mm_sync");
    expect_case(spec, 70, 1);
}

#ifndef PLEC_ON_GPU
/* Odd seeds complete copies as late as they may be. */
TEST_F(CudaMmWg, HoldsInAnyOrderOfThreadsBlocksAndCopies) {
    const struct {
        enum plec_emu_schedule schedule;
        uint64_t seed;
        int format;
    } orders[] = {{PLEC_EMU_LIFO, 1, PLEC_FORMAT_Q4_K},   {PLEC_EMU_PCT, 3, PLEC_FORMAT_Q8_0},
                  {PLEC_EMU_RANDOM, 5, PLEC_FORMAT_BF16}, {PLEC_EMU_LIFO, 7, PLEC_FORMAT_BF16},
                  {PLEC_EMU_PCT, 9, PLEC_FORMAT_BF16},    {PLEC_EMU_PCT, 8, PLEC_FORMAT_GGUF_Q2_K}};
    for (const auto &order : orders) {
        plec_emu_set_schedule(order.schedule, order.seed);
        BankSpec spec = mm_spec(order.format, order.format, PLEC_FORMAT_NVFP4, 768, 96);
        spec.n_entries = 2;
        spec.output_dim = 96;
        Bank bank(spec);
        expect_case(spec, step_with_rows(bank.get(), {65, 129}));
    }
    plec_emu_set_schedule(PLEC_EMU_FIFO, 0);
}
#endif

/* Few outputs of many columns: the columns are split over blocks, 4 (bf16) and 2 of them. */
TEST_F(CudaMmWg, SplitsTheColumnsOfANarrowDown) {
    for (uint16_t format : {PLEC_FORMAT_BF16, PLEC_FORMAT_GGUF_Q4_1}) {
        BankSpec spec = mm_spec(PLEC_FORMAT_Q8_0, PLEC_FORMAT_Q8_0, format, 32, 2080);
        spec.output_dim = 40;
        spec.n_entries = 1;
        spec.bias = PLEC_FORMAT_F32;
        expect_case(spec, 70, 1);
    }
}

TEST_F(CudaMmWg, LetsGateUpAndDownDifferInFormat) {
    for (const int *mix : MM_MIXES) {
        BankSpec spec = mm_spec(mix[0], mix[1], mix[2], 96, 72);
        spec.n_entries = 2;
        expect_case(spec, 130, 1);
    }
}

TEST_F(CudaMmWg, WorksWithoutAGate) {
    BankSpec spec = mm_spec(-1, PLEC_FORMAT_Q8_0, PLEC_FORMAT_Q4_0, 64, 200);
    set_maths(&spec, PLEC_RELU_SQR);
    spec.n_entries = 1;
    spec.bias = PLEC_FORMAT_F16;
    expect_case(spec, 66, 1);
}

TEST_F(CudaMmWg, KeepsATokenOfNanToItself) {
    BankSpec spec = mm_spec(PLEC_FORMAT_Q4_K, PLEC_FORMAT_Q4_K, PLEC_FORMAT_GGUF_Q3_K, 256, 64);
    spec.n_entries = 1;
    CudaDevice cuda;
    expect_nan_to_stay(&cuda, spec, make_step(Bank(spec).get(), 66, 1, 7), 65);
}

TEST_F(CudaMmWg, MakesNanOfARowWithAWeightThatIsNoNumber) {
    CudaDevice cuda;
    expect_nan_of_scales_beyond_f32(&cuda, 66);
}

/* In every way in which scales come in. */
TEST_F(CudaMmWg, KeepsTheRangeOfItsTokens) {
    CudaDevice cuda;
    for (int format : {PLEC_FORMAT_Q4_0, PLEC_FORMAT_MXFP4, PLEC_FORMAT_NVFP4,
                       PLEC_FORMAT_FP4_LARQL, PLEC_FORMAT_GGUF_Q2_K})
        expect_range_to_be_kept(&cuda, format, 66);
}

TEST_F(CudaMmWg, MakesInPartsWhatItMakesAtOnce) {
    BankSpec spec = mm_spec(PLEC_FORMAT_Q4_0, PLEC_FORMAT_Q8_0, PLEC_FORMAT_Q6_K, 64, 256);
    spec.n_entries = 3;
    CudaDevice cuda;
    Bank bank(spec);
    expect_parts_to_equal_all(&cuda, bank.get(), step_with_rows(bank.get(), {70, 5, 130}),
                              {{2}, {1, 0}});
}

/* The bits of token 0 alone and among so many that its expert is of another class. */
bool same_alone(CudaDevice *cuda, uint16_t format) {
    BankSpec spec = mm_spec(format, format, format, 256, 96);
    spec.n_entries = 1;
    Bank bank(spec);
    PackedBank uploaded(cuda, bank.get());
    Step many = make_step(bank.get(), 66, 1, 7), one = many;
    std::vector<float> all = run_with_canary(cuda, uploaded.get(), many);
    one.n_tokens = 1;
    one.ids.resize(1), one.weights.resize(1), one.x.resize(spec.input_dim);
    std::vector<float> alone = run_with_canary(cuda, uploaded.get(), one);
    return memcmp(alone.data(), all.data(), spec.output_dim * sizeof(float)) == 0;
}

TEST_F(CudaMmWg, IsLeftOutWhereATokensBitsMustNotDependOnItsNeighbours) {
    struct plec_device_options options = {};
    options.batch_invariant = true;
    CudaDevice invariant(&options), cuda;
    EXPECT_FALSE(has_mm_wg(&invariant));
    for (uint16_t format : {PLEC_FORMAT_Q6_K, PLEC_FORMAT_MXFP4, PLEC_FORMAT_GGUF_Q5_1})
        EXPECT_TRUE(same_alone(&invariant, format)) << plec_format_find(format)->name;
#ifndef PLEC_ON_GPU
    EXPECT_FALSE(same_alone(&cuda, PLEC_FORMAT_F16)) << "then batch_invariant is for nothing";
#endif
}

} // namespace
