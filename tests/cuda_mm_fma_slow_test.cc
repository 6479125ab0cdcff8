// The kernels of f32 over a covering sample of layouts, activations, shapes, tokens and experts.
#include "tests/support/mm_cover.h"

namespace {

using namespace plec_test;

TEST(CudaMmFmaSlow, CoversEveryPairOfLayoutActivationAndShape) {
    MmCover cover({32, 96, 672, 704, 2880, 2944}, MmThrift(), {PLEC_FORMAT_F32});
    ASSERT_TRUE(cover.is_whole());
    for (size_t i = 0; i < cover.cases().size(); i++) {
        SCOPED_TRACE(cover.name(i));
        BankSpec spec = cover.spec(i);
        EXPECT_TRUE(mm_runs_on(spec, "mm_fma"));
        expect_case(spec, 1 + static_cast<uint32_t>(i % 2), 1);
    }
}

BankSpec small_f32(size_t turn, uint32_t n_entries) {
    BankSpec spec = mm_spec(PLEC_FORMAT_F32, PLEC_FORMAT_F32, PLEC_FORMAT_F32, 32, 32);
    spec.fusion = static_cast<enum plec_fusion>(turn % 4);
    spec.n_entries = n_entries;
    return spec;
}

TEST(CudaMmFmaSlow, TakesEveryNumberOfTokens) {
    for_each_token_count(1, [](uint32_t turn, uint32_t n_tokens) {
        expect_case(small_f32(turn, 2 + turn % 7), n_tokens, 2);
    });
}

TEST(CudaMmFmaSlow, TakesEveryNumberOfExperts) {
    for_each_expert_count([](size_t turn, uint32_t n_entries) {
        expect_case(small_f32(turn, n_entries), 9, n_entries < 4 ? n_entries : 4);
    });
}

} // namespace
