// An experts launch of the CUDA backend against the reference executor that rounds where it does.
#ifndef PLEC_ON_GPU
#include "tests/emu/emulator.h"
#endif
#include "tests/support/cuda_device.h"

#include <algorithm>
#include <cstring>
#include <memory>

namespace {

using namespace plec_test;

const double close_enough = 1e-7; /* to the reference in its bf16-rule mode */
const double near_exact = 4e-5;   /* to the exact one */

void expect_right(const std::vector<float> &y, const struct plec_bank *bank, const Step &step) {
    EXPECT_LT(nmse(y, reference_step(bank, step, PLEC_REFERENCE_BF16)), close_enough);
    EXPECT_LT(nmse(y, reference_step(bank, step)), near_exact);
}

void expect_launch_right(const BankSpec &spec, uint32_t n_tokens, uint32_t n_slots, bool plain) {
    struct plec_device_options options = {};
    options.plain_c = plain;
    CudaDevice cuda(&options);
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

BankSpec spec_of(uint16_t format) {
    BankSpec spec;
    uint32_t block = plec_format_find(format)->block_elems, n = block < 64 ? 64 : block;
    spec.n_entries = 3;
    spec.input_dim = n + (block < 64 ? 32 : 0), spec.intermediate_dim = n, spec.output_dim = 24;
    spec.gate = spec.up = spec.down = format;
    return spec;
}

class CudaFormats : public testing::TestWithParam<uint16_t> {};

TEST_P(CudaFormats, EqualTheReferenceOnTheirHighestRung) {
    expect_launch_right(spec_of(GetParam()), 5, 2, false);
}
TEST_P(CudaFormats, EqualTheReferenceOnThePlainRung) {
    expect_launch_right(spec_of(GetParam()), 5, 2, true);
}

std::string format_name(const testing::TestParamInfo<uint16_t> &test) {
    return plec_format_find(test.param)->name;
}
INSTANTIATE_TEST_SUITE_P(, CudaFormats, testing::ValuesIn(all_formats()), format_name);

/* Scaled so that limits bite: gate and up values are of a few units. */
Step loud_step(const struct plec_bank *bank, uint32_t n_tokens, uint32_t n_slots) {
    Step step = make_step(bank, n_tokens, n_slots, 11);
    for (float &x : step.x)
        x *= 4;
    return step;
}

struct plec_expert_maths maths_of(int activation) {
    return {static_cast<enum plec_activation>(activation), 1.5, 1.702, 0.75, 1.25};
}

void expect_step_right(const Bank &bank, const Step &step) {
    CudaDevice cuda;
    UploadedBank uploaded(&cuda, bank.get());
    expect_right(CudaLaunch(&cuda, uploaded.get(), step).run(), bank.get(), step);
}

BankSpec small(int format = PLEC_FORMAT_Q8_0) {
    BankSpec spec;
    spec.n_entries = 3, spec.input_dim = 64, spec.intermediate_dim = 32, spec.output_dim = 40;
    spec.gate = spec.up = spec.down = format;
    return spec;
}

TEST(CudaExperts, KnowEveryActivation) {
    for (int activation = 0; activation < PLEC_N_ACTIVATIONS; activation++)
        for (bool gated : {true, false}) {
            SCOPED_TRACE(plec_activation_name(static_cast<enum plec_activation>(activation)));
            BankSpec spec = small();
            spec.maths = maths_of(activation);
            if (!gated) spec.gate = -1;
            Bank bank(spec);
            expect_step_right(bank, loud_step(bank.get(), 4, 2));
        }
}

/* What the rule and what a launch are off from the exact result. */
struct Distances {
    double rule, launch;
};
Distances distances(const std::vector<float> &y, const std::vector<double> &rule,
                    const std::vector<double> &exact) {
    EXPECT_LT(nmse(y, rule), close_enough);
    return {nmse(std::vector<float>(rule.begin(), rule.end()), exact), nmse(y, exact)};
}

/* Limits a hundredth of what they clamp: the exact result is further off than 4e-5, by what the
 * rule costs (reference_rule_test) and by nothing else. */
TEST(CudaExperts, AreAsFarFromTheExactResultAsTheRuleIs) {
    for (int activation : {PLEC_CLAMPED_GATED, PLEC_SILU_STEP, PLEC_SITU_GLU}) {
        BankSpec spec = small();
        spec.input_dim = spec.intermediate_dim = 128;
        spec.maths = {static_cast<enum plec_activation>(activation), 0.007, 0, 0.007, 0.007};
        Bank bank(spec);
        Step step = make_step(bank.get(), 24, 1, 11);
        CudaDevice cuda;
        UploadedBank uploaded(&cuda, bank.get());
        Distances d = distances(CudaLaunch(&cuda, uploaded.get(), step).run(),
                                reference_step(bank.get(), step, PLEC_REFERENCE_BF16),
                                reference_step(bank.get(), step));
        EXPECT_GT(d.rule, near_exact) << activation;
        EXPECT_NEAR(d.launch, d.rule, 0.01 * d.rule) << activation;
    }
}

/* The same of single tokens of a tiny layer, among them some whose outputs are nearly 0 by chance.
 */
TEST(CudaExperts, AreAsFarFromTheExactResultAsTheRuleIsTokenByToken) {
    BankSpec spec = small();
    spec.input_dim = 32, spec.output_dim = 8;
    spec.maths.activation = PLEC_RELU_SQR;
    Bank bank(spec);
    Step step = make_step(bank.get(), 64, 1, 11);
    CudaDevice cuda;
    UploadedBank uploaded(&cuda, bank.get());
    std::vector<float> y = CudaLaunch(&cuda, uploaded.get(), step).run();
    std::vector<double> rule = reference_step(bank.get(), step, PLEC_REFERENCE_BF16),
                        exact = reference_step(bank.get(), step);
    int n_beyond = 0;
    for (ptrdiff_t t = 0; t < 64; t++) {
        Distances d = distances({y.begin() + 8 * t, y.begin() + 8 * t + 8},
                                {rule.begin() + 8 * t, rule.begin() + 8 * t + 8},
                                {exact.begin() + 8 * t, exact.begin() + 8 * t + 8});
        EXPECT_NEAR(d.launch, d.rule, 0.01 * d.rule) << t;
        n_beyond += d.rule > near_exact;
    }
    EXPECT_GT(n_beyond, 0);
}

TEST(CudaExperts, KnowEveryFusionBiasAndScale) {
    for (int fusion = PLEC_NOT_FUSED; fusion <= PLEC_FUSED_INTERLEAVED; fusion++)
        for (int bias : {-1, int(PLEC_FORMAT_F32), int(PLEC_FORMAT_F16), int(PLEC_FORMAT_BF16)}) {
            SCOPED_TRACE("fusion " + std::to_string(fusion) + " bias " + std::to_string(bias));
            BankSpec spec = small();
            spec.fusion = static_cast<enum plec_fusion>(fusion);
            spec.bias = bias, spec.scales = true;
            spec.maths = maths_of(PLEC_CLAMPED_GLU);
            Bank bank(spec);
            expect_step_right(bank, loud_step(bank.get(), 16, 2));
        }
}

TEST(CudaExperts, MixFormatsWithinAnExpert) {
    BankSpec spec = small();
    spec.input_dim = spec.intermediate_dim = 256;
    spec.gate = PLEC_FORMAT_Q4_K, spec.up = PLEC_FORMAT_Q6_K, spec.down = PLEC_FORMAT_MXFP4;
    spec.bias = PLEC_FORMAT_F32, spec.scales = true;
    Bank bank(spec);
    expect_step_right(bank, make_step(bank.get(), 9, 2, 3));
    spec.gate = PLEC_FORMAT_F32, spec.up = PLEC_FORMAT_BF16, spec.down = PLEC_FORMAT_F32;
    Bank other(spec);
    expect_step_right(other, make_step(other.get(), 2, 3, 4));
}

TEST(CudaExperts, MultiplyPaddingOfDownByNothing) {
    BankSpec spec = small(PLEC_FORMAT_Q4_0);
    spec.gate = spec.up = PLEC_FORMAT_F16;
    spec.intermediate_dim = 41, spec.down_cols = 64;
    Bank bank(spec);
    expect_step_right(bank, make_step(bank.get(), 3, 2, 5));
}

TEST(CudaExperts, TakeWeightsOnTheInputTokenScalesAndSums) {
    Bank bank(small());
    Step step = make_step(bank.get(), 6, 3, 6);
    for (uint32_t t = 0; t < step.n_tokens; t++)
        step.token_scale.push_back(0.5f + 0.25f * static_cast<float>(t));
    expect_step_right(bank, step);
    step.weight_on_input = true;
    expect_step_right(bank, step);
    step.y = Random(3).normals(step.n_tokens * bank.get()->output_dim);
    expect_step_right(bank, step);
    step.ids.clear();
    expect_step_right(bank, step);
    step.weights.clear(), step.token_scale.clear();
    expect_step_right(bank, step);
}

/* The sum over slots is in slot order, in f32, product by product. */
TEST(CudaExperts, SumInSlotOrderBitForBit) {
    CudaDevice cuda;
    Bank bank(small());
    UploadedBank uploaded(&cuda, bank.get());
    Step step = make_step(bank.get(), 5, 3, 21);
    step.weights = Random(5).normals(15, 100);
    std::vector<float> y = CudaLaunch(&cuda, uploaded.get(), step).run();
    size_t out = bank.get()->output_dim;
    std::vector<float> want(5 * out, 0.0f);
    for (uint32_t slot = 0; slot < 3; slot++) {
        Step one = step;
        one.n_slots = 1, one.ids.clear(), one.weights.clear();
        for (uint32_t t = 0; t < 5; t++)
            one.ids.push_back(step.ids[3 * t + slot]);
        std::vector<float> part = CudaLaunch(&cuda, uploaded.get(), one).run();
        for (size_t i = 0; i < want.size(); i++) {
            float product = step.weights[3 * (i / out) + slot] * part[i];
            want[i] += product;
        }
    }
    EXPECT_EQ(memcmp(y.data(), want.data(), y.size() * sizeof y[0]), 0);
}

TEST(CudaExperts, SumATokensDuplicates) {
    Bank bank(small());
    Step step = make_step(bank.get(), 4, 3, 8);
    step.ids.assign(12, 1);
    expect_step_right(bank, step);
}

TEST(CudaExperts, HoldForEveryCountOfRows) {
    CudaDevice cuda;
    Bank bank(small(PLEC_FORMAT_Q4_0));
    UploadedBank uploaded(&cuda, bank.get());
    for (uint32_t n_tokens : {1, 7, 8, 9, 16, 17, 63, 64, 65, 130}) {
        SCOPED_TRACE(n_tokens);
        Step step = make_step(bank.get(), n_tokens, 1, n_tokens);
        if (n_tokens % 2 == 1) step.ids.assign(n_tokens, 2); /* all to one; others empty */
        expect_right(CudaLaunch(&cuda, uploaded.get(), step).run(), bank.get(), step);
    }
}

/* Rows of a token do not depend on what is run beside it. */
TEST(CudaExperts, GiveATokenTheSameBitsInAnyBatch) {
    CudaDevice cuda;
    Bank bank(small(PLEC_FORMAT_Q4_0));
    UploadedBank uploaded(&cuda, bank.get());
    Step step = make_step(bank.get(), 70, 2, 9);
    std::vector<float> all = CudaLaunch(&cuda, uploaded.get(), step).run();
    for (uint32_t token : {0, 33, 69}) {
        Step one = step;
        size_t in = bank.get()->input_dim, out = bank.get()->output_dim;
        one.n_tokens = 1;
        one.x.assign(&step.x[token * in], &step.x[token * in] + in);
        one.ids.assign(&step.ids[token * 2], &step.ids[token * 2] + 2);
        one.weights.assign(&step.weights[token * 2], &step.weights[token * 2] + 2);
        std::vector<float> alone = CudaLaunch(&cuda, uploaded.get(), one).run();
        EXPECT_EQ(memcmp(alone.data(), &all[token * out], out * sizeof(float)), 0);
    }
}

/* --- parts ---------------------------------------------------------------------------------- */

class CudaParts : public testing::Test {
  protected:
    CudaParts() : bank_(spec()), uploaded_(&cuda_, bank_.get()) {
        step_ = make_step(bank_.get(), 20, 2, 12);
        for (int32_t &id : step_.ids)
            if (id == 3) id = 4; /* expert 3 has no pairs */
    }
    static BankSpec spec() {
        BankSpec spec = small(PLEC_FORMAT_Q4_0);
        spec.n_entries = 6, spec.bias = PLEC_FORMAT_F32, spec.scales = true;
        return spec;
    }
    CudaDevice cuda_;
    Bank bank_;
    UploadedBank uploaded_;
    Step step_;
};

TEST_F(CudaParts, MakeWhatTheWholeMakes) {
    std::vector<float> whole = CudaLaunch(&cuda_, uploaded_.get(), step_).run();
    for (const std::vector<std::vector<uint32_t>> &order :
         {std::vector<std::vector<uint32_t>>{{0, 1, 2, 4, 5}},
          {{5}, {4}, {2}, {1}, {0}},
          {{2, 0}, {}, {5, 1, 4}}}) {
        CudaLaunch cut(&cuda_, uploaded_.get(), step_);
        cut.phase(PLEC_EXPERTS_BEGIN);
        for (const std::vector<uint32_t> &part : order)
            cut.phase(PLEC_EXPERTS_PART, part);
        cut.phase(PLEC_EXPERTS_FINISH);
        std::vector<float> y = cut.y();
        EXPECT_EQ(memcmp(y.data(), whole.data(), y.size() * sizeof y[0]), 0);
    }
}

/* Slots of a part are given away when it has run: nothing of an entry is read later. */
TEST_F(CudaParts, ReadAnEntryInItsOwnPartAlone) {
    std::vector<float> whole = CudaLaunch(&cuda_, uploaded_.get(), step_).run();
    CudaLaunch cut(&cuda_, uploaded_.get(), step_);
    std::vector<plec_entry> there = uploaded_.entries();
    std::vector<plec_entry> &entries = uploaded_.entries();
    plec_entry gone = {};
    std::fill(entries.begin(), entries.end(), gone);
    cut.phase(PLEC_EXPERTS_BEGIN);
    for (uint32_t e : {4, 0, 1, 5, 2}) {
        entries[e] = there[e];
        cut.phase(PLEC_EXPERTS_PART, {e});
        entries[e] = gone;
    }
    cut.phase(PLEC_EXPERTS_FINISH);
    std::vector<float> y = cut.y();
    EXPECT_EQ(memcmp(y.data(), whole.data(), y.size() * sizeof y[0]), 0);
}

TEST_F(CudaParts, RefuseAnExpertNamedTwiceOrWithoutPairs) {
    for (const std::vector<std::vector<uint32_t>> &order :
         {std::vector<std::vector<uint32_t>>{{0, 0}}, {{0}, {0}}, {{3}}, {{6}}, {{70000}}}) {
        CudaLaunch cut(&cuda_, uploaded_.get(), step_);
        cut.phase(PLEC_EXPERTS_BEGIN);
        for (const std::vector<uint32_t> &part : order)
            cut.phase(PLEC_EXPERTS_PART, part);
        EXPECT_EQ(cuda_.failure(), "BadPart");
        cuda_.sync(); /* told once */
    }
}

/* The most experts there can be, all named, and then one of them again. */
TEST(CudaExperts, RefuseMoreNamesOfAPartThanThereAreExperts) {
    CudaDevice cuda;
    BankSpec spec;
    spec.n_entries = 1024, spec.input_dim = spec.intermediate_dim = spec.output_dim = 4;
    Bank bank(spec);
    std::vector<uint8_t> zeros(4 * 4 * sizeof(float));
    struct plec_entry entry = {};
    for (int id : {PLEC_GATE, PLEC_UP, PLEC_DOWN})
        entry.values[id] = cuda.upload(zeros);
    std::vector<plec_entry> entries(1024, entry);
    struct plec_bank shared = *bank.get();
    shared.entries = entries.data();
    Step step = make_step(&shared, 512, 2, 1);
    std::vector<uint32_t> names;
    for (uint32_t i = 0; i < 1024; i++)
        step.ids[i] = int32_t(i), names.push_back(i);
    names.push_back(5);
    CudaLaunch cut(&cuda, &shared, step);
    cut.phase(PLEC_EXPERTS_BEGIN);
    cut.phase(PLEC_EXPERTS_PART, names);
    EXPECT_EQ(cuda.failure(), "BadPart");
}

TEST_F(CudaParts, RefuseToFinishWithExpertsLeftOut) {
    CudaLaunch cut(&cuda_, uploaded_.get(), step_);
    std::vector<float> before = cut.y();
    cut.phase(PLEC_EXPERTS_BEGIN);
    cut.phase(PLEC_EXPERTS_PART, {0, 1});
    cut.phase(PLEC_EXPERTS_FINISH);
    EXPECT_EQ(cuda_.failure(), "ExpertsLeftOut");
    std::vector<float> after = cut.y();
    EXPECT_EQ(memcmp(before.data(), after.data(), after.size() * sizeof after[0]), 0);
}

TEST_F(CudaParts, RefuseABadIdAndThenWorkAgain) {
    Step bad = step_;
    bad.ids[7] = 6;
    CudaLaunch launch(&cuda_, uploaded_.get(), bad);
    launch.phase(PLEC_EXPERTS_ALL);
    EXPECT_EQ(cuda_.failure(), "BadExpertId");
    EXPECT_NE(std::string(cuda_.err.message).find("pair 7 has expert 6"), std::string::npos)
        << cuda_.err.message;
    expect_right(CudaLaunch(&cuda_, uploaded_.get(), step_).run(), bank_.get(), step_);
}

/* --- the device table ----------------------------------------------------------------------- */

TEST_F(CudaParts, SeeAnEntryThatMoved) {
    BankSpec other_spec = spec();
    other_spec.seed = 2;
    Bank other(other_spec);
    UploadedBank moved(&cuda_, other.get());
    expect_right(CudaLaunch(&cuda_, uploaded_.get(), step_).run(), bank_.get(), step_);
    for (uint32_t e : {0, 1, 2, 3, 4, 5})
        uploaded_.entries()[e] = moved.entries()[e];
    struct plec_bank mixed = *uploaded_.get(), wanted = *other.get();
    wanted.gate_scale = mixed.gate_scale, wanted.up_scale = mixed.up_scale;
    wanted.down_scale = mixed.down_scale;
    expect_right(CudaLaunch(&cuda_, &mixed, step_).run(), &wanted, step_);
}

/* Two streams launch one bank whose entries differ from launch to launch. */
#ifndef PLEC_ON_GPU
/* Rows that were not written must not be taken for written. */
TEST_F(CudaParts, WriteATableAgainThatWasRefused) {
    CudaLaunch launch(&cuda_, uploaded_.get(), step_);
    plec_emu_refuse_launch("table_kernel");
    EXPECT_EQ(plec_launch_experts(cuda_.stream, &launch.args, &cuda_.err), PLEC_NO_DEVICE);
    EXPECT_NE(std::string(cuda_.err.message).find("kernel table"), std::string::npos)
        << cuda_.err.message;
    expect_right(launch.run(), bank_.get(), step_);
}
#endif

TEST_F(CudaParts, OrderTheStreamsOfOneBank) {
    BankSpec other_spec = spec();
    other_spec.seed = 2;
    Bank other(other_spec);
    UploadedBank moved(&cuda_, other.get());
    struct plec_stream *streams[2] = {cuda_.stream, nullptr};
    ASSERT_EQ(plec_stream_open(&streams[1], cuda_.device, nullptr), PLEC_OK);
    std::vector<plec_entry> mine = uploaded_.entries();
    std::vector<std::unique_ptr<CudaLaunch>> launches;
    for (int i = 0; i < 4; i++)
        launches.push_back(std::make_unique<CudaLaunch>(&cuda_, uploaded_.get(), step_));
    cuda_.sync();
    for (int i = 0; i < 4; i++) {
        uploaded_.entries() = i % 2 == 0 ? mine : moved.entries();
        ASSERT_EQ(
            plec_launch_experts(streams[i / 2 % 2 ^ i % 2], &launches[size_t(i)]->args, nullptr),
            PLEC_OK);
    }
    EXPECT_EQ(plec_stream_sync(streams[1], nullptr), PLEC_OK);
    cuda_.sync();
    plec_stream_close(streams[1]);
    struct plec_bank wanted = *other.get();
    wanted.gate_scale = bank_.get()->gate_scale, wanted.up_scale = bank_.get()->up_scale;
    wanted.down_scale = bank_.get()->down_scale;
    for (int i = 0; i < 4; i++)
        expect_right(launches[size_t(i)]->y(), i % 2 == 0 ? bank_.get() : &wanted, step_);
}

/* --- refusals ------------------------------------------------------------------------------- */

TEST(CudaExperts, RefuseWhatNoKernelRunsByName) {
    CudaDevice cuda;
    BankSpec spec = small();
    spec.bias = PLEC_FORMAT_Q8_0, spec.output_dim = 64, spec.intermediate_dim = 32;
    Bank bank(spec);
    Step step = make_step(bank.get(), 1, 1, 1);
    CudaLaunch launch(&cuda, bank.get(), step);
    EXPECT_EQ(plec_launch_experts(cuda.stream, &launch.args, &cuda.err), PLEC_UNSUPPORTED);
    EXPECT_STREQ(cuda.err.name, "NoKernel");
    EXPECT_NE(std::string(cuda.err.message).find("gate bias: no kernel for q8_0"),
              std::string::npos)
        << cuda.err.message;
}

TEST(CudaExperts, RefuseMoreExpertsThanAPlanHolds) {
    CudaDevice cuda;
    Bank bank(small());
    struct plec_bank large = *bank.get();
    large.n_entries = 1025;
    Step step = make_step(bank.get(), 1, 1, 1);
    CudaLaunch launch(&cuda, &large, step);
    EXPECT_EQ(plec_launch_experts(cuda.stream, &launch.args, &cuda.err), PLEC_UNSUPPORTED);
    EXPECT_STREQ(cuda.err.name, "TooManyExperts");
}

TEST(CudaExperts, DoNothingForNoTokens) {
    CudaDevice cuda;
    Bank bank(small());
    struct plec_experts_args args = {};
    args.bank = bank.get(), args.n_slots = 2;
    EXPECT_EQ(plec_launch_experts(cuda.stream, &args, &cuda.err), PLEC_OK);
    cuda.sync();
}

/* --- schedules ------------------------------------------------------------------------------ */

#ifndef PLEC_ON_GPU
TEST(CudaExperts, HoldUnderEverySchedule) {
    BankSpec spec = small(PLEC_FORMAT_Q4_0);
    spec.n_entries = 5, spec.gate = PLEC_FORMAT_Q8_0, spec.bias = PLEC_FORMAT_BF16;
    Bank bank(spec);
    for (int schedule = PLEC_EMU_FIFO; schedule <= PLEC_EMU_PCT; schedule++)
        for (uint64_t seed : {1, 2}) {
            plec_emu_set_schedule(static_cast<enum plec_emu_schedule>(schedule), seed);
            expect_step_right(bank, make_step(bank.get(), 11, 2, 14));
        }
    plec_emu_set_schedule(PLEC_EMU_FIFO, 0);
}
#endif

} // namespace
