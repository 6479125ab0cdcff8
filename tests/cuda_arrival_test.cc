// Experts that arrive on a CUDA device: planes are those the host makes with the same lines, all
// else is as the file has it, and launches read what arrived.
#include "device/cuda/fragment/all.cuh"
#include "device/cuda/kernels.h"
#include "tests/support/mm_cases.h"
#include "tests/support/planes.h"

#include <cstring>

namespace {

using namespace plec_test;

/* The planes of a matrix as the host makes them. */
std::vector<uint32_t> host_planes(const struct plec_matrix &from, uint32_t n_valid) {
    Matrix m;
    uint64_t values = 0, scales = 0;
    m.format = from.format, m.rows = from.rows, m.cols = from.cols;
    EXPECT_EQ(plec_format_size(&values, &scales, m.format, m.rows, m.cols, nullptr), PLEC_OK);
    m.values.assign(from.values, from.values + values);
    if (scales != 0) m.scales.assign(from.scales, from.scales + scales);
#define PLANES_OF(tag, name)                                                                       \
    if (m.format == tag) return PlaneCopy<Fragment<tag, plec_fragment_##name>>(m, n_valid).words();
    PLEC_FOR_EACH_FRAGMENT(PLANES_OF)
    return {};
}

/* Experts on the device as the file has them, at an odd place, and the blocks they arrive in. */
class Arrivals {
  public:
    Arrivals(CudaDevice *cuda, const struct plec_bank *bank, size_t odd = 0)
        : cuda_(cuda), bank_(bank) {
        EXPECT_EQ(plec_device_arrival(&arrival, cuda->device, bank, &cuda->err), PLEC_OK)
            << cuda->err.message;
        for (uint32_t e = 0; e < bank->n_entries; e++) {
            struct plec_entry entry = bank->entries[e];
            for (int id = 0; id < PLEC_N_OPERANDS; id++) {
                send(&entry.values[id], bytes(id, false), odd);
                if (id < PLEC_N_MATRICES) send(&entry.scales[id], bytes(id, true), odd);
            }
            from.push_back(entry);
            blocks.push_back(static_cast<uint8_t *>(cuda->poisoned(arrival.n_bytes)));
        }
    }
    struct plec_arrive_args args() const {
        return {bank_, static_cast<uint32_t>(from.size()), from.data(), blocks.data()};
    }
    void arrive() {
        struct plec_arrive_args all = args();
        ASSERT_EQ(plec_launch_arrive(cuda_->stream, &all, &cuda_->err), PLEC_OK)
            << cuda_->err.message;
    }
    std::vector<uint8_t> block(size_t e) { return cuda_->download(blocks[e], arrival.n_bytes); }
    uint64_t bytes(int id, bool of_scales) const {
        const struct plec_operand &o = bank_->operands[id];
        uint64_t values = 0, scales = 0;
        if (o.rows == 0) return 0;
        EXPECT_EQ(plec_format_size(&values, &scales, o.format, o.rows, o.cols, nullptr), PLEC_OK);
        return of_scales ? scales : values;
    }
    /* Every byte of an expert's block is what it should be, and padding is untouched. */
    void expect_arrived(size_t e) {
        std::vector<uint8_t> want(arrival.n_bytes, 0xFF);
        for (int id = 0; id < PLEC_N_OPERANDS; id++) {
            if (bank_->operands[id].rows == 0) continue;
            bool plain =
                id >= PLEC_N_MATRICES || arrival.scales_at[id] != UINT64_MAX || !is_planes(id);
            if (plain) {
                put(&want, arrival.values_at[id], bank_->entries[e].values[id], bytes(id, false));
                if (id < PLEC_N_MATRICES && bytes(id, true) != 0)
                    put(&want, arrival.scales_at[id], bank_->entries[e].scales[id],
                        bytes(id, true));
                continue;
            }
            const struct plec_operand &o = bank_->operands[id];
            std::vector<uint32_t> words =
                host_planes({o.format, o.rows, o.cols, bank_->entries[e].values[id],
                             bank_->entries[e].scales[id]},
                            id == PLEC_DOWN ? bank_->intermediate_dim : bank_->input_dim);
            put(&want, arrival.values_at[id], reinterpret_cast<uint8_t *>(words.data()),
                words.size() * 4);
        }
        EXPECT_EQ(memcmp(block(e).data(), want.data(), want.size()), 0) << "expert " << e;
    }

    struct plec_arrival arrival;
    std::vector<struct plec_entry> from;
    std::vector<uint8_t *> blocks;

  private:
    bool is_planes(int id) const {
        char name[PLEC_KERNEL_NAME_MAX];
        const char *kernel = plec_device_operand_kernel(
            cuda_->device, bank_, static_cast<enum plec_operand_id>(id), name);
        return kernel != nullptr && strcmp(kernel, "plain") != 0 &&
               plec_cuda_form_find(bank_->operands[id].format) != nullptr;
    }
    void send(const uint8_t **at, uint64_t n_bytes, size_t odd) {
        if (*at == nullptr || n_bytes == 0) return;
        uint8_t *to = static_cast<uint8_t *>(cuda_->poisoned(n_bytes + odd)) + odd;
        cuda_->copy(to, *at, n_bytes);
        cuda_->sync();
        *at = to;
    }
    static void put(std::vector<uint8_t> *want, uint64_t at, const uint8_t *from, uint64_t n) {
        ASSERT_LE(at + n, want->size());
        memcpy(want->data() + at, from, n);
    }

    CudaDevice *cuda_;
    const struct plec_bank *bank_;
};

std::string format_name(const testing::TestParamInfo<size_t> &test) {
    return plec_format_find(MM_FORMATS[test.param])->name;
}
class CudaArrival : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(, CudaArrival, testing::Range<size_t>(0, N_MM_FORMATS), format_name);

/* Down has padding columns where its block is larger than 48. */
TEST_P(CudaArrival, MakesThePlanesThatTheHostMakes) {
    uint16_t format = MM_FORMATS[GetParam()];
    CudaDevice cuda;
    Bank bank(mm_spec(format, format, format, 96, 48));
    for (size_t odd : {0, 1}) {
        Arrivals arrivals(&cuda, bank.get(), odd);
        EXPECT_TRUE(arrivals.arrival.changes);
        arrivals.arrive();
        for (uint32_t e = 0; e < bank.get()->n_entries; e++)
            arrivals.expect_arrived(e);
    }
}

/* NaN and infinity in scales and codes: any bytes become the planes that the host makes of them. */
TEST_P(CudaArrival, MakesOfAnyBytesWhatTheHostMakes) {
    uint16_t format = MM_FORMATS[GetParam()];
    CudaDevice cuda;
    Bank bank(mm_spec(format, format, format, 64, 64));
    Random random(GetParam() + 1);
    for (uint32_t e = 0; e < bank.get()->n_entries; e++)
        for (int id = 0; id < PLEC_N_MATRICES; id++) {
            const struct plec_operand &o = bank.get()->operands[id];
            uint64_t values = 0, scales = 0;
            ASSERT_EQ(plec_format_size(&values, &scales, o.format, o.rows, o.cols, nullptr),
                      PLEC_OK);
            auto *at = const_cast<uint8_t *>(bank.get()->entries[e].values[id]);
            auto *scales_at = const_cast<uint8_t *>(bank.get()->entries[e].scales[id]);
            bool trailing = plec_format_find(format)->geometry == PLEC_TRAILING;
            for (uint64_t i = 0; i < values - (trailing ? 4 : 0); i++)
                at[i] = static_cast<uint8_t>(random.below(256));
            for (uint64_t i = 0; i < scales; i++)
                scales_at[i] = static_cast<uint8_t>(random.below(256));
        }
    Arrivals arrivals(&cuda, bank.get());
    arrivals.arrive();
    for (uint32_t e = 0; e < bank.get()->n_entries; e++)
        arrivals.expect_arrived(e);
}

/* Planes take no more than 5% beside the file's bytes, once a matrix is not tiny. */
TEST_P(CudaArrival, TakesLittleMoreThanTheFile) {
    uint16_t format = MM_FORMATS[GetParam()];
    CudaDevice cuda;
    BankSpec spec = mm_spec(format, format, format, 512, 256);
    spec.n_entries = 1;
    Bank bank(spec);
    Arrivals arrivals(&cuda, bank.get());
    uint64_t raw = 0;
    for (int id = 0; id < PLEC_N_MATRICES; id++)
        raw += arrivals.bytes(id, false) + arrivals.bytes(id, true);
    EXPECT_GE(arrivals.arrival.n_bytes, raw * 97 / 100);
    EXPECT_LE(arrivals.arrival.n_bytes, raw * 108 / 100);
    EXPECT_EQ(arrivals.arrival.n_bytes % PLEC_ARRIVAL_ALIGNMENT, 0u);
}

/* More experts than one launch carries, matrices of both rungs, biases, gate and up fused. */
TEST(CudaArrivals, BringManyExpertsOfMixedMatricesAndBiases) {
    BankSpec spec = mm_spec(PLEC_FORMAT_MXFP4, PLEC_FORMAT_MXFP4, PLEC_FORMAT_F32, 32, 32);
    spec.fusion = PLEC_FUSED_INTERLEAVED;
    spec.n_entries = 70;
    spec.bias = PLEC_FORMAT_BF16;
    CudaDevice cuda;
    Bank bank(spec);
    Arrivals arrivals(&cuda, bank.get(), 2);
    arrivals.arrive();
    for (uint32_t e = 0; e < spec.n_entries; e++)
        arrivals.expect_arrived(e);
}

/* On the plain rung nothing changes, and an arrival is a copy. */
TEST(CudaArrivals, ChangeNothingOnThePlainRung) {
    struct plec_device_options options = {};
    options.plain_c = true;
    CudaDevice cuda(&options);
    Bank bank(mm_spec(PLEC_FORMAT_MXFP4, PLEC_FORMAT_Q4_K, PLEC_FORMAT_NVFP4, 64, 32));
    Arrivals arrivals(&cuda, bank.get());
    EXPECT_FALSE(arrivals.arrival.changes);
    arrivals.arrive();
    for (uint32_t e = 0; e < bank.get()->n_entries; e++)
        arrivals.expect_arrived(e);
}

TEST(CudaArrivals, ABankThatHasNotArrivedIsRefusedByName) {
    CudaDevice cuda;
    Bank bank(mm_spec(PLEC_FORMAT_Q8_0, PLEC_FORMAT_Q8_0, PLEC_FORMAT_Q8_0, 64, 32));
    UploadedBank uploaded(&cuda, bank.get());
    struct plec_bank raw = *uploaded.get();
    raw.arrived = false;
    CudaLaunch launch(&cuda, &raw, make_step(bank.get(), 2, 1, 1));
    EXPECT_EQ(plec_launch_experts(cuda.stream, &launch.args, &cuda.err), PLEC_BAD_INPUT);
    EXPECT_STREQ(cuda.err.name, "NotArrived");
}

/* An expert leaves its block, another arrives there, and comes back to another block: launches give
 * each time what they gave when both had blocks of their own. */
TEST(CudaArrivals, AnExpertThatComesBackElsewhereIsTheSame) {
    CudaDevice cuda;
    Bank bank(mm_spec(PLEC_FORMAT_Q4_K, PLEC_FORMAT_Q4_K, PLEC_FORMAT_Q6_K, 256, 64));
    Arrivals arrivals(&cuda, bank.get());
    arrivals.arrive();
    std::vector<struct plec_entry> entries(4);
    struct plec_bank there = *bank.get();
    there.entries = entries.data();
    there.arrived = true;
    for (size_t e = 0; e < 4; e++)
        plec_arrived_entry(&entries[e], &arrivals.arrival, arrivals.blocks[e]);
    Step step = make_step(bank.get(), 9, 2, 5);
    std::vector<float> before = CudaLaunch(&cuda, &there, step).run();
    for (int turn = 0; turn < 3; turn++) {
        std::rotate(arrivals.blocks.begin(), arrivals.blocks.begin() + 1, arrivals.blocks.end());
        for (uint8_t *block : arrivals.blocks)
            EXPECT_EQ(plec_fill(block, 0xFF, arrivals.arrival.n_bytes, cuda.stream, nullptr),
                      PLEC_OK);
        arrivals.arrive();
        for (size_t e = 0; e < 4; e++)
            plec_arrived_entry(&entries[e], &arrivals.arrival, arrivals.blocks[e]);
        std::vector<float> after = CudaLaunch(&cuda, &there, step).run();
        EXPECT_EQ(memcmp(before.data(), after.data(), before.size() * sizeof before[0]), 0);
    }
}

enum plec_status fail(void *, struct plec_error *err) {
    return plec_fail(err, PLEC_IO, "TestFailure", "on purpose");
}
/* What failed in front of an arrival is told, the arrival does not happen, and the next one does.
 */
TEST(CudaArrivals, BehindAFailureDoNotHappen) {
    CudaDevice cuda;
    Bank bank(mm_spec(PLEC_FORMAT_Q8_0, PLEC_FORMAT_Q8_0, PLEC_FORMAT_Q8_0, 64, 32));
    Arrivals arrivals(&cuda, bank.get());
    struct plec_event *event = nullptr;
    ASSERT_EQ(plec_event_open(&event, cuda.device, nullptr), PLEC_OK);
    ASSERT_EQ(plec_stream_call(cuda.stream, fail, nullptr, nullptr), PLEC_OK);
    ASSERT_EQ(plec_event_record(event, cuda.stream, nullptr), PLEC_OK);
    plec_event_sync(event);
    arrivals.arrive();
    EXPECT_EQ(cuda.failure(), "TestFailure");
    for (uint8_t byte : arrivals.block(0))
        ASSERT_EQ(byte, 0xFF);
    arrivals.arrive();
    arrivals.expect_arrived(0);
    plec_event_close(event);
}

} // namespace
