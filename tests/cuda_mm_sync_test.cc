// The mm_sync kernels of every format against the reference that rounds where they do.
#ifndef PLEC_ON_GPU
#include "tests/emu/emulator.h"
#endif
#include "tests/support/mm_cases.h"

namespace {

using namespace plec_test;

const int32_t MOST_RUNG = mm_most_rung() = PLEC_CUDA_MM_SYNC;

const enum plec_fusion FUSIONS[] = {PLEC_NOT_FUSED, PLEC_FUSED_GATE_FIRST, PLEC_FUSED_UP_FIRST,
                                    PLEC_FUSED_INTERLEAVED};

TEST(CudaMmSync, IsWhatEveryFormatItNamesRunsOn) {
    MmDevice cuda;
    char name[PLEC_KERNEL_NAME_MAX];
    for (uint16_t format : MM_FORMATS)
        EXPECT_STREQ(plec_device_kernel_name(cuda.device, format, name), "mm_sync")
            << plec_format_find(format)->name;
}

/* Every format with every layout, every activation with every layout; sizes that are no multiple of
 * a tile, biases, scales, weights on the input and accumulation in turn. */
class CudaMmSyncFormats : public testing::TestWithParam<size_t> {};

TEST_P(CudaMmSyncFormats, EqualsTheReferenceInEveryLayout) {
    size_t f = GetParam();
    int format = MM_FORMATS[f];
    for (size_t layout = 0; layout < 4; layout++) {
        size_t turn = f + layout * 7;
        BankSpec spec =
            mm_spec(format, format, format, turn % 3 == 0 ? 96 : 32, turn % 2 ? 40 : 96);
        spec.fusion = FUSIONS[layout];
        set_maths(&spec, static_cast<int>((f + 2 * layout) % PLEC_N_ACTIVATIONS));
        spec.bias = turn % 2 ? PLEC_FORMAT_F32 : turn % 5 == 0 ? PLEC_FORMAT_BF16 : -1;
        spec.scales = turn % 3 == 1;
        spec.n_entries = 3;
        Bank bank(spec);
        Step step = make_step(bank.get(), layout == 1 ? 11 : 3, 2, static_cast<uint32_t>(turn));
        step.weight_on_input = turn % 4 == 3;
        if (turn % 4 == 2) step.y = Random(5).normals(size_t(step.n_tokens) * spec.output_dim);
        SCOPED_TRACE("layout " + std::to_string(layout));
        expect_case(spec, step);
    }
}

TEST_P(CudaMmSyncFormats, TakesLongRowsInSteps) {
    int format = MM_FORMATS[GetParam()];
    BankSpec spec = mm_spec(format, format, format, 32, 32);
    spec.input_dim = whole_blocks(format, 1184);
    spec.output_dim = 72, spec.intermediate_dim = 24;
    spec.down_cols = whole_blocks(format, 24);
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

std::string mm_name(const testing::TestParamInfo<size_t> &test) {
    return plec_format_find(MM_FORMATS[test.param])->name;
}
INSTANTIATE_TEST_SUITE_P(, CudaMmSyncFormats, testing::Range<size_t>(0, N_MM_FORMATS), mm_name);

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
    expect_case(mm_spec(PLEC_FORMAT_Q4_K, PLEC_FORMAT_Q6_K, PLEC_FORMAT_Q8_0, 256, 96), 3, 2);
    expect_case(mm_spec(PLEC_FORMAT_MXFP4, PLEC_FORMAT_NVFP4, PLEC_FORMAT_BF16, 96, 96), 10, 2);
    expect_case(mm_spec(PLEC_FORMAT_F32, PLEC_FORMAT_Q4_0, PLEC_FORMAT_MXFP8, 96, 64), 3, 2);
    expect_case(mm_spec(PLEC_FORMAT_GGUF_Q5_0, PLEC_FORMAT_BF16, PLEC_FORMAT_F32, 64, 96), 3, 2);
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
    Bank bank(spec);
    PackedBank uploaded(&cuda, bank.get());
    Step step = make_step(bank.get(), 4, 2, 7);
    std::vector<float> clean = run_with_canary(&cuda, uploaded.get(), step);
    std::fill(step.x.begin() + 256, step.x.begin() + 512, NAN);
    std::vector<float> got = run_with_canary(&cuda, uploaded.get(), step);
    for (size_t i = 0; i < got.size(); i++)
        if (i / 256 == 1)
            EXPECT_TRUE(std::isnan(got[i])) << i;
        else
            EXPECT_EQ(got[i], clean[i]) << i;
}

/* A scale byte of 255 is NaN: it spoils its own row, whatever the tokens hold. */
TEST(CudaMmSync, MakesNanOfTheRowOfANanScale) {
    BankSpec spec = mm_spec(PLEC_FORMAT_BF16, PLEC_FORMAT_BF16, PLEC_FORMAT_MXFP4, 64, 64);
    spec.n_entries = 1;
    MmDevice cuda;
    Bank bank(spec);
    const_cast<uint8_t *>(bank.get()->entries[0].scales[PLEC_DOWN])[2 * 10 + 1] = 255;
    UploadedBank uploaded(&cuda, bank.get());
    std::vector<float> got = run_with_canary(&cuda, uploaded.get(), make_step(bank.get(), 2, 1, 7));
    for (size_t i = 0; i < got.size(); i++)
        EXPECT_EQ(std::isnan(got[i]), i % 64 == 10) << i;
}

/* Tokens from 2^-40 to 2^30 in one launch: what is staged has the range of bf16. */
TEST(CudaMmSync, KeepsTheRangeOfItsTokens) {
    for (uint16_t format : {PLEC_FORMAT_Q4_0, PLEC_FORMAT_MXFP4, PLEC_FORMAT_NVFP4}) {
        BankSpec spec = mm_spec(format, format, format, 64, 64);
        spec.n_entries = 1;
        set_maths(&spec, PLEC_RELU);
        Bank bank(spec);
        Step step = make_step(bank.get(), 3, 1, 7);
        for (size_t i = 0; i < step.x.size(); i++)
            step.x[i] = std::ldexp(step.x[i], i < 64 ? -15 : i < 128 ? 0 : 15);
        MmDevice cuda;
        PackedBank uploaded(&cuda, bank.get());
        std::vector<float> got = run_with_canary(&cuda, uploaded.get(), step);
        expect_elements(got, reference_step(bank.get(), step, PLEC_REFERENCE_BF16), 64);
    }
}

TEST(CudaMmSync, MakesInPartsWhatItMakesAtOnce) {
    BankSpec spec = mm_spec(PLEC_FORMAT_Q4_0, PLEC_FORMAT_Q8_0, PLEC_FORMAT_Q6_K, 64, 256);
    spec.n_entries = 5;
    MmDevice cuda;
    Bank bank(spec);
    PackedBank uploaded(&cuda, bank.get());
    Step step = make_step(bank.get(), 13, 2, 7);
    std::vector<float> at_once = CudaLaunch(&cuda, uploaded.get(), step).run();
    CudaLaunch parts(&cuda, uploaded.get(), step);
    parts.phase(PLEC_EXPERTS_BEGIN);
    parts.phase(PLEC_EXPERTS_PART, {3, 0});
    parts.phase(PLEC_EXPERTS_PART, {4, 1, 2});
    parts.phase(PLEC_EXPERTS_FINISH);
    std::vector<float> got = parts.y();
    EXPECT_EQ(memcmp(got.data(), at_once.data(), got.size() * sizeof got[0]), 0);
}

} // namespace
