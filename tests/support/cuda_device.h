/* cuda_device.h: a CUDA device, emulated or real, for tests: memory poisoned, banks uploaded, one
 * launch of experts whole or by phases. */
#ifndef PLEC_TESTS_SUPPORT_CUDA_DEVICE_H
#define PLEC_TESTS_SUPPORT_CUDA_DEVICE_H

#include "device/device.h"

#include <gtest/gtest.h>

#include <deque>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/bank.h"

namespace plec_test {

/* What fails where nothing was to fail throws, which ends its test: a launch that failed has lost
 * the device to the whole process, and there is nothing to open or to compare any more. */
class CudaDevice {
  public:
    explicit CudaDevice(const plec_device_options *options = nullptr) {
        must(plec_device_open(&device, PLEC_DEVICE_CUDA, options, &err));
        must(plec_stream_open(&stream, device, &err));
    }
    ~CudaDevice() {
        plec_stream_close(stream);
        for (void *block : memory_)
            plec_device_free(device, block);
        plec_device_close(device);
    }
    CudaDevice(const CudaDevice &) = delete;
    CudaDevice &operator=(const CudaDevice &) = delete;

    /* Device memory, all bytes 0xFF: NaN in every float format. */
    void *poisoned(size_t n_bytes) {
        void *memory = nullptr;
        must(plec_device_alloc(&memory, device, n_bytes, &err));
        memory_.push_back(memory);
        must(plec_fill(memory, 0xFF, n_bytes, stream, &err));
        return memory;
    }
    template <class T> T *upload(const std::vector<T> &values) {
        if (values.empty()) return nullptr;
        void *memory = poisoned(values.size() * sizeof(T));
        copy(memory, values.data(), values.size() * sizeof(T));
        sync();
        return static_cast<T *>(memory);
    }
    template <class T> std::vector<T> download(const T *from, size_t n) {
        std::vector<T> values(n);
        copy(values.data(), from, n * sizeof(T));
        sync();
        return values;
    }
    void copy(void *to, const void *from, size_t n_bytes) {
        must(plec_copy(to, from, n_bytes, stream, &err));
    }
    void sync() { must(plec_stream_sync(stream, &err)); }
    std::string failure() {
        EXPECT_NE(plec_stream_sync(stream, &err), PLEC_OK);
        return err.name != nullptr ? err.name : "";
    }

    struct plec_device *device = nullptr;
    struct plec_stream *stream = nullptr;
    struct plec_error err = {};

  private:
    void must(enum plec_status status) const {
        if (status != PLEC_OK) throw std::runtime_error(err.message);
    }
    std::vector<void *> memory_;
};

/* Makes the entries of a bank that were copied to a device as they are what its launches read:
 * where that is another form, in blocks of their own. */
inline void arrive(CudaDevice *on, struct plec_bank *bank,
                   std::vector<struct plec_entry> *entries) {
    struct plec_arrival arrival;
    ASSERT_EQ(plec_device_arrival(&arrival, on->device, bank, &on->err), PLEC_OK)
        << on->err.message;
    if (!arrival.changes) return;
    std::vector<uint8_t *> blocks;
    uint8_t *memory = static_cast<uint8_t *>(on->poisoned(entries->size() * arrival.n_bytes));
    for (size_t i = 0; i < entries->size(); i++)
        blocks.push_back(memory + i * arrival.n_bytes);
    struct plec_arrive_args args = {bank, static_cast<uint32_t>(entries->size()), entries->data(),
                                    blocks.data()};
    ASSERT_EQ(plec_launch_arrive(on->stream, &args, &on->err), PLEC_OK) << on->err.message;
    for (size_t i = 0; i < entries->size(); i++)
        plec_arrived_entry(&(*entries)[i], &arrival, blocks[i]);
    bank->arrived = true;
    on->sync();
}

/* A bank whose operands lie in device memory, as its launches read them. */
class UploadedBank {
  public:
    UploadedBank(CudaDevice *on, const struct plec_bank *bank) : bank_(*bank) {
        entries_.assign(bank->entries, bank->entries + bank->n_entries);
        for (struct plec_entry &entry : entries_)
            for (int id = 0; id < PLEC_N_OPERANDS; id++)
                upload(on, &entry, id);
        arrive(on, &bank_, &entries_);
        bank_.entries = entries_.data();
    }
    const struct plec_bank *get() const { return &bank_; }
    std::vector<struct plec_entry> &entries() { return entries_; }

  private:
    void upload(CudaDevice *on, struct plec_entry *entry, int id) {
        const struct plec_operand &operand = bank_.operands[id];
        uint64_t n_values = 0, n_scales = 0;
        if (entry->values[id] == nullptr) return;
        ASSERT_EQ(plec_format_size(&n_values, &n_scales, operand.format, operand.rows, operand.cols,
                                   nullptr),
                  PLEC_OK);
        std::vector<uint8_t> values(entry->values[id], entry->values[id] + n_values);
        entry->values[id] = on->upload(values);
        if (id >= PLEC_N_MATRICES || entry->scales[id] == nullptr) return;
        std::vector<uint8_t> scales(entry->scales[id], entry->scales[id] + n_scales);
        entry->scales[id] = on->upload(scales);
    }

    struct plec_bank bank_;
    std::vector<struct plec_entry> entries_;
};

/* One step on a device; output and workspace start as NaN. */
struct CudaLaunch {
    CudaLaunch(CudaDevice *on, const struct plec_bank *bank, const Step &step) : cuda(on) {
        uint64_t n_bytes = 0;
        EXPECT_TRUE(
            plec_experts_workspace(&n_bytes, on->device, bank, step.n_tokens, step.n_slots));
        n_values = size_t(step.n_tokens) * bank->output_dim;
        args.bank = bank;
        args.ids = on->upload(step.ids);
        args.weights = on->upload(step.weights);
        args.token_scale = on->upload(step.token_scale);
        args.n_tokens = step.n_tokens;
        args.n_slots = step.n_slots;
        args.weight_on_input = step.weight_on_input;
        args.accumulate = !step.y.empty();
        args.x = on->upload(step.x);
        args.y = step.y.empty() ? static_cast<float *>(on->poisoned(n_values * sizeof(float)))
                                : on->upload(step.y);
        args.workspace = on->poisoned(n_bytes);
    }
    void phase(enum plec_experts_phase phase, const std::vector<uint32_t> &part = {}) {
        struct plec_experts_args cut = args;
        cut.phase = phase;
        parts.push_back(part);
        cut.part = parts.back().data();
        cut.n_part = static_cast<uint32_t>(part.size());
        EXPECT_EQ(plec_launch_experts(cuda->stream, &cut, &cuda->err), PLEC_OK)
            << cuda->err.message;
    }
    std::vector<float> y() { return cuda->download(args.y, n_values); }
    std::vector<float> run() {
        phase(PLEC_EXPERTS_ALL);
        return y();
    }

    CudaDevice *cuda;
    struct plec_experts_args args = {};
    size_t n_values = 0;
    std::deque<std::vector<uint32_t>> parts;
};

/* Sum of squared differences over that of the wanted values. A NaN anywhere gives NaN. */
inline double nmse(const std::vector<float> &got, const std::vector<double> &wanted) {
    double difference = 0, size = 0;
    EXPECT_EQ(got.size(), wanted.size());
    for (size_t i = 0; i < wanted.size(); i++) {
        double d = double(got[i]) - wanted[i];
        difference += d * d;
        size += wanted[i] * wanted[i];
    }
    return size == 0 ? difference : difference / size;
}

} // namespace plec_test
#endif
