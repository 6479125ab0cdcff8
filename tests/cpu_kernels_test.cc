#include "device/device.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <thread>

#include "lyrw/codec/bits.h"
#include "tests/support/bank.h"
#include "tests/support/data.h"

namespace {

using plec_test::Bank;
using plec_test::BankSpec;
using plec_test::make_step;
using plec_test::Matrix;
using plec_test::nmse;
using plec_test::Random;
using plec_test::reference_step;
using plec_test::Step;

const float nan_f = std::numeric_limits<float>::quiet_NaN();
const float inf_f = std::numeric_limits<float>::infinity();

/* The promise is 1e-9; f32 accumulation does far better, and a fault would show in between. */
const double most_nmse = 2e-12;

const uint16_t vector_formats[] = {PLEC_FORMAT_F32,  PLEC_FORMAT_F16,  PLEC_FORMAT_BF16,
                                   PLEC_FORMAT_Q8_0, PLEC_FORMAT_Q4_0, PLEC_FORMAT_Q4_K,
                                   PLEC_FORMAT_Q6_K, PLEC_FORMAT_MXFP4};

/* The kernels a device is told to use. Where the processor lacks the vectors, the tests of a set
 * run what it falls back on. */
enum Kernels { BEST, AVX2, PLAIN_C };
const enum Kernels all_kernels[] = {BEST, AVX2, PLAIN_C};

/* A device with one stream; every buffer it hands out starts as NaN. */
class Cpu {
  public:
    explicit Cpu(uint32_t n_threads = 2, enum Kernels kernels = BEST) {
        struct plec_device_options options = {};
        options.n_threads = n_threads;
        options.plain_c = kernels == PLAIN_C;
        options.vector_bits = kernels == AVX2 ? 256 : 0;
        EXPECT_EQ(plec_device_open(&device_, PLEC_DEVICE_CPU, &options, nullptr), PLEC_OK);
        EXPECT_EQ(plec_stream_open(&stream_, device_, nullptr), PLEC_OK);
    }
    ~Cpu() {
        plec_stream_close(stream_);
        plec_device_close(device_);
    }
    Cpu(const Cpu &) = delete;
    Cpu &operator=(const Cpu &) = delete;

    const char *kernel(uint16_t format) const {
        return plec_device_kernel_name(device_, format, nullptr);
    }
    struct plec_stream *stream() {
        return stream_;
    }
    struct plec_device *device() {
        return device_;
    }

    enum plec_status experts(std::vector<float> *y, const struct plec_bank *bank, const Step &step,
                             struct plec_error *err, struct plec_stream *stream = nullptr) {
        uint64_t bytes = 0;
        EXPECT_TRUE(plec_experts_workspace(&bytes, device_, bank, step.n_tokens, step.n_slots));
        void *workspace = nullptr;
        EXPECT_EQ(plec_device_alloc(&workspace, device_, bytes, nullptr), PLEC_OK);
        memset(workspace, 0xFF, bytes);
        *y = step.y;
        y->resize(static_cast<size_t>(step.n_tokens) * bank->output_dim, nan_f);
        struct plec_experts_args args = {};
        args.bank = bank;
        args.ids = step.ids.empty() ? nullptr : step.ids.data();
        args.weights = step.weights.empty() ? nullptr : step.weights.data();
        args.token_scale = step.token_scale.empty() ? nullptr : step.token_scale.data();
        args.n_tokens = step.n_tokens;
        args.n_slots = step.n_slots;
        args.weight_on_input = step.weight_on_input;
        args.accumulate = !step.y.empty();
        args.x = step.x.data();
        args.y = y->data();
        args.workspace = workspace;
        if (stream == nullptr) stream = stream_;
        enum plec_status status = plec_launch_experts(stream, &args, err);
        if (status == PLEC_OK) status = plec_stream_sync(stream, err);
        plec_device_free(device_, workspace);
        return status;
    }
    std::vector<float> experts(const struct plec_bank *bank, const Step &step) {
        std::vector<float> y;
        EXPECT_EQ(experts(&y, bank, step, nullptr), PLEC_OK);
        return y;
    }
    std::vector<float> linear(const struct plec_matrix &m, const std::vector<float> &x,
                              uint32_t n_tokens, const std::vector<float> &before = {}) {
        std::vector<float> y = before;
        y.resize(static_cast<size_t>(n_tokens) * m.rows, nan_f);
        struct plec_linear_args args = {m, x.data(), y.data(), n_tokens, !before.empty()};
        EXPECT_EQ(plec_launch_linear(stream_, &args, nullptr), PLEC_OK);
        EXPECT_EQ(plec_stream_sync(stream_, nullptr), PLEC_OK);
        return y;
    }

  private:
    struct plec_device *device_ = nullptr;
    struct plec_stream *stream_ = nullptr;
};

std::vector<double> reference_linear(const struct plec_matrix &m, const std::vector<float> &x,
                                     uint32_t n_tokens) {
    std::vector<double> y(static_cast<size_t>(n_tokens) * m.rows), row(m.cols);
    for (uint32_t r = 0; r < m.rows; r++) {
        plec_matrix_row_f64(row.data(), &m, r);
        for (size_t t = 0; t < n_tokens; t++)
            for (size_t i = 0; i < m.cols; i++)
                y[t * m.rows + r] += row[i] * x[t * m.cols + i];
    }
    return y;
}

bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/* The next multiple of a format's block. */
uint32_t fit(uint16_t format, uint32_t n) {
    uint32_t block = plec_format_find(format)->block_elems;
    return (n + block - 1) / block * block;
}

enum plec_activation activation_of(size_t i) {
    return static_cast<enum plec_activation>(i % PLEC_N_ACTIVATIONS);
}

struct plec_expert_maths maths_of(enum plec_activation activation) {
    return {activation, activation == PLEC_CLAMPED_GATED ? 0.9 : 0.7, 1.702, 4.0, 0.5};
}

/* Layouts, the last two without a gate. */
struct Layout {
    const char *name;
    enum plec_fusion fusion;
    bool gate;
};
const Layout layouts[] = {{"separate", PLEC_NOT_FUSED, true},
                          {"gate first", PLEC_FUSED_GATE_FIRST, true},
                          {"up first", PLEC_FUSED_UP_FIRST, true},
                          {"interleaved", PLEC_FUSED_INTERLEAVED, true},
                          {"no gate", PLEC_NOT_FUSED, false}};

BankSpec spec_of(uint16_t format, const Layout &layout) {
    BankSpec spec;
    spec.gate = layout.gate ? format : -1;
    spec.up = spec.down = format;
    spec.fusion = layout.fusion;
    return spec;
}

class EveryFormat : public ::testing::TestWithParam<uint16_t> {};

std::vector<uint16_t> all_formats() {
    size_t n = 0;
    const struct plec_format *formats = plec_format_all(&n);
    std::vector<uint16_t> tags;
    for (size_t i = 0; i < n; i++)
        tags.push_back(formats[i].tag);
    return tags;
}

std::string format_name(const ::testing::TestParamInfo<uint16_t> &info) {
    return plec_format_find(info.param)->name;
}

INSTANTIATE_TEST_SUITE_P(Cpu, EveryFormat, ::testing::ValuesIn(all_formats()), format_name);

/* Layouts x tokens x widths, with activations, biases and scales taking turns. */
TEST_P(EveryFormat, EqualsTheReferenceInEveryLayout) {
    const uint32_t tokens[] = {1, 2, 3, 5, 8, 17}, widths[] = {32, 96, 256, 288, 512, 704};
    const uint16_t format = GetParam();
    Cpu best, avx2(2, AVX2), plain(2, PLAIN_C);
    size_t turn = format;
    for (const Layout &layout : layouts)
        for (uint32_t n_tokens : tokens) {
            if (++turn % 2 == 0 && n_tokens > 3) continue; /* each layout meets half of them */
            BankSpec spec = spec_of(format, layout);
            spec.n_entries = turn % 3 == 0 ? 3 : 9;
            size_t n_widths = n_tokens > 3 ? 4 : 6; /* many tokens at moderate widths */
            spec.input_dim = fit(format, widths[turn % n_widths]);
            spec.intermediate_dim = fit(format, widths[(turn / 2 + 2) % n_widths]);
            spec.output_dim = 33;
            spec.bias = turn % 3 == 0 ? PLEC_FORMAT_F32 : -1;
            spec.scales = turn % 4 == 1;
            spec.maths = maths_of(activation_of(turn));
            spec.seed = static_cast<uint32_t>(turn);
            Bank bank(spec);
            Step step = make_step(bank.get(), n_tokens, 2, spec.seed);
            std::vector<double> wanted = reference_step(bank.get(), step);
            for (Cpu *cpu : {&best, &avx2, &plain})
                EXPECT_LT(nmse(cpu->experts(bank.get(), step), wanted), most_nmse)
                    << cpu->kernel(format) << ", " << layout.name << ", " << n_tokens << " tokens, "
                    << spec.input_dim << " -> " << spec.intermediate_dim << ", "
                    << plec_activation_name(spec.maths.activation);
        }
}

TEST_P(EveryFormat, LinearEqualsTheReference) {
    const uint16_t format = GetParam();
    Cpu best, avx2(2, AVX2), plain(2, PLAIN_C);
    Random random(format);
    for (uint32_t n_tokens : {1u, 2u, 3u, 4u, 5u, 9u})
        for (uint32_t width : {1u, 31u, 160u, 500u, 1100u}) {
            Matrix m = random.matrix(format, 7, fit(format, width));
            std::vector<float> x = random.normals(static_cast<size_t>(n_tokens) * m.cols);
            std::vector<double> wanted = reference_linear(m.view(), x, n_tokens);
            for (Cpu *cpu : {&best, &avx2, &plain})
                EXPECT_LT(nmse(cpu->linear(m.view(), x, n_tokens), wanted), most_nmse)
                    << cpu->kernel(format) << ", " << n_tokens << " tokens, " << m.cols
                    << " columns";
            std::vector<float> before = random.normals(wanted.size());
            for (size_t i = 0; i < wanted.size(); i++)
                wanted[i] += before[i];
            for (Cpu *cpu : {&best, &avx2, &plain})
                EXPECT_LT(nmse(cpu->linear(m.view(), x, n_tokens, before), wanted), most_nmse);
        }
}

/* Down rows that end in padding: whatever the padding decodes to, it counts as 0. */
TEST_P(EveryFormat, PaddedColumnsOfDownCountAsZero) {
    const uint16_t format = GetParam();
    uint32_t block = plec_format_find(format)->block_elems;
    if (block == 1) return; /* nothing to pad */
    Cpu best, avx2(2, AVX2), plain(2, PLAIN_C);
    for (uint32_t whole : {0u, 1u, 2u, 3u}) {
        BankSpec spec;
        spec.down = format;
        spec.input_dim = 32;
        spec.intermediate_dim = whole * block + (block > 32 ? 32 : block / 2);
        spec.down_cols = fit(format, spec.intermediate_dim);
        spec.output_dim = 40;
        Bank bank(spec);
        Step step = make_step(bank.get(), 5, 2, whole);
        std::vector<double> wanted = reference_step(bank.get(), step);
        for (Cpu *cpu : {&best, &avx2, &plain})
            EXPECT_LT(nmse(cpu->experts(bank.get(), step), wanted), most_nmse)
                << cpu->kernel(format) << ", " << spec.intermediate_dim << " of " << spec.down_cols;
    }
}

/* Twice, on other numbers of threads, and each token alone. */
void expect_same_bits(const BankSpec &spec, enum Kernels kernels) {
    Bank bank(spec);
    Step step = make_step(bank.get(), 17, 2, 5);
    Cpu one(1, kernels);
    const std::vector<float> wanted = one.experts(bank.get(), step);
    ASSERT_LT(nmse(wanted, reference_step(bank.get(), step)), most_nmse);
    EXPECT_TRUE(same_bits(wanted, one.experts(bank.get(), step))) << "twice";
    for (uint32_t n_threads : {2u, 3u, 7u}) {
        Cpu cpu(n_threads, kernels);
        EXPECT_TRUE(same_bits(wanted, cpu.experts(bank.get(), step))) << n_threads << " threads";
    }
    for (uint32_t t = 0; t < step.n_tokens; t++) {
        Step alone;
        alone.ids = {step.ids[2 * t], step.ids[2 * t + 1]};
        alone.weights = {step.weights[2 * t], step.weights[2 * t + 1]};
        alone.x.assign(&step.x[t * spec.input_dim], &step.x[t * spec.input_dim] + spec.input_dim);
        std::vector<float> part(&wanted[t * spec.output_dim],
                                &wanted[t * spec.output_dim] + spec.output_dim);
        EXPECT_TRUE(same_bits(part, one.experts(bank.get(), alone))) << "token " << t << " alone";
    }
}

TEST_P(EveryFormat, GivesTheSameBitsForAnyThreadsAndBatch) {
    const uint16_t format = GetParam();
    BankSpec spec = spec_of(format, layouts[3]);
    spec.n_entries = 3;
    spec.input_dim = fit(format, 288);
    spec.intermediate_dim = fit(format, 96);
    spec.output_dim = 130;
    for (enum Kernels kernels : all_kernels) {
        SCOPED_TRACE(Cpu(1, kernels).kernel(format));
        expect_same_bits(spec, kernels);
    }
}

TEST_P(EveryFormat, PlainCAgreesWithTheVectorKernels) {
    const uint16_t format = GetParam();
    Cpu best, avx2(2, AVX2), plain(2, PLAIN_C);
    EXPECT_STREQ(plain.kernel(format), "plain_c");
    Random random(format);
    Matrix m = random.matrix(format, 19, fit(format, 700));
    std::vector<float> x = random.normals(static_cast<size_t>(6) * m.cols);
    std::vector<float> a = plain.linear(m.view(), x, 6);
    std::vector<double> wanted(a.begin(), a.end());
    EXPECT_LT(nmse(best.linear(m.view(), x, 6), wanted), most_nmse);
    EXPECT_LT(nmse(avx2.linear(m.view(), x, 6), wanted), most_nmse);
}

/* A vector wider than a stream's scratch holds an image of. */
TEST_P(EveryFormat, LinearTakesVeryWideRows) {
    const uint16_t format = GetParam();
    Cpu cpu;
    Random random(3);
    Matrix m = random.matrix(format, 1, 300 * 1024);
    std::vector<float> x = random.normals(2 * static_cast<size_t>(m.cols));
    EXPECT_LT(nmse(cpu.linear(m.view(), x, 2), reference_linear(m.view(), x, 2)), 1e-9);
}

TEST(CpuKernels, VectorKernelsRunWhereTheProcessorHasThem) {
    Cpu cpu;
#if defined(__x86_64__)
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        GTEST_SKIP() << "no AVX2 and FMA on this machine: the vector kernels are not tested";
    for (uint16_t format : vector_formats)
        EXPECT_STRNE(cpu.kernel(format), "plain_c") << plec_format_find(format)->name;
#else
    GTEST_SKIP() << "no vector kernels for this processor";
#endif
    EXPECT_STREQ(cpu.kernel(PLEC_FORMAT_GGUF_Q5_K), "plain_c");
}

TEST(CpuKernels, EveryActivationWithAndWithoutAGate) {
    Cpu cpu;
    for (int a = 0; a < PLEC_N_ACTIVATIONS; a++)
        for (const Layout &layout : layouts) {
            BankSpec spec = spec_of(PLEC_FORMAT_F32, layout);
            spec.maths = maths_of(activation_of(static_cast<size_t>(a)));
            spec.bias = PLEC_FORMAT_BF16;
            spec.scales = true;
            Bank bank(spec);
            Step step = make_step(bank.get(), 3, 2, static_cast<uint32_t>(a));
            EXPECT_LT(nmse(cpu.experts(bank.get(), step), reference_step(bank.get(), step)),
                      most_nmse)
                << plec_activation_name(spec.maths.activation) << ", " << layout.name;
        }
}

TEST(CpuKernels, ParametersThatAreAbsentActAsSaid) {
    Cpu cpu;
    BankSpec spec;
    spec.maths = {PLEC_SITU_GLU, 0, 0, 0, 0}; /* beta 1, u as it is */
    Bank bank(spec);
    Step step = make_step(bank.get(), 3, 2, 4);
    EXPECT_LT(nmse(cpu.experts(bank.get(), step), reference_step(bank.get(), step)), most_nmse);
}

/* Gate values far beyond where e^x overflows. */
TEST(CpuKernels, LargeGatesDoNotOverflow) {
    Cpu cpu;
    for (int a = 0; a < PLEC_N_ACTIVATIONS; a++)
        for (float size : {30.0f, 1e4f, 1e12f}) {
            BankSpec spec;
            spec.maths = maths_of(activation_of(static_cast<size_t>(a)));
            Bank bank(spec);
            Step step = make_step(bank.get(), 4, 2, 9);
            for (float &value : step.x)
                value *= size;
            std::vector<float> y = cpu.experts(bank.get(), step);
            std::vector<double> wanted = reference_step(bank.get(), step);
            if (a == PLEC_RELU_SQR && size > 1e10f) continue; /* beyond f32 itself */
            EXPECT_LT(nmse(y, wanted), 1e-7)                  /* steep where a gate is near 0 */
                << plec_activation_name(spec.maths.activation) << " at " << size;
        }
}

TEST(CpuKernels, BiasesMayHaveAnyFormat) {
    Cpu cpu;
    for (uint16_t format : all_formats()) {
        if (plec_format_find(format)->geometry != PLEC_INLINE) continue;
        for (const Layout &layout : layouts) {
            if (layout.fusion == PLEC_FUSED_UP_FIRST) continue;
            BankSpec spec = spec_of(PLEC_FORMAT_F32, layout);
            spec.intermediate_dim = spec.output_dim = 256;
            spec.input_dim = 32;
            spec.bias = format;
            Bank bank(spec);
            Step step = make_step(bank.get(), 1, 2, 6);
            EXPECT_LT(nmse(cpu.experts(bank.get(), step), reference_step(bank.get(), step)),
                      most_nmse)
                << plec_format_find(format)->name << ", " << layout.name;
        }
    }
}

TEST(CpuKernels, EachOperandMayHaveItsOwnFormat) {
    Cpu cpu;
    const std::vector<uint16_t> formats = all_formats();
    for (size_t i = 0; i < formats.size(); i++) {
        BankSpec spec;
        spec.gate = formats[i];
        spec.up = formats[(i + 3) % formats.size()];
        spec.down = formats[(i + 7) % formats.size()];
        spec.input_dim = spec.intermediate_dim = 256;
        spec.output_dim = 64;
        Bank bank(spec);
        Step step = make_step(bank.get(), 6, 2, static_cast<uint32_t>(i));
        EXPECT_LT(nmse(cpu.experts(bank.get(), step), reference_step(bank.get(), step)), most_nmse)
            << plec_format_find(formats[i])->name;
    }
}

TEST(CpuKernels, ExpertsWithNoOneAndManyRows) {
    Cpu cpu;
    BankSpec spec;
    spec.n_entries = 6;
    Bank bank(spec);
    Step step = make_step(bank.get(), 17, 2, 3);
    for (uint32_t t = 0; t < 17; t++) {
        step.ids[2 * t] = 4;                  /* every token */
        step.ids[2 * t + 1] = t == 8 ? 5 : 1; /* one token; sixteen; 0, 2 and 3 none */
    }
    EXPECT_LT(nmse(cpu.experts(bank.get(), step), reference_step(bank.get(), step)), most_nmse);
}

TEST(CpuKernels, AnExpertNamedTwiceCountsTwice) {
    Cpu cpu;
    Bank bank(BankSpec{});
    Step step = make_step(bank.get(), 3, 3, 3);
    step.ids = {1, 1, 2, 0, 3, 0, 2, 2, 2};
    EXPECT_LT(nmse(cpu.experts(bank.get(), step), reference_step(bank.get(), step)), most_nmse);
}

TEST(CpuKernels, WithoutIdsSlotJIsEntryJ) {
    Cpu cpu;
    Bank bank(BankSpec{});
    for (uint32_t n_slots : {1u, 4u}) {
        Step step = make_step(bank.get(), 5, n_slots, 3);
        step.ids.clear();
        step.weights.clear();
        EXPECT_LT(nmse(cpu.experts(bank.get(), step), reference_step(bank.get(), step)), most_nmse);
    }
}

TEST(CpuKernels, WeightsScaleTokensInputsAndSums) {
    Cpu cpu;
    BankSpec spec;
    spec.bias = PLEC_FORMAT_F32;
    spec.scales = true;
    Bank bank(spec);
    for (int i = 0; i < 8; i++) {
        Step step = make_step(bank.get(), 5, 3, 3);
        step.weight_on_input = i & 1;
        if (i & 2) step.token_scale = {0.5f, -1.25f, 2, 0, 1};
        if (i & 4) step.y = Random(8).normals(5 * spec.output_dim);
        EXPECT_LT(nmse(cpu.experts(bank.get(), step), reference_step(bank.get(), step)), most_nmse)
            << "case " << i;
    }
}

TEST(CpuKernels, NoTokensAndNoSlotsAreFine) {
    Cpu cpu;
    Bank bank(BankSpec{});
    Step none = make_step(bank.get(), 0, 2, 1), no_slots = make_step(bank.get(), 2, 0, 1);
    EXPECT_TRUE(cpu.experts(bank.get(), none).empty());
    EXPECT_EQ(cpu.experts(bank.get(), no_slots), std::vector<float>(512, 0.0f));
}

/* Streams share the helpers and nothing else. */
TEST(CpuKernels, TwoStreamsRunExpertsAtOnce) {
    Cpu cpu(3);
    BankSpec spec;
    spec.gate = spec.up = PLEC_FORMAT_Q4_K, spec.down = PLEC_FORMAT_Q6_K;
    Bank bank(spec);
    Step step = make_step(bank.get(), 8, 2, 4);
    const std::vector<float> wanted = cpu.experts(bank.get(), step);
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; i++)
        threads.emplace_back([&] {
            struct plec_stream *stream = nullptr;
            ASSERT_EQ(plec_stream_open(&stream, cpu.device(), nullptr), PLEC_OK);
            std::vector<float> y;
            for (int round = 0; round < 10; round++) {
                ASSERT_EQ(cpu.experts(&y, bank.get(), step, nullptr, stream), PLEC_OK);
                EXPECT_TRUE(same_bits(wanted, y));
            }
            plec_stream_close(stream);
        });
    for (std::thread &thread : threads)
        thread.join();
}

TEST(CpuKernels, RefusesAnIdOutsideTheBank) {
    Cpu cpu;
    Bank bank(BankSpec{});
    for (int32_t bad : {-1, 4, INT32_MAX, INT32_MIN}) {
        Step step = make_step(bank.get(), 3, 2, 1);
        step.ids[5] = bad;
        std::vector<float> y;
        struct plec_error err = {};
        EXPECT_EQ(cpu.experts(&y, bank.get(), step, &err), PLEC_BAD_INPUT);
        EXPECT_STREQ(err.name, "BadExpertId");
        EXPECT_NE(strstr(err.message, "token 2, slot 1"), nullptr) << err.message;
    }
}

TEST(CpuKernels, RefusesAFormatWithoutACodec) {
    Cpu cpu;
    float x[32] = {}, y = 0;
    uint8_t bytes[64] = {};
    struct plec_error err = {};
    struct plec_linear_args args = {{4242, 1, 32, bytes, nullptr}, x, &y, 1, false};
    EXPECT_EQ(plec_launch_linear(cpu.stream(), &args, &err), PLEC_UNSUPPORTED);
    EXPECT_STREQ(err.name, "NoKernel");
    EXPECT_NE(strstr(err.message, "format_4242"), nullptr) << err.message;
    EXPECT_EQ(plec_stream_sync(cpu.stream(), nullptr), PLEC_OK);
}

TEST(CpuKernels, WorkspaceSizesThatOverflowAreRefused) {
    Cpu cpu;
    Bank bank(BankSpec{});
    struct plec_bank huge = *bank.get();
    huge.output_dim = UINT32_MAX;
    uint64_t bytes = 1;
    EXPECT_FALSE(plec_experts_workspace(&bytes, cpu.device(), &huge, UINT32_MAX, UINT32_MAX));
    EXPECT_TRUE(plec_experts_workspace(&bytes, cpu.device(), bank.get(), 4096, 8));
    EXPECT_GT(bytes, 4096u * 8 * 256 * 4);
}

/* Sum of |w x| over a one-row matrix: what rounding is relative to. */
double magnitude(const struct plec_matrix &m, const std::vector<float> &x) {
    std::vector<double> row(m.cols);
    plec_matrix_row_f64(row.data(), &m, 0);
    double sum = 0;
    for (size_t i = 0; i < m.cols; i++)
        sum += fabs(row[i] * x[i]);
    return sum;
}

/* NaN for NaN, infinity for infinity, and finite values within rounding. */
void expect_same_kind(float got, double wanted, double rounding, const std::string &what) {
    if (std::isnan(wanted))
        EXPECT_TRUE(std::isnan(got)) << what << ": wanted NaN, got " << got;
    else if (std::isinf(wanted))
        EXPECT_EQ(got, static_cast<float>(wanted)) << what;
    else
        EXPECT_NEAR(got, wanted, rounding) << what;
}

void expect_exact_row(const Matrix &m, const std::vector<float> &x, const std::string &what) {
    for (enum Kernels kernels : all_kernels) {
        Cpu cpu(1, kernels);
        float got = cpu.linear(m.view(), x, 1)[0];
        expect_same_kind(got, reference_linear(m.view(), x, 1)[0], 1e-6 * magnitude(m.view(), x),
                         what + " with " + cpu.kernel(m.format));
    }
}

TEST(CpuKernels, EdgeScalesComeOutAsTheDecodeSays) {
    const uint16_t halves[] = {0x7C00, 0xFC00, 0x7E00, 0x7BFF, 0x0001, 0x8001, 0x0000, 0x8000};
    for (uint16_t format : {PLEC_FORMAT_Q4_0, PLEC_FORMAT_Q8_0, PLEC_FORMAT_Q4_K, PLEC_FORMAT_Q6_K})
        for (uint16_t half : halves) {
            Random random(half);
            Matrix m = random.matrix(format, 1, 512);
            size_t at = format == PLEC_FORMAT_Q6_K ? 208 : 0;
            memcpy(&m.values[at], &half, 2);
            std::vector<float> x(512);
            for (float &value : x)
                value = 0.5f + fabsf(random.normal());
            std::string what =
                std::string(plec_format_find(format)->name) + " scale " + std::to_string(half);
            expect_exact_row(m, x, what);
            if (format == PLEC_FORMAT_Q4_K) {
                memcpy(&m.values[2], &half, 2);
                expect_exact_row(m, x, what + " and minimum");
            }
        }
}

TEST(CpuKernels, EdgeE8m0ScalesComeOutAsTheDecodeSays) {
    for (int scale : {0, 1, 2, 24, 25, 26, 126, 252, 253, 254, 255})
        for (int code = 0; code < 16; code++) {
            Matrix m = Random(7).matrix(PLEC_FORMAT_MXFP4, 1, 96);
            m.scales.assign(3, 0);
            m.scales[1] = static_cast<uint8_t>(scale);
            for (int i = 16; i < 32; i++)
                m.values[i] = static_cast<uint8_t>(code | code << 4);
            std::vector<float> x(96, scale > 200 ? 0x1p-60f : 1.0f);
            expect_exact_row(m, x,
                             "scale " + std::to_string(scale) + ", code " + std::to_string(code));
        }
}

TEST(CpuKernels, EdgeWeightsOfFloatFormatsComeOutAsTheDecodeSays) {
    const uint32_t edges[] = {0x7F800000, 0xFF800000, 0x7FC00000,
                              0x00000001, 0x80000000, 0x00800000};
    for (uint16_t format : {PLEC_FORMAT_F32, PLEC_FORMAT_F16, PLEC_FORMAT_BF16})
        for (uint32_t edge : edges) {
            Matrix m = Random(1).matrix(format, 1, 40);
            std::fill(m.values.begin(), m.values.end(), uint8_t{0});
            uint16_t half = static_cast<uint16_t>(edge >> 16 & 0x8000) |
                            static_cast<uint16_t>((edge & 0x7F800000) == 0x7F800000 ? 0x7C00 : 0) |
                            static_cast<uint16_t>((edge & 0x7FFFFF) != 0 ? 0x200 : 0);
            uint16_t upper = static_cast<uint16_t>(edge >> 16);
            if (format == PLEC_FORMAT_F32) memcpy(&m.values[4 * 33], &edge, 4);
            if (format == PLEC_FORMAT_F16) memcpy(&m.values[2 * 33], &half, 2);
            if (format == PLEC_FORMAT_BF16) memcpy(&m.values[2 * 33], &upper, 2);
            expect_exact_row(m, std::vector<float>(40, 1.0f),
                             plec_format_find(format)->name + std::string(" edge ") +
                                 std::to_string(edge));
        }
}

TEST_P(EveryFormat, NanAndInfiniteInputsReachTheirTokenOnly) {
    const uint16_t format = GetParam();
    for (enum Kernels kernels : all_kernels) {
        Cpu cpu(2, kernels);
        Random random(format);
        Matrix m = random.matrix(format, 9, fit(format, 300));
        std::vector<float> x = random.normals(static_cast<size_t>(4) * m.cols);
        std::vector<float> clean = cpu.linear(m.view(), x, 4);
        x[1 * m.cols + 17 % m.cols] = nan_f;
        x[2 * m.cols + 5 % m.cols] = -inf_f;
        std::vector<float> y = cpu.linear(m.view(), x, 4);
        std::vector<double> wanted = reference_linear(m.view(), x, 4);
        for (uint32_t r = 0; r < m.rows; r++) {
            EXPECT_EQ(y[r], clean[r]);
            EXPECT_TRUE(std::isnan(y[m.rows + r]));
            expect_same_kind(y[2 * m.rows + r], wanted[2 * m.rows + r], 0, "infinite input");
            EXPECT_EQ(y[3 * m.rows + r], clean[3 * m.rows + r]);
        }
    }
}

TEST(CpuKernels, PaddingThatDecodesToNanCountsAsZero) {
    Cpu cpu;
    BankSpec spec;
    spec.n_entries = 1;
    spec.down = PLEC_FORMAT_FP4_LARQL;
    spec.intermediate_dim = 32, spec.down_cols = 256, spec.output_dim = 3;
    Bank bank(spec);
    const_cast<uint8_t *>(bank.get()->entries[0].values[PLEC_DOWN])[129] = 0x7F; /* a NaN scale */
    Step step = make_step(bank.get(), 1, 1, 1);
    EXPECT_LT(nmse(cpu.experts(bank.get(), step), reference_step(bank.get(), step)), most_nmse);
}

} // namespace
