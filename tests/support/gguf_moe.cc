#include "tests/support/gguf_moe.h"

#include "tests/support/converted.h"
#include "tests/support/data.h"

#include <algorithm>
#include <numeric>

namespace plec_test {

/* ---- arithmetic ---- */

static double logistic(double z) {
    return 1 / (1 + std::exp(-z));
}

static double clip(double v, double limit) {
    return std::min(std::max(v, -limit), limit);
}

/* act(g, u); without a gate g is u and nothing is multiplied. */
static double combine(const Mlp &mlp, bool gated, double g, double u) {
    const double L = mlp.limit, tail = gated ? u : 1;
    if (!gated) g = u;
    if (mlp.act == "silu") return g * logistic(g) * tail;
    if (mlp.act == "gelu_tanh")
        return 0.5 * g * (1 + std::tanh(0.7978845608028654 * g * (1 + 0.044715 * g * g))) * tail;
    if (mlp.act == "relu") return std::max(g, 0.0) * tail;
    if (mlp.act == "relu_sqr") return std::max(g, 0.0) * std::max(g, 0.0) * tail;
    if (mlp.act == "silu_step") return std::min(g * logistic(g), L) * clip(tail, L);
    if (mlp.act == "clamped_gated") {
        double low = std::min(g, L);
        return low * logistic(low) * clip(tail, L);
    }
    if (mlp.act == "clamped_glu") {
        double low = std::min(g, L);
        return low * logistic(mlp.alpha * low) * (clip(tail, L) + 1);
    }
    ADD_FAILURE() << "no formula for " << mlp.act;
    return NAN;
}

static Reals times(const std::vector<float> &matrix, size_t at, size_t rows, const Reals &x) {
    Reals y(rows, 0);
    for (size_t r = 0; r < rows; r++)
        for (size_t i = 0; i < x.size(); i++)
            y[r] += double(matrix[at + r * x.size() + i]) * x[i];
    return y;
}

static double at_or(const std::vector<float> &values, size_t i, double otherwise) {
    return values.empty() ? otherwise : values.at(i);
}

Reals Mlp::run(uint32_t e, const Reals &x) const {
    const size_t at = size_t(e) * inner * in;
    Reals g(inner, 0), u = times(up, at, inner, x), h(inner);
    if (!gate.empty()) g = times(gate, at, inner, x);
    for (size_t i = 0; i < inner; i++) {
        const size_t row = size_t(e) * inner + i;
        h[i] =
            combine(*this, !gate.empty(), g[i] * at_or(gate_scale, e, 1) + at_or(gate_bias, row, 0),
                    u[i] * at_or(up_scale, e, 1) + at_or(up_bias, row, 0));
    }
    Reals y = times(down, size_t(e) * out * inner, out, h);
    for (size_t i = 0; i < out; i++)
        y[i] = y[i] * at_or(down_scale, e, 1) + at_or(down_bias, size_t(e) * out + i, 0);
    return y;
}

/* ---- routing ---- */

static Reals scores_of(const std::string &gating, const Reals &z) {
    Reals p = z;
    if (gating == "softmax") {
        double sum = 0;
        for (double value : z)
            sum += std::exp(value);
        for (double &value : p)
            value = std::exp(value) / sum;
    } else if (gating == "sigmoid") {
        for (double &value : p)
            value = logistic(value);
    } else if (gating == "sqrt_softplus") {
        for (double &value : p)
            value = std::sqrt(std::log1p(std::exp(value)));
    }
    return p;
}

static void close_groups(Reals *keys, uint32_t groups, uint32_t used) {
    const size_t size = keys->size() / groups;
    std::vector<std::pair<double, size_t>> best;
    for (size_t g = 0; g < groups; g++) {
        Reals of(keys->begin() + g * size, keys->begin() + (g + 1) * size);
        std::sort(of.rbegin(), of.rend());
        best.emplace_back(of[0] + of[1], g);
    }
    std::sort(best.rbegin(), best.rend());
    for (size_t i = used; i < groups; i++)
        for (size_t e = 0; e < size; e++)
            (*keys)[best[i].second * size + e] = -INFINITY;
}

static std::vector<int32_t> choose(const Moe &moe, const Reals &z, const Reals &p) {
    Reals keys = moe.select_on == "logits"    ? z
                 : moe.select_on == "sigmoid" ? scores_of("sigmoid", z)
                                              : p;
    for (size_t e = 0; e < keys.size(); e++)
        keys[e] += at_or(moe.selection_bias, e, 0);
    if (moe.groups > 1) close_groups(&keys, moe.groups, moe.groups_used);
    std::vector<int32_t> order(keys.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](int32_t a, int32_t b) { return keys[a] > keys[b]; });
    order.resize(moe.k);
    return order;
}

static Reals weigh(const Moe &moe, const Reals &p, const std::vector<int32_t> &ids) {
    Reals w;
    for (int32_t id : ids)
        w.push_back(p[id]);
    if (moe.gating == "softmax_selected") w = scores_of("softmax", w);
    double sum = std::max(std::accumulate(w.begin(), w.end(), 0.0), 6.103515625e-5);
    for (double &value : w)
        value = (moe.norm ? value / sum : value) * moe.scale;
    return w;
}

static Reals router_vector(const Moe &moe, const LayerInput &input, size_t t) {
    const std::vector<float> &from = input.router_input.empty() ? input.x : input.router_input;
    Reals r(from.begin() + t * moe.hidden, from.begin() + (t + 1) * moe.hidden);
    if (!moe.normed_input) return r;
    double squares = 0;
    for (double value : r)
        squares += value * value;
    for (size_t i = 0; i < r.size(); i++)
        r[i] = r[i] / std::sqrt(squares / moe.hidden + moe.input_eps) /
               std::sqrt(double(moe.hidden)) * at_or(moe.input_scale, i, 1);
    return r;
}

/* ---- the layer ---- */

static void add_to(Reals *y, double weight, const Reals &x) {
    for (size_t i = 0; i < y->size(); i++)
        (*y)[i] += weight * x[i];
}

static Reals routed_sum(const Moe &moe, const Reals &x, const std::vector<int32_t> &ids,
                        const Reals &weights) {
    Reals z = moe.latent_down.empty() ? x : times(moe.latent_down, 0, moe.routed.in, x);
    Reals sum(moe.routed.out, 0);
    for (size_t j = 0; j < ids.size(); j++) {
        Reals read = z;
        if (moe.weight_before)
            for (double &value : read)
                value *= weights[j];
        add_to(&sum, moe.weight_before ? 1 : weights[j],
               moe.routed.run(static_cast<uint32_t>(ids[j]), read));
    }
    return moe.latent_up.empty() ? sum : times(moe.latent_up, 0, moe.hidden, sum);
}

LayerOutput Moe::expected(const LayerInput &input) const {
    LayerOutput out;
    for (size_t t = 0; t < input.x.size() / hidden; t++) {
        Reals x(input.x.begin() + t * hidden, input.x.begin() + (t + 1) * hidden);
        Reals z = times(router, 0, n_experts, router_vector(*this, input, t));
        for (size_t e = 0; e < z.size(); e++)
            z[e] += at_or(router_bias, e, 0);
        Reals p = scores_of(gating, z);
        std::vector<int32_t> ids = choose(*this, z, p);
        if (!table.empty())
            ids.assign(table.begin() + input.tokens.at(t) * k,
                       table.begin() + (input.tokens.at(t) + 1) * k);
        Reals weights = weigh(*this, p, ids);
        Reals y = routed_sum(*this, x, ids, weights);
        double gate = shared_gate.empty() ? 1 : logistic(times(shared_gate, 0, 1, x)[0]);
        if (shared.n > 0) add_to(&y, gate, shared.run(0, x));
        if (dense.n > 0) add_to(&y, 1, dense.run(0, x));
        out.ids.insert(out.ids.end(), ids.begin(), ids.end());
        out.weights.insert(out.weights.end(), weights.begin(), weights.end());
        for (double value : y)
            out.y.push_back(float(factor * value));
    }
    return out;
}

/* ---- made up ---- */

Moe::Moe(uint32_t hidden_size, uint32_t inner, uint32_t experts, uint32_t top_k, unsigned seed)
    : hidden(hidden_size), n_experts(experts), k(top_k), random_(seed) {
    router = noise(size_t(experts) * hidden);
    routed = mlp(experts, hidden, inner, hidden);
}

std::vector<float> Moe::noise(size_t n, float spread) {
    std::normal_distribution<float> normal(0, spread);
    std::vector<float> values(n);
    for (float &value : values)
        value = normal(random_);
    return values;
}

Mlp Moe::mlp(uint32_t n, uint32_t in, uint32_t inner, uint32_t out, bool gated) {
    Mlp made;
    made.n = n;
    made.in = in;
    made.inner = inner;
    made.out = out;
    const float spread = 1 / std::sqrt(float(in));
    if (gated) made.gate = noise(size_t(n) * inner * in, spread);
    made.up = noise(size_t(n) * inner * in, spread);
    made.down = noise(size_t(n) * out * inner, 1 / std::sqrt(float(inner)));
    return made;
}

void Moe::add_biases(Mlp *of) {
    if (!of->gate.empty()) of->gate_bias = noise(size_t(of->n) * of->inner);
    of->up_bias = noise(size_t(of->n) * of->inner);
    of->down_bias = noise(size_t(of->n) * of->out);
}

void Moe::add_scales(Mlp *of) {
    if (!of->gate.empty()) of->gate_scale = noise(of->n);
    of->up_scale = noise(of->n);
    of->down_scale = noise(of->n);
}

void Moe::add_latent(uint32_t width, bool gated) {
    latent_down = noise(size_t(width) * hidden, 0.3f);
    latent_up = noise(size_t(width) * hidden, 0.3f);
    routed = mlp(n_experts, width, routed.inner, width, gated);
}

void Moe::add_shared(uint32_t width, bool gated) {
    shared = mlp(1, hidden, width, hidden, gated);
}

LayerInput Moe::input(uint32_t n_tokens, bool other_router_input) {
    LayerInput made;
    made.x = noise(size_t(n_tokens) * hidden);
    if (other_router_input) made.router_input = noise(size_t(n_tokens) * hidden);
    for (uint32_t t = 0; !table.empty() && t < n_tokens; t++)
        made.tokens.push_back(static_cast<int32_t>(random_() % (table.size() / k)));
    return made;
}

/* ---- the file ---- */

static void put_mlp(GgufFile *file, const Moe &moe, const Mlp &mlp, const std::string &suffix) {
    const bool many = suffix == "_exps";
    const auto with_count = [&](std::vector<uint64_t> ne) {
        if (many) ne.push_back(mlp.n);
        return ne;
    };
    const auto put = [&](const std::string &part, const std::vector<float> &values, uint64_t cols,
                         uint64_t rows) {
        if (!values.empty())
            file->tensor(moe.name("ffn_" + part + suffix + ".weight"), with_count({cols, rows}),
                         values);
    };
    const auto put_vector = [&](const std::string &rest, const std::vector<float> &values,
                                std::vector<uint64_t> ne) {
        if (!values.empty()) file->tensor(moe.name("ffn_" + rest), ne, values);
    };
    put("gate", mlp.gate, mlp.in, mlp.inner);
    put("up", mlp.up, mlp.in, mlp.inner);
    put("down", mlp.down, mlp.inner, mlp.out);
    put_vector("gate" + suffix + ".bias", mlp.gate_bias, with_count({mlp.inner}));
    put_vector("up" + suffix + ".bias", mlp.up_bias, with_count({mlp.inner}));
    put_vector("down" + suffix + ".bias", mlp.down_bias, with_count({mlp.out}));
    put_vector("gate" + suffix + ".scale", mlp.gate_scale, {mlp.n});
    put_vector("up" + suffix + ".scale", mlp.up_scale, {mlp.n});
    put_vector("down" + suffix + ".scale", mlp.down_scale, {mlp.n});
}

static void put_router(GgufFile *file, const Moe &moe) {
    const auto put = [&](const std::string &rest, const std::vector<float> &values,
                         const std::vector<uint64_t> &ne) {
        if (!values.empty()) file->tensor(moe.name(rest), ne, values);
    };
    put("ffn_gate_inp.weight", moe.router, {moe.hidden, moe.n_experts});
    put("ffn_gate_inp.bias", moe.router_bias, {moe.n_experts});
    put("exp_probs_b.bias", moe.selection_bias, {moe.n_experts});
    put("ffn_gate_inp.scale", moe.input_scale, {moe.hidden});
    put("ffn_gate_inp_shexp.weight", moe.shared_gate, {moe.hidden});
    put("ffn_latent_down.weight", moe.latent_down, {moe.hidden, moe.routed.in});
    put("ffn_latent_up.weight", moe.latent_up, {moe.routed.out, moe.hidden});
    if (!moe.table.empty())
        file->tensor_i32(moe.name("ffn_gate_tid2eid.weight"), {moe.k, moe.table.size() / moe.k},
                         moe.table);
}

GgufFile Moe::file(const std::string &architecture) const {
    GgufFile made(architecture);
    made.u32(".block_count", layer + 1).u32(".embedding_length", hidden);
    made.u32(".expert_count", n_experts).u32(".expert_used_count", k);
    made.u32(".expert_feed_forward_length", routed.inner);
    if (shared.n > 0) made.u32(".expert_shared_feed_forward_length", shared.inner);
    made.tensor(name("ffn_norm.weight"), {hidden}, std::vector<float>(hidden, 2));
    put_router(&made, *this);
    put_mlp(&made, *this, routed, "_exps");
    if (shared.n > 0) put_mlp(&made, *this, shared, "_shexp");
    if (dense.n > 0) put_mlp(&made, *this, dense, "");
    return made;
}

/* Each expert's rows of a, then those of b. */
static std::vector<float> join(const std::vector<float> &a, const std::vector<float> &b,
                               uint32_t n) {
    std::vector<float> both;
    const size_t each = a.size() / n;
    for (uint32_t e = 0; e < n; e++) {
        both.insert(both.end(), a.begin() + e * each, a.begin() + (e + 1) * each);
        both.insert(both.end(), b.begin() + e * each, b.begin() + (e + 1) * each);
    }
    return both;
}

void Moe::fuse(GgufFile *made) const {
    const Mlp &m = routed;
    made->without(name("ffn_gate_exps.weight")).without(name("ffn_up_exps.weight"));
    made->tensor(name("ffn_gate_up_exps.weight"), {m.in, 2 * m.inner, m.n},
                 join(m.gate, m.up, m.n));
    if (m.gate_bias.empty()) return;
    made->without(name("ffn_gate_exps.bias")).without(name("ffn_up_exps.bias"));
    made->tensor(name("ffn_gate_up_exps.bias"), {2 * m.inner, m.n},
                 join(m.gate_bias, m.up_bias, m.n));
}

void Moe::take_apart(GgufFile *made) const {
    for (const std::string part : {"down", "gate", "up"}) {
        const std::string merged = name("ffn_" + part + "_exps.weight");
        const GgufTensor whole = made->find(merged);
        const size_t each = whole.bytes.size() / n_experts;
        made->without(merged);
        for (uint32_t e = n_experts; e-- > 0;)
            made->tensor_bytes(name("ffn_" + part + "." + std::to_string(e) + ".weight"),
                               {whole.ne[0], whole.ne[1]}, whole.type,
                               std::vector<uint8_t>(whole.bytes.begin() + e * each,
                                                    whole.bytes.begin() + (e + 1) * each));
    }
}

/* ---- expectations ---- */

std::string expect_layer(Moe &moe, const GgufFile &file, plec_container_options options) {
    TempDir folder;
    file.write(folder.path("model.gguf"));
    OpenLayer open(folder.path("model.gguf"), moe.layer, options);
    EXPECT_EQ(open.status, PLEC_OK) << open.error.message;
    if (open.status != PLEC_OK) return "";
    const LayerInput input = moe.input(5, open.bound.router_input_required);
    const LayerOutput wanted = moe.expected(input), got = run_layer(open.bound, input);
    EXPECT_EQ(got.ids, wanted.ids);
    EXPECT_EQ(got.weights.size(), wanted.weights.size());
    for (size_t i = 0; i < got.weights.size() && i < wanted.weights.size(); i++)
        EXPECT_NEAR(got.weights[i], wanted.weights[i], 1e-12 * std::fabs(wanted.weights[i]));
    const Reals y(wanted.y.begin(), wanted.y.end());
    EXPECT_LT(nmse(got.y, y), 1e-13);
    const LayerOutput cpu = run_layer_on_cpu(open, moe.layer, input);
    EXPECT_EQ(cpu.ids, wanted.ids);
    EXPECT_LT(nmse(cpu.y, y), 1e-9);
    plec_convert_options convert = {};
    convert.source = options;
    convert.some_layers = true;
    convert.first_layer = convert.last_layer = moe.layer;
    expect_converts(folder.path("model.gguf"), moe.layer, convert);
    return open.news;
}

void expect_refused(const Moe &moe, const GgufFile &file, const std::string &name,
                    const std::vector<std::string> &texts, plec_container_options options) {
    TempDir folder;
    file.write(folder.path("model.gguf"));
    OpenLayer open(folder.path("model.gguf"), moe.layer, options);
    EXPECT_NE(open.status, PLEC_OK) << "wanted " << name;
    if (open.status == PLEC_OK) return;
    EXPECT_STREQ(open.error.name, name.c_str()) << open.error.message;
    for (const std::string &text : texts)
        EXPECT_NE(std::string(open.error.message).find(text), std::string::npos)
            << "wanted \"" << text << "\" in: " << open.error.message;
}

} // namespace plec_test
