#include "tools/plectrum/units.h"

#include <gtest/gtest.h>

#include <string>

static std::string size_text(uint64_t n) {
    char buffer[PLEC_UNIT_TEXT_MAX];
    return plec_size_text(buffer, n);
}

static std::string count_text(uint64_t n) {
    char buffer[PLEC_UNIT_TEXT_MAX];
    return plec_count_text(buffer, n);
}

TEST(Units, SizesHaveOneDecimalAndTwoInGiB) {
    EXPECT_EQ(size_text(0), "0 bytes");
    EXPECT_EQ(size_text(1), "1 byte");
    EXPECT_EQ(size_text(1023), "1023 bytes");
    EXPECT_EQ(size_text(1124), "1.1 KiB");
    EXPECT_EQ(size_text(641728512), "612.0 MiB");
    EXPECT_EQ(size_text(UINT64_C(24277155840)), "22.61 GiB");
    EXPECT_EQ(size_text(UINT64_MAX), "16777216.00 TiB");
}

TEST(Units, CountsAreGroupedByThree) {
    EXPECT_EQ(count_text(0), "0");
    EXPECT_EQ(count_text(999), "999");
    EXPECT_EQ(count_text(1000), "1,000");
    EXPECT_EQ(count_text(33030144), "33,030,144");
    EXPECT_EQ(count_text(UINT64_MAX), "18,446,744,073,709,551,615");
}

TEST(Units, SizesAreReadWithTheirUnit) {
    uint64_t n = 0;
    EXPECT_TRUE(plec_size_parse(&n, "20GiB"));
    EXPECT_EQ(n, UINT64_C(20) << 30);
    EXPECT_TRUE(plec_size_parse(&n, "3GB"));
    EXPECT_EQ(n, UINT64_C(3000000000));
    EXPECT_TRUE(plec_size_parse(&n, "4096"));
    EXPECT_EQ(n, 4096u);
    for (const char *bad : {"", "GiB", "1.5GiB", "-1", "20 GiB", "20gib", "16777216TiB"})
        EXPECT_FALSE(plec_size_parse(&n, bad)) << bad;
    EXPECT_EQ(n, 4096u) << "a refused text leaves the value alone";
}
