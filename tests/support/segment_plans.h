/* segment_plans.h: plans of LYRW files to vary, what is written by them, and where it lies. */
#ifndef PLEC_TESTS_SUPPORT_SEGMENT_PLANS_H
#define PLEC_TESTS_SUPPORT_SEGMENT_PLANS_H

#include "lyrw/segment_write.h"
#include "tests/support/segment_file.h"

#include <gtest/gtest.h>

namespace plec_test {

/* Where a region of a file lies. */
struct Placed {
    uint32_t segment, entry, schema;
    plec_region region;
};

/* Every region of a file, in the order of its entry tables. */
inline std::vector<Placed> regions(const plec_segment &s) {
    std::vector<Placed> all;
    for (uint32_t i = 0; i < s.header.num_segments; i++) {
        const plec_lyrw_segment &record = s.segments[i];
        for (uint32_t e = 0; e < record.entry_count; e++)
            for (uint32_t m = 0; m < s.banks[record.bank_ordinal].n_schemas; m++) {
                Placed place = {i, record.first_entry + e, m, {}};
                plec_error err;
                EXPECT_EQ(plec_segment_slot(&place.region, &s, i, e, m, &err), PLEC_OK)
                    << err.message;
                all.push_back(place);
            }
    }
    return all;
}

/* A plan of routed banks to vary. */
struct Plan {
    std::vector<plec_lyrw_bank> banks;
    std::vector<plec_lyrw_segment> segments;
    std::vector<plec_lyrw_schema> schemas;
    plec_segment_plan plan = {};

    Plan(uint32_t entries, std::vector<plec_lyrw_schema> of_bank) {
        plec_lyrw_bank bank = {};
        bank.kind = PLEC_BANK_ROUTED;
        bank.n_schemas = static_cast<uint16_t>(of_bank.size());
        bank.num_entries = entries;
        banks.push_back(bank);
        plec_lyrw_segment record = {};
        record.entry_count = entries;
        segments.push_back(record);
        schemas = std::move(of_bank);
        plan.header.format_version = PLEC_LYRW_VERSION;
    }
    plec_segment_plan *get() {
        plan.header.num_banks = static_cast<uint16_t>(banks.size());
        plan.header.num_segments = static_cast<uint16_t>(segments.size());
        plan.banks = banks.data();
        plan.segments = segments.data();
        plan.schemas = schemas.data();
        plan.n_schemas = schemas.size();
        return &plan;
    }
};

inline plec_lyrw_schema schema(uint16_t index, uint16_t role, uint16_t format, uint32_t rows,
                               uint32_t cols, uint16_t packing = PLEC_PACKING_ROW_MAJOR,
                               uint16_t pair = PLEC_LYRW_UNPAIRED) {
    plec_lyrw_schema s = {index, role, format, packing, pair, 0, rows, cols};
    if (role == PLEC_ROLE_GATE_UP_FUSED) s.layout = PLEC_LAYOUT_CONTIGUOUS_HALVES;
    return s;
}

/* Two schemas whose lengths, 60 and 132 bytes, are no multiples of 64. */
inline Plan small_plan(uint32_t entries) {
    return Plan(entries, {schema(0, PLEC_ROLE_GATE_UP_FUSED, PLEC_FORMAT_F32, 5, 3),
                          schema(1, PLEC_ROLE_DOWN, PLEC_FORMAT_F32, 3, 11)});
}

/* Bytes of a region that no other has. */
inline std::vector<uint8_t> content(uint32_t entry, uint32_t schema_index, uint64_t length) {
    std::vector<uint8_t> bytes(length);
    for (uint64_t i = 0; i < length; i++)
        bytes[i] = static_cast<uint8_t>(entry * 31 + schema_index * 7 + i + 1);
    return bytes;
}

/* Writes every region, in the order of the plan, with its content. */
inline plec_status write_all(plec_segment_writer *writer, plec_error *err) {
    for (plec_region_place place; plec_segment_writer_next(&place, writer);) {
        auto bytes = content(place.entry, place.schema, place.length);
        plec_status status = plec_segment_writer_append(
            writer, place.segment, place.entry, place.schema, bytes.data(), bytes.size(), err);
        if (status != PLEC_OK) return status;
    }
    return PLEC_OK;
}

inline void write_plan(const std::string &path, const plec_segment_plan *plan) {
    plec_error err;
    plec_segment_writer *writer;
    ASSERT_EQ(plec_segment_writer_open(&writer, path.c_str(), plan, &err), PLEC_OK) << err.message;
    ASSERT_EQ(write_all(writer, &err), PLEC_OK) << err.message;
    ASSERT_EQ(plec_segment_writer_commit(writer, &err), PLEC_OK) << err.message;
}

} // namespace plec_test
#endif
