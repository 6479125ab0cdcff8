/* Random schedules in earnest. */
#include "tests/support/random_schedule.h"

TEST(StreamingSchedules, TenThousandDrawnByChanceGiveTheResidentBits) {
    plec_test::run_random_schedules(1000, 1000, 10);
}
