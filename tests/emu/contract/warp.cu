/* warp.cu: shuffles, votes, reductions, and the integer instructions codecs are made of. */
#include "device/cuda/ptx.cuh"
#include "tests/emu/contract/array.cuh"

static const unsigned ALL = 0xffffffffu;

static __global__ void shuffles(unsigned *out) { /* [32][8] */
    unsigned lane = threadIdx.x, value = lane * 3 + 1;
    out += lane * 8;
    out[0] = __shfl_sync(ALL, value, 5);
    out[1] = __shfl_up_sync(ALL, value, 2);
    out[2] = __shfl_down_sync(ALL, value, 3, 8);
    out[3] = __shfl_xor_sync(ALL, value, 16);
    if (lane < 16)
        out[4] = __shfl_xor_sync(0xffffu, value, 1);
    else
        out[4] = __shfl_sync(0xffff0000u, value, 20);
    out[5] = __float_as_uint(__shfl_sync(ALL, (float)lane, 7));
    out[6] = plec_lane();
    out[7] = __shfl_sync(ALL, value, 3, 8);
}

CONTRACT(ShufflesMoveValuesBetweenLanes, 80) {
    device_array<unsigned> out(32 * 8);
    MUST(PLEC_LAUNCH(shuffles, dim3(1), dim3(32), 0, 0, out.data));
    std::vector<unsigned> got = out.get();
    auto value = [](unsigned lane) { return lane * 3 + 1; };
    for (unsigned lane = 0; lane < 32; lane++) {
        unsigned want[8] = {value(5),
                            value(lane >= 2 ? lane - 2 : lane),
                            value((lane & 7) + 3 < 8 ? lane + 3 : lane),
                            value(lane ^ 16),
                            lane < 16 ? value(lane ^ 1) : value(20),
                            0x40e00000u,
                            lane,
                            value((lane & ~7u) + 3)};
        for (int i = 0; i < 8; i++)
            EXPECT_SAME(got[lane * 8 + i], want[i], "lane %u item %d", lane, i);
    }
}

static __global__ void votes(unsigned *out) { /* [32][8] */
    unsigned lane = threadIdx.x, value = lane * 3 + 1;
    out += lane * 8;
    out[0] = __ballot_sync(ALL, lane % 3 == 0);
    out[1] = __any_sync(ALL, lane == 31);
    out[2] = __all_sync(ALL, lane < 31);
    out[3] = __reduce_add_sync(ALL, value);
    out[4] = __reduce_max_sync(ALL, value);
    out[5] = __match_any_sync(ALL, lane / 4);
    out[6] = (unsigned)__reduce_min_sync(ALL, (int)lane - 20);
    out[7] = __reduce_xor_sync(ALL, value);
}

CONTRACT(VotesAndReductionsSeeAllLanes, 80) {
    device_array<unsigned> out(32 * 8);
    MUST(PLEC_LAUNCH(votes, dim3(1), dim3(32), 0, 0, out.data));
    std::vector<unsigned> got = out.get();
    unsigned sum = 0, ballot = 0, bits = 0;
    for (unsigned lane = 0; lane < 32; lane++) {
        sum += lane * 3 + 1;
        bits ^= lane * 3 + 1;
        if (lane % 3 == 0) ballot |= 1u << lane;
    }
    for (unsigned lane = 0; lane < 32; lane++) {
        unsigned want[8] = {ballot,        1,   0, sum, 31 * 3 + 1, 0xfu << (lane / 4 * 4),
                            (unsigned)-20, bits};
        for (int i = 0; i < 8; i++)
            EXPECT_SAME(got[lane * 8 + i], want[i], "lane %u item %d", lane, i);
    }
}

__constant__ int table[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                              1,    13,   25,  38,  53,  69,  89,  113};

static __global__ void integers(unsigned *out) { /* [32][8] */
    unsigned lane = threadIdx.x;
    out += lane * 8;
    out[0] = (unsigned)table[lane & 15];
    out[1] = (unsigned)__dp4a((int)(lane * 0x01010101u), 0x01ff0201, 5);
    out[2] = __byte_perm(0x33221100u, 0x77665544u, 0x5140);
    out[3] = __byte_perm(0x80017f00u, 0, 0xba98); /* sign bytes */
    out[4] = (unsigned)__popc(lane * 0x11u);
    out[5] = (unsigned)__clz((int)lane);
    out[6] = __brev(lane);
    out[7] = (unsigned)__ffs((int)lane);
}

CONTRACT(IntegerInstructionsCountAndPermute, 80) {
    static const int host_table[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};
    device_array<unsigned> out(32 * 8);
    MUST(PLEC_LAUNCH(integers, dim3(1), dim3(32), 0, 0, out.data));
    std::vector<unsigned> got = out.get();
    for (unsigned lane = 0; lane < 32; lane++) {
        int dot = 5 + (int)lane * (1 + 2 - 1 + 1);
        unsigned reversed = 0;
        for (int bit = 0; bit < 32; bit++)
            reversed |= (lane >> bit & 1) << (31 - bit);
        unsigned want[8] = {(unsigned)host_table[lane & 15],
                            (unsigned)dot,
                            0x55114400u,
                            0xff000000u,
                            (unsigned)__builtin_popcount(lane * 0x11u),
                            lane ? (unsigned)__builtin_clz(lane) : 32u,
                            reversed,
                            (unsigned)__builtin_ffs((int)lane)};
        for (int i = 0; i < 8; i++)
            EXPECT_SAME(got[lane * 8 + i], want[i], "lane %u item %d", lane, i);
    }
}
