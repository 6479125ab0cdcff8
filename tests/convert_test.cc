/* Conversions: every source and layout comes back value for value; what is interrupted goes on;
 * what cannot be said is refused. */
#include "host/convert.h"
#include "host/runner.h"
#include "tests/support/bank_files.h"
#include "tests/support/converted.h"
#include "tests/support/gguf_moe.h"
#include "tests/support/json.h"
#include "tests/support/layer_run.h"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace plec_test;
namespace fs = std::filesystem;

namespace {

const char *const RUN_CASES[] = {"run/run01_sigmoid_two_segments", "run/run02_gpt_oss_bias",
                                 "run/run03_latent"};

uint32_t layer_of(const std::string &folder) {
    Json document = load_json(data_path(folder + "/case.json"));
    return static_cast<uint32_t>(json_integer_value(json_object_get(document.get(), "layer")));
}

std::vector<std::string> gguf_cases() {
    std::vector<std::string> names;
    for (const std::string &name : list_folder(data_path("gguf"), ""))
        if (fs::exists(data_path("gguf/" + name + "/case.json"))) names.push_back(name);
    return names;
}

std::string gguf_path(const std::string &name) {
    std::string single = data_path("gguf/" + name + "/model.gguf");
    return fs::exists(single) ? single : data_path("gguf/" + name + "/model-00001-of-00003.gguf");
}

/* The output of one layer on a device, its routing included. */
struct Ran {
    std::vector<float> y;
    std::vector<int32_t> ids;
    std::vector<float> weights;
};

Ran run_on(plec_run_device device, const std::string &path, uint32_t layer,
           const std::vector<float> &x) {
    Ran out;
    OpenLayer open(path, layer);
    EXPECT_EQ(open.status, PLEC_OK) << open.error.message;
    plec_runner_options options = {};
    options.device = device;
    options.layers = &layer;
    options.n_layers = 1;
    plec_runner *runner = nullptr;
    plec_error error = {};
    EXPECT_EQ(plec_runner_open(&runner, open.container, &options, &error), PLEC_OK)
        << error.message;
    if (runner == nullptr) return out;
    size_t n_tokens = x.size() / open.bound.layer.hidden_size;
    out.y.assign(x.size(), NAN);
    out.ids.assign(n_tokens * open.bound.layer.router.top_k, -1);
    out.weights.assign(out.ids.size(), NAN);
    plec_forward_args args = {};
    args.layer = layer;
    args.n_tokens = static_cast<uint32_t>(n_tokens);
    args.hidden = x.data();
    args.out = out.y.data();
    args.ids_out = out.ids.data();
    args.weights_out = out.weights.data();
    EXPECT_EQ(plec_runner_forward(runner, &args, &error), PLEC_OK) << error.message;
    plec_runner_close(runner);
    return out;
}

bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
}

plec_convert_options layout(uint32_t extent, plec_order order, uint64_t cap) {
    plec_convert_options options = {};
    options.extent = extent;
    options.order = order;
    options.segment_cap = cap;
    return options;
}

/* The published cases, GGUF. */
class ConvertedGguf : public testing::TestWithParam<std::string> {
  protected:
    std::string file(const std::string &name) const {
        return data_path("gguf/" + GetParam() + "/" + name);
    }
    uint32_t layer() const { return layer_of("gguf/" + GetParam()); }
};

} // namespace

/* ---- GGUF ---- */

/* One conversion a case: the layer, what it gives, and that to the bit of its source. */
TEST_P(ConvertedGguf, IsTheSameLayerAndRunsAsItsSource) {
    const std::string source = gguf_path(GetParam());
    Converted result(source);
    ASSERT_EQ(result.status, PLEC_OK) << result.error.message;
    expect_sound(result.path());
    {
        OpenLayer got(result.path(), layer()), wanted(source, layer());
        ASSERT_EQ(got.status, PLEC_OK) << got.error.message;
        expect_same_layer(got.bound, wanted.bound);
    }
    const std::vector<float> x = read_npy(file("x.npy")).f32();
    const Npy y = read_npy(file("y.npy")), weights = read_npy(file("weights.npy"));
    const Ran reference = run_on(PLEC_RUN_REFERENCE, result.path(), layer(), x);
    EXPECT_LT(nmse(reference.y, y.values), 1e-9);
    EXPECT_EQ(reference.ids, read_npy(file("ids.npy")).i32());
    ASSERT_EQ(reference.weights.size(), weights.values.size());
    for (size_t i = 0; i < reference.weights.size(); i++)
        EXPECT_NEAR(reference.weights[i], weights.values[i], 1e-6) << i;
    EXPECT_TRUE(same_bits(reference.y, run_on(PLEC_RUN_REFERENCE, source, layer(), x).y));

    const std::vector<float> got = run_on(PLEC_RUN_CPU, result.path(), layer(), x).y;
    const std::vector<float> wanted = run_on(PLEC_RUN_CPU, source, layer(), x).y;
    EXPECT_LT(nmse(got, y.values), 1e-8);
    if (result.report.n_repacked == 0) {
        EXPECT_TRUE(same_bits(got, wanted));
    } else {
        EXPECT_LT(nmse(got, std::vector<double>(wanted.begin(), wanted.end())), 1e-12);
    }
}

INSTANTIATE_TEST_SUITE_P(All, ConvertedGguf, testing::ValuesIn(gguf_cases()),
                         [](const testing::TestParamInfo<std::string> &given) {
                             return given.param;
                         });

TEST(Convert, EveryPublishedGgufCaseIsThere) {
    EXPECT_GE(gguf_cases().size(), 12u);
}

TEST(Convert, GgufMxfp4BecomesPairedRegionsAndOtherFormatsKeepTheirBytes) {
    Converted result(gguf_path("07_gpt_oss"));
    ASSERT_EQ(result.status, PLEC_OK) << result.error.message;
    EXPECT_EQ(result.report.n_repacked, 96u);
    OpenLayer got(result.path(), layer_of("gguf/07_gpt_oss"));
    OpenLayer wanted(gguf_path("07_gpt_oss"), layer_of("gguf/07_gpt_oss"));
    ASSERT_EQ(got.status, PLEC_OK) << got.error.message;
    for (int id = 0; id < PLEC_N_MATRICES; id++) {
        EXPECT_EQ(wanted.bound.layer.routed.operands[id].format, PLEC_FORMAT_GGUF_MXFP4);
        EXPECT_EQ(got.bound.layer.routed.operands[id].format, PLEC_FORMAT_MXFP4);
        EXPECT_NE(got.bound.layer.routed.entries[0].scales[id], nullptr);
    }
    const std::string other = "13_fused";
    Converted untouched(gguf_path(other));
    OpenLayer a(untouched.path(), layer_of("gguf/" + other));
    OpenLayer b(gguf_path(other), layer_of("gguf/" + other));
    for (int id = 0; id < PLEC_N_MATRICES; id++)
        EXPECT_EQ(a.bound.layer.routed.operands[id].format,
                  b.bound.layer.routed.operands[id].format);
}

namespace {

/* A GGUF of one llama layer whose experts are in one format. */
class FourBit {
  public:
    explicit FourBit(uint16_t format) : moe(128, 64, 5, 2), file(moe.file("llama")) {
        for (const char *part : {"gate", "up", "down"})
            file.requantise(name(part), format);
    }
    static std::string name(const std::string &part) {
        return "blk.0.ffn_" + part + "_exps.weight";
    }
    /* Puts a scale byte into a block of an expert. */
    void poke(const std::string &part, uint32_t expert, size_t at, uint8_t byte) {
        GgufTensor &tensor = file.find(name(part));
        tensor.bytes[tensor.bytes.size() / 5 * expert + at] = byte;
    }
    /* The formats of gate, up and down after conversion, the layer being the same. */
    std::vector<uint16_t> converted(const plec_convert_options &options = {}) {
        TempDir dir;
        file.write(dir.path("m.gguf"));
        Converted result(dir.path("m.gguf"), options);
        EXPECT_EQ(result.status, PLEC_OK) << result.error.message;
        expect_sound(result.path());
        OpenLayer got(result.path(), 0), wanted(dir.path("m.gguf"), 0);
        EXPECT_EQ(got.status, PLEC_OK) << got.error.message;
        expect_same_layer(got.bound, wanted.bound);
        report = result.report;
        std::vector<uint16_t> formats;
        for (int id = 0; id < PLEC_N_MATRICES; id++)
            formats.push_back(got.bound.layer.routed.operands[id].format);
        return formats;
    }

    Moe moe;
    GgufFile file;
    plec_convert_report report = {};
};

} // namespace

TEST(Convert, AnMxfp4ScaleThatWouldBeReadOtherwiseKeepsItsTensorAsItIs) {
    const uint16_t paired = PLEC_FORMAT_MXFP4, kept = PLEC_FORMAT_GGUF_MXFP4;
    FourBit model(kept);
    EXPECT_EQ(model.converted(), (std::vector<uint16_t>{paired, paired, paired}));
    EXPECT_EQ(model.report.n_repacked, 15u);
    model.poke("up", 4, 17 * 3, 255); /* the last expert decides for all */
    EXPECT_EQ(model.converted(), (std::vector<uint16_t>{paired, kept, paired}));
    EXPECT_EQ(model.report.n_repacked, 10u);
    EXPECT_EQ(model.report.n_left, 5u);
    model.poke("gate", 0, 0, 0);
    model.poke("gate", 0, 1, 0x30);
    EXPECT_EQ(model.converted(layout(2, PLEC_ORDER_ROLE, 60000)),
              (std::vector<uint16_t>{kept, kept, paired}));
}

TEST(Convert, AnMxfp4ScaleOfZeroOverZerosIsRepacked) {
    FourBit model(PLEC_FORMAT_GGUF_MXFP4);
    for (size_t i = 0; i < 17; i++)
        model.poke("down", 2, 17 + i, 0);
    EXPECT_EQ(model.converted()[PLEC_DOWN], PLEC_FORMAT_MXFP4);
}

TEST(Convert, Nvfp4IsRepackedUnlessAScaleWouldBeReadOtherwise) {
    FourBit model(PLEC_FORMAT_GGUF_MXFP4);
    std::mt19937 random(5);
    for (const char *part : {"gate", "up", "down"}) {
        GgufTensor &tensor = model.file.find(FourBit::name(part));
        tensor.type = 40;
        tensor.bytes.resize(tensor.ne[0] * tensor.ne[1] * tensor.ne[2] / 64 * 36);
        for (size_t i = 0; i < tensor.bytes.size(); i++)
            tensor.bytes[i] = static_cast<uint8_t>(i % 36 < 4 ? 0x20 + random() % 16 : random());
    }
    const uint16_t moved = PLEC_FORMAT_NVFP4, kept = PLEC_FORMAT_GGUF_NVFP4;
    model.file.tensor("blk.0.ffn_up_exps.scale", {5}, {1, 2, 0.5f, 3, 4});
    EXPECT_EQ(model.converted(), (std::vector<uint16_t>{moved, moved, moved}));
    model.poke("down", 3, 36 * 2 + 1, 0x7F);
    EXPECT_EQ(model.converted(), (std::vector<uint16_t>{moved, moved, kept}));
}

TEST(Convert, DenseAndRoutedLayersOfOneModelStandTogether) {
    Converted result(gguf_path("05_deepseek_v3"));
    ASSERT_EQ(result.status, PLEC_OK) << result.error.message;
    EXPECT_EQ(result.report.n_layers, 2u);
    for (const char *name :
         {"dense/layer_000.lyrw", "control/layer_000.lyrw", "routed/layer_001.lyrw",
          "shared/layer_001.lyrw", "control/layer_001.lyrw", "moe_manifest.json", "index.json"})
        EXPECT_TRUE(fs::exists(result.path(name))) << name;
    EXPECT_EQ(files_under(result.path()).size(), 7u);
    for (uint32_t layer : {0u, 1u}) {
        OpenLayer got(result.path(), layer), wanted(gguf_path("05_deepseek_v3"), layer);
        ASSERT_EQ(got.status, PLEC_OK) << got.error.message;
        expect_same_layer(got.bound, wanted.bound);
    }
}

TEST(Convert, OnlyTheLayersAskedForCome) {
    plec_convert_options options = {};
    options.some_layers = true;
    options.first_layer = options.last_layer = 1;
    Converted result(gguf_path("05_deepseek_v3"), options);
    ASSERT_EQ(result.status, PLEC_OK) << result.error.message;
    EXPECT_EQ(result.report.n_layers, 1u);
    EXPECT_FALSE(fs::exists(result.path("dense")));
    Json index = load_json(result.path("index.json"));
    EXPECT_GE(json_integer_value(json_object_get(index.get(), "num_layers")), 2)
        << "the model's, not how many are here";
    expect_sound(result.path());

    options.first_layer = options.last_layer = 9;
    Converted none(gguf_path("05_deepseek_v3"), options);
    EXPECT_EQ(none.status, PLEC_MISSING);
    EXPECT_STREQ(none.error.name, "NoSuchLayer");
    options.last_layer = 3;
    EXPECT_STREQ(Converted(gguf_path("05_deepseek_v3"), options).error.name, "BadLayers");
}

/* ---- TEZW ---- */

TEST(Convert, TezwLayersAreDenseLayersOfF64) {
    for (const std::string &name : list_folder(data_path("tezw/tiny"), ".tezw")) {
        const std::string source = data_path("tezw/tiny/" + name + ".tezw");
        Converted result(source);
        ASSERT_EQ(result.status, PLEC_OK) << result.error.message;
        expect_sound(result.path());
        for (uint32_t layer = 0; layer < result.report.n_layers; layer++) {
            OpenLayer got(result.path(), layer), wanted(source, layer);
            ASSERT_EQ(got.status, PLEC_OK) << got.error.message;
            EXPECT_EQ(got.bound.layer.routed.operands[PLEC_GATE].format, PLEC_FORMAT_GGUF_F64);
            expect_same_layer(got.bound, wanted.bound);
        }
    }
}

/* ---- layouts ---- */

TEST(Convert, ContainersComeBackInOtherOrdersExtentsAndSegments) {
    for (const char *name : RUN_CASES) {
        SCOPED_TRACE(name);
        expect_converts(data_path(name), layer_of(name), layout(3, PLEC_ORDER_ROLE, 40000));
        expect_converts(data_path(name), layer_of(name), layout(16, PLEC_ORDER_ENTRY, 0));
    }
}

TEST(Convert, ACapGivesTheFewestEqualFilesOfWholeExtents) {
    const std::string source = gguf_path("21_e896");
    Converted whole(source, layout(32, PLEC_ORDER_ENTRY, 0));
    ASSERT_EQ(whole.status, PLEC_OK) << whole.error.message;
    const uint64_t bytes = fs::file_size(whole.path("routed/layer_000.lyrw")), cap = bytes / 3;
    Converted parts(source, layout(32, PLEC_ORDER_ROLE, cap));
    ASSERT_EQ(parts.status, PLEC_OK) << parts.error.message;
    expect_sound(parts.path());
    std::vector<std::string> files;
    for (const std::string &name : files_under(parts.path("routed")))
        files.push_back(name);
    ASSERT_GE(files.size(), 3u);
    EXPECT_LE(files.size(), 4u);
    EXPECT_EQ(files[0], "layer_000.seg00.lyrw");
    for (const std::string &name : files)
        EXPECT_LE(fs::file_size(parts.path("routed/" + name)), cap);
    OpenLayer got(parts.path(), 0), wanted(source, 0);
    ASSERT_EQ(got.status, PLEC_OK) << got.error.message;
    expect_same_layer(got.bound, wanted.bound);

    Converted refused(source, layout(32, PLEC_ORDER_ENTRY, 1000));
    EXPECT_STREQ(refused.error.name, "CapTooSmall") << refused.error.message;
    EXPECT_FALSE(fs::exists(refused.path())) << "refused before anything is written";
}

TEST(Convert, ExtentsAreAlignedWholeAndRecorded) {
    Converted result(gguf_path("21_e896"), layout(16, PLEC_ORDER_ROLE, 0));
    ASSERT_EQ(result.status, PLEC_OK) << result.error.message;
    Json index = load_json(result.path("index.json"));
    json_t *extents = json_object_get(json_object_get(index.get(), "plectrum"), "extents");
    EXPECT_EQ(json_integer_value(json_object_get(extents, "routed/layer_000")), 16);
    EXPECT_EQ(json_object_get(extents, "control/layer_000"), nullptr);
    OpenLayer open(result.path(), 0);
    ASSERT_EQ(open.status, PLEC_OK) << open.error.message;
    for (uint32_t e = 0; e < open.bound.layer.routed.n_entries; e += 16) {
        uint32_t file;
        uint64_t offset;
        ASSERT_TRUE(plec_container_locate(&file, &offset, open.container,
                                          open.bound.layer.routed.entries[e].values[PLEC_GATE]));
        EXPECT_EQ(offset % 4096, 0u) << "extent at entry " << e;
    }
}

TEST(Convert, ThreadsDoNotChangeAByte) {
    plec_convert_options one = {}, many = {};
    one.n_threads = 1;
    many.n_threads = 13;
    Converted a(gguf_path("07_gpt_oss"), one), b(gguf_path("07_gpt_oss"), many);
    ASSERT_EQ(a.status, PLEC_OK) << a.error.message;
    ASSERT_EQ(b.status, PLEC_OK) << b.error.message;
    expect_same_files(a.path(), b.path());
    one.n_threads = 65;
    EXPECT_STREQ(Converted(gguf_path("07_gpt_oss"), one).error.name, "BadThreads");
}

TEST(Convert, AConvertedContainerConvertsToItself) {
    for (const char *name : {"07_gpt_oss", "12_nemotron_h", "02_qwen2moe"}) {
        Converted first(gguf_path(name));
        ASSERT_EQ(first.status, PLEC_OK) << first.error.message;
        Converted second(first.path());
        ASSERT_EQ(second.status, PLEC_OK) << second.error.message;
        for (const std::string &file : files_under(first.path()))
            if (file.find(".lyrw") != std::string::npos) {
                EXPECT_EQ(read_file(second.path(file)), read_file(first.path(file))) << file;
            }
    }
}

TEST(Convert, TheProfileAskedForIsConverted) {
    EXPECT_STREQ(Converted(data_path("run/run02_gpt_oss_bias"),
                           [] {
                               plec_convert_options options = {};
                               options.source.profile = "nosuch";
                               return options;
                           }())
                     .error.name,
                 "UndeclaredProfile");
}

/* ---- what a manifest has no words for ---- */

TEST(Convert, ALoneFileWithoutARouterIsRefused) {
    BankDirectory dir;
    dir.add("routed/layer_000", gated_bank());
    const std::string root = dir.write();
    Converted result(root + "/routed/layer_000.lyrw");
    EXPECT_EQ(result.status, PLEC_MALFORMED);
    EXPECT_STREQ(result.error.name, "SelectsNothing") << result.error.message;
    EXPECT_FALSE(fs::exists(result.path()));
}

/* ---- the folder ---- */

TEST(Convert, AFolderWithSomethingInItIsRefused) {
    TempDir dir;
    write_file(dir.path("notes.txt"), "x", 1);
    Converted result(gguf_path("16_tiny_f32"), dir.path(), {});
    EXPECT_EQ(result.status, PLEC_BAD_INPUT);
    EXPECT_STREQ(result.error.name, "NotEmpty");
    EXPECT_TRUE(result.says("notes.txt")) << result.error.message;
    EXPECT_EQ(files_under(dir.path()), std::vector<std::string>{"notes.txt"});

    Converted file(gguf_path("16_tiny_f32"), dir.path("notes.txt"), {});
    EXPECT_STREQ(file.error.name, "NotAFolder");

    Converted made(gguf_path("16_tiny_f32"), dir.path("a/b/c"), {});
    EXPECT_EQ(made.status, PLEC_OK) << made.error.message;
    Converted again(gguf_path("16_tiny_f32"), dir.path("a/b/c"), {});
    EXPECT_STREQ(again.error.name, "NotEmpty") << "a finished container is not written over";
    expect_sound(dir.path("a/b/c"));
}

TEST(Convert, AStateThatIsNotOursIsNotEmpty) {
    TempDir dir;
    write_file(dir.path("convert.state.json"), "{\"a\": 1}", 8);
    Converted result(gguf_path("16_tiny_f32"), dir.path(), {});
    EXPECT_STREQ(result.error.name, "NotEmpty") << result.error.message;
}

/* ---- interruptions ---- */

namespace {

/* Stops after some pieces. */
struct Stop {
    int left;
    static bool tell(void *user, uint64_t, uint64_t) {
        return static_cast<Stop *>(user)->left-- > 0;
    }
};

/* A container with several files: layers and segments. */
plec_convert_options many_files() {
    return layout(32, PLEC_ORDER_ENTRY, 300000);
}

const char MANY_FILES_SOURCE[] = "21_e896";

} // namespace

TEST(Convert, AskedToStopItKeepsWholeFilesAndGoesOn) {
    Converted wanted(gguf_path(MANY_FILES_SOURCE), many_files());
    ASSERT_EQ(wanted.status, PLEC_OK) << wanted.error.message;
    const size_t n_files = wanted.report.n_files;
    ASSERT_GE(n_files, 5u);
    for (int after : {0, 3}) {
        SCOPED_TRACE(after);
        TempDir dir;
        Stop stop = {after};
        plec_convert_options options = many_files();
        options.progress = Stop::tell;
        options.user = &stop;
        Converted stopped(gguf_path(MANY_FILES_SOURCE), dir.path("out"), options);
        EXPECT_EQ(stopped.status, PLEC_CANCELLED);
        EXPECT_FALSE(fs::exists(dir.path("out/index.json")));
        EXPECT_TRUE(fs::exists(dir.path("out/convert.state.json")));
        for (const std::string &name : files_under(dir.path("out")))
            EXPECT_EQ(name.find(".part-"), std::string::npos) << name;
        Converted resumed(gguf_path(MANY_FILES_SOURCE), dir.path("out"), many_files());
        ASSERT_EQ(resumed.status, PLEC_OK) << resumed.error.message;
        EXPECT_EQ(resumed.report.n_kept, static_cast<uint64_t>(after));
        expect_same_files(dir.path("out"), wanted.path());
    }
}

TEST(Convert, OtherOptionsOrAChangedSourceStartClean) {
    TempDir dir;
    fs::copy_file(gguf_path("16_tiny_f32"), dir.path("m.gguf"));
    Stop stop = {1};
    plec_convert_options options = {};
    options.progress = Stop::tell;
    options.user = &stop;
    Converted stopped(dir.path("m.gguf"), dir.path("out"), options);
    ASSERT_EQ(stopped.status, PLEC_CANCELLED) << stopped.error.message;
    Converted other(dir.path("m.gguf"), dir.path("out"), layout(1, PLEC_ORDER_ROLE, 0));
    ASSERT_EQ(other.status, PLEC_OK) << other.error.message;
    EXPECT_EQ(other.report.n_kept, 0u);
    Converted wanted(dir.path("m.gguf"), layout(1, PLEC_ORDER_ROLE, 0));
    expect_same_files(dir.path("out"), wanted.path());

    stop.left = 1;
    Converted again(dir.path("m.gguf"), dir.path("two"), options);
    ASSERT_EQ(again.status, PLEC_CANCELLED);
    fs::last_write_time(dir.path("m.gguf"), fs::file_time_type::clock::now());
    Converted changed(dir.path("m.gguf"), dir.path("two"), {});
    ASSERT_EQ(changed.status, PLEC_OK) << changed.error.message;
    EXPECT_EQ(changed.report.n_kept, 0u);
}

TEST(Convert, AFileThatIsNotWhatTheStateSaysIsMadeAgain) {
    TempDir dir;
    Stop stop = {3};
    plec_convert_options options = many_files();
    options.progress = Stop::tell;
    options.user = &stop;
    Converted stopped(gguf_path(MANY_FILES_SOURCE), dir.path("out"), options);
    ASSERT_EQ(stopped.status, PLEC_CANCELLED);
    const std::string victim = dir.path("out/routed/layer_000.seg01.lyrw");
    ASSERT_TRUE(fs::exists(victim));
    std::ofstream(victim, std::ios::in | std::ios::out).put('X');
    fs::last_write_time(victim, fs::last_write_time(victim) + std::chrono::seconds(5));
    Converted resumed(gguf_path(MANY_FILES_SOURCE), dir.path("out"), many_files());
    ASSERT_EQ(resumed.status, PLEC_OK) << resumed.error.message;
    EXPECT_EQ(resumed.report.n_kept, 2u);
    Converted wanted(gguf_path(MANY_FILES_SOURCE), many_files());
    expect_same_files(dir.path("out"), wanted.path());
}

TEST(Convert, TwoProcessesCannotWriteOneFolder) {
    TempDir dir;
    struct Nested {
        const TempDir *dir;
        std::string name;
        static bool tell(void *user, uint64_t, uint64_t) {
            auto *self = static_cast<Nested *>(user);
            if (self->name.empty())
                self->name =
                    Converted(gguf_path("16_tiny_f32"), self->dir->path("out"), {}).error.name;
            return true;
        }
    } nested = {&dir, ""};
    plec_convert_options options = {};
    options.progress = Nested::tell;
    options.user = &nested;
    Converted outer(gguf_path("16_tiny_f32"), dir.path("out"), options);
    EXPECT_EQ(outer.status, PLEC_OK) << outer.error.message;
    EXPECT_EQ(nested.name, "InUse");
}

namespace {

/* Runs fn in a child and returns its wait status; kills it after `us` microseconds. */
int in_child(const std::function<int()> &fn, int kill_after_us = -1) {
    pid_t child = fork();
    if (child == 0) _exit(fn());
    if (kill_after_us >= 0) {
        usleep(static_cast<useconds_t>(kill_after_us));
        kill(child, SIGKILL);
    }
    int status = 0;
    waitpid(child, &status, 0);
    return status;
}

} // namespace

TEST(Convert, KilledHalfWayItResumesToTheSameBytes) {
    const std::string source = gguf_path(MANY_FILES_SOURCE);
    Converted wanted(source, many_files());
    ASSERT_EQ(wanted.status, PLEC_OK) << wanted.error.message;
    TempDir dir;
    const int status = in_child([&] {
        struct Killed {
            static bool tell(void *user, uint64_t, uint64_t) {
                if (--*static_cast<int *>(user) == 0) raise(SIGKILL);
                return true;
            }
        };
        int left = 5;
        plec_convert_options options = many_files();
        options.progress = Killed::tell;
        options.user = &left;
        Converted never(source, dir.path("out"), options);
        return 1;
    });
    ASSERT_TRUE(WIFSIGNALED(status));
    plec_container *container = nullptr;
    EXPECT_NE(plec_container_open(&container, dir.path("out").c_str(), nullptr, nullptr), PLEC_OK);
    Converted resumed(source, dir.path("out"), many_files());
    ASSERT_EQ(resumed.status, PLEC_OK) << resumed.error.message;
    EXPECT_GE(resumed.report.n_kept, 3u);
    expect_same_files(dir.path("out"), wanted.path());
}

/* A limit on file sizes stands for a full disk. */
TEST(Convert, AFullDiskIsAnErrorAndTheRestIsKept) {
    TempDir dir;
    const std::string source = gguf_path(MANY_FILES_SOURCE);
    const int status = in_child([&] {
        signal(SIGXFSZ, SIG_IGN);
        rlimit limit = {200000, 200000};
        setrlimit(RLIMIT_FSIZE, &limit);
        Converted result(source, dir.path("out"), many_files());
        const std::string message = result.error.message;
        if (result.status != PLEC_IO) return 1;
        return message.find("routed/layer_000") != std::string::npos ? 0 : 2;
    });
    EXPECT_EQ(status, 0);
    EXPECT_FALSE(fs::exists(dir.path("out/index.json")));
    for (const std::string &name : files_under(dir.path("out")))
        EXPECT_EQ(name.find(".part-"), std::string::npos) << name;
    Converted resumed(source, dir.path("out"), many_files());
    ASSERT_EQ(resumed.status, PLEC_OK) << resumed.error.message;
    expect_sound(dir.path("out"));
}

/* ---- the command ---- */

TEST(ConvertTool, DryRunListsWhatWouldBeWrittenAndWritesNothing) {
    TempDir dir;
    ToolResult plan = run_tool({"convert", "--dry-run", "--json", "--segment-cap", "300000",
                                "--extent", "32", gguf_path(MANY_FILES_SOURCE), dir.path("out")});
    ASSERT_EQ(plan.exit_status, 0) << plan.err;
    EXPECT_FALSE(fs::exists(dir.path("out")));
    Json document(plan.out);
    json_t *items = json_object_get(document.get(), "items");
    Converted result(gguf_path(MANY_FILES_SOURCE), many_files());
    ASSERT_EQ(result.status, PLEC_OK) << result.error.message;
    ASSERT_EQ(json_array_size(items), files_under(result.path()).size() - 2);
    for (size_t i = 0; i < json_array_size(items); i++) {
        json_t *item = json_array_get(items, i);
        const std::string file = json_string_value(json_object_get(item, "file"));
        EXPECT_EQ(fs::file_size(result.path(file)),
                  static_cast<uint64_t>(json_integer_value(json_object_get(item, "bytes"))))
            << file;
    }
    ToolResult text = run_tool({"convert", "--dry-run", gguf_path("07_gpt_oss"), dir.path("out")});
    EXPECT_NE(text.out.find("routed/layer_000.lyrw"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("would write"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("repacked where scales allow it"), std::string::npos) << text.out;
}

TEST(ConvertTool, ConvertsVerifiesAndRuns) {
    TempDir dir;
    ToolResult result = run_tool(
        {"convert", "--order", "role", "--extent=8", gguf_path("01_mixtral"), dir.path("out")});
    ASSERT_EQ(result.exit_status, 0) << result.err;
    EXPECT_NE(result.out.find("wrote 1 layers, 2 files"), std::string::npos) << result.out;
    EXPECT_EQ(run_tool({"verify", "--hash", "--scan", dir.path("out")}).exit_status, 0);
    ToolResult again = run_tool({"convert", gguf_path("01_mixtral"), dir.path("out")});
    EXPECT_EQ(again.exit_status, 3);
    EXPECT_NE(again.err.find("NotEmpty"), std::string::npos) << again.err;
}

TEST(ConvertTool, WrongUsageIsToldBeforeAnythingIsOpened) {
    TempDir dir;
    for (const std::vector<std::string> &args : {std::vector<std::string>{"--order", "sideways"},
                                                 {"--layers", "5-2"},
                                                 {"--layers", "x"},
                                                 {"--layers", "1-2-3"},
                                                 {"--extent", "0"},
                                                 {"--segment-cap", "0"},
                                                 {"--threads", "0"},
                                                 {"--segment-cap", "much"}}) {
        std::vector<std::string> line = {"convert"};
        line.insert(line.end(), args.begin(), args.end());
        line.push_back("nosuch.gguf");
        line.push_back(dir.path("out"));
        EXPECT_EQ(run_tool(line).exit_status, 2) << args[0] << " " << args[1];
    }
    EXPECT_EQ(run_tool({"convert", "nosuch.gguf"}).exit_status, 2);
    EXPECT_EQ(run_tool({"convert", "nosuch.gguf", dir.path("out")}).exit_status, 3);
    EXPECT_FALSE(fs::exists(dir.path("out")));
}
