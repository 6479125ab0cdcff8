// Mistakes between blocks, grids and streams, and of the host.
#include "tests/emu/mistakes.h"

#include <thread>

namespace {

using namespace plec_test;

/* ---- blocks ---------------------------------------------------------------------------------- */

template <bool WRONG> __global__ void write_own(int *out) {
    out[WRONG ? 0 : blockIdx.x] = 1;
}

TEST_F(Mistakes, BlocksWriteOneWord) {
    expect_reported("race", [&](bool wrong) {
        if (wrong)
            PLEC_LAUNCH(write_own<true>, dim3(2), dim3(1), 0, a, d);
        else
            PLEC_LAUNCH(write_own<false>, dim3(2), dim3(1), 0, a, d);
    });
}

enum Publish { RELEASED, PLAIN_FLAG, PLAIN_READ, NO_ACQUIRE };

/* Block 0 waits for the flags of the others and adds what they wrote. */
template <Publish HOW> __global__ void sum_by_flags(int *part, uint32_t *flag, int *out) {
    int b = blockIdx.x, t = threadIdx.x;
    part[b * 32 + t] = b;
    __syncthreads();
    if (b && t == 0) {
        if (HOW == PLAIN_FLAG)
            flag[b] = 1;
        else
            plec_store_release(&flag[b], 1);
    }
    if (b) return;
    for (unsigned i = 1; t == 0 && i < gridDim.x; i++) {
        if (HOW == PLAIN_READ)
            while (*(volatile uint32_t *)&flag[i] == 0)
                plec_spin();
        else if (HOW == NO_ACQUIRE)
            while (atomicAdd(&flag[i], 0u) == 0)
                plec_spin();
        else
            while (plec_load_acquire(&flag[i]) == 0)
                plec_spin();
    }
    __syncthreads();
    int sum = 0;
    for (unsigned i = 0; i < gridDim.x; i++)
        sum += part[i * 32 + t];
    out[t] = sum;
}

template <Publish HOW>
cudaError_t launch_flags(cudaStream_t stream, int *d, int *e, int n_threads = 32) {
    return PLEC_LAUNCH_AS(PLEC_LAUNCH_COOPERATIVE, sum_by_flags<HOW>, dim3(3), dim3(n_threads), 0,
                          stream, d, (uint32_t *)e, d + 512);
}

TEST_F(Mistakes, FlagStoredWithoutRelease) {
    expect_reported("race", [&](bool wrong) {
        if (wrong)
            launch_flags<PLAIN_FLAG>(a, d, e);
        else
            launch_flags<RELEASED>(a, d, e);
    });
}

TEST_F(Mistakes, FlagReadByAnOrdinaryLoad) {
    expect_reported("race", [&](bool wrong) {
        if (wrong)
            launch_flags<PLAIN_READ>(a, d, e);
        else
            launch_flags<RELEASED>(a, d, e);
    });
}

TEST_F(Mistakes, FlagSeenByAnAtomicWithoutAFenceAfterIt) {
    for (int n_threads : {1, 32}) /* by the thread that reads, and by another of its block */
        expect_reported("race", [&](bool wrong) {
            if (wrong)
                launch_flags<NO_ACQUIRE>(a, d, e, n_threads);
            else
                launch_flags<RELEASED>(a, d, e, n_threads);
        });
}

enum Fences { BOTH, NOT_BEFORE, NOT_AFTER };

template <Fences WHICH> __global__ void sum_by_last(int *part, unsigned *count, int *out) {
    PLEC_SHARED_STATIC(int, last);
    int t = threadIdx.x;
    part[blockIdx.x * 32 + t] = t;
    if (WHICH != NOT_BEFORE) __threadfence();
    __syncthreads();
    if (t == 0) last = atomicAdd(count, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    if (WHICH != NOT_AFTER) __threadfence();
    int sum = 0;
    for (unsigned i = 0; i < gridDim.x; i++)
        sum += part[i * 32 + t];
    out[t] = sum;
}

template <Fences WHICH> cudaError_t launch_last(cudaStream_t stream, int *d, int *e) {
    return PLEC_LAUNCH(sum_by_last<WHICH>, dim3(4), dim3(32), 0, stream, d, (unsigned *)e, d + 512);
}

TEST_F(Mistakes, LastBlockWithoutAFenceBeforeTheCount) {
    expect_reported("race", [&](bool wrong) {
        if (wrong)
            launch_last<NOT_BEFORE>(a, d, e);
        else
            launch_last<BOTH>(a, d, e);
    });
}

TEST_F(Mistakes, LastBlockWithoutAFenceAfterTheCount) {
    expect_reported("race", [&](bool wrong) {
        if (wrong)
            launch_last<NOT_AFTER>(a, d, e);
        else
            launch_last<BOTH>(a, d, e);
    });
}

/* Under random schedules all three may be under way at once; in turn they never are. */
TEST_F(Mistakes, BlocksWaitForEachOtherWithoutACooperativeLaunch) {
    expect_clean([&] { launch_flags<RELEASED>(a, d, e); });
    plec_emu_set_schedule(PLEC_EMU_FIFO, 0);
    ASSERT_EQ(cudaSuccess, cudaMemset(e, 0, N_INTS * sizeof(int)));
    PLEC_LAUNCH(sum_by_flags<RELEASED>, dim3(3), dim3(32), 0, a, d, (uint32_t *)e, d + 512);
    EXPECT_EQ(cudaErrorLaunchFailure, cudaDeviceSynchronize());
    EXPECT_GT(plec_emu_errors("livelock"), 0);
}

/* ---- dependent launches ---------------------------------------------------------------------- */

__global__ void write_all(int *to, int n, int value) {
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n;
         i += (int)(gridDim.x * blockDim.x))
        to[i] = value;
}

enum Waits { WAITS, WAITS_LATE, WAITS_IN_ONE_THREAD, NEVER_WAITS };

template <Waits HOW> __global__ void copy_dependent(int *to, const int *from) {
    int t = threadIdx.x, v = 0;
    if (HOW == WAITS) plec_grid_wait();
    if (HOW == WAITS_IN_ONE_THREAD) {
        if (t == 0) plec_grid_wait();
        __syncthreads();
    }
    if (HOW != NEVER_WAITS) v = from[t];
    if (HOW == WAITS_LATE) plec_grid_wait();
    to[t] = v;
    plec_grid_launch_dependents();
}

template <Waits HOW> void launch_pair(cudaStream_t stream, int *d, int *e) {
    PLEC_LAUNCH(write_all, dim3(1), dim3(32), 0, stream, d, 32, 7);
    PLEC_LAUNCH_AS(PLEC_LAUNCH_DEPENDENT, copy_dependent<HOW>, dim3(1), dim3(32), 0, stream, e,
                   (const int *)d);
}

TEST_F(Mistakes, DependentKernelReadsBeforeItWaits) {
    expect_reported("stream-race", [&](bool wrong) {
        if (wrong)
            launch_pair<WAITS_LATE>(a, d, e);
        else
            launch_pair<WAITS>(a, d, e);
    });
    expect_clean([&] { launch_pair<WAITS_IN_ONE_THREAD>(a, d, e); });
}

/* Writes before it waits what the kernel ahead reads. */
template <bool WRONG> __global__ void overwrite_dependent(int *to) {
    if (!WRONG) plec_grid_wait();
    to[threadIdx.x] = 3;
    if (WRONG) plec_grid_wait();
}

TEST_F(Mistakes, DependentKernelWritesBeforeItWaits) {
    expect_reported("stream-race", [&](bool wrong) {
        PLEC_LAUNCH(copy_dependent<WAITS>, dim3(1), dim3(32), 0, a, e, (const int *)d);
        if (wrong)
            PLEC_LAUNCH_AS(PLEC_LAUNCH_DEPENDENT, overwrite_dependent<true>, dim3(1), dim3(32), 0,
                           a, d);
        else
            PLEC_LAUNCH_AS(PLEC_LAUNCH_DEPENDENT, overwrite_dependent<false>, dim3(1), dim3(32), 0,
                           a, d);
    });
}

/* Copies that run behind the threads' backs are reads at their issue. */
enum Copies { BULK, ASYNC };

template <Copies HOW, bool EARLY> __global__ void prefetch_dependent(int *to, const int *from) {
    PLEC_SHARED_STATIC(int[64], stage);
    PLEC_SHARED_STATIC(uint64_t, word);
    unsigned barrier = plec_shared_address(&word), t = threadIdx.x;
    if (t == 0) {
        plec_mbarrier_init(barrier, HOW == BULK ? 1 : 16);
        plec_mbarrier_init_fence();
    }
    __syncthreads();
    if (!EARLY) plec_grid_wait();
    if (HOW == BULK && t == 0) {
        plec_mbarrier_arrive_expect(barrier, sizeof stage);
        plec_bulk_load(plec_shared_address(stage), from, sizeof stage, barrier);
    } else if (HOW == ASYNC && t < 16) {
        plec_copy_async_16(plec_shared_address(&stage[t * 4]), from + t * 4, true);
        plec_copy_async_arrive(barrier);
    }
    if (EARLY) plec_grid_wait();
    plec_mbarrier_wait(barrier, 0);
    to[t] = stage[t];
}

template <Copies HOW, bool EARLY> void launch_prefetch(cudaStream_t stream, int *d, int *e) {
    PLEC_LAUNCH(write_all, dim3(1), dim3(32), 0, stream, d, 64, 7);
    PLEC_LAUNCH_AS(PLEC_LAUNCH_DEPENDENT, (prefetch_dependent<HOW, EARLY>), dim3(1), dim3(64), 0,
                   stream, e, (const int *)d);
}

TEST_F(Mistakes, DependentKernelPrefetchesWhatTheKernelAheadWrites) {
    expect_reported("stream-race", [&](bool wrong) {
        if (wrong)
            launch_prefetch<BULK, true>(a, d, e);
        else
            launch_prefetch<BULK, false>(a, d, e);
    });
    expect_reported("stream-race", [&](bool wrong) {
        if (wrong)
            launch_prefetch<ASYNC, true>(a, d, e);
        else
            launch_prefetch<ASYNC, false>(a, d, e);
    });
}

/* Three kernels: what the first wrote may be read early by the third when the second waited before
 * it let the third start. */
enum Releases { WAITS_FIRST, RELEASES_FIRST, ENDS_WITHOUT_RELEASE, ONE_RELEASES_FIRST };

template <Releases HOW> __global__ void pass_on(int *to) {
    if (HOW == RELEASES_FIRST || (HOW == ONE_RELEASES_FIRST && threadIdx.x == 5))
        plec_grid_launch_dependents();
    plec_grid_wait();
    if (HOW != ENDS_WITHOUT_RELEASE) plec_grid_launch_dependents();
    to[threadIdx.x] = 1;
}

__global__ void read_early(int *to, const int *from) {
    int value = from[threadIdx.x];
    plec_grid_wait();
    to[threadIdx.x] = value;
}

template <Releases HOW> void launch_three(cudaStream_t stream, int *d, int *e) {
    PLEC_LAUNCH(write_all, dim3(1), dim3(32), 0, stream, d, 32, 7);
    PLEC_LAUNCH_AS(PLEC_LAUNCH_DEPENDENT, pass_on<HOW>, dim3(1), dim3(32), 0, stream, e + 64);
    PLEC_LAUNCH_AS(PLEC_LAUNCH_DEPENDENT, read_early, dim3(1), dim3(32), 0, stream, e,
                   (const int *)d);
}

TEST_F(Mistakes, KernelAheadLetsOthersStartBeforeItWaits) {
    expect_reported("stream-race", [&](bool wrong) {
        if (wrong)
            launch_three<RELEASES_FIRST>(a, d, e);
        else
            launch_three<WAITS_FIRST>(a, d, e);
    });
    expect_reported("stream-race", [&](bool wrong) {
        if (wrong)
            launch_three<ONE_RELEASES_FIRST>(a, d, e);
        else
            launch_three<ENDS_WITHOUT_RELEASE>(a, d, e);
    });
}

TEST_F(Mistakes, DependentKernelsOfAGraphReadBeforeTheyWait) {
    expect_reported("stream-race", [&](bool wrong) {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        EXPECT_EQ(cudaSuccess, cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
        if (wrong)
            launch_three<RELEASES_FIRST>(a, d, e);
        else
            launch_three<WAITS_FIRST>(a, d, e);
        EXPECT_EQ(cudaSuccess, cudaStreamEndCapture(a, &graph));
        EXPECT_EQ(cudaSuccess, cudaGraphInstantiate(&exec, graph, 0));
        EXPECT_EQ(cudaSuccess, cudaGraphDestroy(graph));
        EXPECT_EQ(cudaSuccess, cudaGraphLaunch(exec, a));
        EXPECT_EQ(cudaSuccess, cudaStreamSynchronize(a));
        EXPECT_EQ(cudaSuccess, cudaGraphExecDestroy(exec));
    });
}

TEST_F(Mistakes, DependentKernelNeverWaits) {
    expect_reported("dependent-launch", [&](bool wrong) {
        if (wrong)
            launch_pair<NEVER_WAITS>(a, d, e);
        else
            launch_pair<WAITS>(a, d, e);
    });
}

/* ---- streams --------------------------------------------------------------------------------- */

__global__ void copy_all(int *to, const int *from, int n) {
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        to[i] = from[i];
}

TEST_F(Mistakes, StreamReadsWhatAnotherWrites) {
    expect_reported("stream-race", [&](bool wrong) {
        PLEC_LAUNCH(write_all, dim3(2), dim3(32), 0, a, d, 64, 7);
        if (!wrong) {
            EXPECT_EQ(cudaSuccess, cudaEventRecord(event, a));
            EXPECT_EQ(cudaSuccess, cudaStreamWaitEvent(b, event, 0));
        }
        PLEC_LAUNCH(copy_all, dim3(1), dim3(32), 0, b, e, (const int *)d, 64);
    });
    expect_said("write_all");
}

TEST_F(Mistakes, EventRecordedBeforeTheWork) {
    expect_reported("stream-race", [&](bool wrong) {
        if (wrong) cudaEventRecord(event, a);
        PLEC_LAUNCH(write_all, dim3(2), dim3(32), 0, a, d, 64, 7);
        if (!wrong) cudaEventRecord(event, a);
        cudaStreamWaitEvent(b, event, 0);
        PLEC_LAUNCH(copy_all, dim3(1), dim3(32), 0, b, e, (const int *)d, 64);
    });
}

TEST_F(Mistakes, PinnedMemoryWrittenWhileItsCopyIsPending) {
    expect_reported("stream-race", [&](bool wrong) {
        cudaMemcpyAsync(d, h, 256, cudaMemcpyHostToDevice, a);
        if (!wrong) cudaStreamSynchronize(a);
        h[0] = 5;
    });
}

TEST_F(Mistakes, PinnedMemoryReadBeforeItsCopyIsWaitedFor) {
    volatile int sink = 0;
    expect_reported("stream-race", [&](bool wrong) {
        cudaMemcpyAsync(h, d, 256, cudaMemcpyDeviceToHost, a);
        cudaEventRecord(event, a);
        if (!wrong) cudaEventSynchronize(event);
        sink = h[0];
    });
}

TEST_F(Mistakes, HostFunctionReadsWhatAnotherStreamCopies) {
    static int seen;
    auto look = [](void *pinned) { seen = *(int *)pinned; };
    expect_reported("stream-race", [&](bool wrong) {
        cudaMemcpyAsync(h, d, 256, cudaMemcpyDeviceToHost, a);
        cudaLaunchHostFunc(wrong ? b : a, look, h);
    });
    EXPECT_EQ(0, seen);
}

TEST_F(Mistakes, RuntimeCalledFromAHostFunction) {
    auto call = [](void *) { cudaGetLastError(); };
    auto nothing = [](void *) {};
    expect_reported("host-function", [&](bool wrong) {
        cudaLaunchHostFunc(a, wrong ? (cudaHostFn_t)call : (cudaHostFn_t)nothing, nullptr);
    });
}

/* ---- memory ---------------------------------------------------------------------------------- */

TEST_F(Mistakes, MemoryFreedByAnotherStream) {
    expect_reported(nullptr, [&](bool wrong) {
        int *p;
        ASSERT_EQ(cudaSuccess, cudaMallocAsync((void **)&p, 256, a));
        PLEC_LAUNCH(write_all, dim3(1), dim3(32), 0, a, p, 64, 7);
        cudaEventRecord(event, a);
        cudaStreamWaitEvent(b, event, 0);
        if (wrong) cudaFreeAsync(p, a);
        PLEC_LAUNCH(copy_all, dim3(1), dim3(32), 0, b, e, (const int *)p, 64);
        if (!wrong) cudaFreeAsync(p, b);
    });
}

TEST_F(Mistakes, MemoryUsedAfterItWasFreed) {
    expect_reported("oob", [&](bool wrong) {
        if (wrong) {
            ASSERT_EQ(cudaSuccess, cudaFree(d));
        }
        PLEC_LAUNCH(write_all, dim3(1), dim3(32), 0, a, d, 64, 7);
    });
    expect_said("FREED");
}

TEST_F(Mistakes, MemoryFreedTwice) {
    expect_reported("free", [&](bool wrong) {
        EXPECT_EQ(cudaSuccess, cudaFree(d));
        if (wrong) {
            EXPECT_EQ(cudaErrorInvalidValue, cudaFree(d));
        }
    });
    expect_said("FREED");
}

TEST_F(Mistakes, MemoryFreedAsTheOtherKind) {
    expect_reported("free", [&](bool wrong) {
        EXPECT_EQ(wrong ? cudaErrorInvalidValue : cudaSuccess,
                  wrong ? cudaFreeHost(d) : cudaFreeHost(h));
    });
}

TEST_F(Mistakes, CopyRunsOutOfItsMemory) {
    expect_reported("memcpy", [&](bool wrong) {
        std::vector<int> from(N_INTS + 1);
        EXPECT_EQ(
            wrong ? cudaErrorInvalidValue : cudaSuccess,
            cudaMemcpy(d, from.data(), (N_INTS + wrong) * sizeof(int), cudaMemcpyHostToDevice));
    });
}

TEST_F(Mistakes, CopyInTheWrongDirection) {
    expect_reported("memcpy", [&](bool wrong) {
        cudaMemcpyKind kind = wrong ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice;
        EXPECT_EQ(wrong ? cudaErrorInvalidMemcpyDirection : cudaSuccess,
                  cudaMemcpyAsync(d, h, 4, kind, a));
    });
}

TEST_F(Mistakes, MemsetRunsOutOfItsMemory) {
    expect_reported("memset",
                    [&](bool wrong) { cudaMemsetAsync(d, 0, N_INTS * sizeof(int) + wrong, a); });
}

TEST_F(Mistakes, HostReadsDeviceMemory) {
    expect_clean([] {});
    EXPECT_EXIT(
        {
            volatile int x = d[0];
            (void)x;
        },
        testing::ExitedWithCode(67), "host-deref: the host touches device memory");
}

TEST_F(Mistakes, MemoryAndStreamsNeverFreed) {
    EXPECT_EXIT(
        {
            void *memory;
            cudaStream_t stream;
            plec_emu_reset();
            plec_emu_set_quiet(false);
            cudaMalloc(&memory, 100);
            cudaStreamCreate(&stream);
            exit(0);
        },
        testing::ExitedWithCode(66),
        "leak: device allocation .* of 100 bytes not freed; 1 stream.s. not destroyed");
}

/* ---- graphs ---------------------------------------------------------------------------------- */

TEST_F(Mistakes, CaptureBrokenByACallThatWaits) {
    expect_reported("capture", [&](bool wrong) {
        cudaGraph_t graph;
        EXPECT_EQ(cudaSuccess, cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal));
        PLEC_LAUNCH(write_all, dim3(1), dim3(32), 0, a, d, 64, 1);
        if (wrong) {
            EXPECT_EQ(cudaErrorStreamCaptureUnsupported, cudaStreamSynchronize(b));
        }
        EXPECT_EQ(wrong ? cudaErrorStreamCaptureInvalidated : cudaSuccess,
                  cudaStreamEndCapture(a, &graph));
    });
}

TEST_F(Mistakes, CaptureBrokenByCallsThatGlobalModeForbids) {
    void *memory;
    auto each = [&](bool wrong, auto call) {
        cudaGraph_t graph;
        cudaStreamBeginCapture(a,
                               wrong ? cudaStreamCaptureModeGlobal : cudaStreamCaptureModeRelaxed);
        EXPECT_EQ(!wrong, call() == cudaSuccess);
        cudaStreamEndCapture(a, &graph);
    };
    expect_reported("capture", [&](bool wrong) {
        each(wrong, [&] { return cudaMalloc(&memory, 16); });
        each(wrong, [&] { return cudaMallocHost(&memory, 16); });
        each(wrong, [&] { return cudaEventQuery(event); });
        each(wrong, [&] { return cudaMemcpy(h, d, 16, cudaMemcpyDeviceToHost); });
        if (wrong) {
            EXPECT_EQ(4, plec_emu_errors("capture"));
        }
    });
}

TEST_F(Mistakes, CaptureWithABranchThatIsNotJoined) {
    expect_reported("capture", [&](bool wrong) {
        cudaGraph_t graph;
        cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal);
        cudaEventRecord(event, a);
        cudaStreamWaitEvent(b, event, 0);
        PLEC_LAUNCH(write_all, dim3(1), dim3(32), 0, b, d, 64, 2);
        cudaEventRecord(event_2, b);
        if (!wrong) cudaStreamWaitEvent(a, event_2, 0);
        EXPECT_EQ(wrong ? cudaErrorStreamCaptureUnjoined : cudaSuccess,
                  cudaStreamEndCapture(a, &graph));
    });
}

TEST_F(Mistakes, CaptureThatWaitsForWorkOutsideIt) {
    expect_reported("capture", [&](bool wrong) {
        cudaGraph_t graph;
        if (wrong) cudaEventRecord(event, b);
        cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal);
        if (wrong) {
            EXPECT_EQ(cudaErrorStreamCaptureIsolation, cudaStreamWaitEvent(a, event, 0));
        }
        PLEC_LAUNCH(write_all, dim3(1), dim3(32), 0, a, d, 64, 1);
        cudaStreamEndCapture(a, &graph);
    });
}

TEST_F(Mistakes, CaptureBrokenByAWaitForTheWholeDevice) {
    expect_reported("capture", [&](bool wrong) {
        cudaGraph_t graph;
        cudaError_t waited = cudaSuccess;
        cudaStreamBeginCapture(a, cudaStreamCaptureModeThreadLocal);
        std::thread([&] {
            waited = wrong ? cudaDeviceSynchronize() : cudaStreamSynchronize(b);
        }).join();
        EXPECT_EQ(wrong ? cudaErrorStreamCaptureUnsupported : cudaSuccess, waited);
        EXPECT_EQ(wrong ? cudaErrorStreamCaptureInvalidated : cudaSuccess,
                  cudaStreamEndCapture(a, &graph));
    });
}

TEST_F(Mistakes, CaptureThatAnotherThreadEnds) {
    expect_reported("capture", [&](bool wrong) {
        cudaGraph_t graph;
        cudaError_t ended = cudaSuccess;
        cudaStreamBeginCapture(a, wrong ? cudaStreamCaptureModeThreadLocal
                                        : cudaStreamCaptureModeRelaxed);
        std::thread([&] { ended = cudaStreamEndCapture(a, &graph); }).join();
        EXPECT_EQ(wrong ? cudaErrorStreamCaptureWrongThread : cudaSuccess, ended);
        if (wrong) cudaStreamEndCapture(a, &graph);
        cudaGraphDestroy(graph);
    });
}

TEST_F(Mistakes, EventOfACaptureThatHasEnded) {
    expect_reported("capture", [&](bool wrong) {
        cudaGraph_t graph;
        cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal);
        cudaEventRecord(event, a);
        ASSERT_EQ(cudaSuccess, cudaStreamEndCapture(a, &graph));
        if (!wrong) cudaEventRecord(event, a);
        EXPECT_EQ(wrong ? cudaErrorStreamCaptureIsolation : cudaSuccess,
                  cudaStreamWaitEvent(b, event, 0));
        cudaGraphDestroy(graph);
    });
}

TEST_F(Mistakes, BranchesOfAGraphRace) {
    expect_reported("stream-race", [&](bool wrong) {
        cudaGraph_t graph;
        cudaGraphExec_t exec;
        cudaStreamBeginCapture(a, cudaStreamCaptureModeGlobal);
        if (!wrong) PLEC_LAUNCH(write_all, dim3(1), dim3(32), 0, a, d, 64, 1);
        cudaEventRecord(event, a);
        cudaStreamWaitEvent(b, event, 0);
        if (wrong) PLEC_LAUNCH(write_all, dim3(1), dim3(32), 0, a, d, 64, 1);
        PLEC_LAUNCH(copy_all, dim3(1), dim3(32), 0, b, e, (const int *)d, 64);
        cudaEventRecord(event_2, b);
        cudaStreamWaitEvent(a, event_2, 0);
        ASSERT_EQ(cudaSuccess, cudaStreamEndCapture(a, &graph));
        ASSERT_EQ(cudaSuccess, cudaGraphInstantiate(&exec, graph, 0));
        for (int replay = 0; replay < 2; replay++)
            EXPECT_EQ(cudaSuccess, cudaGraphLaunch(exec, a));
        cudaStreamSynchronize(a);
        cudaGraphExecDestroy(exec);
        cudaGraphDestroy(graph);
    });
}

} // namespace
