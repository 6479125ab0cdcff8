// The kernels of f32 experts against the reference: nothing is rounded but the sums.
#ifndef PLEC_ON_GPU
#include "tests/emu/emulator.h"
#endif
#include "tests/support/mm_cases.h"

namespace {

using namespace plec_test;

const int F32 = PLEC_FORMAT_F32;
const double SUMS_ALONE = 1e-12; /* NMSE of f32 sums of a few thousand products */

BankSpec f32_spec(uint32_t h, uint32_t n) {
    return mm_spec(F32, F32, F32, h, n);
}

std::vector<float> run(const struct plec_bank *bank, const Step &step) {
    CudaDevice cuda;
    PackedBank uploaded(&cuda, bank);
    char name[PLEC_KERNEL_NAME_MAX];
    EXPECT_STREQ(plec_device_operand_kernel(cuda.device, bank, PLEC_DOWN, name), "mm_fma");
    std::vector<float> got = run_with_canary(&cuda, uploaded.get(), step);
    std::vector<float> again = run_with_canary(&cuda, uploaded.get(), step);
    EXPECT_EQ(memcmp(got.data(), again.data(), got.size() * sizeof got[0]), 0);
    return got;
}

void expect_exact_but_for_sums(const struct plec_bank *bank, const Step &step) {
    EXPECT_LT(nmse(run(bank, step), reference_step(bank, step)), SUMS_ALONE);
}

void expect_exact_but_for_sums(const BankSpec &spec, uint32_t n_tokens, uint32_t n_slots) {
    Bank bank(spec);
    expect_exact_but_for_sums(bank.get(), make_step(bank.get(), n_tokens, n_slots, 7));
}

TEST(CudaMmFma, IsWhatF32RunsOn) {
    CudaDevice cuda;
    char name[PLEC_KERNEL_NAME_MAX];
    EXPECT_STREQ(plec_device_kernel_name(cuda.device, PLEC_FORMAT_F32, name), "mm_fma");
}

/* Sizes that are no multiple of a tile; biases, scales, weights on the input and accumulation in
 * turn. */
TEST(CudaMmFma, EqualsTheReferenceInEveryLayoutAndActivation) {
    for (int turn = 0; turn < 4 * PLEC_N_ACTIVATIONS; turn++) {
        BankSpec spec = f32_spec(turn % 3 == 0 ? 96 : 40, turn % 2 ? 44 : 72);
        spec.fusion = static_cast<enum plec_fusion>(turn % 4);
        set_maths(&spec, turn / 4);
        spec.bias = turn % 2 ? int(PLEC_FORMAT_F32) : turn % 5 == 0 ? int(PLEC_FORMAT_BF16) : -1;
        spec.scales = turn % 3 == 1;
        spec.n_entries = 3;
        Bank bank(spec);
        Step step = make_step(bank.get(), turn % 4 == 1 ? 11 : 3, 2, static_cast<uint32_t>(turn));
        step.weight_on_input = turn % 4 == 3;
        if (turn % 4 == 2) step.y = Random(5).normals(size_t(step.n_tokens) * spec.output_dim);
        SCOPED_TRACE("turn " + std::to_string(turn));
        expect_exact_but_for_sums(bank.get(), step);
    }
}

TEST(CudaMmFma, TakesAnyNumberOfColumns) {
    for (uint32_t h : {1u, 3u, 4u, 31u, 33u, 64u, 129u, 1184u}) {
        SCOPED_TRACE(std::to_string(h) + " columns");
        expect_exact_but_for_sums(f32_spec(h, h == 1184 ? 24 : h + 2), 3, 1);
    }
}

/* What pads a row of down is multiplied by nothing, whatever it is. */
TEST(CudaMmFma, NeverReadsThePaddingOfDown) {
    for (uint32_t padding : {1u, 4u, 32u}) {
        BankSpec spec = f32_spec(40, 36);
        spec.down_cols = 36 + padding;
        spec.n_entries = 1;
        Bank bank(spec);
        auto *down = reinterpret_cast<float *>(
            const_cast<uint8_t *>(bank.get()->entries[0].values[PLEC_DOWN]));
        for (uint32_t row = 0; row < 40; row++)
            std::fill_n(down + row * spec.down_cols + 36, padding, NAN);
        expect_exact_but_for_sums(bank.get(), make_step(bank.get(), 3, 1, 7));
    }
}

/* Experts in memory that is aligned to nothing. */
TEST(CudaMmFma, ReadsWeightsAtAnyAddress) {
    BankSpec spec = f32_spec(64, 96);
    spec.n_entries = 2;
    Bank bank(spec);
    Step step = make_step(bank.get(), 10, 2, 7);
    std::vector<float> wanted = run(bank.get(), step);
    for (size_t off : {1u, 4u, 8u}) {
        CudaDevice cuda;
        UploadedBank uploaded(&cuda, bank.get());
        for (int e = 0; e < 2; e++) {
            const uint8_t *up = bank.get()->entries[e].values[PLEC_UP];
            std::vector<uint8_t> moved(off);
            moved.insert(moved.end(), up, up + 64 * 96 * 4);
            uploaded.entries()[e].values[PLEC_UP] = cuda.upload(moved) + off;
        }
        std::vector<float> got = run_with_canary(&cuda, uploaded.get(), step);
        EXPECT_EQ(memcmp(got.data(), wanted.data(), got.size() * sizeof got[0]), 0) << off;
    }
}

TEST(CudaMmFma, TakesAnyNumberOfRowsOfAnExpert) {
    for (uint32_t n : {1u, 7u, 8u, 9u, 16u, 31u, 33u, 65u}) {
        BankSpec spec = f32_spec(32, 40);
        spec.n_entries = 2;
        SCOPED_TRACE(std::to_string(n) + " rows");
        expect_exact_but_for_sums(spec, n, 1);
        expect_exact_but_for_sums(spec, n, 2);
    }
}

/* Few outputs of many columns: down is split over 4 blocks. */
TEST(CudaMmFma, SplitsTheColumnsOfANarrowDown) {
    BankSpec spec = f32_spec(32, 2080);
    spec.output_dim = 40;
    spec.bias = PLEC_FORMAT_F32;
    expect_exact_but_for_sums(spec, 3, 2);
}

TEST(CudaMmFma, WorksWithoutAGateAndBesideOtherFormats) {
    BankSpec spec = mm_spec(-1, F32, F32, 64, 96);
    set_maths(&spec, PLEC_RELU_SQR);
    expect_exact_but_for_sums(spec, 4, 2);
    expect_case(mm_spec(F32, PLEC_FORMAT_Q4_0, PLEC_FORMAT_MXFP8, 96, 64), 3, 2);
    expect_case(mm_spec(PLEC_FORMAT_GGUF_Q5_0, F32, F32, 64, 96), 10, 2);
}

/* A token's output does not depend on its neighbours, nor on the width of its tile. */
TEST(CudaMmFma, GivesATokenTheSameBitsAloneAndAmongMany) {
    BankSpec spec = f32_spec(96, 1056);
    spec.n_entries = 1;
    Bank bank(spec);
    Step many = make_step(bank.get(), 21, 1, 7);
    std::vector<float> all = run(bank.get(), many);
    for (size_t t : {size_t(0), size_t(12), size_t(20)}) {
        Step one = many;
        one.n_tokens = 1;
        one.ids = {many.ids[t]}, one.weights = {many.weights[t]};
        one.x.assign(many.x.begin() + t * 96, many.x.begin() + (t + 1) * 96);
        std::vector<float> alone = run(bank.get(), one);
        EXPECT_EQ(memcmp(alone.data(), &all[t * 96], 96 * sizeof(float)), 0) << t;
    }
}

#ifndef PLEC_ON_GPU
/* Odd seeds complete copies as late as they may be. */
TEST(CudaMmFma, HoldsInAnyOrderOfThreadsBlocksAndCopies) {
    const struct {
        enum plec_emu_schedule schedule;
        uint64_t seed;
    } orders[] = {{PLEC_EMU_LIFO, 1}, {PLEC_EMU_PCT, 3}, {PLEC_EMU_RANDOM, 5}};
    for (const auto &order : orders) {
        plec_emu_set_schedule(order.schedule, order.seed);
        for (uint32_t h : {416u, 417u}) { /* by sixteens, and by bytes */
            BankSpec spec = f32_spec(h, 72);
            spec.n_entries = 3;
            expect_exact_but_for_sums(spec, 13, 2);
        }
    }
    plec_emu_set_schedule(PLEC_EMU_FIFO, 0);
}
#endif

} // namespace
