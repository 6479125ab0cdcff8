// The baselines cublas_loop and cublas_grouped against the reference on weights rounded to bf16:
// with a library of ours that stands in for cuBLAS (cublas_standin.c), on a GPU with cuBLAS itself.
// What is asked for by name is what runs, or is refused by name.
#include "device/cuda/table.h"
#include "lyrw/codec/round.h"
#include "tests/support/cuda_device.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

#include <dlfcn.h>
#include <sys/stat.h>

namespace {

using namespace plec_test;

#ifdef PLEC_ON_GPU
const char *const library = nullptr;
#else
const char *const library = PLEC_CUBLAS_STANDIN;

/* A number that the stand-in keeps. */
int &standin(const char *name) {
    static void *file = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
    void *found = file != nullptr ? dlsym(file, name) : nullptr;
    EXPECT_NE(found, nullptr) << name;
    static int none;
    return found != nullptr ? *static_cast<int *>(found) : none;
}
#endif

plec_device_options with_rung(const char *rung) {
    plec_device_options options = {};
    options.rung = rung;
    options.cublas = library;
    return options;
}

/* Why a device does not open; "" when it does. */
std::string refusal(const plec_device_options &options, std::string *message = nullptr) {
    plec_device *device = nullptr;
    plec_error err = {};
    plec_status status = plec_device_open(&device, PLEC_DEVICE_CUDA, &options, &err);
    plec_device_close(device);
    if (status == PLEC_OK) return "";
    if (message != nullptr) *message = err.message;
    return err.name;
}

/* A bank whose matrices are those of another, decoded and rounded to bf16. */
class RoundedBank {
  public:
    explicit RoundedBank(const plec_bank *from) : bank_(*from) {
        entries_.assign(from->entries, from->entries + from->n_entries);
        for (int id = 0; id < PLEC_N_MATRICES; id++) {
            if (from->operands[id].rows == 0) continue;
            bank_.operands[id].format = PLEC_FORMAT_BF16;
            for (plec_entry &entry : entries_)
                round(&entry, from->operands[id], id);
        }
        bank_.entries = entries_.data();
    }
    const plec_bank *get() const { return &bank_; }

  private:
    void round(plec_entry *entry, const plec_operand &operand, int id) {
        plec_matrix matrix = {operand.format, operand.rows, operand.cols, entry->values[id],
                              entry->scales[id]};
        std::vector<double> row(operand.cols);
        std::vector<uint8_t> bytes;
        for (uint32_t i = 0; i < operand.rows; i++) {
            plec_matrix_row_f64(row.data(), &matrix, i);
            for (double value : row) {
                uint16_t half = plec_f32_bf16(static_cast<float>(value));
                bytes.push_back(static_cast<uint8_t>(half));
                bytes.push_back(static_cast<uint8_t>(half >> 8));
            }
        }
        kept_.push_back(std::move(bytes));
        entry->values[id] = kept_.back().data();
        entry->scales[id] = nullptr;
    }

    plec_bank bank_;
    std::vector<plec_entry> entries_;
    std::deque<std::vector<uint8_t>> kept_;
};

/* Products in f32 are as near as kernels of our own; of those in bf16 each of three in a row adds
 * some 2e-6, and moves what act is rounded from. */
double tolerance(const std::string &rung) {
    return rung == "cublas_loop" ? 1e-7 : 4e-5;
}

#ifdef PLEC_CHECKED
const size_t STRIDE = 5; /* some formats: each decoder is the same but for its codec */
#else
const size_t STRIDE = 1;
#endif

class Library : public testing::TestWithParam<const char *> {
  protected:
    void SetUp() override {
#ifdef PLEC_ON_GPU
        std::string why;
        if (!refusal(with_rung(GetParam()), &why).empty()) GTEST_SKIP() << why;
#endif
    }
    void expect_right(const BankSpec &spec, const Step &step) {
        plec_device_options options = with_rung(GetParam());
        CudaDevice cuda(&options);
        Bank bank(spec);
        RoundedBank rounded(bank.get());
        UploadedBank uploaded(&cuda, bank.get());
        std::vector<float> y = CudaLaunch(&cuda, uploaded.get(), step).run();
        std::vector<double> wanted = reference_step(rounded.get(), step, PLEC_REFERENCE_BF16);
        EXPECT_LT(nmse(y, wanted), tolerance(GetParam()));
    }
};
INSTANTIATE_TEST_SUITE_P(, Library, testing::Values("cublas_loop", "cublas_grouped"),
                         [](const auto &test) { return std::string(test.param); });

BankSpec spec_of(uint16_t format) {
    BankSpec spec;
    uint32_t block = plec_format_find(format)->block_elems, n = block < 64 ? 64 : block;
    spec.n_entries = 5;
    spec.input_dim = n + (block < 64 ? 32 : 0), spec.intermediate_dim = n, spec.output_dim = 24;
    spec.gate = spec.up = spec.down = format;
    return spec;
}

Step step_for(const BankSpec &spec, uint32_t n_tokens, uint32_t n_slots) {
    Bank shape(spec);
    return make_step(shape.get(), n_tokens, n_slots, 7);
}

TEST_P(Library, MultipliesEveryFormat) {
    size_t n;
    const plec_format *formats = plec_format_all(&n);
    for (size_t i = 0; i < n; i += STRIDE) {
        SCOPED_TRACE(formats[i].name);
        BankSpec spec = spec_of(formats[i].tag);
        spec.n_entries = 2;
        expect_right(spec, step_for(spec, 3, 1));
    }
}

TEST_P(Library, MultipliesEveryLayout) {
    for (int layout = 0; layout < 6; layout++) {
        SCOPED_TRACE(layout);
        BankSpec spec = spec_of(PLEC_FORMAT_Q8_0);
        if (layout < 4) spec.fusion = static_cast<plec_fusion>(layout);
        if (layout == 4) spec.gate = -1;
        if (layout == 5) spec.up = PLEC_FORMAT_BF16, spec.down = PLEC_FORMAT_F32;
        spec.bias = layout % 2 == 0 ? PLEC_FORMAT_F32 : -1;
        spec.scales = layout % 3 == 0;
        Step step = step_for(spec, 7, 3);
        step.weight_on_input = layout % 2 == 1;
        if (layout >= 2) step.token_scale = Random(3).normals(7);
        if (layout >= 3) step.y = Random(4).normals(size_t(7) * spec.output_dim);
        expect_right(spec, step);
    }
}

/* K of down is the intermediate width; what pads its rows is in no product. */
TEST_P(Library, LeavesOutThePaddingOfDown) {
    BankSpec spec = spec_of(PLEC_FORMAT_Q8_0);
    spec.intermediate_dim = 40, spec.gate = spec.up = PLEC_FORMAT_BF16;
    spec.down_cols = 64;
    expect_right(spec, step_for(spec, 6, 2));
}

TEST_P(Library, MultipliesAnyNumberOfRows) {
    BankSpec spec = spec_of(PLEC_FORMAT_MXFP4);
    spec.n_entries = 34; /* more than one launch decodes */
    expect_right(spec, step_for(spec, 1, 3));
    expect_right(spec, step_for(spec, 17, 3));
    spec.n_entries = 3;
    Step one = step_for(spec, 70, 3); /* tiles of 64, and of what is left */
    std::fill(one.ids.begin(), one.ids.end(), 1);
    expect_right(spec, one);
    Step shared = step_for(spec, 2, 3);
    shared.ids.clear(); /* slot j is expert j */
    expect_right(spec, shared);
}

TEST_P(Library, PartsMakeTheBitsOfTheWhole) {
    plec_device_options options = with_rung(GetParam());
    CudaDevice cuda(&options);
    Bank bank(spec_of(PLEC_FORMAT_Q4_0));
    UploadedBank uploaded(&cuda, bank.get());
    Step step = make_step(bank.get(), 9, 2, 5);
    std::vector<float> whole = CudaLaunch(&cuda, uploaded.get(), step).run();
    CudaLaunch cut(&cuda, uploaded.get(), step);
    cut.phase(PLEC_EXPERTS_BEGIN);
    cut.phase(PLEC_EXPERTS_PART, {4, 1});
    cut.phase(PLEC_EXPERTS_PART, {0, 2, 3});
    cut.phase(PLEC_EXPERTS_FINISH);
    std::vector<float> parts = cut.y();
    EXPECT_EQ(memcmp(parts.data(), whole.data(), whole.size() * sizeof whole[0]), 0);
}

TEST_P(Library, TellsABadIdAndGoesOn) {
    plec_device_options options = with_rung(GetParam());
    CudaDevice cuda(&options);
    Bank bank(spec_of(PLEC_FORMAT_Q8_0));
    UploadedBank uploaded(&cuda, bank.get());
    Step step = make_step(bank.get(), 4, 2, 5), bad = step;
    std::vector<float> right = CudaLaunch(&cuda, uploaded.get(), step).run();
    bad.ids[3] = 5;
    CudaLaunch launch(&cuda, uploaded.get(), bad);
    launch.phase(PLEC_EXPERTS_ALL);
    EXPECT_EQ(cuda.failure(), "BadExpertId");
    std::vector<float> after = CudaLaunch(&cuda, uploaded.get(), step).run(); /* the same twice */
    EXPECT_EQ(memcmp(after.data(), right.data(), right.size() * sizeof right[0]), 0);
}

TEST_P(Library, CannotBeCapturedAndSaysWhy) {
    plec_device_options options = with_rung(GetParam());
    CudaDevice cuda(&options);
    plec_device_info info;
    plec_device_get_info(&info, cuda.device);
    EXPECT_EQ(info.graph_entries, 0u);
    EXPECT_EQ(plec_graph_begin(cuda.stream, &cuda.err), PLEC_UNSUPPORTED);
    EXPECT_STREQ(cuda.err.name, "NoGraphs");
}

TEST_P(Library, NamesItselfAsTheKernel) {
    plec_device_options options = with_rung(GetParam());
    CudaDevice cuda(&options);
    Bank bank(spec_of(PLEC_FORMAT_Q8_0));
    char words[PLEC_EXPERTS_KERNELS_MAX];
    plec_device_experts_kernels(words, cuda.device, bank.get());
    EXPECT_EQ(words, std::string("gate q8_0 ") + GetParam() + ", up q8_0 " + GetParam() +
                         ", down q8_0 " + GetParam());
}

#ifndef PLEC_ON_GPU
/* One product an expert and matrix, or one for all experts. */
TEST_P(Library, CallsItAsOftenAsItsNameSays) {
    plec_device_options options = with_rung(GetParam());
    CudaDevice cuda(&options);
    Bank bank(spec_of(PLEC_FORMAT_Q8_0));
    UploadedBank uploaded(&cuda, bank.get());
    Step step = make_step(bank.get(), 6, 2, 5);
    for (size_t i = 0; i < step.ids.size(); i++)
        step.ids[i] = i % 2 == 0 ? 1 : 3;
    bool loop = strcmp(GetParam(), "cublas_loop") == 0;
    int products = standin("plec_standin_products"), grouped = standin("plec_standin_grouped");
    CudaLaunch(&cuda, uploaded.get(), step).run();
    EXPECT_EQ(standin("plec_standin_products") - products, loop ? 6 : 0);
    EXPECT_EQ(standin("plec_standin_grouped") - grouped, loop ? 0 : 3);
}

TEST_P(Library, TellsWhatCublasRefuses) {
    plec_device_options options = with_rung(GetParam());
    CudaDevice cuda(&options);
    Bank bank(spec_of(PLEC_FORMAT_Q8_0));
    UploadedBank uploaded(&cuda, bank.get());
    CudaLaunch launch(&cuda, uploaded.get(), make_step(bank.get(), 4, 2, 5));
    standin("plec_standin_fail") = 13;
    EXPECT_EQ(plec_launch_experts(cuda.stream, &launch.args, &cuda.err), PLEC_NO_DEVICE);
    EXPECT_STREQ(cuda.err.name, "CublasFailed");
    EXPECT_NE(strstr(cuda.err.message, "status 13, execution failed"), nullptr) << cuda.err.message;
    cuda.sync();
    launch.run(); /* and works again */
}
#endif

/* --- what is asked for by name ---------------------------------------------------------------- */

TEST(Rung, IsRefusedByNameWhereItIsNotThere) {
    std::string message;
    EXPECT_EQ(refusal(with_rung("mm_quick"), &message), "NoSuchRung");
    for (const char *name :
         {"mm_quick", "auto", "plain", "mm_sync", "cublas_loop", "cublas_grouped"})
        EXPECT_NE(message.find(name), std::string::npos) << message;
    plec_device_options options = with_rung("cublas_loop");
    options.cublas = "/nowhere/libcublas.so.13";
    EXPECT_EQ(refusal(options, &message), "NoCublas");
    EXPECT_NE(message.find("/nowhere/libcublas.so.13"), std::string::npos) << message;
    EXPECT_NE(message.find("cublas_loop"), std::string::npos) << message;
    Dl_info other; /* a library, but another one */
    ASSERT_NE(dladdr(dlsym(RTLD_DEFAULT, "malloc"), &other), 0);
    options.cublas = other.dli_fname;
    EXPECT_EQ(refusal(options, &message), "NoCublas");
    EXPECT_NE(message.find("cublasDestroy_v2"), std::string::npos) << message;
    options.batch_invariant = true;
    EXPECT_EQ(refusal(options), "NotBatchInvariant");
#ifndef PLEC_ON_GPU
    options = with_rung("cublas_grouped");
    options.cublas = nullptr; /* none of a GPU's for an emulated device */
    EXPECT_EQ(refusal(options), "NoCublas");
#endif
}

/* A pipe was waited for, and what has no slash was looked for where the loader looks. */
TEST(Rung, TakesThePathOfARegularFileAlone) {
    std::string message, folder = testing::TempDir() + "plectrum-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    std::string pipe = folder + "/pipe";
    ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
    plec_device_options options = with_rung("cublas_loop");
    const struct {
        std::string path, why;
    } cases[] = {{pipe, pipe + ": not a regular file"},
                 {folder, folder + ": not a regular file"},
                 {"libc.so.6", "libc.so.6: No such file"}};
    for (const auto &c : cases) {
        options.cublas = c.path.c_str();
        EXPECT_EQ(refusal(options, &message), "NoCublas");
        EXPECT_NE(message.find(c.why), std::string::npos) << message;
    }
    std::filesystem::remove_all(folder);
#ifndef PLEC_ON_GPU
    std::filesystem::path before = std::filesystem::current_path(), file = library;
    std::filesystem::current_path(file.parent_path());
    std::string name = file.filename();
    options.cublas = name.c_str();
    EXPECT_EQ(refusal(options, &message), "") << message;
    std::filesystem::current_path(before);
#endif
}

TEST(Rung, RunsAtMostWhatIsAskedFor) {
    const struct {
        const char *rung;
        uint16_t format;
        const char *kernel;
    } cases[] = {{"plain", PLEC_FORMAT_Q8_0, "plain"},
                 {"mm_sync", PLEC_FORMAT_Q8_0, "mm_sync"},
                 {"mm_sync", PLEC_FORMAT_GGUF_TQ1_0, "plain"}};
    for (const auto &c : cases) {
        plec_device_options options = with_rung(c.rung);
        CudaDevice cuda(&options);
        char name[PLEC_KERNEL_NAME_MAX];
        EXPECT_STREQ(plec_device_kernel_name(cuda.device, c.format, name), c.kernel) << c.rung;
    }
}

TEST(Rung, NeverChoosesABaselineByItself) {
    for (bool plain : {false, true}) {
        plec_device_options options = {};
        options.plain_c = plain;
        CudaDevice cuda(&options);
        size_t n;
        char name[PLEC_KERNEL_NAME_MAX];
        const plec_format *formats = plec_format_all(&n);
        for (size_t i = 0; i < n; i++) {
            const char *kernel = plec_device_kernel_name(cuda.device, formats[i].tag, name);
            ASSERT_NE(kernel, nullptr) << formats[i].name;
            EXPECT_EQ(strstr(kernel, "cublas"), nullptr) << formats[i].name;
            EXPECT_NE(plec_cuda_decoder_of(formats[i].tag), nullptr) << formats[i].name;
        }
        EXPECT_EQ(plec_device_kernel_name(cuda.device, PLEC_CUDA_ANY_FORMAT, name), nullptr);
    }
}

} // namespace
