#include "tests/support/experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace plec_test {

const uint8_t *bytes(const Floats &values) {
    return reinterpret_cast<const uint8_t *>(values.data());
}

Floats noise(std::mt19937 &random, size_t n, float spread) {
    std::normal_distribution<float> normal(0, spread);
    Floats values(n);
    for (float &value : values)
        value = normal(random);
    return values;
}

double sigmoid(double z) {
    return 1 / (1 + std::exp(-z));
}

double dot(const Floats &matrix, size_t row, const Doubles &x) {
    double sum = 0;
    for (size_t i = 0; i < x.size(); i++)
        sum += double(matrix[row * x.size() + i]) * x[i];
    return sum;
}

void add(Doubles &y, double weight, const Doubles &x) {
    for (size_t i = 0; i < y.size(); i++)
        y[i] += weight * x[i];
}

void expect_near(const Doubles &got, const Doubles &wanted, double relative) {
    ASSERT_EQ(got.size(), wanted.size());
    double largest = 0;
    for (double value : wanted)
        largest = std::max(largest, std::fabs(value));
    for (size_t i = 0; i < got.size(); i++)
        EXPECT_NEAR(got[i], wanted[i], relative * largest) << i;
}

plec_expert_maths maths_of(int activation) {
    plec_expert_maths maths = {};
    maths.activation = plec_activation(activation);
    maths.limit = 0.8;
    maths.alpha = 1.702;
    maths.beta = 1.5;
    maths.linear_beta = 2.5;
    return maths;
}

Experts Experts::random(uint32_t entries, uint32_t in, uint32_t n, uint32_t out, unsigned seed) {
    std::mt19937 random(seed);
    Experts experts(entries, in, n, out);
    experts.biased = true;
    experts.maths.activation = PLEC_SILU;
    for (uint32_t e = 0; e < entries; e++) {
        experts.gate.push_back(noise(random, size_t(n) * in, 0.7f));
        experts.up.push_back(noise(random, size_t(n) * in, 0.7f));
        experts.down.push_back(noise(random, size_t(out) * n, 0.7f));
        experts.gate_bias.push_back(noise(random, n, 0.5f));
        experts.up_bias.push_back(noise(random, n, 0.5f));
        experts.down_bias.push_back(noise(random, out, 0.5f));
        experts.gate_scale.push_back(1 + float(e));
        experts.up_scale.push_back(0.25f + float(e));
        experts.down_scale.push_back(3 - float(e) / 2);
    }
    return experts;
}

Doubles Experts::run(uint32_t e, const Doubles &x) const {
    auto scale = [&](const Floats &values) { return values.empty() ? 1.0 : double(values[e]); };
    Doubles hidden, y;
    for (uint32_t i = 0; i < inner; i++) {
        double g = dot(gate[e], i, x) * scale(gate_scale) + (biased ? gate_bias[e][i] : 0);
        double u = dot(up[e], i, x) * scale(up_scale) + (biased ? up_bias[e][i] : 0);
        hidden.push_back(plec_reference_combine(&maths, gated, g, u));
    }
    for (uint32_t i = 0; i < output; i++)
        y.push_back(dot(down[e], i, hidden) * scale(down_scale) + (biased ? down_bias[e][i] : 0));
    return y;
}

/* Rows of gate and up in the order of a layout; a bias is the same with one column. */
static Floats fuse(plec_fusion fusion, const Floats &gate, const Floats &up, uint32_t cols) {
    const Floats &first = fusion == PLEC_FUSED_UP_FIRST ? up : gate;
    const Floats &second = fusion == PLEC_FUSED_UP_FIRST ? gate : up;
    Floats fused;
    if (fusion != PLEC_FUSED_INTERLEAVED) {
        fused = first;
        fused.insert(fused.end(), second.begin(), second.end());
        return fused;
    }
    for (size_t at = 0; at < gate.size(); at += cols) {
        fused.insert(fused.end(), gate.begin() + at, gate.begin() + at + cols);
        fused.insert(fused.end(), up.begin() + at, up.begin() + at + cols);
    }
    return fused;
}

Bank::Bank(const Experts &experts, plec_fusion fusion) : experts_(experts) {
    bank_.n_entries = experts_.n_entries;
    bank_.input_dim = experts_.input;
    bank_.intermediate_dim = experts_.inner;
    bank_.output_dim = experts_.output;
    bank_.fusion = fusion;
    bank_.maths = experts_.maths;
    entries_.resize(experts_.n_entries);
    storage_.resize(size_t(experts_.n_entries) * PLEC_N_OPERANDS);
    for (uint32_t e = 0; e < experts_.n_entries; e++) {
        put_gate_and_up(e);
        put_down(e);
    }
    bank_.entries = entries_.data();
    auto scale = [](const Floats &values) { return values.empty() ? nullptr : values.data(); };
    bank_.gate_scale = scale(experts_.gate_scale);
    bank_.up_scale = scale(experts_.up_scale);
    bank_.down_scale = scale(experts_.down_scale);
}

void Bank::put(uint32_t e, plec_operand_id id, const Floats &values, uint32_t rows) {
    Floats &mine = storage_[size_t(e) * PLEC_N_OPERANDS + id];
    mine = values;
    bank_.operands[id] = {PLEC_FORMAT_F32, rows, uint32_t(mine.size()) / rows};
    entries_[e].values[id] = bytes(mine);
}

void Bank::put_gate_and_up(uint32_t e) {
    const Floats &gate = experts_.gate[e], &up = experts_.up[e];
    uint32_t n = experts_.inner;
    if (bank_.fusion != PLEC_NOT_FUSED) {
        put(e, PLEC_GATE, fuse(bank_.fusion, gate, up, experts_.input), 2 * n);
        if (experts_.biased)
            put(e, PLEC_GATE_BIAS,
                fuse(bank_.fusion, experts_.gate_bias[e], experts_.up_bias[e], 1), 1);
        return;
    }
    put(e, PLEC_UP, up, n);
    if (experts_.biased) put(e, PLEC_UP_BIAS, experts_.up_bias[e], 1);
    if (!experts_.gated) return;
    put(e, PLEC_GATE, gate, n);
    if (experts_.biased) put(e, PLEC_GATE_BIAS, experts_.gate_bias[e], 1);
}

void Bank::put_down(uint32_t e) {
    Floats padded;
    for (uint32_t row = 0; row < experts_.output; row++) {
        const float *from = experts_.down[e].data() + size_t(row) * experts_.inner;
        padded.insert(padded.end(), from, from + experts_.inner);
        padded.insert(padded.end(), experts_.down_padding, NAN);
    }
    put(e, PLEC_DOWN, padded, experts_.output);
    if (experts_.biased) put(e, PLEC_DOWN_BIAS, experts_.down_bias[e], 1);
}

Doubles Bank::run(uint32_t entry, const Doubles &x, double weight, bool on_input) const {
    Doubles y(bank_.output_dim);
    Doubles scratch(plec_reference_expert_scratch(&bank_), NOT_A_NUMBER);
    plec_reference_expert(y.data(), &bank_, entry, weight, on_input, x.data(), scratch.data());
    return y;
}

} // namespace plec_test
