#include "tests/support/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

using namespace plec_test;

namespace {

const Doubles X5 = {0.9, -1.1, 0.4, 2.0, -0.3};

TEST(ReferenceCombine, EachActivationIsItsFormula) {
    for (double g : {-20.0, -1.5, -0.2, 0.0, 0.3, 0.7, 1.9, 20.0}) {
        for (double u : {-20.0, -0.5, 0.0, 0.6, 20.0}) {
            double silu = g * sigmoid(g), low = std::min(g, 0.8);
            double inside = std::max(-0.8, std::min(u, 0.8));
            double wanted[PLEC_N_ACTIVATIONS] = {
                silu * u,
                0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g))) * u,
                0.5 * g * (1 + std::erf(g / std::sqrt(2))) * u,
                std::max(g, 0.0) * u,
                std::max(g, 0.0) * std::max(g, 0.0) * u,
                low * sigmoid(1.702 * low) * (inside + 1),
                low * sigmoid(low) * inside,
                1.5 * std::tanh(g / 1.5) * sigmoid(g) * 2.5 * std::tanh(u / 2.5),
                std::min(silu, 0.8) * inside,
            };
            for (int a = 0; a < PLEC_N_ACTIVATIONS; a++) {
                plec_expert_maths maths = maths_of(a);
                double got = plec_reference_combine(&maths, true, g, u);
                EXPECT_NEAR(got, wanted[a], 1e-14 * (1 + std::fabs(wanted[a])))
                    << plec_activation_name(maths.activation) << " g=" << g << " u=" << u;
            }
        }
    }
}

TEST(ReferenceCombine, WithoutAGateTheFunctionActsOnUp) {
    for (double u : {-20.0, -0.7, 0.0, 0.3, 1.4, 20.0}) {
        double low = std::min(u, 0.8), gelu = std::sqrt(2 / M_PI) * (u + 0.044715 * u * u * u);
        double wanted[PLEC_N_ACTIVATIONS] = {
            u * sigmoid(u),
            0.5 * u * (1 + std::tanh(gelu)),
            0.5 * u * (1 + std::erf(u / std::sqrt(2))),
            std::max(u, 0.0),
            std::max(u, 0.0) * std::max(u, 0.0),
            low * sigmoid(1.702 * low),
            low * sigmoid(low),
            1.5 * std::tanh(u / 1.5) * sigmoid(u),
            std::min(u * sigmoid(u), 0.8),
        };
        for (int a = 0; a < PLEC_N_ACTIVATIONS; a++) {
            plec_expert_maths maths = maths_of(a);
            EXPECT_NEAR(plec_reference_combine(&maths, false, NOT_A_NUMBER, u), wanted[a],
                        1e-14 * (1 + std::fabs(wanted[a])))
                << plec_activation_name(maths.activation) << " u=" << u;
        }
    }
}

TEST(ReferenceCombine, GateIsClampedOnOneSideAndUpOnBoth) {
    plec_expert_maths glu = maths_of(PLEC_CLAMPED_GLU), gated = maths_of(PLEC_CLAMPED_GATED);
    glu.limit = gated.limit = 2;
    EXPECT_DOUBLE_EQ(plec_reference_combine(&gated, true, -20, -20), -20 * sigmoid(-20) * -2);
    EXPECT_DOUBLE_EQ(plec_reference_combine(&gated, true, 20, 20), 2 * sigmoid(2) * 2);
    EXPECT_DOUBLE_EQ(plec_reference_combine(&glu, true, -20, -20), -20 * sigmoid(1.702 * -20) * -1);
    EXPECT_DOUBLE_EQ(plec_reference_combine(&glu, true, 20, 20), 2 * sigmoid(3.404) * 3);
}

TEST(ReferenceCombine, SiluStepClampsAfterTheActivationNotBefore) {
    plec_expert_maths step = maths_of(PLEC_SILU_STEP), gated = maths_of(PLEC_CLAMPED_GATED);
    step.limit = gated.limit = 3;
    EXPECT_EQ(plec_reference_combine(&step, true, 9, 1), 3);
    EXPECT_DOUBLE_EQ(plec_reference_combine(&gated, true, 9, 1), 3 * sigmoid(3));
}

TEST(ReferenceCombine, SituWithoutBetasActsAsBetaOneAndPlainUp) {
    plec_expert_maths situ = maths_of(PLEC_SITU_GLU);
    situ.beta = situ.linear_beta = 0;
    EXPECT_DOUBLE_EQ(plec_reference_combine(&situ, true, 2, 40), std::tanh(2) * sigmoid(2) * 40);
}

TEST(ReferenceCombine, NanIsNeverClampedAway) {
    for (int a = 0; a < PLEC_N_ACTIVATIONS; a++) {
        plec_expert_maths maths = maths_of(a);
        EXPECT_TRUE(std::isnan(plec_reference_combine(&maths, true, NOT_A_NUMBER, 1))) << a;
        EXPECT_TRUE(std::isnan(plec_reference_combine(&maths, true, 1, NOT_A_NUMBER))) << a;
        EXPECT_TRUE(std::isnan(plec_reference_combine(&maths, false, 1, NOT_A_NUMBER))) << a;
    }
}

TEST(ReferenceExpert, EveryLayoutGivesTheBitsOfSeparateMatrices) {
    for (int a = 0; a < PLEC_N_ACTIVATIONS; a++) {
        Experts experts = Experts::random(3, 5, 7, 4);
        experts.maths = maths_of(a);
        for (uint32_t e = 0; e < 3; e++) {
            Doubles wanted = experts.run(e, X5);
            for (plec_fusion layout : LAYOUTS)
                EXPECT_EQ(Bank(experts, layout).run(e, X5), wanted) << a << " layout " << layout;
        }
    }
}

TEST(ReferenceExpert, LayoutsTakenForOneAnotherDiffer) {
    Experts experts = Experts::random(1, 5, 7, 4);
    Experts swapped = experts;
    std::swap(swapped.gate, swapped.up);
    std::swap(swapped.gate_bias, swapped.up_bias);
    std::swap(swapped.gate_scale, swapped.up_scale);
    EXPECT_NE(Bank(swapped, PLEC_FUSED_GATE_FIRST).run(0, X5),
              Bank(experts, PLEC_FUSED_GATE_FIRST).run(0, X5));
}

/* Gate row i of expert e gives 100 e + i + 1, up row i 1000 e + 2 i + 1, and down passes them on:
 * each output names the rows it came from, in integers. */
TEST(ReferenceExpert, EachOutputComesFromItsOwnExpertAndRow) {
    const uint32_t n = 6, n_experts = 4;
    Experts experts(n_experts, 2, n, n);
    experts.maths.activation = PLEC_RELU;
    for (uint32_t e = 0; e < n_experts; e++) {
        Floats gate, up, down(n * n);
        for (uint32_t i = 0; i < n; i++) {
            gate.insert(gate.end(), {100.0f * float(e) + float(i), 1});
            up.insert(up.end(), {1000.0f * float(e) + 2 * float(i), 1});
            down[i * n + i] = 1;
        }
        experts.gate.push_back(gate);
        experts.up.push_back(up);
        experts.down.push_back(down);
    }
    for (plec_fusion layout : LAYOUTS) {
        Bank bank(experts, layout);
        for (uint32_t e = 0; e < n_experts; e++) {
            Doubles y = bank.run(e, {1, 1});
            for (uint32_t i = 0; i < n; i++)
                EXPECT_EQ(y[i], (100.0 * e + i + 1) * (1000.0 * e + 2 * i + 1)) << layout;
        }
    }
}

TEST(ReferenceExpert, ScalesMultiplyTheirOwnProductBeforeItsBias) {
    Experts experts(2, 1, 1, 1);
    experts.biased = true;
    experts.maths.activation = PLEC_RELU;
    experts.gate = experts.up = experts.down = {{1}, {2}};
    experts.gate_bias = {{10}, {20}};
    experts.up_bias = {{100}, {200}};
    experts.down_bias = {{1000}, {2000}};
    experts.gate_scale = {2, 3};
    experts.up_scale = {5, 7};
    experts.down_scale = {11, 13};
    for (plec_fusion layout : LAYOUTS) {
        Bank bank(experts, layout);
        EXPECT_EQ(bank.run(0, {1}), Doubles{(1.0 * 2 + 10) * (1 * 5 + 100) * 11 + 1000});
        EXPECT_EQ(bank.run(1, {1}), Doubles{2 * (2.0 * 3 + 20) * (2 * 7 + 200) * 13 + 2000});
    }
}

TEST(ReferenceExpert, WithoutAGateOnlyUpAndDownRun) {
    for (int a = 0; a < PLEC_N_ACTIVATIONS; a++) {
        Experts experts = Experts::random(2, 5, 7, 4);
        experts.gated = false;
        experts.maths = maths_of(a);
        EXPECT_EQ(Bank(experts, PLEC_NOT_FUSED).run(1, X5), experts.run(1, X5));
    }
}

/* The inputs are so large that most values of gate and up lie beyond the limit. */
TEST(ReferenceExpert, ClampsBiteInEveryLayout) {
    for (plec_activation activation : {PLEC_CLAMPED_GLU, PLEC_CLAMPED_GATED, PLEC_SILU_STEP}) {
        Experts experts = Experts::random(1, 5, 32, 4);
        experts.maths = maths_of(activation);
        Doubles x = {9, -11, 4, 20, -3}, wanted = experts.run(0, x);
        Experts free = experts;
        free.maths.limit = std::numeric_limits<double>::infinity();
        int n_beyond = 0;
        for (uint32_t i = 0; i < 32; i++)
            n_beyond += std::fabs(dot(experts.up[0], i, x) * 0.25) > 0.8;
        EXPECT_GT(n_beyond, 16);
        for (plec_fusion layout : LAYOUTS) {
            EXPECT_EQ(Bank(experts, layout).run(0, x), wanted) << layout;
            EXPECT_NE(Bank(free, layout).run(0, x), wanted) << layout;
        }
    }
}

TEST(ReferenceExpert, PaddedColumnsOfDownAreNeverRead) {
    Experts experts = Experts::random(2, 5, 7, 4);
    experts.down_padding = 9; /* NaN */
    for (plec_fusion layout : LAYOUTS)
        EXPECT_EQ(Bank(experts, layout).run(1, X5), experts.run(1, X5));
}

TEST(ReferenceExpert, WeightOnInputIsNotWeightOnOutput) {
    Experts experts = Experts::random(2, 5, 7, 4);
    Bank bank(experts, PLEC_FUSED_GATE_FIRST);
    Doubles scaled = X5, doubled = experts.run(1, X5);
    for (double &value : scaled)
        value *= 1.75;
    for (double &value : doubled)
        value *= 1.75;
    EXPECT_EQ(bank.run(1, X5, 1.75, true), experts.run(1, scaled));
    EXPECT_EQ(bank.run(1, X5, 1.75, false), doubled);
    EXPECT_NE(bank.run(1, X5, 1.75, true), bank.run(1, X5, 1.75, false));
}

TEST(ReferenceExpert, ProductsBeyondHalfPrecisionSurvive) {
    Experts experts(1, 1, 1, 1);
    experts.maths.activation = PLEC_RELU;
    experts.gate = experts.up = {{1e19f}};
    experts.down = {{1e-30f}};
    EXPECT_NEAR(Bank(experts, PLEC_NOT_FUSED).run(0, {1e4})[0], 1e16, 1e10);
}

} // namespace
