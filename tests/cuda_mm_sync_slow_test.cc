// mm_sync over a covering sample of formats, layouts, activations, shapes, tokens and experts.
#include "tests/support/mm_cover.h"

namespace {

using namespace plec_test;

const int32_t MOST_RUNG = mm_most_rung() = PLEC_CUDA_MM_SYNC;

TEST(CudaMmSyncSlow, CoversEveryPairOfFormatLayoutActivationAndShape) {
    MmCover cover({32, 96, 672, 704, 2880, 2944});
    ASSERT_TRUE(cover.is_whole());
    for (size_t i = 0; i < cover.cases().size(); i++) {
        SCOPED_TRACE(cover.name(i));
        expect_case(cover.spec(i), 1 + static_cast<uint32_t>(i % 2), 1);
    }
}

/* With this seed one of 73 tokens of q5_k has an activation in the middle of two bf16 (mm_ties.h).
 */
TEST(CudaMmSyncSlow, TakesEveryNumberOfTokens) {
    const uint32_t seed = 7;
    for_each_token_count(1, [=](uint32_t turn, uint32_t n_tokens) {
        BankSpec spec = small_spec(turn, 2 + turn % 7);
        Bank bank(spec); /* of its shape alone */
        expect_case(spec, make_step(bank.get(), n_tokens, 2, seed));
    });
}

TEST(CudaMmSyncSlow, TakesEveryNumberOfExperts) {
    for_each_expert_count([](size_t turn, uint32_t n_entries) {
        expect_case(small_spec(turn, n_entries), 9, n_entries < 4 ? n_entries : 4);
    });
}

} // namespace
