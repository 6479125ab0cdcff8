/* What a machine's disk gives, measured. */
#include "tests/support/data.h"
#include "tools/measure/speeds.h"

#include <fstream>
#include <gtest/gtest.h>
#include <string>
#include <vector>

using namespace plec_test;

namespace {

class Speeds : public testing::Test {
  protected:
    plec_status measure(const std::vector<plec_range> &small,
                        const std::vector<plec_range> &large) {
        std::ofstream(path_) << std::string(1 << 20, 'x');
        plec_disk_args args = {};
        args.n_files = 1;
        args.path = [](const void *user, uint32_t) {
            return static_cast<const Speeds *>(user)->path_.c_str();
        };
        args.user = this;
        args.small = {small.data(), small.size()};
        args.large = {large.data(), large.size()};
        return plec_measure_disk(&speed, &args, nullptr, &err);
    }
    plec_disk_speed speed = {};
    plec_error err = {};

  private:
    TempDir dir_;
    std::string path_ = dir_.path() + "/file";
};

const plec_range NOTHING = {0, 4096, 0, 0}, SMALL = {0, 8192, 4096, 0}, LARGE = {0, 0, 1 << 20, 0};

/* The time of no read at all was divided by their number. */
TEST_F(Speeds, RangesWithoutBytesAreNothingToRead) {
    EXPECT_EQ(measure({NOTHING}, {LARGE}), PLEC_BAD_INPUT);
    EXPECT_STREQ(err.name, "NothingToRead");
    EXPECT_EQ(measure({SMALL}, {NOTHING, NOTHING}), PLEC_BAD_INPUT);
    EXPECT_EQ(measure({}, {LARGE}), PLEC_BAD_INPUT);
}

TEST_F(Speeds, RangesWithoutBytesAreSkipped) {
    ASSERT_EQ(measure({NOTHING, SMALL}, {LARGE, NOTHING}), PLEC_OK) << err.message;
    EXPECT_GT(speed.bytes_per_s, 0);
    EXPECT_GE(speed.read_s, 0);
    EXPECT_LT(speed.read_s, 1);
    EXPECT_GT(speed.n_bytes, 0u);
}

} // namespace
