// `plectrum inspect` of container directories: the MoE view and its JSON object.
#include "lyrw/format.h"
#include "tests/support/data.h"
#include "tools/bench/sparse.h"

#include <gtest/gtest.h>
#include <jansson.h>

#include <filesystem>
#include <memory>
#include <sstream>

using namespace plec_test;

namespace {

struct Decref {
    void operator()(json_t *json) const { json_decref(json); }
};
using Json = std::unique_ptr<json_t, Decref>;

Json inspect(const std::string &path, int wanted_status = 0) {
    ToolResult result = run_tool({"inspect", "--json", path});
    EXPECT_EQ(result.exit_status, wanted_status) << result.err;
    return Json(json_loads(result.out.c_str(), JSON_REJECT_DUPLICATES, nullptr));
}

// The value at a path such as "layers/0/router/k".
json_t *at(json_t *json, const std::string &path) {
    std::istringstream parts(path);
    for (std::string part; json != nullptr && std::getline(parts, part, '/');)
        json = json_is_array(json) ? json_array_get(json, std::stoul(part))
                                   : json_object_get(json, part.c_str());
    return json;
}

std::string text_at(const Json &json, const std::string &path) {
    json_t *value = at(json.get(), path);
    if (json_is_string(value)) return json_string_value(value);
    if (json_is_integer(value)) return std::to_string(json_integer_value(value));
    if (json_is_boolean(value)) return json_is_true(value) ? "true" : "false";
    return json_is_null(value) ? "null" : "?";
}

std::string keys(json_t *object) {
    std::string text;
    for (void *i = json_object_iter(object); i != nullptr; i = json_object_iter_next(object, i))
        text += (text.empty() ? "" : ",") + std::string(json_object_iter_key(i));
    return text;
}

std::string container(const std::string &name) {
    return data_path("containers/" + name);
}

// Whether some line begins with `head` and holds `part`.
bool has_line(const std::string &text, const std::string &head, const std::string &part) {
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);)
        if (line.compare(0, head.size(), head) == 0 && line.find(part) != std::string::npos)
            return true;
    return false;
}

} // namespace

// Opened or refused as the report beside each container says; a half bank is bytes missing.
TEST(InspectContainer, EveryReportedContainerOpensOrIsRefused) {
    size_t n_opened = 0, n_refused = 0;
    for (const std::string &name : list_folder(data_path("containers"), ".txt")) {
        std::string report = read_text(container(name) + ".txt");
        ToolResult result = run_tool({"inspect", "--json", container(name)});
        SCOPED_TRACE(name + ": " + result.err);
        bool refused = report.find("\nopen_error ") != std::string::npos;
        // What a description can live with is shown all the same.
        bool described = report.find("\nopen_unchecked ok") != std::string::npos ||
                         report.find("IO error: segment ") != std::string::npos;
        (refused ? n_refused : n_opened)++;
        if (refused) {
            EXPECT_EQ(result.exit_status, 3);
            EXPECT_EQ(result.out.empty(), !described);
        } else {
            bool missing = report.find("defect MissingRegion") != std::string::npos ||
                           report.find("defect Storage") != std::string::npos;
            EXPECT_EQ(result.exit_status, missing ? 1 : 0);
        }
    }
    EXPECT_GE(n_opened, 14u);
    EXPECT_GE(n_refused, 25u);
}

TEST(InspectContainer, JsonKeysStandInOrder) {
    Json json = inspect(data_path("run/run01_sigmoid_two_segments"));
    EXPECT_EQ(keys(json.get()), "kind,bytes,index,layers,dense,profiles,variants,segments,regions,"
                                "unknown,findings");
    EXPECT_EQ(keys(at(json.get(), "index")), "version,model,family,hidden_size,num_layers,"
                                             "moe_manifest,authority,derived_from_model");
    EXPECT_EQ(keys(at(json.get(), "layers/0")), "layer,input_space,router,transforms,routed,shared,"
                                                "routed_output_norm,control");
    EXPECT_EQ(keys(at(json.get(), "layers/0/routed")),
              "experts,programme,activation,storage,expert_dims,files,bytes,regions,missing,"
              "schemas");
    EXPECT_EQ(keys(at(json.get(), "segments/0")),
              "key,count,bytes,regions,missing,overlaps,extent,error");
}

TEST(InspectContainer, ShowsRoutersBanksAndFiles) {
    Json json = inspect(data_path("run/run01_sigmoid_two_segments"));
    EXPECT_EQ(text_at(json, "kind"), "vindex");
    EXPECT_EQ(text_at(json, "layers/0/layer"), "3");
    EXPECT_EQ(text_at(json, "layers/0/router/activation"), "sigmoid");
    EXPECT_EQ(text_at(json, "layers/0/router/experts_per_token"), "4");
    EXPECT_EQ(json_real_value(at(json.get(), "layers/0/router/route_scale")), 2.446);
    EXPECT_EQ(text_at(json, "layers/0/routed/experts"), "16");
    EXPECT_EQ(text_at(json, "layers/0/routed/files"), "2");
    EXPECT_EQ(text_at(json, "layers/0/routed/missing"), "0");
    EXPECT_EQ(text_at(json, "layers/0/routed/schemas/0/format"), "mxfp4");
    EXPECT_EQ(text_at(json, "layers/0/shared/experts"), "1");
    EXPECT_EQ(text_at(json, "layers/0/control"), "control/layer_003");
}

TEST(InspectContainer, OneLineALayerAndGapsAreNamed) {
    std::string text = run_tool({"inspect", container("c03_hybrid_dense_layer_1")}).out;
    EXPECT_TRUE(has_line(text, "layer 0 ", "4 routed, top 2 of softmax")) << text;
    EXPECT_TRUE(has_line(text, "layer 1 ", "not in this container")) << text;
    EXPECT_TRUE(has_line(text, "layer 2 ", "shared-routed-mlp-v1")) << text;
}

TEST(InspectContainer, ShowsVariantsAndTheAuthorityTheyEarn) {
    Json json = inspect(container("c06_packs_and_profiles"));
    EXPECT_EQ(text_at(json, "profiles/0/name"), "exact");
    EXPECT_EQ(text_at(json, "profiles/1/authority"), "numerically-approximate");
    EXPECT_EQ(text_at(json, "profiles/1/selections/1/variant"), "native-mxfp4");
    EXPECT_EQ(text_at(json, "profiles/1/selections/1/chosen"), "true");
    EXPECT_EQ(text_at(json, "profiles/1/selections/0/chosen"), "false");
    EXPECT_EQ(text_at(json, "variants/1/region_set"), "layer.0.routed.gate_up");
    EXPECT_EQ(text_at(json, "variants/1/variants/1/fidelity"), "source-exact");
    std::string text = run_tool({"inspect", container("c06_packs_and_profiles")}).out;
    EXPECT_TRUE(has_line(text, "profile  routed-mxfp4", "numerically-approximate")) << text;
}

TEST(InspectContainer, AHalfBankEarnsNoAuthorityAndIsOne) {
    Json json = inspect(container("bad_multi_segment_half"), 1);
    EXPECT_EQ(text_at(json, "layers/0/routed/missing"), "6");
    EXPECT_EQ(text_at(json, "profiles/0/authority"), "analysis-only");
}

TEST(InspectContainer, DefectsOfTheManifestAreShownWithTheView) {
    Json json = inspect(container("bad_zero_experts"), 3);
    EXPECT_EQ(text_at(json, "findings/0/name"), "SelectionExceedsBank");
    EXPECT_EQ(text_at(json, "findings/1/name"), "BankHasNoExperts");
    EXPECT_EQ(text_at(json, "layers/0/routed/experts"), "0");
}

TEST(InspectContainer, EntriesListEveryRegionWithItsSegment) {
    ToolResult result =
        run_tool({"inspect", "--json", "--hash", data_path("run/run02_gpt_oss_bias")});
    EXPECT_EQ(result.exit_status, 0) << result.err;
    Json json(json_loads(result.out.c_str(), 0, nullptr));
    json_t *regions = at(json.get(), "regions");
    ASSERT_EQ(json_array_size(regions), 50u);
    EXPECT_EQ(keys(json_array_get(regions, 0)),
              "segment,bank,entry,schema,role,offset,length,fnv,decoded_fnv");
    std::string text = run_tool({"inspect", "--entries", data_path("run/run02_gpt_oss_bias")}).out;
    EXPECT_TRUE(has_line(text, "routed/layer_000.lyrw", "")) << text;
}

TEST(InspectContainer, AnUnreadableSegmentIsNamedAndTheRestShown) {
    TempDir dir;
    std::filesystem::copy(container("c03_hybrid_dense_layer_1"), dir.path("c"),
                          std::filesystem::copy_options::recursive);
    write_file(dir.path("c/routed/layer_002.lyrw"), "LYRX", 4);
    ToolResult result = run_tool({"inspect", dir.path("c")});
    EXPECT_EQ(result.exit_status, 3);
    EXPECT_NE(result.err.find("routed/layer_002"), std::string::npos) << result.err;
    EXPECT_TRUE(has_line(result.out, "layer 0 ", "4 routed")) << result.out;
}

TEST(InspectContainer, NamesFromFilesCannotDriveATerminal) {
    TempDir dir;
    std::filesystem::copy(container("c01_gated_decomposed_f32"), dir.path("c"),
                          std::filesystem::copy_options::recursive);
    std::string index = read_text(dir.path("c/index.json"));
    size_t place = index.find("direct-moe");
    index.replace(place, 10, "\\u001b[31mred");
    write_file(dir.path("c/index.json"), index.data(), index.size());
    std::string text = run_tool({"inspect", dir.path("c")}).out;
    EXPECT_EQ(text.find('\x1b'), std::string::npos);
    EXPECT_NE(text.find("\\x1b[31mred"), std::string::npos) << text;
}

// 92 layers of 896 experts in two files each: told whole, in one line.
TEST(InspectContainer, LargestContainerIsOneLine) {
    TempDir dir;
    plec_sparse_args args = {92, 896, 2, 3584, 3072, 16, PLEC_FORMAT_Q6_K};
    plec_error err;
    ASSERT_EQ(plec_sparse_make(dir.path().c_str(), &args, &err), PLEC_OK) << err.message;
    ToolResult result = run_tool({"inspect", dir.path()});
    EXPECT_EQ(result.exit_status, 0) << result.err;
    EXPECT_EQ(result.err, "") << "nothing but the view: no progress line on a pipe";
    EXPECT_TRUE(has_line(result.out, "layers 0-91", "896 routed, top 16 of sigmoid")) << result.out;
    EXPECT_TRUE(has_line(result.out, "layers 0-91", "22.61 GiB in 2 files")) << result.out;
    EXPECT_TRUE(has_line(result.out, "files    184", "164,864 regions")) << result.out;
    Json json = inspect(dir.path());
    ASSERT_EQ(json_array_size(at(json.get(), "layers")), 92u);
    ASSERT_EQ(json_array_size(at(json.get(), "segments")), 184u);
    EXPECT_EQ(text_at(json, "segments/183/extent"), "16");
    EXPECT_EQ(text_at(json, "layers/91/routed/missing"), "0");
    EXPECT_EQ(text_at(json, "layers/91/routed/regions"), "1792");
}
