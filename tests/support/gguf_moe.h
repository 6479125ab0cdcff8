/* gguf_moe.h: a made-up MoE layer as plain numbers: what it computes by formulas written here, and
 * the GGUF file that holds it. For tests of binding; shares no code with the executors.
 */
#ifndef PLEC_TESTS_SUPPORT_GGUF_MOE_H
#define PLEC_TESTS_SUPPORT_GGUF_MOE_H

#include "tests/support/gguf_file.h"
#include "tests/support/layer_run.h"

#include <random>

namespace plec_test {

using Reals = std::vector<double>;

/* n MLPs of one shape; empty vectors are absent. */
struct Mlp {
    uint32_t n = 0, in = 0, inner = 0, out = 0;
    std::vector<float> gate, up, down;                   /* [n, rows, cols] */
    std::vector<float> gate_bias, up_bias, down_bias;    /* [n, rows] */
    std::vector<float> gate_scale, up_scale, down_scale; /* [n] */
    std::string act = "silu";
    double limit = 0, alpha = 1.702;

    Reals run(uint32_t e, const Reals &x) const;
};

struct Moe {
    /* Random weights of a gated layer without extras. */
    Moe(uint32_t hidden, uint32_t inner, uint32_t n_experts, uint32_t k, unsigned seed = 1);

    std::vector<float> noise(size_t n, float spread = 1);
    Mlp mlp(uint32_t n, uint32_t in, uint32_t inner, uint32_t out, bool gated = true);
    /* Random vectors for what the experts may have beside their matrices. */
    void add_biases(Mlp *mlp);
    void add_scales(Mlp *mlp);
    void add_latent(uint32_t width, bool gated);
    void add_shared(uint32_t width, bool gated = true);

    uint32_t hidden, n_experts, k, layer = 0;
    Mlp routed, shared, dense; /* n 0: absent */
    std::vector<float> router, router_bias, selection_bias, shared_gate, latent_down, latent_up;
    std::vector<float> input_scale; /* with a normed router input */
    std::vector<int32_t> table;     /* [tokens, k] */
    /* How it chooses and adds up. */
    std::string gating = "softmax", select_on = "scores";
    bool norm = true, weight_before = false, normed_input = false;
    double scale = 1, factor = 1, input_eps = 1e-6;
    uint32_t groups = 0, groups_used = 0;

    /* [T] tokens of input, and of what the router reads where that is another vector. */
    LayerInput input(uint32_t n_tokens, bool other_router_input = false);
    LayerOutput expected(const LayerInput &input) const;

    /* Keys of the shapes alone, and every tensor, experts in separate tensors. */
    GgufFile file(const std::string &architecture) const;
    std::string name(const std::string &rest) const {
        return "blk." + std::to_string(layer) + "." + rest;
    }
    /* Joins gate and up tensors of a file; and takes experts apart into tensors of their own. */
    void fuse(GgufFile *file) const;
    void take_apart(GgufFile *file) const;

  private:
    std::mt19937 random_;
};

/* Options that read a file as an architecture, with values it does not say. */
inline plec_container_options as(const char *architecture, const char *set = nullptr) {
    plec_container_options options = {};
    options.architecture = architecture;
    options.set = set;
    return options;
}
inline bool contains(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

/* The layer of the file runs on the reference and on the CPU device, and gives what the formulas
 * say; converted, it is the same layer. Returns the news of binding. */
std::string expect_layer(Moe &moe, const GgufFile &file, plec_container_options options = {});
/* Opening or binding is refused with this name, and all of these texts are in the message. */
void expect_refused(const Moe &moe, const GgufFile &file, const std::string &name,
                    const std::vector<std::string> &texts = {},
                    plec_container_options options = {});

} // namespace plec_test
#endif
