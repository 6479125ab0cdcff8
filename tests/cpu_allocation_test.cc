/* The promise that nothing allocates after open, held by counting: this program has an allocator of
 * its own in front of the C library's. Sanitizers have theirs, so under them the test is skipped.
 */
#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>

#include "tests/support/bank.h"

#include "device/device.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define COUNTED 1
#else
#define COUNTED 0
#endif

namespace {
std::atomic<int> n_allocations{0};
}

#if COUNTED
extern "C" {
void *__libc_malloc(size_t n);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t n);
void *__libc_memalign(size_t alignment, size_t n);
void *malloc(size_t n) {
    n_allocations++;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    n_allocations++;
    return __libc_calloc(n, size);
}
void *realloc(void *old, size_t n) {
    n_allocations++;
    return __libc_realloc(old, n);
}
void *aligned_alloc(size_t alignment, size_t n) {
    n_allocations++;
    return __libc_memalign(alignment, n);
}
int posix_memalign(void **out, size_t alignment, size_t n) {
    n_allocations++;
    *out = __libc_memalign(alignment, n);
    return *out == nullptr ? ENOMEM : 0;
}
}
#endif

namespace {

using plec_test::Bank;
using plec_test::BankSpec;
using plec_test::make_step;
using plec_test::Step;

/* One of each call that a step may make. */
void run_step(struct plec_device *device, struct plec_stream **streams, struct plec_event *event,
              const struct plec_experts_args *experts, const struct plec_linear_args *linear) {
    struct plec_norm_args norm = {experts->y, experts->x, 1, experts->bank->output_dim, 1e-6};
    struct plec_error err;
    uint64_t n_bytes;
    bool fine = plec_experts_workspace(&n_bytes, device, experts->bank, experts->n_tokens,
                                       experts->n_slots);
    int status = plec_launch_experts(streams[0], experts, &err);
    status |= plec_launch_linear(streams[0], linear, &err);
    status |= plec_event_record(event, streams[0], &err);
    status |= plec_event_wait(streams[1], event, &err);
    status |= plec_launch_norm(streams[1], &norm, &err);
    status |= plec_launch_sigmoid(streams[1], experts->y, 10, &err);
    status |= plec_launch_scale(streams[1], experts->y, 10, 2, &err);
    status |= plec_fill(experts->y, 0, 16, streams[1], &err);
    status |= plec_copy(experts->y, experts->x, 16, streams[1], &err);
    status |= plec_stream_sync(streams[1], &err);
    status |= plec_stream_sync(streams[0], &err);
    EXPECT_TRUE(fine && status == PLEC_OK);
}

TEST(CpuAllocation, TheCounterCounts) {
    if (!COUNTED) GTEST_SKIP() << "not with a sanitizer's allocator";
    int before = n_allocations;
    free(malloc(1));
    EXPECT_EQ(n_allocations, before + 1);
}

TEST(CpuAllocation, AStepAllocatesNothing) {
    if (!COUNTED) GTEST_SKIP() << "not with a sanitizer's allocator";
    BankSpec spec;
    spec.gate = PLEC_FORMAT_Q4_K, spec.up = PLEC_FORMAT_Q6_K, spec.down = PLEC_FORMAT_GGUF_Q5_K;
    Bank bank(spec);
    Step step = make_step(bank.get(), 9, 3, 1);
    struct plec_device_options options = {};
    options.n_threads = 3;
    struct plec_device *device = nullptr;
    struct plec_stream *streams[2] = {};
    struct plec_event *event = nullptr;
    void *workspace = nullptr;
    uint64_t n_bytes = 0;
    ASSERT_EQ(plec_device_open(&device, PLEC_DEVICE_CPU, &options, nullptr), PLEC_OK);
    ASSERT_EQ(plec_stream_open(&streams[0], device, nullptr), PLEC_OK);
    ASSERT_EQ(plec_stream_open(&streams[1], device, nullptr), PLEC_OK);
    ASSERT_EQ(plec_event_open(&event, device, nullptr), PLEC_OK);
    ASSERT_TRUE(plec_experts_workspace(&n_bytes, device, bank.get(), 9, 3));
    ASSERT_EQ(plec_device_alloc(&workspace, device, n_bytes, nullptr), PLEC_OK);
    std::vector<float> y(9 * spec.output_dim), projected(9 * 256);
    plec_test::Random random(1);
    plec_test::Matrix matrix = random.matrix(PLEC_FORMAT_MXFP4, 256, spec.input_dim);
    struct plec_experts_args experts = {};
    experts.bank = bank.get();
    experts.ids = step.ids.data();
    experts.weights = step.weights.data();
    experts.n_tokens = 9, experts.n_slots = 3;
    experts.x = step.x.data(), experts.y = y.data();
    experts.workspace = workspace;
    struct plec_linear_args linear = {matrix.view(), step.x.data(), projected.data(), 9, false};
    run_step(device, streams, event, &experts, &linear); /* the library's own first use */
    int before = n_allocations;
    for (int i = 0; i < 20; i++)
        run_step(device, streams, event, &experts, &linear);
    EXPECT_EQ(n_allocations, before);
    plec_device_free(device, workspace);
    plec_event_close(event);
    plec_stream_close(streams[1]);
    plec_stream_close(streams[0]);
    plec_device_close(device);
}

} // namespace
