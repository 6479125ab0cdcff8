// What mm_sync moves in tiles of every width, for gate and up and for a down that is split: every
// byte of the weights once a tile, in whole sectors, without bank conflicts. mm_fma likewise.
#include "tests/support/mm_traffic.h"

namespace {

using namespace plec_test;

const struct {
    TrafficOf of;
    uint32_t n_rows;
} CASES[] = {{GATE_UP_TRAFFIC, 8}, {DOWN_TRAFFIC, 8},     {DOWN_TRAFFIC, 1},  {GATE_UP_TRAFFIC, 32},
             {DOWN_TRAFFIC, 33},   {GATE_UP_TRAFFIC, 65}, {DOWN_TRAFFIC, 128}};

/* Tiles of an expert of so many rows. */
uint32_t n_tiles(uint16_t format, uint32_t n_rows) {
    uint32_t width = n_rows <= 8 ? 8 : 32;
#define WIDEST(tag, name)                                                                          \
    if (format == tag && n_rows > 64) width = plec_fragment_##name::widest;
    PLEC_FOR_EACH_FRAGMENT(WIDEST)
#undef WIDEST
    return (n_rows + width - 1) / width;
}

double used(const struct plec_emu_line &line) {
    return static_cast<double>(line.n_bytes_used) / static_cast<double>(line.n_bytes_fetched);
}

/* Sums of tokens are asked for in pieces of 8 to 32 bytes, the wider the tile the smaller: what is
 * left of a sector is in the L1 cache when the next request of the thread asks for it. */
double least_used_of_tokens(uint16_t format, uint32_t n_rows) {
    bool has_sums = false;
#define HAS_SUMS(tag, name)                                                                        \
    if (format == tag)                                                                             \
        has_sums = plec_fragment_##name::offset != 0 || plec_fragment_##name::has_minimum;
    PLEC_FOR_EACH_FRAGMENT(HAS_SUMS)
#undef HAS_SUMS
    return !has_sums ? 0.99 : n_rows <= 8 ? 0.94 : n_rows <= 64 ? 0.89 : 0.74;
}

class CudaMmTraffic : public testing::TestWithParam<size_t> {};

/* The products are right (cuda_mm_sync_test), so that no byte can be left out: as many bytes as
 * there are were read once each. */
TEST_P(CudaMmTraffic, IsEveryByteOfTheWeightsOnceATileInWholeSectors) {
    uint16_t format = MM_FORMATS[GetParam()];
    for (const auto &tiles : CASES) {
        SCOPED_TRACE(std::to_string(tiles.n_rows) + (tiles.of == DOWN_TRAFFIC ? " down" : " gate"));
        Traffic traffic = traffic_of(format, tiles.of, tiles.n_rows);
        EXPECT_EQ(traffic.weights.n_bytes_used,
                  n_tiles(format, tiles.n_rows) * traffic.weight_bytes);
        EXPECT_GE(used(traffic.weights), 0.99);
        EXPECT_GE(used(traffic.tokens), least_used_of_tokens(format, tiles.n_rows));
#ifdef PLEC_CHECKED /* loads are seen */
        EXPECT_GT(traffic.loop.n_waves, 0u);
        EXPECT_EQ(traffic.loop.n_conflicts, 0u);
#endif
    }
}

/* f32 is read as it lies in the file: every byte of it is watched. */
TEST(CudaMmFmaTraffic, IsEveryByteOfTheWeightsOnceATileInWholeSectors) {
    for (uint32_t n_rows : {1u, 8u, 32u, 33u}) {
        SCOPED_TRACE(std::to_string(n_rows) + " rows");
        CudaDevice cuda;
        BankSpec spec = mm_spec(PLEC_FORMAT_F32, PLEC_FORMAT_F32, PLEC_FORMAT_F32, 64, 2048);
        spec.n_entries = 1;
        Bank bank(spec);
        PackedBank uploaded(&cuda, bank.get());
        CudaLaunch launch(&cuda, uploaded.get(), make_step(bank.get(), n_rows, 1, 7));
        const uint8_t *const *values = uploaded.get()->entries[0].values;
        plec_emu_stats_start();
        for (int id = 0; id < PLEC_N_MATRICES; id++)
            plec_emu_watch(values[id], 64 * 2048 * 4);
        launch.run();
        plec_emu_stats_stop();
        for (int id = 0; id < PLEC_N_MATRICES; id++) {
            uint32_t fewest = 0, most = 0;
            ASSERT_TRUE(plec_emu_watched(values[id], &fewest, &most));
            EXPECT_EQ(fewest, n_rows > 32 ? 2u : 1u) << id;
            EXPECT_EQ(most, fewest) << id;
        }
        EXPECT_GE(used(plec_emu_stats("mm_fma", NULL, PLEC_EMU_COPY_ASYNC)), 0.99);
#ifdef PLEC_CHECKED
        struct plec_emu_line loop = plec_emu_stats("mm_fma", NULL, PLEC_EMU_SHARED_LOAD);
        EXPECT_GT(loop.n_waves, 0u);
        EXPECT_EQ(loop.n_conflicts, 0u);
#endif
    }
}

std::string mm_name(const testing::TestParamInfo<size_t> &test) {
    return plec_format_find(MM_FORMATS[test.param])->name;
}
INSTANTIATE_TEST_SUITE_P(, CudaMmTraffic, testing::Range<size_t>(0, N_MM_FORMATS), mm_name);

} // namespace
