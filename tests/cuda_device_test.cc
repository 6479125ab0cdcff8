// The CUDA backend as device.h promises: memory, streams, events, failures, and the launches that
// are one kernel.
#include "tests/support/cuda_device.h"
#ifndef PLEC_ON_GPU
#include "tests/emu/emulator.h"
#endif

#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <thread>

namespace {

using namespace plec_test;

enum plec_status fail_with_io(void *user, struct plec_error *err) {
    return plec_fail(err, PLEC_IO, "TestFailure", "%s", static_cast<const char *>(user));
}
enum plec_status count_up(void *user, struct plec_error *) {
    static_cast<std::atomic<int> *>(user)->fetch_add(1);
    return PLEC_OK;
}
char words[] = "the disk is on fire", other_words[] = "and so is the other";

struct Append {
    std::vector<int> *list;
    int value;
    static enum plec_status run(void *user, struct plec_error *) {
        auto *append = static_cast<Append *>(user);
        append->list->push_back(append->value);
        return PLEC_OK;
    }
};

class Cuda : public testing::Test {
  protected:
    struct plec_stream *another() {
        struct plec_stream *stream = nullptr;
        EXPECT_EQ(plec_stream_open(&stream, cuda_.device, nullptr), PLEC_OK);
        return stream;
    }
    void call(struct plec_stream *on, plec_status (*fn)(void *, plec_error *), void *user) {
        EXPECT_EQ(plec_stream_call(on, fn, user, &cuda_.err), PLEC_OK) << cuda_.err.message;
    }
    CudaDevice cuda_;
};

#ifndef PLEC_ON_GPU
TEST_F(Cuda, SaysThatItIsEmulated) {
    struct plec_device_info info;
    plec_device_get_info(&info, cuda_.device);
    EXPECT_EQ(info.kind, PLEC_DEVICE_CUDA);
    EXPECT_EQ(std::string(info.name).rfind("CUDA emulated on the CPU, sm_", 0), 0u) << info.name;
    EXPECT_STREQ(plec_device_backend_name(PLEC_DEVICE_CUDA), "CUDA emulated on the CPU");
    EXPECT_GT(info.memory_bytes, 1u << 20);
    EXPECT_TRUE(info.needs_upload);
}

TEST(CudaOpen, RunsPlainKernelsWhereTensorCoresFlushSubnormals) {
    const char *kernel = nullptr, *of_f32 = nullptr;
    char name[PLEC_KERNEL_NAME_MAX], other[PLEC_KERNEL_NAME_MAX];
    struct plec_device_info info;
    plec_emu_set_flush_subnormals(true);
    {
        CudaDevice cuda;
        plec_device_get_info(&info, cuda.device);
        kernel = plec_device_kernel_name(cuda.device, PLEC_FORMAT_Q4_0, name);
        of_f32 = plec_device_kernel_name(cuda.device, PLEC_FORMAT_F32, other);
    }
    plec_emu_set_flush_subnormals(false);
    EXPECT_NE(std::string(info.name).find("flushes subnormals"), std::string::npos) << info.name;
    EXPECT_STREQ(kernel, "plain");
    EXPECT_STREQ(of_f32, "mm_fma"); /* has no need of them */
    CudaDevice cuda;
    EXPECT_STRNE(plec_device_kernel_name(cuda.device, PLEC_FORMAT_Q4_0, name), "plain");
}

TEST(CudaOpen, RunsNoWgmmaWhereItFlushesSubnormals) {
    char name[PLEC_KERNEL_NAME_MAX];
    struct plec_device_info info;
    plec_emu_set_wgmma_flushes(true);
    {
        CudaDevice cuda;
        plec_device_get_info(&info, cuda.device);
        EXPECT_EQ(strstr(plec_device_kernel_name(cuda.device, PLEC_FORMAT_Q4_0, name), "mm_wg"),
                  nullptr);
    }
    plec_emu_set_wgmma_flushes(false);
    EXPECT_NE(std::string(info.name).find("without wgmma"), std::string::npos) << info.name;
    CudaDevice cuda;
    EXPECT_NE(strstr(plec_device_kernel_name(cuda.device, PLEC_FORMAT_Q4_0, name), "L mm_wg"),
              nullptr);
}

/* A build for sm_80, compiled again by the driver from its PTX: mm_bulk and mm_wg are empty. */
TEST(CudaOpen, RunsNoKernelThatTheLoadedImageHasNot) {
    char name[PLEC_KERNEL_NAME_MAX];
    struct plec_device_info info;
    plec_emu_set_image(80);
    {
        CudaDevice cuda;
        plec_device_get_info(&info, cuda.device);
        EXPECT_STREQ(plec_device_kernel_name(cuda.device, PLEC_FORMAT_Q4_0, name), "mm_sync");
        BankSpec spec;
        spec.gate = spec.up = spec.down = PLEC_FORMAT_Q4_0;
        Bank bank(spec);
        UploadedBank uploaded(&cuda, bank.get());
        Step step = make_step(bank.get(), 3, 2, 1);
        std::vector<float> y = CudaLaunch(&cuda, uploaded.get(), step).run();
        EXPECT_LT(nmse(y, reference_step(bank.get(), step, PLEC_REFERENCE_BF16)), 1e-7);
    }
    plec_emu_set_image(0);
    EXPECT_NE(std::string(info.name).find("sm_90 as sm_80"), std::string::npos) << info.name;
}
#endif

TEST_F(Cuda, HasAKernelForEveryFormatAndNoOther) {
    size_t n;
    char name[PLEC_KERNEL_NAME_MAX];
    const struct plec_format *formats = plec_format_all(&n);
    for (size_t i = 0; i < n; i++)
        EXPECT_NE(plec_device_kernel_name(cuda_.device, formats[i].tag, name), nullptr)
            << formats[i].name;
    EXPECT_EQ(plec_device_kernel_name(cuda_.device, 4242, name), nullptr);
    struct plec_device_options plain = {};
    plain.plain_c = true;
    CudaDevice slow(&plain);
    EXPECT_STREQ(plec_device_kernel_name(slow.device, PLEC_FORMAT_Q4_K, name), "plain");
}

TEST_F(Cuda, CopiesInEveryDirection) {
    std::vector<uint8_t> bytes(1000);
    for (size_t i = 0; i < bytes.size(); i++)
        bytes[i] = static_cast<uint8_t>(i * 7);
    uint8_t *a = cuda_.upload(bytes), *b = static_cast<uint8_t *>(cuda_.poisoned(1000));
    cuda_.copy(b + 1, a + 3, 500);
    std::vector<uint8_t> got = cuda_.download(b, 1000);
    EXPECT_EQ(memcmp(&got[1], &bytes[3], 500), 0);
    EXPECT_EQ(got[0], 0xFF);
    EXPECT_EQ(got[501], 0xFF);
    void *pinned = nullptr;
    ASSERT_EQ(plec_pinned_alloc(&pinned, cuda_.device, 1000, nullptr), PLEC_OK);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(pinned) % 64, 0u);
    cuda_.copy(pinned, a, 1000);
    cuda_.sync();
    EXPECT_EQ(memcmp(pinned, bytes.data(), 1000), 0);
    plec_pinned_free(cuda_.device, pinned);
    cuda_.copy(a, nullptr, 0); /* nothing is nothing */
    cuda_.sync();
}

TEST_F(Cuda, AlignsMemoryAndRefusesWhatIsNotThere) {
    for (uint64_t n_bytes : {0, 1, 63, 4097}) {
        void *memory = nullptr;
        ASSERT_EQ(plec_device_alloc(&memory, cuda_.device, n_bytes, nullptr), PLEC_OK);
        EXPECT_NE(memory, nullptr);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % PLEC_ARRIVAL_ALIGNMENT, 0u);
        plec_device_free(cuda_.device, memory);
    }
    void *memory = &memory;
    for (uint64_t n_bytes : {UINT64_C(1) << 40, UINT64_MAX}) {
        EXPECT_EQ(plec_device_alloc(&memory, cuda_.device, n_bytes, &cuda_.err), PLEC_NO_MEMORY);
        EXPECT_STREQ(cuda_.err.name, "NoMemory");
        EXPECT_EQ(memory, nullptr);
    }
    EXPECT_EQ(plec_pinned_alloc(&memory, cuda_.device, UINT64_MAX, &cuda_.err), PLEC_NO_MEMORY);
    plec_device_free(cuda_.device, nullptr);
}

/* Many pieces come and go at random; none may overlap another, and all may be had again. */
TEST(CudaReserve, GivesOutWhatWasReservedAndNoMore) {
    struct plec_device_options options = {};
    options.reserve_bytes = 1 << 20;
    CudaDevice cuda(&options);
    std::map<uintptr_t, uint64_t> held; /* where -> bytes */
    Random random(1);
    uint32_t n_refused = 0;
    for (int i = 0; i < 3000; i++) {
        if (random.below(2) == 0 && !held.empty()) {
            auto one = std::next(held.begin(), random.below(uint32_t(held.size())));
            plec_device_free(cuda.device, reinterpret_cast<void *>(one->first));
            held.erase(one);
            continue;
        }
        uint64_t n_bytes = random.below(1 << random.below(18));
        void *memory = nullptr;
        if (plec_device_alloc(&memory, cuda.device, n_bytes, &cuda.err) != PLEC_OK) {
            EXPECT_STREQ(cuda.err.name, "NoMemory");
            n_refused++;
            continue;
        }
        auto at = reinterpret_cast<uintptr_t>(memory);
        EXPECT_EQ(at % PLEC_ARRIVAL_ALIGNMENT, 0u);
        auto after = held.lower_bound(at);
        EXPECT_TRUE(after == held.end() || at + n_bytes <= after->first);
        EXPECT_TRUE(after == held.begin() ||
                    std::prev(after)->first + std::prev(after)->second <= at);
        held[at] = n_bytes;
    }
    EXPECT_GT(n_refused, 0u);
    for (const auto &piece : held)
        plec_device_free(cuda.device, reinterpret_cast<void *>(piece.first));
    void *all = nullptr;
    EXPECT_EQ(plec_device_alloc(&all, cuda.device, 1 << 20, nullptr), PLEC_OK);
    plec_device_free(cuda.device, all);
    options.reserve_bytes = UINT64_C(1) << 50;
    struct plec_device *none = nullptr;
    EXPECT_EQ(plec_device_open(&none, PLEC_DEVICE_CUDA, &options, &cuda.err), PLEC_NO_MEMORY);
}

TEST_F(Cuda, PinsTheCallersMemory) {
    std::vector<uint8_t> bytes(3 * 4096, 5);
    auto *page = reinterpret_cast<uint8_t *>((reinterpret_cast<uintptr_t>(bytes.data()) + 4095) &
                                             ~uintptr_t(4095));
    ASSERT_EQ(plec_device_pin(cuda_.device, page, 4096, &cuda_.err), PLEC_OK) << cuda_.err.message;
    auto *to = static_cast<uint8_t *>(cuda_.poisoned(4096));
    cuda_.copy(to, page, 4096);
    EXPECT_EQ(cuda_.download(to, 4096), std::vector<uint8_t>(4096, 5));
    plec_device_unpin(cuda_.device, page, 4096);
}

TEST_F(Cuda, RunsAStreamsWorkInOrder) {
    std::vector<int> list;
    std::vector<Append> appends(600); /* more than a stream holds at a time */
    for (size_t i = 0; i < appends.size(); i++) {
        appends[i] = {&list, static_cast<int>(i)};
        call(cuda_.stream, Append::run, &appends[i]);
    }
    cuda_.sync();
    ASSERT_EQ(list.size(), appends.size());
    for (size_t i = 0; i < list.size(); i++)
        EXPECT_EQ(list[i], static_cast<int>(i));
}

TEST_F(Cuda, WaitsForAnEventsLatestRecord) {
    struct plec_stream *other = another();
    struct plec_event *event = nullptr;
    ASSERT_EQ(plec_event_open(&event, cuda_.device, nullptr), PLEC_OK);
    EXPECT_TRUE(plec_event_done(event)); /* never recorded */
    EXPECT_EQ(plec_event_wait(other, event, nullptr), PLEC_OK);
    auto *memory = static_cast<uint8_t *>(cuda_.poisoned(64));
    EXPECT_EQ(plec_fill(memory, 1, 64, cuda_.stream, nullptr), PLEC_OK);
    EXPECT_EQ(plec_event_record(event, cuda_.stream, nullptr), PLEC_OK);
    EXPECT_EQ(plec_event_wait(other, event, nullptr), PLEC_OK);
    std::vector<uint8_t> got(64);
    EXPECT_EQ(plec_copy(got.data(), memory, 64, other, nullptr), PLEC_OK);
    EXPECT_EQ(plec_stream_sync(other, nullptr), PLEC_OK);
    EXPECT_EQ(got, std::vector<uint8_t>(64, 1));
    plec_event_sync(event);
    EXPECT_TRUE(plec_event_done(event));
    plec_event_close(event);
    plec_stream_close(other);
}

/* --- failures ------------------------------------------------------------------------------- */

/* Tests went on with no device, or with one that a failed launch had lost, and died of it. */
TEST(CudaOpen, EndsATestThatGetsNoDevice) {
    struct plec_device_options options = {};
    options.rung = "no such rung";
    EXPECT_THROW(CudaDevice none(&options), std::runtime_error);
}

TEST_F(Cuda, EndsATestWhoseStreamFailed) {
    call(cuda_.stream, fail_with_io, words);
    EXPECT_THROW(cuda_.sync(), std::runtime_error);
    cuda_.sync(); /* told once */
}

TEST_F(Cuda, TellsTheFirstFailedCallOnceAndSkipsLaterOnes) {
    std::atomic<int> n = 0;
    call(cuda_.stream, count_up, &n);
    call(cuda_.stream, fail_with_io, words);
    call(cuda_.stream, fail_with_io, other_words);
    call(cuda_.stream, count_up, &n);
    EXPECT_EQ(plec_stream_sync(cuda_.stream, &cuda_.err), PLEC_IO);
    EXPECT_STREQ(cuda_.err.name, "TestFailure");
    EXPECT_NE(std::string(cuda_.err.message).find(words), std::string::npos);
    EXPECT_EQ(n, 1);
    cuda_.sync();
    call(cuda_.stream, count_up, &n);
    cuda_.sync();
    EXPECT_EQ(n, 2);
}

TEST_F(Cuda, SkipsWorkEnqueuedAfterAFailureIsKnown) {
    auto *memory = static_cast<float *>(cuda_.poisoned(64));
    EXPECT_EQ(plec_fill(memory, 0, 64, cuda_.stream, nullptr), PLEC_OK);
    struct plec_event *event = nullptr;
    ASSERT_EQ(plec_event_open(&event, cuda_.device, nullptr), PLEC_OK);
    call(cuda_.stream, fail_with_io, words);
    EXPECT_EQ(plec_event_record(event, cuda_.stream, nullptr), PLEC_OK);
    plec_event_sync(event);
    EXPECT_EQ(plec_fill(memory, 1, 64, cuda_.stream, nullptr), PLEC_OK);
    EXPECT_EQ(plec_launch_sigmoid(cuda_.stream, memory, 16, nullptr), PLEC_OK);
    EXPECT_EQ(cuda_.failure(), "TestFailure");
    EXPECT_EQ(cuda_.download(memory, 16), std::vector<float>(16, 0.0f));
    plec_event_close(event);
}

TEST_F(Cuda, KeepsOneStreamsFailureFromAnother) {
    struct plec_stream *other = another();
    std::atomic<int> n = 0;
    call(cuda_.stream, fail_with_io, words);
    call(other, count_up, &n);
    EXPECT_EQ(plec_stream_sync(other, nullptr), PLEC_OK);
    EXPECT_EQ(n, 1);
    EXPECT_EQ(cuda_.failure(), "TestFailure");
    plec_stream_close(other);
}

/* A fault of a kernel stops what is behind it: kernels and calls. */
TEST_F(Cuda, SkipsWhatIsBehindAKernelsFault) {
    BankSpec spec;
    spec.n_entries = 2, spec.input_dim = spec.intermediate_dim = spec.output_dim = 32;
    Bank bank(spec);
    UploadedBank uploaded(&cuda_, bank.get());
    Step step = make_step(bank.get(), 2, 1, 1);
    step.ids = {0, 9};
    CudaLaunch launch(&cuda_, uploaded.get(), step);
    float *x = cuda_.upload(std::vector<float>(16, 2.0f));
    std::atomic<int> n = 0;
    launch.phase(PLEC_EXPERTS_ALL);
    EXPECT_EQ(plec_launch_scale(cuda_.stream, x, 16, 3, nullptr), PLEC_OK);
    call(cuda_.stream, count_up, &n);
    EXPECT_EQ(plec_stream_sync(cuda_.stream, &cuda_.err), PLEC_BAD_INPUT);
    EXPECT_STREQ(cuda_.err.name, "BadExpertId");
    EXPECT_NE(std::string(cuda_.err.message).find("2 of 32 -> 32 -> 32, 2 tokens of 1 slots"),
              std::string::npos)
        << cuda_.err.message;
    EXPECT_EQ(n, 0);
    EXPECT_EQ(cuda_.download(x, 16), std::vector<float>(16, 2.0f));
    EXPECT_EQ(plec_launch_scale(cuda_.stream, x, 16, 3, nullptr), PLEC_OK);
    EXPECT_EQ(cuda_.download(x, 16), std::vector<float>(16, 6.0f));
}

TEST_F(Cuda, CloseWaitsForWhatWasEnqueued) {
    struct plec_stream *other = another();
    std::atomic<int> n = 0;
    for (int i = 0; i < 5; i++)
        call(other, count_up, &n);
    plec_stream_close(other);
    EXPECT_EQ(n, 5);
}

TEST_F(Cuda, TakesCallsFromSeveralThreads) {
    std::atomic<int> n = 0;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++)
        threads.emplace_back([&] {
            for (int i = 0; i < 50; i++)
                call(cuda_.stream, count_up, &n);
        });
    for (std::thread &thread : threads)
        thread.join();
    cuda_.sync();
    EXPECT_EQ(n, 200);
}

/* --- the launches that are one kernel ------------------------------------------------------- */

TEST_F(Cuda, NormsRowsInPlace) {
    for (uint32_t width : {1, 31, 256, 1000}) {
        Random random(width);
        std::vector<float> x = random.normals(3 * width), gain = random.normals(width);
        struct plec_norm_args args = {cuda_.upload(x), cuda_.upload(gain), 3, width, 1e-5};
        EXPECT_EQ(plec_launch_norm(cuda_.stream, &args, nullptr), PLEC_OK);
        std::vector<float> got = cuda_.download(args.x, x.size());
        for (size_t t = 0; t < 3; t++) {
            double sum = 0;
            for (size_t i = 0; i < width; i++)
                sum += double(x[t * width + i]) * x[t * width + i];
            double scale = 1 / std::sqrt(sum / width + 1e-5);
            for (size_t i = 0; i < width; i++) {
                double want = x[t * width + i] * scale * gain[i];
                EXPECT_NEAR(got[t * width + i], want, 3e-7 * std::fabs(want));
            }
        }
    }
}

TEST_F(Cuda, ScalesAndSigmoidsArraysOfAnyLength) {
    for (uint64_t n : {1, 255, 256, 257, 10000}) {
        std::vector<float> x = Random(1).normals(n, 4);
        float *a = cuda_.upload(x), *b = cuda_.upload(x);
        EXPECT_EQ(plec_launch_scale(cuda_.stream, a, n, 0.5f, nullptr), PLEC_OK);
        EXPECT_EQ(plec_launch_sigmoid(cuda_.stream, b, n, nullptr), PLEC_OK);
        std::vector<float> scaled = cuda_.download(a, n), squashed = cuda_.download(b, n);
        for (size_t i = 0; i < n; i++) {
            EXPECT_EQ(scaled[i], x[i] * 0.5f);
            EXPECT_NEAR(squashed[i], 1 / (1 + std::exp(-double(x[i]))), 2e-7);
        }
    }
    EXPECT_EQ(plec_launch_scale(cuda_.stream, nullptr, 0, 1, nullptr), PLEC_OK);
}

std::vector<double> product(const Matrix &matrix, const std::vector<float> &x, uint32_t n_tokens) {
    std::vector<double> y, row(matrix.cols);
    struct plec_matrix view = matrix.view();
    for (uint32_t t = 0; t < n_tokens; t++)
        for (uint32_t r = 0; r < matrix.rows; r++) {
            plec_matrix_row_f64(row.data(), &view, r);
            double sum = 0;
            for (uint32_t i = 0; i < matrix.cols; i++)
                sum += row[i] * x[size_t(t) * matrix.cols + i];
            y.push_back(sum);
        }
    return y;
}

TEST_F(Cuda, MultipliesByAMatrixInEveryFormat) {
    size_t n_formats;
    const struct plec_format *formats = plec_format_all(&n_formats);
    for (size_t i = 0; i < n_formats; i++) {
        SCOPED_TRACE(formats[i].name);
        Random random(static_cast<uint32_t>(i));
        uint32_t n_tokens = 9, cols = formats[i].block_elems < 64 ? 96 : formats[i].block_elems;
        cols -= cols % formats[i].block_elems;
        Matrix matrix = random.matrix(formats[i].tag, 11, cols);
        std::vector<float> x = random.normals(n_tokens * cols), before(n_tokens * 11, 1.0f);
        struct plec_linear_args args = {};
        args.matrix = matrix.view();
        args.matrix.values = cuda_.upload(matrix.values);
        args.matrix.scales = cuda_.upload(matrix.scales);
        args.x = cuda_.upload(x), args.y = static_cast<float *>(cuda_.poisoned(n_tokens * 11 * 4));
        args.n_tokens = n_tokens;
        EXPECT_EQ(plec_launch_linear(cuda_.stream, &args, &cuda_.err), PLEC_OK);
        std::vector<double> want = product(matrix, x, n_tokens);
        EXPECT_LT(nmse(cuda_.download(args.y, want.size()), want), 1e-11);
        args.accumulate = true, args.y = cuda_.upload(before);
        EXPECT_EQ(plec_launch_linear(cuda_.stream, &args, &cuda_.err), PLEC_OK);
        for (double &value : want)
            value += 1;
        EXPECT_LT(nmse(cuda_.download(args.y, want.size()), want), 1e-11);
    }
    struct plec_linear_args unknown = {};
    unknown.matrix.format = 4242;
    EXPECT_EQ(plec_launch_linear(cuda_.stream, &unknown, &cuda_.err), PLEC_UNSUPPORTED);
    EXPECT_STREQ(cuda_.err.name, "NoKernel");
}

} // namespace
