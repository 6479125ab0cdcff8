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
    for (uint32_t n_tokens = 1; n_tokens <= 131; n_tokens++) {
        uint32_t t = n_tokens == 131 ? 512 : n_tokens;
        SCOPED_TRACE(std::to_string(t) + " tokens");
        expect_case(small_f32(n_tokens, 2 + n_tokens % 7), t, 2);
    }
}

TEST(CudaMmFmaSlow, TakesEveryNumberOfExperts) {
    size_t turn = 0;
    for (uint32_t n_entries : MM_EXPERT_COUNTS) {
        SCOPED_TRACE(std::to_string(n_entries) + " experts");
        expect_case(small_f32(turn++, n_entries), 9, n_entries < 4 ? n_entries : 4);
    }
}

} // namespace
