#include "host/keyspace.h"

#include <gtest/gtest.h>

namespace {

constexpr uint64_t BYTES = 100; /* of an expert */

TEST(Keyspace, NumbersExtentsOfAllLayersAndFindsTheirExperts) {
    plec_keyspace keys;
    ASSERT_EQ(plec_keyspace_open_uniform(&keys, 3, 10, 4, BYTES, nullptr), PLEC_OK);
    EXPECT_EQ(keys.n_keys, 9u);
    EXPECT_EQ(keys.n_experts, 30u);
    EXPECT_EQ(keys.keys[5].n_entries, 2u); /* the last extent of a layer is cut short */
    EXPECT_EQ(plec_key_full(&keys.keys[5]), 3u);
    for (uint32_t layer = 0; layer < 3; layer++)
        for (uint32_t expert = 0; expert < 10; expert++) {
            uint64_t bit;
            uint32_t key = plec_keyspace_find(&bit, &keys, layer, expert);
            EXPECT_EQ(key, layer * 3 + expert / 4);
            EXPECT_EQ(bit, uint64_t(1) << expert % 4);
        }
    plec_keyspace_close(&keys);
}

TEST(Keyspace, RefusesAnExtentWithMoreExpertsThanBits) {
    plec_keyspace keys;
    plec_error err;
    EXPECT_EQ(plec_keyspace_open_uniform(&keys, 1, 65, 65, BYTES, &err), PLEC_BAD_INPUT);
    EXPECT_STREQ(err.name, "ExtentTooWide");
    ASSERT_EQ(plec_keyspace_open_uniform(&keys, 1, 64, 64, BYTES, &err), PLEC_OK);
    EXPECT_EQ(plec_key_full(&keys.keys[0]), UINT64_MAX);
    plec_keyspace_close(&keys);
}

TEST(Keyspace, RefusesLayersThatDoNotBeginAtZeroOrHaveEmptyExtents) {
    const uint32_t late[] = {1, 4}, empty[] = {0, 4, 4};
    plec_keyspace_layer layers[] = {{1, late, BYTES, nullptr}, {2, empty, BYTES, nullptr}};
    for (const plec_keyspace_layer &layer : layers) {
        plec_keyspace keys;
        plec_error err;
        EXPECT_EQ(plec_keyspace_open(&keys, &layer, 1, &err), PLEC_BAD_INPUT);
        EXPECT_STREQ(err.name, "EmptyExtent");
        EXPECT_EQ(keys.keys, nullptr);
    }
}

TEST(Keyspace, AWholeExtentMayHaveBytesOfItsOwn) {
    const uint32_t first[] = {0, 3, 5};
    const uint64_t whole[] = {310, 200};
    plec_keyspace_layer layer = {2, first, BYTES, whole};
    plec_keyspace keys;
    ASSERT_EQ(plec_keyspace_open(&keys, &layer, 1, nullptr), PLEC_OK);
    EXPECT_EQ(plec_key_bytes(&keys.keys[0], 0x7), 310u);
    EXPECT_EQ(plec_key_bytes(&keys.keys[0], 0x3), 200u);
    EXPECT_EQ(plec_key_bytes(&keys.keys[1], 0x3), 200u);
    EXPECT_EQ(plec_position(&keys, 7, 0), 7u);
    plec_keyspace_close(&keys);
}

} // namespace
