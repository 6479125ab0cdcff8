/* stream_engine.h: a streamer on the layers of a container, without a runner: dispatches whose
 * experts are compared with the file's bytes when they are handed out, and what they waited.
 */
#ifndef PLEC_TESTS_SUPPORT_STREAM_ENGINE_H
#define PLEC_TESTS_SUPPORT_STREAM_ENGINE_H

#include "host/streamer.h"
#include "lyrw/format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/arriving.h"

namespace plec_test {

/* What a dispatch gave. */
struct EngineRun {
    plec_status status = PLEC_OK;
    std::string error; /* its name */
    std::vector<uint32_t> experts;
    std::vector<uint64_t> waits; /* of its extents, from begin to hand-out */
};

class Engine {
  public:
    Engine(const std::string &path, uint32_t n_layers, plec_stream_options stream)
        : simulation_(stream.simulation) {
        open(path, n_layers);
        stream.trace = {take_event, this};
        plec_streamer_args args = {};
        args.device = device_;
        args.container = container_;
        args.layers = layers_.data();
        args.n_layers = n_layers;
        args.options = &stream;
        args.log = {take_news, this};
        if (status == PLEC_OK) status = plec_streamer_open(&streamer, &args, &err);
    }
    ~Engine() {
        plec_streamer_close(streamer);
        if (stream_ != nullptr) plec_stream_close(stream_);
        plec_device_close(device_);
        for (plec_bound_layer &layer : bound_)
            plec_bound_layer_close(&layer);
        plec_container_close(container_);
    }
    Engine(const Engine &) = delete;
    Engine &operator=(const Engine &) = delete;

    /* A dispatch from begin to end; args.layer, ids and n_ids are set here. */
    EngineRun run(uint32_t layer, const std::vector<int32_t> &ids, plec_dispatch_args args = {}) {
        const plec_bank *bank = nullptr;
        args.layer = layer;
        args.ids = ids.data();
        args.n_ids = ids.size();
        run_ = {};
        plec_streamer_begin(&bank, streamer, &args);
        plec_error error = {};
        plec_stream_part part = {};
        do {
            run_.status = plec_streamer_next(&part, streamer, &error);
            for (uint32_t i = 0; run_.status == PLEC_OK && i < part.n_experts; i++) {
                expect_bytes(bank, layer, part.experts[i]);
                run_.experts.push_back(part.experts[i]);
            }
            if (part.n_experts > 0) {
                EXPECT_EQ(plec_streamer_used(streamer, stream_, nullptr), PLEC_OK);
            }
        } while (run_.status == PLEC_OK && part.n_experts > 0);
        plec_streamer_end(streamer);
        if (run_.status != PLEC_OK) run_.error = error.name;
        message = error.message;
        return run_;
    }
    /* The same, and it must be whole. */
    EngineRun must_run(uint32_t layer, const std::vector<int32_t> &ids) {
        EngineRun got = run(layer, ids);
        EXPECT_EQ(got.status, PLEC_OK) << message;
        std::vector<uint32_t> wanted(ids.begin(), ids.end()), had = got.experts;
        std::sort(wanted.begin(), wanted.end());
        wanted.erase(std::unique(wanted.begin(), wanted.end()), wanted.end());
        std::sort(had.begin(), had.end());
        EXPECT_EQ(had, wanted);
        return got;
    }
    void expect(plec_origin why, uint32_t layer, const std::vector<int32_t> &ids) {
        plec_expectation ahead = {why, layer, ids.data(), static_cast<uint32_t>(ids.size())};
        plec_streamer_expect(streamer, &ahead);
    }
    plec_stream_stats stats() const {
        plec_stream_stats out;
        plec_streamer_get_stats(&out, streamer);
        return out;
    }
    std::string fault() const {
        const char *broken = "";
        return plec_streamer_sound(streamer, &broken) ? "" : broken;
    }
    const plec_bank &file_bank(uint32_t layer) const { return *layers_[layer].bank; }
    /* The address that an expert's matrix was handed out at last. */
    uint8_t *handed_out(uint32_t layer, uint32_t expert, int matrix) const {
        return const_cast<uint8_t *>(places_[layer][expert * PLEC_N_MATRICES + size_t(matrix)]);
    }

    plec_streamer *streamer = nullptr;
    plec_status status = PLEC_OK;
    plec_error err = {};
    std::string news, message;
    std::function<void(const plec_stream_event &)> on_event;

  private:
    void open(const std::string &path, uint32_t n_layers) {
        status = plec_container_open(&container_, path.c_str(), nullptr, &err);
        plec_device_options options = {};
        options.simulation = simulation_.get();
        if (status == PLEC_OK) status = plec_device_open(&device_, PLEC_DEVICE_CPU, &options, &err);
        if (status == PLEC_OK) status = plec_stream_open(&stream_, device_, &err);
        bound_.resize(n_layers);
        for (uint32_t i = 0; status == PLEC_OK && i < n_layers; i++) {
            plec_layer_info info;
            plec_container_layer_info(&info, container_, i);
            status = plec_container_bind(&bound_[i], container_, info.layer, &err);
            layers_.push_back({info.layer, &bound_[i].layer.routed});
            places_.emplace_back(bound_[i].layer.routed.n_entries * PLEC_N_MATRICES);
        }
    }
    void expect_bytes(const plec_bank *bank, uint32_t layer, uint32_t expert) {
        const plec_bank &file = file_bank(layer);
        for (int id = 0; id < PLEC_N_MATRICES; id++) {
            const uint8_t *to = bank->entries[expert].values[id];
            const uint8_t *from = file.entries[expert].values[id];
            places_[layer][expert * PLEC_N_MATRICES + size_t(id)] = to;
            ASSERT_EQ(to == nullptr, from == nullptr);
            if (from == nullptr) continue;
            ASSERT_NE(to, from);
            ASSERT_EQ(memcmp(to, from, matrix_bytes(file, id)), 0)
                << "layer " << layer << " expert " << expert << " matrix " << id;
        }
    }
    static uint64_t matrix_bytes(const plec_bank &bank, int id) {
        const plec_operand &operand = bank.operands[id];
        uint64_t n_bytes = 0;
        EXPECT_EQ(plec_format_size(&n_bytes, nullptr, operand.format, operand.rows, operand.cols,
                                   nullptr),
                  PLEC_OK);
        return n_bytes;
    }
    static void take_event(void *user, const plec_stream_event *event) {
        auto *engine = static_cast<Engine *>(user);
        if (event->kind == PLEC_STREAM_LAYER_BEGIN) engine->begun_ = event->at_ns;
        if (event->kind == PLEC_STREAM_HAND_OUT)
            engine->run_.waits.push_back(event->at_ns - engine->begun_);
        if (engine->on_event) engine->on_event(*event);
    }
    static void take_news(void *user, plec_log_level, const char *text) {
        static_cast<Engine *>(user)->news += std::string(text) + "\n";
    }

    Arriving simulation_;
    plec_container *container_ = nullptr;
    plec_device *device_ = nullptr;
    plec_stream *stream_ = nullptr;
    std::vector<plec_bound_layer> bound_;
    std::vector<plec_streamer_layer> layers_;
    std::vector<std::vector<const uint8_t *>> places_;
    EngineRun run_;
    uint64_t begun_ = 0;
};

} // namespace plec_test
#endif
