/* mm_ties.h: activations whose bf16 hangs on the order of a sum.
 *
 * Kernels sum in f32, each in an order of its own, the reference in double. An activation that lies
 * within their roundings of the middle between two bf16 may be rounded to either, and where it
 * rules its token, all outputs differ by up to 2^-8 though no kernel is wrong. Here is which
 * activations those are, by a bound on what f32 may do to each, and what the outputs are with such
 * a one rounded to the other side. All other errors stay what they were.
 */
#ifndef PLEC_TESTS_SUPPORT_MM_TIES_H
#define PLEC_TESTS_SUPPORT_MM_TIES_H

#include "lyrw/codec/round.h"
#include "tests/support/bank.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace plec_test {

/* A sum and how far from it f32 may come out, in any order within each 32 columns. */
struct MmSum {
    double value = 0, error = 0;
};

class MmTies {
  public:
    /* Both are looked into as long as this lives. */
    MmTies(const struct plec_bank *bank, const Step &step) : bank_(bank), step_(step) {}

    /* The wanted outputs nearest to what a kernel gave, with up to MOST ties of a token rounded to
     * the other side: such as take away a quarter of the token's error and more, each. */
    std::vector<double> nearest(const std::vector<float> &got, std::vector<double> wanted) const {
        size_t out = bank_->output_dim;
        double all = 0;
        for (double value : wanted)
            all += value * value;
        for (size_t t = 0; t < step_.n_tokens; t++) {
            std::vector<double> error(out);
            for (size_t i = 0; i < out; i++)
                error[i] = got[t * out + i] - wanted[t * out + i];
            if (!(size_of(error) > 1e-9 * all)) continue; /* a NaN is no tie, either */
            std::vector<double> explained = explain(ties(t), error);
            for (size_t i = 0; i < out; i++)
                wanted[t * out + i] += explained[i];
        }
        return wanted;
    }

    /* What outputs of a token change by where its activation of a slot and channel is rounded to
     * the bf16 next to the reference's, above (side 1) or below (-1). */
    std::vector<double> change(size_t token, uint32_t slot, uint32_t channel, int side) const {
        Pair pair = pair_of(token, slot);
        double from = rounded(activation(pair, inputs(pair), channel).value);
        return change_of(pair, channel, beside(from, side) - from);
    }
    /* Whether f32 may round it to that side. */
    bool is_tie(size_t token, uint32_t slot, uint32_t channel, int side) const {
        Pair pair = pair_of(token, slot);
        MmSum act = activation(pair, inputs(pair), channel);
        return rounded(act.value + side * act.error) != rounded(act.value);
    }

  private:
    typedef std::vector<double> Doubles;
    static constexpr double UNIT = 0x1p-24; /* what one rounding to f32 is off by */
    enum { MOST = 3 };

    struct Pair {
        uint32_t entry;
        size_t token;
        double input_weight, output_weight;
    };

    static double size_of(const Doubles &v) {
        double size = 0;
        for (double value : v)
            size += value * value;
        return size;
    }
    static double rounded(double value) {
        return plec_bf16_f32(plec_f32_bf16(static_cast<float>(value)));
    }
    static double beside(double value, int side) {
        uint16_t bits = plec_f32_bf16(static_cast<float>(value));
        bool away = (value < 0) == (side < 0) || value == 0;
        return plec_bf16_f32(static_cast<uint16_t>(away ? bits + 1 : bits - 1));
    }

    Pair pair_of(size_t token, uint32_t slot) const {
        size_t at = token * step_.n_slots + slot;
        double weight = step_.weights.empty() ? 1.0 : step_.weights[at];
        if (!step_.token_scale.empty()) weight *= step_.token_scale[token];
        uint32_t entry = step_.ids.empty() ? slot : static_cast<uint32_t>(step_.ids[at]);
        return {entry, token, step_.weight_on_input ? weight : 1,
                step_.weight_on_input ? 1 : weight};
    }
    Doubles inputs(const Pair &pair) const {
        auto from = step_.x.begin() + static_cast<ptrdiff_t>(pair.token * bank_->input_dim);
        return Doubles(from, from + bank_->input_dim);
    }

    struct plec_matrix matrix(uint32_t entry, int id) const {
        const struct plec_operand &operand = bank_->operands[id];
        return {operand.format, operand.rows, operand.cols, bank_->entries[entry].values[id],
                id < PLEC_N_MATRICES ? bank_->entries[entry].scales[id] : nullptr};
    }
    double scale(const float *scales, uint32_t entry) const {
        return scales != nullptr ? scales[entry] : 1;
    }

    /* Codes with an offset or a minimum, of which neither is more than a block's largest weight. */
    static bool is_shifted(uint16_t format) {
        const uint16_t straight[] = {
            PLEC_FORMAT_F32,       PLEC_FORMAT_BF16,       PLEC_FORMAT_F16,
            PLEC_FORMAT_MXFP4,     PLEC_FORMAT_MXFP8,      PLEC_FORMAT_NVFP4,
            PLEC_FORMAT_FP4_LARQL, PLEC_FORMAT_GGUF_MXFP4, PLEC_FORMAT_GGUF_NVFP4};
        return std::find(std::begin(straight), std::end(straight), format) == std::end(straight);
    }

    /* Their blocks are summed apart, but for those whose scales mm_wg multiplies codes by. */
    static bool is_apart(uint16_t format) {
        return is_shifted(format) && format != PLEC_FORMAT_GGUF_Q3_K &&
               format != PLEC_FORMAT_GGUF_Q2_K;
    }

    /* Row r of a matrix times x, its bias and scale on it. Of each 32 columns no more than 40
     * roundings, of numbers no larger than what the 32 have in all, and the sum before them, which
     * stays out of 36 where the block is summed apart; f32 matrices have eight sums, each of an
     * eighth of the columns. */
    MmSum product(const Pair &pair, int id, uint32_t r, const Doubles &x, double factor) const {
        struct plec_matrix m = matrix(pair.entry, id);
        bool rounds = plec_format_rounds_inputs(m.format);
        Doubles row(m.cols);
        plec_matrix_row_f64(row.data(), &m, r);
        MmSum sum;
        double whole = 0;
        for (size_t k = 0; k < x.size(); k += 32) {
            double before = std::fabs(sum.value), in_all = 0, tokens = 0, largest = 0;
            for (size_t i = k; i < std::min(k + 32, x.size()); i++) {
                double input = rounds ? rounded(x[i]) : x[i];
                sum.value += row[i] * input;
                in_all += std::fabs(row[i] * input);
                tokens += std::fabs(input);
                largest = std::max(largest, std::fabs(row[i]));
            }
            if (is_shifted(m.format)) in_all += largest * tokens;
            whole += in_all;
            sum.error += UNIT * (40 * in_all + (is_apart(m.format) ? 4 : 40) * before);
        }
        if (!rounds) sum.error = (static_cast<double>(x.size()) / 8 + 8) * UNIT * whole;
        double bias = 0;
        if (bank_->operands[id + PLEC_GATE_BIAS].rows != 0) {
            struct plec_matrix vector = matrix(pair.entry, id + PLEC_GATE_BIAS);
            Doubles biases(vector.cols);
            plec_matrix_row_f64(biases.data(), &vector, 0);
            bias = biases[r];
        }
        factor *= pair.input_weight;
        sum.value *= factor;
        sum.error = sum.error * std::fabs(factor) + 4 * UNIT * std::fabs(sum.value);
        sum.value += bias;
        sum.error += UNIT * std::fabs(sum.value);
        return sum;
    }

    /* Sixteen roundings for the function itself. */
    MmSum activation(const Pair &pair, const Doubles &x, uint32_t channel) const {
        uint32_t n = bank_->intermediate_dim;
        bool has_gate = bank_->operands[PLEC_GATE].rows != 0,
             fused = bank_->fusion != PLEC_NOT_FUSED;
        uint32_t gate_row = bank_->fusion == PLEC_FUSED_UP_FIRST      ? n + channel
                            : bank_->fusion == PLEC_FUSED_INTERLEAVED ? 2 * channel
                                                                      : channel;
        uint32_t up_row = bank_->fusion == PLEC_FUSED_GATE_FIRST    ? n + channel
                          : bank_->fusion == PLEC_FUSED_INTERLEAVED ? 2 * channel + 1
                                                                    : channel;
        MmSum g, u;
        if (has_gate)
            g = product(pair, PLEC_GATE, gate_row, x, scale(bank_->gate_scale, pair.entry));
        u = product(pair, fused ? PLEC_GATE : PLEC_UP, up_row, x,
                    scale(bank_->up_scale, pair.entry));
        MmSum act;
        act.value = plec_reference_combine(&bank_->maths, has_gate, g.value, u.value);
        double largest = std::fabs(act.value);
        for (int corner = 0; corner < 4; corner++) {
            double value = plec_reference_combine(&bank_->maths, has_gate,
                                                  g.value + (corner & 1 ? g.error : -g.error),
                                                  u.value + (corner & 2 ? u.error : -u.error));
            act.error = std::max(act.error, std::fabs(value - act.value));
            largest = std::max(largest, std::fabs(value));
        }
        act.error += 16 * UNIT * largest;
        return act;
    }

    Doubles change_of(const Pair &pair, uint32_t channel, double by) const {
        struct plec_matrix m = matrix(pair.entry, PLEC_DOWN);
        Doubles row(m.cols), change(bank_->output_dim);
        by *= scale(bank_->down_scale, pair.entry) * pair.output_weight;
        for (uint32_t o = 0; o < bank_->output_dim; o++) {
            plec_matrix_row_f64(row.data(), &m, o);
            change[o] = row[channel] * by;
        }
        return change;
    }

    /* Of a token: what its outputs change by with each tie. */
    std::vector<Doubles> ties(size_t token) const {
        std::vector<Doubles> found;
        if (!plec_format_rounds_inputs(bank_->operands[PLEC_DOWN].format)) return found;
        for (uint32_t slot = 0; slot < step_.n_slots; slot++) {
            Pair pair = pair_of(token, slot);
            Doubles x = inputs(pair);
            for (uint32_t channel = 0; channel < bank_->intermediate_dim; channel++) {
                MmSum act = activation(pair, x, channel);
                double is = rounded(act.value);
                for (int side : {-1, 1}) {
                    double may_be = rounded(act.value + side * act.error);
                    if (may_be != is) found.push_back(change_of(pair, channel, may_be - is));
                }
            }
        }
        return found;
    }

    static Doubles explain(const std::vector<Doubles> &ties, Doubles error) {
        Doubles explained(error.size());
        for (int turn = 0; turn < MOST; turn++) {
            const Doubles *best = nullptr;
            double least = 0.75 * size_of(error);
            for (const Doubles &tie : ties) {
                double left = 0;
                for (size_t i = 0; i < error.size(); i++)
                    left += (error[i] - tie[i]) * (error[i] - tie[i]);
                if (left >= least) continue;
                least = left, best = &tie;
            }
            if (best == nullptr) break;
            for (size_t i = 0; i < error.size(); i++) {
                error[i] -= (*best)[i];
                explained[i] += (*best)[i];
            }
        }
        return explained;
    }

    const struct plec_bank *bank_;
    const Step &step_;
};

} // namespace plec_test
#endif
