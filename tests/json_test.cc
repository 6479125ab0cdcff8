#include "manifests/json.h"
#include "tests/support/data.h"
#include "tests/support/json.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include <sys/stat.h>

using namespace plec_test;

namespace {

struct Refusal {
    std::string name, message;
};

Refusal refused(const std::string &text) {
    json_t *document = nullptr;
    plec_error err = {};
    EXPECT_EQ(plec_json_parse(&document, text.data(), text.size(), &err), PLEC_MALFORMED) << text;
    EXPECT_EQ(document, nullptr);
    return {err.name, err.message};
}

std::vector<std::string> fixture_documents() {
    std::vector<std::string> paths;
    for (const char *folder : {"containers", "run"})
        for (const auto &entry : std::filesystem::recursive_directory_iterator(data_path(folder)))
            if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
    return paths;
}

std::string round_trip(const std::string &text) {
    Json document(text);
    return format_json(document.get());
}

/* Allocations jansson may still make. */
long allocations_left;
void *bounded_malloc(size_t n_bytes) {
    return allocations_left-- > 0 ? std::malloc(n_bytes) : nullptr;
}

} // namespace

TEST(Json, EveryFixtureStoredReadsBackTheSameInTheSameOrder) {
    TempDir dir;
    std::string copy = dir.path("copy.json");
    std::vector<std::string> paths = fixture_documents();
    ASSERT_GE(paths.size(), 80u);
    for (const std::string &path : paths) {
        Json before = load_json(path);
        plec_error err = {};
        ASSERT_EQ(plec_json_store(copy.c_str(), before.get(), &err), PLEC_OK) << err.message;
        Json after = load_json(copy);
        EXPECT_TRUE(same_document(before.get(), after.get())) << path;
    }
}

/* Documents in the written form (2 spaces, no final newline) come back byte for byte. */
TEST(Json, StoresTheWrittenFormByteForByte) {
    size_t n_equal = 0;
    for (const std::string &path : fixture_documents()) {
        /* The others were edited by hand; run03 spells a real as 1e-05. */
        std::string folder = std::filesystem::path(path).parent_path().filename().string();
        bool written =
            folder[0] == 'c' || folder.substr(0, 5) == "run01" || folder.substr(0, 5) == "run02";
        if (!written || std::filesystem::path(path).filename() == "case.json") continue;
        EXPECT_EQ(format_json(load_json(path).get()), read_text(path)) << path;
        n_equal++;
    }
    EXPECT_EQ(n_equal, 16u);
}

TEST(Json, UnknownMembersAtEveryLevelKeepOrderAndValue) {
    Json before(
        std::string(R"({"zz": 1, "a": {"n": null, "deep": [[], {}, [{"x": [0]}]], "b": true},
        "text": "\u00e9\ud83d\ude00\u0000\u001f\"\\/", "m": -9223372036854775808,
        "big": 9223372036854775807, "r": [0.1, -0.0, 1e-5, 5e-324, 1.7976931348623157e308, 1E2]})"));
    Json after(format_json(before.get()));
    EXPECT_TRUE(same_document(before.get(), after.get())) << format_json(before.get());
    EXPECT_EQ(json_integer_value(json_object_get(after.get(), "big")), INT64_MAX);
    EXPECT_EQ(json_integer_value(json_object_get(after.get(), "m")), INT64_MIN);
    EXPECT_EQ(json_string_length(json_object_get(after.get(), "text")), 11u);
}

TEST(Json, RealsAreSpelledWithTheFewestDigitsThatReadBack) {
    EXPECT_EQ(round_trip("[0.1]"), "[\n  0.1\n]");
    EXPECT_EQ(round_trip("[2.446]"), "[\n  2.446\n]");
    EXPECT_EQ(round_trip("[8.0]"), "[\n  8.0\n]");
    EXPECT_EQ(round_trip("[1e-05]"), "[\n  1e-5\n]");
    EXPECT_EQ(round_trip("[0.30000000000000004]"), "[\n  0.30000000000000004\n]");
    EXPECT_EQ(round_trip("[6.103515625e-5]"), "[\n  6.103515625e-5\n]");
}

TEST(Json, IntegersBeyondInt64AreRefusedByName) {
    Refusal refusal = refused(R"({"layers": [{}, {"router": {"k": 9223372036854775808}}]})");
    EXPECT_EQ(refusal.name, "IntegerRange");
    EXPECT_NE(refusal.message.find("layers[1].router.k"), std::string::npos) << refusal.message;
    EXPECT_NE(refusal.message.find("9223372036854775808"), std::string::npos) << refusal.message;
    EXPECT_EQ(refused(R"({"m": -9223372036854775809})").name, "IntegerRange");
    EXPECT_EQ(refused(R"([18446744073709551616])").name, "IntegerRange");
    refusal = refused(R"({"scale": 1e999})");
    EXPECT_EQ(refusal.name, "RealRange");
    EXPECT_NE(refusal.message.find("scale"), std::string::npos) << refusal.message;
}

TEST(Json, MembersGivenTwiceAreRefusedAtEveryLevel) {
    for (const char *text :
         {R"({"a": 1, "a": 1})", R"({"x": {"a": 1, "b": 2, "a": 3}})",
          R"([[{"y": [{"a": null, "a": null}]}]])", R"({"a": 1, "\u0061": 2})"}) {
        Refusal refusal = refused(text);
        EXPECT_EQ(refusal.name, "DuplicateKey") << text;
        EXPECT_NE(refusal.message.find("a"), std::string::npos);
    }
    EXPECT_NE(refused(R"({"x": {"a": 1, "a": 3}})").message.find("x.a:"), std::string::npos);
}

TEST(Json, NulIsKeptInValuesAndRefusedInNames) {
    EXPECT_EQ(round_trip(R"(["a\u0000b"])"), "[\n  \"a\\u0000b\"\n]");
    EXPECT_EQ(refused(R"({"a\u0000b": 1})").name, "NulInKey");
}

TEST(Json, NestingDeeperThanTheLimitIsRefusedAtItsByte) {
    auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
    Json deepest(nested(64));
    EXPECT_NE(deepest.get(), nullptr);
    Json again(format_json(deepest.get()));
    EXPECT_TRUE(same_document(deepest.get(), again.get()));
    plec_error err = {};
    json_t *document = nullptr;
    std::string text = nested(65);
    EXPECT_EQ(plec_json_parse(&document, text.data(), text.size(), &err), PLEC_MALFORMED);
    EXPECT_STREQ(err.name, "TooDeep");
    EXPECT_EQ(err.byte, 64u);
    EXPECT_EQ(refused(std::string(1 << 20, '[')).name, "TooDeep");
    EXPECT_EQ(refused("\"" + std::string(100, '[')).name, "JsonSyntax") << "brackets in a string";
}

TEST(Json, TextsOverTheLimitAreRefusedUnread) {
    EXPECT_EQ(refused(std::string(PLEC_JSON_BYTES_MAX + 1, ' ')).name, "TooLarge");
}

TEST(Json, SyntaxErrorsAreRefusedWithLineAndByte) {
    for (const char *text :
         {"", " ", "{", "[1,]", "{\"a\" 1}", "{'a': 1}", "[01]", "[NaN]", "[Infinity]", "{} {}",
          "nul", "[\"\xff\"]", "[\"\\ud800\"]", "\xef\xbb\xbf{}", "[1] // no"})
        EXPECT_EQ(refused(text).name, "JsonSyntax") << text;
    plec_error err = {};
    json_t *document = nullptr;
    std::string text = "{\"a\": 1,\n \"b\": x}";
    ASSERT_EQ(plec_json_parse(&document, text.data(), text.size(), &err), PLEC_MALFORMED);
    EXPECT_NE(std::string(err.message).find("b: "), std::string::npos) << err.message;
    EXPECT_NE(std::string(err.message).find("line 2"), std::string::npos) << err.message;
    EXPECT_EQ(err.byte, 16u);
}

TEST(Json, EveryPrefixOfAManifestIsRefused) {
    std::string text = read_text(data_path("containers/c05_sigmoid_routers/moe_manifest.json"));
    for (size_t n = 0; n < text.size(); n++)
        EXPECT_EQ(refused(text.substr(0, n)).name, "JsonSyntax") << n;
}

TEST(Json, LoadNamesThePathOfWhatIsMissingOrWrong) {
    TempDir dir;
    json_t *document = nullptr;
    plec_error err = {};
    EXPECT_EQ(plec_json_load(&document, dir.path("none.json").c_str(), &err), PLEC_MISSING);
    EXPECT_NE(std::string(err.message).find("none.json"), std::string::npos);
    EXPECT_EQ(plec_json_load(&document, dir.path().c_str(), &err), PLEC_MISSING);
    EXPECT_STREQ(err.name, "NotAFile");
    ASSERT_EQ(mkfifo(dir.path("fifo").c_str(), 0600), 0);
    EXPECT_EQ(plec_json_load(&document, dir.path("fifo").c_str(), &err), PLEC_MISSING);
    write_file(dir.path("bad.json"), "[1,", 3);
    EXPECT_EQ(plec_json_load(&document, dir.path("bad.json").c_str(), &err), PLEC_MALFORMED);
    EXPECT_NE(std::string(err.message).find("bad.json: JsonSyntax"), std::string::npos);
    write_file(dir.path("empty.json"), "", 0);
    EXPECT_EQ(plec_json_load(&document, dir.path("empty.json").c_str(), &err), PLEC_MALFORMED);
}

TEST(Json, StoreReplacesWholeFilesAndLeavesNothingBeside) {
    TempDir dir;
    Json first(std::string("{\"n\": 1}")), second(std::string("{\"n\": 2}"));
    plec_error err = {};
    std::string path = dir.path("index.json");
    ASSERT_EQ(plec_json_store(path.c_str(), first.get(), &err), PLEC_OK) << err.message;
    ASSERT_EQ(plec_json_store(path.c_str(), second.get(), &err), PLEC_OK) << err.message;
    EXPECT_EQ(read_text(path), "{\n  \"n\": 2\n}");
    EXPECT_EQ(list_folder(dir.path(), "").size(), 1u);
}

TEST(Json, AFailedStoreLeavesWhatWasThere) {
    TempDir dir;
    Json document(std::string("{}"));
    plec_error err = {};
    EXPECT_EQ(plec_json_store(dir.path("no/such.json").c_str(), document.get(), &err), PLEC_IO);
    EXPECT_STREQ(err.name, "CannotCreate");
    std::filesystem::create_directory(dir.path("folder"));
    EXPECT_EQ(plec_json_store(dir.path("folder").c_str(), document.get(), &err), PLEC_IO);
    EXPECT_STREQ(err.name, "RenameFailed");
    EXPECT_EQ(list_folder(dir.path(), ""), std::vector<std::string>{"folder"});
}

/* Written as /dev/full by root, a file once took the place of the device. */
TEST(Json, AStoreNeverReplacesALinkOrAPipe) {
    TempDir dir;
    Json document(std::string("{}"));
    std::string pipe = dir.path("pipe"), link = dir.path("link");
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    std::filesystem::create_symlink("pipe", link);
    for (const std::string &path : {pipe, link}) {
        plec_error err = {};
        EXPECT_EQ(plec_json_store(path.c_str(), document.get(), &err), PLEC_IO) << path;
        EXPECT_STREQ(err.name, "CannotCreate");
        EXPECT_NE(strstr(err.message, path.c_str()), nullptr) << err.message;
    }
    EXPECT_TRUE(std::filesystem::is_fifo(pipe));
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    EXPECT_EQ(list_folder(dir.path(), "").size(), 2u);
}

/* Of a string jansson itself reports a failed allocation as a syntax error; there is none here. */
TEST(Json, DocumentWithoutMemoryForItsValuesIsNoSyntaxError) {
    const std::string text = "[1, [2, 3, 4, 5, 6, 7, 8, 9, 10, 11], true, 2.5, null]";
    plec_status status = PLEC_NO_MEMORY;
    int refusals = 0;
    for (long n = 0; status != PLEC_OK; n++, refusals++) {
        json_t *document = nullptr;
        plec_error err = {};
        allocations_left = n;
        json_set_alloc_funcs(bounded_malloc, std::free);
        status = plec_json_parse(&document, text.data(), text.size(), &err);
        json_set_alloc_funcs(std::malloc, std::free);
        if (status != PLEC_OK) {
            EXPECT_EQ(status, PLEC_NO_MEMORY) << n << ": " << err.message;
        }
        json_decref(document);
    }
    EXPECT_GT(refusals, 10);
}
