// The contract (tests/emu/contract) in the emulation, under every schedule. The program exists
// twice: plain, and checked (emu_contract_checked_test), where nothing may be reported.
#include "tests/emu/contract/contract.h"
#include "tests/emu/emulator.h"

#include <gtest/gtest.h>

namespace {

const char *const schedule_names[] = {"Fifo", "Random", "Lifo", "Pct"};

struct Scheduled {
    const plec_contract_case *what;
    plec_emu_schedule schedule;
};

std::vector<Scheduled> all() {
    std::vector<Scheduled> list;
    for (const plec_contract_case *c = plec_contract_cases(); c; c = c->next)
        for (int s = PLEC_EMU_FIFO; s <= PLEC_EMU_PCT; s++)
            list.push_back({c, (plec_emu_schedule)s});
    return list;
}

class Contract : public testing::TestWithParam<Scheduled> {};

TEST_P(Contract, Holds) {
    for (uint64_t seed = 1; seed <= 4; seed++) {
        plec_emu_set_schedule(GetParam().schedule, seed);
        GetParam().what->run();
        EXPECT_STREQ("", plec_contract_take_faults()) << "seed " << seed;
        EXPECT_EQ(0, plec_emu_errors(nullptr)) << "seed " << seed;
        plec_emu_clear_errors();
    }
}

std::string NameOf(const testing::TestParamInfo<Scheduled> &test) {
    return std::string(test.param.what->name) + schedule_names[test.param.schedule];
}

INSTANTIATE_TEST_SUITE_P(, Contract, testing::ValuesIn(all()), NameOf);

} // namespace
