#include "manifests/index.h"
#include "manifests/index_build.h"
#include "tests/support/data.h"
#include "tests/support/json.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>

using namespace plec_test;

namespace {

/* An index that is closed with its scope. */
class Index : public plec_index {
  public:
    explicit Index(json_t *from) : plec_index() {
        plec_error err = {};
        EXPECT_EQ(plec_index_read(this, from, &err), PLEC_OK) << err.message;
    }
    Index(const Index &) = delete;
    Index &operator=(const Index &) = delete;
    ~Index() { plec_index_close(this); }
};

Json packs_document() {
    return load_json(data_path("containers/c06_packs_and_profiles/index.json"));
}

Json segments_document(const std::string &segments) {
    Json document = packs_document();
    set_member(document.get(), "segments", segments);
    return document;
}

void expect_refused(json_t *document, plec_status status, const std::string &name,
                    const std::vector<std::string> &facts) {
    plec_index index = {};
    plec_error err = {};
    ASSERT_EQ(plec_index_read(&index, document, &err), status) << facts[0];
    EXPECT_EQ(err.name, name) << err.message;
    for (const std::string &fact : facts)
        EXPECT_NE(std::string(err.message).find(fact), std::string::npos)
            << err.message << "\nshould tell: " << fact;
    EXPECT_EQ(index.document, nullptr) << "closed on failure";
}

} // namespace

TEST(Index, ReadsEveryMember) {
    Json document = packs_document();
    set_member(document.get(), "authority", "\"derived\"");
    set_member(document.get(), "derived_from_model", "\"big\"");
    Index index(document.get());
    EXPECT_EQ(index.version, 4u);
    EXPECT_STREQ(index.model, "c06_packs_and_profiles");
    EXPECT_STREQ(index.moe_manifest, "moe_manifest.json");
    EXPECT_TRUE(index.derived);
    EXPECT_STREQ(index.derived_from_model, "big");
    ASSERT_EQ(index.n_profiles, 2u);
    EXPECT_STREQ(index.profiles[1].selections[0].variant, "native-mxfp4");
    ASSERT_EQ(index.n_region_sets, 2u);
    EXPECT_STREQ(index.region_sets[1].baseline, "exact-q6k");
    EXPECT_EQ(index.region_sets[1].variants[1].fidelity, PLEC_SOURCE_EXACT);
    EXPECT_EQ(index.plectrum, nullptr);
}

TEST(Index, GenerationIsJudgedBeforeAnythingElse) {
    for (const char *version : {"0", "5", "4294967299", "9223372036854775807"}) {
        Json document(std::string("{\"version\": ") + version + "}");
        expect_refused(document.get(), PLEC_UNSUPPORTED, "UnknownGeneration",
                       {version, "1-2 (VINDEX2), 3-4 (VINDEX3)"});
    }
    for (const char *version : {"1", "2"}) {
        Json document(std::string("{\"version\": ") + version + "}");
        expect_refused(document.get(), PLEC_UNSUPPORTED, "WrongGeneration", {"VINDEX2", "VINDEX3"});
    }
    for (const char *text : {"{}", "{\"version\": null}"})
        expect_refused(Json(std::string(text)).get(), PLEC_UNSUPPORTED, "UnknownGeneration",
                       {"version 0", "no version field"});
    for (const char *version : {"-1", "4.0", "\"4\"", "true", "[4]", "{}"}) {
        Json document(std::string("{\"version\": ") + version + "}");
        expect_refused(document.get(), PLEC_MALFORMED, "WrongType",
                       {"`version`", "non-negative integer"});
    }
    expect_refused(Json(std::string("[4]")).get(), PLEC_MALFORMED, "WrongType", {"an object"});
    Json third = packs_document();
    set_member(third.get(), "version", "3");
    EXPECT_EQ(Index(third.get()).version, 3u);
}

TEST(Index, EveryRequiredMemberIsMissedByName) {
    for (const char *path :
         {"model", "family", "hidden_size", "num_layers", "profiles", "segments", "profiles/0/name",
          "variants/layer.0.routed.down/baseline", "variants/layer.0.routed.down/variants",
          "variants/layer.0.routed.down/variants/q6k/storage",
          "variants/layer.0.routed.down/variants/q6k/fidelity"}) {
        Json document = packs_document();
        remove_member(document.get(), path);
        std::string name = std::string(path).substr(std::string(path).rfind('/') + 1);
        expect_refused(document.get(), PLEC_MALFORMED, "MissingField",
                       {"missing field `" + name + "`"});
    }
}

TEST(Index, WrongTypesAreRefusedByName) {
    const std::vector<std::pair<const char *, std::vector<const char *>>> wrong = {
        {"model", {"null", "5", "[]"}},
        {"family", {"{}", "false"}},
        {"hidden_size", {"null", "-1", "8.0", "\"8\""}},
        {"num_layers", {"null", "true"}},
        {"moe_manifest", {"5", "[]"}},
        {"system_graph", {"5"}},
        {"auxiliary_references", {"{}"}},
        {"representation_attestations", {"[]"}},
        {"derived_from_model", {"7"}},
        {"precision_map", {"[]", "\"x\""}},
        {"authority", {"null", "1"}},
        {"profiles", {"null", "{}", "\"exact\""}},
        {"profiles/0/name", {"null", "1"}},
        {"profiles/1/selects", {"null", "[]"}},
        {"profiles/1/selects/layer.0.routed.gate_up", {"null", "{}"}},
        {"variants", {"null", "[]"}},
        {"variants/layer.0.routed.down", {"null", "[]"}},
        {"variants/layer.0.routed.down/baseline", {"null", "[]"}},
        {"variants/layer.0.routed.down/variants", {"[]"}},
        {"variants/layer.0.routed.down/variants/q6k", {"null", "\"x\""}},
        {"variants/layer.0.routed.down/variants/q6k/storage", {"1"}},
        {"variants/layer.0.routed.down/variants/q6k/fidelity", {"1"}},
        {"segments", {"null", "[]"}},
        {"representations", {"null", "[]"}},
        {"plectrum", {"[]", "1"}},
    };
    for (const auto &[path, values] : wrong) {
        for (const char *value : values) {
            Json document = packs_document();
            set_member(document.get(), path, value);
            std::string name = std::string(path).substr(std::string(path).rfind('/') + 1);
            expect_refused(document.get(), PLEC_MALFORMED, "WrongType", {name, "expected"});
        }
    }
}

TEST(Index, NullStandsForAnAbsentOptionalMember) {
    Json document = packs_document();
    for (const char *name :
         {"moe_manifest", "system_graph", "auxiliary_references", "representation_attestations",
          "precision_map", "derived_from_model", "plectrum"})
        set_member(document.get(), name, "null");
    Index index(document.get());
    EXPECT_EQ(index.moe_manifest, nullptr);
    EXPECT_EQ(index.derived_from_model, nullptr);
}

TEST(Index, NumbersBeyondTheirFieldAreRefusedByName) {
    Json document = packs_document();
    set_member(document.get(), "hidden_size", "4294967296");
    expect_refused(document.get(), PLEC_MALFORMED, "IntegerRange", {"`hidden_size`", "4294967296"});
    document = packs_document();
    set_member(document.get(), "segments", "{\"k\": 4294967296}");
    expect_refused(document.get(), PLEC_MALFORMED, "IntegerRange", {"`segments.k`"});
}

TEST(Index, UnknownWordsAreRefusedWithWhatWasExpected) {
    Json document = packs_document();
    set_member(document.get(), "authority", "\"royal\"");
    expect_refused(
        document.get(), PLEC_MALFORMED, "UnknownVariant",
        {"unknown variant `royal` for `authority`, expected one of [canonical, derived]"});
    document = packs_document();
    set_member(document.get(), "variants/layer.0.routed.down/variants/q6k/fidelity", "\"good\"");
    expect_refused(document.get(), PLEC_MALFORMED, "UnknownVariant",
                   {"`good` for `fidelity`", "analysis-only", "source-exact",
                    "variants.layer.0.routed.down.variants.q6k"});
}

TEST(Index, KeysThatLeaveTheContainerAreRefused) {
    for (const char *key : {"", "/etc/x", "../x", "a/../x", "a/..", "..", ".", "./x", "a/./x"}) {
        EXPECT_FALSE(plec_key_is_safe(key)) << key;
        Json document = packs_document();
        set_member(document.get(), "segments", "{}");
        json_object_set_new(json_object_get(document.get(), "segments"), key, json_integer(1));
        expect_refused(document.get(), PLEC_MALFORMED, "UnsafeKey", {"segments"});
        document = packs_document();
        json_object_set_new(document.get(), "moe_manifest", json_string(key));
        expect_refused(document.get(), PLEC_MALFORMED, "UnsafeKey", {"`moe_manifest`"});
        document = packs_document();
        set_member(document.get(), "variants/layer.0.routed.down/variants/q6k/storage",
                   "\"" + std::string(key) + "\"");
        expect_refused(document.get(), PLEC_MALFORMED, "UnsafeKey", {"storage"});
    }
    for (const char *key : {"a", "a/b", "..a", "a..", "a/...", ".hidden", "routed/layer_000.seg00"})
        EXPECT_TRUE(plec_key_is_safe(key)) << key;
    Json document = packs_document();
    set_member(document.get(), "moe_manifest", "\"moe\\u0000.json\"");
    expect_refused(document.get(), PLEC_MALFORMED, "UnsafeKey", {"`moe_manifest`", "NUL"});
    document = packs_document();
    set_member(document.get(), "model", "\"a\\u0000b\"");
    expect_refused(document.get(), PLEC_MALFORMED, "NulInString", {"`model`"});
}

TEST(Index, UnknownMembersAreKeptAndIgnoredAtEveryLevel) {
    Json document = packs_document();
    for (const char *path : {"zz", "profiles/0/zz", "variants/layer.0.routed.down/zz",
                             "variants/layer.0.routed.down/variants/q6k/zz"})
        set_member(document.get(), path, "{\"n\": [9223372036854775807, null, 0.1]}");
    set_member(document.get(), "plectrum", "{\"zz\": 1, \"extents\": {}}");
    std::string before = format_json(document.get());
    Index index(document.get());
    EXPECT_EQ(format_json(index.document), before);
    TempDir dir;
    plec_error err = {};
    ASSERT_EQ(plec_json_store(dir.path("i").c_str(), index.document, &err), PLEC_OK);
    EXPECT_TRUE(same_document(document.get(), load_json(dir.path("i")).get()));
}

/* The seed that reaches every reader would be worth nothing if it were refused early. */
TEST(Index, TheRichestFuzzSeedIsRead) {
    Json document = load_json(data_path("fuzz/index/everything.json"));
    Index index(document.get());
    EXPECT_EQ(index.n_segments, 3u);
    EXPECT_NE(index.plectrum, nullptr);
}

TEST(Index, RepresentationsAreTypeChecked) {
    const char *entry = R"({"object": "o", "encoding": "e", "segment": "s", "tensor_count": 1,
        "payload_bytes": 9223372036854775807, "payload_sha256": "x", "segment_sha256": "y",
        "codec": {"family": "f"}, "encoder": null})";
    Json document = packs_document();
    set_member(document.get(), "representations", std::string("{\"o@e\": ") + entry + "}");
    Index(document.get());
    remove_member(document.get(), "representations/o@e/payload_bytes");
    expect_refused(document.get(), PLEC_MALFORMED, "MissingField",
                   {"payload_bytes", "representations.o@e"});
    set_member(document.get(), "representations/o@e/payload_bytes", "-1");
    expect_refused(document.get(), PLEC_MALFORMED, "WrongType", {"payload_bytes"});
}

TEST(Index, PlectrumHashesAndExtentsAreReadStrictly) {
    std::string hex(64, 'a');
    hex[1] = 'F';
    Json document = packs_document();
    set_member(document.get(), "plectrum",
               R"({"integrity": {"algorithm": "sha256", "files": {"routed/layer_000.lyrw": ")" +
                   hex + R"("}}, "extents": {"routed/layer_000": 16}, "later": 1})");
    Index index(document.get());
    EXPECT_EQ(plec_index_extent(&index, "routed/layer_000"), 16u);
    EXPECT_EQ(plec_index_extent(&index, "routed/layer_001"), 0u);
    uint8_t digest[PLEC_SHA256_BYTES];
    bool given = false;
    plec_error err = {};
    ASSERT_EQ(plec_index_sha256(digest, &given, &index, "routed/layer_000.lyrw", &err), PLEC_OK);
    EXPECT_TRUE(given);
    EXPECT_EQ(digest[0], 0xaf);
    EXPECT_EQ(digest[31], 0xaa);
    ASSERT_EQ(plec_index_sha256(digest, &given, &index, "other.lyrw", &err), PLEC_OK);
    EXPECT_FALSE(given);
}

TEST(Index, PlectrumFaultsAreRefusedByName) {
    const std::vector<std::array<const char *, 3>> faults = {
        {R"({"extents": {"a": 0}})", "BadExtent", "`plectrum.extents.a`"},
        {R"({"extents": {"a": "16"}})", "WrongType", "`plectrum.extents.a`"},
        {R"({"extents": {"a": 4294967296}})", "IntegerRange", "`plectrum.extents.a`"},
        {R"({"extents": {"../a": 8}})", "UnsafeKey", "../a"},
        {R"({"extents": []})", "WrongType", "`plectrum.extents`"},
        {R"({"integrity": 1})", "WrongType", "`plectrum.integrity`"},
        {R"({"integrity": {}})", "MissingField", "algorithm"},
        {R"({"integrity": {"algorithm": "sha256"}})", "MissingField", "files"},
        {R"({"integrity": {"algorithm": 256, "files": {}}})", "WrongType", "algorithm"},
        {R"({"integrity": {"algorithm": "sha256", "files": {"a": 1}}})", "WrongType", "files.a"},
        {R"({"integrity": {"algorithm": "sha256", "files": {"a": "12"}}})", "BadHash", "files.a"},
        {R"({"integrity": {"algorithm": "sha256", "files": {"/a": "12"}}})", "UnsafeKey", "/a"},
    };
    for (const auto &[text, name, fact] : faults) {
        Json document = packs_document();
        set_member(document.get(), "plectrum", text);
        expect_refused(document.get(), PLEC_MALFORMED, name, {fact});
    }
}

TEST(Index, AnUnknownHashIsRefusedWhereItIsUsed) {
    Json document = packs_document();
    set_member(document.get(), "plectrum",
               R"({"integrity": {"algorithm": "blake3", "files": {"a.lyrw": "12"}}})");
    Index index(document.get());
    uint8_t digest[PLEC_SHA256_BYTES];
    bool given = false;
    plec_error err = {};
    EXPECT_EQ(plec_index_sha256(digest, &given, &index, "a.lyrw", &err), PLEC_UNSUPPORTED);
    EXPECT_STREQ(err.name, "UnknownHash");
}

namespace {

std::vector<std::string> resolve(json_t *document, const char *storage, plec_status wanted,
                                 plec_error *err) {
    Index index(document);
    std::vector<const char *> keys(index.n_segments + 1, nullptr);
    size_t n_keys = 99;
    EXPECT_EQ(plec_index_resolve_storage(keys.data(), &n_keys, &index, storage, err), wanted)
        << err->message;
    std::vector<std::string> names;
    for (size_t i = 0; wanted == PLEC_OK && i < n_keys; i++)
        names.push_back(keys[i]);
    return names;
}

} // namespace

TEST(Storage, ResolvesToItselfOrToItsSegments) {
    plec_error err = {};
    Json document = segments_document(
        R"({"s.seg01": 1, "t": 1, "s.seg00": 1, "t.seg00": 1, "s.seg02": 1, "st.seg00": 1,
            "s.seg0": 1, "s.seg003": 1, "s.segx": 1, "s.seg00x": 1, "s.q6k": 1})");
    using names = std::vector<std::string>;
    EXPECT_EQ(resolve(document.get(), "s", PLEC_OK, &err),
              (names{"s.seg00", "s.seg01", "s.seg02"}));
    EXPECT_EQ(resolve(document.get(), "t", PLEC_OK, &err), names{"t"}) << "declared whole";
    EXPECT_EQ(resolve(document.get(), "st", PLEC_OK, &err), names{"st.seg00"});
    EXPECT_EQ(resolve(document.get(), "u", PLEC_OK, &err), names{});
    EXPECT_EQ(resolve(document.get(), "s.seg", PLEC_OK, &err), names{});
    EXPECT_EQ(resolve(document.get(), "", PLEC_OK, &err), names{});
    EXPECT_EQ(resolve(document.get(), "zzz", PLEC_OK, &err), names{});
}

TEST(Storage, GapsAreRefusedByTheKeyThatIsMissing) {
    plec_error err = {};
    Json hole = segments_document(R"({"s.seg00": 1, "s.seg02": 1})");
    resolve(hole.get(), "s", PLEC_MALFORMED, &err);
    EXPECT_STREQ(err.name, "SegmentGap");
    EXPECT_NE(std::string(err.message).find("s.seg01"), std::string::npos) << err.message;
    Json headless = segments_document(R"({"s.seg01": 1})");
    resolve(headless.get(), "s", PLEC_MALFORMED, &err);
    EXPECT_NE(std::string(err.message).find("s.seg00"), std::string::npos) << err.message;
    Json far = segments_document(R"({"s.seg00": 1, "s.seg65535": 1})");
    resolve(far.get(), "s", PLEC_MALFORMED, &err);
    EXPECT_STREQ(err.name, "SegmentGap");
}

TEST(Storage, SegmentNumbersGoPastTwoDigits) {
    std::string text = "{";
    for (int i = 0; i < 120; i++) {
        char key[32];
        snprintf(key, sizeof key, "s.seg%02d", (i * 77) % 120);
        text += (i > 0 ? ", \"" : "\"") + std::string(key) + "\": 1";
    }
    plec_error err = {};
    std::vector<std::string> keys =
        resolve(segments_document(text + "}").get(), "s", PLEC_OK, &err);
    ASSERT_EQ(keys.size(), 120u);
    EXPECT_EQ(keys[9], "s.seg09");
    EXPECT_EQ(keys[99], "s.seg99");
    EXPECT_EQ(keys[119], "s.seg119");
}

TEST(Index, FindsSegmentsByKey) {
    Json document = segments_document(R"({"b": 2, "a": 1, "c": 3})");
    Index index(document.get());
    EXPECT_STREQ(index.segments[0].key, "b") << "document order is kept";
    for (const char *key : {"a", "b", "c"}) {
        const plec_index_segment *found = plec_index_find_segment(&index, key);
        ASSERT_NE(found, nullptr);
        EXPECT_STREQ(found->key, key);
    }
    EXPECT_EQ(plec_index_find_segment(&index, "d"), nullptr);
    EXPECT_EQ(plec_index_find_segment(&index, ""), nullptr);
}

TEST(IndexBuild, MakesAFixtureByteForByte) {
    Json built;
    plec_error err = {};
    plec_index_build_args args = {};
    args.model = "run01";
    args.family = "fixture";
    args.hidden_size = 64;
    args.num_layers = 5;
    args.moe_manifest = "moe_manifest.json";
    ASSERT_EQ(plec_index_build(built.out(), &args, &err), PLEC_OK) << err.message;
    for (const char *key : {"routed/layer_003.seg00", "routed/layer_003.seg01", "shared/layer_003",
                            "control/layer_003"})
        ASSERT_EQ(plec_index_build_segment(built.get(), key, &err), PLEC_OK);
    for (const char *key : {"routed/layer_003.seg00", "routed/layer_003.seg01"})
        ASSERT_EQ(plec_index_build_extent(built.get(), key, 8, &err), PLEC_OK);
    EXPECT_EQ(format_json(built.get()),
              read_text(data_path("run/run01_sigmoid_two_segments/index.json")));
}

TEST(IndexBuild, ReadsBackWhatWasBuilt) {
    Json built;
    plec_error err = {};
    plec_index_build_args args = {};
    args.model = args.family = "m";
    args.derived = true;
    args.derived_from_model = "parent";
    ASSERT_EQ(plec_index_build(built.out(), &args, &err), PLEC_OK);
    ASSERT_EQ(plec_index_build_segment(built.get(), "a", &err), PLEC_OK);
    ASSERT_EQ(plec_index_build_segment(built.get(), "a", &err), PLEC_OK);
    uint8_t digest[PLEC_SHA256_BYTES] = {0x12, 0xab}, back[PLEC_SHA256_BYTES];
    ASSERT_EQ(plec_index_build_sha256(built.get(), "a.lyrw", digest, &err), PLEC_OK);
    plec_index_build_variant_args variant = {"layer.0.routed.down", "v", "a", PLEC_SOURCE_EXACT};
    ASSERT_EQ(plec_index_build_variant(built.get(), &variant, &err), PLEC_OK);
    plec_index_build_selection_args selection = {"low", "layer.0.routed.down", "v"};
    ASSERT_EQ(plec_index_build_selection(built.get(), &selection, &err), PLEC_OK);

    Index index(built.get());
    EXPECT_TRUE(index.derived);
    EXPECT_EQ(index.moe_manifest, nullptr);
    EXPECT_EQ(index.segments[0].count, 2u) << "counts repeats of a key";
    ASSERT_EQ(index.n_profiles, 2u);
    EXPECT_STREQ(index.profiles[1].selections[0].variant, "v");
    EXPECT_STREQ(index.region_sets[0].baseline, "v");
    bool given = false;
    ASSERT_EQ(plec_index_sha256(back, &given, &index, "a.lyrw", &err), PLEC_OK);
    EXPECT_EQ(memcmp(back, digest, sizeof digest), 0);
}

TEST(IndexBuild, NewMembersTakeTheirPlaceAndOthersKeepTheirs) {
    Json document(std::string(R"({"x": 1, "version": 4, "y": 2, "profiles": [], "z": 3,
                                  "segments": {}, "plectrum": {"w": 4}})"));
    plec_error err = {};
    plec_index_build_variant_args variant = {"s", "v", "a", PLEC_SOURCE_EXACT};
    ASSERT_EQ(plec_index_build_variant(document.get(), &variant, &err), PLEC_OK) << err.message;
    ASSERT_EQ(plec_index_build_extent(document.get(), "a", 8, &err), PLEC_OK);
    std::string order;
    for (void *i = json_object_iter(document.get()); i != nullptr;
         i = json_object_iter_next(document.get(), i))
        order += std::string(json_object_iter_key(i)) + " ";
    EXPECT_EQ(order, "x version y profiles variants z segments plectrum ");
    EXPECT_EQ(json_integer_value(json_object_get(json_object_get(document.get(), "plectrum"), "w")),
              4);
}

TEST(IndexBuild, RefusesWhatCouldNotBeReadBack) {
    Json built;
    plec_error err = {};
    plec_index_build_args args = {};
    args.family = "f";
    args.model = "not utf-8: \xff";
    EXPECT_EQ(plec_index_build(built.out(), &args, &err), PLEC_BAD_INPUT);
    EXPECT_NE(std::string(err.message).find("model"), std::string::npos) << err.message;
    args.model = "m";
    args.moe_manifest = "../m.json";
    EXPECT_EQ(plec_index_build(built.out(), &args, &err), PLEC_BAD_INPUT);
    EXPECT_STREQ(err.name, "UnsafeKey");
    args.moe_manifest = nullptr;
    ASSERT_EQ(plec_index_build(built.out(), &args, &err), PLEC_OK);
    EXPECT_EQ(plec_index_build_segment(built.get(), "/a", &err), PLEC_BAD_INPUT);
    EXPECT_EQ(plec_index_build_extent(built.get(), "a", 0, &err), PLEC_BAD_INPUT);
    set_member(built.get(), "plectrum", "5");
    EXPECT_EQ(plec_index_build_extent(built.get(), "a", 8, &err), PLEC_BAD_INPUT);
}
