/* streams.cu: what the host's side relies on: order by streams and events, graphs that are
 * replayed, kernels that start early. */
#include "device/cuda/ptx.cuh"
#include "tests/emu/contract/array.cuh"

static __global__ void add(int *to, const int *from, int n, int value) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) to[i] = from[i] + value;
}

static __global__ void add_dependent(int *to, const int *from, int n, int value) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
#ifdef PLEC_HAS_SM90
    plec_grid_launch_dependents();
    plec_grid_wait();
#endif
    if (i < n) to[i] = from[i] + value;
}

struct two_streams {
    cudaStream_t a, b;
    cudaEvent_t fork, join;
    two_streams() {
        MUST(cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
        MUST(cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
        MUST(cudaEventCreateWithFlags(&fork, cudaEventDisableTiming));
        MUST(cudaEventCreateWithFlags(&join, cudaEventDisableTiming));
    }
    ~two_streams() {
        MUST(cudaStreamDestroy(a));
        MUST(cudaStreamDestroy(b));
        MUST(cudaEventDestroy(fork));
        MUST(cudaEventDestroy(join));
    }
};

/* y = x + 1 on a, z = y + 2 on b, w = y + 3 on a */
static void fork_and_join(const two_streams &s, int *x, int *y, int *z, int *w) {
    MUST(PLEC_LAUNCH(add, dim3(4), dim3(32), 0, s.a, y, (const int *)x, 100, 1));
    MUST(cudaEventRecord(s.fork, s.a));
    MUST(cudaStreamWaitEvent(s.b, s.fork, 0));
    MUST(PLEC_LAUNCH(add, dim3(4), dim3(32), 0, s.b, z, (const int *)y, 100, 2));
    MUST(PLEC_LAUNCH(add, dim3(4), dim3(32), 0, s.a, w, (const int *)y, 100, 3));
    MUST(cudaEventRecord(s.join, s.b));
    MUST(cudaStreamWaitEvent(s.a, s.join, 0));
}

static void expect_all(const device_array<int> &array, int want, const char *name) {
    std::vector<int> got = array.get();
    for (size_t i = 0; i < got.size(); i++)
        EXPECT_SAME(got[i], want, "%s[%zu]", name, i);
}

CONTRACT(EventsOrderStreams, 80) {
    two_streams s;
    device_array<int> x(100), y(100), z(100), w(100);
    x.zero();
    MUST(cudaDeviceSynchronize());
    fork_and_join(s, x, y, z, w);
    MUST(cudaStreamSynchronize(s.a));
    expect_all(z, 3, "z");
    expect_all(w, 4, "w");
}

CONTRACT(GraphsReplayWithWhatMemoryHoldsThen, 80) {
    two_streams s;
    device_array<int> x(100), y(100), z(100), w(100);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t exec = nullptr;
    MUST(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal));
    fork_and_join(s, x, y, z, w);
    MUST(cudaStreamEndCapture(s.a, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 1; round < 4; round++) {
        std::vector<int> values(100, round * 10);
        MUST(cudaMemcpyAsync(x, values.data(), 400, cudaMemcpyHostToDevice, s.a));
        MUST(cudaGraphLaunch(exec, s.a));
        MUST(cudaStreamSynchronize(s.a));
        expect_all(z, round * 10 + 3, "z");
        expect_all(w, round * 10 + 4, "w");
    }
    MUST(cudaGraphExecDestroy(exec));
    MUST(cudaGraphDestroy(graph));
}

CONTRACT(DependentKernelsSeeTheWritesOfTheKernelAhead, 90) {
    two_streams s;
    device_array<int> x(100), y(100), z(100), w(100);
    x.zero();
    MUST(cudaDeviceSynchronize());
    MUST(
        PLEC_LAUNCH(add_dependent, dim3(4), dim3(32), 0, s.a, y.data, (const int *)x.data, 100, 1));
    MUST(PLEC_LAUNCH_AS(PLEC_LAUNCH_DEPENDENT, add_dependent, dim3(4), dim3(32), 0, s.a, z.data,
                        (const int *)y.data, 100, 2));
    MUST(PLEC_LAUNCH_AS(PLEC_LAUNCH_DEPENDENT, add_dependent, dim3(4), dim3(32), 0, s.a, w.data,
                        (const int *)z.data, 100, 3));
    MUST(cudaStreamSynchronize(s.a));
    expect_all(w, 6, "w");
}

/* Adds to what the kernel before the one ahead wrote, read before the wait. */
static __global__ void add_early(int *to, const int *early, const int *late, int n) {
#ifdef PLEC_HAS_SM90
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x), value = i < n ? early[i] : 0;
    plec_grid_wait();
    plec_grid_launch_dependents();
    if (i < n) to[i] = value + late[i];
#else
    (void)to, (void)early, (void)late, (void)n;
#endif
}

/* A kernel that waits before it lets others start has all that was ahead of it behind it. */
static void three_in_a_chain(cudaStream_t stream, int *x, int *y, int *z) {
    MUST(PLEC_LAUNCH(add, dim3(32), dim3(256), 0, stream, x, (const int *)x, 8192, 1));
    MUST(PLEC_LAUNCH_AS(PLEC_LAUNCH_DEPENDENT, add_early, dim3(32), dim3(256), 0, stream, y,
                        (const int *)z, (const int *)x, 8192));
    MUST(PLEC_LAUNCH_AS(PLEC_LAUNCH_DEPENDENT, add_early, dim3(32), dim3(256), 0, stream, z,
                        (const int *)x, (const int *)y, 8192));
}

CONTRACT(DependentKernelsMayReadWhatWasAheadOfTheKernelAhead, 90) {
    two_streams s;
    device_array<int> x(8192), y(8192), z(8192);
    cudaGraph_t graph;
    cudaGraphExec_t exec;
    x.zero(), z.zero();
    MUST(cudaDeviceSynchronize());
    int wanted_x = 0, wanted_z = 0;
    for (int round = 0; round < 3; round++) {
        three_in_a_chain(s.a, x.data, y.data, z.data);
        wanted_x += 1, wanted_z += 2 * wanted_x;
    }
    MUST(cudaStreamSynchronize(s.a));
    expect_all(z, wanted_z, "z");
    MUST(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal));
    three_in_a_chain(s.a, x.data, y.data, z.data);
    MUST(cudaStreamEndCapture(s.a, &graph));
    MUST(cudaGraphInstantiate(&exec, graph, 0));
    for (int round = 0; round < 3; round++) {
        MUST(cudaGraphLaunch(exec, s.a));
        wanted_x += 1, wanted_z += 2 * wanted_x;
    }
    MUST(cudaStreamSynchronize(s.a));
    expect_all(z, wanted_z, "z of the graph");
    MUST(cudaGraphExecDestroy(exec));
    MUST(cudaGraphDestroy(graph));
}

CONTRACT(HostFunctionsRunInTheirPlace, 80) {
    two_streams s;
    device_array<int> x(1);
    int *seen;
    MUST(cudaMallocHost((void **)&seen, 2 * sizeof(int)));
    seen[0] = 41;
    MUST(cudaMemcpyAsync(x, seen, sizeof(int), cudaMemcpyHostToDevice, s.a));
    MUST(PLEC_LAUNCH(add, dim3(1), dim3(32), 0, s.a, x.data, (const int *)x.data, 1, 1));
    MUST(cudaMemcpyAsync(seen + 1, x, sizeof(int), cudaMemcpyDeviceToHost, s.a));
    MUST(cudaLaunchHostFunc(
        s.a, [](void *user) { ((int *)user)[0] = ((int *)user)[1] * 2; }, seen));
    MUST(cudaStreamSynchronize(s.a));
    EXPECT_SAME(seen[0], 84, "seen");
    MUST(cudaFreeHost(seen));
}
