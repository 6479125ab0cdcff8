#include <gtest/gtest.h>

#include "device/cuda/fragment/all.cuh"
#include "tests/support/planes.h"

using namespace plec_test;

namespace {

/* Where d and dmin stand in each block. */
TEST(FragmentScalesSlow, EveryF16OfBlocksOf256) {
    every_half_scale<Fragment<PLEC_FORMAT_Q4_K, plec_fragment_q4_k>>(0, 2);
    every_half_scale<Fragment<PLEC_FORMAT_Q6_K, plec_fragment_q6_k>>(208, 208);
    every_half_scale<Fragment<PLEC_FORMAT_GGUF_Q2_K, plec_fragment_q2_k>>(80, 82);
    every_half_scale<Fragment<PLEC_FORMAT_GGUF_Q3_K, plec_fragment_q3_k>>(108, 108);
    every_half_scale<Fragment<PLEC_FORMAT_GGUF_Q5_K, plec_fragment_q5_k>>(0, 2);
    every_half_scale<Fragment<PLEC_FORMAT_GGUF_IQ4_XS, plec_fragment_iq4_xs>>(0, 0);
}

} // namespace
