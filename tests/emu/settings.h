/* settings.h: what the environment (PLEC_EMU_*) or a test chose, and the one source of chance. */
#ifndef PLEC_TESTS_EMU_SETTINGS_H
#define PLEC_TESTS_EMU_SETTINGS_H

#include "tests/emu/emulator.h"

#include <cstddef>

namespace plec_emu {

struct Settings {
    plec_emu_schedule schedule = PLEC_EMU_FIFO;
    uint64_t seed = 0;
    int n_resident = 0; /* blocks under way at once; 0: 1, or by chance under random and pct */
    size_t stack_bytes = 128 << 10; /* of a fiber */
    int capability = 90;            /* 10 * major + minor */
    int image = 0;                  /* what kernels were compiled for, likewise; 0: the device's */
    int n_processors = 4;
    int n_devices = 1;
    size_t device_bytes = (size_t)1 << 30;
    bool guard = true;    /* device memory is out of the host's reach while host code runs */
    bool eager = false;   /* run an operation when it is enqueued */
    int preempt = 0;      /* checked build: yield at one access in so many */
    int max_reports = 20; /* printed, of one kind */
    bool leaks = true;
    int exit_status = 66;          /* of a process that ends with reports; 0: its own */
    bool flush_subnormals = false; /* in operands of mma: what PTX does not rule out */
    bool wgmma_flushes = false;    /* in those of wgmma */
    const char *refused = nullptr; /* the kernel whose next launch is */
    bool quiet = false;            /* count reports without printing them */
};

extern Settings settings;

/* True once an object of a checked build has started: accesses are checked from then on. */
extern bool checking;

unsigned image_arch(void);

bool by_chance(void); /* the schedule is random or pct */
uint64_t random_bits(void);
uint64_t random_below(uint64_t n);

} // namespace plec_emu

#endif
