/* route.cu: from a token's logits to its experts and their weights: every router of device/layer.h,
 * in double, so that the ids are those of the reference.
 *
 * Mapping: a block of one warp a token. Shared memory: 24 bytes an expert and 1 KB: up to 25 KB. A
 * lane has experts lane, lane + 32, ...; the k largest are k rounds of a warp's argmax over (value,
 * lowest index), so that ids are always in range and distinct, and ties go to the lower id. Reads 8
 * bytes an expert and token; writes 8 bytes a slot. Sums that end in a weight are made by one lane
 * in slot order.
 *
 * A token whose scores are not numbers has ids 0, weights NaN and its mark set: no other token sees
 * it.
 */
#include "device/cuda/kernels.h"
#include "device/cuda/launch.cuh"

#define PLEC_ALL_LANES 0xFFFFFFFFu

enum : unsigned { EXPERTS = PLEC_CUDA_EXPERTS_MAX, SLOTS = PLEC_CUDA_SLOTS_MAX };

/* One token's arrays. */
struct routing {
    double *z, *key;     /* [n_experts] */
    double *group;       /* [n_groups] scores; with k_per_group: how many each gave */
    double *weight;      /* [top_k] */
    uint32_t *chosen;    /* [top_k] */
    uint32_t *taken;     /* [EXPERTS / 32] a bit an expert */
    uint32_t *used;      /* [EXPERTS / 32] a bit a group */
    double largest, sum; /* of the softmax */
};

static __device__ __forceinline__ uint32_t lane_of_thread(void) {
    return threadIdx.x;
}

static __device__ __forceinline__ bool bit_at(const uint32_t *bits, uint32_t i) {
    return bits[i / 32] >> i % 32 & 1u;
}

static __device__ __forceinline__ bool is_nan(double value) {
    return value != value;
}

static __device__ double warp_sum(double value) {
    for (int d = 16; d > 0; d /= 2)
        value += __shfl_xor_sync(PLEC_ALL_LANES, value, d);
    return value;
}

/* What a token's products are multiplied by. */
static __device__ double input_factor(const struct plec_cuda_route_args &args, uint32_t token) {
    const float *x = args.x + plec_cuda_at(token, args.router.input_dim);
    double sum = 0, n = args.router.input_dim;
    if (!args.router.input_norm) return 1;
    for (uint32_t i = lane_of_thread(); i < args.router.input_dim; i += 32)
        sum += (double)x[i] * x[i];
    return 1 / sqrt(warp_sum(sum) / n + args.router.input_eps) / sqrt(n);
}

static __device__ double sigmoid(double z) {
    return 1 / (1 + exp(-z));
}
/* log(1 + e^z) without overflow for large z or loss for very negative z. */
static __device__ double softplus(double z) {
    return z > 0 ? z + log1p(exp(-z)) : log1p(exp(z));
}

/* What the weight of an expert is made of. */
static __device__ double score(const struct plec_cuda_route_args &args, const struct routing &r,
                               double z) {
    switch (args.router.gating) {
    case PLEC_GATING_SOFTMAX: return exp(z - r.largest) / r.sum;
    case PLEC_GATING_SIGMOID: return sigmoid(z);
    case PLEC_GATING_SQRT_SOFTPLUS: return sqrt(softplus(z));
    default: return z; /* softmax over the selected */
    }
}

static __device__ double selection_key(const struct plec_cuda_route_args &args, double z, double p,
                                       uint32_t expert) {
    double key = args.router.select_on == PLEC_SELECT_ON_LOGITS    ? z
                 : args.router.select_on == PLEC_SELECT_ON_SIGMOID ? sigmoid(z)
                                                                   : p;
    return args.router.selection_bias != NULL ? key + args.router.selection_bias[expert] : key;
}

/* Fills z and the softmax's two numbers. */
static __device__ void read_logits(const struct plec_cuda_route_args &args, struct routing &r,
                                   uint32_t token) {
    const double *products = args.logits + plec_cuda_at(token, args.router.n_experts);
    double factor = input_factor(args, token), largest = -HUGE_VAL, sum = 0;
    for (uint32_t e = lane_of_thread(); e < args.router.n_experts; e += 32) {
        double z = products[e] * factor;
        if (args.router.bias != NULL) z += args.router.bias[e];
        r.z[e] = z;
        if (z > largest) largest = z;
    }
    for (int d = 16; d > 0; d /= 2) {
        double other = __shfl_xor_sync(PLEC_ALL_LANES, largest, d);
        if (other > largest) largest = other;
    }
    if (args.router.gating == PLEC_GATING_SOFTMAX)
        for (uint32_t e = lane_of_thread(); e < args.router.n_experts; e += 32)
            sum += exp(r.z[e] - largest);
    r.largest = largest;
    r.sum = warp_sum(sum);
}

/* Fills key; true when a logit, a score or a key is NaN. */
static __device__ bool make_keys(const struct plec_cuda_route_args &args, const struct routing &r) {
    bool bad = false;
    for (uint32_t e = lane_of_thread(); e < args.router.n_experts; e += 32) {
        double z = r.z[e], p = score(args, r, z), key = selection_key(args, z, p, e);
        bad = bad || is_nan(z) || is_nan(p) || is_nan(key);
        r.key[e] = key;
    }
    return __any_sync(PLEC_ALL_LANES, bad);
}

static __device__ void clear(uint32_t *bits) {
    for (uint32_t i = lane_of_thread(); i < EXPERTS / 32; i += 32)
        bits[i] = 0;
    __syncwarp();
}

/* The largest of value [n] whose bit is clear, the first of equals; the same in every lane. */
static __device__ uint32_t largest_free(const double *value, const uint32_t *taken, uint32_t n) {
    uint32_t best = n;
    double most = 0;
    for (uint32_t i = lane_of_thread(); i < n; i += 32)
        if (!bit_at(taken, i) && (best == n || value[i] > most)) {
            best = i;
            most = value[i];
        }
    for (int d = 16; d > 0; d /= 2) {
        uint32_t other = __shfl_xor_sync(PLEC_ALL_LANES, best, d);
        double others = __shfl_xor_sync(PLEC_ALL_LANES, most, d);
        bool better = best == n || others > most || (others == most && other < best);
        if (other != n && better) {
            best = other;
            most = others;
        }
    }
    return best;
}

static __device__ void take(uint32_t *bits, uint32_t i) {
    __syncwarp();
    if (lane_of_thread() == 0) bits[i / 32] |= 1u << i % 32;
    __syncwarp();
}

/* The sum of the two largest of n keys; the key itself when there is one. */
static __device__ double two_largest(const double *key, uint32_t n) {
    double first = key[0], second = -HUGE_VAL;
    for (uint32_t i = 1; i < n; i++) {
        if (key[i] > first) {
            second = first;
            first = key[i];
        } else if (key[i] > second) {
            second = key[i];
        }
    }
    return n > 1 ? first + second : first;
}

/* Takes every expert outside the best groups; true when a group's score is NaN. */
static __device__ bool close_groups(const struct plec_cuda_route_args &args,
                                    const struct routing &r) {
    uint32_t n_groups = args.router.n_groups, size = args.router.n_experts / n_groups;
    bool bad = false;
    for (uint32_t g = lane_of_thread(); g < n_groups; g += 32) {
        r.group[g] = two_largest(r.key + g * size, size);
        bad = bad || is_nan(r.group[g]);
    }
    if (__any_sync(PLEC_ALL_LANES, bad)) return true;
    clear(r.used);
    for (uint32_t i = 0; i < args.router.n_groups_used; i++)
        take(r.used, largest_free(r.group, r.used, n_groups));
    for (uint32_t word = lane_of_thread(); word < EXPERTS / 32; word += 32) {
        uint32_t bits = 0;
        for (uint32_t e = 32 * word; e < 32 * word + 32 && e < args.router.n_experts; e++)
            bits |= (bit_at(r.used, e / size) ? 0u : 1u) << e % 32;
        r.taken[word] = bits;
    }
    __syncwarp();
    return false;
}

/* Counts an expert of its group, and takes the others of a group that has given its share. */
static __device__ void count_group(const struct plec_cuda_route_args &args, const struct routing &r,
                                   uint32_t expert) {
    uint32_t size = args.router.n_experts / args.router.n_groups, group = expert / size;
    double given = r.group[group] + 1;
    __syncwarp();
    if (lane_of_thread() == 0) {
        r.group[group] = given;
        if (given >= args.router.k_per_group)
            for (uint32_t e = group * size; e < (group + 1) * size; e++)
                r.taken[e / 32] |= 1u << e % 32;
    }
    __syncwarp();
}

/* chosen [top_k]: the largest of order among experts not taken, best first. */
static __device__ void choose(const struct plec_cuda_route_args &args, const struct routing &r) {
    bool by_logit = args.router.gating == PLEC_GATING_SOFTMAX &&
                    args.router.select_on == PLEC_SELECT_ON_SCORES &&
                    args.router.selection_bias == NULL;
    const double *order = by_logit ? r.z : r.key;
    for (uint32_t g = lane_of_thread(); args.router.k_per_group != 0 && g < args.router.n_groups;
         g += 32)
        r.group[g] = 0;
    __syncwarp();
    for (uint32_t j = 0; j < args.router.top_k; j++) {
        uint32_t best = largest_free(order, r.taken, args.router.n_experts);
        if (lane_of_thread() == 0) r.chosen[j] = best;
        take(r.taken, best);
        if (args.router.k_per_group != 0) count_group(args, r, best);
    }
}

/* Softmax over the chosen, by one lane. */
static __device__ void soften(double *weight, uint32_t k) {
    double largest = -HUGE_VAL, sum = 0;
    for (uint32_t j = 0; j < k; j++)
        if (weight[j] > largest) largest = weight[j];
    for (uint32_t j = 0; j < k; j++)
        sum += weight[j] = exp(weight[j] - largest);
    for (uint32_t j = 0; j < k; j++)
        weight[j] /= sum;
}

static __device__ void normalise(const struct plec_cuda_router &router, double *weight) {
    double sum = 0;
    for (uint32_t j = 0; j < router.top_k; j++)
        sum += weight[j];
    double divisor = sum + router.norm_epsilon;
    if (divisor < router.norm_floor) divisor = router.norm_floor;
    for (uint32_t j = 0; j < router.top_k; j++)
        weight[j] /= divisor;
}

/* weight [top_k] of the chosen; true when one is not finite. */
static __device__ bool weigh(const struct plec_cuda_route_args &args, const struct routing &r) {
    bool bad = false;
    for (uint32_t j = lane_of_thread(); j < args.router.top_k; j += 32)
        r.weight[j] = score(args, r, r.z[r.chosen[j]]);
    __syncwarp();
    if (lane_of_thread() == 0) {
        if (args.router.gating == PLEC_GATING_SOFTMAX_SELECTED) soften(r.weight, args.router.top_k);
        if (args.router.normalise) normalise(args.router, r.weight);
    }
    __syncwarp();
    for (uint32_t j = lane_of_thread(); j < args.router.top_k; j += 32) {
        double weight = r.weight[j] * args.router.scale;
        if (args.router.expert_scale != NULL) weight *= args.router.expert_scale[r.chosen[j]];
        r.weight[j] = weight;
        bad = bad || !(weight - weight == 0); /* neither NaN nor infinite */
    }
    return __any_sync(PLEC_ALL_LANES, bad);
}

/* True when the token has no finite weights. */
static __device__ bool route_token(const struct plec_cuda_route_args &args, struct routing &r,
                                   uint32_t token) {
    read_logits(args, r, token);
    if (make_keys(args, r)) return true;
    clear(r.taken);
    if (args.router.n_groups > 1 && args.router.k_per_group == 0 && close_groups(args, r))
        return true;
    choose(args, r);
    return weigh(args, r);
}

static __global__ void __launch_bounds__(32) route_kernel(struct plec_cuda_route_args args) {
    PLEC_SHARED_DYNAMIC(raw);
    PLEC_SHARED_STATIC(double[SLOTS], weight);
    PLEC_SHARED_STATIC(uint32_t[SLOTS], chosen);
    PLEC_SHARED_STATIC(uint32_t[EXPERTS / 32], taken);
    PLEC_SHARED_STATIC(uint32_t[EXPERTS / 32], used);
    if (args.fault->code != PLEC_CUDA_NO_FAULT) return;
    struct routing r = {};
    r.z = (double *)raw;
    r.key = r.z + args.router.n_experts;
    r.group = r.key + args.router.n_experts;
    r.weight = weight, r.chosen = chosen, r.taken = taken, r.used = used;
    uint32_t token = blockIdx.x, k = args.router.top_k;
    bool bad = route_token(args, r, token);
    __syncwarp();
    for (uint32_t j = lane_of_thread(); j < k; j += 32) {
        args.ids[plec_cuda_at(token, k) + j] = bad ? 0 : (int32_t)r.chosen[j];
        args.weights[plec_cuda_at(token, k) + j] = bad ? (float)NAN : (float)r.weight[j];
    }
    if (lane_of_thread() == 0) args.unrouted[token] = bad;
}

size_t plec_cuda_route_shared(uint32_t n_experts, uint32_t n_groups) {
    return (2 * (size_t)n_experts + n_groups) * sizeof(double);
}

int plec_cuda_launch_route(const struct plec_cuda_route_args *args, cudaStream_t stream) {
    size_t shared = plec_cuda_route_shared(args->router.n_experts, args->router.n_groups);
    return (int)PLEC_LAUNCH(route_kernel, dim3(args->n_tokens), dim3(32), shared, stream, *args);
}
