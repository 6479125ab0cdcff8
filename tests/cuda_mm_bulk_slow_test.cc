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
    for (uint32_t n_tokens = 1; n_tokens <= 131; n_tokens++) {
        uint32_t t = n_tokens == 131 ? 512 : n_tokens;
        SCOPED_TRACE(std::to_string(t) + " tokens");
        expect_case(small_spec(n_tokens, 2 + t / 2), t, 2);
    }
}

TEST_F(CudaMmBulkSlow, TakesEveryNumberOfExperts) {
    size_t turn = 3;
    for (uint32_t n_entries : MM_EXPERT_COUNTS) {
        SCOPED_TRACE(std::to_string(n_entries) + " experts");
        expect_case(small_spec(turn++, n_entries), 2, n_entries < 4 ? n_entries : 4);
    }
}

} // namespace
