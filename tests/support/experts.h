/* experts.h: f32 experts kept as separate matrices, banks made from them in any layout, and what an
 * expert gives by its formula. For tests of executors. */
#ifndef PLEC_TESTS_SUPPORT_EXPERTS_H
#define PLEC_TESTS_SUPPORT_EXPERTS_H

#include "device/reference/reference.h"

#include <limits>
#include <random>
#include <vector>

namespace plec_test {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

const double NOT_A_NUMBER = std::numeric_limits<double>::quiet_NaN();
const plec_fusion LAYOUTS[] = {PLEC_NOT_FUSED, PLEC_FUSED_GATE_FIRST, PLEC_FUSED_UP_FIRST,
                               PLEC_FUSED_INTERLEAVED};

const uint8_t *bytes(const Floats &values);
Floats noise(std::mt19937 &random, size_t n, float spread);
double sigmoid(double z);
/* Row `row` of an f32 matrix times x. */
double dot(const Floats &matrix, size_t row, const Doubles &x);
void add(Doubles &y, double weight, const Doubles &x);
/* Within `relative` of the largest wanted value. */
void expect_near(const Doubles &got, const Doubles &wanted, double relative);

/* An activation with limits and betas that bite around 1. */
plec_expert_maths maths_of(int activation);

struct Experts {
    Experts() = default;
    Experts(uint32_t entries, uint32_t in, uint32_t n, uint32_t out)
        : n_entries(entries), input(in), inner(n), output(out) {}
    /* Random matrices, biases, and scales that differ by expert and by operand. */
    static Experts random(uint32_t entries, uint32_t in, uint32_t n, uint32_t out,
                          unsigned seed = 1);
    /* expert(x) straight from the separate matrices. */
    Doubles run(uint32_t entry, const Doubles &x) const;

    uint32_t n_entries = 0, input = 0, inner = 0, output = 0;
    bool gated = true, biased = false;
    uint32_t down_padding = 0; /* columns of NaN after each row of down */
    plec_expert_maths maths = {};
    std::vector<Floats> gate, up, down, gate_bias, up_bias, down_bias; /* [n_entries] each */
    Floats gate_scale, up_scale, down_scale;                           /* empty: none */
};

/* A bank in one layout, with the memory it looks into. */
class Bank {
  public:
    Bank(const Experts &experts, plec_fusion fusion);
    Bank(const Bank &) = delete;
    Bank &operator=(const Bank &) = delete;
    const plec_bank &get() const { return bank_; }
    /* weight * expert(x) through the reference executor, its scratch poisoned. */
    Doubles run(uint32_t entry, const Doubles &x, double weight = 1, bool on_input = false) const;

  private:
    void put(uint32_t e, plec_operand_id id, const Floats &values, uint32_t rows);
    void put_gate_and_up(uint32_t e);
    void put_down(uint32_t e);

    Experts experts_;
    plec_bank bank_ = {};
    std::vector<plec_entry> entries_;
    std::vector<Floats> storage_;
};

} // namespace plec_test
#endif
