// `plectrum verify` of containers: the manifest against the files, extents, hashes, scans.
#include "host/verify.h"
#include "lyrw/hash.h"
#include "manifests/index_build.h"
#include "tests/support/data.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

using namespace plec_test;
namespace fs = std::filesystem;

namespace {

// A copy of a container of the test data, to be spoilt.
class Copy {
  public:
    explicit Copy(const std::string &name) {
        fs::copy(data_path(name), root(), fs::copy_options::recursive);
    }
    std::string root() const { return dir_.path("c"); }
    std::string path(const std::string &name) const { return root() + "/" + name; }
    void replace(const std::string &file, const std::string &from, const std::string &to) {
        std::string text = read_text(path(file));
        size_t at = text.find(from);
        ASSERT_NE(at, std::string::npos) << from << " in " << file;
        text.replace(at, from.size(), to);
        write_file(path(file), text.data(), text.size());
    }
    void poke(const std::string &file, size_t at, std::vector<uint8_t> bytes) {
        std::vector<uint8_t> all = read_file(path(file));
        ASSERT_LE(at + bytes.size(), all.size());
        memcpy(&all[at], bytes.data(), bytes.size());
        write_file(path(file), all.data(), all.size());
    }

  private:
    TempDir dir_;
};

// Every finding as "defect Name: text\n", and the status of the call.
struct Verdict {
    plec_status status;
    std::string text;
    uint64_t n_defects = 0, n_hashed = 0, n_regions = 0;
    bool refused = false;
    bool has(const std::string &part) const { return text.find(part) != std::string::npos; }
};

Verdict verify(const std::string &path, bool hash = false, bool scan = false) {
    plec_container_verify_options options = {hash, scan, nullptr, nullptr};
    plec_container_report report;
    plec_error err = {};
    Verdict verdict = {plec_container_verify(&report, path.c_str(), &options, &err), err.message};
    if (verdict.status != PLEC_OK) return verdict;
    verdict.text = "";
    for (size_t i = 0; i < report.findings.n_items; i++) {
        const plec_finding &item = report.findings.items[i];
        verdict.text += std::string(item.severity == PLEC_DEFECT ? "defect " : "note ") +
                        item.name + ": " + item.text + "\n";
    }
    verdict.n_defects = report.findings.n_defects;
    verdict.n_hashed = report.n_hashed;
    verdict.n_regions = report.counts.n_regions;
    verdict.refused = report.refused;
    plec_container_report_close(&report);
    return verdict;
}

// Records the hash of a file under the root in the copy's index.
void record_hash(const Copy &copy, const std::string &file) {
    char hex[PLEC_SHA256_TEXT];
    plec_error err;
    ASSERT_EQ(plec_sha256_file(hex, copy.path(file).c_str(), nullptr, nullptr, &err), PLEC_OK);
    uint8_t digest[PLEC_SHA256_BYTES];
    for (int i = 0; i < PLEC_SHA256_BYTES; i++)
        digest[i] = static_cast<uint8_t>(std::stoul(std::string(hex + 2 * i, 2), nullptr, 16));
    json_t *index = nullptr;
    ASSERT_EQ(plec_json_load(&index, copy.path("index.json").c_str(), &err), PLEC_OK);
    EXPECT_EQ(plec_index_build_sha256(index, file.c_str(), digest, &err), PLEC_OK) << err.message;
    EXPECT_EQ(plec_json_store(copy.path("index.json").c_str(), index, &err), PLEC_OK);
    json_decref(index);
}

} // namespace

// The reports beside the containers say what opens and what binds; where our rules are stricter,
// the rule is named.
TEST(ContainerVerify, EveryReportedContainerIsJudgedAsItsReportSays) {
    const std::map<std::string, std::string> stricter = {
        {"c05_sigmoid_routers", "LayerContradicted"},
        {"odd_dims_not_bank_dims_accepted", "DimensionContradicted"},
        {"odd_layer_not_logical_layer_accepted", "LayerContradicted"}};
    size_t n = 0;
    for (const std::string &name : list_folder(data_path("containers"), ".txt")) {
        std::string report = read_text(data_path("containers/" + name + ".txt"));
        ToolResult result = run_tool({"verify", "--json", data_path("containers/" + name)});
        SCOPED_TRACE(name + result.out + result.err);
        n++;
        if (report.find("\nopen_error ") != std::string::npos) {
            EXPECT_EQ(result.exit_status, 3);
        } else if (auto rule = stricter.find(name); rule != stricter.end()) {
            EXPECT_EQ(result.exit_status, 1);
            EXPECT_NE(result.out.find(rule->second), std::string::npos);
        } else {
            bool bindable = report.find("\nverify bindable") != std::string::npos;
            EXPECT_EQ(result.exit_status, bindable ? 0 : 1);
        }
    }
    EXPECT_GE(n, 40u);
}

TEST(ContainerVerify, RunnableContainersAreSound) {
    for (const char *name :
         {"run/run01_sigmoid_two_segments", "run/run02_gpt_oss_bias", "run/run03_latent"}) {
        Verdict verdict = verify(data_path(name), false, true);
        EXPECT_EQ(verdict.status, PLEC_OK);
        EXPECT_EQ(verdict.n_defects, 0u) << name << "\n" << verdict.text;
        EXPECT_GT(verdict.n_regions, 30u);
    }
}

TEST(ContainerVerify, EveryMissingRegionIsNamed) {
    Verdict verdict = verify(data_path("containers/bad_multi_segment_half"));
    for (const char *role : {"gate", "up", "down"})
        for (const char *entry : {"2", "3"})
            EXPECT_TRUE(verdict.has(std::string("MissingRegion: layer=0 bank=0 entry=") + entry +
                                    " role=" + role + " segment=routed/layer_000"))
                << verdict.text;
    EXPECT_EQ(verdict.n_defects, 6u);
}

TEST(ContainerVerify, RouterFeaturesWithoutADefinitionAreNotes) {
    Verdict verdict = verify(data_path("containers/c05_sigmoid_routers"));
    EXPECT_TRUE(verdict.has("note SharedExpertSink: layer=3")) << verdict.text;
    EXPECT_TRUE(verdict.has("note NormAfterTopK: layer=3")) << verdict.text;
}

TEST(ContainerVerify, ManifestAgainstFile) {
    Copy copy("run/run02_gpt_oss_bias");
    copy.replace("moe_manifest.json", "\"experts\": 8", "\"experts\": 7");
    Verdict verdict = verify(copy.root());
    EXPECT_TRUE(verdict.has("the manifest says 7 experts, the file 8")) << verdict.text;
    EXPECT_FALSE(verdict.refused);
}

TEST(ContainerVerify, ADefectiveFileIsToldOnceNotAgainByItsLayer) {
    Copy copy("containers/c01_gated_decomposed_f32");
    copy.poke("routed/layer_000.lyrw", 120, {0x41}); // the first region, a byte further
    Verdict verdict = verify(copy.root());
    EXPECT_TRUE(verdict.has("defect OffsetNotAligned: ")) << verdict.text;
    EXPECT_TRUE(verdict.has("routed/layer_000")) << verdict.text;
    EXPECT_FALSE(verdict.has("layer 0")) << verdict.text;
}

TEST(ContainerVerify, AnUnreadableSegmentIsADefectAndTheRestIsChecked) {
    Copy copy("containers/c03_hybrid_dense_layer_1");
    copy.poke("routed/layer_002.lyrw", 0, {'X'});
    Verdict verdict = verify(copy.root());
    EXPECT_EQ(verdict.status, PLEC_OK);
    EXPECT_TRUE(verdict.has("defect NotLyrw: segment routed/layer_002")) << verdict.text;
    EXPECT_GT(verdict.n_regions, 0u);
    EXPECT_EQ(run_tool({"verify", copy.root()}).exit_status, 1);
}

TEST(ContainerVerify, SegmentsMustTileTheirBank) {
    Copy copy("run/run01_sigmoid_two_segments");
    // The second file claims entries from 7 on, which the first holds too.
    copy.poke("routed/layer_003.seg01.lyrw", 48 + 4, {7});
    Verdict verdict = verify(copy.root());
    EXPECT_TRUE(verdict.has("SegmentsOverlap")) << verdict.text;
}

TEST(ContainerVerify, RecordedExtentsAreHeldAgainstTheFile) {
    Copy copy("run/run01_sigmoid_two_segments");
    copy.replace("index.json", "\"routed/layer_003.seg01\": 8", "\"routed/layer_003.seg01\": 3");
    Verdict verdict = verify(copy.root());
    EXPECT_TRUE(verdict.has("defect ExtentNotWhole: segment routed/layer_003.seg01"))
        << verdict.text;
}

TEST(ContainerVerify, HashesAreComparedWithTheIndex) {
    Copy copy("run/run02_gpt_oss_bias");
    record_hash(copy, "routed/layer_000.lyrw");
    record_hash(copy, "moe_manifest.json");
    Verdict verdict = verify(copy.root(), true);
    EXPECT_EQ(verdict.n_defects, 0u) << verdict.text;
    EXPECT_EQ(verdict.n_hashed, 2u);
    EXPECT_TRUE(verdict.has("note NotHashed: control/layer_000.lyrw")) << verdict.text;

    Copy other("run/run02_gpt_oss_bias");
    record_hash(other, "routed/layer_000.lyrw");
    std::vector<uint8_t> bytes = read_file(other.path("routed/layer_000.lyrw"));
    other.poke("routed/layer_000.lyrw", bytes.size() - 1, {uint8_t(bytes.back() ^ 1)});
    verdict = verify(other.root(), true);
    EXPECT_TRUE(verdict.has("defect HashDiffers: routed/layer_000.lyrw")) << verdict.text;
    fs::remove(other.path("routed/layer_000.lyrw"));
    verdict = verify(other.root(), true);
    EXPECT_TRUE(verdict.has("defect HashedFileMissing")) << verdict.text;
    EXPECT_TRUE(verdict.refused);
}

TEST(ContainerVerify, WhatIsNoFileIsNeverHashed) {
    Copy copy("run/run02_gpt_oss_bias");
    write_file(copy.path("extra"), "x", 1);
    record_hash(copy, "extra");
    fs::remove(copy.path("extra"));
    fs::create_symlink("/dev/zero", copy.path("extra")); // it would never end
    Verdict verdict = verify(copy.root(), true);
    EXPECT_TRUE(verdict.has("defect HashedFileMissing: extra")) << verdict.text;
    fs::remove(copy.path("extra"));
    fs::create_directory(copy.path("extra"));
    verdict = verify(copy.root(), true);
    EXPECT_EQ(verdict.status, PLEC_OK);
    EXPECT_TRUE(verdict.has("defect HashedFileMissing: extra")) << verdict.text;
}

TEST(ContainerVerify, NothingCheckedIsNoSuccess) {
    Verdict verdict = verify(data_path("run/run02_gpt_oss_bias"), true);
    EXPECT_TRUE(verdict.has("NothingChecked: no hash of any file is recorded")) << verdict.text;
    EXPECT_EQ(run_tool({"verify", "--hash", data_path("run/run02_gpt_oss_bias")}).exit_status, 1);
    ToolResult empty = run_tool({"verify", data_path("lyrw/13_no_banks_no_segments.lyrw")});
    EXPECT_EQ(empty.exit_status, 1);
    EXPECT_NE(empty.out.find("NothingChecked"), std::string::npos) << empty.out;
}

TEST(ContainerVerify, ScanFindsWhatIsNotFinite) {
    Copy copy("containers/c01_gated_decomposed_f32");
    std::vector<uint8_t> bytes = read_file(copy.path("routed/layer_000.lyrw"));
    copy.poke("routed/layer_000.lyrw", bytes.size() - 4, {0, 0, 0xC0, 0x7F});
    EXPECT_EQ(verify(copy.root(), false, false).n_defects, 0u);
    Verdict verdict = verify(copy.root(), false, true);
    EXPECT_TRUE(verdict.has("defect NonFiniteValue")) << verdict.text;
}

TEST(ContainerVerify, LoneFiles) {
    EXPECT_EQ(run_tool({"verify", data_path("lyrw/odd/base.lyrw")}).exit_status, 0);
    EXPECT_EQ(run_tool({"verify", data_path("lyrw/odd/trailing_garbage.lyrw")}).exit_status, 1);
    EXPECT_EQ(run_tool({"verify", data_path("lyrw/bad/magic.lyrw")}).exit_status, 3);
    EXPECT_EQ(run_tool({"verify", "/no/such"}).exit_status, 3);
}

TEST(ContainerVerify, JsonKeysStandInOrder) {
    std::string text =
        run_tool({"verify", "--json", data_path("containers/c01_gated_decomposed_f32")}).out;
    EXPECT_EQ(text.compare(0, 19, "{\"kind\": \"verify\", "), 0) << text;
    size_t at = 0;
    for (const char *key :
         {"\"kind\"", "\"files\": 1", "\"layers\": 1", "\"records\"", "\"regions\": 12",
          "\"scanned\": 0", "\"hashed\": 0", "\"bytes_read\": 0", "\"defects\": 0", "\"notes\": 0",
          "\"findings\": []}"}) {
        size_t found = text.find(key, at);
        ASSERT_NE(found, std::string::npos) << key << " in " << text;
        at = found;
    }
}
