// What mm_sync moves at decode: every byte of the weights once, in whole sectors, without
// conflicts.
#include "device/cuda/fragment/all.cuh"
#include "device/cuda/planes.cuh"
#include "tests/emu/emulator.h"
#include "tests/support/mm_cases.h"

namespace {

using namespace plec_test;

struct PlaneSizes {
    plec_planes planes;
    uint64_t codes, records, supers; /* bytes of each plane */
};

template <class F> PlaneSizes sizes_of(uint32_t rows, uint32_t cols) {
    PlaneSizes sizes;
    sizes.planes = plec_planes_of<F>(rows, cols);
    uint64_t cells = uint64_t(sizes.planes.n_steps) * rows;
    sizes.codes = cells * F::lane_words * 16;
    sizes.records = cells * F::record_words * 4;
    sizes.supers = cells * F::super_words * 4;
    return sizes;
}

PlaneSizes plane_sizes(uint16_t format, uint32_t rows, uint32_t cols) {
#define SIZES_OF(tag, name)                                                                        \
    if (format == tag) return sizes_of<plec_fragment_##name>(rows, cols);
    PLEC_FOR_EACH_FRAGMENT(SIZES_OF)
    return {};
}

/* A gate and up of one expert on eight tokens. Down is f32, so that the workspace of the kernels
 * holds the planes of gate and up and nothing else. */
class Decode {
  public:
    Decode(CudaDevice *cuda, int format) : format_(static_cast<uint16_t>(format)) {
        BankSpec spec = mm_spec(format, format, PLEC_FORMAT_F32, 8, 64);
        spec.input_dim = 1024;
        spec.fusion = PLEC_FUSED_GATE_FIRST;
        spec.n_entries = 1;
        Bank bank(spec);
        UploadedBank uploaded(cuda, bank.get());
        Step step = make_step(bank.get(), 8, 1, 7);
        CudaLaunch launch(cuda, uploaded.get(), step);
        sizes_ = plane_sizes(format_, 128, 1024);
        planes_ = static_cast<uint8_t *>(launch.args.workspace) + planes_at(cuda, uploaded.get());
        plec_emu_stats_start();
        watch(0, sizes_.codes);
        watch(sizes_.planes.records, sizes_.records);
        watch(sizes_.planes.supers, sizes_.supers);
        launch.run();
        plec_emu_stats_stop();
    }
    uint64_t weight_bytes() const { return sizes_.codes + sizes_.records + sizes_.supers; }
    void expect_read_once() const {
        expect_once(0, sizes_.codes);
        expect_once(sizes_.planes.records, sizes_.records);
        expect_once(sizes_.planes.supers, sizes_.supers);
    }

  private:
    /* The kernels' own space ends the workspace: slots, planes, tokens, sums, each up to 256 bytes.
     */
    uint64_t planes_at(CudaDevice *cuda, const struct plec_bank *bank) const {
        uint64_t n_bytes = 0, planes = (sizes_.planes.n_bytes + 255) / 256 * 256;
        EXPECT_TRUE(plec_experts_workspace(&n_bytes, cuda->device, bank, 8, 1));
        return n_bytes - 8 * (1024 / 16) * 4 - 8 * 1024 * 2 - planes;
    }
    void watch(uint64_t at, uint64_t n_bytes) {
        if (n_bytes != 0) plec_emu_watch(planes_ + at, n_bytes);
    }
    void expect_once(uint64_t at, uint64_t n_bytes) const {
        uint32_t fewest = 0, most = 0;
        if (n_bytes == 0) return;
        ASSERT_TRUE(plec_emu_watched(planes_ + at, &fewest, &most));
        EXPECT_EQ(fewest, 1u) << "plane at " << at;
        EXPECT_EQ(most, 1u) << "plane at " << at;
    }

    uint16_t format_;
    PlaneSizes sizes_;
    uint8_t *planes_;
};

class CudaMmMemory : public testing::TestWithParam<size_t> {};

TEST_P(CudaMmMemory, ReadsEveryByteOfTheWeightsOnceInWholeSectors) {
    CudaDevice cuda;
    Decode decode(&cuda, MM_FORMATS[GetParam()]);
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
    Decode decode(&cuda, MM_FORMATS[GetParam()]);
    for (const char *file : {"mm_weights.cuh", "mm_sync.cuh"}) {
        struct plec_emu_line line = plec_emu_stats("mm_sync", file, PLEC_EMU_SHARED_LOAD);
        EXPECT_GT(line.n_waves, 0u) << file;
        EXPECT_EQ(line.n_conflicts, 0u) << file;
    }
}

std::string mm_name(const testing::TestParamInfo<size_t> &test) {
    return plec_format_find(MM_FORMATS[test.param])->name;
}
INSTANTIATE_TEST_SUITE_P(, CudaMmMemory, testing::Range<size_t>(0, N_MM_FORMATS), mm_name);

} // namespace
