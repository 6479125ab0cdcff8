// mm_sync over a covering sample of formats, layouts, activations, shapes, tokens and experts.
#include "tests/support/mm_cases.h"

#include <set>
#include <utility>

namespace {

using namespace plec_test;

const int32_t MOST_RUNG = mm_most_rung() = PLEC_CUDA_MM_SYNC;

/* The values of one case, and the pairs of values it has. */
enum { FORMAT, LAYOUT, ACTIVATION, HIDDEN, INTERMEDIATE, N_FACTORS };
const uint32_t N_VALUES[N_FACTORS] = {uint32_t(N_MM_FORMATS), 4, PLEC_N_ACTIVATIONS, 6, 6};
const uint32_t DIMS[] = {32, 96, 672, 704, 2880, 2944};
typedef std::vector<uint32_t> Case;
typedef std::set<std::vector<uint32_t>> Pairs;

Pairs pairs_of(const Case &values) {
    Pairs pairs;
    for (uint32_t a = 0; a < N_FACTORS; a++)
        for (uint32_t b = a + 1; b < N_FACTORS; b++)
            pairs.insert({a, values[a], b, values[b]});
    return pairs;
}

size_t n_new(const Pairs &seen, const Case &values) {
    size_t n = 0;
    for (const std::vector<uint32_t> &pair : pairs_of(values))
        n += seen.count(pair) == 0;
    return n;
}

/* One case for every format and activation, the rest of it chosen to add most pairs, small before
 * large; then cases for the pairs that are left. */
std::vector<Case> covering_cases() {
    std::vector<Case> cases;
    Pairs seen;
    auto add = [&](uint32_t format, uint32_t activation) {
        Case best;
        size_t most = 0;
        for (uint32_t layout = 0; layout < N_VALUES[LAYOUT]; layout++)
            for (uint32_t h = 0; h < N_VALUES[HIDDEN]; h++)
                for (uint32_t i = 0; i < N_VALUES[INTERMEDIATE]; i++) {
                    Case one = {format, layout, activation, h, i};
                    size_t n = n_new(seen, one);
                    if (!best.empty() && n <= most) continue;
                    best = one, most = n;
                }
        cases.push_back(best);
        for (const std::vector<uint32_t> &pair : pairs_of(best))
            seen.insert(pair);
        return most;
    };
    for (uint32_t format = 0; format < N_VALUES[FORMAT]; format++)
        for (uint32_t activation = 0; activation < N_VALUES[ACTIVATION]; activation++)
            add(format, activation);
    for (uint32_t i = 0; i < 1000; i++) {
        size_t before = seen.size();
        add(i % N_VALUES[FORMAT], i / N_VALUES[FORMAT] % N_VALUES[ACTIVATION]);
        if (seen.size() == before) cases.pop_back();
    }
    return cases;
}

TEST(CudaMmSyncSlow, CoversEveryPairOfFormatLayoutActivationAndShape) {
    std::vector<Case> cases = covering_cases();
    Pairs seen;
    for (const Case &one : cases) {
        Pairs pairs = pairs_of(one);
        seen.insert(pairs.begin(), pairs.end());
    }
    size_t wanted = 0;
    for (uint32_t a = 0; a < N_FACTORS; a++)
        for (uint32_t b = a + 1; b < N_FACTORS; b++)
            wanted += N_VALUES[a] * N_VALUES[b];
    ASSERT_EQ(seen.size(), wanted);
    for (size_t i = 0; i < cases.size(); i++) {
        const Case &c = cases[i];
        int format = MM_FORMATS[c[FORMAT]];
        uint32_t h = whole_blocks(format, DIMS[c[HIDDEN]]), n = DIMS[c[INTERMEDIATE]];
        BankSpec spec = mm_spec(format, format, format, h, n);
        spec.fusion = static_cast<enum plec_fusion>(c[LAYOUT]);
        set_maths(&spec, static_cast<int>(c[ACTIVATION]));
        spec.bias = i % 3 == 0 ? PLEC_FORMAT_F32 : -1;
        spec.scales = i % 5 == 0;
        spec.n_entries = 1 + i % 3;
        SCOPED_TRACE(std::string(plec_format_find(MM_FORMATS[c[FORMAT]])->name) + ", " +
                     plec_activation_name(spec.maths.activation) + ", layout " +
                     std::to_string(c[LAYOUT]) + ", " + std::to_string(h) + " x " +
                     std::to_string(n));
        expect_case(spec, 1 + static_cast<uint32_t>(i % 2), 1);
    }
}

/* A format in turn, at its smallest shape. */
BankSpec small_spec(size_t turn, uint32_t n_entries) {
    int format = MM_FORMATS[turn % N_MM_FORMATS];
    if (n_entries > 129 && block_of(format) > 32) format = PLEC_FORMAT_Q4_0;
    BankSpec spec = mm_spec(format, format, format, whole_blocks(format, 32), 32);
    spec.fusion = static_cast<enum plec_fusion>(turn % 4);
    spec.n_entries = n_entries;
    return spec;
}

TEST(CudaMmSyncSlow, TakesEveryNumberOfTokens) {
    for (uint32_t n_tokens = 1; n_tokens <= 131; n_tokens++) {
        uint32_t t = n_tokens == 131 ? 512 : n_tokens;
        SCOPED_TRACE(std::to_string(t) + " tokens");
        expect_case(small_spec(n_tokens, 2 + n_tokens % 7), t, 2);
    }
}

TEST(CudaMmSyncSlow, TakesEveryNumberOfExperts) {
    size_t turn = 0;
    for (uint32_t n_entries : {1,  2,   3,   5,   7,   8,   31,  32,  33,  40,  60,
                               64, 127, 128, 129, 160, 256, 257, 384, 512, 896, 1024}) {
        SCOPED_TRACE(std::to_string(n_entries) + " experts");
        uint32_t n_slots = n_entries < 4 ? n_entries : 4;
        expect_case(small_spec(turn++, n_entries), 9, n_slots);
    }
}

} // namespace
