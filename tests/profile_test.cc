#include "manifests/profile.h"
#include "tests/support/data.h"
#include "tests/support/json.h"

#include <gtest/gtest.h>

#include <algorithm>

using namespace plec_test;

namespace {

/* Two sets, each with a baseline; profiles exact, low (selects) and ghost variants on demand. */
std::string document_text(const std::string &profiles, const std::string &variants) {
    return R"({"version": 4, "model": "m", "family": "f", "hidden_size": 8, "num_layers": 1,
               "profiles": )" +
           profiles + ", \"variants\": " + variants + ", \"segments\": {}}";
}

const char *const two_sets = R"({
    "b": {"baseline": "one", "variants": {
        "two": {"storage": "b2", "fidelity": "source-exact"},
        "one": {"storage": "b1", "fidelity": "numerically-approximate"}}},
    "a": {"baseline": "one", "variants": {"one": {"storage": "a1", "fidelity": "source-equivalent"}}}
})";

class Index : public plec_index {
  public:
    Index(const std::string &profile_list, const std::string &variants) : plec_index() {
        Json text(document_text(profile_list, variants));
        plec_error err = {};
        EXPECT_EQ(plec_index_read(this, text.get(), &err), PLEC_OK) << err.message;
    }
    Index(const Index &) = delete;
    Index &operator=(const Index &) = delete;
    ~Index() { plec_index_close(this); }
};

std::string refusal(const plec_index &index, const char *name, plec_status wanted) {
    plec_resolved_profile profile = {};
    plec_error err = {};
    EXPECT_EQ(plec_profile_resolve(&profile, &index, name, &err), wanted);
    EXPECT_EQ(profile.selections, nullptr);
    return err.message;
}

std::string chosen(const plec_index &index, const char *name) {
    plec_resolved_profile profile = {};
    plec_error err = {};
    EXPECT_EQ(plec_profile_resolve(&profile, &index, name, &err), PLEC_OK) << err.message;
    std::string text = profile.name != nullptr ? profile.name : "(none)";
    for (size_t i = 0; i < profile.n_selections; i++)
        text += " " + std::string(profile.selections[i].region_set) + "=" +
                profile.selections[i].storage + (profile.selections[i].chosen ? "!" : "");
    plec_profile_close(&profile);
    return text;
}

} // namespace

TEST(Profile, SetsItDoesNotMentionUseTheirBaseline) {
    Index index(R"([{"name": "exact"}, {"name": "low", "selects": {"b": "two"}}])", two_sets);
    EXPECT_EQ(chosen(index, "exact"), "exact a=a1 b=b1") << "sets in name order";
    EXPECT_EQ(chosen(index, "low"), "low a=a1 b=b2!");
}

TEST(Profile, DefaultIsExactElseTheFirstElseNone) {
    EXPECT_EQ(chosen(Index(R"([{"name": "low"}, {"name": "exact"}])", "{}"), nullptr), "exact");
    EXPECT_EQ(chosen(Index(R"([{"name": "low"}, {"name": "high"}])", "{}"), nullptr), "low");
    EXPECT_EQ(chosen(Index("[]", two_sets), nullptr), "(none)");
}

TEST(Profile, AnUndeclaredOneIsRefusedWithTheDeclaredNames) {
    Index index(R"([{"name": "exact"}, {"name": "low"}])", "{}");
    EXPECT_EQ(refusal(index, "browse", PLEC_MISSING),
              "UndeclaredProfile: profile=browse declared=[exact, low]");
}

TEST(Profile, EveryDefectIsToldSelectionsFirst) {
    Index index(R"([{"name": "p", "selects": {"zz": "x", "b": "three"}}])",
                R"({"b": {"baseline": "gone", "variants": {
                        "one": {"storage": "b1", "fidelity": "source-exact"},
                        "two": {"storage": "b2", "fidelity": "source-exact"}}},
                    "a": {"baseline": "one", "variants": {}}})");
    EXPECT_EQ(refusal(index, "p", PLEC_MALFORMED),
              "Unsatisfiable: profile=p: AbsentVariant: set=b requested=three present=[one, two]; "
              "UnknownRegionSet: set=zz catalogued=[a, b]; NoVariants: set=a; "
              "BaselineAbsent: set=b baseline=gone present=[one, two]");
}

TEST(Profile, ACatalogueDefectFailsEveryProfile) {
    const char *broken = R"({"a": {"baseline": "x", "variants": {}}})";
    Index index(R"([{"name": "exact"}, {"name": "low"}])", broken);
    refusal(index, "exact", PLEC_MALFORMED);
    refusal(index, "low", PLEC_MALFORMED);
    plec_error err = {};
    EXPECT_EQ(plec_profile_check_all(&index, &err), PLEC_MALFORMED);
    EXPECT_STREQ(err.name, "Unsatisfiable");
    Index without("[]", broken);
    EXPECT_EQ(plec_profile_check_all(&without, &err), PLEC_OK) << "no profile, nothing to satisfy";
}

TEST(Profile, CheckAllFindsTheOneThatFails) {
    Index index(R"([{"name": "exact"}, {"name": "low", "selects": {"b": "two"}},
                    {"name": "bad", "selects": {"b": "four"}}])",
                two_sets);
    plec_error err = {};
    EXPECT_EQ(plec_profile_check_all(&index, &err), PLEC_MALFORMED);
    EXPECT_NE(std::string(err.message).find("profile=bad: AbsentVariant: set=b requested=four"),
              std::string::npos)
        << err.message;
}

/* Linear in the document: with every pair tried, this would be 10^9 searches. */
TEST(Profile, ManyProfilesOverManySetsAreCheckedInTime) {
    std::string profiles = "[{\"name\": \"exact\"}", variants = "{";
    for (int i = 0; i < 30000; i++) {
        std::string n = std::to_string(i);
        profiles += ", {\"name\": \"p" + n + "\"}";
        variants += (i > 0 ? ", \"s" : "\"s") + n +
                    "\": {\"baseline\": \"v\", \"variants\": {\"v\": {\"storage\": \"s\", "
                    "\"fidelity\": \"source-exact\"}}}";
    }
    Index index(profiles + "]", variants + "}");
    plec_error err = {};
    EXPECT_EQ(plec_profile_check_all(&index, &err), PLEC_OK) << err.message;
}

TEST(Profile, LongListsOfNamesAreCut) {
    std::string variants = "{";
    for (int i = 0; i < 300; i++)
        variants += (i > 0 ? ", \"set" : "\"set") + std::to_string(i) +
                    "\": {\"baseline\": \"v\", \"variants\": {\"v\": {\"storage\": \"s\", "
                    "\"fidelity\": \"source-exact\"}}}";
    Index index(R"([{"name": "p", "selects": {"zz": "x"}}])", variants + "}");
    std::string message = refusal(index, "p", PLEC_MALFORMED);
    EXPECT_NE(message.find("set=zz catalogued=[set0, "), std::string::npos) << message;
    EXPECT_NE(message.find("...]"), std::string::npos) << message;
}

TEST(Authority, IsTheWeakestSelectedFidelityUnderItsCaps) {
    for (int i = PLEC_ANALYSIS_ONLY; i <= PLEC_SOURCE_EXACT; i++) {
        for (int j = PLEC_ANALYSIS_ONLY; j <= PLEC_SOURCE_EXACT; j++) {
            plec_resolved_selection selections[2] = {};
            selections[0].fidelity = static_cast<plec_fidelity>(i);
            selections[1].fidelity = static_cast<plec_fidelity>(j);
            plec_resolved_profile profile = {"p", selections, 2};
            int weakest = std::min(i, j);
            EXPECT_EQ(plec_profile_authority(&profile, true, false), weakest);
            EXPECT_EQ(plec_profile_authority(&profile, false, false), PLEC_ANALYSIS_ONLY);
            EXPECT_EQ(plec_profile_authority(&profile, true, true),
                      std::min<int>(weakest, PLEC_STRUCTURALLY_APPROXIMATE));
        }
    }
    plec_resolved_profile nothing = {};
    EXPECT_EQ(plec_profile_authority(&nothing, true, false), PLEC_ANALYSIS_ONLY);
}
