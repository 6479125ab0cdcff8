// mm_wg over a covering sample of formats, layouts, activations, shapes and tokens.
#include "tests/support/mm_cover.h"

namespace {

using namespace plec_test;

class CudaMmWgSlow : public testing::Test {
  protected:
    void SetUp() override {
        if (!mm_runs_on(small_spec(0, 1), "L mm_wg")) GTEST_SKIP() << "no wgmma on this device";
    }
};

/* One expert has all rows: small ones in tiles of every width in turn, large ones in one of 65.
 * Sides of 2880 and 2944 stand beside short ones alone: 65 tokens of more are minutes of emulation.
 * Thousands of activations are rounded to bf16 in each case: with this seed one that rules its
 * token lies in the middle of two, and kernel and reference round it apart (mm_ties.h). */
TEST_F(CudaMmWgSlow, CoversEveryPairOfFormatLayoutActivationAndShape) {
    MmCover cover({32, 96, 672, 704, 2880, 2944}, {5e-6, 704 * 704});
    ASSERT_TRUE(cover.is_whole());
    const uint32_t n_tokens[] = {65, 100, 96, 128, 129}, seed = 7;
    for (size_t i = 0; i < cover.cases().size(); i++) {
        SCOPED_TRACE(cover.name(i));
        BankSpec spec = cover.spec(i);
        spec.n_entries = 1;
        EXPECT_TRUE(mm_runs_on(spec, "L mm_wg"));
        bool large = spec.input_dim * spec.intermediate_dim > 1 << 17;
        Bank bank(spec);
        expect_case(spec, make_step(bank.get(), large ? 65 : n_tokens[i % 5], 1, seed));
    }
}

/* Two slots of two experts: each has a row of every token. */
TEST_F(CudaMmWgSlow, TakesEveryNumberOfRows) {
    for_each_token_count(64, [](uint32_t turn, uint32_t n_tokens) {
        expect_case(small_spec(turn, 2), n_tokens, 2);
    });
}

/* A slot of every token is the last expert's; the other one's experts have a row or two, or none.
 */
TEST_F(CudaMmWgSlow, TakesEveryNumberOfExperts) {
    for_each_expert_count([](size_t turn, uint32_t n_entries) {
        BankSpec spec = small_spec(turn, n_entries);
        Bank bank(spec);
        Step step = make_step(bank.get(), 67, 2, 7);
        for (size_t i = 0; i < step.ids.size(); i += 2)
            step.ids[i] = static_cast<int32_t>(n_entries - 1);
        expect_case(spec, step);
    });
}

} // namespace
