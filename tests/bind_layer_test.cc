/* Binding a layer: segments, shared experts, control files, latent and dense layers, profiles. */
#include "host/selection.h"
#include "tests/support/bound.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

using namespace plec_test;

namespace {

/* --- segments ----------------------------------------------------------------------------------
 */

std::string refusal_of_segments(const std::vector<plec_lyrw_segment> &first,
                                const std::vector<plec_lyrw_segment> &second,
                                uint32_t BankFile::*differs = nullptr) {
    BankDirectory dir;
    dir.files.erase("routed/layer_000");
    BankFile file = gated_bank();
    file.segments = first;
    dir.add("routed/layer_000.seg00", file);
    file.segments = second;
    if (differs != nullptr) file.*differs += 1;
    dir.add("routed/layer_000.seg01", file);
    return refusal(dir);
}

TEST(Segments, MustTileTheBankExactly) {
    EXPECT_EQ(refusal_of_segments({{0, 0, 0, 2, 0, 0}}, {{0, 1, 2, 2, 0, 0}}), "");
    EXPECT_EQ(refusal_of_segments({{0, 0, 0, 2, 0, 0}}, {{0, 1, 3, 1, 0, 0}}), "MissingRegion");
    EXPECT_EQ(refusal_of_segments({{0, 0, 1, 1, 0, 0}}, {{0, 1, 2, 2, 0, 0}}), "MissingRegion");
    EXPECT_EQ(refusal_of_segments({{0, 0, 0, 2, 0, 0}}, {{0, 1, 2, 1, 0, 0}}), "MissingRegion");
    EXPECT_EQ(refusal_of_segments({{0, 0, 0, 3, 0, 0}}, {{0, 1, 2, 2, 0, 0}}), "SegmentsOverlap");
    EXPECT_EQ(refusal_of_segments({{0, 0, 0, 4, 0, 0}}, {{0, 1, 0, 4, 0, 0}}), "SegmentsOverlap");
    EXPECT_EQ(refusal_of_segments({{0, 3, 0, 2, 0, 0}}, {{0, 3, 2, 2, 0, 0}}),
              "RepeatedSegmentIndex");
}

TEST(Segments, MustAgreeInEveryField) {
    for (auto member : {&BankFile::layer, &BankFile::n_entries, &BankFile::input,
                        &BankFile::intermediate, &BankFile::output})
        EXPECT_EQ(refusal_of_segments({{0, 0, 0, 2, 0, 0}}, {{0, 1, 2, 2, 0, 0}}, member),
                  "SegmentsDisagree");
    auto with = [](const BankFile &second) {
        BankDirectory dir;
        dir.files.erase("routed/layer_000");
        BankFile file = gated_bank();
        file.segments = {{0, 0, 0, 2, 0, 0}};
        dir.add("routed/layer_000.seg00", file);
        dir.add("routed/layer_000.seg01", second);
        return refusal(dir);
    };
    BankFile second = gated_bank();
    second.segments = {{0, 1, 2, 2, 0, 0}};
    EXPECT_EQ(with(second), "");
    BankFile other = second;
    other.kind = PLEC_BANK_SHARED;
    EXPECT_EQ(with(other), "SegmentsDisagree");
    other = second;
    other.flags = 1;
    EXPECT_EQ(with(other), "SegmentsDisagree");
    other = second;
    other.id = 3;
    other.segments[0].bank_id = 3;
    EXPECT_EQ(with(other), "SegmentsDisagree");
    other = second;
    other.schemas.push_back(matrix(300, 1, 1));
    EXPECT_EQ(with(other), "SegmentsDisagree");
    for (auto member :
         {&plec_lyrw_schema::role, &plec_lyrw_schema::format, &plec_lyrw_schema::packing}) {
        other = second;
        other.schemas[1].*member = 1;
        if (member == &plec_lyrw_schema::role) other.schemas[1].role = 300;
        EXPECT_EQ(with(other), "SegmentsDisagree");
    }
    for (auto member : {&plec_lyrw_schema::rows, &plec_lyrw_schema::cols}) {
        other = second;
        other.schemas[1].*member += 1;
        EXPECT_EQ(with(other), "SegmentsDisagree");
    }
}

TEST(Segments, AGapInTheirNumbersIsRefused) {
    BankDirectory dir;
    BankFile file = gated_bank();
    dir.files.erase("routed/layer_000");
    dir.add("routed/layer_000.seg00", file);
    dir.add("routed/layer_000.seg02", file);
    EXPECT_EQ(refusal(dir), "SegmentGap");
}

TEST(Segments, AStorageTheIndexDoesNotDeclareIsRefused) {
    BankDirectory dir;
    dir.set("routed_bank/storage", "\"routed/elsewhere\"");
    Bound layer(dir.write());
    EXPECT_EQ(layer.name, "StorageUndeclared");
    EXPECT_TRUE(layer.says("routed/elsewhere")) << layer.message;
}

TEST(Segments, AFileThatDoesNotParseNamesItsKey) {
    BankDirectory dir;
    dir.files["routed/layer_000"][0] = 'X';
    Bound layer(dir.write());
    EXPECT_EQ(layer.name, "NotLyrw");
    EXPECT_TRUE(layer.says("layer 0") && layer.says("routed/layer_000")) << layer.message;
}

/* --- shared experts, control files, latent layers --------------------------------------------- */

TEST(SharedExperts, AreBoundWithTheirOwnProgrammeAndMaths) {
    BankDirectory dir;
    dir.add_shared(gated_bank(PLEC_BANK_SHARED, 2));
    dir.set("plectrum/expert", R"({"activation": "relu"})");
    {
        Bound layer(dir.write());
        ASSERT_EQ(layer.name, "") << layer.message;
        EXPECT_EQ(layer.bound.layer.shared.n_entries, 2u);
        EXPECT_EQ(layer.bound.layer.shared.maths.activation, PLEC_RELU) << "as the routed ones";
    }
    dir.set("plectrum/shared_expert", R"({"activation": "gelu_erf"})");
    Bound layer(dir.write());
    ASSERT_EQ(layer.name, "") << layer.message;
    EXPECT_EQ(layer.bound.layer.routed.maths.activation, PLEC_RELU);
    EXPECT_EQ(layer.bound.layer.shared.maths.activation, PLEC_GELU_ERF);
}

TEST(SharedExperts, AreCheckedAsStrictlyAsRoutedOnes) {
    BankFile narrow = gated_bank(PLEC_BANK_SHARED, 1);
    narrow.input = narrow.output = 4;
    narrow.schemas = {matrix(PLEC_ROLE_GATE, 6, 4), matrix(PLEC_ROLE_UP, 6, 4),
                      matrix(PLEC_ROLE_DOWN, 4, 6)};
    BankDirectory dir;
    dir.add_shared(narrow);
    Bound layer(dir.write());
    EXPECT_EQ(layer.name, "DimensionContradicted");
    EXPECT_TRUE(layer.says("shared")) << layer.message;
    BankDirectory cut;
    cut.add_shared(gated_bank(PLEC_BANK_SHARED, 1));
    set_length(cut.files["shared/layer_000"], 0, 2, 4);
    EXPECT_EQ(refusal(cut), "LengthNotShape");
}

TEST(Control, TensorsOfARouterAreBound) {
    BankDirectory dir;
    dir.add_control({matrix(PLEC_ROLE_ROUTER_WEIGHT, 4, 8), matrix(PLEC_ROLE_SELECTION_BIAS, 1, 4),
                     matrix(PLEC_ROLE_ROUTER_BIAS, 1, 4), matrix(PLEC_ROLE_EXPERT_SCALE, 1, 4),
                     matrix(PLEC_ROLE_GATE_SCALE, 1, 4), matrix(PLEC_ROLE_UP_SCALE, 1, 4),
                     matrix(PLEC_ROLE_DOWN_SCALE, 1, 4), matrix(PLEC_ROLE_SHARED_GATE, 1, 8),
                     matrix(PLEC_ROLE_INPUT_NORM, 1, 8), matrix(400, 3, 3)});
    dir.add_shared(gated_bank(PLEC_BANK_SHARED, 1));
    Bound layer(dir.write());
    ASSERT_EQ(layer.name, "") << layer.message;
    const plec_layer &bound = layer.bound.layer;
    EXPECT_FALSE(layer.bound.routing_required);
    const auto &bytes = dir.files["control/layer_000"];
    EXPECT_EQ(memcmp(bound.router.weight.values, bytes.data() + get_offset(bytes, 0, 0), 128), 0);
    const std::pair<const float *, uint32_t> vectors[] = {
        {bound.router.selection_bias, 1}, {bound.router.bias, 2},
        {bound.router.expert_scale, 3},   {bound.routed.gate_scale, 4},
        {bound.routed.up_scale, 5},       {bound.routed.down_scale, 6}};
    for (const auto &[vector, schema] : vectors) {
        ASSERT_NE(vector, nullptr) << schema;
        EXPECT_EQ(memcmp(vector, bytes.data() + get_offset(bytes, 0, schema), 16), 0) << schema;
    }
    EXPECT_NE(bound.shared_gate.values, nullptr);
    EXPECT_EQ(bound.routed_norm, nullptr);
}

TEST(Control, WrongShapesLayersAndFilesAreRefused) {
    auto with = [](const plec_lyrw_schema &schema) {
        BankDirectory dir;
        dir.add_control({schema});
        return refusal(dir);
    };
    EXPECT_EQ(with(matrix(PLEC_ROLE_ROUTER_WEIGHT, 5, 8)), "ControlShape");
    EXPECT_EQ(with(matrix(PLEC_ROLE_ROUTER_WEIGHT, 4, 9)), "ControlShape");
    EXPECT_EQ(with(matrix(PLEC_ROLE_ROUTER_BIAS, 4, 1)), "ControlShape");
    EXPECT_EQ(with(matrix(PLEC_ROLE_EXPERT_SCALE, 1, 5)), "ControlShape");
    EXPECT_EQ(with(matrix(PLEC_ROLE_SHARED_GATE, 1, 7)), "ControlShape");
    EXPECT_EQ(with(matrix(PLEC_ROLE_ROUTER_WEIGHT, 4, 8, 4242)), "UnknownFormat");
    BankDirectory other_layer;
    other_layer.add_control({matrix(PLEC_ROLE_ROUTER_WEIGHT, 4, 8)});
    other_layer.add("control/layer_000", control_file(3, {matrix(PLEC_ROLE_ROUTER_WEIGHT, 4, 8)}));
    EXPECT_EQ(refusal(other_layer), "LayerContradicted");
    BankDirectory two_entries;
    two_entries.add_control({});
    BankFile file = control_file(0, {matrix(PLEC_ROLE_ROUTER_WEIGHT, 4, 8)});
    file.n_entries = 2;
    two_entries.add("control/layer_000", file);
    EXPECT_EQ(refusal(two_entries), "NotAControlFile");
    BankDirectory absent;
    absent.set("plectrum/control", "\"control/nowhere\"");
    EXPECT_EQ(refusal(absent), "StorageUndeclared");
}

TEST(Control, ANamedSelectionBiasMustBeThere) {
    BankDirectory dir;
    dir.set("router/post/gate_bias", "\"router.bias\"");
    EXPECT_EQ(refusal(dir), "") << "without a router the caller routes";
    dir.add_control({matrix(PLEC_ROLE_ROUTER_WEIGHT, 4, 8)});
    Bound layer(dir.write());
    EXPECT_EQ(layer.name, "MissingRegion");
    EXPECT_TRUE(layer.says("router.bias") && layer.says("control/layer_000")) << layer.message;
}

TEST(Control, ANormIsAppliedOnlyWhenNamed) {
    BankDirectory dir;
    dir.add_control({matrix(PLEC_ROLE_ROUTED_OUTPUT_NORM, 1, 8)});
    EXPECT_EQ(refusal(dir), "NormNotNamed");
    dir.set("routed_output_norm", "\"norm\"");
    {
        Bound layer(dir.write());
        ASSERT_EQ(layer.name, "") << layer.message;
        EXPECT_NE(layer.bound.layer.routed_norm, nullptr);
        EXPECT_EQ(layer.bound.layer.norm_eps, 1e-6);
        EXPECT_EQ(layer.said.size(), 1u) << "the assumed epsilon is said";
    }
    dir.set("plectrum/norm_eps", "0.25");
    {
        Bound layer(dir.write());
        EXPECT_EQ(layer.bound.layer.norm_eps, 0.25);
    }
    BankDirectory without;
    without.set("routed_output_norm", "\"norm\"");
    Bound layer(without.write());
    EXPECT_EQ(layer.name, "MissingRegion");
    EXPECT_TRUE(layer.says("norm")) << layer.message;
}

BankFile latent_bank() {
    BankFile file = gated_bank();
    file.input = file.output = 5;
    file.schemas = {matrix(PLEC_ROLE_GATE, 6, 5), matrix(PLEC_ROLE_UP, 6, 5),
                    matrix(PLEC_ROLE_DOWN, 5, 6)};
    return file;
}

void make_latent(BankDirectory &dir) {
    dir.add("routed/layer_000", latent_bank());
    dir.set("input_space", "\"latent\"");
    dir.set("routed_bank/programme", "\"latent-moe-v1\"");
    dir.set("transforms", R"({"routed_input": "down_proj", "routed_output": "up_proj"})");
}

/* ids by token id: int32 in a control file. */
std::vector<plec_lyrw_schema> table(uint32_t rows, uint32_t cols) {
    return {matrix(PLEC_ROLE_TOKEN_TABLE, rows, cols, PLEC_FORMAT_GGUF_I32)};
}

/* Overwrites the table with ids that count up modulo n. */
void fill_table(BankDirectory &dir, int32_t n) {
    std::vector<uint8_t> &bytes = dir.files["control/layer_000"];
    uint64_t offset = get_offset(bytes, 0, 0);
    for (uint64_t at = offset; at + 4 <= bytes.size(); at += 4) {
        int32_t id = static_cast<int32_t>((at - offset) / 4) % n;
        memcpy(&bytes[at], &id, 4);
    }
}

TEST(Control, ExpertsByTokenIdAreBoundWhenTheManifestSaysSo) {
    BankDirectory dir;
    dir.add_control(table(5, 2));
    fill_table(dir, 4);
    EXPECT_EQ(refusal(dir), "TableNotNamed");
    dir.set("plectrum/router", R"({"ids_from": "tokens"})");
    {
        Bound layer(dir.write());
        ASSERT_EQ(layer.name, "") << layer.message;
        ASSERT_EQ(layer.bound.n_token_ids, 5u);
        EXPECT_EQ(layer.bound.token_table[9], 9 % 4);
    }
    fill_table(dir, 5); /* four experts */
    Bound spoilt(dir.write());
    EXPECT_EQ(spoilt.name, "BadTokenTable");
    EXPECT_TRUE(spoilt.says("token id 2 slot 0: expert 4 of 4")) << spoilt.message;
}

TEST(Control, ATokenTableOfAnotherShapeOrTypeIsRefused) {
    BankDirectory dir;
    dir.set("plectrum/router", R"({"ids_from": "tokens"})");
    EXPECT_EQ(refusal(dir), "MissingRegion");
    dir.add_control(table(5, 3));
    EXPECT_EQ(refusal(dir), "ControlShape");
    dir.add_control({matrix(PLEC_ROLE_TOKEN_TABLE, 5, 2)});
    EXPECT_EQ(refusal(dir), "BadTokenTable");
    dir.add_control(table(5, 2));
    std::vector<uint8_t> &bytes = dir.files["control/layer_000"];
    set_length(bytes, 0, 0, 36);
    EXPECT_EQ(refusal(dir), "LengthNotShape");
}

TEST(Control, ARouterThatReadsAnotherVectorSaysWhich) {
    BankDirectory dir;
    const plec_lyrw_schema weight = matrix(PLEC_ROLE_ROUTER_WEIGHT, 4, 8);
    dir.add_control({weight, matrix(PLEC_ROLE_ROUTER_INPUT_SCALE, 1, 8)});
    EXPECT_EQ(refusal(dir), "InputScaleNotNamed");
    dir.set("plectrum/router", R"({"input": "attention", "input_eps": 0.5})");
    {
        Bound layer(dir.write());
        ASSERT_EQ(layer.name, "") << layer.message;
        EXPECT_TRUE(layer.bound.router_input_required);
        EXPECT_TRUE(layer.bound.layer.router.input_norm);
        EXPECT_EQ(layer.bound.layer.router.input_eps, 0.5);
        EXPECT_NE(layer.bound.layer.router.input_scale, nullptr);
    }
    dir.set("plectrum/router", R"({"input": "attention", "input_eps": -1})");
    EXPECT_EQ(refusal(dir), "BadInputEps");
    dir.set("plectrum/router", R"({"input": "block"})");
    EXPECT_EQ(refusal(dir), "InputScaleNotNamed");
    dir.add_control({weight});
    {
        Bound layer(dir.write());
        ASSERT_EQ(layer.name, "") << layer.message;
        EXPECT_TRUE(layer.bound.router_input_required);
        EXPECT_FALSE(layer.bound.layer.router.input_norm);
    }
    dir.set("plectrum/router", R"({"input": "attention"})");
    EXPECT_EQ(refusal(dir), "MissingRegion");
    dir.set("plectrum/router", R"({"input": "ffn"})");
    Bound plain(dir.write());
    EXPECT_EQ(plain.name, "");
    EXPECT_FALSE(plain.bound.router_input_required);
}

TEST(Control, AnInputNormIsCarriedAndNeverRefused) {
    BankDirectory dir;
    dir.add_control({matrix(PLEC_ROLE_INPUT_NORM, 1, 8)});
    {
        Bound layer(dir.write());
        ASSERT_EQ(layer.name, "") << layer.message;
        EXPECT_EQ(layer.bound.input_norm.cols, 8u);
    }
    dir.add_control({matrix(PLEC_ROLE_INPUT_NORM, 1, 8, 0x4242)});
    Bound layer(dir.write());
    EXPECT_EQ(layer.name, "") << layer.message;
    EXPECT_FALSE(plec_matrix_present(&layer.bound.input_norm));
}

TEST(DenseBranch, IsBoundBesideTheExpertsWithItsFactors) {
    BankDirectory dir;
    dir.set("plectrum/dense_branch",
            R"({"storage": "dense/layer_000", "expert": {"activation": "gelu_tanh"}})");
    EXPECT_EQ(refusal(dir), "StorageUndeclared");
    dir.add("dense/layer_000", gated_bank(PLEC_BANK_DENSE, 2));
    EXPECT_EQ(refusal(dir), "ExpertsContradicted");
    dir.add("dense/layer_000", gated_bank(PLEC_BANK_DENSE, 1));
    dir.set("plectrum/out_scale", "0.5");
    dir.add_control({matrix(PLEC_ROLE_BRANCH_UP_SCALE, 1, 1)});
    {
        Bound layer(dir.write());
        ASSERT_EQ(layer.name, "") << layer.message;
        const plec_bank &branch = layer.bound.layer.dense;
        EXPECT_EQ(branch.n_entries, 1u);
        EXPECT_EQ(branch.maths.activation, PLEC_GELU_TANH);
        EXPECT_NE(branch.up_scale, nullptr);
        EXPECT_EQ(branch.gate_scale, nullptr);
        EXPECT_EQ(layer.bound.layer.out_scale, 0.5);
    }
    dir.add_control({matrix(PLEC_ROLE_SHARED_UP_SCALE, 1, 1)});
    EXPECT_EQ(refusal(dir), "ControlShape") << "factors of shared experts there are none of";
}

TEST(Latent, NeedsBothProjectionsOfItsWidth) {
    auto with = [](const std::vector<plec_lyrw_schema> &schemas) {
        BankDirectory dir;
        make_latent(dir);
        if (!schemas.empty()) dir.add_control(schemas);
        Bound layer(dir.write());
        if (layer.name.empty()) {
            EXPECT_EQ(layer.bound.layer.latent_in.rows, 5u);
            EXPECT_EQ(layer.bound.layer.latent_out.cols, 5u);
        }
        return layer.name;
    };
    plec_lyrw_schema in = matrix(PLEC_ROLE_LATENT_IN, 5, 8);
    plec_lyrw_schema out = matrix(PLEC_ROLE_LATENT_OUT, 8, 5);
    EXPECT_EQ(with({in, out}), "");
    EXPECT_EQ(with({}), "MissingRegion");
    EXPECT_EQ(with({in}), "MissingRegion");
    EXPECT_EQ(with({out}), "MissingRegion");
    EXPECT_EQ(with({matrix(PLEC_ROLE_LATENT_IN, 6, 8), out}), "ControlShape");
    EXPECT_EQ(with({in, matrix(PLEC_ROLE_LATENT_OUT, 8, 6)}), "ControlShape");
}

TEST(Latent, SharedExpertsOfALatentProgrammeAreRefused) {
    BankDirectory dir;
    make_latent(dir);
    dir.add_control({matrix(PLEC_ROLE_LATENT_IN, 5, 8), matrix(PLEC_ROLE_LATENT_OUT, 8, 5)});
    dir.add_shared(gated_bank(PLEC_BANK_SHARED, 1), "latent-moe-v1");
    EXPECT_EQ(refusal(dir), "LatentSharedBank");
}

TEST(Bind, RouterFeaturesWithoutADefinitionAreRefused) {
    for (auto [member, name] : {std::pair("router/post/norm_after_top_k", "NormAfterTopK"),
                                std::pair("router/post/quantile_balanced", "QuantileBalanced")}) {
        BankDirectory dir;
        dir.set(member, "true");
        EXPECT_EQ(refusal(dir), name);
    }
    BankDirectory dir;
    dir.add_shared(gated_bank(PLEC_BANK_SHARED, 1));
    dir.set("router/shared_expert_sink", "true");
    EXPECT_EQ(refusal(dir), "SharedExpertSink");
    BankDirectory zero;
    zero.set("router/selection/k", "0");
    EXPECT_EQ(refusal(zero), "SelectsNothing");
}

TEST(Bind, AMlpWithoutAGateRuns) {
    BankDirectory dir;
    BankFile file = gated_bank();
    file.schemas = {matrix(PLEC_ROLE_UP, 6, 8), matrix(PLEC_ROLE_DOWN, 8, 6)};
    dir.add("routed/layer_000", file);
    EXPECT_EQ(refusal(dir), "UnsatisfiedProgramme");
    dir.set("routed_bank/programme", "\"plectrum-mlp-v1\"");
    Bound layer(dir.write());
    ASSERT_EQ(layer.name, "") << layer.message;
    EXPECT_EQ(layer.bound.layer.routed.operands[PLEC_GATE].rows, 0u);
    EXPECT_EQ(layer.bound.layer.routed.operands[PLEC_UP].rows, 6u);
}

TEST(Dense, LayersOfTheManifestAreOneExpertWithoutARouter) {
    BankDirectory dir;
    BankFile file = gated_bank(PLEC_BANK_DENSE, 1);
    file.layer = 4;
    dir.add("dense/layer_004", file);
    set_member(dir.manifest.get(), "plectrum",
               R"({ "dense": [ { "layer": 4, "storage": "dense/layer_004",
                                 "expert": { "activation": "gelu_tanh" } } ] })");
    Bound layer(dir.write(), nullptr, 4);
    ASSERT_EQ(layer.name, "") << layer.message;
    EXPECT_TRUE(layer.bound.dense);
    EXPECT_FALSE(layer.bound.routing_required);
    EXPECT_EQ(layer.bound.layer.routed.n_entries, 1u);
    EXPECT_EQ(layer.bound.layer.routed.maths.activation, PLEC_GELU_TANH);
    set_member(dir.manifest.get(), "plectrum",
               R"({ "dense": [ { "layer": 0, "storage": "dense/layer_004" } ] })");
    EXPECT_EQ(refusal(dir), "DuplicateLayer");
}

/* --- profiles ----------------------------------------------------------------------------------
 */

/* A directory whose routed bank has a variant of some of its roles under "routed/other". */
struct Variants : BankDirectory {
    explicit Variants(const std::vector<plec_lyrw_schema> &schemas, uint32_t n_entries = 4) {
        BankFile other = gated_bank(PLEC_BANK_ROUTED, n_entries);
        other.seed = 2;
        other.schemas = schemas;
        add("routed/other", other);
        set_index("variants", "{}");
        set_index("profiles", R"([ { "name": "exact" }, { "name": "p", "selects": {} } ])");
    }
    /* Set `name` with the baseline in the manifest's storage and a variant in "routed/other". */
    void add_set(const std::string &name, bool selected = true) {
        json_t *set = json_loads(R"({ "baseline": "base", "variants": {
            "base": { "storage": "routed/layer_000", "fidelity": "source-exact" },
            "low": { "storage": "routed/other", "fidelity": "source-equivalent" } } })",
                                 0, nullptr);
        json_object_set_new(json_object_get(index.get(), "variants"), name.c_str(), set);
        json_t *profile = json_array_get(json_object_get(index.get(), "profiles"), 1);
        if (selected)
            json_object_set_new(json_object_get(profile, "selects"), name.c_str(),
                                json_string("low"));
    }
    bool reads_other(const Bound &layer, plec_operand_id id, uint32_t schema) {
        const auto &bytes = files["routed/other"];
        return memcmp(layer.bound.layer.routed.entries[1].values[id],
                      bytes.data() + get_offset(bytes, 1, schema), 192) == 0;
    }
};

TEST(Profile, OneRoleMayComeFromAnotherFile) {
    Variants dir({matrix(PLEC_ROLE_DOWN, 8, 6)});
    dir.add_set("layer.0.routed.down");
    {
        Bound exact(dir.write());
        ASSERT_EQ(exact.name, "") << exact.message;
        EXPECT_FALSE(dir.reads_other(exact, PLEC_DOWN, 0)) << "exact reads the baseline";
    }
    Bound low(dir.write(), "p");
    ASSERT_EQ(low.name, "") << low.message;
    EXPECT_TRUE(dir.reads_other(low, PLEC_DOWN, 0));
    EXPECT_FALSE(dir.reads_other(low, PLEC_UP, 0));
}

TEST(Profile, GateUpIsWhicheverFormTheVariantHas) {
    Variants separate({matrix(PLEC_ROLE_UP, 6, 8), matrix(PLEC_ROLE_GATE, 6, 8)});
    separate.add_set("layer.0.routed.gate_up");
    {
        Bound low(separate.write(), "p");
        ASSERT_EQ(low.name, "") << low.message;
        EXPECT_TRUE(separate.reads_other(low, PLEC_UP, 0));
        EXPECT_TRUE(separate.reads_other(low, PLEC_GATE, 1));
    }
    Variants fused_too({fused(12, 8, 1)});
    fused_too.add_set("layer.0.routed.gate_up");
    Bound low(fused_too.write(), "p");
    ASSERT_EQ(low.name, "") << low.message;
    EXPECT_EQ(low.bound.layer.routed.fusion, PLEC_FUSED_GATE_FIRST);
    EXPECT_TRUE(fused_too.reads_other(low, PLEC_GATE, 0));
}

TEST(Profile, AStorageNoRoleIsReadFromNeedNotExist) {
    Variants dir(
        {matrix(PLEC_ROLE_UP, 6, 8), matrix(PLEC_ROLE_GATE, 6, 8), matrix(PLEC_ROLE_DOWN, 8, 6)});
    dir.set("routed_bank/storage", "\"routed/nowhere\"");
    EXPECT_EQ(refusal(dir), "StorageUndeclared");
    dir.set_index("variants", R"({
        "layer.0.routed.gate_up": { "baseline": "a", "variants": {
            "a": { "storage": "routed/other", "fidelity": "source-exact" } } },
        "layer.0.routed.down": { "baseline": "a", "variants": {
            "a": { "storage": "routed/other", "fidelity": "source-exact" } } } })");
    EXPECT_EQ(refusal(dir), "");
}

TEST(Profile, WhatAVariantLacksOrContradictsIsRefused) {
    {
        Variants dir({matrix(PLEC_ROLE_UP, 6, 8)});
        dir.add_set("layer.0.routed.down");
        EXPECT_EQ(refusal(dir, "p"), "SelectedRoleMissing");
        EXPECT_EQ(refusal(dir), "") << "exact does not touch it";
    }
    {
        Variants dir({matrix(PLEC_ROLE_DOWN, 8, 6)}, 3);
        dir.add_set("layer.0.routed.down");
        EXPECT_EQ(refusal(dir, "p"), "ExpertsContradicted");
    }
    {
        Variants dir({matrix(PLEC_ROLE_GATE, 6, 8)});
        dir.add_set("layer.0.routed.gate_up");
        Bound layer(dir.write(), "p");
        EXPECT_EQ(layer.name, "UnsatisfiedProgramme") << "a variant of gate_up without up";
    }
    {
        Variants dir({matrix(PLEC_ROLE_GATE, 6, 8), matrix(PLEC_ROLE_UP, 6, 8)});
        dir.add_set("layer.0.routed.gate");
        dir.add_set("layer.0.routed.gate_up");
        EXPECT_EQ(refusal(dir, "p"), "ConflictingSelections");
    }
    {
        Variants dir({matrix(PLEC_ROLE_DOWN, 8, 6)});
        dir.add_set("layer.0.routed.down");
        dir.files.erase("routed/other");
        EXPECT_EQ(refusal(dir, "p"), "StorageUndeclared");
    }
}

TEST(Profile, SetsWithoutMeaningAreKeptAndRefusedWhenSelected) {
    for (const char *name : {"experts.low", "layer.0.attention.qkv", "layer.00.routed.down",
                             "layer.9.routed.scales", "layer.x.routed.down"}) {
        Variants dir({matrix(PLEC_ROLE_DOWN, 8, 6)});
        dir.add_set(name);
        EXPECT_EQ(refusal(dir), "") << name;
        Bound layer(dir.write(), "p");
        EXPECT_EQ(layer.name, "RegionSetWithoutMeaning") << name;
        EXPECT_TRUE(layer.says(name)) << layer.message;
    }
    Variants scales({matrix(PLEC_ROLE_DOWN, 8, 6)});
    scales.add_set("layer.0.routed.scales", false);
    EXPECT_EQ(refusal(scales), "RegionSetWithoutMeaning") << "this bank's, even as a baseline";
    Variants other_layer({matrix(PLEC_ROLE_DOWN, 8, 6)});
    other_layer.add_set("layer.7.routed.down");
    EXPECT_EQ(refusal(other_layer, "p"), "");
}

TEST(Profile, RegionSetNamesAreReadExactly) {
    plec_region_set set;
    ASSERT_TRUE(plec_region_set_parse(&set, "layer.4294967295.shared.gate_up_fused"));
    EXPECT_EQ(set.layer, 4294967295u);
    EXPECT_TRUE(set.shared);
    EXPECT_TRUE(set.known_role);
    EXPECT_EQ(set.role, PLEC_BANK_FUSED);
    ASSERT_TRUE(plec_region_set_parse(&set, "layer.0.routed.gate_up"));
    EXPECT_TRUE(set.gate_up);
    ASSERT_TRUE(plec_region_set_parse(&set, "layer.0.routed.other"));
    EXPECT_FALSE(set.known_role);
    for (const char *name : {"", "layer", "layer.", "layer.0", "layer.0.", "layer.0.routed",
                             "layer.0.routed.", "layer.4294967296.routed.down", "Layer.0.routed.up",
                             "layer.-1.routed.up", "layer.01.routed.up", " layer.0.routed.up"})
        EXPECT_FALSE(plec_region_set_parse(&set, name)) << name;
}

} // namespace
