// The frame pool on the CPU device, whose pinning is mlock: exact packing, partial success at every
// slab, limits named, nothing left behind.
#include "host/pinned.h"
#include "tests/support/child.h"
#include "tests/support/data.h"
#include "tests/support/io_reads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <set>
#include <sstream>
#include <thread>

#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace plec_test;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define NEEDS_MLOCK() GTEST_SKIP() << "sanitizers make mlock do nothing"
#else
#define NEEDS_MLOCK()
#endif

namespace {

const uint64_t PAGE = 4096;

// A line of /proc/self/status, in bytes.
uint64_t status_bytes(const std::string &key) {
    std::ifstream file("/proc/self/status");
    for (std::string line; std::getline(file, line);)
        if (line.compare(0, key.size() + 1, key + ":") == 0)
            return std::stoull(line.substr(key.size() + 1)) * 1024;
    return 0;
}

class Device {
  public:
    Device() {
        plec_device_options options = {};
        plec_error err = {};
        options.n_threads = 1;
        EXPECT_EQ(plec_device_open(&device_, PLEC_DEVICE_CPU, &options, &err), PLEC_OK);
    }
    ~Device() { plec_device_close(device_); }
    Device(const Device &) = delete;
    plec_device *get() const { return device_; }

  private:
    plec_device *device_ = nullptr;
};

struct PoolDeleter {
    void operator()(plec_pinned *pool) const { plec_pinned_close(pool); }
};
using Pool = std::unique_ptr<plec_pinned, PoolDeleter>;

plec_pinned_options small_options(uint64_t n_frames, uint64_t frame_bytes, uint64_t slab_bytes) {
    plec_pinned_options options = {};
    options.n_frames = n_frames;
    options.frame_bytes = frame_bytes;
    options.slab_bytes = slab_bytes;
    options.numa_node = -1;
    return options;
}

Pool open_pool(const Device &device, const plec_pinned_options &options, plec_error *err) {
    plec_pinned *pool = nullptr;
    plec_status status = plec_pinned_open(&pool, device.get(), &options, err);
    EXPECT_EQ(status == PLEC_OK, pool != nullptr);
    return Pool(pool);
}

plec_pinned_info info_of(const Pool &pool) {
    plec_pinned_info info;
    plec_pinned_get_info(&info, pool.get());
    return info;
}

// Fails slab `slab` at `step`, and keeps what it was asked.
struct Refusal {
    uint32_t slab;
    int step;
    std::vector<std::pair<uint32_t, int>> asked = {};
    static bool allow(void *user, uint32_t slab, int step) {
        auto *refusal = static_cast<Refusal *>(user);
        refusal->asked.push_back({slab, step});
        return slab != refusal->slab || step != refusal->step;
    }
    void into(plec_pinned_options *options) {
        options->allow = allow;
        options->user = this;
    }
};

} // namespace

TEST(Pinned, FramesPackExactlyAndEveryByteIsUsable) {
    Device device;
    struct {
        uint64_t n_frames, frame_bytes, slab_bytes;
        uint32_t n_slabs;
    } const cases[] = {{1, PAGE, 0, 1},
                       {10, 3 * PAGE, 10 * PAGE, 4},    // three a slab, then one
                       {12, 3 * PAGE, 9 * PAGE, 4},     // no shorter slab
                       {5, 7 * PAGE, 4 * PAGE, 5},      // larger than a slab: one each
                       {3, 600 * PAGE, 1000 * PAGE, 3}, // over 2 MiB, no power of two
                       {100, PAGE, 1, 100}};
    for (const auto &k : cases) {
        SCOPED_TRACE(std::to_string(k.n_frames) + " x " + std::to_string(k.frame_bytes));
        plec_error err = {};
        Pool pool = open_pool(device, small_options(k.n_frames, k.frame_bytes, k.slab_bytes), &err);
        ASSERT_NE(pool, nullptr) << err.message;
        plec_pinned_info info = info_of(pool);
        EXPECT_EQ(info.n_frames, k.n_frames);
        EXPECT_EQ(info.frame_bytes, k.frame_bytes);
        EXPECT_EQ(info.asked_bytes, k.n_frames * k.frame_bytes);
        EXPECT_EQ(info.obtained_bytes, info.asked_bytes);
        EXPECT_EQ(info.pinned_bytes, info.asked_bytes);
        EXPECT_EQ(info.waste_bytes, 0u);
        EXPECT_EQ(info.n_slabs, k.n_slabs);
        EXPECT_STREQ(info.limits, "");
        EXPECT_LE(info.huge_bytes, info.obtained_bytes);

        uint64_t in_slabs = 0;
        std::set<uint8_t *> of_slabs, of_frames;
        for (uint32_t i = 0; i < info.n_slabs; i++) {
            uint64_t n_bytes;
            auto *slab = static_cast<uint8_t *>(plec_pinned_slab(pool.get(), i, &n_bytes));
            EXPECT_LE(n_bytes, uint64_t{1} << 30);
            in_slabs += n_bytes;
            for (uint64_t at = 0; at < n_bytes; at += k.frame_bytes)
                of_slabs.insert(slab + at);
        }
        EXPECT_EQ(in_slabs, info.obtained_bytes);
        for (uint64_t i = 0; i < info.n_frames; i++) {
            auto *frame = static_cast<uint8_t *>(plec_pinned_frame(pool.get(), i));
            EXPECT_EQ(reinterpret_cast<uintptr_t>(frame) % PAGE, 0u);
            of_frames.insert(frame);
            memset(frame, static_cast<int>(i + 1), k.frame_bytes);
        }
        EXPECT_EQ(of_frames, of_slabs);
        for (uint64_t i = 0; i < info.n_frames; i++) {
            auto *frame = static_cast<uint8_t *>(plec_pinned_frame(pool.get(), i));
            EXPECT_EQ(frame[0], static_cast<uint8_t>(i + 1));
            EXPECT_EQ(frame[k.frame_bytes - 1], static_cast<uint8_t>(i + 1));
        }
    }
}

TEST(Pinned, PinsThroughTheDeviceAndUnpinsAtClose) {
    NEEDS_MLOCK();
    Device device;
    uint64_t before = status_bytes("VmLck");
    for (plec_pin_mode mode : {PLEC_PIN_PREFER, PLEC_PIN_REQUIRE, PLEC_PIN_OFF}) {
        plec_pinned_options options = small_options(20, 2 * PAGE, 8 * PAGE);
        options.mode = mode;
        plec_error err = {};
        Pool pool = open_pool(device, options, &err);
        ASSERT_NE(pool, nullptr) << err.message;
        uint64_t pinned = mode == PLEC_PIN_OFF ? 0 : 40 * PAGE;
        EXPECT_EQ(info_of(pool).pinned_bytes, pinned);
        EXPECT_EQ(info_of(pool).n_frames, 20u);
        EXPECT_STREQ(info_of(pool).limits, "");
        EXPECT_EQ(status_bytes("VmLck"), before + pinned) << "the counter is what the system says";
        pool.reset();
        EXPECT_EQ(status_bytes("VmLck"), before);
    }
}

TEST(Pinned, AThousandPoolsLeaveNothingBehind) {
    Device device;
    plec_pinned_options options = small_options(6, 2 * PAGE, 4 * PAGE);
    options.n_threads = 1;
    uint64_t locked = 0, mapped = 0;
    for (int i = 0; i < 1000; i++) {
        plec_error err = {};
        Refusal refusal = {1, i % 3}; // also half-opened ones
        if (i % 5 == 4) refusal.into(&options);
        Pool pool = open_pool(device, options, &err);
        ASSERT_NE(pool, nullptr) << err.message;
        options.allow = nullptr;
        pool.reset();
        if (i == 100) {
            locked = status_bytes("VmLck");
            mapped = status_bytes("VmSize");
        }
    }
    EXPECT_EQ(status_bytes("VmLck"), locked);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    mapped += uint64_t{1} << 40; // sanitizers map as they please
#endif
    EXPECT_LE(status_bytes("VmSize"), mapped + (1 << 20));
}

TEST(Pinned, ASlabThatCannotBeMappedEndsTheGrowingAtThatPoint) {
    Device device;
    for (plec_pin_mode mode : {PLEC_PIN_PREFER, PLEC_PIN_REQUIRE, PLEC_PIN_OFF})
        for (uint32_t k = 0; k < 5; k++) {
            SCOPED_TRACE(std::to_string(mode) + " slab " + std::to_string(k));
            uint64_t before = status_bytes("VmLck");
            plec_pinned_options options = small_options(14, PAGE, 3 * PAGE); // 3 3 3 3 2
            options.mode = mode;
            Log log;
            options.log = log.sink();
            Refusal refusal = {k, 0};
            refusal.into(&options);
            plec_error err = {};
            Pool pool = open_pool(device, options, &err);
            if (k == 0 || mode == PLEC_PIN_REQUIRE) {
                ASSERT_EQ(pool, nullptr);
                EXPECT_EQ(err.code, PLEC_NO_MEMORY);
                EXPECT_STREQ(err.name, "PinnedMemory");
                std::string message = err.message;
                for (const std::string &part :
                     {std::string("asked 56.0 KiB"),
                      k == 0 ? "obtained 0 bytes" : "obtained " + std::to_string(12 * k) + ".0 KiB",
                      "slab " + std::to_string(k) + " of 5: mapping: not allowed",
                      std::string("available ")})
                    EXPECT_NE(message.find(part), std::string::npos) << part << ": " << message;
            } else {
                ASSERT_NE(pool, nullptr) << err.message;
                plec_pinned_info info = info_of(pool);
                EXPECT_EQ(info.n_frames, 3u * k);
                EXPECT_EQ(info.obtained_bytes, 3 * k * PAGE);
                EXPECT_EQ(info.pinned_bytes, mode == PLEC_PIN_OFF ? 0 : 3 * k * PAGE);
                EXPECT_NE(std::string(info.limits).find("mapping: not allowed"), std::string::npos)
                    << info.limits;
                EXPECT_EQ(log.count("asked 56.0 KiB, obtained"), 1u) << log.text();
                memset(plec_pinned_frame(pool.get(), 3 * k - 1), 1, PAGE);
            }
            pool.reset();
            EXPECT_EQ(status_bytes("VmLck"), before);
        }
}

TEST(Pinned, ASlabThatCannotBePinnedLeavesTheRestPageableAndIsNotAskedAgain) {
    Device device;
    for (plec_pin_method method : {PLEC_PIN_REGISTER, PLEC_PIN_ALLOCATE})
        for (plec_pin_mode mode : {PLEC_PIN_PREFER, PLEC_PIN_REQUIRE})
            for (uint32_t k = 0; k < 5; k++) {
                SCOPED_TRACE(std::to_string(method) + " " + std::to_string(mode) + " slab " +
                             std::to_string(k));
                plec_pinned_options options = small_options(14, PAGE, 3 * PAGE);
                options.mode = mode;
                options.method = method;
                Refusal refusal = {k, 1};
                refusal.into(&options);
                plec_error err = {};
                Pool pool = open_pool(device, options, &err);
                if (mode == PLEC_PIN_REQUIRE) {
                    ASSERT_EQ(pool, nullptr);
                    EXPECT_STREQ(err.name, "PinnedMemory");
                    EXPECT_NE(std::string(err.message).find("not allowed"), std::string::npos);
                    continue;
                }
                ASSERT_NE(pool, nullptr) << err.message;
                plec_pinned_info info = info_of(pool);
                EXPECT_EQ(info.n_frames, 14u) << "all usable";
                EXPECT_EQ(info.obtained_bytes, 14 * PAGE);
                EXPECT_EQ(info.pinned_bytes, 3 * k * PAGE);
                EXPECT_NE(std::string(info.limits).find("not allowed"), std::string::npos);
                for (uint64_t i = 0; i < 14; i++)
                    memset(plec_pinned_frame(pool.get(), i), 1, PAGE);
                const auto &asked = refusal.asked;
                EXPECT_EQ(
                    std::count_if(asked.begin(), asked.end(), [](auto a) { return a.second == 1; }),
                    k + 1);
            }
}

TEST(Pinned, OffNeverPins) {
    Device device;
    plec_pinned_options options = small_options(4, PAGE, PAGE);
    options.mode = PLEC_PIN_OFF;
    Refusal refusal = {99, 0};
    refusal.into(&options);
    plec_error err = {};
    ASSERT_NE(open_pool(device, options, &err), nullptr);
    for (auto [slab, step] : refusal.asked)
        EXPECT_EQ(step, 0) << slab;
}

TEST(Pinned, MemoryOfTheDeviceServesWhereRegisteringDoesNot) {
    Device device;
    plec_pinned_options options = small_options(9, 5 * PAGE, 10 * PAGE);
    options.method = PLEC_PIN_ALLOCATE;
    plec_error err = {};
    Pool pool = open_pool(device, options, &err);
    ASSERT_NE(pool, nullptr) << err.message;
    EXPECT_EQ(info_of(pool).pinned_bytes, 45 * PAGE);
    for (uint64_t i = 0; i < 9; i++)
        memset(plec_pinned_frame(pool.get(), i), 1, 5 * PAGE);
}

TEST(Pinned, TheLockLimitGivesAPartialPoolThatNamesIt) {
    NEEDS_MLOCK();
    std::string said = run_in_child([] {
        rlimit memlock = {256 << 10, 256 << 10};
        if (setrlimit(RLIMIT_MEMLOCK, &memlock) != 0) return std::string("no limit");
        if (geteuid() == 0 && setuid(65534) != 0) return std::string("still root");
        std::stringstream out;
        Device device;
        for (plec_pin_mode mode : {PLEC_PIN_PREFER, PLEC_PIN_REQUIRE, PLEC_PIN_OFF}) {
            plec_pinned_options options = small_options(16, 16 * PAGE, 16 * PAGE); // 1 MiB
            options.mode = mode;
            plec_error err = {};
            Pool pool = open_pool(device, options, &err);
            if (pool == nullptr)
                out << "refused " << err.message << "\n";
            else
                out << info_of(pool).n_frames << " frames " << info_of(pool).pinned_bytes << " "
                    << info_of(pool).limits << "\n";
        }
        return out.str();
    });
    std::stringstream lines(said);
    std::string prefer, require, off;
    std::getline(lines, prefer);
    std::getline(lines, require);
    std::getline(lines, off);
    EXPECT_EQ(prefer.find("16 frames 262144 memlock 256.0 KiB"), 0u) << said;
    EXPECT_NE(prefer.find("mlock of 65536 bytes: Cannot allocate memory"), std::string::npos)
        << said;
    EXPECT_EQ(require.find("refused PinnedMemory: asked 1.0 MiB, obtained 320.0 KiB, pinned 256.0 "
                           "KiB"),
              0u)
        << said;
    EXPECT_NE(require.find("memlock 256.0 KiB"), std::string::npos) << said;
    EXPECT_EQ(off, "16 frames 0 ") << said;
}

TEST(Pinned, NoSlabIsAskedForThatTheMemoryLeftDoesNotHold) {
    Device device;
    TempDir root;
    mkdir(root.path("proc").c_str(), 0755);
    std::string meminfo = "MemAvailable: 81920 kB\n"; // 80 MiB, of which 64 are kept
    write_file(root.path("proc/meminfo"), meminfo.data(), meminfo.size());
    std::string path = root.path();
    plec_pinned_options options = small_options(uint64_t{1} << 30, MIB, 17 * MIB);
    options.limits_root = path.c_str();
    plec_error err = {};
    EXPECT_EQ(open_pool(device, options, &err), nullptr);
    EXPECT_NE(std::string(err.message).find("asked 1.00 PiB"), std::string::npos) << err.message;
    EXPECT_NE(std::string(err.message).find("only 80.0 MiB of memory is left"), std::string::npos)
        << err.message;
    options.n_frames = 16;
    options.slab_bytes = 4 * MIB; // the file says the same each time: all four fit
    Pool pool = open_pool(device, options, &err);
    ASSERT_NE(pool, nullptr) << err.message;
    EXPECT_EQ(info_of(pool).n_frames, 16u);
}

TEST(Pinned, AFrameOverTheLargestSlabIsRefused) {
    Device device;
    plec_error err = {};
    EXPECT_EQ(open_pool(device, small_options(1, (uint64_t{1} << 30) + PAGE, 0), &err), nullptr);
    EXPECT_EQ(err.code, PLEC_BAD_INPUT);
    EXPECT_STREQ(err.name, "FrameTooLarge");
    EXPECT_EQ(open_pool(device, small_options(UINT64_MAX / 8, uint64_t{1} << 20, 0), &err),
              nullptr);
    EXPECT_STREQ(err.name, "PinnedMemory");
}

TEST(Pinned, LargeSlabsAskForHugePagesAndStartOnOne) {
    Device device;
    plec_pinned_options options = small_options(6, 5 * MIB, 10 * MIB);
    options.mode = PLEC_PIN_OFF;
    plec_error err = {};
    Pool pool = open_pool(device, options, &err);
    ASSERT_NE(pool, nullptr) << err.message;
    for (uint32_t i = 0; i < 3; i++) {
        uint64_t n_bytes;
        void *slab = plec_pinned_slab(pool.get(), i, &n_bytes);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(slab) % (2 * MIB), 0u);
    }
    uint64_t huge = info_of(pool).huge_bytes;
    EXPECT_EQ(huge % (2 * MIB), 0u);
    std::string setting;
    std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled") >> setting;
    if (setting.empty()) GTEST_SKIP() << "no transparent huge pages here";
    std::cout << "huge pages: " << huge / MIB << " of 30 MiB\n";
}

TEST(Pinned, SlabsAreBoundToANodeBeforeFirstTouch) {
    Device device;
    plec_pinned_options options = small_options(4, 16 * PAGE, 32 * PAGE);
    options.mode = PLEC_PIN_OFF;
    options.numa_node = 0;
    Log log;
    options.log = log.sink();
    plec_error err = {};
    Pool pool = open_pool(device, options, &err);
    ASSERT_NE(pool, nullptr) << err.message;
    if (info_of(pool).numa_node != 0) {
        EXPECT_NE(log.text().find("not bound to NUMA node 0"), std::string::npos) << log.text();
        GTEST_SKIP() << log.text();
    }
    for (uint64_t i = 0; i < 4; i++) {
        int policy = -1;
        unsigned long nodes[16] = {};
        if (syscall(SYS_get_mempolicy, &policy, nodes, 8 * sizeof nodes,
                    plec_pinned_frame(pool.get(), i), 2 /* MPOL_F_ADDR */) != 0)
            GTEST_SKIP() << "get_mempolicy is refused";
        EXPECT_NE(policy, 0) << "no policy: taken from where the thread happened to run";
        EXPECT_EQ(nodes[0], 1u);
    }
    options.numa_node = 12345;
    pool = open_pool(device, options, &err);
    ASSERT_NE(pool, nullptr) << "a wrong node costs the binding, not the memory";
    EXPECT_EQ(info_of(pool).numa_node, -1);
    EXPECT_EQ(log.count("not bound to NUMA node 12345"), 1u) << log.text();
}

TEST(Pinned, ASlowOpenTellsHowFarItIs) {
    Device device;
    plec_pinned_options options = small_options(5, PAGE, PAGE);
    Log log;
    options.log = log.sink();
    options.allow = [](void *, uint32_t, int step) {
        if (step == 0) std::this_thread::sleep_for(std::chrono::milliseconds(350));
        return true;
    };
    plec_error err = {};
    ASSERT_NE(open_pool(device, options, &err), nullptr) << err.message;
    EXPECT_EQ(log.count("pinned memory: 12.0 KiB of 20.0 KiB after 1 s"), 1u) << log.text();
    EXPECT_EQ(log.count("pinned memory: "), 1u) << log.text();
}

TEST(Pinned, FramesAreWhereReadsLand) {
    Device device;
    TempDir dir;
    std::vector<uint8_t> bytes = random_bytes(64 << 10, 5);
    write_file(dir.path("file"), bytes.data(), bytes.size());
    plec_error err = {};
    Pool pool = open_pool(device, small_options(4, 16 << 10, 32 << 10), &err);
    ASSERT_NE(pool, nullptr) << err.message;
    plec_io_options options = {};
    options.cache = PLEC_CACHE_DIRECT;
    Io io(options);
    io.add(dir.path("file"));
    for (uint32_t i = 0; i < info_of(pool).n_slabs; i++) {
        uint64_t n_bytes;
        void *slab = plec_pinned_slab(pool.get(), i, &n_bytes);
        plec_io_register(io.get(), slab, n_bytes);
    }
    for (uint64_t i = 0; i < 4; i++) {
        plec_io_read read = {};
        read.offset = (3 - i) * (16 << 10);
        read.length = 16 << 10;
        read.to = plec_pinned_frame(pool.get(), i);
        ASSERT_TRUE(plec_io_submit(io.get(), &read));
    }
    plec_io_completion done[4];
    for (size_t n = 0; n < 4;)
        n += plec_io_reap(io.get(), done, 4, UINT32_MAX);
    for (uint64_t i = 0; i < 4; i++)
        EXPECT_EQ(memcmp(plec_pinned_frame(pool.get(), i), &bytes[(3 - i) * (16 << 10)], 16 << 10),
                  0);
    plec_io_counters c = io.counters();
    if (c.buffered_files == 0) {
        EXPECT_EQ(c.direct_bytes, 64u << 10);
    }
}
