/* Random schedules in earnest: ten thousand, in tenths that can run beside each other. */
#include "tests/support/random_schedule.h"

class StreamingSchedules : public testing::TestWithParam<uint32_t> {};

TEST_P(StreamingSchedules, TenThousandDrawnByChanceGiveTheResidentBits) {
    plec_test::run_random_schedules(1000 + 100 * GetParam(), 100, 10);
}
INSTANTIATE_TEST_SUITE_P(Tenth, StreamingSchedules, testing::Range(0u, 10u));
