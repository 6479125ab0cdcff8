#include "host/memory_limits.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PATH_BYTES = 1024, FILE_BYTES = 8192, LEVELS_MAX = 32 };

/* The first FILE_BYTES - 1 bytes of a file as text; false when it cannot be read. */
static bool read_text(char *text, const char *path) {
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return false;
    ssize_t n = read(fd, text, FILE_BYTES - 1);
    close(fd);
    text[n > 0 ? n : 0] = '\0';
    return n > 0;
}

static bool read_under(char *text, const char *root, const char *path) {
    char whole[PATH_BYTES];
    int n = snprintf(whole, sizeof whole, "%s%s", root, path);
    return n > 0 && (size_t)n < sizeof whole && read_text(text, whole);
}

/* The number behind `key` at the start of a line of text. */
static bool find_number(uint64_t *out, const char *text, const char *key) {
    size_t length = strlen(key);
    for (const char *line = text; line != NULL; line = strchr(line, '\n')) {
        if (*line == '\n') line++;
        if (strncmp(line, key, length) != 0) continue;
        char *end;
        *out = strtoull(line + length, &end, 10);
        return end != line + length;
    }
    return false;
}

static uint64_t mem_available(const char *root) {
    char text[FILE_BYTES];
    uint64_t kib;
    if (!read_under(text, root, "/proc/meminfo") || !find_number(&kib, text, "MemAvailable:"))
        return UINT64_MAX;
    return kib > UINT64_MAX / 1024 ? UINT64_MAX : kib * 1024;
}

/* One version of control groups: where its files lie and what they are called. */
struct group_files {
    const char *mount, *limit, *usage, *cache;
};
static const struct group_files version_1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                             "memory.usage_in_bytes", "total_inactive_file "};
static const struct group_files version_2 = {"/sys/fs/cgroup", "memory.max", "memory.current",
                                             "inactive_file "};

static bool read_of_group(char *text, const char *root, const struct group_files *files,
                          const char *group, const char *name) {
    char path[PATH_BYTES];
    int n = snprintf(path, sizeof path, "%s%s/%s", files->mount, group, name);
    return n > 0 && (size_t)n < sizeof path && read_under(text, root, path);
}

/* Takes a group's limit in when it leaves less than those before. */
static void take_group(struct plec_memory_limits *out, const char *root,
                       const struct group_files *files, const char *group) {
    char text[FILE_BYTES];
    uint64_t limit, usage = 0, cache = 0;
    if (!read_of_group(text, root, files, group, files->limit) || !find_number(&limit, text, ""))
        return;                                             /* "max", or not there */
    if (limit >= (uint64_t)INT64_MAX / 4096 * 4096) return; /* how version 1 says none */
    if (read_of_group(text, root, files, group, files->usage)) find_number(&usage, text, "");
    if (read_of_group(text, root, files, group, "memory.stat"))
        find_number(&cache, text, files->cache);
    uint64_t used = usage > cache ? usage - cache : 0;
    uint64_t left = limit > used ? limit - used : 0;
    if (out->cgroup_limit != UINT64_MAX && left >= out->cgroup_left) return;
    out->cgroup_limit = limit;
    out->cgroup_left = left;
}

/* The group and all above it: each may set a limit. Inside a container the path may be the host's
 * and not be there; the root of the mount always is. */
static void take_groups(struct plec_memory_limits *out, const char *root,
                        const struct group_files *files, const char *line) {
    char group[PATH_BYTES];
    size_t length = strcspn(line, "\n");
    if (length >= sizeof group) return;
    memcpy(group, line, length);
    group[length] = '\0';
    for (int level = 0; level < LEVELS_MAX; level++) {
        char *slash = strrchr(group, '/');
        take_group(out, root, files, slash != NULL && slash[1] != '\0' ? group : "");
        if (slash == NULL || group[0] == '\0' || strcmp(group, "/") == 0) return;
        *slash = '\0';
    }
}

/* Lines of /proc/self/cgroup: "0::/path" (version 2), "4:memory:/path" (version 1). */
static void read_groups(struct plec_memory_limits *out, const char *root) {
    char text[FILE_BYTES];
    if (!read_under(text, root, "/proc/self/cgroup")) return;
    for (const char *line = text; line != NULL && *line != '\0';) {
        const char *controllers = strchr(line, ':');
        const char *path = controllers != NULL ? strchr(controllers + 1, ':') : NULL;
        if (path == NULL) return;
        if (strncmp(line, "0::", 3) == 0)
            take_groups(out, root, &version_2, path + 1);
        else if (strncmp(controllers, ":memory:", 8) == 0)
            take_groups(out, root, &version_1, path + 1);
        line = strchr(path, '\n');
        if (line != NULL) line++;
    }
}

static bool may_lock_any_amount(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct data[2] = {{0}};
    if (syscall(SYS_capget, &header, data) != 0) return geteuid() == 0;
    return (data[CAP_IPC_LOCK / 32].effective >> (CAP_IPC_LOCK % 32) & 1) != 0;
}

void plec_memory_limits_read(struct plec_memory_limits *out, const char *root) {
    char text[FILE_BYTES];
    struct rlimit memlock;
    *out = (struct plec_memory_limits){UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX, false};
    out->available = mem_available(root);
    if (getrlimit(RLIMIT_MEMLOCK, &memlock) == 0 && memlock.rlim_cur != RLIM_INFINITY &&
        !may_lock_any_amount())
        out->memlock = memlock.rlim_cur;
    read_groups(out, root);
    out->wsl = read_under(text, root, "/proc/sys/kernel/osrelease") &&
               (strstr(text, "microsoft") != NULL || strstr(text, "Microsoft") != NULL);
}

uint64_t plec_memory_limits_left(const struct plec_memory_limits *limits) {
    return limits->available < limits->cgroup_left ? limits->available : limits->cgroup_left;
}

const char *plec_bytes_text(char *buffer, uint64_t n_bytes) {
    static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double size = (double)n_bytes / 1024;
    int unit = 0;
    if (n_bytes < 1024) {
        snprintf(buffer, PLEC_BYTES_TEXT_MAX, "%u bytes", (unsigned)n_bytes);
        return buffer;
    }
    for (; size >= 1024 && unit < 5; unit++)
        size /= 1024;
    snprintf(buffer, PLEC_BYTES_TEXT_MAX, unit < 2 ? "%.1f %s" : "%.2f %s", size, units[unit]);
    return buffer;
}

static void add(char *buffer, const char *format, ...) PLEC_PRINTF(2, 3);
static void add(char *buffer, const char *format, ...) {
    size_t at = strlen(buffer), room = PLEC_MEMORY_LIMITS_TEXT_MAX - at;
    va_list args;
    if (at > 0) {
        snprintf(buffer + at, room, ", ");
        at = strlen(buffer), room = PLEC_MEMORY_LIMITS_TEXT_MAX - at;
    }
    va_start(args, format);
    vsnprintf(buffer + at, room, format, args);
    va_end(args);
}

const char *plec_memory_limits_text(char *buffer, const struct plec_memory_limits *limits) {
    char a[PLEC_BYTES_TEXT_MAX], b[PLEC_BYTES_TEXT_MAX];
    buffer[0] = '\0';
    if (limits->memlock != UINT64_MAX)
        add(buffer, "memlock %s", plec_bytes_text(a, limits->memlock));
    if (limits->cgroup_limit != UINT64_MAX)
        add(buffer, "cgroup %s of which %s left", plec_bytes_text(a, limits->cgroup_limit),
            plec_bytes_text(b, limits->cgroup_left));
    if (limits->available != UINT64_MAX)
        add(buffer, "available %s", plec_bytes_text(a, limits->available));
    if (limits->wsl) add(buffer, "WSL, which pins about 1 GiB at most");
    return buffer;
}
