// What launches of mm_sync and mm_bulk move at decode: every byte of the weights once, in whole
// sectors, without conflicts; nothing else of them is read or written.
#include "device/cuda/fragment/all.cuh"
#include "device/cuda/planes.cuh"
#include "device/cuda/table.h"
#include "tests/support/mm_cases.h"
#include "tests/support/moved.h"

namespace {

using namespace plec_test;

plec_planes planes_of(uint16_t format, uint32_t rows, uint32_t cols) {
#define PLANES_OF(tag, name)                                                                       \
    if (format == tag) return plec_planes_of<plec_fragment_##name>(rows, cols);
    PLEC_FOR_EACH_FRAGMENT(PLANES_OF)
    return {};
}

/* Bytes of codes and scales: all of the groups, as of rows that fill them. */
uint64_t group_bytes(uint16_t format, uint32_t rows, uint32_t cols) {
#define GROUP_BYTES(tag, name)                                                                     \
    if (format == tag)                                                                             \
        return plec_planes_at<plec_fragment_##name>(planes_of(format, rows, cols),                 \
                                                    planes_of(format, rows, cols).n_steps, 0);
    PLEC_FOR_EACH_FRAGMENT(GROUP_BYTES)
    return 0;
}

/* Dynamic shared memory of a block of eight tokens. */
uint32_t narrow_bytes(const char *kernel, uint16_t format) {
    const char *symbol = nullptr;
    for (size_t i = 0; const struct plec_cuda_gemm *gemm = plec_cuda_gemm_at(&symbol, i); i++)
        if (gemm->format == format && strcmp(gemm->name, kernel) == 0) return gemm->shared_bytes[0];
    return 0;
}

/* A gate and up of one expert, as they arrived, on eight tokens. Down is f32 and has no planes:
 * all that the other kernels read of weights is of gate and up. */
class Decode {
  public:
    Decode(CudaDevice *cuda, int format, int32_t rung,
           enum plec_fusion fusion = PLEC_FUSED_GATE_FIRST, uint32_t n_channels = 64,
           uint32_t n_columns = 1024)
        : format_(static_cast<uint16_t>(format)), rows_(2 * n_channels), cols_(n_columns) {
        plec_cuda_limit_rung(cuda->device, rung);
        BankSpec spec = mm_spec(format, format, PLEC_FORMAT_F32, 8, n_channels);
        spec.input_dim = n_columns;
        spec.fusion = fusion;
        spec.n_entries = 1;
        Bank bank(spec);
        PackedBank uploaded(cuda, bank.get());
        Step step = make_step(bank.get(), 8, 1, 7);
        CudaLaunch launch(cuda, uploaded.get(), step);
        planes_ = uploaded.get()->entries[0].values[PLEC_GATE];
        plec_emu_stats_start();
        plec_emu_watch(planes_, weight_bytes());
        launch.run();
        plec_emu_stats_stop();
        moved_ = moved();
    }
    uint64_t weight_bytes() const { return group_bytes(format_, rows_, cols_); }
    Moved all() const { return moved_; }
    void expect_read_once() const {
        uint32_t fewest = 0, most = 0;
        ASSERT_TRUE(plec_emu_watched(planes_, &fewest, &most));
        EXPECT_EQ(fewest, 1u);
        EXPECT_EQ(most, 1u);
    }

  private:
    uint16_t format_;
    uint32_t rows_, cols_;
    const uint8_t *planes_;
    Moved moved_;
};

class CudaMmMemory : public testing::TestWithParam<size_t> {};

TEST_P(CudaMmMemory, ReadsEveryByteOfTheWeightsOnceInWholeSectors) {
    CudaDevice cuda;
    Decode decode(&cuda, MM_FORMATS[GetParam()], PLEC_CUDA_MM_SYNC);
    decode.expect_read_once();
    struct plec_emu_line line = plec_emu_stats("mm_sync", "mm_weights.cuh", PLEC_EMU_COPY_ASYNC);
    EXPECT_EQ(line.n_bytes_used, decode.weight_bytes());
    EXPECT_GE(static_cast<double>(line.n_bytes_used),
              0.99 * static_cast<double>(line.n_bytes_fetched));
}

/* Where SMs have 100 KB of shared memory (sm_89) and 164 KB (sm_80), by what copies of a block are
 * really under way; the launch bounds leave registers for three blocks. */
TEST_P(CudaMmMemory, Keeps48KilobytesOfWeightsInFlightOnAnSm) {
    CudaDevice cuda;
    Decode decode(&cuda, MM_FORMATS[GetParam()], PLEC_CUDA_MM_SYNC, PLEC_FUSED_GATE_FIRST, 64,
                  2048);
    uint64_t of_a_block = plec_emu_stats_under_way("mm_sync", "mm_weights.cuh");
    uint32_t taken = narrow_bytes("mm_sync", MM_FORMATS[GetParam()]) + 1024;
    ASSERT_GT(taken, 1024u);
    for (uint32_t shared : {100 * 1024, 164 * 1024})
        EXPECT_GE(std::min(3u, shared / taken) * of_a_block, 48u * 1024) << shared;
}

TEST_P(CudaMmMemory, HasNoBankConflictsInItsMainLoop) {
#ifndef PLEC_CHECKED
    GTEST_SKIP() << "loads are seen in the checked build";
#endif
    CudaDevice cuda;
    Decode decode(&cuda, MM_FORMATS[GetParam()], PLEC_CUDA_MM_SYNC);
    for (const char *file : {"mm_weights.cuh", "mm_sync.cuh"}) {
        struct plec_emu_line line = plec_emu_stats("mm_sync", file, PLEC_EMU_SHARED_LOAD);
        EXPECT_GT(line.n_waves, 0u) << file;
        EXPECT_EQ(line.n_conflicts, 0u) << file;
    }
}

/* Twice the channels are twice the planes, and of every row a few words of where it lies and what
 * becomes of it: a launch that made planes, or read the file's bytes, would move each weight again.
 */
TEST_P(CudaMmMemory, MovesAWeightOnceInALaunchAndWritesNone) {
#ifndef PLEC_CHECKED
    GTEST_SKIP() << "loads are seen in the checked build";
#endif
    for (int32_t rung : {PLEC_CUDA_MM_SYNC, PLEC_CUDA_MM_BULK}) {
        SCOPED_TRACE(rung);
        CudaDevice one, two;
        Decode half(&one, MM_FORMATS[GetParam()], rung, PLEC_FUSED_GATE_FIRST, 64);
        Decode whole(&two, MM_FORMATS[GetParam()], rung, PLEC_FUSED_GATE_FIRST, 128);
        EXPECT_EQ(plec_emu_stats("split", NULL, -1).n_requests, 0u);
        uint64_t loaded = whole.all().loaded - half.all().loaded;
        uint64_t stored = whole.all().stored - half.all().stored;
        EXPECT_GE(loaded, half.weight_bytes());
        EXPECT_LE(loaded, half.weight_bytes() + 128 * 16) << "of 128 rows";
        EXPECT_EQ(stored, 64u * 8 * sizeof(float)); /* act alone */
    }
}

const enum plec_fusion FUSIONS[] = {PLEC_FUSED_GATE_FIRST, PLEC_FUSED_INTERLEAVED};

TEST_P(CudaMmMemory, CopiesEveryByteOfTheWeightsOnceInLargeRuns) {
    for (enum plec_fusion fusion : FUSIONS) {
        CudaDevice cuda;
        Decode decode(&cuda, MM_FORMATS[GetParam()], PLEC_CUDA_MM_BULK, fusion);
        decode.expect_read_once();
        struct plec_emu_line line = plec_emu_stats("mm_bulk", "mm_bulk.cuh", PLEC_EMU_BULK);
        EXPECT_EQ(line.n_bytes, decode.weight_bytes());
        EXPECT_EQ(line.n_bytes_fetched, decode.weight_bytes());
        EXPECT_GE(line.n_bytes / line.n_requests, 2048u);
        line = plec_emu_stats("mm_bulk", "mm_weights.cuh", PLEC_EMU_COPY_ASYNC);
        EXPECT_EQ(line.n_requests, 0u);
    }
}

TEST_P(CudaMmMemory, HasNoBankConflictsWhereBulkCopiesLie) {
#ifndef PLEC_CHECKED
    GTEST_SKIP() << "loads are seen in the checked build";
#endif
    for (enum plec_fusion fusion : FUSIONS) {
        CudaDevice cuda;
        Decode decode(&cuda, MM_FORMATS[GetParam()], PLEC_CUDA_MM_BULK, fusion);
        for (const char *file : {"mm_bulk_shape.cuh", "mm_sync.cuh"}) {
            struct plec_emu_line line = plec_emu_stats("mm_bulk", file, PLEC_EMU_SHARED_LOAD);
            EXPECT_GT(line.n_waves, 0u) << file;
            EXPECT_EQ(line.n_conflicts, 0u) << file << " layout " << fusion;
        }
    }
}

/* A launch of few tokens needs room for them, not for its weights. */
TEST(CudaMmWorkspace, HoldsNoWeights) {
    CudaDevice cuda;
    for (uint16_t format : MM_FORMATS) {
        BankSpec spec = mm_spec(format, format, format, 1024, 512);
        spec.n_entries = 1;
        Bank bank(spec);
        struct plec_bank many = *bank.get();
        struct plec_arrival arrival;
        uint64_t n_bytes = 0;
        many.n_entries = 64;
        ASSERT_EQ(plec_device_arrival(&arrival, cuda.device, &many, nullptr), PLEC_OK);
        ASSERT_TRUE(plec_experts_workspace(&n_bytes, cuda.device, &many, 1, 8));
        EXPECT_LT(n_bytes, arrival.n_bytes) << plec_format_find(format)->name;
    }
}

std::string mm_name(const testing::TestParamInfo<size_t> &test) {
    return plec_format_find(MM_FORMATS[test.param])->name;
}
INSTANTIATE_TEST_SUITE_P(, CudaMmMemory, testing::Range<size_t>(0, N_MM_FORMATS), mm_name);

} // namespace
