/* stream_model.h: small models of several layers of routed experts, in files; and steps on them,
 * for tests of streaming. */
#ifndef PLEC_TESTS_SUPPORT_STREAM_MODEL_H
#define PLEC_TESTS_SUPPORT_STREAM_MODEL_H

#include "host/runner.h"
#include "tests/support/arriving.h"
#include "tests/support/bank_files.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>
#include <string>
#include <vector>

namespace plec_test {

struct StreamModelSpec {
    uint32_t n_layers = 2, n_experts = 12, top_k = 2;
    uint32_t hidden = 32, inner = 24;
    uint32_t segment_entries = 0; /* 0: one segment record of all entries */
    bool shared = false, router = false;
    bool mxfp4 = false; /* routed experts in a paired format; hidden and inner are whole blocks */
};

/* A bank directory in a temporary folder. Every layer has other weights. */
class StreamModel {
  public:
    explicit StreamModel(const StreamModelSpec &s = {}) : spec(s) {
        Json index(R"({"version": 4, "model": "test", "family": "test", "hidden_size": )" +
                   std::to_string(s.hidden) + R"(, "num_layers": )" + std::to_string(s.n_layers) +
                   R"(, "moe_manifest": "moe_manifest.json", "profiles": [{"name": "exact"}],
                      "segments": {}})");
        Json manifest(std::string(R"({"schema_version": 1, "layers": []})"));
        for (uint32_t i = 0; i < s.n_layers; i++) {
            std::string number = std::to_string(i);
            add("routed/" + number, routed_bank(i), index);
            if (s.shared) add("shared/" + number, shared_bank(i), index);
            if (s.router) add("control/" + number, control(i), index);
            Json layer(layer_text(number));
            json_array_append(json_object_get(manifest.get(), "layers"), layer.get());
        }
        write(format_json(index.get()), "/index.json");
        write(format_json(manifest.get()), "/moe_manifest.json");
    }
    std::string path() const { return dir_.path(); }
    std::string file(uint32_t layer) const {
        return path() + "/routed/" + std::to_string(layer) + ".lyrw";
    }
    uint64_t expert_bytes() const {
        uint64_t n = uint64_t(3) * spec.hidden * spec.inner;
        return spec.mxfp4 ? n / 2 + n / 32 : n * 4;
    }

    const StreamModelSpec spec;

  private:
    BankFile gated(uint32_t layer, uint16_t kind, uint32_t n_entries) const {
        BankFile file;
        file.layer = layer;
        file.kind = kind;
        file.n_entries = n_entries;
        file.input = file.output = spec.hidden;
        file.intermediate = spec.inner;
        file.seed = layer * 17 + kind + 1;
        file.schemas = {matrix(PLEC_ROLE_GATE, spec.inner, spec.hidden),
                        matrix(PLEC_ROLE_UP, spec.inner, spec.hidden),
                        matrix(PLEC_ROLE_DOWN, spec.hidden, spec.inner)};
        return file;
    }
    BankFile routed_bank(uint32_t layer) const {
        BankFile file = gated(layer, PLEC_BANK_ROUTED, spec.n_experts);
        if (spec.mxfp4)
            file.schemas = {values_of(PLEC_ROLE_GATE, spec.inner, spec.hidden, 0),
                            scales_of(spec.inner, spec.hidden, 0),
                            values_of(PLEC_ROLE_UP, spec.inner, spec.hidden, 1),
                            scales_of(spec.inner, spec.hidden, 1),
                            values_of(PLEC_ROLE_DOWN, spec.hidden, spec.inner, 2),
                            scales_of(spec.hidden, spec.inner, 2)};
        for (uint32_t at = 0; spec.segment_entries != 0 && at < spec.n_experts;
             at += spec.segment_entries) {
            uint32_t n = std::min(spec.segment_entries, spec.n_experts - at);
            file.segments.push_back(
                {0, static_cast<uint16_t>(at / spec.segment_entries), at, n, 0, 0});
        }
        return file;
    }
    BankFile shared_bank(uint32_t layer) const { return gated(layer, PLEC_BANK_SHARED, 1); }
    BankFile control(uint32_t layer) const {
        BankFile file =
            control_file(layer, {matrix(PLEC_ROLE_ROUTER_WEIGHT, spec.n_experts, spec.hidden)});
        file.seed = 100 + layer;
        return file;
    }
    std::string layer_text(const std::string &number) const {
        std::string experts = std::to_string(spec.n_experts), k = std::to_string(spec.top_k);
        std::string shared = R"({"experts": 1, "programme": "gated-mlp-v1", "storage": "shared/)" +
                             number + R"(", "expert_dims": null})";
        std::string control = R"(, "control": "control/)" + number + "\"";
        return R"({"layer": )" + number + R"(, "input_space": "residual",
            "router": {"scores": "router", "activation": "softmax",
                       "selection": {"kind": "top_k", "k": )" +
               k + R"(}, "post": {}, "shared_expert_sink": false},
            "transforms": null,
            "routed_bank": {"experts": )" +
               experts + R"(, "programme": "gated-mlp-v1", "storage": "routed/)" + number +
               R"(", "expert_dims": null},
            "shared_bank": )" +
               (spec.shared ? shared : "null") +
               R"(, "reduction": "gate_weighted_sum", "routed_output_norm": null,
            "combine": "residual_add",
            "plectrum": {"expert": {"activation": "silu"})" +
               (spec.router ? control : "") + "}}";
    }
    void add(const std::string &key, const BankFile &file, Json &index) {
        std::vector<uint8_t> bytes = file.bytes();
        std::filesystem::path at = path() + "/" + key + ".lyrw";
        std::filesystem::create_directories(at.parent_path());
        write_file(at.string(), bytes.data(), bytes.size());
        json_object_set_new(json_object_get(index.get(), "segments"), key.c_str(), json_integer(1));
    }
    void write(const std::string &text, const std::string &name) {
        write_file(path() + name, text.data(), text.size());
    }

    TempDir dir_;
};

/* One forward: what goes in, and what came out. */
struct StreamStep {
    uint32_t layer = 0, n_tokens = 1, n_slots = 2;
    std::vector<float> x;
    std::vector<int32_t> ids;
    std::vector<float> weights;

    /* Random tokens that use experts [0, n_experts). */
    static StreamStep random(std::mt19937 &random, const StreamModelSpec &spec, uint32_t layer,
                             uint32_t n_tokens, uint32_t n_experts) {
        StreamStep step;
        step.layer = layer;
        step.n_tokens = n_tokens;
        step.n_slots = spec.top_k;
        for (uint32_t i = 0; i < n_tokens * spec.hidden; i++)
            step.x.push_back(static_cast<float>(random() % 2001) / 1000.0f - 1.0f);
        for (uint32_t i = 0; i < n_tokens * spec.top_k; i++) {
            step.ids.push_back(static_cast<int32_t>(random() % n_experts));
            step.weights.push_back(static_cast<float>(random() % 1000) / 1000.0f);
        }
        return step;
    }
    /* One token that uses these experts. */
    static StreamStep of(std::mt19937 &random, const StreamModelSpec &spec, uint32_t layer,
                         const std::vector<int32_t> &experts) {
        StreamStep step = StreamStep::random(random, spec, layer, 1, 1);
        step.ids = experts;
        step.n_slots = static_cast<uint32_t>(experts.size());
        step.weights.assign(experts.size(), 0.5f);
        return step;
    }
};

/* What runners of tests run on. */
inline plec_run_device &stream_device() {
    static plec_run_device device = PLEC_RUN_CPU;
    return device;
}

/* A runner on a model's path. */
class StreamRunner {
  public:
    StreamRunner(const std::string &path, const plec_stream_options &stream, uint32_t n_threads = 2,
                 uint32_t max_tokens = 64, uint32_t max_slots = 64, plec_tracer *tracer = nullptr)
        : simulation_(stream.simulation) {
        plec_container_options open = {};
        status = plec_container_open(&container_, path.c_str(), &open, &err);
        plec_runner_options options = {};
        options.device = stream_device();
        options.max_tokens = max_tokens;
        options.max_slots = max_slots;
        options.n_threads = n_threads;
        options.stream = stream;
        options.stream.simulation = simulation_.get();
        options.tracer = tracer;
        options.log = {take_news, this};
        if (status == PLEC_OK) status = plec_runner_open(&runner, container_, &options, &err);
    }
    ~StreamRunner() {
        plec_runner_close(runner);
        plec_container_close(container_);
    }
    StreamRunner(const StreamRunner &) = delete;
    StreamRunner &operator=(const StreamRunner &) = delete;

    plec_forward_args args(const StreamStep &step, std::vector<float> *out) const {
        out->assign(step.x.size(), std::numeric_limits<float>::quiet_NaN());
        plec_forward_args forward = {};
        forward.layer = step.layer;
        forward.n_tokens = step.n_tokens;
        forward.hidden = step.x.data();
        forward.ids = step.ids.empty() ? nullptr : step.ids.data();
        forward.weights = step.ids.empty() ? nullptr : step.weights.data();
        forward.n_slots = step.n_slots;
        forward.out = out->data();
        return forward;
    }
    plec_status forward(const StreamStep &step, std::vector<float> *out, plec_error *error) const {
        plec_forward_args forward = args(step, out);
        return plec_runner_forward(runner, &forward, error);
    }
    std::vector<float> run(const StreamStep &step) const {
        std::vector<float> out;
        plec_error error = {};
        EXPECT_EQ(forward(step, &out, &error), PLEC_OK) << error.message;
        return out;
    }
    plec_stream_stats stats() const {
        plec_stream_stats out;
        EXPECT_TRUE(plec_runner_stream_stats(&out, runner));
        return out;
    }
    /* When nothing is under way any more. */
    plec_stream_stats settled() const {
        plec_stream_stats out = stats();
        while (out.n_reading > 0 || out.n_copying > 0)
            out = stats();
        EXPECT_EQ(out.device.quarantined + out.host.quarantined, 0u) << news;
        return out;
    }
    void expect_sound() const {
        const char *broken = "";
        EXPECT_TRUE(plec_streamer_sound(plec_runner_streamer(runner), &broken)) << broken;
    }

    plec_runner *runner = nullptr;
    plec_status status;
    plec_error err = {};
    std::string news;

  private:
    static void take_news(void *user, plec_log_level, const char *message) {
        static_cast<StreamRunner *>(user)->news += std::string(message) + "\n";
    }
    Arriving simulation_;
    plec_container *container_ = nullptr;
};

inline bool same_bits(const std::vector<float> &a, const std::vector<float> &b) {
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
}

/* Bytes of one frame of a width, by asking for it. */
inline uint64_t frame_bytes(const StreamModel &model, uint32_t width) {
    plec_stream_options stream = {};
    stream.device_budget = UINT64_C(1) << 30;
    stream.extent_width = width;
    StreamRunner runner(model.path(), stream, 1);
    EXPECT_EQ(runner.status, PLEC_OK) << runner.err.message;
    EXPECT_EQ(runner.stats().extent_width, width);
    return learn_sizes(runner.stats());
}

inline plec_stream_options budget(uint64_t frame_bytes, uint32_t n_slots, uint32_t n_frames,
                                  uint32_t width) {
    plec_stream_options stream = {};
    stream.device_budget = budget_of_slots(frame_bytes, n_slots);
    stream.pinned_budget = frame_bytes * n_frames;
    stream.extent_width = width;
    stream.speculation = PLEC_SPECULATE_OFF;
    stream.poison = true;
    return stream;
}

inline std::vector<StreamStep> steps_of(std::mt19937 &random, const StreamModelSpec &spec, int n) {
    std::vector<StreamStep> steps;
    for (int i = 0; i < n; i++)
        for (uint32_t layer = 0; layer < spec.n_layers; layer++)
            steps.push_back(StreamStep::random(random, spec, layer,
                                               i % 3 == 2 ? 16 : 1 + random() % 2, spec.n_experts));
    return steps;
}

inline std::vector<std::vector<float>> resident(const StreamModel &model,
                                                const std::vector<StreamStep> &steps) {
    StreamRunner runner(model.path(), {}, 1);
    EXPECT_EQ(runner.status, PLEC_OK) << runner.err.message;
    std::vector<std::vector<float>> out;
    for (const StreamStep &step : steps)
        out.push_back(runner.run(step));
    return out;
}

} // namespace plec_test
#endif
