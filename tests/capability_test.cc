#include "manifests/capability.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

namespace {

constexpr uint16_t F32 = PLEC_FORMAT_F32;
constexpr uint16_t UNKNOWN = 4242;

plec_capability_region region(uint16_t role, uint32_t segment, uint16_t format = F32,
                              uint16_t packing = PLEC_PACKING_ROW_MAJOR) {
    plec_capability_region made = {};
    made.role = role;
    made.format = format;
    made.packing = packing;
    made.fidelity = PLEC_SOURCE_EXACT;
    made.segment = segment;
    return made;
}

plec_capability_region whole(uint16_t role, uint16_t format = F32,
                             uint16_t packing = PLEC_PACKING_ROW_MAJOR) {
    plec_capability_region made = region(role, 0, format, packing);
    made.unsegmented = true;
    return made;
}

struct Judged {
    plec_status status;
    plec_error error;
    plec_capability capability;
};

using regions = std::vector<plec_capability_region>;
using segments = std::vector<uint32_t>;

Judged judge(const char *programme, const regions &selected, const segments &required = {},
             const std::vector<uint16_t> &omitted = {}) {
    Judged judged = {};
    plec_capability_query query = {};
    query.layer = 3;
    query.bank = "routed";
    query.programme = plec_programme_find(programme);
    query.regions = selected.data();
    query.n_regions = selected.size();
    query.required_segments = required.data();
    query.n_required = required.size();
    query.omitted = omitted.data();
    query.n_omitted = omitted.size();
    judged.status = plec_capability_check(&judged.capability, &query, &judged.error);
    return judged;
}

void expect_refused(const Judged &judged, plec_status status, const std::string &name,
                    const std::string &fact) {
    EXPECT_EQ(judged.status, status);
    EXPECT_EQ(judged.error.name, name);
    EXPECT_NE(std::string(judged.error.message).find(fact), std::string::npos)
        << judged.error.message << "\nshould tell: " << fact;
    EXPECT_EQ(judged.capability.n_executable, 0u);
}

const char *const FUSED = "gated-mlp-fused-fc1-v1"; /* one set: gate_up_fused, down */
const char *const GATED = "gated-mlp-v1";           /* two sets: fused, or gate, up, down */

} // namespace

TEST(Capability, EveryRoleInEveryRequiredSegmentIsExecutable) {
    EXPECT_EQ(judge(FUSED, {whole(PLEC_ROLE_GATE_UP_FUSED), whole(PLEC_ROLE_DOWN)}).status,
              PLEC_OK);
    EXPECT_EQ(judge(FUSED,
                    {region(PLEC_ROLE_DOWN, 7), region(PLEC_ROLE_GATE_UP_FUSED, 7),
                     region(PLEC_ROLE_GATE_UP_FUSED, 2), region(PLEC_ROLE_DOWN, 2)},
                    {7, 2, 7})
                  .status,
              PLEC_OK)
        << "any order, repeats count once";
    EXPECT_EQ(judge(FUSED,
                    {whole(PLEC_ROLE_GATE_UP_FUSED), region(PLEC_ROLE_DOWN, 0),
                     region(PLEC_ROLE_DOWN, 1)},
                    {0, 1})
                  .status,
              PLEC_OK)
        << "an unsegmented role covers all";
    EXPECT_EQ(judge(FUSED,
                    {whole(PLEC_ROLE_GATE_UP_FUSED), whole(PLEC_ROLE_DOWN),
                     region(PLEC_ROLE_DOWN, 9, UNKNOWN)},
                    {0})
                  .status,
              PLEC_OK)
        << "a region the run does not need is no obstacle";
}

TEST(Capability, AllExecutableSetsAreKept) {
    Judged both = judge(GATED, {whole(PLEC_ROLE_GATE), whole(PLEC_ROLE_UP), whole(PLEC_ROLE_DOWN),
                                whole(PLEC_ROLE_GATE_UP_FUSED)});
    EXPECT_EQ(both.status, PLEC_OK);
    EXPECT_EQ(both.capability.n_executable, 2u);
    EXPECT_EQ(both.capability.best, 0u);
    Judged second =
        judge(GATED, {whole(PLEC_ROLE_GATE), whole(PLEC_ROLE_UP), whole(PLEC_ROLE_DOWN)});
    EXPECT_EQ(second.status, PLEC_OK);
    EXPECT_EQ(second.capability.n_executable, 1u);
    EXPECT_EQ(second.capability.best, 1u);
    EXPECT_EQ(second.capability.sets[0].outcome, PLEC_BLOCKED);
}

TEST(Capability, FidelityIsTheWeakestOfTheRegionsASetUses) {
    regions selected = {whole(PLEC_ROLE_GATE_UP_FUSED), whole(PLEC_ROLE_DOWN),
                        whole(PLEC_ROLE_SCALES)};
    selected[1].fidelity = PLEC_NUMERICALLY_APPROXIMATE;
    selected[2].fidelity = PLEC_ANALYSIS_ONLY;
    Judged judged = judge(FUSED, selected);
    EXPECT_EQ(judged.capability.sets[0].fidelity, PLEC_NUMERICALLY_APPROXIMATE);
    regions outside = {region(PLEC_ROLE_GATE_UP_FUSED, 0), region(PLEC_ROLE_DOWN, 0),
                       region(PLEC_ROLE_DOWN, 1)};
    outside[2].fidelity = PLEC_ANALYSIS_ONLY;
    EXPECT_EQ(judge(FUSED, outside, {0}).capability.sets[0].fidelity, PLEC_SOURCE_EXACT);
}

TEST(Capability, EachCauseIsTold) {
    expect_refused(judge(FUSED, {whole(PLEC_ROLE_GATE_UP_FUSED)}), PLEC_MISSING, "MissingRegion",
                   "layer 3, routed bank, gated-mlp-fused-fc1-v1 [gate_up_fused, down]: role down "
                   "is absent everywhere");
    expect_refused(judge(FUSED, {whole(PLEC_ROLE_GATE_UP_FUSED)}, {}, {PLEC_ROLE_DOWN}),
                   PLEC_MISSING, "OmittedRegion", "role down is omitted by the selection");
    expect_refused(
        judge(FUSED, {region(PLEC_ROLE_GATE_UP_FUSED, 0), region(PLEC_ROLE_DOWN, 5)}, {0}),
        PLEC_MISSING, "RegionOutsideSegments",
        "role down is present only outside the required segments (segment 5)");
    expect_refused(
        judge(FUSED, {region(PLEC_ROLE_GATE_UP_FUSED, 4), region(PLEC_ROLE_DOWN, 4, UNKNOWN)}, {4}),
        PLEC_UNSUPPORTED, "UnsupportedFormat",
        "role down has format format_4242, which is not supported (segment 4)");
    expect_refused(judge(FUSED, {whole(PLEC_ROLE_GATE_UP_FUSED), whole(PLEC_ROLE_DOWN, F32, 99)}),
                   PLEC_UNSUPPORTED, "UnsupportedPacking", "role down has packing packing_99");
}

TEST(Capability, HeavierCausesStandForLighterOnes) {
    Judged judged = judge(FUSED,
                          {region(PLEC_ROLE_GATE_UP_FUSED, 0), region(PLEC_ROLE_DOWN, 9),
                           region(PLEC_ROLE_DOWN, 0, F32, 77), region(PLEC_ROLE_DOWN, 0, UNKNOWN)},
                          {0}, {PLEC_ROLE_DOWN});
    const plec_unusable_role &down = judged.capability.sets[0].unusable[0];
    EXPECT_EQ(down.cause, PLEC_CAUSE_UNSUPPORTED_PACKING) << "the first unsupported region";
    EXPECT_EQ(down.tag, 77);
    EXPECT_TRUE(down.has_segment);
    EXPECT_EQ(down.segment, 0u);
}

TEST(Capability, EveryUnusableRoleOfTheClosestSetIsTold) {
    Judged judged = judge(FUSED, {whole(PLEC_ROLE_GATE_UP_FUSED, UNKNOWN)});
    expect_refused(judged, PLEC_UNSUPPORTED, "UnsupportedFormat", "format_4242");
    expect_refused(judged, PLEC_UNSUPPORTED, "UnsupportedFormat", "; role down is absent");
}

TEST(Capability, ClosestFailureHasTheFewestUnusableRolesFirstOnTies) {
    Judged decomposed = judge(GATED, {whole(PLEC_ROLE_GATE), whole(PLEC_ROLE_UP)});
    EXPECT_EQ(decomposed.capability.best, 1u) << "needs down; the fused set needs two";
    expect_refused(decomposed, PLEC_MISSING, "MissingRegion", "[gate, up, down]: role down");
    Judged tie = judge(GATED, {whole(PLEC_ROLE_GATE), whole(PLEC_ROLE_DOWN)});
    EXPECT_EQ(tie.capability.best, 0u);
    expect_refused(tie, PLEC_MISSING, "MissingRegion", "[gate_up_fused, down]: role gate_up_fused");
    Judged nothing = judge(GATED, {});
    EXPECT_EQ(nothing.capability.best, 0u) << "two wanting in the fused set, three in the other";
}

TEST(Capability, RolesThatCoverDifferentSegmentsAreAnInvalidSelection) {
    Judged disjoint = judge(FUSED,
                            {region(PLEC_ROLE_GATE_UP_FUSED, 0), region(PLEC_ROLE_GATE_UP_FUSED, 1),
                             region(PLEC_ROLE_DOWN, 2), region(PLEC_ROLE_DOWN, 3)},
                            {0, 1, 2, 3});
    EXPECT_EQ(disjoint.capability.sets[0].outcome, PLEC_INVALID_SELECTION);
    expect_refused(disjoint, PLEC_MALFORMED, "InvalidSelection",
                   "no common coverage: all roles cover 0 of 4 required segments; role down lacks "
                   "segment 0");
    Judged overlapping = judge(FUSED,
                               {region(PLEC_ROLE_GATE_UP_FUSED, 0),
                                region(PLEC_ROLE_GATE_UP_FUSED, 1), region(PLEC_ROLE_DOWN, 1)},
                               {0, 1, 2});
    expect_refused(overlapping, PLEC_MALFORMED, "InvalidSelection",
                   "unequal coverage: all roles cover 1 of 3 required segments; role down lacks "
                   "segment 0");
}

TEST(Capability, PairwiseAgreementIsNotEnough) {
    Judged judged =
        judge(GATED,
              {region(PLEC_ROLE_GATE, 0), region(PLEC_ROLE_GATE, 1), region(PLEC_ROLE_UP, 1),
               region(PLEC_ROLE_UP, 2), region(PLEC_ROLE_DOWN, 2), region(PLEC_ROLE_DOWN, 0)},
              {0, 1, 2});
    EXPECT_EQ(judged.capability.sets[1].outcome, PLEC_INVALID_SELECTION);
    EXPECT_EQ(judged.capability.sets[1].n_covered, 0u);
}

TEST(Capability, EqualButShortCoverageIsIncomplete) {
    Judged judged =
        judge(FUSED, {region(PLEC_ROLE_GATE_UP_FUSED, 0), region(PLEC_ROLE_DOWN, 0)}, {0, 1});
    EXPECT_EQ(judged.capability.sets[0].outcome, PLEC_INCOMPLETE);
    expect_refused(judged, PLEC_MISSING, "IncompleteSelection",
                   "incomplete: all roles cover 1 of 2 required segments");
    EXPECT_EQ(judged.capability.sets[0].wanting_segment, 1u);
}

TEST(Capability, ASegmentTheExecutorCannotReadIsNotCovered) {
    Judged judged = judge(FUSED,
                          {whole(PLEC_ROLE_GATE_UP_FUSED), region(PLEC_ROLE_DOWN, 0),
                           region(PLEC_ROLE_DOWN, 1, UNKNOWN)},
                          {0, 1});
    EXPECT_EQ(judged.capability.sets[0].outcome, PLEC_INVALID_SELECTION);
    EXPECT_EQ(judged.capability.sets[0].wanting_role, PLEC_ROLE_DOWN);
    EXPECT_EQ(judged.capability.sets[0].wanting_segment, 1u);
}

TEST(Capability, OneUnusableOfTwoRegionsOfARoleSpoilsIt) {
    regions selected = {whole(PLEC_ROLE_GATE_UP_FUSED), whole(PLEC_ROLE_DOWN),
                        whole(PLEC_ROLE_BIAS), whole(PLEC_ROLE_BIAS)};
    EXPECT_EQ(judge("gpt-oss-expert-v1", selected).status, PLEC_OK);
    for (size_t i : {2, 3}) {
        regions spoilt = selected;
        spoilt[i].format = UNKNOWN;
        expect_refused(judge("gpt-oss-expert-v1", spoilt), PLEC_UNSUPPORTED, "UnsupportedFormat",
                       "role bias");
    }
}

TEST(Capability, OperandsFollowTheGeometryOfTheirFormat) {
    for (uint16_t packing : {PLEC_PACKING_ROW_MAJOR, PLEC_PACKING_BLOCKS_INLINE}) {
        EXPECT_EQ(plec_capability_operand(PLEC_FORMAT_Q4_K, packing), PLEC_CAUSE_NONE);
        EXPECT_EQ(plec_capability_operand(PLEC_FORMAT_NVFP4, packing), PLEC_CAUSE_NONE);
        EXPECT_EQ(plec_capability_operand(PLEC_FORMAT_MXFP4, packing),
                  PLEC_CAUSE_UNSUPPORTED_PACKING)
            << "mxfp4 without its scales";
        EXPECT_EQ(plec_capability_operand(PLEC_FORMAT_MXFP8, packing),
                  PLEC_CAUSE_UNSUPPORTED_PACKING)
            << "mxfp8 in one region";
    }
    EXPECT_EQ(plec_capability_operand(PLEC_FORMAT_MXFP4, PLEC_PACKING_BLOCKS_VALUES),
              PLEC_CAUSE_NONE);
    EXPECT_EQ(plec_capability_operand(PLEC_FORMAT_MXFP4, PLEC_PACKING_BLOCKS_SCALES),
              PLEC_CAUSE_UNSUPPORTED_PACKING);
    EXPECT_EQ(plec_capability_operand(PLEC_FORMAT_NVFP4, PLEC_PACKING_BLOCKS_VALUES),
              PLEC_CAUSE_UNSUPPORTED_PACKING)
        << "no place for the tensor scale";
    EXPECT_EQ(plec_capability_operand(11, PLEC_PACKING_ROW_MAJOR), PLEC_CAUSE_UNSUPPORTED_FORMAT);
    EXPECT_EQ(plec_capability_operand(PLEC_FORMAT_GGUF_BASE | 1, 0), PLEC_CAUSE_UNSUPPORTED_FORMAT);
}

TEST(Capability, TheExecutorMaySayWhatItReads) {
    regions selected = {whole(PLEC_ROLE_GATE_UP_FUSED), whole(PLEC_ROLE_DOWN, PLEC_FORMAT_Q4_0)};
    plec_capability_query query = {};
    query.bank = "shared";
    query.programme = plec_programme_find(FUSED);
    query.regions = selected.data();
    query.n_regions = selected.size();
    query.operand = [](uint16_t format, uint16_t) {
        return format == PLEC_FORMAT_Q4_0 ? PLEC_CAUSE_UNSUPPORTED_FORMAT : PLEC_CAUSE_NONE;
    };
    plec_capability capability = {};
    plec_error err = {};
    EXPECT_EQ(plec_capability_check(&capability, &query, &err), PLEC_UNSUPPORTED);
    EXPECT_NE(std::string(err.message).find("layer 0, shared bank"), std::string::npos);
    EXPECT_NE(std::string(err.message).find("format q4_0"), std::string::npos) << err.message;
}

TEST(Capability, TheLargestSegmentListIsJudgedInTime) {
    regions selected;
    segments required;
    for (uint32_t i = 0; i <= UINT16_MAX; i++) {
        required.push_back(UINT16_MAX - i);
        for (uint16_t role : {PLEC_ROLE_GATE, PLEC_ROLE_UP, PLEC_ROLE_DOWN})
            selected.push_back(region(role, i));
    }
    EXPECT_EQ(judge(GATED, selected, required).status, PLEC_OK);
    selected.pop_back();
    Judged judged = judge(GATED, selected, required);
    EXPECT_EQ(judged.capability.sets[1].wanting_segment, UINT16_MAX);
}

namespace {

plec_rung says_production(const plec_programme *, uint16_t) {
    return PLEC_RUNG_PRODUCTION;
}

plec_rung says_by_format(const plec_programme *programme, uint16_t format) {
    if (programme->latent) return PLEC_RUNG_REPRESENTABLE;
    return format == PLEC_FORMAT_Q4_K ? PLEC_RUNG_DISPATCHED : PLEC_RUNG_REFERENCE;
}

} // namespace

TEST(Registry, AnExpertStandsOnTheLowestRungOfItsFormats) {
    const plec_backend_facts backend = {"cpu", says_by_format};
    const plec_programme *gated = plec_programme_find(GATED);
    const uint16_t formats[] = {PLEC_FORMAT_Q4_K, F32, UNKNOWN};
    EXPECT_EQ(plec_registry_rung(&backend, gated, formats, 1), PLEC_RUNG_DISPATCHED);
    EXPECT_EQ(plec_registry_rung(&backend, gated, formats, 2), PLEC_RUNG_REFERENCE);
    EXPECT_EQ(plec_registry_rung(&backend, gated, formats, 3), PLEC_RUNG_REPRESENTABLE);
    EXPECT_EQ(plec_registry_rung(&backend, gated, formats, 0), PLEC_RUNG_REPRESENTABLE);
    const plec_backend_facts boaster = {"boaster", says_production};
    EXPECT_EQ(plec_registry_rung(&boaster, gated, formats + 2, 1), PLEC_RUNG_REPRESENTABLE)
        << "no codec, no kernel";
    EXPECT_STREQ(plec_rung_name(PLEC_RUNG_REPRESENTABLE), "representable");
    EXPECT_STREQ(plec_rung_name(PLEC_RUNG_PRODUCTION), "production");
}

TEST(Registry, VisitsEveryProgrammeFormatAndBackendOnce) {
    const plec_backend_facts backends[] = {{"reference", says_by_format},
                                           {"other", says_production}};
    std::map<std::string, plec_rung> rows;
    plec_registry_visit(
        backends, 2,
        [](void *user, const plec_registry_row *row) {
            auto *to = static_cast<std::map<std::string, plec_rung> *>(user);
            std::string key = std::string(row->programme->name) + " " + row->format->name + " " +
                              row->backend->name;
            EXPECT_TRUE(to->emplace(key, row->rung).second) << key;
        },
        &rows);
    size_t n_programmes = 0, n_formats = 0;
    plec_programme_all(&n_programmes);
    plec_format_all(&n_formats);
    EXPECT_EQ(rows.size(), n_programmes * n_formats * 2);
    EXPECT_EQ(rows["gated-mlp-v1 q4_k reference"], PLEC_RUNG_DISPATCHED);
    EXPECT_EQ(rows["latent-moe-v1 q4_k reference"], PLEC_RUNG_REPRESENTABLE);
    EXPECT_EQ(rows["gated-mlp-v1 f32 other"], PLEC_RUNG_PRODUCTION);
}
