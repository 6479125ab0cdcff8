// The launch table: which kernel runs which rows of an operand.
#include "device/cuda/table.h"
#include "tests/support/mm_cases.h"

namespace {

using namespace plec_test;

enum { FORMAT = 7, TENSOR_ORDER = PLEC_CUDA_ORDER_MMA };

int never_gate_up(const struct plec_cuda_gate_up_args *, cudaStream_t) {
    return 0;
}
int never_down(const struct plec_cuda_down_args *, cudaStream_t) {
    return 0;
}

struct plec_cuda_gemm gemm(const char *name, int rung, uint32_t arch, int order, uint32_t s,
                           uint32_t m, uint32_t l) {
    struct plec_cuda_gemm out = {};
    out.name = name, out.format = FORMAT, out.rung = rung, out.least_arch = arch, out.order = order;
    out.widths[PLEC_CUDA_S] = s, out.widths[PLEC_CUDA_M] = m, out.widths[PLEC_CUDA_L] = l;
    out.gate_up = never_gate_up, out.down = never_down;
    return out;
}

/* A whole plain kernel, one for all tensor cores, one for few rows and one of another order for
 * many. */
class Table : public testing::Test {
  public:
    Table()
        : gemms_{gemm("plain", PLEC_CUDA_PLAIN, 80, PLEC_CUDA_ORDER_PLAIN, 8, 8, 8),
                 gemm("sync", PLEC_CUDA_MM_SYNC, 80, TENSOR_ORDER, 8, 32, 32),
                 gemm("bulk", PLEC_CUDA_MM_BULK, 90, TENSOR_ORDER, 8, 0, 0),
                 gemm("wg", PLEC_CUDA_WGMMA, 90, PLEC_CUDA_ORDER_PLAIN, 0, 0, 128)} {
        ask_.arch = 90, ask_.most_rung = INT32_MAX, ask_.format = FORMAT;
    }
    std::string chosen() {
        struct plec_cuda_kernels kernels;
        char name[PLEC_KERNEL_NAME_MAX];
        std::vector<const struct plec_cuda_gemm *> places;
        for (const struct plec_cuda_gemm &place : gemms_)
            places.push_back(&place);
        ask_.gemms = places.data(), ask_.n_gemms = places.size();
        return plec_cuda_kernels_choose(&kernels, &ask_) ? plec_cuda_kernels_name(&kernels, name)
                                                         : "none";
    }

  protected:
    std::vector<struct plec_cuda_gemm> gemms_;
    struct plec_cuda_ask ask_ = {};
};

TEST_F(Table, TakesTheHighestRungOfEachClassOfRows) {
    EXPECT_EQ(chosen(), "S bulk, M sync, L wg");
    std::swap(gemms_[0], gemms_[3]);
    std::swap(gemms_[1], gemms_[2]);
    EXPECT_EQ(chosen(), "S bulk, M sync, L wg");
}

TEST_F(Table, LeavesOutWhatTheArchitectureOrTheDeviceCannotRun) {
    ask_.arch = 89;
    EXPECT_EQ(chosen(), "sync");
    gemms_[3].most_arch = 90;
    ask_.arch = 100;
    EXPECT_EQ(chosen(), "S bulk, M sync, L sync");
    ask_.arch = 90;
    EXPECT_EQ(chosen(), "S bulk, M sync, L wg");
    ask_.most_rung = PLEC_CUDA_MM_BULK;
    EXPECT_EQ(chosen(), "S bulk, M sync, L sync");
    ask_.most_rung = PLEC_CUDA_PLAIN;
    EXPECT_EQ(chosen(), "plain");
    gemms_.erase(gemms_.begin());
    EXPECT_EQ(chosen(), "none");
}

TEST_F(Table, KeepsToOneOrderOfSumsWhereOutputsShallNotDependOnTheBatch) {
    ask_.batch_invariant = true;
    EXPECT_EQ(chosen(), "S bulk, M sync, L sync");
    gemms_[3].order = TENSOR_ORDER;
    EXPECT_EQ(chosen(), "S bulk, M sync, L wg");
}

TEST_F(Table, RunsAnOperandWholeOnThePlainRung) {
    gemms_.erase(gemms_.begin() + 1); /* nothing else takes 9 to 64 rows */
    EXPECT_EQ(chosen(), "plain");
    gemms_.erase(gemms_.begin());
    EXPECT_EQ(chosen(), "none");
}

/* What the launches rely on, of every place of the real table. */
TEST(LaunchTable, HasKernelsThatCanShareAnOperand) {
    const char *symbol;
    const struct plec_cuda_gemm *one, *other;
    for (size_t i = 0; (one = plec_cuda_gemm_at(&symbol, i)) != nullptr; i++) {
        SCOPED_TRACE(symbol);
        EXPECT_EQ(std::string(symbol).rfind(std::string("plec_cuda_") + one->name + "_", 0), 0u);
        EXPECT_LT(one->order, PLEC_CUDA_ORDERS);
        for (size_t j = 0; (other = plec_cuda_gemm_at(&symbol, j)) != nullptr; j++) {
            if (j == i || other->format != one->format) continue;
            EXPECT_NE(one->rung, other->rung) << symbol;
            if (one->down_splits == nullptr || other->down_splits == nullptr) continue;
            for (uint32_t rows : {32u, 64u, 2880u, 7168u})
                for (uint32_t cols : {256u, 2048u, 2816u, 14336u})
                    EXPECT_EQ(one->down_splits(rows, cols), other->down_splits(rows, cols))
                        << symbol << " " << rows << " x " << cols;
        }
    }
}

TEST_F(Table, CutsTheRowsOfAnOperandIntoLaunchesWithoutAGap) {
    const struct plec_cuda_gemm *plain = &gemms_[0], *sync = &gemms_[1], *bulk = &gemms_[2],
                                *wg = &gemms_[3];
    const struct {
        struct plec_cuda_kernels kernels;
        std::vector<uint32_t> ends, widths;
    } cases[] = {{{{plain, plain, plain}}, {UINT32_MAX}, {8}},
                 {{{sync, sync, sync}}, {8, UINT32_MAX}, {8, 32}},
                 {{{bulk, sync, sync}}, {8, UINT32_MAX}, {8, 32}},
                 {{{bulk, sync, wg}}, {8, 64, UINT32_MAX}, {8, 32, 128}}};
    for (const auto &c : cases) {
        struct plec_cuda_share shares[PLEC_CUDA_CLASSES];
        uint32_t n = plec_cuda_kernels_share(shares, &c.kernels), least = 1;
        ASSERT_EQ(n, c.ends.size());
        for (uint32_t i = 0; i < n; i++) {
            EXPECT_EQ(shares[i].rows.least_rows, least);
            EXPECT_EQ(shares[i].rows.most_rows, c.ends[i]);
            EXPECT_EQ(shares[i].rows.width, c.widths[i]);
            least = c.ends[i] + 1;
        }
    }
}

TEST(LaunchTable, NamesTheKernelsOfABank) {
    struct plec_device_options plain = {};
    plain.plain_c = true;
    CudaDevice cuda(&plain);
    char text[PLEC_EXPERTS_KERNELS_MAX];
    Bank bank(mm_spec(PLEC_FORMAT_Q4_0, PLEC_FORMAT_Q4_0, PLEC_FORMAT_Q8_0, 32, 64));
    plec_device_experts_kernels(text, cuda.device, bank.get());
    EXPECT_STREQ(text, "gate q4_0 plain, up q4_0 plain, down q8_0 plain");
}

} // namespace
