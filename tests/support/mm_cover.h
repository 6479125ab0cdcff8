/* mm_cover.h: a covering sample of cases of a GEMM kernel: every pair of values of format, layout,
 * activation, hidden and intermediate size; and that a case is of the kernel it is meant for. */
#ifndef PLEC_TESTS_SUPPORT_MM_COVER_H
#define PLEC_TESTS_SUPPORT_MM_COVER_H

#include "tests/support/mm_cases.h"

#include <functional>

#include <set>

namespace plec_test {

enum MmFactor { MM_FORMAT, MM_LAYOUT, MM_ACTIVATION, MM_HIDDEN, MM_INTERMEDIATE, N_MM_FACTORS };
typedef std::vector<uint32_t> MmCase; /* a value of each factor */

/* How cases are chosen where every token costs much: large ones rarely, and none whose matrices are
 * larger than `most`. */
struct MmThrift {
    double dear = 0; /* how much a weight of a case counts against it, beside one */
    uint64_t most = UINT64_MAX;
};

class MmCover {
  public:
    explicit MmCover(const std::vector<uint32_t> &dims, const MmThrift &thrift = MmThrift(),
                     const std::vector<uint16_t> &formats = {MM_FORMATS, MM_FORMATS + N_MM_FORMATS})
        : dims_(dims), formats_(formats), thrift_(thrift) {
        uint32_t n = static_cast<uint32_t>(dims.size());
        n_values_ = {static_cast<uint32_t>(formats.size()), 4, PLEC_N_ACTIVATIONS, n, n};
        choose();
    }
    const std::vector<MmCase> &cases() const { return cases_; }

    /* Whether every pair of values is in a case, but for sizes that are too large together. */
    bool is_whole() const {
        size_t wanted = 0;
        for (uint32_t a = 0; a < N_MM_FACTORS; a++)
            for (uint32_t b = a + 1; b < N_MM_FACTORS; b++)
                wanted += n_values_[a] * n_values_[b];
        for (uint64_t h : dims_)
            for (uint64_t i : dims_)
                wanted -= h * i > thrift_.most;
        Pairs seen;
        for (const MmCase &one : cases_)
            add_pairs(&seen, one);
        return seen.size() == wanted;
    }

    /* Case i with biases, scales and experts in turn. */
    BankSpec spec(size_t i) const {
        const MmCase &c = cases_[i];
        int format = formats_[c[MM_FORMAT]];
        BankSpec spec = mm_spec(format, format, format, whole_blocks(format, dims_[c[MM_HIDDEN]]),
                                dims_[c[MM_INTERMEDIATE]]);
        spec.fusion = static_cast<enum plec_fusion>(c[MM_LAYOUT]);
        set_maths(&spec, static_cast<int>(c[MM_ACTIVATION]));
        spec.bias = i % 3 == 0 ? PLEC_FORMAT_F32 : -1;
        spec.scales = i % 5 == 0;
        spec.n_entries = 1 + i % 3;
        return spec;
    }
    std::string name(size_t i) const {
        const MmCase &c = cases_[i];
        return std::string(plec_format_find(formats_[c[MM_FORMAT]])->name) + ", " +
               plec_activation_name(static_cast<enum plec_activation>(c[MM_ACTIVATION])) +
               ", layout " + std::to_string(c[MM_LAYOUT]) + ", " +
               std::to_string(dims_[c[MM_HIDDEN]]) + " x " +
               std::to_string(dims_[c[MM_INTERMEDIATE]]);
    }

  private:
    typedef std::set<std::vector<uint32_t>> Pairs;

    static void add_pairs(Pairs *pairs, const MmCase &values) {
        for (uint32_t a = 0; a < N_MM_FACTORS; a++)
            for (uint32_t b = a + 1; b < N_MM_FACTORS; b++)
                pairs->insert({a, values[a], b, values[b]});
    }
    static size_t n_new(const Pairs &seen, const MmCase &values) {
        Pairs pairs;
        size_t n = 0;
        add_pairs(&pairs, values);
        for (const std::vector<uint32_t> &pair : pairs)
            n += seen.count(pair) == 0;
        return n;
    }
    /* The case of this format and activation that adds most pairs, small before large. */
    MmCase best(const Pairs &seen, uint32_t format, uint32_t activation) const {
        MmCase best;
        double most = 0;
        for (uint32_t layout = 0; layout < n_values_[MM_LAYOUT]; layout++)
            for (uint32_t h = 0; h < n_values_[MM_HIDDEN]; h++)
                for (uint32_t i = 0; i < n_values_[MM_INTERMEDIATE]; i++) {
                    MmCase one = {format, layout, activation, h, i};
                    uint64_t n_weights = uint64_t(dims_[h]) * dims_[i];
                    if (n_weights > thrift_.most) continue;
                    double n = static_cast<double>(n_new(seen, one)) /
                               (1 + thrift_.dear * static_cast<double>(n_weights));
                    if (!best.empty() && n <= most) continue;
                    best = one, most = n;
                }
        return best;
    }
    /* One case for every format and activation, then cases for the pairs that are left. */
    void choose() {
        Pairs seen;
        for (uint32_t i = 0; i < n_values_[MM_FORMAT] * n_values_[MM_ACTIVATION]; i++) {
            cases_.push_back(
                best(seen, i / n_values_[MM_ACTIVATION], i % n_values_[MM_ACTIVATION]));
            add_pairs(&seen, cases_.back());
        }
        for (uint32_t i = 0; i < 1000; i++) {
            MmCase one = best(seen, i % n_values_[MM_FORMAT],
                              i / n_values_[MM_FORMAT] % n_values_[MM_ACTIVATION]);
            if (n_new(seen, one) == 0) continue;
            cases_.push_back(one);
            add_pairs(&seen, one);
        }
    }

    std::vector<uint32_t> dims_, n_values_;
    std::vector<uint16_t> formats_;
    MmThrift thrift_;
    std::vector<MmCase> cases_;
};

/* Whether that kernel is one of those that run a case's gate_up and down on a device as MmDevice
 * opens it. */
inline bool mm_runs_on(const BankSpec &spec, const char *kernel) {
    MmDevice cuda;
    Bank bank(spec);
    char name[PLEC_KERNEL_NAME_MAX];
    for (enum plec_operand_id id : {PLEC_GATE, PLEC_DOWN}) {
        const char *runs = plec_device_operand_kernel(cuda.device, bank.get(), id, name);
        if (runs == nullptr || strstr(runs, kernel) == nullptr) return false;
    }
    return true;
}

const uint32_t MM_EXPERT_COUNTS[] = {1,  2,   3,   5,   7,   8,   31,  32,  33,  40,  60,
                                     64, 127, 128, 129, 160, 256, 257, 384, 512, 896, 1024};

/* from, .. 130 tokens, and 512; turn: 131 for those. */
inline void for_each_token_count(uint32_t from,
                                 const std::function<void(uint32_t turn, uint32_t n)> &expect) {
    for (uint32_t turn = from; turn <= 131; turn++) {
        uint32_t n_tokens = turn == 131 ? 512 : turn;
        SCOPED_TRACE(std::to_string(n_tokens) + " tokens");
        expect(turn, n_tokens);
    }
}
inline void for_each_expert_count(const std::function<void(size_t turn, uint32_t n)> &expect) {
    size_t turn = 0;
    for (uint32_t n_entries : MM_EXPERT_COUNTS) {
        SCOPED_TRACE(std::to_string(n_entries) + " experts");
        expect(turn++, n_entries);
    }
}

/* A format in turn, at its smallest shape. */
inline BankSpec small_spec(size_t turn, uint32_t n_entries) {
    int format = MM_FORMATS[turn % N_MM_FORMATS];
    if (n_entries > 129 && block_of(format) > 32) format = PLEC_FORMAT_Q4_0;
    BankSpec spec = mm_spec(format, format, format, whole_blocks(format, 32), 32);
    spec.fusion = static_cast<enum plec_fusion>(turn % 4);
    spec.n_entries = n_entries;
    return spec;
}

} // namespace plec_test
#endif
