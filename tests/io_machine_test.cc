// host/io on machines that refuse something: io_uring, locked memory, descriptors, room for the
// page cache. Also what host/memory_limits reads.
#include "host/io.h"
#include "host/memory_limits.h"
#include "tests/support/child.h"
#include "tests/support/data.h"
#include "tests/support/io_reads.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <cstddef>

#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

using namespace plec_test;

namespace {

// From here on a system call of this process fails with an errno.
bool forbid(int number, int error) {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<uint32_t>(error)),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    sock_fprog program = {4, filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

// Opens with the options, reads the file, and says what was used and what was logged.
std::string read_and_tell(const std::string &path, const std::vector<uint8_t> &bytes,
                          plec_io_options options) {
    Log log;
    plec_io *io = nullptr;
    plec_error err = {};
    uint32_t file;
    options.log = log.sink();
    if (plec_io_open(&io, &options, &err) != PLEC_OK) return std::string("open: ") + err.message;
    if (plec_io_add_file(&file, io, path.c_str(), &err) != PLEC_OK)
        return std::string("add: ") + err.message;
    std::vector<uint8_t> got(bytes.size());
    plec_io_read read = {};
    read.length = bytes.size();
    read.to = got.data();
    plec_io_completion done = {};
    plec_io_register(io, got.data(), got.size());
    plec_io_submit(io, &read);
    while (plec_io_reap(io, &done, 1, UINT32_MAX) == 0)
        ;
    plec_io_counters c;
    plec_io_get_counters(&c, io);
    plec_io_close(io);
    return std::string(c.engine) + " fallbacks " + std::to_string(c.engine_fallbacks) +
           (done.status == PLEC_OK && got == bytes ? " exact" : " WRONG") + " registered " +
           std::to_string(c.registered_bytes) + " unregistered " +
           std::to_string(c.unregistered_bytes) + "\n" + log.text();
}

class Limited : public testing::Test {
  protected:
    Limited() : bytes(random_bytes(300001, 4)), path(dir.path("file")) {
        write_file(path, bytes.data(), bytes.size());
        chmod(dir.path().c_str(), 0755);
        chmod(path.c_str(), 0644);
    }
    TempDir dir;
    std::vector<uint8_t> bytes;
    std::string path;
};

} // namespace

using RefusedRing = Limited;

TEST_F(RefusedRing, TurnsToThreadsOfPreadOnceAndAloud) {
    struct {
        int call, error;
        const char *told;
    } const cases[] = {{SYS_io_uring_setup, EPERM, "io_uring_setup: Operation not permitted"},
                       {SYS_io_uring_setup, ENOSYS, "io_uring_setup: Function not implemented"},
                       {SYS_io_uring_setup, ENOMEM, "io_uring_setup: Cannot allocate memory"},
                       {SYS_io_uring_enter, EPERM, "io_uring_enter: Operation not permitted"}};
    plec_io_options probe = {};
    if (read_and_tell(path, bytes, probe).compare(0, 8, "io_uring") != 0)
        GTEST_SKIP() << "io_uring is refused on this machine anyway";
    for (const auto &k : cases)
        for (plec_io_engine engine : {PLEC_IO_AUTO, PLEC_IO_URING}) {
            std::string said = run_in_child([&] {
                plec_io_options options = {};
                options.engine = engine;
                if (!forbid(k.call, k.error)) return std::string("no filter");
                return read_and_tell(path, bytes, options);
            });
            EXPECT_EQ(said.find("pread fallbacks 1 exact"), 0u) << said;
            EXPECT_NE(said.find(k.told), std::string::npos) << said;
            EXPECT_NE(said.find("io_uring cannot be had"), std::string::npos) << said;
            EXPECT_NE(said.find("4 threads of pread"), std::string::npos) << said;
        }
}

TEST_F(RefusedRing, MmapWithoutItsSafeCopyTurnsToPread) {
    std::string said = run_in_child([&] {
        plec_io_options options = {};
        options.engine = PLEC_IO_MMAP;
        if (!forbid(SYS_process_vm_readv, EPERM)) return std::string("no filter");
        return read_and_tell(path, bytes, options);
    });
    EXPECT_EQ(said.find("pread fallbacks 1 exact"), 0u) << said;
    EXPECT_NE(said.find("mmap cannot be had"), std::string::npos) << said;
}

using FewRights = Limited;

TEST_F(FewRights, MemoryBeyondTheLockLimitIsReadIntoUnregistered) {
    for (uint64_t limit : {uint64_t{64} << 10, uint64_t{4} << 20}) {
        std::string said = run_in_child([&] {
            rlimit memlock = {limit, limit};
            if (setrlimit(RLIMIT_MEMLOCK, &memlock) != 0) return std::string("no limit");
            if (geteuid() == 0 && setuid(65534) != 0) return std::string("still root");
            plec_io_options options = {};
            options.engine = PLEC_IO_URING;
            return read_and_tell(path, bytes, options);
        });
        EXPECT_NE(said.find(" exact"), std::string::npos) << said;
        if (said.compare(0, 8, "io_uring") != 0) GTEST_SKIP() << said;
        bool fits = limit > bytes.size() + 8192;
        EXPECT_NE(said.find(fits ? "registered 300001 unregistered 0"
                                 : "registered 0 unregistered 300001"),
                  std::string::npos)
            << said;
        EXPECT_EQ(said.find("io: memory is read into unregistered") == std::string::npos, fits)
            << said;
    }
}

TEST_F(FewRights, TooManyOpenFilesNamesTheLimit) {
    std::string said = run_in_child([&] {
        rlimit files = {24, 24};
        if (setrlimit(RLIMIT_NOFILE, &files) != 0) return std::string("no limit");
        plec_io *io = nullptr;
        plec_error err = {};
        if (plec_io_open(&io, nullptr, &err) != PLEC_OK) return std::string(err.message);
        std::string out;
        for (uint32_t i = 0, file; i < 24 && out.empty(); i++) {
            if (plec_io_add_file(&file, io, path.c_str(), &err) != PLEC_OK)
                out = std::string(err.name) + ": " + err.message;
            else if (file != i)
                out = "wrong number";
        }
        // What was opened still reads.
        plec_io_read read = {};
        std::vector<uint8_t> got(bytes.size());
        read.length = bytes.size();
        read.to = got.data();
        plec_io_completion done = {};
        plec_io_submit(io, &read);
        while (plec_io_reap(io, &done, 1, UINT32_MAX) == 0)
            ;
        if (got != bytes) out += " WRONG";
        plec_io_close(io);
        return out;
    });
    EXPECT_EQ(said.find("CannotOpen"), 0u) << said;
    EXPECT_NE(said.find("limit of open files is 24"), std::string::npos) << said;
    EXPECT_NE(said.find(path), std::string::npos) << said;
    EXPECT_EQ(said.find("WRONG"), std::string::npos) << said;
}

TEST(IoFile, RefusesWhatIsNoFileByName) {
    TempDir dir;
    ASSERT_EQ(mkfifo(dir.path("fifo").c_str(), 0600), 0);
    plec_io_options options = {};
    options.max_files = 2;
    Io io(options);
    plec_error err = {};
    uint32_t file;
    EXPECT_EQ(plec_io_add_file(&file, io.get(), dir.path("absent").c_str(), &err), PLEC_MISSING);
    EXPECT_STREQ(err.name, "CannotOpen");
    EXPECT_NE(std::string(err.message).find(dir.path("absent")), std::string::npos);
    for (const std::string &path : {dir.path(), dir.path("fifo")}) {
        EXPECT_EQ(plec_io_add_file(&file, io.get(), path.c_str(), &err), PLEC_MISSING);
        EXPECT_STREQ(err.name, "NotAFile");
        EXPECT_NE(std::string(err.message).find(path), std::string::npos);
    }
    write_file(dir.path("file"), "ab", 2);
    EXPECT_EQ(io.add(dir.path("file")), 0u);
    EXPECT_EQ(io.add(dir.path("file")), 1u);
    EXPECT_EQ(plec_io_add_file(&file, io.get(), dir.path("file").c_str(), &err), PLEC_NO_MEMORY);
    EXPECT_STREQ(err.name, "TooManyFiles");
}

namespace {

// A file larger than any memory that takes no room: `head` at its front, then a hole.
void make_huge(const std::string &path, const std::vector<uint8_t> &head) {
    write_file(path, head.data(), head.size());
    ASSERT_EQ(truncate(path.c_str(), off_t{1} << 42), 0);
}

} // namespace

TEST(IoCache, FilesThatExceedTheMemoryLeftAreReadDirectly) {
    TempDir dir;
    std::vector<uint8_t> bytes = random_bytes(1 << 20, 8);
    make_huge(dir.path("huge"), bytes);
    write_file(dir.path("small"), bytes.data(), bytes.size());
    Log log;
    plec_io_options options = {};
    options.log = log.sink();
    Io io(options);
    io.add(dir.path("small"));
    std::vector<Range> small, huge;
    small.emplace_back(0, 0, MIB);
    io.expect_exact(small, bytes);
    EXPECT_STREQ(io.counters().cache, "buffered");
    io.add(dir.path("huge")); // settles anew
    EXPECT_STREQ(io.counters().cache, "direct");
    huge.emplace_back(1, 4096, MIB - 4096);
    io.expect_exact(huge, bytes);
    plec_io_counters c = io.counters();
    if (c.buffered_files == 0) {
        EXPECT_EQ(c.direct_bytes, MIB - 4096);
    }
    EXPECT_EQ(c.dropped_bytes, 0u);
    EXPECT_EQ(log.count("io: "), 2u) << log.text();
    EXPECT_NE(log.text().find("direct: 2 files of 4.00 TiB"), std::string::npos) << log.text();
}

/* "buffered as asked" was said of a mapping that direct reads were asked of, and "direct as asked"
 * of files that allow none. */
TEST(IoCache, TheLogSaysWhyItIsAndWhatIsNotRead) {
    const struct {
        plec_io_engine engine;
        plec_io_cache cache;
        const char *path, *says;
    } cases[] = {
        {PLEC_IO_MMAP, PLEC_CACHE_DIRECT, "/proc/self/exe",
         "io: mmap, buffered, which mmap always is: direct was asked for: 1 files"},
        {PLEC_IO_MMAP, PLEC_CACHE_BUFFERED, "/proc/self/exe", "io: mmap, buffered as asked: 1 fil"},
        {PLEC_IO_MMAP, PLEC_CACHE_AUTO, "/proc/self/exe", "io: mmap, buffered: 1 files"},
        {PLEC_IO_PREAD, PLEC_CACHE_DIRECT, "/proc/version", "; 1 of them can only be read buf"},
    };
    for (auto &c : cases) {
        Log log;
        plec_io_options options = {};
        options.engine = c.engine;
        options.cache = c.cache;
        options.log = log.sink();
        Io io(options);
        io.add(c.path);
        plec_io_submit_many(io.get(), nullptr, 0); /* settles */
        EXPECT_NE(log.text().find(c.says), std::string::npos) << log.text();
    }
}

TEST(IoCache, BufferedReadsOfMoreThanTheMemoryDropTheirWholePages) {
    TempDir dir;
    std::vector<uint8_t> bytes = random_bytes(1 << 20, 8);
    make_huge(dir.path("huge"), bytes);
    for (plec_io_engine engine : {PLEC_IO_URING, PLEC_IO_PREAD, PLEC_IO_MMAP}) {
#if defined(__SANITIZE_THREAD__)
        if (engine == PLEC_IO_MMAP) continue; // no room for 4 TiB of addresses
#endif
        Log log;
        plec_io_options options = {};
        options.engine = engine;
        options.cache = PLEC_CACHE_BUFFERED;
        options.piece_bytes = 128 << 10;
        options.log = log.sink();
        Io io(options);
        io.add(dir.path("huge"));
        std::vector<Range> ranges;
        ranges.emplace_back(0, 4096 - 10, 10 + 8 * 4096 + 10); // whole pages inside: 8
        ranges.emplace_back(0, 100, 3000);                     // none
        io.expect_exact(ranges, bytes);
        EXPECT_EQ(io.counters().dropped_bytes, 8u * 4096) << engine;
        EXPECT_NE(log.text().find("pages are dropped behind the reads"), std::string::npos);
    }
}

TEST(IoCache, FilesThatFitAreNeverDropped) {
    TempDir dir;
    std::vector<uint8_t> bytes = random_bytes(1 << 20, 8);
    write_file(dir.path("file"), bytes.data(), bytes.size());
    plec_io_options options = {};
    Io io(options);
    io.add(dir.path("file"));
    std::vector<Range> ranges;
    ranges.emplace_back(0, 0, MIB);
    io.expect_exact(ranges, bytes);
    EXPECT_EQ(io.counters().dropped_bytes, 0u);
}

namespace {

class FakeSystem {
  public:
    void put(const std::string &path, const std::string &text) {
        for (size_t at = 1; (at = path.find('/', at)) != std::string::npos; at++)
            mkdir(dir_.path(path.substr(1, at - 1)).c_str(), 0755);
        write_file(dir_.path(path.substr(1)), text.data(), text.size());
    }
    plec_memory_limits read() {
        plec_memory_limits out;
        plec_memory_limits_read(&out, dir_.path().c_str());
        return out;
    }

  private:
    TempDir dir_;
};

} // namespace

TEST(MemoryLimits, ReadsAvailableMemory) {
    FakeSystem system;
    EXPECT_EQ(system.read().available, UINT64_MAX) << "nothing to read: unknown";
    system.put("/proc/meminfo", "MemTotal:  99 kB\nMemFree:  1 kB\nMemAvailable:   12345 kB\n");
    EXPECT_EQ(system.read().available, uint64_t{12345} * 1024);
    EXPECT_EQ(system.read().cgroup_limit, UINT64_MAX);
    plec_memory_limits limits = system.read();
    EXPECT_EQ(plec_memory_limits_left(&limits), uint64_t{12345} * 1024);
}

TEST(MemoryLimits, TakesTheVersion2GroupThatLeavesLeast) {
    FakeSystem system;
    system.put("/proc/self/cgroup", "0::/a/b\n");
    system.put("/sys/fs/cgroup/a/b/memory.max", "max\n");
    EXPECT_EQ(system.read().cgroup_limit, UINT64_MAX);
    system.put("/sys/fs/cgroup/a/memory.max", "1000000\n");
    system.put("/sys/fs/cgroup/a/memory.current", "700000\n");
    system.put("/sys/fs/cgroup/a/memory.stat", "anon 5\nfile 9\ninactive_file 200000\n");
    EXPECT_EQ(system.read().cgroup_limit, 1000000u);
    EXPECT_EQ(system.read().cgroup_left, 500000u);
    system.put("/sys/fs/cgroup/a/b/memory.max", "600000\n");
    system.put("/sys/fs/cgroup/a/b/memory.current", "599999\n");
    EXPECT_EQ(system.read().cgroup_limit, 600000u);
    EXPECT_EQ(system.read().cgroup_left, 1u);
    system.put("/sys/fs/cgroup/a/b/memory.current", "600001\n");
    EXPECT_EQ(system.read().cgroup_left, 0u);
}

TEST(MemoryLimits, ReadsTheRootOfAContainersMountAndVersion1) {
    FakeSystem container;
    container.put("/proc/self/cgroup", "0::/docker/0123\n"); // a path of the host
    container.put("/sys/fs/cgroup/memory.max", "4096000\n");
    EXPECT_EQ(container.read().cgroup_limit, 4096000u);

    FakeSystem old;
    old.put("/proc/self/cgroup", "9:cpu:/\n4:memory:/job/1\n0::/\n");
    old.put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    EXPECT_EQ(old.read().cgroup_limit, UINT64_MAX);
    old.put("/sys/fs/cgroup/memory/job/1/memory.limit_in_bytes", "5000000\n");
    old.put("/sys/fs/cgroup/memory/job/1/memory.usage_in_bytes", "3000000\n");
    old.put("/sys/fs/cgroup/memory/job/1/memory.stat", "cache 1\ntotal_inactive_file 1000000\n");
    EXPECT_EQ(old.read().cgroup_limit, 5000000u);
    EXPECT_EQ(old.read().cgroup_left, 3000000u);
}

TEST(MemoryLimits, AreToldInOneLine) {
    char text[PLEC_MEMORY_LIMITS_TEXT_MAX];
    plec_memory_limits limits = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, false};
    EXPECT_STREQ(plec_memory_limits_text(text, &limits), "");
    limits = {uint64_t{20} << 30, 8 << 20, uint64_t{24} << 30, uint64_t{1} << 30, true};
    EXPECT_STREQ(plec_memory_limits_text(text, &limits),
                 "memlock 8.0 MiB, cgroup 24.00 GiB of which 1.00 GiB left, available 20.00 GiB, "
                 "WSL, which pins about 1 GiB at most");
    FakeSystem wsl;
    wsl.put("/proc/sys/kernel/osrelease", "5.15.90.1-microsoft-standard-WSL2\n");
    EXPECT_TRUE(wsl.read().wsl);
    EXPECT_FALSE(FakeSystem().read().wsl);
}

TEST(MemoryLimits, TheLockLimitBindsWhoMayNotLockAnyAmount) {
    std::string said = run_in_child([] {
        rlimit memlock = {123 << 10, 123 << 10};
        plec_memory_limits before, after;
        if (setrlimit(RLIMIT_MEMLOCK, &memlock) != 0) return std::string("no limit");
        plec_memory_limits_read(&before, "");
        if (geteuid() == 0 && setuid(65534) != 0) return std::string("still root");
        plec_memory_limits_read(&after, "");
        return std::string(geteuid() == 0 || before.memlock >= after.memlock ? "" : "odd ") +
               std::to_string(after.memlock);
    });
    EXPECT_EQ(said, std::to_string(123 << 10));
}
