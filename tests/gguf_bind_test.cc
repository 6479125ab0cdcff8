/* How the tensors of GGUF layers may lie, with their biases and factors, each layer made up, bound
 * from a file, and held against plain formulas. */
#include "tests/support/data.h"
#include "tests/support/gguf_moe.h"

#include "lyrw/gguf_type.h"

#include <algorithm>

using namespace plec_test;

namespace {

/* ---- how the tensors may lie ---- */

TEST(GgufBind, SeparateTensors) {
    Moe moe(24, 10, 6, 2);
    expect_layer(moe, moe.file("llama"));
}

TEST(GgufBind, FusedTensorHasTheGateFirst) {
    Moe moe(24, 10, 6, 2);
    moe.add_shared(12);
    moe.shared_gate = moe.noise(24);
    GgufFile file = moe.file("qwen3next");
    moe.fuse(&file);
    expect_layer(moe, file);
}

TEST(GgufBind, TensorsOfSingleExpertsInAnyOrder) {
    Moe moe(24, 10, 11, 3);
    GgufFile file = moe.file("llama");
    moe.take_apart(&file);
    expect_layer(moe, file);
}

TEST(GgufBind, TensorsOfOneLayerInSeveralShards) {
    Moe moe(24, 10, 6, 2);
    TempDir folder;
    const std::string path = moe.file("llama").write_split(
        folder.path("model"), 4,
        [](const std::string &name) {
            return name.find("gate_exps") != std::string::npos ? 1u
                   : name.find("down") != std::string::npos    ? 3u
                                                               : 2u;
        },
        3);
    OpenLayer open(path, 0);
    ASSERT_EQ(open.status, PLEC_OK) << open.error.message;
    const LayerInput input = moe.input(4);
    const LayerOutput wanted = moe.expected(input), got = run_layer(open.bound, input);
    EXPECT_EQ(got.ids, wanted.ids);
    EXPECT_LT(nmse(got.y, Reals(wanted.y.begin(), wanted.y.end())), 1e-13);
    EXPECT_EQ(plec_container_n_files(open.container), 4u);
}

TEST(GgufBind, ExpertCountsThatAreNoPowerOfTwo) {
    for (uint32_t n : {1u, 3u, 154u, 205u, 257u}) {
        Moe moe(8, 4, n, std::min(n, 5u));
        expect_layer(moe, moe.file("qwen3moe"));
    }
}

TEST(GgufBind, SixtyFiveThousandExperts) {
    Moe moe(2, 1, 65536, 7);
    expect_layer(moe, moe.file("qwen3moe"));
}

TEST(GgufBind, OneExpertWhoseTensorsLostTheirThirdDim) {
    Moe moe(8, 4, 1, 1);
    GgufFile file = moe.file("llama");
    for (const char *part : {"gate", "up"})
        file.reshape(moe.name(std::string("ffn_") + part + "_exps.weight"), {8, 4});
    file.reshape(moe.name("ffn_down_exps.weight"), {4, 8});
    expect_layer(moe, file);
}

TEST(GgufBind, EveryTypeOfAMatrixIsItsOwn) {
    Moe moe(64, 32, 5, 2);
    GgufFile file = moe.file("llama");
    moe.routed.gate = file.requantise("blk.0.ffn_gate_exps.weight", PLEC_FORMAT_Q4_0);
    moe.routed.up = file.requantise("blk.0.ffn_up_exps.weight", PLEC_FORMAT_GGUF_Q5_1);
    moe.routed.down = file.requantise("blk.0.ffn_down_exps.weight", PLEC_FORMAT_Q8_0);
    moe.router = file.requantise("blk.0.ffn_gate_inp.weight", PLEC_FORMAT_F16);
    expect_layer(moe, file);
}

TEST(GgufBind, RouterInAQuantisedType) {
    Moe moe(64, 8, 6, 3);
    GgufFile file = moe.file("llama");
    moe.router = file.requantise("blk.0.ffn_gate_inp.weight", PLEC_FORMAT_Q8_0);
    expect_layer(moe, file);
}

TEST(GgufBind, RegionsAreTheBytesOfTheFile) {
    Moe moe(64, 32, 5, 2);
    moe.add_biases(&moe.routed);
    moe.router_bias = moe.noise(5);
    moe.gating = "softmax_selected";
    GgufFile file = moe.file("gpt-oss");
    file.requantise("blk.0.ffn_gate_exps.weight", PLEC_FORMAT_GGUF_MXFP4);
    TempDir folder;
    file.write(folder.path("m.gguf"));
    OpenLayer open(folder.path("m.gguf"), 0);
    ASSERT_EQ(open.status, PLEC_OK) << open.error.message;
    const plec_bank &bank = open.bound.layer.routed;
    EXPECT_EQ(bank.operands[PLEC_GATE].format, PLEC_FORMAT_GGUF_MXFP4);
    const std::vector<uint8_t> bytes = read_file(folder.path("m.gguf"));
    const struct {
        plec_operand_id id;
        const char *name;
    } operands[] = {{PLEC_GATE, "ffn_gate_exps.weight"}, {PLEC_UP, "ffn_up_exps.weight"},
                    {PLEC_DOWN, "ffn_down_exps.weight"}, {PLEC_GATE_BIAS, "ffn_gate_exps.bias"},
                    {PLEC_UP_BIAS, "ffn_up_exps.bias"},  {PLEC_DOWN_BIAS, "ffn_down_exps.bias"}};
    for (const auto &operand : operands) {
        const GgufTensor &tensor = file.find(moe.name(operand.name));
        for (uint32_t e = 0; e < 5; e++) {
            uint32_t number;
            uint64_t offset;
            ASSERT_TRUE(plec_container_locate(&number, &offset, open.container,
                                              bank.entries[e].values[operand.id]))
                << operand.name << ": not in the mapped file";
            const size_t each = tensor.bytes.size() / 5;
            EXPECT_EQ(memcmp(bytes.data() + offset, tensor.bytes.data() + e * each, each), 0);
        }
    }
}

TEST(GgufBind, FilesOfAnyAlignment) {
    for (uint32_t alignment : {1u, 2u, 8u, 64u, 4096u}) {
        Moe moe(24, 10, 6, 2);
        moe.add_scales(&moe.routed);
        moe.selection_bias = moe.noise(6);
        moe.gating = "sigmoid";
        GgufFile file = moe.file("mimo2");
        file.first_tensor({"odd.weight", {3}, PLEC_GGUF_TYPE_I8, {1, 2, 3}});
        TempDir folder;
        file.write(folder.path("m.gguf"), alignment);
        OpenLayer open(folder.path("m.gguf"), 0);
        ASSERT_EQ(open.status, PLEC_OK) << open.error.message;
        const LayerInput input = moe.input(3);
        const LayerOutput wanted = moe.expected(input), got = run_layer(open.bound, input);
        EXPECT_EQ(got.ids, wanted.ids) << alignment;
        EXPECT_LT(nmse(got.y, Reals(wanted.y.begin(), wanted.y.end())), 1e-13) << alignment;
    }
}

/* ---- biases and factors ---- */

TEST(GgufBind, BiasesOfRouterAndExperts) {
    Moe moe(24, 10, 6, 2);
    moe.add_biases(&moe.routed);
    moe.router_bias = moe.noise(6);
    moe.gating = "softmax_selected";
    moe.norm = false;
    moe.routed.act = "clamped_glu";
    moe.routed.limit = 7;
    expect_layer(moe, moe.file("gpt-oss"));
}

TEST(GgufBind, BiasesApplyWhereverTheyAre) {
    Moe moe(24, 10, 6, 2);
    moe.routed.down_bias = moe.noise(6 * 24);
    moe.router_bias = moe.noise(6);
    expect_layer(moe, moe.file("llama"));
}

TEST(GgufBind, BiasesInOtherTypesAndShapes) {
    Moe moe(32, 32, 6, 2);
    moe.add_biases(&moe.routed);
    GgufFile file = moe.file("llama");
    moe.routed.up_bias = file.requantise("blk.0.ffn_up_exps.bias", PLEC_FORMAT_F16);
    moe.routed.down_bias = file.requantise("blk.0.ffn_down_exps.bias", PLEC_FORMAT_Q8_0);
    file.reshape("blk.0.ffn_gate_exps.bias", {32, 1, 6});
    expect_layer(moe, file);
}

TEST(GgufBind, FusedTensorWithItsBias) {
    Moe moe(24, 10, 6, 2);
    moe.add_biases(&moe.routed);
    moe.gating = "sigmoid";
    moe.norm = false;
    moe.selection_bias = moe.noise(6);
    moe.add_shared(10);
    GgufFile file = moe.file("hy-v3");
    moe.fuse(&file);
    expect_layer(moe, file);
}

TEST(GgufBind, FusedTensorWhoseBiasesComeApartIsTwoViews) {
    Moe moe(24, 10, 6, 2);
    moe.add_biases(&moe.routed);
    GgufFile file = moe.file("llama");
    moe.fuse(&file);
    file.without("blk.0.ffn_gate_up_exps.bias");
    file.tensor("blk.0.ffn_gate_exps.bias", {10, 6}, moe.routed.gate_bias);
    file.tensor("blk.0.ffn_up_exps.bias", {10, 6}, moe.routed.up_bias);
    expect_layer(moe, file);
}

TEST(GgufBind, FactorsOfEachMatrix) {
    Moe moe(24, 10, 6, 2);
    moe.add_scales(&moe.routed);
    moe.add_biases(&moe.routed);
    expect_layer(moe, moe.file("llama"));
}

TEST(GgufBind, FactorsUnderTheOtherNamingHabit) {
    Moe moe(24, 10, 6, 2);
    moe.add_scales(&moe.routed);
    GgufFile file = moe.file("llama");
    for (const std::string part : {"gate", "up", "down"})
        file.rename("blk.0.ffn_" + part + "_exps.scale",
                    "blk.0.ffn_" + part + "_exps.weight.scale");
    file.tensor("blk.0.ffn_up_exps.input_scale", {6}, std::vector<float>(6, 0));
    expect_layer(moe, file);
}

TEST(GgufBind, UpsFactorScalesBothHalvesOfAFusedTensor) {
    for (const std::string name : {"ffn_up_exps.scale", "ffn_gate_up_exps.scale"}) {
        Moe moe(24, 10, 6, 2);
        moe.routed.up_scale = moe.routed.gate_scale = moe.noise(6);
        GgufFile file = moe.file("llama");
        moe.fuse(&file);
        file.without("blk.0.ffn_gate_exps.scale");
        file.rename("blk.0.ffn_up_exps.scale", moe.name(name));
        expect_layer(moe, file);
    }
}

TEST(GgufBind, EqualFactorsOfBothHalvesOfAFusedTensor) {
    Moe moe(24, 10, 6, 2);
    moe.routed.up_scale = moe.routed.gate_scale = moe.noise(6);
    GgufFile file = moe.file("llama");
    moe.fuse(&file);
    expect_layer(moe, file);
}

/* Bytes of a type without an encoder in place of a matrix, and what they decode to. */
std::vector<float> put_blocks(Moe &moe, GgufFile *file, const std::string &name, uint16_t format) {
    GgufTensor &tensor = file->find(name);
    plec_matrix matrix = {format, static_cast<uint32_t>(tensor.bytes.size() / 4 / tensor.ne[0]),
                          static_cast<uint32_t>(tensor.ne[0]), nullptr, nullptr};
    uint64_t n_bytes = 0;
    EXPECT_EQ(plec_format_size(&n_bytes, nullptr, format, matrix.rows, matrix.cols, nullptr),
              PLEC_OK);
    std::vector<uint8_t> bytes;
    for (float value : moe.noise(n_bytes, 40))
        bytes.push_back(static_cast<uint8_t>(std::min(std::fabs(value), 126.f)));
    matrix.values = bytes.data();
    std::vector<float> values(size_t(matrix.rows) * matrix.cols);
    for (uint32_t row = 0; row < matrix.rows; row++)
        plec_matrix_row_f32(values.data() + size_t(row) * matrix.cols, &matrix, row);
    EXPECT_TRUE(plec_gguf_type_of_tag(&tensor.type, format));
    tensor.bytes = bytes;
    return values;
}

TEST(GgufBind, NvfpFourWithItsFactorsAndWithout) {
    Moe moe(64, 64, 4, 2);
    GgufFile file = moe.file("qwen3moe");
    moe.routed.up = put_blocks(moe, &file, "blk.0.ffn_up_exps.weight", PLEC_FORMAT_GGUF_NVFP4);
    moe.routed.down = put_blocks(moe, &file, "blk.0.ffn_down_exps.weight", PLEC_FORMAT_GGUF_NVFP4);
    const std::string news = expect_layer(moe, file);
    EXPECT_TRUE(contains(news, "nvfp4 without a .scale tensor: the factor is 1")) << news;
    moe.routed.up_scale = moe.noise(4);
    moe.routed.down_scale = moe.noise(4);
    file.tensor("blk.0.ffn_up_exps.scale", {4}, moe.routed.up_scale);
    file.tensor("blk.0.ffn_down_exps.weight.scale", {4}, moe.routed.down_scale);
    EXPECT_FALSE(contains(expect_layer(moe, file), "nvfp4"));
}

} // namespace
