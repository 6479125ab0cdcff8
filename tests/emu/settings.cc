#include "tests/emu/settings.h"

#include <cstdlib>
#include <cstring>

namespace plec_emu {

Settings settings;
bool checking;

unsigned image_arch(void) {
    return (unsigned)(settings.image ? settings.image : settings.capability);
}

static uint64_t random_state = 88172645463325252ull;

uint64_t random_bits(void) {
    uint64_t x = random_state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return random_state = x;
}

uint64_t random_below(uint64_t n) {
    return random_bits() % n;
}

bool by_chance(void) {
    return settings.schedule == PLEC_EMU_RANDOM || settings.schedule == PLEC_EMU_PCT;
}

static void seed_random(uint64_t seed) {
    settings.seed = seed;
    random_state = 88172645463325252ull ^ (seed * 0x9E3779B97F4A7C15ull);
    for (int i = 0; i < 8; i++)
        random_bits();
}

static long from_environment(const char *name, long otherwise) {
    const char *text = getenv(name);
    return text && *text ? strtol(text, nullptr, 0) : otherwise;
}

static plec_emu_schedule schedule_from_environment(void) {
    static const char *const names[] = {"fifo", "random", "lifo", "pct"};
    const char *text = getenv("PLEC_EMU_SCHED");
    for (int i = 0; text && i < 4; i++)
        if (!strcmp(text, names[i])) return (plec_emu_schedule)i;
    return PLEC_EMU_FIFO;
}

/* Before the constructors of any other file. */
__attribute__((constructor(101))) static void read_environment(void) {
    settings.schedule = schedule_from_environment();
    settings.n_resident = (int)from_environment("PLEC_EMU_RESIDENT", 0);
    settings.stack_bytes = (size_t)from_environment("PLEC_EMU_STACK", 128) << 10;
    settings.capability = (int)from_environment("PLEC_EMU_CC", 90);
    settings.n_processors = (int)from_environment("PLEC_EMU_SMS", 4);
    settings.n_devices = (int)from_environment("PLEC_EMU_DEVICES", 1);
    settings.device_bytes = (size_t)from_environment("PLEC_EMU_DEVMEM_MB", 1024) << 20;
    settings.guard = from_environment("PLEC_EMU_GUARD", 1) != 0;
    settings.eager = from_environment("PLEC_EMU_EAGER", 0) != 0;
    settings.preempt = (int)from_environment("PLEC_EMU_PREEMPT", 0);
    settings.max_reports = (int)from_environment("PLEC_EMU_MAX_REPORTS", 20);
    settings.leaks = from_environment("PLEC_EMU_LEAKS", 1) != 0;
    settings.exit_status = (int)from_environment("PLEC_EMU_EXITCODE", 66);
    seed_random((uint64_t)from_environment("PLEC_EMU_SEED", 0));
}

} // namespace plec_emu

void plec_emu_set_schedule(enum plec_emu_schedule schedule, uint64_t seed) {
    plec_emu::settings.schedule = schedule;
    plec_emu::seed_random(seed);
}

void plec_emu_set_flush_subnormals(bool flush) {
    plec_emu::settings.flush_subnormals = flush;
}

void plec_emu_set_wgmma_flushes(bool flushes) {
    plec_emu::settings.wgmma_flushes = flushes;
}

void plec_emu_set_image(int capability) {
    plec_emu::settings.image = capability;
}

void plec_emu_refuse_launch(const char *kernel) {
    plec_emu::settings.refused = kernel;
}

void plec_emu_set_quiet(bool quiet) {
    plec_emu::settings.quiet = quiet;
}
