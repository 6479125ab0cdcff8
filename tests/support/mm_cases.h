/* mm_cases.h: launches of experts made of one or more formats, held to the reference element by
 * element, with poisoned outputs and a canary behind them. For tests of the GEMM kernels. */
#ifndef PLEC_TESTS_SUPPORT_MM_CASES_H
#define PLEC_TESTS_SUPPORT_MM_CASES_H

#include "device/cuda/table.h"
#include "tests/support/cuda_device.h"
#include "tests/support/mm_ties.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace plec_test {

const uint16_t MM_FORMATS[] = {
    PLEC_FORMAT_BF16,       PLEC_FORMAT_F16,         PLEC_FORMAT_Q8_0,
    PLEC_FORMAT_Q4_0,       PLEC_FORMAT_MXFP4,       PLEC_FORMAT_Q4_K,
    PLEC_FORMAT_Q6_K,       PLEC_FORMAT_NVFP4,       PLEC_FORMAT_MXFP8,
    PLEC_FORMAT_FP4_LARQL,  PLEC_FORMAT_GGUF_Q4_1,   PLEC_FORMAT_GGUF_Q5_0,
    PLEC_FORMAT_GGUF_Q5_1,  PLEC_FORMAT_GGUF_Q5_K,   PLEC_FORMAT_GGUF_Q2_K,
    PLEC_FORMAT_GGUF_Q3_K,  PLEC_FORMAT_GGUF_IQ4_NL, PLEC_FORMAT_GGUF_IQ4_XS,
    PLEC_FORMAT_GGUF_MXFP4, PLEC_FORMAT_GGUF_NVFP4};
const size_t N_MM_FORMATS = sizeof MM_FORMATS / sizeof MM_FORMATS[0];

inline uint32_t block_of(int format) {
    return plec_format_find(static_cast<uint16_t>(format))->block_elems;
}
/* n up to whole blocks of a format. */
inline uint32_t whole_blocks(int format, uint32_t n) {
    uint32_t block = block_of(format);
    return (n + block - 1) / block * block;
}

/* Limits and betas that bite: a third of the gate and up values of such banks are beyond them. */
inline void set_maths(BankSpec *spec, int activation) {
    double size = 0.06 * std::sqrt(spec->input_dim);
    spec->maths = {static_cast<enum plec_activation>(activation), size, 1.702, 1.5 * size,
                   2.5 * size};
}

/* Dimensions as the formats' blocks allow; down gets padding columns when its block asks. */
inline BankSpec mm_spec(int gate, int up, int down, uint32_t h, uint32_t n) {
    BankSpec spec;
    spec.gate = gate, spec.up = up, spec.down = down;
    spec.input_dim = std::max(gate < 0 ? 0 : whole_blocks(gate, h), whole_blocks(up, h));
    spec.intermediate_dim = n;
    spec.down_cols = whole_blocks(down, n);
    spec.output_dim = h;
    return spec;
}

/* No kernel of cases is above this rung: tests of one are not of those that replace it. */
inline int32_t &mm_most_rung() {
    static int32_t rung = INT32_MAX;
    return rung;
}
class MmDevice : public CudaDevice {
  public:
    MmDevice() { plec_cuda_limit_rung(device, mm_most_rung()); }
};

const double MM_CLOSE = 1e-7, MM_NEAR = 4e-5;
enum { CANARY = 64 };

/* A bank in one block of device memory, for banks of very many experts. */
class PackedBank {
  public:
    PackedBank(CudaDevice *on, const struct plec_bank *bank) : bank_(*bank) {
        entries_.assign(bank->entries, bank->entries + bank->n_entries);
        std::vector<uint8_t> bytes;
        for (int pass = 0; pass < 2; pass++) {
            size_t at = 0;
            for (struct plec_entry &entry : entries_)
                for (int id = 0; id < PLEC_N_OPERANDS; id++)
                    place(&entry, id, pass == 1, &at, &bytes);
            if (pass == 0) {
                memory_ = static_cast<uint8_t *>(on->poisoned(at));
                bytes.resize(at);
            }
        }
        on->copy(memory_, bytes.data(), bytes.size());
        on->sync();
        arrive(on, &bank_, &entries_);
        if (bank_.arrived) { /* launches read what arrived, and nothing else */
            EXPECT_EQ(plec_fill(memory_, 0xFF, bytes.size(), on->stream, &on->err), PLEC_OK);
            on->sync();
        }
        bank_.entries = entries_.data();
    }
    const struct plec_bank *get() const { return &bank_; }

  private:
    void place(struct plec_entry *entry, int id, bool put, size_t *at,
               std::vector<uint8_t> *bytes) {
        const struct plec_operand &operand = bank_.operands[id];
        uint64_t n_values = 0, n_scales = 0;
        if (entry->values[id] == nullptr) return;
        EXPECT_EQ(plec_format_size(&n_values, &n_scales, operand.format, operand.rows, operand.cols,
                                   nullptr),
                  PLEC_OK);
        if (put) entry->values[id] = store(entry->values[id], n_values, *at, bytes);
        *at += (n_values + 63) / 64 * 64;
        if (n_scales == 0 || id >= PLEC_N_MATRICES) return;
        if (put) entry->scales[id] = store(entry->scales[id], n_scales, *at, bytes);
        *at += (n_scales + 63) / 64 * 64;
    }
    const uint8_t *store(const uint8_t *from, uint64_t n, size_t at, std::vector<uint8_t> *bytes) {
        memcpy(bytes->data() + at, from, n);
        return memory_ + at;
    }

    struct plec_bank bank_;
    std::vector<struct plec_entry> entries_;
    uint8_t *memory_ = nullptr;
};

/* What a launch gave, the canary's bytes checked. */
inline std::vector<float> run_with_canary(CudaDevice *cuda, const struct plec_bank *bank,
                                          const Step &step) {
    CudaLaunch launch(cuda, bank, step);
    size_t n = launch.n_values;
    float *y = static_cast<float *>(cuda->poisoned((n + CANARY) * sizeof(float)));
    if (!step.y.empty()) cuda->copy(y, step.y.data(), n * sizeof(float));
    launch.args.y = y;
    launch.phase(PLEC_EXPERTS_ALL);
    std::vector<float> got = cuda->download(y, n + CANARY);
    for (size_t i = n; i < n + CANARY; i++) {
        uint32_t bits;
        memcpy(&bits, &got[i], 4);
        EXPECT_EQ(bits, 0xFFFFFFFFu) << "a value " << i - n << " behind the output";
    }
    got.resize(n);
    return got;
}

/* No element further from the wanted one than a hundredth of the token's own size: where the
 * activation of one channel rules a token, its rounding to the other side is 2^-8 to 2^-7 of it; an
 * output computed without one of its blocks is much further off. */
inline void expect_elements(const std::vector<float> &got, const std::vector<double> &wanted,
                            size_t width) {
    for (size_t t = 0; t < wanted.size() / width; t++) {
        double size = 0;
        for (size_t i = 0; i < width; i++)
            size += wanted[t * width + i] * wanted[t * width + i];
        size = std::sqrt(size / static_cast<double>(width));
        for (size_t i = 0; i < width; i++) {
            double off = std::fabs(got[t * width + i] - wanted[t * width + i]);
            if (off <= 1e-2 * size) continue; /* a NaN is not */
            ADD_FAILURE() << "token " << t << " output " << i << ": got " << got[t * width + i]
                          << ", wanted " << wanted[t * width + i] << ", size " << size;
            return;
        }
    }
}

/* The reference by the kernels' rule, its ties as the kernel rounded them where they matter. */
inline std::vector<double> reference_beside(const std::vector<float> &got,
                                            const struct plec_bank *bank, const Step &step) {
    std::vector<double> wanted = reference_step(bank, step, PLEC_REFERENCE_BF16);
    return nmse(got, wanted) < MM_CLOSE ? wanted : MmTies(bank, step).nearest(got, wanted);
}

inline void expect_right(const std::vector<float> &got, const struct plec_bank *bank,
                         const Step &step) {
    std::vector<double> wanted = reference_beside(got, bank, step);
    EXPECT_LT(nmse(got, wanted), MM_CLOSE);
    EXPECT_LT(nmse(got, reference_step(bank, step)), MM_NEAR);
    expect_elements(got, wanted, bank->output_dim);
}

/* A launch is right, twice the same, and leaves alone what is not its own. */
inline void expect_case(const BankSpec &spec, const Step &step) {
    MmDevice cuda;
    Bank bank(spec);
    PackedBank uploaded(&cuda, bank.get());
    std::vector<float> got = run_with_canary(&cuda, uploaded.get(), step);
    expect_right(got, bank.get(), step);
    std::vector<float> again = run_with_canary(&cuda, uploaded.get(), step);
    EXPECT_EQ(memcmp(got.data(), again.data(), got.size() * sizeof got[0]), 0);
}

inline void expect_case(const BankSpec &spec, uint32_t n_tokens, uint32_t n_slots) {
    Bank bank(spec); /* of its shape alone */
    expect_case(spec, make_step(bank.get(), n_tokens, n_slots, 7));
}

/* A step of one slot that gives each expert so many rows, tokens of all of them mixed. */
inline Step step_with_rows(const struct plec_bank *bank, const std::vector<uint32_t> &rows) {
    Step step = make_step(bank, 0, 1, 3);
    for (size_t e = 0; e < rows.size(); e++)
        for (uint32_t i = 0; i < rows[e]; i++)
            step.ids.push_back(static_cast<int32_t>(e));
    std::mt19937 shuffle(1);
    std::shuffle(step.ids.begin(), step.ids.end(), shuffle);
    step.n_tokens = static_cast<uint32_t>(step.ids.size());
    step.x = Random(8).normals(size_t(step.n_tokens) * bank->input_dim);
    step.weights.assign(step.ids.size(), 1.0f);
    return step;
}

} // namespace plec_test
#endif
