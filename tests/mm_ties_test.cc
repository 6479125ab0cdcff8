/* Which activations a kernel may round to either side: those that f32 cannot tell from the middle
 * between two bf16, and no other. */
#include "tests/support/mm_ties.h"

#include "tests/support/data.h"

namespace {

using namespace plec_test;

const double CLOSE = 1e-7;

/* Experts of few activations, so that each of them counts. */
BankSpec small(int format, uint32_t n_channels) {
    BankSpec spec;
    spec.n_entries = 2;
    spec.input_dim = 64, spec.intermediate_dim = n_channels, spec.output_dim = 16;
    spec.gate = spec.up = format, spec.down = PLEC_FORMAT_BF16;
    spec.bias = PLEC_FORMAT_F32;
    spec.scales = true;
    return spec;
}

std::vector<float> with(const std::vector<double> &wanted, size_t token,
                        const std::vector<double> &change) {
    std::vector<float> got(wanted.begin(), wanted.end());
    for (size_t i = 0; i < change.size(); i++)
        got[token * change.size() + i] =
            static_cast<float>(wanted[token * change.size() + i] + change[i]);
    return got;
}

/* Each activation in turn, rounded to the wrong side. */
void round_each_apart(int format, uint32_t seed, int *n_ties, int *n_wrong) {
    Bank bank(small(format, 4));
    Step step = make_step(bank.get(), 4, 2, seed);
    std::vector<double> wanted = reference_step(bank.get(), step, PLEC_REFERENCE_BF16);
    MmTies ties(bank.get(), step);
    for (size_t t = 0; t < step.n_tokens; t++)
        for (uint32_t i = 0; i < 2 * 4 * 2; i++) {
            uint32_t slot = i / 8, channel = i / 2 % 4;
            int side = i % 2 ? 1 : -1;
            std::vector<float> got = with(wanted, t, ties.change(t, slot, channel, side));
            if (nmse(got, wanted) < CLOSE) continue; /* of no weight */
            bool held = nmse(got, ties.nearest(got, wanted)) < CLOSE;
            bool is_tie = ties.is_tie(t, slot, channel, side);
            EXPECT_EQ(held, is_tie) << t << " " << slot << " " << channel << " " << side;
            ++*(is_tie ? n_ties : n_wrong);
        }
}

TEST(MmTies, LeaveAnActivationThatIsNoneWrong) {
    int n_ties = 0, n_wrong = 0;
    for (int format : {PLEC_FORMAT_BF16, PLEC_FORMAT_Q8_0, PLEC_FORMAT_MXFP4})
        for (uint32_t seed = 1; seed <= 20; seed++)
            round_each_apart(format, seed, &n_ties, &n_wrong);
    EXPECT_GT(n_wrong, 500);
    EXPECT_GT(n_ties, 0);
    EXPECT_LT(n_ties, n_wrong / 20);
    RecordProperty("ties", n_ties);
    RecordProperty("others", n_wrong);
}

/* Channel 0 is relu(x0 + x1), the others nothing; each output is it, and its weight. */
struct OneSum {
    explicit OneSum(float second) : bank(spec()) {
        const struct plec_entry &entry = bank.get()->entries[0];
        fill(entry.values[PLEC_UP], 4 * 64, {0, 1});
        fill(entry.values[PLEC_DOWN], 16 * 4, {0, 4, 8, 12, 16, 20, 24, 28});
        step = make_step(bank.get(), 1, 1, 3);
        step.ids = {0}, step.weights = {1};
        step.x.assign(64, 0.0f);
        step.x[0] = 1, step.x[1] = second;
        wanted = reference_step(bank.get(), step, PLEC_REFERENCE_BF16);
    }
    /* Ones in the places named of a bf16 matrix of n values, zeros elsewhere. */
    static void fill(const uint8_t *values, size_t n, const std::vector<size_t> &ones) {
        uint8_t *to = const_cast<uint8_t *>(values);
        memset(to, 0, n * 2);
        for (size_t at : ones)
            to[2 * at] = 0x80, to[2 * at + 1] = 0x3F;
    }
    static BankSpec spec() {
        BankSpec spec = small(PLEC_FORMAT_BF16, 4);
        spec.n_entries = 1, spec.gate = -1, spec.bias = -1, spec.scales = false;
        spec.maths.activation = PLEC_RELU;
        return spec;
    }
    double off(const std::vector<float> &got) const {
        return nmse(got, MmTies(bank.get(), step).nearest(got, wanted));
    }

    Bank bank;
    Step step;
    std::vector<double> wanted;
};

TEST(MmTies, MayBeRoundedToEitherSide) {
    OneSum tie(0x1p-8f); /* in the middle of 1 and 1 + 2^-7 */
    ASSERT_EQ(tie.wanted[0], 1.0);
    std::vector<float> up =
        with(tie.wanted, 0, MmTies(tie.bank.get(), tie.step).change(0, 0, 0, 1));
    ASSERT_EQ(up[7], 1.0f + 0x1p-7f);
    EXPECT_GT(nmse(up, tie.wanted), CLOSE);
    EXPECT_LT(tie.off(up), CLOSE);
    EXPECT_LT(tie.off(with(tie.wanted, 0, {})), CLOSE);
}

TEST(MmTies, AreWithinWhatF32RoundsOff) {
    for (float beside : {0x1p-12f, -0x1p-12f, 0x1p-14f, -0x1p-14f}) {
        OneSum sum(0x1p-8f + beside); /* x is a bf16 of 8 bits: 2^-8 + 2^-14 is one */
        int wrong = beside > 0 ? -1 : 1;
        std::vector<float> got =
            with(sum.wanted, 0, MmTies(sum.bank.get(), sum.step).change(0, 0, 0, wrong));
        EXPECT_GT(sum.off(got), 1e-6) << beside;
    }
}

/* Errors that no rounding of the tie makes are held as they were. */
TEST(MmTies, ExplainNoOtherError) {
    OneSum tie(0x1p-8f);
    std::vector<float> got = with(tie.wanted, 0, {});
    got[3] += 0x1p-7f;
    EXPECT_GT(tie.off(got), 1e-6);
    got = with(tie.wanted, 0, MmTies(tie.bank.get(), tie.step).change(0, 0, 0, 1));
    got[3] = 1.0f;
    EXPECT_GT(tie.off(got), 1e-6);
    got.assign(got.size(), NAN);
    EXPECT_FALSE(tie.off(got) < CLOSE);
}

} // namespace
