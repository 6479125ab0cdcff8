// mm_wg over a covering sample of formats, layouts, activations, shapes and tokens.
#include "tests/support/mm_cover.h"

namespace {

using namespace plec_test;

/* One expert has all rows, in tiles of every width in turn. Ten thousand activations are rounded to
 * bf16 in each case: with this seed one that rules its token lies in the middle of two, and kernel
 * and reference round it apart (mm_ties.h). */
TEST(CudaMmWgSlow, CoversEveryPairOfFormatLayoutActivationAndShape) {
    MmCover cover({96, 160, 352});
    ASSERT_TRUE(cover.is_whole());
    const uint32_t n_tokens[] = {65, 100, 96, 128, 129}, seed = 7;
    for (size_t i = 0; i < cover.cases().size(); i++) {
        SCOPED_TRACE(cover.name(i));
        BankSpec spec = cover.spec(i);
        spec.n_entries = 1;
        Bank bank(spec);
        expect_case(spec, make_step(bank.get(), n_tokens[i % 5], 1, seed));
    }
}

/* Two slots of two experts: each has a row of every token. */
TEST(CudaMmWgSlow, TakesEveryNumberOfRows) {
    for (uint32_t n_tokens = 64; n_tokens <= 131; n_tokens++) {
        uint32_t t = n_tokens == 131 ? 512 : n_tokens;
        SCOPED_TRACE(std::to_string(t) + " tokens");
        expect_case(small_spec(n_tokens, 2), t, 2);
    }
}

/* Large sides, each of them long in one matrix. */
TEST(CudaMmWgSlow, TakesLargeMatrices) {
    const struct {
        int format;
        uint32_t h, n;
    } cases[] = {{PLEC_FORMAT_MXFP4, 2880, 96}, {PLEC_FORMAT_Q4_0, 704, 672},
                 {PLEC_FORMAT_BF16, 96, 2944},  {PLEC_FORMAT_Q4_K, 2816, 32},
                 {PLEC_FORMAT_Q6_K, 768, 704},  {PLEC_FORMAT_Q8_0, 672, 704}};
    for (const auto &c : cases) {
        BankSpec spec = mm_spec(c.format, c.format, c.format, c.h, c.n);
        spec.n_entries = 1;
        SCOPED_TRACE(plec_format_find(static_cast<uint16_t>(c.format))->name);
        expect_case(spec, 70, 1);
    }
}

} // namespace
