#include <gtest/gtest.h>

#include <cmath>

#include "lyrw/codec/round.h"
#include "tests/support/bank.h"

using namespace plec_test;

namespace {

double nmse_of(const std::vector<double> &got, const std::vector<double> &wanted) {
    double error = 0, power = 0;
    for (size_t i = 0; i < got.size(); i++) {
        error += (got[i] - wanted[i]) * (got[i] - wanted[i]);
        power += wanted[i] * wanted[i];
    }
    return error / power;
}

/* One expert of 1 x 1 matrices: y = down * relu(gate x) * up x. */
double tiny(uint16_t format, double x, enum plec_reference_rule rule, double weight,
            bool on_input) {
    const float values[] = {1.5f, 2.0f, 3.0f}; /* gate, up, down */
    uint8_t bytes[3][4];
    struct plec_entry entry = {};
    struct plec_bank bank = {};
    bank.n_entries = bank.input_dim = bank.intermediate_dim = bank.output_dim = 1;
    bank.maths.activation = PLEC_RELU;
    bank.entries = &entry;
    for (int id = 0; id < PLEC_N_MATRICES; id++) {
        uint32_t bits = plec_f32_bits(values[id]), bf16 = bits >> 16;
        memcpy(bytes[id], format == PLEC_FORMAT_F32 ? &bits : &bf16, 4);
        bank.operands[id] = {format, 1, 1};
        entry.values[id] = bytes[id];
    }
    double y = 0, scratch[16];
    struct plec_reference_expert_args args = {&bank, 0, rule, weight, on_input, &x, scratch};
    EXPECT_LE(plec_reference_expert_scratch(&bank), 16u);
    plec_reference_expert_by_rule(&y, &args);
    return y;
}

TEST(ReferenceRule, RoundsTheInputAndTheActivationOnceEach) {
    /* 1 + 2^-8 is halfway between two bf16 values and goes to the even one, 1 */
    EXPECT_EQ(tiny(PLEC_FORMAT_BF16, 1 + 0x1p-8, PLEC_REFERENCE_BF16, 1, false), 9.0);
    /* 1 + 3 * 2^-8 goes to 1 + 2^-6; gate 1.5 * 65/64, up 2 * 65/64, act = 3 * (65/64)^2 =
     * 3.0944824, between bf16 3.09375 and 3.109375 */
    EXPECT_EQ(tiny(PLEC_FORMAT_BF16, 1 + 3 * 0x1p-8, PLEC_REFERENCE_BF16, 1, false), 3 * 3.09375);
    double exact = 1 + 3 * 0x1p-8;
    EXPECT_EQ(tiny(PLEC_FORMAT_BF16, exact, PLEC_REFERENCE_EXACT, 1, false), 9 * exact * exact);
}

TEST(ReferenceRule, LeavesF32Alone) {
    for (double x : {1 + 0x1p-8, 1 + 3 * 0x1p-8, 1.234375})
        EXPECT_EQ(tiny(PLEC_FORMAT_F32, x, PLEC_REFERENCE_BF16, 0.7, false),
                  tiny(PLEC_FORMAT_F32, x, PLEC_REFERENCE_EXACT, 0.7, false));
}

TEST(ReferenceRule, PutsAWeightOnTheInputAfterItsRounding) {
    /* x rounds to 1; 1.25 * 1 and not the rounding of 1.25 + 1.25 * 2^-8 enters: act 3 * 1.25^2 =
     * 4.6875 is a bf16 value */
    EXPECT_EQ(tiny(PLEC_FORMAT_BF16, 1 + 0x1p-8, PLEC_REFERENCE_BF16, 1.25, true), 3 * 4.6875);
    EXPECT_EQ(tiny(PLEC_FORMAT_BF16, 1 + 0x1p-8, PLEC_REFERENCE_BF16, 1.25, false), 1.25 * 9);
}

TEST(ReferenceRule, StaysCloseToTheExactModeInEveryFormat) {
    size_t n_formats = 0;
    const struct plec_format *formats = plec_format_all(&n_formats);
    for (size_t i = 0; i < n_formats; i++) {
        BankSpec spec;
        spec.gate = spec.up = spec.down = formats[i].tag;
        spec.maths.activation = PLEC_SILU;
        Bank bank(spec);
        Step step = make_step(bank.get(), 3, 2, 5);
        double difference = nmse_of(reference_step(bank.get(), step, PLEC_REFERENCE_BF16),
                                    reference_step(bank.get(), step));
        EXPECT_LT(difference, 4e-5) << formats[i].name;
        if (plec_format_rounds_inputs(formats[i].tag))
            EXPECT_GT(difference, 1e-8) << formats[i].name;
        else
            EXPECT_EQ(difference, 0) << formats[i].name;
    }
}

TEST(ReferenceRule, DownRoundsByItsOwnFormat) {
    BankSpec spec;
    spec.down = PLEC_FORMAT_BF16;
    Bank bank(spec);
    Step step = make_step(bank.get(), 2, 2, 6);
    double difference = nmse_of(reference_step(bank.get(), step, PLEC_REFERENCE_BF16),
                                reference_step(bank.get(), step));
    EXPECT_GT(difference, 1e-8);
    EXPECT_LT(difference, 4e-6); /* only what the activation made is rounded */
}

/* What the rule costs layers of h channels: the mean over some, and the most. Limits are c times
 * the root mean square of what they clamp. */
struct Cost {
    double mean, most;
};
Cost cost_of(int activation, uint32_t h, double c, uint32_t n_tokens) {
    const int n = 24;
    Cost cost = {0, 0};
    for (int seed = 1; seed <= n; seed++) {
        BankSpec spec;
        spec.gate = spec.up = spec.down = PLEC_FORMAT_BF16;
        spec.input_dim = spec.intermediate_dim = spec.output_dim = h;
        spec.n_entries = 1, spec.seed = static_cast<uint32_t>(seed);
        double rms = 0.06 * std::sqrt(h);
        spec.maths = {static_cast<enum plec_activation>(activation), c * rms, 1.702, c * rms,
                      c * rms};
        Bank bank(spec);
        Step step = make_step(bank.get(), n_tokens, 1, static_cast<uint32_t>(17 * seed));
        double one = nmse_of(reference_step(bank.get(), step, PLEC_REFERENCE_BF16),
                             reference_step(bank.get(), step));
        cost.mean += one / n;
        cost.most = one > cost.most ? one : cost.most;
    }
    return cost;
}

/* A rounding to bf16 is 2.8e-6 of a number's square; x is rounded as gate and as up see it, and
 * act. Squaring the gate's value doubles its part. */
TEST(ReferenceRule, CostsThreeRoundingsOnAverageAtAnySize) {
    for (uint32_t h : {32u, 128u}) {
        Cost silu = cost_of(PLEC_SILU, h, 1, 8), square = cost_of(PLEC_RELU_SQR, h, 1, 8);
        EXPECT_NEAR(silu.mean, 8.6e-6, 1e-6) << h;
        EXPECT_NEAR(square.mean, 1.0e-5, 2e-6) << h;
    }
}

/* The allowance of 4e-5 holds every activation whose limits are of the size of what they clamp,
 * from a few hundred outputs on; of few outputs some are by chance nearly 0. */
TEST(ReferenceRule, StaysWithinTheAllowanceWhereLimitsAreNoSmallerThanValues) {
    for (int activation = 0; activation < PLEC_N_ACTIVATIONS; activation++)
        for (double c : {1.0, 1000.0})
            EXPECT_LT(cost_of(activation, 128, c, 8).most, 4e-5) << activation << " " << c;
}

/* Of what a limit far below it clamps, its side of zero is left, and that is nearly a matter of
 * chance for c of all values: the cost is theirs, in each factor 2.2e-6 / c. */
TEST(ReferenceRule, CostsMoreTheSmallerALimitIsBesideWhatItClamps) {
    for (int activation : {PLEC_CLAMPED_GATED, PLEC_SILU_STEP, PLEC_SITU_GLU}) {
        Cost tenth = cost_of(activation, 128, 0.1, 8),
             hundredth = cost_of(activation, 128, 0.01, 8);
        EXPECT_LT(tenth.mean, 1e-5 + 5e-6 / 0.1) << activation;
        EXPECT_LT(hundredth.mean, 1e-5 + 5e-6 / 0.01) << activation;
        EXPECT_GT(hundredth.mean, 4e-5) << activation;
    }
}

} // namespace
