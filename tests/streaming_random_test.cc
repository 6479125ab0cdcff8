/* A few of the random schedules; the slow label runs ten thousand. */
#include "tests/support/random_schedule.h"

TEST(StreamingSchedules, HundredsDrawnByChanceGiveTheResidentBits) {
    plec_test::run_random_schedules(1, 30, 8);
}
