/* bank.h: banks of experts made up in memory, with real quantised weights, and what the reference
 * executor says of them. Header only; for the tests of device backends. */
#ifndef PLEC_TESTS_SUPPORT_BANK_H
#define PLEC_TESTS_SUPPORT_BANK_H

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <random>
#include <vector>

#include "device/reference/reference.h"
#include "lyrw/encode.h"
#include "lyrw/format.h"

namespace plec_test {

/* The bytes of a matrix. */
struct Matrix {
    uint16_t format = 0;
    uint32_t rows = 0, cols = 0;
    std::vector<uint8_t> values, scales;
    struct plec_matrix view() const {
        return {format, rows, cols, values.data(), scales.empty() ? nullptr : scales.data()};
    }
};

class Random {
  public:
    explicit Random(uint32_t seed) : engine_(seed) {}
    float normal() { return normal_(engine_); }
    std::vector<float> normals(size_t n, float scale = 1.0f) {
        std::vector<float> out(n);
        for (float &value : out)
            value = normal() * scale;
        return out;
    }
    uint32_t below(uint32_t n) { return static_cast<uint32_t>(engine_() % n); }

    /* A matrix of weights of a few hundredths, in any format with a codec: every block is one of
     * the format's samples, so that large matrices cost no encoding. */
    Matrix matrix(uint16_t format, uint32_t rows, uint32_t cols) {
        const Matrix &source = samples(format);
        const struct plec_format *info = plec_format_find(format);
        Matrix m;
        m.format = format, m.rows = rows, m.cols = cols;
        uint64_t values_bytes = 0, scales_bytes = 0;
        EXPECT_EQ(plec_format_size(&values_bytes, &scales_bytes, format, rows, cols, nullptr),
                  PLEC_OK);
        m.values.resize(values_bytes);
        m.scales.resize(scales_bytes);
        size_t n_blocks = static_cast<size_t>(rows) * (cols / info->block_elems),
               bytes = info->block_bytes;
        bool trailing = info->geometry == PLEC_TRAILING;
        uint8_t *scales = trailing ? &m.values[n_blocks * bytes] : m.scales.data();
        const uint8_t *source_scales =
            trailing ? &source.values[SAMPLES * bytes] : source.scales.data();
        for (size_t i = 0; i < n_blocks; i++) {
            size_t sample = below(SAMPLES);
            memcpy(&m.values[i * bytes], &source.values[sample * bytes], bytes);
            if (info->scale_bytes != 0) scales[i] = source_scales[sample];
        }
        if (trailing) memcpy(scales + n_blocks, source_scales + SAMPLES, 4);
        return m;
    }

  private:
    enum { SAMPLES = 256 };
    static constexpr float sample_scale = 0.06f;

    /* SAMPLES blocks of a format, a block a row: encoded where there is an encoder. */
    static const Matrix &samples(uint16_t format) {
        static std::map<uint16_t, Matrix> made;
        Matrix &m = made[format];
        if (m.rows != 0) return m;
        m.format = format, m.rows = SAMPLES, m.cols = plec_format_find(format)->block_elems;
        uint64_t values_bytes = 0, scales_bytes = 0;
        EXPECT_EQ(plec_format_size(&values_bytes, &scales_bytes, format, m.rows, m.cols, nullptr),
                  PLEC_OK);
        m.values.resize(values_bytes);
        m.scales.resize(scales_bytes);
        Random random(format);
        if (plec_format_encodable(format))
            random.encode(&m);
        else
            random.draw_blocks(&m);
        return m;
    }
    void encode(Matrix *m) {
        std::vector<float> source = normals(static_cast<size_t>(m->rows) * m->cols, sample_scale);
        struct plec_encode_args args = {m->format,     m->rows,          m->cols,
                                        source.data(), m->values.data(), m->scales.data()};
        EXPECT_EQ(plec_matrix_encode(&args, nullptr), PLEC_OK);
    }
    /* Random bytes, each block drawn until its values are finite and of the right size. */
    void draw_blocks(Matrix *m) {
        const struct plec_format *format = plec_format_find(m->format);
        ASSERT_EQ(format->geometry, PLEC_INLINE) << format->name;
        for (size_t at = 0; at < m->values.size(); at += format->block_bytes)
            do {
                for (size_t i = 0; i < format->block_bytes; i++)
                    m->values[at + i] = static_cast<uint8_t>(engine_());
            } while (!tame(format, &m->values[at]));
    }
    static bool tame(const struct plec_format *format, const uint8_t *block) {
        double values[256], largest = 0;
        struct plec_matrix one = {format->tag, 1, format->block_elems, block, nullptr};
        plec_matrix_row_f64(values, &one, 0);
        for (uint32_t i = 0; i < format->block_elems; i++)
            if (!(fabs(values[i]) < 4 * sample_scale))
                return false;
            else
                largest = fmax(largest, fabs(values[i]));
        return largest > 0.1f * sample_scale;
    }

    std::mt19937 engine_;
    std::normal_distribution<float> normal_;
};

/* What a bank is made of. A format below 0: the operand is absent. */
struct BankSpec {
    uint32_t n_entries = 4, input_dim = 256, intermediate_dim = 256, output_dim = 256;
    uint32_t down_cols = 0; /* 0: intermediate_dim */
    enum plec_fusion fusion = PLEC_NOT_FUSED;
    int gate = PLEC_FORMAT_F32, up = PLEC_FORMAT_F32, down = PLEC_FORMAT_F32;
    int bias = -1; /* of all three matrices */
    bool scales = false;
    struct plec_expert_maths maths = {PLEC_SILU, 0, 0, 0, 0};
    uint32_t seed = 1;
};

class Bank {
  public:
    explicit Bank(const BankSpec &spec) : random_(spec.seed) {
        bank_.n_entries = spec.n_entries;
        bank_.input_dim = spec.input_dim;
        bank_.intermediate_dim = spec.intermediate_dim;
        bank_.output_dim = spec.output_dim;
        bank_.fusion = spec.fusion;
        bank_.maths = spec.maths;
        entries_.resize(spec.n_entries);
        bool fused = spec.fusion != PLEC_NOT_FUSED;
        uint32_t n = spec.intermediate_dim;
        add(PLEC_GATE, spec.gate, fused ? 2 * n : n, spec.input_dim, spec.bias);
        add(PLEC_UP, fused ? -1 : spec.up, n, spec.input_dim, spec.bias);
        add(PLEC_DOWN, spec.down, spec.output_dim, spec.down_cols == 0 ? n : spec.down_cols,
            spec.bias);
        if (spec.scales) {
            for (std::vector<float> *list : {&gate_scale_, &up_scale_, &down_scale_})
                for (uint32_t e = 0; e < spec.n_entries; e++)
                    list->push_back(0.5f + 0.125f * static_cast<float>(random_.below(16)));
            bank_.gate_scale = gate_scale_.data();
            bank_.up_scale = up_scale_.data();
            bank_.down_scale = down_scale_.data();
        }
        bank_.entries = entries_.data();
    }
    Bank(const Bank &) = delete;
    Bank &operator=(const Bank &) = delete;
    const struct plec_bank *get() const { return &bank_; }

  private:
    void add(enum plec_operand_id id, int format, uint32_t rows, uint32_t cols, int bias) {
        if (format < 0) return;
        add_one(id, static_cast<uint16_t>(format), rows, cols);
        auto bias_id = static_cast<enum plec_operand_id>(id + PLEC_GATE_BIAS);
        if (bias >= 0) add_one(bias_id, static_cast<uint16_t>(bias), 1, rows);
    }
    void add_one(enum plec_operand_id id, uint16_t format, uint32_t rows, uint32_t cols) {
        bank_.operands[id] = {format, rows, cols};
        for (struct plec_entry &entry : entries_) {
            matrices_.push_back(random_.matrix(format, rows, cols));
            entry.values[id] = matrices_.back().values.data();
            if (static_cast<int>(id) < PLEC_N_MATRICES && !matrices_.back().scales.empty())
                entry.scales[id] = matrices_.back().scales.data();
        }
    }

    Random random_;
    struct plec_bank bank_ = {};
    std::vector<struct plec_entry> entries_;
    std::vector<Matrix> matrices_; /* moving one keeps its bytes in place */
    std::vector<float> gate_scale_, up_scale_, down_scale_;
};

/* One launch's inputs. */
struct Step {
    uint32_t n_tokens = 1, n_slots = 2;
    std::vector<int32_t> ids;       /* empty: NULL */
    std::vector<float> weights;     /* empty: NULL */
    std::vector<float> token_scale; /* empty: NULL */
    std::vector<float> x;
    std::vector<float> y; /* what is there before, for accumulate; empty: not accumulated */
    bool weight_on_input = false;
};

/* Random routing over the bank; distinct ids a token where there are enough experts. */
inline Step make_step(const struct plec_bank *bank, uint32_t n_tokens, uint32_t n_slots,
                      uint32_t seed) {
    Random random(seed);
    Step step;
    step.n_tokens = n_tokens, step.n_slots = n_slots;
    step.x = random.normals(static_cast<size_t>(n_tokens) * bank->input_dim);
    for (uint32_t t = 0; t < n_tokens; t++) {
        uint32_t first = random.below(bank->n_entries);
        for (uint32_t j = 0; j < n_slots; j++) {
            step.ids.push_back(static_cast<int32_t>((first + j) % bank->n_entries));
            step.weights.push_back(0.1f + 0.05f * static_cast<float>(random.below(16)));
        }
    }
    return step;
}

/* The step by the reference executor, token by token. */
inline std::vector<double> reference_step(const struct plec_bank *bank, const Step &step,
                                          enum plec_reference_rule rule = PLEC_REFERENCE_EXACT) {
    size_t in = bank->input_dim, out = bank->output_dim;
    std::vector<double> y(step.n_tokens * out), x(in);
    std::vector<double> scratch(plec_reference_expert_scratch(bank));
    for (size_t t = 0; t < step.n_tokens; t++) {
        for (size_t i = 0; i < in; i++)
            x[i] = step.x[t * in + i];
        for (uint32_t j = 0; j < step.n_slots; j++) {
            size_t pair = t * step.n_slots + j;
            double weight = step.weights.empty() ? 1.0 : step.weights[pair];
            if (!step.token_scale.empty()) weight *= step.token_scale[t];
            uint32_t entry = step.ids.empty() ? j : static_cast<uint32_t>(step.ids[pair]);
            struct plec_reference_expert_args args = {
                bank, entry, rule, weight, step.weight_on_input, x.data(), scratch.data()};
            plec_reference_expert_by_rule(&y[t * out], &args);
        }
        for (size_t i = 0; i < out && !step.y.empty(); i++)
            y[t * out + i] += step.y[t * out + i];
    }
    return y;
}

} // namespace plec_test
#endif
