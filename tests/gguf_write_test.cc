#include "lyrw/gguf_split.h"
#include "lyrw/gguf_write.h"
#include "tests/support/data.h"
#include "tests/support/gguf_models.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

using plec_test::TempDir;

namespace {

struct WriterFree {
    void operator()(plec_gguf_writer *writer) const { plec_gguf_writer_free(writer); }
};
using Writer = std::unique_ptr<plec_gguf_writer, WriterFree>;

const float kNumbers[6] = {0.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f};

Writer sketch_writer(uint32_t alignment) {
    Writer writer(plec_gguf_writer_new(alignment));
    plec_gguf_put_string(writer.get(), "general.architecture", "counts");
    plec_gguf_put_string(writer.get(), "general.name", "one page about counting");
    plec_gguf_put_u32(writer.get(), "general.alignment", alignment);
    plec_gguf_put_u32(writer.get(), "counts.block_count", 1);
    const char *const tokens[] = {"wheat", "sheep", "stone"};
    plec_gguf_put_strings(writer.get(), "counts.tokens", tokens, 3);
    const uint64_t ne[] = {3, 2};
    plec_gguf_put_tensor(writer.get(), plec_view_of("blk.0.counts.weight"), PLEC_GGUF_TYPE_F32, 2,
                         ne, 0);
    return writer;
}

} // namespace

TEST(GgufWrite, SketchIsTheBytesThatTheFormatAsksFor) {
    TempDir dir;
    std::string path = dir.path("sketch.gguf");
    Writer writer = sketch_writer(64);
    plec_error err = {};
    ASSERT_EQ(plec_gguf_writer_begin(writer.get(), path.c_str(), &err), PLEC_OK) << err.message;
    ASSERT_EQ(plec_gguf_writer_data(writer.get(), kNumbers, 10, &err), PLEC_OK);
    EXPECT_FALSE(std::filesystem::exists(path)) << "the name appears only when all is there";
    ASSERT_EQ(plec_gguf_writer_data(writer.get(), reinterpret_cast<const char *>(kNumbers) + 10, 14,
                                    &err),
              PLEC_OK);
    ASSERT_EQ(plec_gguf_writer_finish(writer.get(), false, &err), PLEC_OK) << err.message;
    EXPECT_EQ(plec_test::read_file(path), plec_test::sketch_bytes());
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()),
                            std::filesystem::directory_iterator()),
              1);
}

TEST(GgufWrite, SpansNameEveryByte) {
    Writer writer = sketch_writer(64);
    const plec_gguf_span *spans = nullptr;
    size_t n_spans = 0;
    ASSERT_EQ(plec_gguf_writer_spans(&spans, &n_spans, writer.get(), nullptr), PLEC_OK);
    const uint64_t wanted[][2] = {{0, 4},    {4, 4},    {8, 8},    {16, 8},   {24, 46},  {70, 55},
                                  {125, 33}, {158, 34}, {192, 76}, {268, 59}, {327, 57}, {384, 24}};
    ASSERT_EQ(n_spans, std::size(wanted));
    for (size_t i = 0; i < n_spans; i++) {
        EXPECT_EQ(spans[i].at, wanted[i][0]);
        EXPECT_EQ(spans[i].n_bytes, wanted[i][1]);
    }
    EXPECT_EQ(spans[10].kind, PLEC_GGUF_SPAN_PADDING);
}

TEST(GgufWrite, AlignmentMovesOnlyPaddingAndData) {
    Writer writer = sketch_writer(4096);
    const plec_gguf_span *spans = nullptr;
    size_t n_spans = 0;
    ASSERT_EQ(plec_gguf_writer_spans(&spans, &n_spans, writer.get(), nullptr), PLEC_OK);
    EXPECT_EQ(spans[n_spans - 2].at, 327u);
    EXPECT_EQ(spans[n_spans - 2].n_bytes, 3769u);
    EXPECT_EQ(spans[n_spans - 1].at + spans[n_spans - 1].n_bytes, 4120u);
}

TEST(GgufWrite, RewritingAFixtureGivesItsBytesBack) {
    std::vector<uint8_t> bytes =
        plec_test::read_file(plec_test::data_path("gguf/07_gpt_oss/model.gguf"));
    plec_gguf file;
    ASSERT_EQ(plec_gguf_parse(&file, bytes.data(), bytes.size(), nullptr), PLEC_OK);
    Writer writer(plec_gguf_writer_new(static_cast<uint32_t>(file.alignment)));
    for (uint32_t i = 0; i < file.n_keys; i++) {
        const plec_gguf_key *key = &file.keys[i];
        uint64_t value = key->at + 8 + key->name.size + 4;
        plec_gguf_put_raw(writer.get(), key->name, key->type, bytes.data() + value,
                          key->value_at + key->n_bytes - value);
    }
    for (uint32_t i = 0; i < file.n_tensors; i++)
        plec_gguf_put_tensor(writer.get(), file.tensors[i].name, file.tensors[i].type,
                             file.tensors[i].n_dims, file.tensors[i].ne, 0);
    TempDir dir;
    plec_error err = {};
    ASSERT_EQ(plec_gguf_writer_begin(writer.get(), dir.path("copy.gguf").c_str(), &err), PLEC_OK);
    for (uint32_t i = 0; i < file.n_tensors; i++)
        ASSERT_EQ(plec_gguf_writer_data(writer.get(), bytes.data() + file.tensors[i].data_at,
                                        file.tensors[i].n_bytes, &err),
                  PLEC_OK)
            << err.message;
    ASSERT_EQ(plec_gguf_writer_finish(writer.get(), false, &err), PLEC_OK) << err.message;
    std::vector<uint8_t> copy = plec_test::read_file(dir.path("copy.gguf"));
    /* The fixture pads behind its last tensor, which no reader asks for. */
    ASSERT_LE(copy.size(), bytes.size());
    ASSERT_LT(bytes.size() - copy.size(), 32u);
    EXPECT_TRUE(std::equal(copy.begin(), copy.end(), bytes.begin()));
    plec_gguf_close(&file);
}

TEST(GgufWrite, EveryKindOfValueComesBack) {
    Writer writer(plec_gguf_writer_new(32));
    plec_gguf_put_u32(writer.get(), "u32", 7);
    plec_gguf_put_u64(writer.get(), "u64", UINT64_MAX);
    plec_gguf_put_f32(writer.get(), "f32", 0.25f);
    plec_gguf_put_bool(writer.get(), "bool", true);
    plec_gguf_put_string(writer.get(), "string", "text");
    const uint16_t shorts[] = {1, 2, 3};
    plec_gguf_put_array(writer.get(), "array", PLEC_GGUF_U16, shorts, 3);
    const uint8_t *bytes = nullptr;
    uint64_t n_bytes = 0;
    plec_error err = {};
    ASSERT_EQ(plec_gguf_writer_header(&bytes, &n_bytes, writer.get(), &err), PLEC_OK);
    plec_gguf file;
    ASSERT_EQ(plec_gguf_parse(&file, bytes, n_bytes, &err), PLEC_OK) << err.message;
    uint64_t u = 0;
    double f = 0;
    bool b = false;
    plec_view view;
    EXPECT_EQ(plec_gguf_u64(&u, &file, plec_gguf_find_key_named(&file, "u64"), 0, &err), PLEC_OK);
    EXPECT_EQ(u, UINT64_MAX);
    EXPECT_EQ(plec_gguf_f64(&f, &file, plec_gguf_find_key_named(&file, "f32"), 0, &err), PLEC_OK);
    EXPECT_EQ(f, 0.25);
    EXPECT_EQ(plec_gguf_bool(&b, &file, plec_gguf_find_key_named(&file, "bool"), 0, &err), PLEC_OK);
    EXPECT_TRUE(b);
    EXPECT_EQ(plec_gguf_u64(&u, &file, plec_gguf_find_key_named(&file, "array"), 2, &err), PLEC_OK);
    EXPECT_EQ(u, 3u);
    EXPECT_EQ(plec_gguf_string(&view, &file, plec_gguf_find_key_named(&file, "string"), 0, &err),
              PLEC_OK);
    EXPECT_TRUE(plec_view_is(view, "text"));
    plec_gguf_close(&file);
}

TEST(GgufWrite, DataThatDoesNotFitIsRefusedAndLeavesNoFile) {
    TempDir dir;
    plec_error err = {};
    {
        Writer writer = sketch_writer(64);
        ASSERT_EQ(plec_gguf_writer_begin(writer.get(), dir.path("x.gguf").c_str(), &err), PLEC_OK);
        EXPECT_EQ(plec_gguf_writer_data(writer.get(), plec_test::sketch_bytes().data(), 25, &err),
                  PLEC_BAD_INPUT);
        EXPECT_STREQ(err.name, "TooMuchData");
        EXPECT_NE(plec_gguf_writer_finish(writer.get(), false, &err), PLEC_OK) << "faults stick";
    }
    {
        Writer writer = sketch_writer(64);
        ASSERT_EQ(plec_gguf_writer_begin(writer.get(), dir.path("x.gguf").c_str(), &err), PLEC_OK);
        ASSERT_EQ(plec_gguf_writer_data(writer.get(), kNumbers, 20, &err), PLEC_OK);
        EXPECT_EQ(plec_gguf_writer_finish(writer.get(), false, &err), PLEC_BAD_INPUT);
        EXPECT_STREQ(err.name, "TooLittleData");
    }
    EXPECT_TRUE(std::filesystem::is_empty(dir.path()));
}

TEST(GgufWrite, HeaderOnlyCopiesShowTheirTensors) {
    TempDir dir;
    Writer writer = sketch_writer(64);
    plec_error err = {};
    ASSERT_EQ(plec_gguf_writer_begin(writer.get(), dir.path("h.gguf").c_str(), &err), PLEC_OK);
    ASSERT_EQ(plec_gguf_writer_finish(writer.get(), true, &err), PLEC_OK);
    plec_gguf_set set;
    ASSERT_EQ(plec_gguf_set_open(&set, dir.path("h.gguf").c_str(), PLEC_GGUF_LOOK, &err), PLEC_OK);
    EXPECT_EQ(set.n_tensors, 1u);
    EXPECT_EQ(set.findings.n_defects, 1u);
    plec_gguf_set_close(&set);
}

TEST(GgufWrite, BadRequestsAreRefused) {
    plec_error err = {};
    const uint8_t *bytes = nullptr;
    uint64_t n_bytes = 0;
    for (uint32_t alignment : {0u, 3u, 1u << 21}) {
        Writer writer(plec_gguf_writer_new(alignment));
        EXPECT_EQ(plec_gguf_writer_header(&bytes, &n_bytes, writer.get(), &err), PLEC_BAD_INPUT);
    }
    Writer writer(plec_gguf_writer_new(32));
    const uint64_t ne[] = {100, 2};
    plec_gguf_put_tensor(writer.get(), plec_view_of("t"), PLEC_GGUF_TYPE_Q4_K, 2, ne, 0);
    EXPECT_EQ(plec_gguf_writer_header(&bytes, &n_bytes, writer.get(), &err), PLEC_BAD_INPUT);
    EXPECT_STREQ(err.name, "BadTensor");
    Writer nowhere = sketch_writer(64);
    TempDir dir;
    plec_test::write_file(dir.path("file"), "x", 1);
    EXPECT_EQ(plec_gguf_writer_begin(nowhere.get(), dir.path("file/x.gguf").c_str(), &err),
              PLEC_IO);
}

TEST(GgufModel, HeaderOfSevenBillionWeightsAddsUp) {
    TempDir dir;
    if (!plec_test::write_seven_b(dir.path("m.gguf"))) GTEST_SKIP() << "no sparse file here";
    plec_gguf_set set;
    plec_error err = {};
    ASSERT_EQ(plec_gguf_set_open(&set, dir.path("m.gguf").c_str(), PLEC_GGUF_RUN, &err), PLEC_OK)
        << err.message;
    const plec_gguf *file = plec_gguf_set_main(&set);
    EXPECT_EQ(file->infos_at - 24, 5934607u);
    EXPECT_EQ(file->infos_end, 5953935u);
    EXPECT_EQ(file->data_at, 5953952u);
    EXPECT_EQ(file->n_tensors, 339u);
    uint64_t weights = 0, n_bytes = 0, wider = 0;
    for (uint32_t i = 0; i < set.n_tensors; i++) {
        weights += set.tensors[i]->n_elements;
        n_bytes += set.tensors[i]->n_bytes;
        wider += set.tensors[i]->type == 14;
    }
    EXPECT_EQ(weights, 7615616512u);
    EXPECT_EQ(n_bytes, 4677120000u);
    EXPECT_EQ(wider, 29u);
    EXPECT_EQ(file->size, 4683073952u);
    EXPECT_EQ(set.findings.n_items, 0u);
    plec_gguf_set_close(&set);
}
