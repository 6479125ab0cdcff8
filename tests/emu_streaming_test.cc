/* Experts that stream to a CUDA device, emulated: they arrive as planes in slots that others leave,
 * and give the bits of resident ones. */
#include "tests/support/stream_model.h"

#include "tests/support/data.h"

using namespace plec_test;

namespace {

StreamModelSpec quantised() {
    StreamModelSpec spec;
    spec.n_experts = 6;
    spec.hidden = 64;
    spec.inner = 32;
    spec.mxfp4 = true;
    spec.shared = true; /* f32, resident: both kinds in one layer */
    return spec;
}

/* What streamers of a width take on this device. */
uint64_t learn(const StreamModel &model, uint32_t width) {
    plec_stream_options stream = {};
    stream.device_budget = UINT64_C(1) << 30;
    stream.extent_width = width;
    StreamRunner runner(model.path(), stream, 1);
    EXPECT_EQ(runner.status, PLEC_OK) << runner.err.message;
    return learn_sizes(runner.stats());
}
plec_stream_options slots_of(uint64_t frame, uint32_t n_slots, uint32_t n_frames, uint32_t width) {
    plec_stream_options stream = budget(frame, n_slots, n_frames, width);
    stream.device_budget =
        known_sizes()[frame].slot_bytes * n_slots + known_sizes()[frame].landing_bytes;
    return stream;
}

class EmulatedStreaming : public testing::Test {
  protected:
    EmulatedStreaming() : model(quantised()), random(3) {
        stream_device() = PLEC_RUN_CUDA;
        steps = steps_of(random, model.spec, 2);
        for (StreamStep &step : steps)
            if (step.n_tokens > 2) step = StreamStep::random(random, model.spec, step.layer, 5, 6);
        wanted = resident(model, steps);
    }
    ~EmulatedStreaming() override { stream_device() = PLEC_RUN_CPU; }

    StreamModel model;
    std::mt19937 random;
    std::vector<StreamStep> steps;
    std::vector<std::vector<float>> wanted;
};

/* With every slot looked at before each use: it holds what arrived, and that is what was read. */
TEST_F(EmulatedStreaming, EveryBudgetAndWidthGivesTheResidentBits) {
    for (uint32_t width : {1u, 4u}) {
        uint64_t frame = learn(model, width);
        for (uint32_t n_slots : {1u, 3u, 100u})
            for (bool bypass : {false, true}) {
                plec_stream_options stream = slots_of(frame, n_slots, 2, width);
                stream.bypass = bypass;
                StreamRunner runner(model.path(), stream, 1);
                ASSERT_EQ(runner.status, PLEC_OK) << runner.err.message;
                for (size_t i = 0; i < steps.size(); i++)
                    ASSERT_TRUE(same_bits(runner.run(steps[i]), wanted[i]))
                        << "width " << width << ", " << n_slots << " slots, step " << i;
                runner.expect_sound();
                EXPECT_EQ(runner.settled().device.quarantined, 0u);
            }
    }
}

/* Large experts in several chunks, guesses beside demands. */
TEST_F(EmulatedStreaming, ChunksAndSpeculationGiveTheResidentBits) {
    uint64_t frame = learn(model, 2);
    for (uint64_t chunk : {700u, 2000u}) {
        plec_stream_options stream = slots_of(frame, 4, 4, 2);
        stream.chunk_bytes = chunk;
        stream.poison = false;
        stream.speculation = PLEC_SPECULATE_ON;
        StreamRunner runner(model.path(), stream, 1);
        ASSERT_EQ(runner.status, PLEC_OK) << runner.err.message;
        for (int round = 0; round < 2; round++)
            for (size_t i = 0; i < steps.size(); i++)
                ASSERT_TRUE(same_bits(runner.run(steps[i]), wanted[i])) << "step " << i;
        runner.expect_sound();
    }
}

/* What the link moved is the file's bytes, whatever the device makes of them; and the device holds
 * no more than its budget: slots as experts arrive, and the landings. */
TEST_F(EmulatedStreaming, CountsTheFilesBytesAndKeepsToItsBudget) {
    uint64_t frame = learn(model, 1);
    plec_stream_options stream = slots_of(frame, 2, 2, 1);
    stream.poison = false;
    StreamRunner runner(model.path(), stream, 1);
    ASSERT_EQ(runner.status, PLEC_OK) << runner.err.message;
    for (int i = 0; i < 3; i++)
        for (int32_t e = 0; e < 3; e++)
            runner.run(StreamStep::of(random, model.spec, 0, {e}));
    plec_stream_stats stats = runner.settled();
    EXPECT_EQ(stats.experts, 9u);
    EXPECT_EQ(stats.copied_bytes, stats.device.loaded * model.expert_bytes());
    EXPECT_EQ(stats.weight_bytes, 12 * model.expert_bytes());
    EXPECT_GE(stats.landing_bytes, 2 * model.expert_bytes());
    EXPECT_LE(stats.landing_bytes, 2 * model.expert_bytes() + 2 * 6 * 64);
    EXPECT_EQ(stats.n_slots, 2u);
    EXPECT_EQ(stats.slot_bytes * 2 + stats.landing_bytes, stream.device_budget);
    plec_stream_options less = stream;
    less.device_budget--;
    less.extent_width = 1;
    EXPECT_EQ(StreamRunner(model.path(), less, 1).stats().n_slots, 1u);
    less.device_budget = stats.slot_bytes + stats.landing_bytes - 1;
    StreamRunner none(model.path(), less, 1);
    EXPECT_STREQ(none.err.name, "BudgetTooSmall");
    EXPECT_NE(strstr(none.err.message, "while it arrives"), nullptr) << none.err.message;
}

} // namespace
