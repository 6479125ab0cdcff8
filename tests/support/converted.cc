#include "tests/support/converted.h"

#include "host/verify.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

namespace fs = std::filesystem;

namespace plec_test {

Converted::Converted(const std::string &source, plec_convert_options options) {
    run(source, dir_.path("out"), options);
}

Converted::Converted(const std::string &source, const std::string &destination,
                     plec_convert_options options) {
    run(source, destination, options);
}

void Converted::run(const std::string &source, const std::string &destination,
                    plec_convert_options options) {
    destination_ = destination;
    plec_convert *convert = nullptr;
    status = plec_convert_open(&convert, source.c_str(), &options, &error);
    if (status == PLEC_OK) status = plec_convert_run(&report, convert, destination.c_str(), &error);
    plec_convert_close(convert);
}

std::string Converted::path(const std::string &name) const {
    return name.empty() ? destination_ : destination_ + "/" + name;
}

namespace {

void expect_same_floats(const float *got, const float *wanted, size_t n, const char *what) {
    ASSERT_EQ(got == nullptr, wanted == nullptr) << what;
    if (got != nullptr) {
        EXPECT_EQ(memcmp(got, wanted, n * sizeof *got), 0) << what;
    }
}

/* Decoded in double, so that another layout of the same values is the same matrix. */
void expect_same_matrix(const plec_matrix &got, const plec_matrix &wanted,
                        const std::string &what) {
    ASSERT_EQ(plec_matrix_present(&got), plec_matrix_present(&wanted)) << what;
    if (!plec_matrix_present(&got)) return;
    ASSERT_EQ(got.rows, wanted.rows) << what;
    ASSERT_EQ(got.cols, wanted.cols) << what;
    std::vector<double> a(got.cols), b(got.cols);
    for (uint32_t row = 0; row < got.rows; row++) {
        plec_matrix_row_f64(a.data(), &got, row);
        plec_matrix_row_f64(b.data(), &wanted, row);
        ASSERT_EQ(memcmp(a.data(), b.data(), a.size() * sizeof a[0]), 0) << what << " row " << row;
    }
}

plec_matrix matrix_of(const plec_bank &bank, uint32_t entry, int id) {
    const plec_operand &operand = bank.operands[id];
    return {operand.format, operand.rows, operand.cols, bank.entries[entry].values[id],
            id < PLEC_N_MATRICES ? bank.entries[entry].scales[id] : nullptr};
}

void expect_same_maths(const plec_expert_maths &got, const plec_expert_maths &wanted) {
    ASSERT_EQ(got.activation, wanted.activation);
    switch (wanted.activation) {
    case PLEC_CLAMPED_GLU: EXPECT_EQ(got.alpha, wanted.alpha); [[fallthrough]];
    case PLEC_CLAMPED_GATED:
    case PLEC_SILU_STEP: EXPECT_EQ(got.limit, wanted.limit); break;
    case PLEC_SITU_GLU:
        EXPECT_EQ(got.beta, wanted.beta);
        EXPECT_EQ(got.linear_beta, wanted.linear_beta);
        break;
    default: break;
    }
}

void expect_same_bank(const plec_bank &got, const plec_bank &wanted, const std::string &which) {
    SCOPED_TRACE(which);
    ASSERT_EQ(got.n_entries, wanted.n_entries);
    if (got.n_entries == 0) return;
    EXPECT_EQ(got.input_dim, wanted.input_dim);
    EXPECT_EQ(got.intermediate_dim, wanted.intermediate_dim);
    EXPECT_EQ(got.output_dim, wanted.output_dim);
    EXPECT_EQ(got.fusion, wanted.fusion);
    expect_same_maths(got.maths, wanted.maths);
    expect_same_floats(got.gate_scale, wanted.gate_scale, got.n_entries, "gate_scale");
    expect_same_floats(got.up_scale, wanted.up_scale, got.n_entries, "up_scale");
    expect_same_floats(got.down_scale, wanted.down_scale, got.n_entries, "down_scale");
    for (uint32_t e = 0; e < got.n_entries; e++)
        for (int id = 0; id < PLEC_N_OPERANDS; id++)
            if (!testing::Test::HasFatalFailure())
                expect_same_matrix(matrix_of(got, e, id), matrix_of(wanted, e, id),
                                   "entry " + std::to_string(e) + " operand " + std::to_string(id));
}

void expect_same_router(const plec_router &got, const plec_router &wanted) {
    ASSERT_EQ(got.n_experts, wanted.n_experts);
    ASSERT_EQ(got.input_dim, wanted.input_dim);
    EXPECT_EQ(got.top_k, wanted.top_k);
    EXPECT_EQ(got.gating, wanted.gating);
    EXPECT_EQ(got.select_on, wanted.select_on);
    EXPECT_EQ(std::max(got.n_groups, 1u), std::max(wanted.n_groups, 1u));
    EXPECT_EQ(std::max(got.n_groups_used, 1u), std::max(wanted.n_groups_used, 1u));
    EXPECT_EQ(got.k_per_group, wanted.k_per_group);
    EXPECT_EQ(got.normalise, wanted.normalise);
    EXPECT_EQ(got.norm_epsilon, wanted.norm_epsilon);
    EXPECT_EQ(got.norm_floor, wanted.norm_floor);
    EXPECT_EQ(got.scale, wanted.scale);
    EXPECT_EQ(got.weight_on_input, wanted.weight_on_input);
    EXPECT_EQ(got.input_norm, wanted.input_norm);
    if (wanted.input_norm) {
        EXPECT_EQ(got.input_eps, wanted.input_eps);
    }
    expect_same_matrix(got.weight, wanted.weight, "router weight");
    expect_same_floats(got.bias, wanted.bias, got.n_experts, "router bias");
    expect_same_floats(got.selection_bias, wanted.selection_bias, got.n_experts, "selection bias");
    expect_same_floats(got.expert_scale, wanted.expert_scale, got.n_experts, "expert scale");
    expect_same_floats(got.input_scale, wanted.input_scale, got.input_dim, "input scale");
}

} // namespace

void expect_same_layer(const plec_bound_layer &got, const plec_bound_layer &wanted) {
    const plec_layer &a = got.layer, &b = wanted.layer;
    EXPECT_EQ(a.hidden_size, b.hidden_size);
    EXPECT_EQ(got.dense, wanted.dense);
    EXPECT_EQ(got.routing_required, wanted.routing_required);
    EXPECT_EQ(got.router_input_required, wanted.router_input_required);
    EXPECT_EQ(a.out_scale, b.out_scale);
    EXPECT_STREQ(got.left_out, wanted.left_out);
    expect_same_router(a.router, b.router);
    expect_same_bank(a.routed, b.routed, "routed");
    expect_same_bank(a.shared, b.shared, "shared");
    expect_same_bank(a.dense, b.dense, "dense branch");
    expect_same_matrix(a.latent_in, b.latent_in, "latent_in");
    expect_same_matrix(a.latent_out, b.latent_out, "latent_out");
    expect_same_matrix(a.shared_gate, b.shared_gate, "shared gate");
    expect_same_matrix(got.input_norm, wanted.input_norm, "input norm");
    expect_same_floats(a.routed_norm, b.routed_norm, a.routed.output_dim, "routed norm");
    if (b.routed_norm != nullptr) {
        EXPECT_EQ(a.norm_eps, b.norm_eps);
    }
    ASSERT_EQ(got.n_token_ids, wanted.n_token_ids);
    if (wanted.n_token_ids == 0) return;
    size_t n_bytes = size_t(got.n_token_ids) * a.router.top_k * sizeof *got.token_table;
    EXPECT_EQ(memcmp(got.token_table, wanted.token_table, n_bytes), 0);
}

std::vector<std::string> files_under(const std::string &root) {
    std::vector<std::string> names;
    for (const fs::directory_entry &entry : fs::recursive_directory_iterator(root))
        if (!entry.is_directory()) names.push_back(fs::relative(entry.path(), root).string());
    std::sort(names.begin(), names.end());
    return names;
}

void expect_same_files(const std::string &got, const std::string &wanted) {
    ASSERT_EQ(files_under(got), files_under(wanted));
    for (const std::string &name : files_under(wanted))
        EXPECT_EQ(read_file(got + "/" + name), read_file(wanted + "/" + name)) << name;
}

void expect_sound(const std::string &path) {
    plec_container_verify_options options = {true, false, nullptr, nullptr};
    plec_container_report report;
    plec_error error = {};
    ASSERT_EQ(plec_container_verify(&report, path.c_str(), &options, &error), PLEC_OK)
        << error.message;
    EXPECT_EQ(report.findings.n_defects, 0u);
    for (size_t i = 0; i < report.findings.n_items; i++)
        EXPECT_NE(report.findings.items[i].severity, PLEC_DEFECT)
            << report.findings.items[i].name << ": " << report.findings.items[i].text;
    EXPECT_EQ(report.n_hashed + 1, files_under(path).size()) << "every file but the index";
    plec_container_report_close(&report);
}

namespace {

/* A layer held open. */
struct Open {
    Open(const std::string &path, uint32_t layer, const plec_container_options *options) {
        status = plec_container_open(&container, path.c_str(), options, &error);
        if (status == PLEC_OK) status = plec_container_bind(&bound, container, layer, &error);
    }
    Open(const Open &) = delete;
    Open &operator=(const Open &) = delete;
    ~Open() {
        if (status == PLEC_OK) plec_bound_layer_close(&bound);
        plec_container_close(container);
    }
    plec_container *container = nullptr;
    plec_bound_layer bound = {};
    plec_error error = {};
    plec_status status;
};

} // namespace

void expect_converts(const std::string &source, uint32_t layer, plec_convert_options options) {
    Converted result(source, options);
    ASSERT_EQ(result.status, PLEC_OK) << result.error.message;
    expect_sound(result.path());
    Open wanted(source, layer, &options.source), got(result.path(), layer, nullptr);
    ASSERT_EQ(wanted.status, PLEC_OK) << wanted.error.message;
    ASSERT_EQ(got.status, PLEC_OK) << got.error.message;
    expect_same_layer(got.bound, wanted.bound);
}

} // namespace plec_test
