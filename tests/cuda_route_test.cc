// Routing on a device against the reference: the same ids, and weights to f32's last bits.
#include "tests/support/cuda_device.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <set>

namespace {

using namespace plec_test;

const float INF = std::numeric_limits<float>::infinity();
const float NOT_A_NUMBER = std::numeric_limits<float>::quiet_NaN();

/* A router with the memory it looks into. */
struct Router {
    Router(uint32_t n_experts, uint32_t top_k, uint32_t input_dim, uint32_t seed,
           uint16_t format = PLEC_FORMAT_F32) {
        Random random(seed);
        get.n_experts = n_experts, get.top_k = top_k, get.input_dim = input_dim;
        get.n_groups = 1, get.scale = 1;
        weight = random.matrix(format, n_experts, input_dim);
        get.weight = weight.view();
        bias = random.normals(n_experts), selection_bias = random.normals(n_experts, 0.2f);
        expert_scale = random.normals(n_experts), input_scale = random.normals(input_dim);
    }
    Router(const Router &) = delete;
    Router &operator=(const Router &) = delete;
    /* The logits of a token are these times its one value. */
    explicit Router(const std::vector<float> &logits, uint32_t top_k)
        : Router(static_cast<uint32_t>(logits.size()), top_k, 1, 1) {
        memcpy(weight.values.data(), logits.data(), logits.size() * sizeof(float));
    }
    struct plec_router get = {};
    Matrix weight;
    std::vector<float> bias, selection_bias, expert_scale, input_scale;
};

struct Routed {
    std::vector<int32_t> ids;
    std::vector<float> weights;
    std::vector<uint8_t> unrouted;
};

Routed reference(const struct plec_router &router, const std::vector<float> &x, uint32_t n_tokens) {
    Routed out;
    size_t k = router.top_k;
    std::vector<double> z(router.n_experts), row(router.weight.cols), weights(k);
    std::vector<double> scratch(plec_reference_route_scratch(&router));
    std::vector<int32_t> ids(k);
    for (size_t t = 0; t < n_tokens; t++) {
        plec_reference_logits(z.data(), &router, &x[t * router.input_dim], row.data());
        bool bad = plec_reference_route(ids.data(), weights.data(), &router, z.data(),
                                        scratch.data(), nullptr) != PLEC_OK;
        out.unrouted.push_back(bad);
        for (size_t j = 0; j < k; j++) {
            out.ids.push_back(bad ? 0 : ids[j]);
            out.weights.push_back(bad ? NOT_A_NUMBER : static_cast<float>(weights[j]));
        }
    }
    return out;
}

Routed on_cuda(CudaDevice *cuda, const struct plec_router &router, const std::vector<float> &x,
               uint32_t n_tokens) {
    struct plec_router there = router;
    auto put = [&](const float **values, size_t n) {
        if (*values != nullptr) *values = cuda->upload(std::vector<float>(*values, *values + n));
    };
    put(&there.bias, router.n_experts), put(&there.selection_bias, router.n_experts);
    put(&there.expert_scale, router.n_experts), put(&there.input_scale, router.input_dim);
    uint64_t values = 0, scales = 0, n_bytes = 0;
    EXPECT_EQ(plec_format_size(&values, &scales, router.weight.format, router.n_experts,
                               router.weight.cols, nullptr),
              PLEC_OK);
    there.weight.values =
        cuda->upload(std::vector<uint8_t>(router.weight.values, router.weight.values + values));
    if (scales > 0)
        there.weight.scales =
            cuda->upload(std::vector<uint8_t>(router.weight.scales, router.weight.scales + scales));
    EXPECT_TRUE(plec_route_workspace(&n_bytes, cuda->device, &router, n_tokens));
    size_t n = size_t(n_tokens) * router.top_k;
    struct plec_route_args args = {};
    args.router = &there, args.n_tokens = n_tokens, args.x = cuda->upload(x);
    args.ids = static_cast<int32_t *>(cuda->poisoned(n * 4));
    args.weights = static_cast<float *>(cuda->poisoned(n * 4));
    args.unrouted = static_cast<uint8_t *>(cuda->poisoned(n_tokens));
    args.workspace = cuda->poisoned(n_bytes);
    EXPECT_EQ(plec_launch_route(cuda->stream, &args, &cuda->err), PLEC_OK) << cuda->err.message;
    return {cuda->download(args.ids, n), cuda->download(args.weights, n),
            cuda->download(args.unrouted, n_tokens)};
}

void expect_ids_whole(const Routed &got, const struct plec_router &router, uint32_t n_tokens) {
    for (size_t t = 0; t < n_tokens; t++) {
        std::set<int32_t> seen;
        for (size_t j = 0; j < router.top_k && !got.unrouted[t]; j++) {
            int32_t id = got.ids[t * router.top_k + j];
            EXPECT_TRUE(id >= 0 && static_cast<uint32_t>(id) < router.n_experts) << id;
            EXPECT_TRUE(seen.insert(id).second) << "twice: " << id;
        }
    }
}

void expect_same(CudaDevice *cuda, const struct plec_router &router, const std::vector<float> &x,
                 uint32_t n_tokens) {
    Routed want = reference(router, x, n_tokens), got = on_cuda(cuda, router, x, n_tokens);
    EXPECT_EQ(got.unrouted, want.unrouted);
    EXPECT_EQ(got.ids, want.ids);
    expect_ids_whole(got, router, n_tokens);
    for (size_t i = 0; i < want.weights.size(); i++)
        if (std::isnan(want.weights[i]))
            EXPECT_TRUE(std::isnan(got.weights[i])) << i;
        else
            EXPECT_NEAR(got.weights[i], want.weights[i], 2e-7 * std::fabs(want.weights[i])) << i;
}

class Route : public testing::Test {
  protected:
    void check(const Router &router, uint32_t n_tokens = 3) {
        std::vector<float> x = Random(77).normals(size_t(n_tokens) * router.get.input_dim, 1.5f);
        expect_same(&cuda_, router.get, x, n_tokens);
    }
    /* One token whose logits are given. */
    void check_logits(const Router &router) { expect_same(&cuda_, router.get, {1.0f}, 1); }
    CudaDevice cuda_;
};

const plec_gating gatings[] = {PLEC_GATING_SOFTMAX, PLEC_GATING_SIGMOID,
                               PLEC_GATING_SOFTMAX_SELECTED, PLEC_GATING_SQRT_SOFTPLUS};

TEST_F(Route, EqualsTheReferenceForEveryGatingKeyAndNormalisation) {
    for (plec_gating gating : gatings)
        for (int select_on = PLEC_SELECT_ON_SCORES; select_on <= PLEC_SELECT_ON_SIGMOID;
             select_on++)
            for (int options = 0; options < 8; options++) {
                SCOPED_TRACE("gating " + std::to_string(gating) + " on " +
                             std::to_string(select_on) + " options " + std::to_string(options));
                Router router(40, 6, 48, static_cast<uint32_t>(options + 1));
                router.get.gating = gating;
                router.get.select_on = static_cast<plec_select_on>(select_on);
                router.get.normalise = options & 1;
                router.get.norm_epsilon = options & 2 ? 1e-3 : 0;
                router.get.norm_floor = options & 4 ? 0.5 : 0;
                router.get.scale = options & 2 ? 2.5 : 1;
                if (options & 4) router.get.bias = router.bias.data();
                if (options & 2) router.get.selection_bias = router.selection_bias.data();
                if (options & 1) router.get.expert_scale = router.expert_scale.data();
                check(router, 2);
            }
}

TEST_F(Route, EqualsTheReferenceForEveryExpertCountAndTopK) {
    for (uint32_t n_experts : {1,  2,   3,   5,   7,   8,   31,  32,  33,  40,  60,
                               64, 127, 128, 129, 160, 256, 257, 384, 512, 896, 1024})
        for (uint32_t top_k : {1, 2, 8, 33, 64})
            if (top_k <= n_experts) {
                SCOPED_TRACE(std::to_string(n_experts) + " experts, " + std::to_string(top_k));
                Router router(n_experts, top_k, 32, n_experts + top_k);
                router.get.normalise = true;
                check(router, 1);
            }
}

TEST_F(Route, ChoosesByGroups) {
    for (uint32_t n_groups : {2, 8, 16, 32})
        for (plec_gating gating : {PLEC_GATING_SIGMOID, PLEC_GATING_SOFTMAX}) {
            SCOPED_TRACE(n_groups);
            Router router(128, 4, 32, n_groups);
            router.get.gating = gating, router.get.n_groups = n_groups;
            router.get.n_groups_used = n_groups / 2;
            router.get.selection_bias = router.selection_bias.data();
            check(router);
            router.get.n_groups_used = 0, router.get.k_per_group = 4 / n_groups + 1;
            if (n_groups <= 8) check(router);
        }
}

TEST_F(Route, NormsAndScalesItsInput) {
    Router router(24, 3, 80, 5);
    router.get.input_norm = true, router.get.input_eps = 1e-6;
    check(router);
    router.get.input_scale = router.input_scale.data();
    router.get.bias = router.bias.data();
    check(router, 9);
}

TEST_F(Route, ReadsEveryFormatOfRouterWeights) {
    size_t n;
    const struct plec_format *formats = plec_format_all(&n);
    for (size_t i = 0; i < n; i++) {
        if (formats[i].decode == nullptr) continue; /* f64 */
        SCOPED_TRACE(formats[i].name);
        uint32_t width = formats[i].block_elems < 64 ? 64 : formats[i].block_elems;
        check(Router(12, 3, width, 9, formats[i].tag), 2);
    }
}

TEST_F(Route, GivesTiesToTheLowerId) {
    for (plec_gating gating : gatings) {
        Router equal(std::vector<float>(70, 0.5f), 9);
        equal.get.gating = gating;
        check_logits(equal);
        Router pairs({1, 3, 2, 3, 1, 2, 3, 0}, 5);
        pairs.get.gating = gating;
        check_logits(pairs);
    }
}

TEST_F(Route, TakesLogitsFarOutAsTheReferenceDoes) {
    for (plec_gating gating : gatings)
        for (const std::vector<float> &logits : {std::vector<float>{-INF, -INF, -INF, -INF},
                                                 {INF, 1, 2, 3},
                                                 {INF, INF, -INF, 0},
                                                 {-INF, 5, -INF, -INF},
                                                 {NOT_A_NUMBER, 1, 2, 3},
                                                 {1, 2, NOT_A_NUMBER, 3},
                                                 {1e30f, -1e30f, 3e38f, -3e38f},
                                                 {-800, -801, -802, -803},
                                                 {900, 1, -900, 0}}) {
            SCOPED_TRACE("gating " + std::to_string(gating) + " first logit " +
                         std::to_string(logits[0]));
            Router router(logits, 2);
            router.get.gating = gating, router.get.normalise = gating == PLEC_GATING_SIGMOID;
            check_logits(router);
        }
}

/* A key that is NaN marks its token even where every score is a number. */
TEST_F(Route, MarksATokenWhoseKeyIsNaN) {
    Router router({INF, 1, 2, 3}, 2);
    router.get.gating = PLEC_GATING_SIGMOID, router.get.select_on = PLEC_SELECT_ON_LOGITS;
    router.selection_bias = {-INF, 0, 0, 0};
    router.get.selection_bias = router.selection_bias.data();
    check_logits(router);
    EXPECT_EQ(on_cuda(&cuda_, router.get, {1.0f}, 1).unrouted[0], 1);
}

/* A group whose best keys are infinite in both directions has no score. */
TEST_F(Route, MarksATokenWhoseGroupScoreIsNaN) {
    Router router({INF, -INF, 1, 2}, 1);
    router.get.gating = PLEC_GATING_SIGMOID, router.get.select_on = PLEC_SELECT_ON_LOGITS;
    router.get.n_groups = 2, router.get.n_groups_used = 1;
    check_logits(router);
}

TEST_F(Route, LetsNoTokenSeeANeighboursNaN) {
    Router router(33, 4, 16, 3);
    const uint32_t n_tokens = 11;
    std::vector<float> x = Random(4).normals(n_tokens * 16), spoilt = x;
    for (uint32_t i = 0; i < 16; i++)
        spoilt[3 * 16 + i] = NOT_A_NUMBER;
    spoilt[8 * 16 + 5] = INF;
    Routed clean = on_cuda(&cuda_, router.get, x, n_tokens);
    Routed got = on_cuda(&cuda_, router.get, spoilt, n_tokens);
    for (size_t t = 0; t < n_tokens; t++) {
        bool bad = t == 3 || t == 8;
        EXPECT_EQ(got.unrouted[t], bad);
        for (size_t i = 4 * t; i < 4 * t + 4; i++) {
            EXPECT_EQ(got.ids[i], bad ? 0 : clean.ids[i]);
            if (bad)
                EXPECT_TRUE(std::isnan(got.weights[i]));
            else
                EXPECT_EQ(got.weights[i], clean.weights[i]);
        }
    }
}

TEST_F(Route, RefusesMoreThanAWarpHolds) {
    struct plec_route_args args = {};
    Router many(1025, 2, 4, 1);
    args.router = &many.get, args.n_tokens = 1;
    EXPECT_EQ(plec_launch_route(cuda_.stream, &args, &cuda_.err), PLEC_UNSUPPORTED);
    EXPECT_STREQ(cuda_.err.name, "TooManyExperts");
    EXPECT_FALSE(plec_device_routes(cuda_.device, &many.get));
    Router wide(100, 65, 4, 1), most(1024, 64, 4, 1);
    args.router = &wide.get;
    EXPECT_EQ(plec_launch_route(cuda_.stream, &args, &cuda_.err), PLEC_UNSUPPORTED);
    EXPECT_FALSE(plec_device_routes(cuda_.device, &wide.get));
    EXPECT_TRUE(plec_device_routes(cuda_.device, &most.get));
}

} // namespace
