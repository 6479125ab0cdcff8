#include "tools/plectrum/progress.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include <unistd.h>

// A clock that the test moves.
static double clock_s;
static double read_clock() {
    return clock_s;
}

// What a progress of 1,000 bytes wrote while `steps` updates came every `step_s` seconds.
static std::string watch(int steps, double step_s) {
    char *text = nullptr;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    clock_s = 100;
    plec_progress progress = plec_progress_start("hashing", 1000, PLEC_PROGRESS_COUNT);
    progress.stream = stream;
    progress.now = read_clock;
    progress.started = clock_s;
    for (int i = 1; i <= steps; i++) {
        clock_s += step_s;
        plec_progress_update(&progress, static_cast<uint64_t>(1000 * i / steps));
    }
    plec_progress_end(&progress);
    plec_progress_end(&progress);
    fclose(stream);
    std::string result(text, size);
    free(text);
    return result;
}

static size_t count(const std::string &text, const std::string &part) {
    size_t n = 0;
    for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
        n++;
    return n;
}

TEST(Progress, SaysNothingInTheFirstSecond) {
    EXPECT_EQ(watch(99, 0.01), "");
}

TEST(Progress, TellsHowFarAndWipesItsLine) {
    std::string text = watch(4, 1.0);
    EXPECT_NE(text.find("hashing  [######"), std::string::npos) << text;
    EXPECT_NE(text.find(" 50%  500 of 1,000  2 s"), std::string::npos) << text;
    EXPECT_EQ(text.substr(text.size() - 4), "\r\x1b[K");
}

TEST(Progress, RedrawsAtMostTenTimesASecond) {
    size_t drawn = count(watch(3000, 0.001), "hashing");
    EXPECT_GE(drawn, 15u);
    EXPECT_LE(drawn, 22u);
}

TEST(Progress, IsSilentWhereThereIsNoTerminal) {
    // The test runner's stderr may be a terminal; a pipe never is.
    int saved = dup(2), ends[2];
    ASSERT_EQ(pipe(ends), 0);
    dup2(ends[1], 2);
    plec_progress progress = plec_progress_start("hashing", 10, PLEC_PROGRESS_BYTES);
    dup2(saved, 2);
    close(saved);
    close(ends[0]);
    close(ends[1]);
    EXPECT_EQ(progress.stream, nullptr);
    plec_progress_update(&progress, 5);
    plec_progress_end(&progress);
}
