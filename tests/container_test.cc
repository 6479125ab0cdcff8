#include "host/container.h"
#include "tests/support/data.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

using namespace plec_test;

namespace {

struct ContainerDeleter {
    void operator()(plec_container *container) const { plec_container_close(container); }
};
using Container = std::unique_ptr<plec_container, ContainerDeleter>;

Container open_container(const std::string &path, plec_status *status, plec_error *err,
                         const plec_container_options *options = nullptr) {
    plec_container *container = nullptr;
    *status = plec_container_open(&container, path.c_str(), options, err);
    return Container(container);
}

/* What binding every layer gave: "" for each that binds, else the name of its refusal. */
std::map<uint32_t, std::string> bind_all(plec_container *container,
                                         std::map<uint32_t, std::string> *messages = nullptr) {
    std::map<uint32_t, std::string> names;
    for (size_t i = 0; i < plec_container_n_layers(container); i++) {
        plec_layer_info info;
        plec_container_layer_info(&info, container, i);
        plec_bound_layer bound;
        plec_error err = {};
        plec_status status = plec_container_bind(&bound, container, info.layer, &err);
        names[info.layer] = status == PLEC_OK ? "" : err.name;
        if (messages != nullptr) (*messages)[info.layer] = err.message;
        if (status == PLEC_OK) plec_bound_layer_close(&bound);
    }
    return names;
}

std::string line_with(const std::string &text, const std::string &start) {
    std::stringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        if (line.compare(0, start.size(), start) == 0) return line.substr(start.size());
    return "";
}

/* The word (letters and digits) that follows `start` in a text; "" when it does not occur. */
std::string word_after(const std::string &text, const std::string &start) {
    size_t at = text.find(start);
    if (at == std::string::npos) return "";
    size_t end = at += start.size();
    while (end < text.size() && isalnum(static_cast<unsigned char>(text[end])))
        end++;
    return text.substr(at, end - at);
}

/* The name our reader gives to what the report beside a container says about opening it. */
std::string name_of_open_error(const std::string &report) {
    static const std::pair<const char *, const char *> names[] = {
        {"unknown variant", "UnknownVariant"},
        {"missing field", "MissingField"},
        {"unknown container generation", "UnknownGeneration"},
        {"wrong container generation", "WrongGeneration"},
        {"IO error: moe_manifest.json", "CannotOpen"},
        {"IO error: segment", "SegmentMissing"},
        {"expected a non-negative integer", "WrongType"},
        {"Unsatisfiable", "Unsatisfiable"},
        {"system container", "SystemContainer"},
    };
    std::string defect = word_after(report, "manifest defects: ");
    if (!defect.empty()) return defect;
    for (const auto &[text, name] : names)
        if (report.find(text) != std::string::npos) return name;
    return "?";
}

/* Where docs/format.md is stricter than the report: binding refuses what running would touch. */
const std::map<std::string, std::map<uint32_t, std::string>> STRICTER = {
    {"c05_sigmoid_routers", {{1, "LayerContradicted"}, {3, "SharedExpertSink"}}},
    {"c06_packs_and_profiles", {{0, "StorageUndeclared"}}},
    {"odd_dims_not_bank_dims_accepted", {{0, "DimensionContradicted"}}},
    {"odd_k_zero_accepted", {{0, "SelectsNothing"}}},
    {"odd_layer_not_logical_layer_accepted", {{99, "LayerContradicted"}}},
};

/* What binding a layer must give by the report's defect lines. */
std::string expected_bind(const std::string &container, const std::string &report, uint32_t layer) {
    auto stricter = STRICTER.find(container);
    if (stricter != STRICTER.end() && stricter->second.count(layer))
        return stricter->second.at(layer);
    std::stringstream lines(report);
    for (std::string line; std::getline(lines, line);) {
        std::string defect = word_after(line, "  defect ");
        bool ours = word_after(line, " layer=") == std::to_string(layer);
        if (!defect.empty() && ours) return defect == "Storage" ? "StorageUndeclared" : defect;
    }
    return "";
}

class Fixture : public testing::TestWithParam<std::string> {};

TEST_P(Fixture, OpensBindsOrRefusesAsItsReportSays) {
    std::string path = data_path("containers/" + GetParam());
    std::string report = read_text(path + ".txt");
    std::string open_error = line_with(report, "open_error ");
    plec_status status;
    plec_error err = {};
    Container container = open_container(path, &status, &err);
    if (!open_error.empty()) {
        ASSERT_NE(status, PLEC_OK);
        EXPECT_EQ(err.name, name_of_open_error(open_error)) << err.message;
        EXPECT_NE(std::string(err.message).find(path), std::string::npos) << err.message;
        return;
    }
    ASSERT_EQ(status, PLEC_OK) << err.message;
    std::map<uint32_t, std::string> messages;
    std::map<uint32_t, std::string> names = bind_all(container.get(), &messages);
    EXPECT_FALSE(names.empty());
    for (const auto &[layer, name] : names) {
        EXPECT_EQ(name, expected_bind(GetParam(), report, layer)) << messages[layer];
        if (!name.empty()) {
            EXPECT_NE(messages[layer].find("layer " + std::to_string(layer)), std::string::npos)
                << messages[layer];
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Container, Fixture,
                         testing::ValuesIn(list_folder(data_path("containers"), ".txt")),
                         [](const auto &fixture) { return fixture.param; });

TEST(Container, HalfABankNamesLayerBankEntryRoleAndSegment) {
    plec_status status;
    plec_error err = {};
    Container container =
        open_container(data_path("containers/bad_multi_segment_half"), &status, &err);
    ASSERT_EQ(status, PLEC_OK) << err.message;
    plec_bound_layer bound;
    ASSERT_EQ(plec_container_bind(&bound, container.get(), 0, &err), PLEC_MISSING);
    EXPECT_STREQ(err.name, "MissingRegion");
    for (const char *part : {"layer 0", "bank 0", "entry 2", "role gate", "routed/layer_000"})
        EXPECT_NE(std::string(err.message).find(part), std::string::npos)
            << part << ": " << err.message;
}

TEST(Container, ANamedProfileSelectsItsStorages) {
    plec_status status;
    plec_error err = {};
    plec_container_options options = {};
    options.profile = "routed-mxfp4";
    std::string path = data_path("containers/c06_packs_and_profiles");
    Container container = open_container(path, &status, &err, &options);
    ASSERT_EQ(status, PLEC_OK) << err.message;
    std::map<uint32_t, std::string> messages;
    EXPECT_EQ(bind_all(container.get(), &messages)[0], "StorageUndeclared");
    EXPECT_NE(messages[0].find("layer_000.q6k"), std::string::npos) << messages[0];
}

TEST(Container, RefusesAProfileTheIndexDoesNotDeclare) {
    plec_status status;
    plec_error err = {};
    plec_container_options options = {};
    options.profile = "no-such-profile";
    open_container(data_path("containers/c06_packs_and_profiles"), &status, &err, &options);
    EXPECT_EQ(status, PLEC_MISSING);
    EXPECT_STREQ(err.name, "UndeclaredProfile");
    EXPECT_NE(std::string(err.message).find("routed-mxfp4"), std::string::npos) << err.message;
    open_container(data_path("lyrw/02_routed_fused_f16_bf16_interleaved.lyrw"), &status, &err,
                   &options);
    EXPECT_STREQ(err.name, "UndeclaredProfile");
}

/* They were taken, and changed nothing. */
TEST(Container, RefusesAnArchitectureAndSettingsForWhatIsNoGguf) {
    plec_container_options as = {}, set = {};
    as.architecture = "llama";
    set.set = "gating=sigmoid";
    for (const char *path :
         {"containers/c06_packs_and_profiles", "lyrw/02_routed_fused_f16_bf16_interleaved.lyrw"})
        for (const plec_container_options *options : {&as, &set}) {
            plec_status status;
            plec_error err = {};
            open_container(data_path(path), &status, &err, options);
            EXPECT_EQ(status, PLEC_BAD_INPUT) << path;
            EXPECT_STREQ(err.name, "OptionUnused");
            EXPECT_NE(std::string(err.message).find(path), std::string::npos) << err.message;
        }
}

TEST(Container, TellsWhatTheManifestDeclaresWithoutTouchingBanks) {
    plec_status status;
    plec_error err = {};
    Container container =
        open_container(data_path("run/run01_sigmoid_two_segments"), &status, &err);
    ASSERT_EQ(status, PLEC_OK) << err.message;
    EXPECT_EQ(plec_container_get_kind(container.get()), PLEC_CONTAINER_VINDEX);
    ASSERT_EQ(plec_container_n_layers(container.get()), 1u);
    plec_layer_info info;
    plec_container_layer_info(&info, container.get(), 0);
    EXPECT_EQ(info.layer, 3u);
    EXPECT_FALSE(info.dense);
    EXPECT_EQ(info.hidden_size, 64u);
    EXPECT_EQ(info.n_experts, 16u);
    EXPECT_EQ(info.top_k, 4u);
    EXPECT_EQ(info.n_shared, 1u);
    EXPECT_STREQ(info.programme, "gated-mlp-v1");
    EXPECT_STREQ(info.storage, "routed/layer_003");
}

TEST(Container, AnUnknownLayerIsNamed) {
    plec_status status;
    plec_error err = {};
    Container container =
        open_container(data_path("containers/c01_gated_decomposed_f32"), &status, &err);
    ASSERT_EQ(status, PLEC_OK) << err.message;
    plec_bound_layer bound;
    EXPECT_EQ(plec_container_bind(&bound, container.get(), 41, &err), PLEC_MISSING);
    EXPECT_STREQ(err.name, "NoSuchLayer");
    EXPECT_NE(std::string(err.message).find("layer 41"), std::string::npos) << err.message;
}

TEST(Container, RefusesPathsThatAreNoContainer) {
    plec_status status;
    plec_error err = {};
    TempDir dir;
    open_container(dir.path("absent"), &status, &err);
    EXPECT_EQ(status, PLEC_MISSING);
    open_container(dir.path(), &status, &err);
    EXPECT_EQ(status, PLEC_MISSING) << "a folder without index.json";
    write_file(dir.path("text"), "hello, world", 12);
    open_container(dir.path("text"), &status, &err);
    EXPECT_EQ(status, PLEC_MALFORMED);
    EXPECT_STREQ(err.name, "UnknownContainer");
    write_file(dir.path("short.lyrw"), "LY", 2);
    open_container(dir.path("short.lyrw"), &status, &err);
    EXPECT_STREQ(err.name, "Truncated") << err.message;
    write_file(dir.path("empty"), "", 0);
    open_container(dir.path("empty"), &status, &err);
    EXPECT_STREQ(err.name, "UnknownContainer");
    open_container("/dev/null", &status, &err);
    EXPECT_STREQ(err.name, "NotAFile");
}

/* --- lone .lyrw files ------------------------------------------------------------------------ */

/* What running each lone file gives: the name of its refusal, "" when it binds, "-" when it has
 * nothing to run. */
const std::map<std::string, std::string> LONE = {
    {"lyrw/01_dense_decomposed_f32", ""},
    {"lyrw/02_routed_fused_f16_bf16_interleaved", ""},
    {"lyrw/03_mxfp4_paired_importer_shape", ""},
    {"lyrw/05_multi_segment.seg00", "PartialBank"},
    {"lyrw/05_multi_segment.seg01", "PartialBank"},
    {"lyrw/06_two_segments_one_file", ""},
    {"lyrw/07_permuted_role_major", ""},
    {"lyrw/08_unknown_tags", "UnknownFormat"},
    {"lyrw/09_fmt00_f32", ""},
    {"lyrw/09_fmt01_f16", ""},
    {"lyrw/09_fmt02_bf16", ""},
    {"lyrw/09_fmt03_q4_0", ""},
    {"lyrw/09_fmt04_q4_k", ""},
    {"lyrw/09_fmt06_q8_0", ""},
    {"lyrw/09_fmt07_fp4_larql", ""},
    {"lyrw/09_fmt08_mxfp4_paired", ""},
    {"lyrw/09_fmt10_mxfp8", "ScalesStoredApart"},
    {"lyrw/09_fmt10_mxfp8_paired", ""},
    {"lyrw/10_all_packings_pair_id_zero", ""},
    {"lyrw/13_no_banks_no_segments", "-"},
    {"lyrw/14_gate_only_browse_slice", "UnsatisfiedProgramme"},
    {"lyrw/16_gpt_oss_like_two_biases", ""},
    {"lyrw/odd/base", ""},
    {"lyrw/odd/duplicate_bank_ids", "DuplicateBankId"},
    {"lyrw/odd/fused_layout_undeclared_legacy", "UndeclaredFusedLayout"},
    {"lyrw/odd/length_not_matching_shape", "LengthNotShape"},
    {"lyrw/odd/multi_segment_flag_on_whole_file", ""},
    {"lyrw/odd/mxfp4_single_region", "ScalesStoredApart"},
    {"lyrw/odd/nvfp4_paired_has_no_tensor_scale", "NoScaleStream"},
    {"lyrw/odd/offset_at_file_end_length_zero", "LengthNotShape"},
    {"lyrw/odd/offset_not_aligned", "OffsetNotAligned"},
    {"lyrw/odd/pair_ids_as_schema_indices_no_partner", "UnsatisfiedProgramme"},
    {"lyrw/odd/reserved_bits_set", "UnknownFormat"},
    {"lyrw/odd/trailing_garbage", ""},
    {"lyrw/odd/writer_quirk_empty_segment", "UnsatisfiedProgramme"},
    {"lyrw/bad/region_length_past_end", "RegionOutOfBounds"},
    {"lyrw/bad/region_offset_past_end", "RegionOutOfBounds"},
};

TEST(LoneLyrw, BindsOrIsRefusedByName) {
    for (const auto &[name, expected] : LONE) {
        plec_status status;
        plec_error err = {};
        Container container = open_container(data_path(name + ".lyrw"), &status, &err);
        ASSERT_EQ(status, PLEC_OK) << err.message;
        std::map<uint32_t, std::string> messages;
        auto names = bind_all(container.get(), &messages);
        if (expected == "-") {
            EXPECT_TRUE(names.empty()) << name;
            continue;
        }
        ASSERT_EQ(names.size(), 1u) << name;
        EXPECT_EQ(names.begin()->second, expected) << messages.begin()->second;
    }
}

TEST(LoneLyrw, EveryFileOfTheDataIsTried) {
    for (const char *folder : {"lyrw", "lyrw/odd"})
        for (const std::string &name : list_folder(data_path(folder), ".lyrw"))
            EXPECT_EQ(LONE.count(folder + std::string("/") + name), 1u) << name;
}

TEST(LoneLyrw, MalformedFilesDoNotOpen) {
    for (const std::string &name : list_folder(data_path("lyrw/bad"), ".lyrw")) {
        if (LONE.count("lyrw/bad/" + name)) continue;
        plec_status status;
        plec_error err = {};
        open_container(data_path("lyrw/bad/" + name + ".lyrw"), &status, &err);
        EXPECT_EQ(status, PLEC_MALFORMED) << name;
        EXPECT_NE(std::string(err.message).find(name), std::string::npos) << err.message;
    }
}

TEST(LoneLyrw, RoutedBankNeedsRoutingAndDenseBankDoesNot) {
    plec_status status;
    plec_error err = {};
    std::vector<std::string> said;
    plec_container_options options = {};
    options.log.user = &said;
    options.log.write = [](void *user, plec_log_level, const char *text) {
        static_cast<std::vector<std::string> *>(user)->push_back(text);
    };
    Container routed =
        open_container(data_path("lyrw/16_gpt_oss_like_two_biases.lyrw"), &status, &err, &options);
    plec_layer_info info;
    plec_container_layer_info(&info, routed.get(), 0);
    EXPECT_FALSE(info.dense);
    plec_bound_layer bound;
    ASSERT_EQ(plec_container_bind(&bound, routed.get(), info.layer, &err), PLEC_OK) << err.message;
    EXPECT_TRUE(bound.routing_required);
    EXPECT_EQ(bound.layer.routed.maths.activation, PLEC_SILU);
    EXPECT_GT(bound.layer.routed.operands[PLEC_GATE_BIAS].cols, 0u);
    EXPECT_GT(bound.layer.routed.operands[PLEC_DOWN_BIAS].cols, 0u);
    plec_bound_layer_close(&bound);
    ASSERT_EQ(said.size(), 2u) << "the assumed activation and the biases are said";
    EXPECT_NE(said[0].find("silu"), std::string::npos) << said[0];
    EXPECT_NE(said[1].find("bias"), std::string::npos) << said[1];

    Container dense = open_container(data_path("lyrw/01_dense_decomposed_f32.lyrw"), &status, &err);
    plec_container_layer_info(&info, dense.get(), 0);
    EXPECT_TRUE(info.dense);
    ASSERT_EQ(plec_container_bind(&bound, dense.get(), info.layer, &err), PLEC_OK) << err.message;
    EXPECT_TRUE(bound.dense);
    EXPECT_FALSE(bound.routing_required);
    plec_bound_layer_close(&bound);
}

} // namespace
