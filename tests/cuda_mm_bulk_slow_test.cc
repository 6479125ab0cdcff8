// mm_bulk over a covering sample of formats, layouts, activations, shapes, tokens and experts.
#include "tests/support/mm_cover.h"

namespace {

using namespace plec_test;

const int32_t MOST_RUNG = mm_most_rung() = PLEC_CUDA_MM_BULK;

class CudaMmBulkSlow : public testing::Test {
  protected:
    void SetUp() override {
        if (!mm_runs_on(small_spec(0, 1), "mm_bulk")) GTEST_SKIP() << "no bulk copies here";
    }
};

TEST_F(CudaMmBulkSlow, CoversEveryPairOfFormatLayoutActivationAndShape) {
    MmCover cover({32, 96, 672, 704, 2880, 2944});
    ASSERT_TRUE(cover.is_whole());
    for (size_t i = 0; i < cover.cases().size(); i++) {
        SCOPED_TRACE(cover.name(i));
        BankSpec spec = cover.spec(i);
        EXPECT_TRUE(mm_runs_on(spec, "mm_bulk"));
        expect_case(spec, 1 + static_cast<uint32_t>(i % 2), 1);
    }
}

/* So many experts that most have eight rows and fewer. */
TEST_F(CudaMmBulkSlow, TakesEveryNumberOfTokens) {
    for_each_token_count(1, [](uint32_t turn, uint32_t n_tokens) {
        expect_case(small_spec(turn, 2 + n_tokens / 2), n_tokens, 2);
    });
}

TEST_F(CudaMmBulkSlow, TakesEveryNumberOfExperts) {
    for_each_expert_count([](size_t turn, uint32_t n_entries) {
        expect_case(small_spec(3 + turn, n_entries), 2, n_entries < 4 ? n_entries : 4);
    });
}

} // namespace
