/* mm_claims.h: cases and claims that the tests of several GEMM kernels have in common. */
#ifndef PLEC_TESTS_SUPPORT_MM_CLAIMS_H
#define PLEC_TESTS_SUPPORT_MM_CLAIMS_H

#include "tests/support/mm_cases.h"

#include <functional>

namespace plec_test {

const enum plec_fusion MM_LAYOUTS[] = {PLEC_NOT_FUSED, PLEC_FUSED_GATE_FIRST, PLEC_FUSED_UP_FIRST,
                                       PLEC_FUSED_INTERLEAVED};
/* Gate, up and down in formats of their own. */
const int MM_MIXES[][3] = {{PLEC_FORMAT_Q4_K, PLEC_FORMAT_Q6_K, PLEC_FORMAT_Q8_0},
                           {PLEC_FORMAT_MXFP4, PLEC_FORMAT_NVFP4, PLEC_FORMAT_BF16},
                           {PLEC_FORMAT_F32, PLEC_FORMAT_Q4_0, PLEC_FORMAT_MXFP8},
                           {PLEC_FORMAT_GGUF_Q5_0, PLEC_FORMAT_BF16, PLEC_FORMAT_F32}};

/* The name of a test whose parameter is an index of MM_FORMATS. */
inline std::string mm_format_name(const testing::TestParamInfo<size_t> &test) {
    return plec_format_find(MM_FORMATS[test.param])->name;
}

/* Format f in each of the four layouts, and over the formats every activation in each; sizes that
 * are no multiple of a tile, biases, scales, weights on the input and accumulation in turn.
 * expect(spec, step) holds a case. */
inline void
for_each_layout(size_t f, uint32_t n_entries, uint32_t n_slots, const uint32_t n_tokens[4],
                const std::function<void(const BankSpec &spec, const Step &step)> &expect) {
    int format = MM_FORMATS[f];
    for (size_t layout = 0; layout < 4; layout++) {
        size_t turn = f + layout * 7;
        BankSpec spec =
            mm_spec(format, format, format, turn % 3 == 0 ? 96 : 32, turn % 2 ? 40 : 96);
        spec.fusion = MM_LAYOUTS[layout];
        set_maths(&spec, static_cast<int>((f + 2 * layout) % PLEC_N_ACTIVATIONS));
        spec.bias = turn % 2 ? PLEC_FORMAT_F32 : turn % 5 == 0 ? PLEC_FORMAT_BF16 : -1;
        spec.scales = turn % 3 == 1;
        spec.n_entries = n_entries;
        Bank bank(spec);
        Step step = make_step(bank.get(), n_tokens[layout], n_slots, static_cast<uint32_t>(turn));
        step.weight_on_input = turn % 4 == 3;
        if (turn % 4 == 2) step.y = Random(5).normals(size_t(step.n_tokens) * spec.output_dim);
        SCOPED_TRACE("layout " + std::to_string(layout));
        expect(spec, step);
    }
}

/* Rows of so many columns and more, up to whole blocks; a few outputs. */
inline BankSpec long_rows(int format, uint32_t n_columns, uint32_t n_outputs) {
    BankSpec spec = mm_spec(format, format, format, 32, 32);
    spec.input_dim = whole_blocks(format, n_columns);
    spec.output_dim = n_outputs, spec.intermediate_dim = 24;
    spec.down_cols = whole_blocks(format, 24);
    return spec;
}

inline void expect_parts_to_equal_all(CudaDevice *cuda, const struct plec_bank *bank,
                                      const Step &step,
                                      const std::vector<std::vector<uint32_t>> &parts) {
    PackedBank uploaded(cuda, bank);
    std::vector<float> at_once = CudaLaunch(cuda, uploaded.get(), step).run();
    CudaLaunch launch(cuda, uploaded.get(), step);
    launch.phase(PLEC_EXPERTS_BEGIN);
    for (const std::vector<uint32_t> &part : parts)
        launch.phase(PLEC_EXPERTS_PART, part);
    launch.phase(PLEC_EXPERTS_FINISH);
    std::vector<float> got = launch.y();
    EXPECT_EQ(memcmp(got.data(), at_once.data(), got.size() * sizeof got[0]), 0);
}

/* Of a step one token of which is made NaN: the other tokens keep their bits. */
inline void expect_nan_to_stay(CudaDevice *cuda, const BankSpec &spec, Step step, size_t token) {
    Bank bank(spec);
    PackedBank uploaded(cuda, bank.get());
    std::vector<float> clean = run_with_canary(cuda, uploaded.get(), step);
    size_t in = spec.input_dim, out = spec.output_dim;
    std::fill_n(step.x.begin() + static_cast<ptrdiff_t>(token * in), in, NAN);
    std::vector<float> got = run_with_canary(cuda, uploaded.get(), step);
    for (size_t i = 0; i < got.size(); i++)
        if (i / out == token)
            EXPECT_TRUE(std::isnan(got[i])) << i;
        else
            EXPECT_EQ(got[i], clean[i]) << i;
}

/* Scale byte `scale` in row 10 of down [64, 64] makes its outputs NaN, whatever the tokens hold,
 * and leaves the others alone. */
inline void expect_nan_of_a_scale(CudaDevice *cuda, int format, uint8_t scale, uint32_t n_tokens) {
    BankSpec spec = mm_spec(PLEC_FORMAT_BF16, PLEC_FORMAT_BF16, format, 64, 64);
    spec.n_entries = 1;
    Bank bank(spec);
    const struct plec_entry &entry = bank.get()->entries[0];
    const uint8_t *at = format == PLEC_FORMAT_GGUF_MXFP4
                            ? entry.values[PLEC_DOWN] + 17 * (2 * 10 + 1)
                            : entry.scales[PLEC_DOWN] + 2 * 10 + 1;
    *const_cast<uint8_t *>(at) = scale;
    UploadedBank uploaded(cuda, bank.get());
    std::vector<float> got =
        run_with_canary(cuda, uploaded.get(), make_step(bank.get(), n_tokens, 1, 7));
    for (size_t i = 0; i < got.size(); i++)
        EXPECT_EQ(std::isnan(got[i]), i % 64 == 10) << i;
}

/* E8M0 byte 255 is NaN; under 254 most weights are too large for an f32, and GGUF's 255 is 2^128.
 */
inline void expect_nan_of_scales_beyond_f32(CudaDevice *cuda, uint32_t n_tokens) {
    for (uint8_t scale : {uint8_t(254), uint8_t(255)})
        for (int format : {PLEC_FORMAT_MXFP4, PLEC_FORMAT_GGUF_MXFP4, PLEC_FORMAT_MXFP8}) {
            SCOPED_TRACE(std::to_string(scale) + " in format " + std::to_string(format));
            expect_nan_of_a_scale(cuda, format, scale, n_tokens);
        }
}

/* Tokens 2^-15, 1 and 2^15 times as large in turn, in one launch: what is staged has the range of
 * bf16. */
inline void expect_range_to_be_kept(CudaDevice *cuda, int format, uint32_t n_tokens) {
    BankSpec spec = mm_spec(format, format, format, 64, 64);
    spec.n_entries = 1;
    set_maths(&spec, PLEC_RELU);
    Bank bank(spec);
    Step step = make_step(bank.get(), n_tokens, 1, 7);
    for (size_t i = 0; i < step.x.size(); i++)
        step.x[i] = std::ldexp(step.x[i], 15 * (static_cast<int>(i / spec.input_dim % 3) - 1));
    PackedBank uploaded(cuda, bank.get());
    expect_elements(run_with_canary(cuda, uploaded.get(), step),
                    reference_step(bank.get(), step, PLEC_REFERENCE_BF16), spec.output_dim);
}

/* Tokens of 1e-30 to 1e30, under an activation that leaves them their size. */
inline void expect_right_at_any_size(CudaDevice *cuda, int format, uint32_t n_tokens) {
    BankSpec spec = mm_spec(-1, format, format, 64, 64);
    set_maths(&spec, PLEC_RELU);
    Bank bank(spec);
    PackedBank uploaded(cuda, bank.get());
    for (float size : {1e-30f, 1e-10f, 1e10f, 1e20f, 1e30f}) {
        Step step = make_step(bank.get(), n_tokens, 2, 7);
        for (float &x : step.x)
            x *= size;
        SCOPED_TRACE(size);
        expect_right(run_with_canary(cuda, uploaded.get(), step), bank.get(), step);
    }
}

/* Relu of u, or of g times u, keeps a power of two apart from the digits: tokens of 2^k times the
 * size give outputs of 2^k (4^k) times the size, to the bit, from 2^-100 to 2^100. Sizes are mixed
 * in one launch. */
inline void expect_digits_at_any_size(CudaDevice *cuda, int format, uint32_t n_tokens) {
    for (int powers : {1, 2}) {
        BankSpec spec = mm_spec(powers == 1 ? -1 : format, format, format, 64, 64);
        spec.n_entries = 1;
        set_maths(&spec, PLEC_RELU);
        Bank bank(spec);
        PackedBank uploaded(cuda, bank.get());
        Step step = make_step(bank.get(), n_tokens, 1, 7), sized = step;
        const int sizes[] = {0, -100, 100, -34, 34, -66, 66};
        auto size_of = [&](size_t t) { return sizes[t % 7] / powers; };
        for (size_t i = 0; i < step.x.size(); i++)
            sized.x[i] = std::ldexp(step.x[i], size_of(i / spec.input_dim));
        std::vector<float> wanted = run_with_canary(cuda, uploaded.get(), step);
        std::vector<float> got = run_with_canary(cuda, uploaded.get(), sized);
        int n_wrong = 0;
        for (size_t i = 0; i < got.size() && n_wrong < 3; i++) {
            int size = size_of(i / spec.output_dim);
            if (std::ldexp(wanted[i], size * powers) == got[i]) continue;
            n_wrong++;
            ADD_FAILURE() << plec_format_find(static_cast<uint16_t>(format))->name << ", tokens 2^"
                          << size << " times the size: " << got[i] << " of " << wanted[i];
        }
    }
}

} // namespace plec_test
#endif
