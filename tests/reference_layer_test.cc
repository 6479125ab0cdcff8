#include "tests/support/experts.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace plec_test;

namespace {

/* A layer with its tokens, routing and result. */
struct Forward {
    plec_layer layer = {};
    uint32_t n_tokens = 0, n_slots = 0;
    Floats x;
    std::vector<int32_t> ids;
    Doubles weights;
    bool routed_only = false;

    Floats forward() const {
        Floats y(size_t(n_tokens) * layer.hidden_size, NAN);
        Doubles scratch(plec_reference_layer_scratch(&layer), NOT_A_NUMBER);
        plec_reference_args args = {
            &layer,         n_tokens,    n_slots,  x.data(),       ids.data(),
            weights.data(), routed_only, y.data(), scratch.data(), PLEC_REFERENCE_EXACT};
        plec_reference_layer(&args);
        return y;
    }
    Doubles token(uint32_t t) const {
        size_t n = layer.hidden_size;
        return Doubles(x.begin() + t * n, x.begin() + (t + 1) * n);
    }
};

Forward make_run(const Bank &routed, uint32_t hidden_size) {
    Forward run;
    run.layer.hidden_size = hidden_size;
    run.layer.routed = routed.get();
    run.layer.out_scale = 1;
    run.n_tokens = 3;
    run.n_slots = 2;
    std::mt19937 random(9);
    run.x = noise(random, size_t(3) * hidden_size, 1);
    run.ids = {0, 2, 1, 0, 2, 1};
    run.weights = {0.5, 0.25, 1.5, -1, 0.125, 2};
    return run;
}

Doubles routed_sum(const Forward &run, const Experts &experts, uint32_t t) {
    Doubles y(experts.output);
    for (uint32_t j = 0; j < run.n_slots; j++)
        add(y, run.weights[t * run.n_slots + j],
            experts.run(uint32_t(run.ids[t * run.n_slots + j]), run.token(t)));
    return y;
}

/* y's token t equals wanted rounded to f32. */
void expect_token(const Floats &y, uint32_t t, const Doubles &wanted) {
    size_t n = wanted.size();
    expect_near(Doubles(y.begin() + t * n, y.begin() + (t + 1) * n), wanted, 1e-7);
}

TEST(ReferenceLayer, SumsTheSlotsOfEachToken) {
    Experts experts = Experts::random(3, 5, 7, 5);
    Bank bank(experts, PLEC_FUSED_INTERLEAVED);
    Forward run = make_run(bank, 5);
    Floats y = run.forward();
    for (uint32_t t = 0; t < 3; t++)
        expect_token(y, t, routed_sum(run, experts, t));
}

TEST(ReferenceLayer, AnIdGivenTwiceIsATermTwice) {
    Experts experts = Experts::random(3, 5, 7, 5);
    Bank bank(experts, PLEC_NOT_FUSED);
    Forward run = make_run(bank, 5);
    run.ids = {1, 1, 2, 2, 0, 0};
    Floats y = run.forward();
    for (uint32_t t = 0; t < 3; t++) {
        Doubles wanted(5);
        add(wanted, run.weights[2 * t] + run.weights[2 * t + 1],
            experts.run(uint32_t(run.ids[2 * t]), run.token(t)));
        expect_token(y, t, wanted);
    }
}

TEST(ReferenceLayer, ATokenDoesNotDependOnItsNeighbours) {
    Experts experts = Experts::random(3, 5, 7, 5);
    Bank bank(experts, PLEC_NOT_FUSED);
    Forward all = make_run(bank, 5);
    all.x[5] = NAN; /* token 1 */
    Floats y = all.forward();
    for (uint32_t t : {0u, 2u}) {
        Forward one = all;
        one.n_tokens = 1;
        one.x = Floats(all.x.begin() + 5 * t, all.x.begin() + 5 * (t + 1));
        one.ids = {all.ids[2 * t], all.ids[2 * t + 1]};
        one.weights = {all.weights[2 * t], all.weights[2 * t + 1]};
        EXPECT_EQ(one.forward(), Floats(y.begin() + 5 * t, y.begin() + 5 * (t + 1)));
    }
    for (size_t i = 5; i < 10; i++)
        EXPECT_TRUE(std::isnan(y[i]));
}

TEST(ReferenceLayer, NoTokensIsNoWorkAndNoSlotsIsZero) {
    Bank bank(Experts::random(3, 5, 7, 5), PLEC_NOT_FUSED);
    Forward run = make_run(bank, 5);
    run.n_slots = 0;
    EXPECT_EQ(run.forward(), Floats(15, 0));
    run.n_tokens = 0;
    EXPECT_TRUE(run.forward().empty());
}

TEST(ReferenceLayer, OneExpertIsADenseLayer) {
    Experts experts = Experts::random(1, 5, 7, 5);
    Bank bank(experts, PLEC_FUSED_UP_FIRST);
    Forward run = make_run(bank, 5);
    run.n_slots = 1;
    run.ids = {0, 0, 0};
    run.weights = {1, 1, 1};
    expect_token(run.forward(), 2, experts.run(0, run.token(2)));
}

TEST(ReferenceLayer, WeightOnInputReachesTheExperts) {
    Experts experts = Experts::random(3, 5, 7, 5);
    Bank bank(experts, PLEC_NOT_FUSED);
    Forward run = make_run(bank, 5);
    run.layer.router.weight_on_input = true;
    Doubles wanted(5);
    for (uint32_t j = 0; j < 2; j++) {
        Doubles x(5);
        add(x, run.weights[j], run.token(0));
        add(wanted, 1, experts.run(uint32_t(run.ids[j]), x));
    }
    expect_token(run.forward(), 0, wanted);
}

TEST(ReferenceLayer, SharedAndDenseBranchesAddEveryEntryOnce) {
    Experts experts = Experts::random(3, 5, 7, 5), of_shared = Experts::random(2, 5, 3, 5, 2),
            of_dense = Experts::random(1, 5, 9, 5, 3);
    of_shared.maths = maths_of(PLEC_CLAMPED_GLU);
    Bank bank(experts, PLEC_NOT_FUSED), shared(of_shared, PLEC_FUSED_GATE_FIRST),
        dense(of_dense, PLEC_FUSED_INTERLEAVED);
    Forward run = make_run(bank, 5);
    run.layer.shared = shared.get();
    run.layer.dense = dense.get();
    run.layer.out_scale = std::sqrt(0.5);
    Floats y = run.forward();
    run.routed_only = true;
    Floats routed = run.forward();
    for (uint32_t t = 0; t < 3; t++) {
        Doubles sum = routed_sum(run, experts, t), scaled(5);
        add(scaled, std::sqrt(0.5), sum);
        expect_token(routed, t, scaled);
        for (uint32_t e = 0; e < 2; e++)
            add(sum, 1, of_shared.run(e, run.token(t)));
        add(sum, 1, of_dense.run(0, run.token(t)));
        Doubles wanted(5);
        add(wanted, std::sqrt(0.5), sum);
        expect_token(y, t, wanted);
    }
}

TEST(ReferenceLayer, SharedGateIsASigmoidAlsoAtZero) {
    Experts experts = Experts::random(3, 5, 7, 5), of_shared = Experts::random(1, 5, 3, 5, 2);
    Bank bank(experts, PLEC_NOT_FUSED), shared(of_shared, PLEC_FUSED_GATE_FIRST);
    Forward run = make_run(bank, 5);
    Floats gate = {0.5f, -1, 2, 0.25f, -3};
    run.layer.shared = shared.get();
    run.layer.shared_gate = {PLEC_FORMAT_F32, 1, 5, bytes(gate), nullptr};
    Doubles wanted = routed_sum(run, experts, 1);
    add(wanted, sigmoid(dot(gate, 0, run.token(1))), of_shared.run(0, run.token(1)));
    expect_token(run.forward(), 1, wanted);
    gate = {0, 0, 0, 0, 0};
    wanted = routed_sum(run, experts, 1);
    add(wanted, 0.5, of_shared.run(0, run.token(1)));
    expect_token(run.forward(), 1, wanted);
}

TEST(ReferenceLayer, LatentBlockNormsTheSumOnceAndSharedSeesFullWidth) {
    const uint32_t hidden = 5, latent = 3;
    Experts experts = Experts::random(3, latent, 7, latent),
            of_shared = Experts::random(1, hidden, 4, hidden, 2);
    Bank bank(experts, PLEC_FUSED_GATE_FIRST), shared(of_shared, PLEC_NOT_FUSED);
    std::mt19937 random(4);
    Floats in = noise(random, latent * hidden, 1), out = noise(random, hidden * latent, 1);
    Floats gain = {1.5f, -0.5f, 2};
    Forward run = make_run(bank, hidden);
    run.layer.latent_in = {PLEC_FORMAT_F32, latent, hidden, bytes(in), nullptr};
    run.layer.latent_out = {PLEC_FORMAT_F32, hidden, latent, bytes(out), nullptr};
    run.layer.shared = shared.get();
    for (bool normed : {false, true}) {
        run.layer.routed_norm = normed ? gain.data() : nullptr;
        run.layer.norm_eps = 0.25;
        Floats y = run.forward();
        for (uint32_t t = 0; t < 3; t++) {
            Doubles z, sum(latent), wanted;
            for (uint32_t i = 0; i < latent; i++)
                z.push_back(dot(in, i, run.token(t)));
            for (uint32_t j = 0; j < 2; j++)
                add(sum, run.weights[2 * t + j], experts.run(uint32_t(run.ids[2 * t + j]), z));
            double square = sum[0] * sum[0] + sum[1] * sum[1] + sum[2] * sum[2];
            for (uint32_t i = 0; i < latent && normed; i++)
                sum[i] *= gain[i] / std::sqrt(square / 3 + 0.25);
            for (uint32_t i = 0; i < hidden; i++)
                wanted.push_back(dot(out, i, sum));
            add(wanted, 1, of_shared.run(0, run.token(t)));
            expect_token(y, t, wanted);
        }
    }
}

/* Expert e multiplies by e + 1: the sum tells which experts ran. */
TEST(ReferenceLayer, ExpertsBeyond255Of896Run) {
    Experts experts(896, 1, 1, 1);
    experts.maths.activation = PLEC_RELU;
    for (uint32_t e = 0; e < 896; e++) {
        experts.gate.push_back({1});
        experts.up.push_back({float(e + 1)});
        experts.down.push_back({1});
    }
    Bank bank(experts, PLEC_NOT_FUSED);
    Forward run = make_run(bank, 1);
    run.x = {1, 1, 1};
    run.ids = {255, 256, 895, 0, 256, 255};
    run.weights = {1, 1000, 1, 1000, 1, 1000};
    EXPECT_EQ(run.forward(), (Floats{257256, 1896, 256257}));
}

} // namespace
