#include "lyrw/gguf_split.h"
#include "tests/support/data.h"
#include "tests/support/gguf_bytes.h"

#include <gtest/gtest.h>

#include <unistd.h>

using plec_test::shard_bytes;
using plec_test::TempDir;

namespace {

void write_bytes(const std::string &path, const std::vector<uint8_t> &bytes) {
    plec_test::write_file(path, bytes.data(), bytes.size());
}

std::string shard_name(unsigned number, unsigned count) {
    char name[64];
    snprintf(name, sizeof name, "m-%05u-of-%05u.gguf", number, count);
    return name;
}

/* Three shards: the first without tensors, then a, b and c. */
void write_three(const TempDir &dir, int total = 3) {
    write_bytes(dir.path(shard_name(1, 3)), shard_bytes(0, 3, total, {}));
    write_bytes(dir.path(shard_name(2, 3)), shard_bytes(1, 3, total, {"a", "b"}));
    write_bytes(dir.path(shard_name(3, 3)), shard_bytes(2, 3, total, {"c"}));
}

struct Opened {
    plec_gguf_set set = {};
    plec_error err = {};
    plec_status status;
    Opened(const std::string &path, plec_gguf_strictness strictness) {
        status = plec_gguf_set_open(&set, path.c_str(), strictness, &err);
    }
    ~Opened() { plec_gguf_set_close(&set); }
    std::string findings() const {
        std::string all;
        for (size_t i = 0; i < set.findings.n_items; i++)
            all +=
                std::string(set.findings.items[i].name) + ": " + set.findings.items[i].text + "\n";
        return all;
    }
};

bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

} // namespace

TEST(GgufSplit, S1AnyShardOpensTheWholeSet) {
    TempDir dir;
    write_three(dir);
    for (unsigned given = 1; given <= 3; given++) {
        Opened opened(dir.path(shard_name(given, 3)), PLEC_GGUF_RUN);
        ASSERT_EQ(opened.status, PLEC_OK) << opened.err.message;
        EXPECT_EQ(opened.set.n_shards, 3u);
        EXPECT_EQ(opened.set.n_tensors, 3u);
        EXPECT_EQ(opened.findings(), "");
        const plec_gguf_tensor *c = plec_gguf_set_find(&opened.set, plec_view_of("c"));
        ASSERT_NE(c, nullptr);
        EXPECT_EQ(c->shard, 2u);
        EXPECT_EQ(plec_gguf_set_file(&opened.set, c), &opened.set.shards[2].file);
        EXPECT_EQ(plec_gguf_set_main(&opened.set), &opened.set.shards[0].file);
    }
}

TEST(GgufSplit, RealSetOpensFromEveryShard) {
    for (unsigned given = 1; given <= 3; given++) {
        char name[80];
        snprintf(name, sizeof name, "gguf/17_split/model-%05u-of-00003.gguf", given);
        Opened opened(plec_test::data_path(name), PLEC_GGUF_RUN);
        ASSERT_EQ(opened.status, PLEC_OK) << opened.err.message;
        EXPECT_EQ(opened.set.n_shards, 3u);
        EXPECT_GT(opened.set.n_tensors, 4u);
        EXPECT_EQ(opened.findings(), "");
        EXPECT_GT(plec_gguf_architecture(plec_gguf_set_main(&opened.set)).size, 0u);
    }
}

TEST(GgufSplit, S2AllMissingNamesAreToldAtOnce) {
    TempDir dir;
    write_bytes(dir.path(shard_name(3, 5)), shard_bytes(2, 5, 1, {"a"}));
    write_bytes(dir.path(shard_name(5, 5)), shard_bytes(4, 5, 1, {}));
    Opened run(dir.path(shard_name(3, 5)), PLEC_GGUF_RUN);
    EXPECT_EQ(run.status, PLEC_MALFORMED);
    EXPECT_STREQ(run.err.name, "SplitMissing");
    for (unsigned missing : {1u, 2u, 4u})
        EXPECT_TRUE(has(run.err.message, shard_name(missing, 5))) << run.err.message;
    EXPECT_TRUE(has(run.err.message, "3 of 5")) << run.err.message;
    Opened look(dir.path(shard_name(3, 5)), PLEC_GGUF_LOOK);
    ASSERT_EQ(look.status, PLEC_OK);
    EXPECT_EQ(look.set.n_tensors, 1u);
    EXPECT_TRUE(has(look.findings(), shard_name(4, 5)));
    EXPECT_EQ(plec_gguf_set_main(&look.set), &look.set.shards[2].file);
}

TEST(GgufSplit, ManyMissingNamesAreToldAsRanges) {
    TempDir dir;
    write_bytes(dir.path(shard_name(500, 1000)), shard_bytes(499, 1000, 1, {"a"}));
    Opened run(dir.path(shard_name(500, 1000)), PLEC_GGUF_RUN);
    EXPECT_EQ(run.status, PLEC_MALFORMED);
    EXPECT_TRUE(has(run.err.message, "999 of 1000")) << run.err.message;
    EXPECT_TRUE(has(run.err.message, "00001-00499, 00501-01000")) << run.err.message;
}

TEST(GgufSplit, S4SumOfTensorsCatchesALostOne) {
    TempDir dir;
    write_three(dir, 4);
    Opened run(dir.path(shard_name(1, 3)), PLEC_GGUF_RUN);
    EXPECT_EQ(run.status, PLEC_MALFORMED);
    EXPECT_STREQ(run.err.name, "SplitTensorCount");
}

TEST(GgufSplit, S4NumberFromZeroAgainstNameFromOne) {
    TempDir dir;
    write_three(dir);
    write_bytes(dir.path(shard_name(2, 3)), shard_bytes(2, 3, 3, {"a", "b"}));
    Opened sibling(dir.path(shard_name(1, 3)), PLEC_GGUF_RUN);
    EXPECT_EQ(sibling.status, PLEC_MALFORMED);
    EXPECT_STREQ(sibling.err.name, "SplitNumberMismatch");
    Opened given(dir.path(shard_name(2, 3)), PLEC_GGUF_RUN);
    EXPECT_EQ(given.status, PLEC_MALFORMED);
    EXPECT_STREQ(given.err.name, "SplitNameMismatch");
}

TEST(GgufSplit, S6FirstShardWithoutTensorsShowsTheSet) {
    TempDir dir;
    write_three(dir);
    Opened look(dir.path(shard_name(1, 3)), PLEC_GGUF_LOOK);
    ASSERT_EQ(look.status, PLEC_OK);
    EXPECT_EQ(look.set.shards[0].file.n_tensors, 0u);
    EXPECT_EQ(look.set.n_tensors, 3u);
}

TEST(GgufSplit, S8TensorsNobodyUsesAreFine) {
    TempDir dir;
    write_bytes(dir.path(shard_name(1, 2)), shard_bytes(0, 2, 3, {"v.blk.0.weight", "mm.0.bias"}));
    write_bytes(dir.path(shard_name(2, 2)), shard_bytes(1, 2, 3, {"blk.0.x"}));
    Opened run(dir.path(shard_name(1, 2)), PLEC_GGUF_RUN);
    EXPECT_EQ(run.status, PLEC_OK) << run.err.message;
}

TEST(GgufSplit, CountMustBeTheSameInEveryShard) {
    TempDir dir;
    write_three(dir);
    write_bytes(dir.path(shard_name(3, 3)), shard_bytes(2, 4, 3, {"c"}));
    Opened run(dir.path(shard_name(1, 3)), PLEC_GGUF_RUN);
    EXPECT_STREQ(run.err.name, "SplitCountMismatch");
    Opened given(dir.path(shard_name(3, 3)), PLEC_GGUF_RUN);
    EXPECT_STREQ(given.err.name, "SplitNameMismatch") << "the name says 3, the file 4";
}

TEST(GgufSplit, NoTensorTwiceAcrossShards) {
    TempDir dir;
    write_three(dir);
    write_bytes(dir.path(shard_name(3, 3)), shard_bytes(2, 3, 3, {"a"}));
    Opened run(dir.path(shard_name(1, 3)), PLEC_GGUF_RUN);
    EXPECT_STREQ(run.err.name, "SplitDuplicateTensor");
    EXPECT_TRUE(has(run.err.message, shard_name(2, 3)) && has(run.err.message, shard_name(3, 3)))
        << run.err.message;
}

TEST(GgufSplit, OneOfOneAndCountsOfZeroAndOneAreSingleFiles) {
    TempDir dir;
    write_bytes(dir.path(shard_name(1, 1)), shard_bytes(0, 1, 1, {"a"}));
    write_bytes(dir.path("merged.gguf"), shard_bytes(0, 0, 1, {"a"}));
    plec_test::GgufBytes plain(1, 0);
    write_bytes(dir.path("plain-00001-of-00001.gguf"),
                plain.tensor("a", {32}, 0, 0).pad().zeros(128).bytes);
    for (const std::string &name :
         {shard_name(1, 1), std::string("merged.gguf"), std::string("plain-00001-of-00001.gguf")}) {
        Opened run(dir.path(name), PLEC_GGUF_RUN);
        ASSERT_EQ(run.status, PLEC_OK) << run.err.message;
        EXPECT_FALSE(run.set.split);
        EXPECT_EQ(run.set.n_tensors, 1u);
    }
}

TEST(GgufSplit, RenamedShardIsToldPlainly) {
    TempDir dir;
    write_bytes(dir.path("renamed.gguf"), shard_bytes(1, 3, 3, {"a", "b"}));
    Opened run(dir.path("renamed.gguf"), PLEC_GGUF_RUN);
    EXPECT_STREQ(run.err.name, "SplitRenamed");
    EXPECT_TRUE(has(run.err.message, "part 2 of 3")) << run.err.message;
    EXPECT_TRUE(has(run.err.message, "-00002-of-00003.gguf")) << run.err.message;
    Opened look(dir.path("renamed.gguf"), PLEC_GGUF_LOOK);
    ASSERT_EQ(look.status, PLEC_OK);
    EXPECT_EQ(look.set.n_tensors, 2u);
}

TEST(GgufSplit, APieceCutFromAFileSaysToJoinThem) {
    TempDir dir;
    std::vector<uint8_t> whole =
        plec_test::read_file(plec_test::data_path("gguf/13_fused/model.gguf"));
    std::vector<uint8_t> first(whole.begin(), whole.begin() + 4000);
    std::vector<uint8_t> second(whole.begin() + 4000, whole.end());
    write_bytes(dir.path("model.gguf.part1of2"), first);
    write_bytes(dir.path("model.gguf-split-b"), second);
    for (const char *name : {"model.gguf.part1of2", "model.gguf-split-b"}) {
        Opened run(dir.path(name), PLEC_GGUF_RUN);
        EXPECT_EQ(run.status, PLEC_MALFORMED);
        EXPECT_TRUE(has(run.err.message, "join the parts")) << run.err.message;
    }
}

TEST(GgufSplit, CountsAboveTheCapAreRefused) {
    TempDir dir;
    write_bytes(dir.path(shard_name(1, 1025)), shard_bytes(0, 1025, 1, {"a"}));
    Opened look(dir.path(shard_name(1, 1025)), PLEC_GGUF_LOOK);
    EXPECT_EQ(look.status, PLEC_MALFORMED);
    EXPECT_STREQ(look.err.name, "TooManyShards");
}

TEST(GgufSplit, UnreadableShardIsNamedAndTheOthersAreShown) {
    TempDir dir;
    write_three(dir);
    write_bytes(dir.path(shard_name(2, 3)), {'P', 'K', 3, 4});
    Opened look(dir.path(shard_name(3, 3)), PLEC_GGUF_LOOK);
    ASSERT_EQ(look.status, PLEC_OK);
    EXPECT_TRUE(has(look.findings(), "SplitShardUnreadable")) << look.findings();
    EXPECT_FALSE(has(look.findings(), "SplitMissing")) << look.findings();
    EXPECT_EQ(look.set.n_tensors, 1u);
    Opened run(dir.path(shard_name(3, 3)), PLEC_GGUF_RUN);
    EXPECT_EQ(run.status, PLEC_MALFORMED);
}

TEST(GgufSplit, NamesAreReadExactly) {
    plec_gguf_shard_name name;
    EXPECT_TRUE(plec_gguf_shard_name_parse(&name, "/d/x-00002-of-00013.gguf"));
    EXPECT_EQ(name.number, 2u);
    EXPECT_EQ(name.count, 13u);
    EXPECT_EQ(name.prefix_size, 4u);
    for (const char *bad :
         {"x-0002-of-0013.gguf", "x-00002-of-00013.GGUF", "x_00002-of-00013.gguf", "-of-00013.gguf",
          "", "x-00002-of-00013.gguf.tmp", "x-0000a-of-00013.gguf"})
        EXPECT_FALSE(plec_gguf_shard_name_parse(&name, bad)) << bad;
}

TEST(GgufSplit, MissingFileIsMissing) {
    Opened run("/nonexistent/model.gguf", PLEC_GGUF_RUN);
    EXPECT_EQ(run.status, PLEC_MISSING);
}
