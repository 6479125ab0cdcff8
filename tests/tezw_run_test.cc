/* The layers of a TEZW file, run from its f64 weights where they lie. */
#include "tests/support/data.h"
#include "tests/support/layer_run.h"

using namespace plec_test;

namespace {

const char *const TINY = "tezw/tiny/model.tezw";

LayerInput tiny_input() {
    return {read_npy(data_path("tezw/tiny/x.npy")).f32(), {}, {}, false};
}

std::vector<double> tiny_output(uint32_t layer) {
    return read_npy(data_path("tezw/tiny/y_layer" + std::to_string(layer) + ".npy")).values;
}

TEST(TezwRun, EveryLayerGivesTheOutput) {
    for (uint32_t layer = 0; layer < 2; layer++) {
        OpenLayer open(data_path(TINY), layer);
        ASSERT_EQ(open.status, PLEC_OK) << open.error.message;
        EXPECT_EQ(plec_container_get_kind(open.container), PLEC_CONTAINER_TEZW);
        EXPECT_EQ(plec_container_n_layers(open.container), 2u);
        EXPECT_LT(nmse(run_layer(open.bound, tiny_input()).y, tiny_output(layer)), 1e-12);
    }
}

TEST(TezwRun, CpuDeviceGivesTheOutputOfEveryLayer) {
    for (uint32_t layer = 0; layer < 2; layer++) {
        OpenLayer open(data_path(TINY), layer);
        ASSERT_EQ(open.status, PLEC_OK) << open.error.message;
        EXPECT_LT(nmse(run_layer_on_cpu(open, layer, tiny_input()).y, tiny_output(layer)), 1e-9);
    }
}

TEST(TezwRun, TheGateIsWgate) {
    OpenLayer open(data_path(TINY), 0);
    ASSERT_EQ(open.status, PLEC_OK) << open.error.message;
    plec_bank &bank = open.bound.layer.routed;
    plec_entry swapped = bank.entries[0];
    std::swap(swapped.values[PLEC_GATE], swapped.values[PLEC_UP]);
    bank.entries = &swapped;
    EXPECT_GT(nmse(run_layer(open.bound, tiny_input()).y, tiny_output(0)), 1e-3);
}

TEST(TezwRun, LayersAreDenseBanksOfUntouchedDoubles) {
    OpenLayer open(data_path(TINY), 1);
    ASSERT_EQ(open.status, PLEC_OK) << open.error.message;
    EXPECT_TRUE(open.bound.dense);
    EXPECT_FALSE(open.bound.routing_required);
    const plec_bank &bank = open.bound.layer.routed;
    EXPECT_EQ(bank.n_entries, 1u);
    EXPECT_EQ(bank.maths.activation, PLEC_SILU);
    for (int id = PLEC_GATE; id <= PLEC_DOWN; id++)
        EXPECT_EQ(bank.operands[id].format, PLEC_FORMAT_GGUF_F64);
    std::vector<uint8_t> file = read_file(data_path(TINY));
    uint64_t proj_bytes = 8 * uint64_t(bank.output_dim) * bank.intermediate_dim;
    EXPECT_EQ(memcmp(bank.entries[0].values[PLEC_DOWN], file.data() + file.size() - proj_bytes,
                     proj_bytes),
              0)
        << "wproj is the last matrix of the file";
}

TEST(TezwRun, RefusesALayerBeyondTheLast) {
    OpenLayer open(data_path(TINY), 2);
    EXPECT_EQ(open.status, PLEC_MISSING);
    EXPECT_STREQ(open.error.name, "NoSuchLayer");
}

TEST(TezwRun, RefusesOptionsThatMeanNothingToIt) {
    plec_container_options options = {};
    options.architecture = "llama";
    OpenLayer open(data_path(TINY), 0, options);
    EXPECT_EQ(open.status, PLEC_BAD_INPUT);
    EXPECT_STREQ(open.error.name, "OptionUnused");
}

TEST(TezwRun, ABrokenHeaderIsToldAsTezw) {
    OpenLayer open(data_path("tezw/malformed/wrong_magic.tezw"), 0);
    EXPECT_EQ(open.status, PLEC_MALFORMED);
    EXPECT_STREQ(open.error.name, "NotTezw");
}

} // namespace
