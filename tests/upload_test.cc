/* A layer's weights in device memory: what of it is copied, that it is the file's, and that an
 * upload which fails at any point has a name and leaves nothing. On the CPU device, as it is and as
 * one on which experts arrive in a form of its own. */
#include "device/backend.h"
#include "host/upload.h"
#include "tests/support/stream_model.h"

using namespace plec_test;

namespace {

/* The CPU device, which fails the allocation or the copy of a number, and counts what it has given.
 */
class Device {
  public:
    explicit Device(bool arrives) {
        plec_simulation simulation = {};
        simulation.arrives = arrives;
        simulation.user = this;
        simulation.fail_alloc = [](void *user, uint64_t) {
            auto *self = static_cast<Device *>(user);
            return self->n_allocs++ == self->bad_alloc;
        };
        simulation.fail_copy = [](void *user, const void *, uint64_t) {
            auto *self = static_cast<Device *>(user);
            return self->n_copies++ == self->bad_copy;
        };
        plec_device_options options = {};
        options.simulation = &simulation;
        EXPECT_EQ(plec_device_open(&device, PLEC_DEVICE_CPU, &options, nullptr), PLEC_OK);
        real_ = device->backend;
        counting_ = *real_;
        counting_.device_alloc = alloc;
        counting_.device_free = free;
        device->backend = &counting_;
        n_given = 0;
    }
    ~Device() {
        EXPECT_EQ(n_given, 0);
        plec_device_close(device);
    }
    Device(const Device &) = delete;
    Device &operator=(const Device &) = delete;

    plec_device *device = nullptr;
    int n_allocs = 0, bad_alloc = -1;
    int n_copies = 0, bad_copy = -1;
    static inline int n_given;

  private:
    static plec_status alloc(void **out, plec_device *on, uint64_t n_bytes, plec_error *err) {
        plec_status status = real_->device_alloc(out, on, n_bytes, err);
        n_given += status == PLEC_OK;
        return status;
    }
    static void free(plec_device *on, void *memory) {
        n_given--;
        real_->device_free(on, memory);
    }
    static inline const plec_backend *real_;
    static inline plec_backend counting_;
};

class Upload : public testing::TestWithParam<bool> {
  protected:
    Upload() : model_(spec()) {
        EXPECT_EQ(plec_container_open(&container_, model_.path().c_str(), nullptr, &err), PLEC_OK);
        EXPECT_EQ(plec_container_bind(&bound_, container_, 0, &err), PLEC_OK) << err.message;
    }
    ~Upload() override {
        plec_bound_layer_close(&bound_);
        plec_container_close(container_);
    }
    static StreamModelSpec spec() {
        StreamModelSpec spec;
        spec.n_layers = 1;
        spec.router = spec.shared = true;
        return spec;
    }
    plec_status open(Device *on, unsigned parts = PLEC_UPLOAD_ROUTED | PLEC_UPLOAD_ROUTER) {
        return plec_upload_open(&upload, &layer, on->device, &file(), parts, &err);
    }
    const plec_layer &file() const { return bound_.layer; }
    static void expect_same(const uint8_t *got, const uint8_t *wanted, uint64_t n_bytes) {
        ASSERT_NE(got, wanted);
        EXPECT_EQ(memcmp(got, wanted, n_bytes), 0);
    }
    void expect_entries(const plec_bank &got, const plec_bank &wanted) const {
        ASSERT_EQ(got.n_entries, wanted.n_entries);
        EXPECT_TRUE(got.arrived);
        for (uint32_t e = 0; e < wanted.n_entries; e++)
            for (int id : {PLEC_GATE, PLEC_UP, PLEC_DOWN})
                expect_same(got.entries[e].values[id], wanted.entries[e].values[id],
                            model_.expert_bytes() / 3);
    }
    void expect_router() const {
        const plec_matrix &weight = file().router.weight;
        uint64_t n_bytes = 0;
        ASSERT_EQ(
            plec_format_size(&n_bytes, nullptr, weight.format, weight.rows, weight.cols, nullptr),
            PLEC_OK);
        expect_same(layer.router.weight.values, weight.values, n_bytes);
    }

    /* An upload for each call that can fail, which it does; how many there are. */
    int fail_at_each(int Device::*bad, plec_status code, const char *name) {
        for (int n = 0;; n++) {
            Device on(GetParam());
            on.*bad = n;
            bool done = open(&on) == PLEC_OK;
            if (!done) {
                EXPECT_EQ(err.code, code);
                EXPECT_STREQ(err.name, name);
                EXPECT_EQ(upload.memory, nullptr);
            }
            plec_upload_close(&upload);
            if (done) return n;
        }
    }

    plec_upload upload = {};
    plec_layer layer = {};
    plec_error err = {};

  private:
    StreamModel model_;
    plec_container *container_ = nullptr;
    plec_bound_layer bound_ = {};
};
INSTANTIATE_TEST_SUITE_P(, Upload, testing::Bool(), [](const testing::TestParamInfo<bool> &of) {
    return of.param ? "Arriving" : "AsFilesHaveIt";
});

TEST_P(Upload, HasTheFilesBytes) {
    Device on(GetParam());
    ASSERT_EQ(open(&on), PLEC_OK) << err.message;
    expect_entries(layer.routed, file().routed);
    expect_entries(layer.shared, file().shared);
    expect_router();
    EXPECT_EQ(Device::n_given, 1);
    plec_upload_close(&upload);
}

TEST_P(Upload, LeavesWhatIsNotAskedFor) {
    Device on(GetParam());
    ASSERT_EQ(open(&on, PLEC_UPLOAD_ROUTER), PLEC_OK) << err.message;
    EXPECT_EQ(layer.routed.entries, file().routed.entries);
    EXPECT_FALSE(layer.routed.arrived);
    expect_entries(layer.shared, file().shared);
    expect_router();
    plec_upload_close(&upload);
    ASSERT_EQ(open(&on, PLEC_UPLOAD_ROUTED), PLEC_OK) << err.message;
    expect_entries(layer.routed, file().routed);
    EXPECT_EQ(layer.router.weight.values, file().router.weight.values);
    plec_upload_close(&upload);
}

TEST_P(Upload, FailsByNameAtAnyAllocationAndLeavesNothing) {
    /* its memory, and where experts land */
    EXPECT_EQ(fail_at_each(&Device::bad_alloc, PLEC_NO_MEMORY, "NoMemory"), GetParam() ? 2 : 1);
}

/* And waits for the copies that were enqueued: they read and write memory that goes. */
TEST_P(Upload, FailsByNameAtAnyCopyAndLeavesNothing) {
    /* three matrices of twelve experts */
    EXPECT_GE(fail_at_each(&Device::bad_copy, PLEC_NO_DEVICE, "CopyFailed"), 36);
}

} // namespace
