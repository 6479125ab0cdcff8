// An experts launch of the CUDA backend against the reference executor that rounds where it does.
#include "tests/support/cuda_device.h"

#include <cstring>

namespace {

using namespace plec_test;

const double close_enough = 1e-7; /* to the reference in its bf16-rule mode */
const double near_exact = 4e-5;   /* to the exact one */

void expect_right(const std::vector<float> &y, const struct plec_bank *bank, const Step &step) {
    EXPECT_LT(nmse(y, reference_step(bank, step, PLEC_REFERENCE_BF16)), close_enough);
    EXPECT_LT(nmse(y, reference_step(bank, step)), near_exact);
}

void expect_launch_right(const BankSpec &spec, uint32_t n_tokens, uint32_t n_slots) {
    CudaDevice cuda;
    Bank bank(spec);
    UploadedBank uploaded(&cuda, bank.get());
    Step step = make_step(bank.get(), n_tokens, n_slots, 7);
    std::vector<float> y = CudaLaunch(&cuda, uploaded.get(), step).run();
    expect_right(y, bank.get(), step);
    std::vector<float> again = CudaLaunch(&cuda, uploaded.get(), step).run();
    EXPECT_EQ(memcmp(y.data(), again.data(), y.size() * sizeof y[0]), 0);
}

std::vector<uint16_t> all_formats() {
    size_t n;
    const struct plec_format *formats = plec_format_all(&n);
    std::vector<uint16_t> tags;
    for (size_t i = 0; i < n; i++)
        tags.push_back(formats[i].tag);
    return tags;
}

class CudaFormats : public testing::TestWithParam<uint16_t> {};

TEST_P(CudaFormats, EqualTheReference) {
    BankSpec spec;
    uint32_t block = plec_format_find(GetParam())->block_elems, n = block < 64 ? 64 : block;
    spec.n_entries = 3;
    spec.input_dim = n + (block < 64 ? 32 : 0), spec.intermediate_dim = n, spec.output_dim = 24;
    spec.gate = spec.up = spec.down = GetParam();
    expect_launch_right(spec, 5, 2);
}

std::string format_name(const testing::TestParamInfo<uint16_t> &test) {
    return plec_format_find(test.param)->name;
}
INSTANTIATE_TEST_SUITE_P(, CudaFormats, testing::ValuesIn(all_formats()), format_name);

} // namespace
