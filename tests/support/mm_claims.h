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

/* A scale byte of 255 is NaN: it spoils its own row, whatever the tokens hold. */
inline void expect_nan_of_a_nan_scale(CudaDevice *cuda, uint32_t n_tokens) {
    BankSpec spec = mm_spec(PLEC_FORMAT_BF16, PLEC_FORMAT_BF16, PLEC_FORMAT_MXFP4, 64, 64);
    spec.n_entries = 1;
    Bank bank(spec);
    const_cast<uint8_t *>(bank.get()->entries[0].scales[PLEC_DOWN])[2 * 10 + 1] = 255;
    UploadedBank uploaded(cuda, bank.get());
    std::vector<float> got =
        run_with_canary(cuda, uploaded.get(), make_step(bank.get(), n_tokens, 1, 7));
    for (size_t i = 0; i < got.size(); i++)
        EXPECT_EQ(std::isnan(got[i]), i % 64 == 10) << i;
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

} // namespace plec_test
#endif
