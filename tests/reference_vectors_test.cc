/* Every line of tests/data/moe_vectors.txt whose inputs stand in the file. The values were computed
 * in f32 by other code; each is followed by its bits. */
#include "device/reference/reference.h"
#include "tests/support/data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace {

const double TOLERANCE = 1e-6;

/* "7.310585976e-1/3f3b26a8": the value of the bits, which must be the decimal's. */
float parse_value(const std::string &text) {
    size_t slash = text.find('/');
    uint32_t bits = std::stoul(text.substr(slash + 1), nullptr, 16);
    float value;
    memcpy(&value, &bits, 4);
    EXPECT_NEAR(std::stod(text.substr(0, slash)), value, 1e-9 * std::fabs(value)) << text;
    return value;
}

std::vector<float> parse_list(const std::string &line) {
    size_t open = line.rfind('['), close = line.rfind(']');
    std::istringstream in(line.substr(open + 1, close - open - 1));
    std::vector<float> values;
    for (std::string word; in >> word;)
        values.push_back(parse_value(word));
    return values;
}

std::vector<std::string> lines_of_file() {
    std::istringstream in(plec_test::read_text(plec_test::data_path("moe_vectors.txt")));
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);)
        if (!line.empty()) lines.push_back(line);
    return lines;
}

bool starts(const std::string &line, const std::string &prefix) {
    return line.compare(0, prefix.size(), prefix) == 0;
}

/* The list on the one line that starts so. */
std::vector<float> list_named(const std::string &name) {
    for (const std::string &line : lines_of_file())
        if (starts(line, name)) return parse_list(line);
    ADD_FAILURE() << "no " << name;
    return {};
}

void expect_close(double got, double wanted, const std::string &line) {
    EXPECT_LE(std::fabs(got - wanted), TOLERANCE * std::fabs(wanted))
        << line << ": got " << got << ", wanted " << wanted;
}

plec_expert_maths maths_named(const std::string &name) {
    plec_expert_maths maths = {};
    if (name == "gated_silu") {
        maths.activation = PLEC_SILU;
    } else if (name == "gated_gelu_tanh") {
        maths.activation = PLEC_GELU_TANH;
    } else if (name == "clamped_glu_7_1.702") {
        maths.activation = PLEC_CLAMPED_GLU;
        maths.limit = 7;
        maths.alpha = 1.702;
    } else if (name == "situ_4_25" || name == "situ_4_none") {
        maths.activation = PLEC_SITU_GLU;
        maths.beta = 4;
        maths.linear_beta = name == "situ_4_25" ? 25 : 0;
    } else if (name == "clamped_gated_10_silu") {
        maths.activation = PLEC_CLAMPED_GATED;
        maths.limit = 10;
    } else {
        ADD_FAILURE() << "no activation " << name;
    }
    return maths;
}

void check_combine(const std::string &line) {
    std::istringstream in(line);
    std::string combine, name, g, u, arrow, value;
    in >> combine >> name >> g >> u >> arrow >> value;
    plec_expert_maths maths = maths_named(name);
    double got =
        plec_reference_combine(&maths, true, std::stod(g.substr(2)), std::stod(u.substr(2)));
    expect_close(got, parse_value(value), line);
}

/* Routes the file's logits, through an identity matrix so that the router bias takes part. */
void check_route(const std::string &line) {
    std::vector<float> logits = list_named("router.logits"), bias = list_named("router.bias");
    size_t n = logits.size();
    std::vector<float> identity(n * n);
    for (size_t i = 0; i < n; i++)
        identity[i * n + i] = 1;
    plec_router router = {};
    router.n_experts = router.input_dim = n;
    router.top_k = std::stoul(line.substr(line.find("k=") + 2));
    router.scale = 1;
    router.weight = {PLEC_FORMAT_F32, uint32_t(n), uint32_t(n),
                     reinterpret_cast<const uint8_t *>(identity.data()), nullptr};
    std::string kind = line.substr(6, line.find(" k=") - 6);
    if (kind == "softmax_then_select") {
        router.gating = PLEC_GATING_SOFTMAX;
    } else if (kind == "normalised_over_selected") {
        router.gating = PLEC_GATING_SOFTMAX_SELECTED;
    } else if (kind == "logit_bias_then_over_selected") {
        router.gating = PLEC_GATING_SOFTMAX_SELECTED;
        router.bias = bias.data();
    } else if (kind == "sigmoid_bias_renorm") {
        router.gating = PLEC_GATING_SIGMOID;
        router.selection_bias = bias.data();
        router.normalise = true;
        router.norm_epsilon = 1e-20;
        router.scale = std::stod(line.substr(line.find("scale=") + 6));
    } else if (kind == "sigmoid_raw" || kind == "sigmoid_renorm") {
        router.gating = PLEC_GATING_SIGMOID; /* at k = 1 the caller does not ask to normalise */
    } else {
        ADD_FAILURE() << line;
        return;
    }
    std::vector<double> z(n), row(n), weights(router.top_k);
    std::vector<double> scratch(plec_reference_route_scratch(&router));
    std::vector<int32_t> ids(router.top_k);
    plec_reference_logits(z.data(), &router, logits.data(), row.data());
    ASSERT_EQ(plec_reference_route(ids.data(), weights.data(), &router, z.data(), scratch.data(),
                                   nullptr),
              PLEC_OK);
    std::istringstream in(line.substr(line.find("-> ") + 3));
    size_t j = 0;
    for (std::string word; in >> word; j++) {
        ASSERT_LT(j, ids.size()) << line;
        EXPECT_EQ(ids[j], std::stoi(word)) << line;
        expect_close(weights[j], parse_value(word.substr(word.find(':') + 1)), line);
    }
    EXPECT_EQ(j, ids.size()) << line;
}

void check_expert(const std::string &line) {
    std::istringstream in(line);
    std::string expert, layout, name, with_bias;
    in >> expert >> layout >> name >> with_bias;
    std::vector<float> x = list_named("expert.x"), wanted = parse_list(line);
    std::vector<float> gate_up = list_named("expert.gate_up[6x4]"),
                       down = list_named("expert.down[4x3]");
    std::vector<float> gate_up_bias = list_named("expert.gate_up_bias"),
                       down_bias = list_named("expert.down_bias");
    plec_entry entry = {};
    plec_bank bank = {};
    auto put = [&](plec_operand_id id, const std::vector<float> &values, uint32_t rows) {
        bank.operands[id] = {PLEC_FORMAT_F32, rows, uint32_t(values.size()) / rows};
        entry.values[id] = reinterpret_cast<const uint8_t *>(values.data());
    };
    bank.n_entries = 1;
    bank.input_dim = bank.output_dim = 4;
    bank.intermediate_dim = 3;
    bank.fusion = layout == "contiguous" ? PLEC_FUSED_GATE_FIRST : PLEC_FUSED_INTERLEAVED;
    bank.maths = maths_named(name);
    bank.entries = &entry;
    put(PLEC_GATE, gate_up, 6);
    put(PLEC_DOWN, down, 4);
    if (with_bias == "with_bias") {
        put(PLEC_GATE_BIAS, gate_up_bias, 1);
        put(PLEC_DOWN_BIAS, down_bias, 1);
    }
    std::vector<double> x_f64(x.begin(), x.end()), y(4);
    std::vector<double> scratch(plec_reference_expert_scratch(&bank));
    plec_reference_expert(y.data(), &bank, 0, 1, false, x_f64.data(), scratch.data());
    ASSERT_EQ(wanted.size(), y.size());
    for (size_t i = 0; i < y.size(); i++)
        expect_close(y[i], wanted[i], line);
}

TEST(ReferenceVectors, EveryLineWithItsInputsIsReproduced) {
    std::map<std::string, int> n;
    for (const std::string &line : lines_of_file()) {
        if (starts(line, "combine ")) {
            check_combine(line);
            n["combine"]++;
        } else if (starts(line, "route latent.") || starts(line, "latent.") ||
                   starts(line, "route ties ")) {
            n["without inputs"]++;
        } else if (starts(line, "route ")) {
            check_route(line);
            n["route"]++;
        } else if (starts(line, "expert contiguous ") || starts(line, "expert interleaved ")) {
            check_expert(line);
            n["expert"]++;
        } else {
            EXPECT_TRUE(starts(line, "router.") || starts(line, "expert.")) << line;
            n["inputs"]++;
        }
    }
    EXPECT_EQ(n["combine"], 42);
    EXPECT_EQ(n["route"], 6);
    EXPECT_EQ(n["expert"], 24);
    EXPECT_EQ(n["inputs"], 7);
    EXPECT_EQ(n["without inputs"], 6);
}

} // namespace
