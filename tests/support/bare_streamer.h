/* bare_streamer.h: a device, two bound layers and a streamer of extents of one expert, without a
 * runner: a test makes the dispatches.
 */
#ifndef PLEC_TESTS_SUPPORT_BARE_STREAMER_H
#define PLEC_TESTS_SUPPORT_BARE_STREAMER_H

#include "device/backend.h"
#include "tests/support/stream_model.h"

namespace plec_test {

class BareStreamer : public testing::Test {
  protected:
    void open(uint32_t n_slots, uint32_t n_frames, plec_stream_options options = {}) {
        plec_error err = {};
        ASSERT_EQ(plec_container_open(&container_, model_.path().c_str(), nullptr, &err), PLEC_OK);
        Arriving behind(simulation);
        plec_device_options on = {};
        on.simulation = behind.get();
        ASSERT_EQ(plec_device_open(&device, PLEC_DEVICE_CPU, &on, &err), PLEC_OK);
        ASSERT_EQ(plec_stream_open(&stream, device, &err), PLEC_OK);
        if (before_open != nullptr) before_open(device, stream);
        for (uint32_t i = 0; i < 2; i++)
            ASSERT_EQ(plec_container_bind(&bound[i], container_, i, &err), PLEC_OK) << err.message;
        options_ = options;
        options_.device_budget = UINT64_C(1) << 30; /* to learn what an extent takes */
        options_.extent_width = 1;
        if (options.speculation == PLEC_SPECULATE_AUTO) options_.speculation = PLEC_SPECULATE_OFF;
        options_.poison = poison;
        reopen();
        options_.pinned_budget = n_frames * learn_sizes(stats());
        options_.device_budget = budget_of_slots(stats().frame_bytes, n_slots);
        close();
        reopen();
        ASSERT_EQ(stats().n_slots, n_slots);
    }
    /* After close: with the same options. */
    void reopen() {
        const plec_streamer_layer layers[] = {{0, &bound[0].layer.routed},
                                              {1, &bound[1].layer.routed}};
        plec_error err = {};
        plec_streamer_args args = {};
        args.device = device;
        args.container = container_;
        args.layers = layers;
        args.n_layers = 2;
        args.options = &options_;
        ASSERT_EQ(plec_streamer_open(&streamer, &args, &err), PLEC_OK) << err.message;
    }
    void TearDown() override {
        const char *broken = "";
        if (streamer != nullptr) {
            EXPECT_TRUE(plec_streamer_sound(streamer, &broken)) << broken;
            plec_stream_stats last = settle();
            EXPECT_EQ(last.device.in_use, 0u);
            EXPECT_EQ(last.host.in_use, 0u);
        }
        close();
        plec_stream_close(stream);
        plec_device_close(device);
        for (plec_bound_layer &layer : bound)
            plec_bound_layer_close(&layer);
        plec_container_close(container_);
    }
    void close() {
        plec_streamer_close(streamer);
        streamer = nullptr;
    }
    void begin(uint32_t layer, const std::vector<int32_t> &ids) {
        ids_ = ids;
        plec_dispatch_args args = {};
        args.layer = layer;
        args.ids = ids_.data();
        args.n_ids = ids_.size();
        plec_streamer_begin(&bank, streamer, &args);
    }
    std::vector<uint32_t> next() {
        plec_stream_part part;
        plec_error err = {};
        EXPECT_EQ(plec_streamer_next(&part, streamer, &err), PLEC_OK) << err.message;
        return {part.experts, part.experts + part.n_experts};
    }
    void used() { EXPECT_EQ(plec_streamer_used(streamer, stream, nullptr), PLEC_OK); }
    /* The bytes of an expert's matrices are those of the file. */
    void expect_bytes(uint32_t layer, uint32_t expert) const {
        const plec_entry &file = bound[layer].layer.routed.entries[expert];
        for (int id : {PLEC_GATE, PLEC_UP, PLEC_DOWN}) {
            ASSERT_NE(bank->entries[expert].values[id], file.values[id]);
            EXPECT_EQ(memcmp(bank->entries[expert].values[id], file.values[id],
                             model_.expert_bytes() / 3),
                      0)
                << "expert " << expert;
        }
    }
    /* When all that is under way has ended. */
    plec_stream_stats settle() const {
        plec_stream_stats last = stats();
        while (last.n_reading > 0 || last.n_copying > 0)
            last = stats();
        return last;
    }
    plec_stream_stats stats() const {
        plec_stream_stats out;
        plec_streamer_get_stats(&out, streamer);
        return out;
    }

    /* To be set before open. */
    const plec_simulation *simulation = nullptr;
    bool poison = true;
    void (*before_open)(plec_device *device, const plec_stream *stream) = nullptr;
    plec_device *device = nullptr;
    plec_stream *stream = nullptr;
    plec_streamer *streamer = nullptr;
    plec_bound_layer bound[2] = {};
    const plec_bank *bank = nullptr;

  private:
    StreamModel model_;
    plec_container *container_ = nullptr;
    plec_stream_options options_ = {};
    std::vector<int32_t> ids_;
};

} // namespace plec_test
#endif
