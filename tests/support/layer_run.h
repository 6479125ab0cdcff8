/* layer_run.h: a bound layer through the reference executor without a runner, and through a runner
 * on the CPU device. */
#ifndef PLEC_TESTS_SUPPORT_LAYER_RUN_H
#define PLEC_TESTS_SUPPORT_LAYER_RUN_H

#include "device/reference/reference.h"
#include "host/runner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

namespace plec_test {

/* A container and one of its layers. */
class OpenLayer {
  public:
    OpenLayer(const std::string &path, uint32_t layer, plec_container_options options = {}) {
        options.log = {take_news, this};
        status = plec_container_open(&container, path.c_str(), &options, &error);
        if (status == PLEC_OK) status = plec_container_bind(&bound, container, layer, &error);
    }
    OpenLayer(const OpenLayer &) = delete;
    OpenLayer &operator=(const OpenLayer &) = delete;
    ~OpenLayer() {
        plec_bound_layer_close(&bound);
        plec_container_close(container);
    }

    plec_container *container = nullptr;
    plec_bound_layer bound = {};
    plec_status status;
    plec_error error = {};
    std::string news; /* a line each */

  private:
    static void take_news(void *user, plec_log_level, const char *message) {
        static_cast<OpenLayer *>(user)->news += std::string(message) + "\n";
    }
};

struct LayerInput {
    std::vector<float> x;            /* [T, hidden] */
    std::vector<float> router_input; /* [T, hidden], or empty: x */
    std::vector<int32_t> tokens;     /* [T], where experts go by token id */
    bool routed_only = false;
};

struct LayerOutput {
    std::vector<int32_t> ids;    /* [T, k] */
    std::vector<double> weights; /* [T, k] */
    std::vector<float> y;        /* [T, hidden] */
};

inline void route_token(int32_t *ids, double *weights, const plec_bound_layer &bound,
                        const LayerInput &input, size_t t) {
    const plec_router &router = bound.layer.router;
    if (bound.dense) {
        ids[0] = 0;
        weights[0] = 1;
        return;
    }
    const std::vector<float> &read = input.router_input.empty() ? input.x : input.router_input;
    std::vector<double> z(router.n_experts), row(router.weight.cols);
    std::vector<double> scratch(plec_reference_route_scratch(&router));
    plec_reference_logits(z.data(), &router, read.data() + t * router.input_dim, row.data());
    if (bound.token_table != nullptr) {
        uint32_t token = static_cast<uint32_t>(input.tokens.at(t));
        ASSERT_LT(token, bound.n_token_ids);
        for (uint32_t j = 0; j < router.top_k; j++)
            ids[j] = bound.token_table[size_t(token) * router.top_k + j];
        plec_reference_weigh(weights, ids, &router, z.data(), scratch.data());
        return;
    }
    plec_error error = {};
    ASSERT_EQ(plec_reference_route(ids, weights, &router, z.data(), scratch.data(), &error),
              PLEC_OK)
        << error.message;
}

inline LayerOutput run_layer(const plec_bound_layer &bound, const LayerInput &input) {
    const plec_layer &layer = bound.layer;
    size_t n_tokens = input.x.size() / layer.hidden_size, k = layer.router.top_k;
    LayerOutput out;
    out.ids.assign(n_tokens * k, -1);
    out.weights.assign(n_tokens * k, NAN);
    out.y.assign(n_tokens * layer.hidden_size, NAN);
    for (size_t t = 0; t < n_tokens; t++)
        route_token(&out.ids[t * k], &out.weights[t * k], bound, input, t);
    std::vector<double> scratch(plec_reference_layer_scratch(&layer), NAN);
    plec_reference_args args = {&layer,
                                static_cast<uint32_t>(n_tokens),
                                static_cast<uint32_t>(k),
                                input.x.data(),
                                out.ids.data(),
                                out.weights.data(),
                                input.routed_only,
                                out.y.data(),
                                scratch.data(),
                                PLEC_REFERENCE_EXACT};
    plec_reference_layer(&args);
    return out;
}

/* The same layer of an open container on the CPU device. Weights come back as f32. */
inline LayerOutput run_layer_on_cpu(const OpenLayer &open, uint32_t number,
                                    const LayerInput &input) {
    const plec_layer &layer = open.bound.layer;
    plec_runner_options options = {};
    options.device = PLEC_RUN_CPU;
    options.layers = &number;
    options.n_layers = 1;
    LayerOutput out;
    plec_runner *runner = nullptr;
    plec_error error = {};
    EXPECT_EQ(plec_runner_open(&runner, open.container, &options, &error), PLEC_OK)
        << error.message;
    if (runner == nullptr) return out;
    plec_forward_args args = {};
    args.layer = number;
    args.n_tokens = static_cast<uint32_t>(input.x.size() / layer.hidden_size);
    out.ids.assign(size_t(args.n_tokens) * layer.router.top_k, -7);
    std::vector<float> weights(out.ids.size(), NAN);
    out.y.assign(input.x.size(), NAN);
    args.hidden = input.x.data();
    args.router_input = input.router_input.empty() ? nullptr : input.router_input.data();
    args.token_ids = input.tokens.empty() ? nullptr : input.tokens.data();
    args.routed_only = input.routed_only;
    args.out = out.y.data();
    args.ids_out = out.ids.data();
    args.weights_out = weights.data();
    EXPECT_EQ(plec_runner_forward(runner, &args, &error), PLEC_OK) << error.message;
    plec_runner_close(runner);
    out.weights.assign(weights.begin(), weights.end());
    return out;
}

} // namespace plec_test
#endif
