/* Pieces against the bytes of the experts they are to move, over random layouts. */
#include "host/span.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

namespace {

/* A bank of f32 matrices in made-up files: each operand of each entry somewhere, none overlapping.
 */
struct Layout {
    Layout(std::mt19937 &random, bool entry_major) {
        bank.n_entries = 1 + random() % 20;
        bank.operands[PLEC_GATE] = {PLEC_FORMAT_F32, 1 + uint32_t(random() % 3), 4};
        bank.operands[PLEC_UP] = bank.operands[PLEC_GATE];
        bank.operands[PLEC_DOWN] = {PLEC_FORMAT_F32, 1 + uint32_t(random() % 600), 4};
        bank.operands[PLEC_DOWN_BIAS] = {PLEC_FORMAT_F32, 1, 4};
        bank.input_dim = bank.intermediate_dim = 4;
        entries.resize(bank.n_entries);
        const plec_operand_id ids[] = {PLEC_GATE, PLEC_UP, PLEC_DOWN, PLEC_DOWN_BIAS};
        uint64_t at = random() % 9000;
        auto place = [&](uint32_t e, plec_operand_id id) {
            entries[e].values[id] = memory() + at;
            at += uint64_t(16) * bank.operands[id].rows;
            if (random() % 3 == 0) at += random() % 200;
        };
        if (entry_major)
            for (uint32_t e = 0; e < bank.n_entries; e++)
                for (plec_operand_id id : ids)
                    place(e, id);
        else
            for (plec_operand_id id : ids)
                for (uint32_t e = 0; e < bank.n_entries; e++)
                    place(e, id);
        bank.entries = entries.data();
    }
    /* Addresses nobody reads. */
    static const uint8_t *memory() { return reinterpret_cast<const uint8_t *>(uintptr_t(1) << 40); }
    static bool locate(void *, const uint8_t *p, uint32_t *file, uint64_t *offset) {
        *file = 0;
        *offset = static_cast<uint64_t>(p - memory());
        return true;
    }
    /* File bytes of entry e, as a set of their places. */
    std::set<uint64_t> bytes(uint32_t e) const {
        std::set<uint64_t> out;
        for (int id = 0; id < PLEC_N_OPERANDS; id++) {
            if (bank.operands[id].rows == 0) continue;
            uint64_t first = static_cast<uint64_t>(entries[e].values[id] - memory());
            for (uint64_t i = 0; i < uint64_t(16) * bank.operands[id].rows; i++)
                out.insert(first + i);
        }
        return out;
    }

    plec_bank bank = {};
    std::vector<plec_entry> entries;
};

TEST(Span, PiecesHoldEveryByteAskedForAndNoneOfOtherExperts) {
    std::mt19937 random(1);
    for (int round = 0; round < 60; round++) {
        Layout layout(random, round % 2);
        plec_extent_map map;
        plec_error err = {};
        plec_locator locator = {Layout::locate, nullptr};
        ASSERT_EQ(plec_extent_map_open(&map, &layout.bank, 1 + random() % 9, &locator, &err),
                  PLEC_OK)
            << err.message;
        plec_span_source source = {&layout.bank, &map};
        plec_span_table table;
        ASSERT_EQ(plec_span_table_open(&table, &source, 1, &err), PLEC_OK) << err.message;
        std::vector<plec_piece> pieces(table.max_spans);
        for (uint32_t key = 0; key < map.n_extents; key++) {
            uint32_t first = map.first_entry[key], n = map.first_entry[key + 1] - first;
            uint64_t mask = 1 + random() % ((uint64_t(1) << n) - 1), n_bytes = 0;
            if (round % 5 == 0) mask = (uint64_t(1) << n) - 1;
            uint32_t n_pieces = plec_span_pieces(pieces.data(), &table, key, mask);
            std::set<uint64_t> moved, around;
            for (uint32_t i = 0; i < n_pieces; i++) {
                const plec_piece &piece = pieces[i];
                n_bytes += piece.length;
                EXPECT_EQ(piece.frame_at % PLEC_FRAME_ALIGNMENT,
                          piece.offset % PLEC_FRAME_ALIGNMENT);
                EXPECT_LE(piece.frame_at + piece.length + piece.slack_after, map.frame_bytes);
                if (i > 0) {
                    EXPECT_GE(piece.frame_at, pieces[i - 1].frame_at + pieces[i - 1].length);
                }
                for (uint64_t b = 0; b < piece.length; b++)
                    EXPECT_TRUE(moved.insert(piece.offset + b).second);
                for (uint64_t b = 1; b <= piece.slack_before; b++)
                    around.insert(piece.frame_at - b);
                for (uint64_t b = 0; b < piece.slack_after; b++)
                    around.insert(piece.frame_at + piece.length + b);
            }
            EXPECT_EQ(n_bytes, plec_span_bytes(&table, key, mask));
            for (uint32_t bit = 0; bit < n; bit++) {
                bool asked = mask >> bit & 1;
                for (uint64_t b : layout.bytes(first + bit))
                    ASSERT_EQ(moved.count(b), asked ? 1u : 0u) << "entry " << first + bit;
            }
            /* What may be overwritten around pieces is no expert's. */
            for (uint32_t i = table.first[key]; i < table.first[key + 1]; i++)
                for (uint64_t b = 0; b < table.spans[i].length; b++)
                    ASSERT_EQ(around.count(table.spans[i].frame_at + b), 0u);
        }
        plec_span_table_close(&table);
        plec_extent_map_close(&map);
    }
}

TEST(Span, AWholeExtentIsItsOwnRanges) {
    std::mt19937 random(2);
    for (int round = 0; round < 20; round++) {
        Layout layout(random, round % 2);
        plec_extent_map map;
        plec_locator locator = {Layout::locate, nullptr};
        ASSERT_EQ(plec_extent_map_open(&map, &layout.bank, 4, &locator, nullptr), PLEC_OK);
        plec_span_source source = {&layout.bank, &map};
        plec_span_table table;
        ASSERT_EQ(plec_span_table_open(&table, &source, 1, nullptr), PLEC_OK);
        std::vector<plec_piece> pieces(table.max_spans);
        for (uint32_t key = 0; key < map.n_extents; key++) {
            uint32_t n = plec_span_pieces(pieces.data(), &table, key, UINT64_MAX);
            ASSERT_EQ(n, map.extent_first[key + 1] - map.extent_first[key]);
            for (uint32_t i = 0; i < n; i++) {
                const plec_range &range = map.extent_ranges[map.extent_first[key] + i];
                EXPECT_EQ(pieces[i].offset, range.offset);
                EXPECT_EQ(pieces[i].length, range.length);
                EXPECT_EQ(pieces[i].slack_before, plec_range_slack_before(&range));
                EXPECT_EQ(pieces[i].slack_after, plec_range_slack_after(&range));
            }
        }
        plec_span_table_close(&table);
        plec_extent_map_close(&map);
    }
}

} // namespace
