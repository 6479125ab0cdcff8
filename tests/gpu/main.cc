// Runs tests that need a GPU; without one says so and exits 77, which is a skip, not a pass.
#include "device/device.h"

#include <gtest/gtest.h>

#include <cstdio>

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    if (testing::GTEST_FLAG(list_tests)) return RUN_ALL_TESTS();
    struct plec_device *device = nullptr;
    struct plec_error err = {};
    if (plec_device_open(&device, PLEC_DEVICE_CUDA, nullptr, &err) != PLEC_OK) {
        printf("skipped: no GPU: %s\n", err.message);
        return 77;
    }
    plec_device_close(device);
    return RUN_ALL_TESTS();
}
