/* Binding a bank refuses, by name and with coordinates, whatever a run would touch and is not
 * exactly as declared. */
#include "host/bank.h"
#include "lyrw/cursor.h"
#include "tests/support/bound.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <unistd.h>

using namespace plec_test;

namespace {

std::vector<uint8_t> &routed(BankDirectory &dir) {
    return dir.files["routed/layer_000"];
}

/* A bank of one f32 gate, up, down set, all of whose schemas are given. */
BankFile bank_of(const std::vector<plec_lyrw_schema> &schemas) {
    BankFile file = gated_bank();
    file.schemas = schemas;
    return file;
}

/* --- a layer that is as declared -------------------------------------------------------------- */

TEST(Bind, OperandsAreTheFilesOwnBytes) {
    BankDirectory dir;
    Bound layer(dir.write());
    ASSERT_EQ(layer.name, "") << layer.message;
    const plec_bank &bank = layer.bound.layer.routed;
    EXPECT_EQ(bank.n_entries, 4u);
    EXPECT_EQ(bank.input_dim, 8u);
    EXPECT_EQ(bank.intermediate_dim, 6u);
    EXPECT_EQ(bank.output_dim, 8u);
    EXPECT_EQ(bank.fusion, PLEC_NOT_FUSED);
    EXPECT_EQ(layer.bound.layer.hidden_size, 8u);
    EXPECT_EQ(layer.bound.layer.out_scale, 1.0);
    EXPECT_TRUE(layer.bound.routing_required);
    const plec_operand_id ids[] = {PLEC_GATE, PLEC_UP, PLEC_DOWN};
    for (uint32_t e = 0; e < 4; e++)
        for (uint32_t s = 0; s < 3; s++)
            EXPECT_EQ(memcmp(bank.entries[e].values[ids[s]],
                             routed(dir).data() + get_offset(routed(dir), e, s), 6 * 8 * 4),
                      0)
                << e << " " << s;
    EXPECT_EQ(bank.entries[0].values[PLEC_GATE_BIAS], nullptr);
    EXPECT_EQ(bank.operands[PLEC_GATE_BIAS].rows, 0u);
}

TEST(Bind, PermutedRegionsAreFound) {
    BankDirectory dir;
    auto &bytes = routed(dir);
    uint64_t a = get_offset(bytes, 0, 0), b = get_offset(bytes, 3, 2);
    set_offset(bytes, 0, 0, b);
    set_offset(bytes, 3, 2, a);
    Bound layer(dir.write());
    ASSERT_EQ(layer.name, "") << layer.message;
    EXPECT_EQ(memcmp(layer.bound.layer.routed.entries[0].values[PLEC_GATE], bytes.data() + b, 192),
              0);
}

TEST(Bind, SeveralSegmentsMakeOneBank) {
    BankDirectory dir;
    std::vector<uint8_t> whole = routed(dir);
    dir.files.erase("routed/layer_000");
    BankFile part = gated_bank();
    part.segments = {{0, 0, 0, 1, 0, 0}};
    dir.add("routed/layer_000.seg00", part);
    part.segments = {{0, 2, 3, 1, 0, 0}, {0, 1, 1, 2, 0, 0}};
    dir.add("routed/layer_000.seg01", part);
    Bound layer(dir.write());
    ASSERT_EQ(layer.name, "") << layer.message;
    for (uint32_t e = 0; e < 4; e++)
        EXPECT_EQ(memcmp(layer.bound.layer.routed.entries[e].values[PLEC_DOWN],
                         whole.data() + get_offset(whole, e, 2), 192),
                  0)
            << "entry " << e;
}

TEST(Bind, DownMayBePaddedToItsBlock) {
    BankFile file = bank_of({matrix(PLEC_ROLE_GATE, 6, 8), matrix(PLEC_ROLE_UP, 6, 8),
                             matrix(PLEC_ROLE_DOWN, 8, 32, PLEC_FORMAT_Q8_0)});
    file.intermediate = 32;
    BankDirectory dir;
    dir.add("routed/layer_000", file);
    dir.set("routed_bank/expert_dims", R"({"input": 8, "intermediate": 6, "output": 8})");
    Bound layer(dir.write());
    ASSERT_EQ(layer.name, "") << layer.message;
    EXPECT_EQ(layer.bound.layer.routed.intermediate_dim, 6u);
    EXPECT_EQ(layer.bound.layer.routed.operands[PLEC_DOWN].cols, 32u);
    file.schemas[2].cols = 64;
    file.intermediate = 64;
    EXPECT_EQ(refusal_of_bank(file), "ShapesDisagree") << "a whole block of padding";
}

TEST(Bind, FusedLayoutsAreTold) {
    for (auto [layout, fusion] : {std::pair(PLEC_LAYOUT_CONTIGUOUS_HALVES, PLEC_FUSED_GATE_FIRST),
                                  std::pair(PLEC_LAYOUT_INTERLEAVED, PLEC_FUSED_INTERLEAVED)}) {
        BankDirectory dir;
        dir.add("routed/layer_000", bank_of({fused(12, 8, static_cast<uint16_t>(layout)),
                                             matrix(PLEC_ROLE_DOWN, 8, 6)}));
        Bound layer(dir.write());
        ASSERT_EQ(layer.name, "") << layer.message;
        EXPECT_EQ(layer.bound.layer.routed.fusion, fusion);
        EXPECT_EQ(layer.bound.layer.routed.intermediate_dim, 6u);
    }
}

/* --- regions ---------------------------------------------------------------------------------- */

TEST(Bind, RefusesALengthThatIsNotTheShapes) {
    BankDirectory dir;
    set_length(routed(dir), 2, 1, 191);
    Bound layer(dir.write());
    EXPECT_EQ(layer.name, "LengthNotShape");
    EXPECT_EQ(layer.status, PLEC_MALFORMED);
    for (const char *part :
         {"layer 0", "bank 0", "entry 2", "role up", "routed/layer_000", "191", "192"})
        EXPECT_TRUE(layer.says(part)) << part << ": " << layer.message;
}

TEST(Bind, RefusesRegionsThatLieWrong) {
    struct Case {
        const char *name;
        uint64_t offset;
    };
    BankDirectory base;
    uint64_t first = get_offset(routed(base), 0, 0), size = routed(base).size();
    const Case cases[] = {
        {"OffsetNotAligned", first + 8},
        {"RegionOutOfBounds", size},
        {"RegionOutOfBounds", UINT64_MAX - 63},
        {"RegionInTables", 0},
        {"RegionInTables", 64},
        {"RegionsOverlap", first + 192},
    };
    for (const Case &c : cases) {
        BankDirectory dir;
        set_offset(routed(dir), 3, 2, c.offset);
        Bound layer(dir.write());
        EXPECT_EQ(layer.name, c.name) << c.offset << " " << layer.message;
        EXPECT_TRUE(layer.says("entry 3")) << layer.message;
    }
}

TEST(Bind, RefusesTwoEntriesThatShareBytes) {
    BankDirectory dir;
    set_offset(routed(dir), 1, 0, get_offset(routed(dir), 0, 0) + 64);
    Bound layer(dir.write());
    EXPECT_EQ(layer.name, "RegionsOverlap");
    EXPECT_TRUE(layer.says("entry 0") && layer.says("entry 1") && layer.says("role gate"))
        << layer.message;
}

TEST(Bind, RegionsNoRunTouchesMayLieAnyhow) {
    BankDirectory dir;
    BankFile file = gated_bank();
    file.schemas.push_back(matrix(300, 3, 5, 4242));
    dir.add("routed/layer_000", file);
    set_offset(routed(dir), 0, 3, 7);
    set_length(routed(dir), 1, 3, UINT64_MAX);
    EXPECT_EQ(refusal(dir), "");
}

/* --- schemas ---------------------------------------------------------------------------------- */

TEST(Bind, RefusesMissingRolesByName) {
    Bound layer([] {
        static BankDirectory dir;
        dir.add("routed/layer_000",
                bank_of({matrix(PLEC_ROLE_GATE, 6, 8), matrix(PLEC_ROLE_UP, 6, 8)}));
        return dir.write();
    }());
    EXPECT_EQ(layer.name, "UnsatisfiedProgramme");
    EXPECT_EQ(layer.status, PLEC_MISSING);
    EXPECT_TRUE(layer.says("role down") && layer.says("gated-mlp-v1")) << layer.message;
}

TEST(Bind, RefusesARoleGivenTwice) {
    BankFile file = gated_bank();
    file.schemas.push_back(matrix(PLEC_ROLE_DOWN, 8, 6));
    EXPECT_EQ(refusal_of_bank(file), "AmbiguousRole");
}

TEST(Bind, RefusesShapesThatDisagree) {
    BankFile file = gated_bank();
    file.schemas[1].rows = 5;
    EXPECT_EQ(refusal_of_bank(file), "ShapesDisagree");
    file = gated_bank();
    file.schemas[1].cols = 7;
    EXPECT_EQ(refusal_of_bank(file), "ShapesDisagree");
    file = gated_bank();
    file.schemas[2].cols = 7;
    EXPECT_EQ(refusal_of_bank(file), "ShapesDisagree");
    file = gated_bank();
    file.schemas[2].cols = 5;
    EXPECT_EQ(refusal_of_bank(file), "ShapesDisagree");
    file = gated_bank();
    file.schemas[0].rows = 0;
    EXPECT_EQ(refusal_of_bank(file), "ZeroDimension");
    EXPECT_EQ(refusal_of_bank(bank_of({fused(11, 8, 1), matrix(PLEC_ROLE_DOWN, 8, 6)})),
              "ShapesDisagree");
}

TEST(Bind, RefusesFusedMatricesWithoutAKnownLayout) {
    EXPECT_EQ(refusal_of_bank(bank_of({fused(12, 8, 0), matrix(PLEC_ROLE_DOWN, 8, 6)})),
              "UndeclaredFusedLayout");
    EXPECT_EQ(refusal_of_bank(bank_of({fused(12, 8, 9), matrix(PLEC_ROLE_DOWN, 8, 6)})),
              "UnknownLayout");
}

TEST(Bind, RefusesFormatsAndPackingsItCannotRead) {
    BankFile file = gated_bank();
    file.schemas[1].format = 4242;
    EXPECT_EQ(refusal_of_bank(file), "UnknownFormat");
    file = gated_bank();
    file.schemas[1].packing = 17;
    EXPECT_EQ(refusal_of_bank(file), "UnknownPacking");
    file = gated_bank();
    file.schemas[1].format = PLEC_FORMAT_Q8_0; /* 8 columns are no whole block of 32 */
    EXPECT_EQ(refusal_of_bank(file), "NotWholeBlocks");
    file = gated_bank();
    file.schemas[1].packing = PLEC_PACKING_BLOCKS_INLINE;
    EXPECT_EQ(refusal_of_bank(file), "") << "packings 0 and 1 are one";
}

BankFile paired_bank(uint16_t format = PLEC_FORMAT_MXFP4) {
    BankFile file = gated_bank();
    file.input = file.intermediate = file.output = 32;
    file.schemas = {values_of(PLEC_ROLE_GATE, 32, 32, 1, format), scales_of(32, 32, 1, format),
                    values_of(PLEC_ROLE_UP, 32, 32, 2, format),   scales_of(32, 32, 2, format),
                    values_of(PLEC_ROLE_DOWN, 32, 32, 0, format), scales_of(32, 32, 0, format)};
    return file;
}

std::string refusal_of_pairs(const BankFile &file) {
    BankDirectory dir;
    dir.add("routed/layer_000", file);
    dir.set_index("hidden_size", "32");
    return refusal(dir);
}

TEST(Bind, PairsNeedOnePartnerOfTheSameShapeAndFormat) {
    EXPECT_EQ(refusal_of_pairs(paired_bank()), "");
    EXPECT_EQ(refusal_of_pairs(paired_bank(PLEC_FORMAT_MXFP8)), "");
    BankFile file = paired_bank();
    file.schemas[3].pair_id = 9;
    EXPECT_EQ(refusal_of_pairs(file), "MissingPartner");
    file = paired_bank();
    file.schemas[3].pair_id = 1;
    EXPECT_EQ(refusal_of_pairs(file), "AmbiguousPartner");
    file = paired_bank();
    file.schemas[2].pair_id = 1;
    EXPECT_EQ(refusal_of_pairs(file), "AmbiguousPartner") << "two matrices, one pair id";
    file = paired_bank();
    file.schemas[3].rows = 64;
    EXPECT_EQ(refusal_of_pairs(file), "PartnerMismatch");
    file = paired_bank();
    file.schemas[3].format = PLEC_FORMAT_MXFP8;
    EXPECT_EQ(refusal_of_pairs(file), "PartnerMismatch");
    file = paired_bank();
    file.schemas[3].packing = PLEC_PACKING_BLOCKS_VALUES;
    EXPECT_EQ(refusal_of_pairs(file), "PartnerMismatch");
    file = paired_bank();
    file.schemas[4].packing = PLEC_PACKING_BLOCKS_SCALES;
    EXPECT_EQ(refusal_of_pairs(file), "NoScaleStream");
}

TEST(Bind, FormatsAreReadOnlyInTheirOwnPacking) {
    BankFile file = paired_bank(PLEC_FORMAT_NVFP4);
    EXPECT_EQ(refusal_of_pairs(file), "NoScaleStream");
    file = paired_bank(PLEC_FORMAT_Q8_0);
    EXPECT_EQ(refusal_of_pairs(file), "NoScaleStream");
    for (uint16_t format : {PLEC_FORMAT_MXFP4, PLEC_FORMAT_MXFP8}) {
        file = paired_bank();
        file.schemas = {matrix(PLEC_ROLE_GATE, 32, 32, format),
                        matrix(PLEC_ROLE_UP, 32, 32, format),
                        matrix(PLEC_ROLE_DOWN, 32, 32, format)};
        EXPECT_EQ(refusal_of_pairs(file), "ScalesStoredApart");
    }
    file.schemas = {matrix(PLEC_ROLE_GATE, 32, 32, PLEC_FORMAT_NVFP4),
                    matrix(PLEC_ROLE_UP, 32, 32, PLEC_FORMAT_NVFP4),
                    matrix(PLEC_ROLE_DOWN, 32, 32, PLEC_FORMAT_NVFP4)};
    EXPECT_EQ(refusal_of_pairs(file), "");
}

/* --- biases ----------------------------------------------------------------------------------- */

std::vector<plec_operand_id> places(const std::vector<uint64_t> &sizes, uint64_t gate, uint64_t up,
                                    uint64_t down) {
    std::vector<plec_operand_id> out(sizes.size(), PLEC_N_OPERANDS);
    if (!plec_bank_match_biases(out.data(), sizes.data(), static_cast<uint32_t>(sizes.size()), gate,
                                up, down))
        out.clear();
    return out;
}

TEST(Biases, AreToldApartBySizeThenBySchemaOrder) {
    using Places = std::vector<plec_operand_id>;
    const Places none;
    EXPECT_EQ(places({12, 8}, 12, 0, 8), (Places{PLEC_GATE_BIAS, PLEC_DOWN_BIAS}));
    EXPECT_EQ(places({8, 12}, 12, 0, 8), (Places{PLEC_DOWN_BIAS, PLEC_GATE_BIAS}));
    EXPECT_EQ(places({8, 8}, 8, 0, 8), (Places{PLEC_GATE_BIAS, PLEC_DOWN_BIAS}));
    EXPECT_EQ(places({6, 6, 8}, 6, 6, 8), (Places{PLEC_GATE_BIAS, PLEC_UP_BIAS, PLEC_DOWN_BIAS}));
    EXPECT_EQ(places({8, 8, 8}, 8, 8, 8), (Places{PLEC_GATE_BIAS, PLEC_UP_BIAS, PLEC_DOWN_BIAS}));
    EXPECT_EQ(places({8}, 12, 0, 8), (Places{PLEC_DOWN_BIAS}));
    EXPECT_EQ(places({6, 6}, 6, 6, 8), (Places{PLEC_GATE_BIAS, PLEC_UP_BIAS}));
    EXPECT_EQ(places({6}, 0, 6, 8), (Places{PLEC_UP_BIAS}));
    EXPECT_EQ(places({6}, 6, 6, 8), none) << "gate's or up's";
    EXPECT_EQ(places({8}, 8, 0, 8), none) << "gate_up's or down's";
    EXPECT_EQ(places({8, 8}, 8, 8, 8), none);
    EXPECT_EQ(places({12, 12}, 12, 0, 8), none) << "two for one matrix";
    EXPECT_EQ(places({5}, 6, 6, 8), none);
}

TEST(Biases, StandInTheirMatrixsPlaceWhateverTheirShapeInTheFile) {
    BankDirectory dir;
    dir.add("routed/layer_000",
            bank_of({fused(12, 8, 2), matrix(PLEC_ROLE_DOWN, 8, 6), matrix(PLEC_ROLE_BIAS, 8, 1),
                     matrix(PLEC_ROLE_BIAS, 1, 12)}));
    Bound layer(dir.write());
    ASSERT_EQ(layer.name, "") << layer.message;
    const plec_bank &bank = layer.bound.layer.routed;
    EXPECT_EQ(bank.operands[PLEC_GATE_BIAS].rows, 1u);
    EXPECT_EQ(bank.operands[PLEC_GATE_BIAS].cols, 12u);
    EXPECT_EQ(bank.operands[PLEC_DOWN_BIAS].rows, 1u);
    EXPECT_EQ(bank.operands[PLEC_DOWN_BIAS].cols, 8u);
    EXPECT_EQ(memcmp(bank.entries[1].values[PLEC_GATE_BIAS],
                     routed(dir).data() + get_offset(routed(dir), 1, 3), 48),
              0);
}

TEST(Biases, ThatCannotBeToldApartAreRefused) {
    BankFile file = gated_bank();
    file.schemas.push_back(matrix(PLEC_ROLE_BIAS, 1, 6));
    EXPECT_EQ(refusal_of_bank(file), "BiasUnmatched");
    file.schemas.push_back(matrix(PLEC_ROLE_BIAS, 1, 6));
    EXPECT_EQ(refusal_of_bank(file), "");
    file.schemas.push_back(matrix(PLEC_ROLE_BIAS, 1, 8));
    file.schemas.push_back(matrix(PLEC_ROLE_BIAS, 1, 8));
    EXPECT_EQ(refusal_of_bank(file), "BiasUnmatched") << "four";
}

TEST(Biases, GptOssNeedsThem) {
    BankDirectory dir;
    dir.set("routed_bank/programme", "\"gpt-oss-expert-v1\"");
    EXPECT_EQ(refusal(dir), "UnsatisfiedProgramme");
}

/* --- manifest against file ---------------------------------------------------------------------
 */

TEST(Bind, RefusesAManifestTheFileContradicts) {
    {
        BankDirectory dir;
        dir.set("routed_bank/experts", "5");
        Bound layer(dir.write());
        EXPECT_EQ(layer.name, "ExpertsContradicted");
        EXPECT_TRUE(layer.says("5") && layer.says("4")) << layer.message;
    }
    for (const char *dims : {R"({"input": 7, "intermediate": 6, "output": 8})",
                             R"({"input": 8, "intermediate": 5, "output": 8})",
                             R"({"input": 8, "intermediate": 6, "output": 9})"}) {
        BankDirectory dir;
        dir.set("routed_bank/expert_dims", dims);
        EXPECT_EQ(refusal(dir), "DimensionContradicted") << dims;
    }
    {
        BankDirectory dir;
        dir.set_index("hidden_size", "16");
        EXPECT_EQ(refusal(dir), "DimensionContradicted");
    }
    {
        BankDirectory dir;
        dir.set("layer", "7");
        Bound layer(dir.write(), nullptr, 7);
        EXPECT_EQ(layer.name, "LayerContradicted");
    }
}

TEST(Bind, RefusesABankRecordItsMatricesContradict) {
    for (auto member : {&BankFile::input, &BankFile::intermediate, &BankFile::output}) {
        BankFile file = gated_bank();
        file.*member += 1;
        EXPECT_EQ(refusal_of_bank(file), "DimensionContradicted");
    }
}

TEST(Bind, RefusesABankWithoutEntries) {
    BankFile file = gated_bank(PLEC_BANK_ROUTED, 0);
    EXPECT_EQ(refusal_of_bank(file), "BankHasNoExperts");
}

TEST(Bind, NothingIsSizedByAnEntryCountTheFileCannotHold) {
    BankDirectory dir;
    dir.set("routed_bank/experts", "4294967295");
    auto &bytes = routed(dir);
    plec_store_u32(&bytes[24 + 8], 4294967295u);
    Bound gap(dir.write());
    EXPECT_EQ(gap.name, "MissingRegion") << gap.message;
    plec_store_u32(&bytes[48 + 8], 4294967295u);
    Bound cut(dir.write());
    EXPECT_EQ(cut.name, "Truncated") << cut.message;
}

TEST(Bind, SlotsThatAreHolesAreRefusedBeforeRoomIsMadeForThem) {
    BankDirectory dir;
    dir.set("routed_bank/experts", "4294967295");
    auto &bytes = routed(dir);
    plec_store_u32(&bytes[24 + 8], 4294967295u);
    plec_store_u32(&bytes[48 + 8], 4294967295u);
    bytes.resize(slot_of(bytes, 0, 0));
    std::string root = dir.write();
    ASSERT_EQ(truncate((root + "/routed/layer_000.lyrw").c_str(), off_t(1) << 38), 0);
    Bound holes(root);
    EXPECT_EQ(holes.name, "LengthNotShape") << holes.message;
}

} // namespace
