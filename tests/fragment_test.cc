#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "device/cuda/fragment/all.cuh"
#include "device/cuda/planes.cuh"
#include "tests/support/bank.h"
#include "tests/support/planes.h"

using namespace plec_test;

namespace {

#define FRAGMENT_TYPE(tag, name) , Fragment<tag, plec_fragment_##name>
template <class First, class... Rest> struct Tail { typedef ::testing::Types<Rest...> Types; };
typedef Tail<void PLEC_FOR_EACH_FRAGMENT(FRAGMENT_TYPE)>::Types Fragments;

template <class F> class Planes : public ::testing::Test {};
TYPED_TEST_SUITE(Planes, Fragments, );

/* Rows whose blocks are any bytes at all: every code and every scale, NaN and infinity with them.
 */
template <class T> Matrix any_bytes(uint32_t rows, uint32_t cols, uint32_t seed) {
    Random random(seed);
    Matrix m = random.matrix(T::tag, rows, cols);
    for (std::vector<uint8_t> *bytes : {&m.values, &m.scales})
        for (uint8_t &byte : *bytes)
            byte = static_cast<uint8_t>(random.below(256));
    float tensor_scale = 0.3f; /* nvfp4's last four bytes; of other formats just more bytes */
    if (plec_format_find(T::tag)->geometry == PLEC_TRAILING)
        memcpy(&m.values[m.values.size() - 4], &tensor_scale, 4);
    return m;
}

TYPED_TEST(Planes, HoldEveryWeightOfWholeAndOfRaggedRows) {
    uint32_t block = plec_format_find(TypeParam::tag)->block_elems;
    for (uint32_t cols : {32u, 64u, 96u, 256u, 512u, 672u, 736u, 1024u}) {
        if (cols % block != 0) continue;
        Random random(cols);
        Matrix m = random.matrix(TypeParam::tag, 5, cols);
        expect_same_weights<TypeParam>(m, cols);
    }
}

TYPED_TEST(Planes, HoldBlocksOfAnyBytes) {
    expect_same_weights<TypeParam>(any_bytes<TypeParam>(96, 1024, 3), 1024);
}

TYPED_TEST(Planes, HaveZeroCodesPastTheLastValidColumn) {
    Random random(9);
    Matrix m = random.matrix(TypeParam::tag, 3, 256);
    typedef typename TypeParam::type F;
    PlaneCopy<TypeParam> planes(m, 250);
    for (uint32_t r = 0; r < 3; r++)
        for (uint32_t k = 250; k < 256; k++)
            EXPECT_EQ(planes.code_bits(r, k), zero_code_bits<F>()) << r << " " << k;
}

TYPED_TEST(Planes, AreAlignedAndAsLargeAsTheyMustBe) {
    typedef typename TypeParam::type F;
    const struct plec_format *format = plec_format_find(TypeParam::tag);
    plec_planes planes = plec_planes_of<F>(64, 2048);
    EXPECT_EQ(plec_planes_group<F>::BYTES % 32, 0u); /* whole sectors, aligned for 16-byte copies */
    EXPECT_EQ(plec_planes_group<F>::RECORDS % 16, 0u);
    EXPECT_EQ(planes.factors % 128, 0u);
    double file = 64.0 * 2048 / format->block_elems * (format->block_bytes + format->scale_bytes);
    double most = TypeParam::tag == PLEC_FORMAT_GGUF_Q3_K ? 1.06 : 1.035;
    EXPECT_LT(static_cast<double>(planes.n_bytes), file * most + 256) << format->name;
    EXPECT_GE(static_cast<double>(planes.n_bytes), file * 0.99) << format->name;
    /* Sizes past 32 bits. */
    EXPECT_GT(plec_planes_of<F>(1u << 20, 1u << 20).n_bytes, UINT64_C(1) << 37);
}

TEST(FragmentPlaces, ArePermutationsThatMatchTheColumns) {
    for (uint32_t blocks : {16u, 32u, 256u}) {
        std::vector<int> seen(32);
        for (uint32_t c = 0; c < 4; c++)
            for (uint32_t i = 0; i < 8; i++) {
                uint32_t column = plec_fragment_column(blocks, c, i);
                ASSERT_LT(column, 32u);
                seen[column]++;
                EXPECT_EQ(plec_fragment_place(blocks, column), 8 * c + i);
                /* a step of the MMA is of one block */
                EXPECT_TRUE(blocks != 16 || column / 16 == i / 4);
            }
        EXPECT_EQ(seen, std::vector<int>(32, 1));
    }
}

TEST(FragmentScales, EveryF16OfBlocksOf32) {
    every_half_scale<Fragment<PLEC_FORMAT_Q4_0, plec_fragment_q4_0>>(0, 0);
    every_half_scale<Fragment<PLEC_FORMAT_Q8_0, plec_fragment_q8_0>>(0, 0);
    every_half_scale<Fragment<PLEC_FORMAT_GGUF_Q4_1, plec_fragment_q4_1>>(0, 2);
    every_half_scale<Fragment<PLEC_FORMAT_GGUF_Q5_0, plec_fragment_q5_0>>(0, 0);
    every_half_scale<Fragment<PLEC_FORMAT_GGUF_Q5_1, plec_fragment_q5_1>>(0, 2);
    every_half_scale<Fragment<PLEC_FORMAT_GGUF_IQ4_NL, plec_fragment_iq4_nl>>(0, 0);
}

TEST(FragmentScales, EveryByteOverEveryCode) {
    every_scale_byte<Fragment<PLEC_FORMAT_MXFP4, plec_fragment_mxfp4>>();
    every_scale_byte<Fragment<PLEC_FORMAT_MXFP8, plec_fragment_mxfp8>>();
    every_scale_byte<Fragment<PLEC_FORMAT_NVFP4, plec_fragment_nvfp4>>();
    every_scale_byte<Fragment<PLEC_FORMAT_FP4_LARQL, plec_fragment_fp4_larql>>();
    every_scale_byte<Fragment<PLEC_FORMAT_GGUF_MXFP4, plec_fragment_gguf_mxfp4>>();
    every_scale_byte<Fragment<PLEC_FORMAT_GGUF_NVFP4, plec_fragment_gguf_nvfp4>>();
}

TEST(FragmentFloats, EveryBitPatternIsExact) {
    every_sixteen_bits<Fragment<PLEC_FORMAT_BF16, plec_fragment_bf16>>();
    every_sixteen_bits<Fragment<PLEC_FORMAT_F16, plec_fragment_f16>>();
}

} // namespace
