// What mm_sync and mm_bulk move at decode: every byte of the weights once, in whole sectors,
// without conflicts.
#include "device/cuda/fragment/all.cuh"
#include "device/cuda/planes.cuh"
#include "device/cuda/table.h"
#include "tests/emu/emulator.h"
#include "tests/support/mm_cases.h"

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

/* A gate and up of one expert on eight tokens. Down is f32, so that the workspace of the kernels
 * holds the planes of gate and up and nothing else. */
class Decode {
  public:
    Decode(CudaDevice *cuda, int format, int32_t rung,
           enum plec_fusion fusion = PLEC_FUSED_GATE_FIRST)
        : format_(static_cast<uint16_t>(format)) {
        plec_cuda_limit_rung(cuda->device, rung);
        BankSpec spec = mm_spec(format, format, PLEC_FORMAT_F32, 8, 64);
        spec.input_dim = 1024;
        spec.fusion = fusion;
        spec.n_entries = 1;
        Bank bank(spec);
        UploadedBank uploaded(cuda, bank.get());
        Step step = make_step(bank.get(), 8, 1, 7);
        CudaLaunch launch(cuda, uploaded.get(), step);
        planes_of_ = planes_of(format_, 128, 1024);
        planes_ = static_cast<uint8_t *>(launch.args.workspace) + planes_at(cuda, uploaded.get());
        plec_emu_stats_start();
        plec_emu_watch(planes_, weight_bytes());
        launch.run();
        plec_emu_stats_stop();
    }
    uint64_t weight_bytes() const { return group_bytes(format_, 128, 1024); }
    void expect_read_once() const {
        uint32_t fewest = 0, most = 0;
        ASSERT_TRUE(plec_emu_watched(planes_, &fewest, &most));
        EXPECT_EQ(fewest, 1u);
        EXPECT_EQ(most, 1u);
    }

  private:
    /* The kernels' own space ends the workspace: slots, planes, tokens, sums, each up to 256 bytes.
     */
    uint64_t planes_at(CudaDevice *cuda, const struct plec_bank *bank) const {
        uint64_t n_bytes = 0, planes = (planes_of_.n_bytes + 255) / 256 * 256;
        EXPECT_TRUE(plec_experts_workspace(&n_bytes, cuda->device, bank, 8, 1));
        return n_bytes - 8 * (1024 / 16) * 4 - 8 * 1024 * 2 - planes;
    }

    uint16_t format_;
    plec_planes planes_of_;
    uint8_t *planes_;
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

std::string mm_name(const testing::TestParamInfo<size_t> &test) {
    return plec_format_find(MM_FORMATS[test.param])->name;
}
INSTANTIATE_TEST_SUITE_P(, CudaMmMemory, testing::Range<size_t>(0, N_MM_FORMATS), mm_name);

} // namespace
