/* Every container of tests/data/containers against the report beside it, as far as index.json and
 * moe_manifest.json tell: generation, index, segments, profiles, layers, and each refusal. */
#include "manifests/index.h"
#include "manifests/moe.h"
#include "manifests/profile.h"
#include "tests/support/data.h"
#include "tests/support/json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <sstream>

using namespace plec_test;

namespace {

std::string optional(const char *text) {
    return text == nullptr ? "None" : "Some(\"" + std::string(text) + "\")";
}

std::string yes_no(bool value) {
    return value ? "true" : "false";
}

std::string scale(const plec_moe_router &router) {
    if (!router.has_route_scale) return "None";
    std::ostringstream out;
    out << "Some(" << router.route_scale;
    if (out.str().find('.') == std::string::npos) out << ".0";
    return out.str() + ")";
}

std::string selection(const plec_moe_router &router) {
    std::string k = std::to_string(router.k);
    if (router.selection == PLEC_TOP_K) return "TopK { k: " + k + " }";
    return "GroupedTopK { k: " + k + ", groups: " + std::to_string(router.groups) + " }";
}

std::string router_text(const plec_moe_router &router) {
    return std::string("router=") + (router.sigmoid ? "Sigmoid" : "Softmax") + "/" +
           selection(router) + " post=Post { renormalise: " + yes_no(router.renormalise) +
           ", norm_after_top_k: " + yes_no(router.norm_after_top_k) +
           ", gate_bias: " + optional(router.gate_bias) + ", route_scale: " + scale(router) +
           ", quantile_balanced: " + yes_no(router.quantile_balanced) +
           " } sink=" + yes_no(router.shared_expert_sink);
}

std::string dims_text(const plec_moe_bank &bank) {
    if (!bank.has_dims) return "None";
    return "Some(ExpertDims { input: " + std::to_string(bank.input) +
           ", intermediate: " + std::to_string(bank.intermediate) +
           ", output: " + std::to_string(bank.output) + " })";
}

std::string layer_text(const plec_moe_layer &layer) {
    std::string transforms = "None", shared = "None";
    if (layer.routed_input != nullptr)
        transforms = "Some(Transforms { routed_input: \"" + std::string(layer.routed_input) +
                     "\", routed_output: \"" + layer.routed_output + "\" })";
    if (layer.shared.present)
        shared = "Some((\"" + std::string(layer.shared.storage) + "\", " +
                 std::to_string(layer.shared.experts) + "))";
    return "layer " + std::to_string(layer.layer) +
           " space=" + (layer.input_space == PLEC_SPACE_LATENT ? "Latent" : "Residual") + " " +
           router_text(layer.router) + " transforms=" + transforms +
           " routed=" + layer.routed.programme + "x" + std::to_string(layer.routed.experts) +
           " storage=" + layer.routed.storage + " dims=" + dims_text(layer.routed) +
           " shared=" + shared + " norm=" + optional(layer.routed_output_norm);
}

/* Unknown members of the index, sorted as the report has them. */
std::string extra_text(const plec_index &index) {
    static const char *const known[] = {"version",      "model",    "family",   "hidden_size",
                                        "num_layers",   "segments", "profiles", "variants",
                                        "moe_manifest", "authority"};
    std::vector<std::string> extra;
    for (void *i = json_object_iter(index.document); i != nullptr;
         i = json_object_iter_next(index.document, i)) {
        std::string name = json_object_iter_key(i);
        if (std::find(std::begin(known), std::end(known), name) == std::end(known))
            extra.push_back("\"" + name + "\"");
    }
    std::sort(extra.begin(), extra.end());
    std::string text;
    for (const std::string &name : extra)
        text += (text.empty() ? "" : ", ") + name;
    return "[" + text + "]";
}

std::string index_text(const plec_index &index) {
    return "index version=" + std::to_string(index.version) + " model=" + index.model +
           " family=" + index.family + " hidden_size=" + std::to_string(index.hidden_size) +
           " num_layers=" + std::to_string(index.num_layers) +
           " moe_manifest=" + optional(index.moe_manifest) +
           " authority=" + (index.derived ? "derived" : "canonical") +
           " derived_from_model=" + optional(index.derived_from_model) +
           " extra=" + extra_text(index);
}

void profile_lines(std::vector<std::string> &lines, const plec_index &index, const char *name) {
    plec_resolved_profile profile = {};
    plec_error err = {};
    ASSERT_EQ(plec_profile_resolve(&profile, &index, name, &err), PLEC_OK) << err.message;
    auto authority = [&](bool complete, bool structural) {
        return std::string(
            plec_fidelity_name(plec_profile_authority(&profile, complete, structural)));
    };
    lines.push_back("profile " + std::string(profile.name) + " authority_if_complete=" +
                    authority(true, false) + " authority_if_incomplete=" + authority(false, false) +
                    " authority_if_structural=" + authority(true, true));
    for (size_t i = 0; i < profile.n_selections; i++)
        lines.push_back("  select set=" + std::string(profile.selections[i].region_set) +
                        " storage=" + profile.selections[i].storage +
                        " fidelity=" + plec_fidelity_name(profile.selections[i].fidelity));
    plec_profile_close(&profile);
}

/* What the report says, without the lines that need a segment's bytes. */
struct Report {
    std::string open_error, unchecked_error;
    std::vector<std::string> lines;
};

Report read_report(const std::string &name) {
    Report report;
    std::istringstream text(read_text(data_path("containers/" + name + ".txt")));
    std::string line;
    while (std::getline(text, line)) {
        if (line.rfind("open_error ", 0) == 0) report.open_error = line.substr(11);
        if (line.rfind("open_unchecked_error ", 0) == 0) report.unchecked_error = line.substr(21);
        if (line.rfind("segment ", 0) == 0) line = line.substr(0, line.find(" path="));
        for (const char *kind : {"index ", "segment ", "profile ", "  select ", "layer "})
            if (line.rfind(kind, 0) == 0) report.lines.push_back(line);
    }
    return report;
}

/* A message reduced to its facts: no quotes, no colons, no words about where it was found. */
std::string facts(std::string text) {
    for (const char *word : {"parse error: ", "IO error: ", "manifest defects: ", "index.json: "})
        if (text.rfind(word, 0) == 0) text.erase(0, strlen(word));
    for (const char *word : {"index.json: ", "`", "\"", ":"})
        for (size_t at; (at = text.find(word)) != std::string::npos;)
            text.erase(at, strlen(word));
    return text;
}

/* What our readers say of a container. */
struct Opened {
    plec_error error = {}; /* code PLEC_OK: read */
    std::string defects;   /* all of them, or empty */
    std::vector<std::string> lines;
};

void describe(Opened &opened, const plec_index &index, const plec_moe &moe) {
    opened.lines.push_back(index_text(index));
    for (size_t i = 0; i < index.n_segments; i++)
        opened.lines.push_back("segment key=" + std::string(index.segments[i].key) +
                               " count=" + std::to_string(index.segments[i].count));
    for (size_t i = 0; i < index.n_profiles; i++)
        profile_lines(opened.lines, index, index.profiles[i].name);
    for (size_t i = 0; i < moe.n_layers; i++)
        opened.lines.push_back(layer_text(moe.layers[i]));
    plec_findings findings = {};
    plec_moe_defects(&findings, &moe);
    plec_error err = {};
    if (plec_findings_to_error(&findings, PLEC_MALFORMED, &err) != PLEC_OK)
        opened.defects = err.message;
    plec_findings_clear(&findings);
}

void open_manifest(Opened &opened, const plec_index &index, const std::string &root) {
    Json document;
    std::string path = root + "/" + index.moe_manifest;
    if (plec_json_load(document.out(), path.c_str(), &opened.error) != PLEC_OK) return;
    plec_moe moe = {};
    if (plec_moe_read(&moe, document.get(), &opened.error) != PLEC_OK) return;
    if (plec_profile_check_all(&index, &opened.error) == PLEC_OK) describe(opened, index, moe);
    plec_moe_close(&moe);
}

Opened open_container(const std::string &name) {
    Opened opened;
    std::string root = data_path("containers/" + name);
    Json document = load_json(root + "/index.json");
    plec_index index = {};
    if (plec_index_read(&index, document.get(), &opened.error) != PLEC_OK) return opened;
    if (index.moe_manifest == nullptr)
        plec_fail(&opened.error, PLEC_UNSUPPORTED, "SystemContainer",
                  "no MoE programme manifest: a system container");
    else
        open_manifest(opened, index, root);
    plec_index_close(&index);
    return opened;
}

class Reports : public testing::TestWithParam<std::string> {};

} // namespace

TEST_P(Reports, AreReproduced) {
    Report report = read_report(GetParam());
    Opened opened = open_container(GetParam());
    if (report.unchecked_error.rfind("IO error: segment", 0) == 0) {
        EXPECT_EQ(opened.error.code, PLEC_OK) << "only a segment file is missing";
        EXPECT_EQ(opened.defects, "");
        return;
    }
    if (!report.unchecked_error.empty()) {
        EXPECT_NE(opened.error.code, PLEC_OK) << report.unchecked_error;
        std::string wanted = facts(report.unchecked_error);
        if (wanted.find("No such file") != std::string::npos) wanted = "No such file";
        if (wanted.find("wrong container generation") == 0) wanted = "VINDEX2";
        wanted = wanted.substr(wanted.rfind("unknown container generation ", 0) == 0 ? 29 : 0);
        EXPECT_NE(facts(opened.error.message).find(wanted), std::string::npos)
            << opened.error.message << "\nshould tell: " << wanted;
        return;
    }
    EXPECT_EQ(opened.error.code, PLEC_OK) << opened.error.message;
    EXPECT_EQ(opened.lines, report.lines);
    EXPECT_EQ(facts(opened.defects), facts(report.open_error));
}

INSTANTIATE_TEST_SUITE_P(Manifests, Reports,
                         testing::ValuesIn(list_folder(data_path("containers"), ".txt")),
                         [](const auto &test) { return test.param; });

TEST(ReportData, IsAllThere) {
    EXPECT_EQ(list_folder(data_path("containers"), ".txt").size(), 44u);
}
