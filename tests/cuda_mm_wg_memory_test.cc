// What mm_wg moves: the weights once a tile of tokens, in whole sectors, without bank conflicts.
#include "device/cuda/fragment/all.cuh"
#include "tests/emu/emulator.h"
#include "tests/support/mm_claims.h"

namespace {

using namespace plec_test;

/* Bytes of codes and scales of a row of planes. */
template <class F> uint64_t row_bytes_of(uint32_t cols) {
    uint64_t step = F::lane_words * 16 + F::record_words * 4 + F::super_words * 4;
    return (cols + F::k_step - 1) / F::k_step * step;
}

uint64_t row_bytes(uint16_t format, uint32_t cols) {
#define ROW_BYTES_OF(tag, name)                                                                    \
    if (format == tag) return row_bytes_of<plec_fragment_##name>(cols);
    PLEC_FOR_EACH_FRAGMENT(ROW_BYTES_OF)
    return 0;
}

enum { COLS = 512, CHANNELS = 64, TOKENS = 128 + 97 };

/* Gate and up of one expert on two tiles of tokens; down is f32. */
void run(uint16_t format) {
    CudaDevice cuda;
    BankSpec spec = mm_spec(format, format, PLEC_FORMAT_F32, 8, CHANNELS);
    spec.input_dim = COLS;
    spec.fusion = PLEC_FUSED_GATE_FIRST;
    spec.n_entries = 1;
    Bank bank(spec);
    PackedBank uploaded(&cuda, bank.get());
    CudaLaunch launch(&cuda, uploaded.get(), make_step(bank.get(), TOKENS, 1, 7));
    plec_emu_stats_start();
    launch.run();
    plec_emu_stats_stop();
}

double share(const struct plec_emu_line &line) {
    return static_cast<double>(line.n_bytes_used) / static_cast<double>(line.n_bytes_fetched);
}

class CudaMmWgMemory : public testing::TestWithParam<size_t> {};

void expect_whole_sectors(uint16_t format) {
    struct plec_emu_line weights =
        format == PLEC_FORMAT_BF16 ? plec_emu_stats("mm_wg_bf16", "mm_wg_bf16.cu", PLEC_EMU_BULK)
                                   : plec_emu_stats("mm_wg", "mm_weights.cuh", PLEC_EMU_COPY_ASYNC);
    EXPECT_EQ(weights.n_bytes_used, 2 * 2 * CHANNELS * row_bytes(format, COLS));
    EXPECT_GE(share(weights), 0.99);
    struct plec_emu_line tokens = plec_emu_stats("mm_wg", "mm_wg_tokens.cuh", PLEC_EMU_COPY_ASYNC);
    EXPECT_GE(tokens.n_bytes_used, uint64_t(TOKENS) * COLS * 2);
    EXPECT_LE(tokens.n_bytes_used, uint64_t(TOKENS) * COLS * 2 * 9 / 8); /* with sums */
    EXPECT_GE(share(tokens), 0.99);
}

#ifdef PLEC_CHECKED
/* Whether sums of the tokens are read beside the products. */
bool has_minimum(uint16_t format) {
#define HAS_MINIMUM(tag, name)                                                                     \
    if (format == tag) return plec_fragment_##name::has_minimum;
    PLEC_FOR_EACH_FRAGMENT(HAS_MINIMUM)
    return false;
}
#endif

/* Loads and stores are seen in the checked build; wgmma itself reads bf16 weights. */
void expect_no_conflicts(uint16_t format) {
#ifdef PLEC_CHECKED
    if (format == PLEC_FORMAT_BF16) {
        struct plec_emu_line products =
            plec_emu_stats("mm_wg_bf16", "mm_wg_bf16.cu", PLEC_EMU_SHARED_STORE);
        EXPECT_GT(products.n_waves, 0u);
        EXPECT_EQ(products.n_conflicts, 0u);
        return;
    }
    struct plec_emu_line weights = plec_emu_stats("mm_wg", "mm_weights.cuh", PLEC_EMU_SHARED_LOAD);
    EXPECT_GT(weights.n_waves, 0u);
    EXPECT_EQ(weights.n_conflicts, 0u);
    struct plec_emu_line sums = plec_emu_stats("mm_wg", "mm_wg_sums.cuh", PLEC_EMU_SHARED_LOAD);
    EXPECT_EQ(sums.n_waves != 0, has_minimum(format));
    EXPECT_EQ(sums.n_conflicts, 0u);
    struct plec_emu_line products =
        plec_emu_stats("mm_wg", "mm_wg_sums.cuh", PLEC_EMU_SHARED_STORE);
    EXPECT_GT(products.n_waves, 0u);
    EXPECT_EQ(products.n_conflicts, 0u);
#else
    (void)format;
#endif
}

/* Tiles of 128 and 97 tokens, each a product of its own for 16 columns and a warpgroup. */
TEST_P(CudaMmWgMemory, ReadsWeightsOnceATileInWholeSectorsWithoutBankConflicts) {
    uint16_t format = MM_FORMATS[GetParam()];
    run(format);
    expect_whole_sectors(format);
    expect_no_conflicts(format);
    /* f16 has two parts; a block of bf16 has twice the rows, half of them unused here. */
    uint64_t parts = format == PLEC_FORMAT_F16 || format == PLEC_FORMAT_BF16 ? 2 : 1;
    EXPECT_EQ(plec_emu_stats("mm_wg", NULL, PLEC_EMU_WGMMA).n_requests,
              parts * 2 * 2 * (COLS / 16));
}

INSTANTIATE_TEST_SUITE_P(, CudaMmWgMemory, testing::Range<size_t>(0, N_MM_FORMATS), mm_format_name);

} // namespace
