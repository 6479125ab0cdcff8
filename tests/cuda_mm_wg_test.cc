// The mm_wg kernels of every format against the reference that rounds where they do.
#ifndef PLEC_ON_GPU
#include "tests/emu/emulator.h"
#endif
#include "device/cuda/table.h"
#include "tests/support/mm_cases.h"

namespace {

using namespace plec_test;

const enum plec_fusion FUSIONS[] = {PLEC_NOT_FUSED, PLEC_FUSED_GATE_FIRST, PLEC_FUSED_UP_FIRST,
                                    PLEC_FUSED_INTERLEAVED};

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

/* Every format with every layout, every activation with every layout, over its formats; a tile of
 * every width that there is. */
TEST_P(CudaMmWgFormats, EqualsTheReferenceInEveryLayout) {
    size_t f = GetParam();
    int format = MM_FORMATS[f];
    const uint32_t n_tokens[] = {66, 97, 128, 131};
    for (size_t layout = 0; layout < 4; layout++) {
        size_t turn = f + layout * 7;
        BankSpec spec =
            mm_spec(format, format, format, turn % 3 == 0 ? 96 : 32, turn % 2 ? 40 : 96);
        spec.fusion = FUSIONS[layout];
        set_maths(&spec, static_cast<int>((f + 2 * layout) % PLEC_N_ACTIVATIONS));
        spec.bias = turn % 2 ? PLEC_FORMAT_F32 : turn % 5 == 0 ? PLEC_FORMAT_BF16 : -1;
        spec.scales = turn % 3 == 1;
        spec.n_entries = 1;
        Bank bank(spec);
        Step step = make_step(bank.get(), n_tokens[layout], 1, static_cast<uint32_t>(turn));
        step.weight_on_input = turn % 4 == 3;
        if (turn % 4 == 2) step.y = Random(5).normals(size_t(step.n_tokens) * spec.output_dim);
        SCOPED_TRACE("layout " + std::to_string(layout));
        expect_case(spec, step);
    }
}

/* Several steps of every format, the last of them cut short. */
TEST_P(CudaMmWgFormats, TakesLongRowsInSteps) {
    int format = MM_FORMATS[GetParam()];
    BankSpec spec = mm_spec(format, format, format, 32, 32);
    spec.input_dim = whole_blocks(format, 1120);
    spec.output_dim = 40, spec.intermediate_dim = 24;
    spec.down_cols = whole_blocks(format, 24);
    spec.n_entries = 1;
    expect_case(spec, 65, 1);
}

std::string mm_name(const testing::TestParamInfo<size_t> &test) {
    return plec_format_find(MM_FORMATS[test.param])->name;
}
INSTANTIATE_TEST_SUITE_P(, CudaMmWgFormats, testing::Range<size_t>(0, N_MM_FORMATS), mm_name);

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

/* The emulated device has 4 processors, so 32 blocks are launched: each takes several tiles, of
 * experts of two tiles and more. */
TEST_F(CudaMmWg, WorksThroughMoreTilesThanBlocks) {
    BankSpec spec = mm_spec(PLEC_FORMAT_MXFP4, PLEC_FORMAT_MXFP4, PLEC_FORMAT_Q4_0, 96, 320);
    spec.n_entries = 8;
    Bank bank(spec);
    expect_case(spec, step_with_rows(bank.get(), {65, 66, 67, 130, 65, 65, 80, 65}));
}

#ifndef PLEC_ON_GPU
/* Odd seeds complete copies as late as they may be. */
TEST_F(CudaMmWg, HoldsInAnyOrderOfThreadsBlocksAndCopies) {
    const struct {
        enum plec_emu_schedule schedule;
        uint64_t seed;
        int format;
    } orders[] = {{PLEC_EMU_LIFO, 1, PLEC_FORMAT_Q4_K},
                  {PLEC_EMU_PCT, 3, PLEC_FORMAT_Q8_0},
                  {PLEC_EMU_RANDOM, 5, PLEC_FORMAT_BF16},
                  {PLEC_EMU_PCT, 8, PLEC_FORMAT_GGUF_Q2_K}};
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
    const int mixes[][3] = {{PLEC_FORMAT_Q4_K, PLEC_FORMAT_Q6_K, PLEC_FORMAT_Q8_0},
                            {PLEC_FORMAT_MXFP4, PLEC_FORMAT_NVFP4, PLEC_FORMAT_BF16},
                            {PLEC_FORMAT_F32, PLEC_FORMAT_Q4_0, PLEC_FORMAT_MXFP8},
                            {PLEC_FORMAT_GGUF_Q5_0, PLEC_FORMAT_BF16, PLEC_FORMAT_F32}};
    for (const int *mix : mixes) {
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
    Bank bank(spec);
    PackedBank uploaded(&cuda, bank.get());
    Step step = make_step(bank.get(), 66, 1, 7);
    std::vector<float> clean = run_with_canary(&cuda, uploaded.get(), step);
    std::fill(step.x.begin() + 65 * 256, step.x.end(), NAN);
    std::vector<float> got = run_with_canary(&cuda, uploaded.get(), step);
    for (size_t i = 0; i < got.size(); i++)
        if (i / 256 == 65)
            EXPECT_TRUE(std::isnan(got[i])) << i;
        else
            EXPECT_EQ(got[i], clean[i]) << i;
}

/* A scale byte of 255 is NaN: it spoils its own row, whatever the tokens hold. */
TEST_F(CudaMmWg, MakesNanOfTheRowOfANanScale) {
    BankSpec spec = mm_spec(PLEC_FORMAT_BF16, PLEC_FORMAT_BF16, PLEC_FORMAT_MXFP4, 64, 64);
    spec.n_entries = 1;
    CudaDevice cuda;
    Bank bank(spec);
    const_cast<uint8_t *>(bank.get()->entries[0].scales[PLEC_DOWN])[2 * 10 + 1] = 255;
    UploadedBank uploaded(&cuda, bank.get());
    std::vector<float> got =
        run_with_canary(&cuda, uploaded.get(), make_step(bank.get(), 66, 1, 7));
    for (size_t i = 0; i < got.size(); i++)
        EXPECT_EQ(std::isnan(got[i]), i % 64 == 10) << i;
}

/* Tokens from 2^-15 to 2^15 in one launch, in every way in which scales come in. */
TEST_F(CudaMmWg, KeepsTheRangeOfItsTokens) {
    for (uint16_t format : {PLEC_FORMAT_Q4_0, PLEC_FORMAT_MXFP4, PLEC_FORMAT_NVFP4,
                            PLEC_FORMAT_FP4_LARQL, PLEC_FORMAT_GGUF_Q2_K}) {
        BankSpec spec = mm_spec(format, format, format, 64, 64);
        spec.n_entries = 1;
        set_maths(&spec, PLEC_RELU);
        Bank bank(spec);
        Step step = make_step(bank.get(), 66, 1, 7);
        size_t n = spec.input_dim;
        for (size_t i = 0; i < step.x.size(); i++)
            step.x[i] = std::ldexp(step.x[i], i / n % 3 == 0 ? -15 : i / n % 3 == 1 ? 0 : 15);
        CudaDevice cuda;
        PackedBank uploaded(&cuda, bank.get());
        std::vector<float> got = run_with_canary(&cuda, uploaded.get(), step);
        expect_elements(got, reference_step(bank.get(), step, PLEC_REFERENCE_BF16),
                        spec.output_dim);
    }
}

TEST_F(CudaMmWg, MakesInPartsWhatItMakesAtOnce) {
    BankSpec spec = mm_spec(PLEC_FORMAT_Q4_0, PLEC_FORMAT_Q8_0, PLEC_FORMAT_Q6_K, 64, 256);
    spec.n_entries = 3;
    CudaDevice cuda;
    Bank bank(spec);
    PackedBank uploaded(&cuda, bank.get());
    Step step = step_with_rows(bank.get(), {70, 5, 130});
    std::vector<float> at_once = CudaLaunch(&cuda, uploaded.get(), step).run();
    CudaLaunch parts(&cuda, uploaded.get(), step);
    parts.phase(PLEC_EXPERTS_BEGIN);
    parts.phase(PLEC_EXPERTS_PART, {2});
    parts.phase(PLEC_EXPERTS_PART, {1, 0});
    parts.phase(PLEC_EXPERTS_FINISH);
    std::vector<float> got = parts.y();
    EXPECT_EQ(memcmp(got.data(), at_once.data(), got.size() * sizeof got[0]), 0);
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
