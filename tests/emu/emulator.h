/* emulator.h: what a test may ask of the emulation beside the CUDA runtime's own functions. */
#ifndef PLEC_TESTS_EMU_EMULATOR_H
#define PLEC_TESTS_EMU_EMULATOR_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum plec_emu_schedule {
    PLEC_EMU_FIFO,   /* threads and streams in turn */
    PLEC_EMU_RANDOM, /* any that can run */
    PLEC_EMU_LIFO,   /* the last that became ready: blocks backwards */
    PLEC_EMU_PCT     /* priorities by chance: some warps run far ahead of others */
};

/* Problems reported since the last clear; of one kind ("race", "oob", ...), or of all (NULL). */
int plec_emu_errors(const char *kind);

/* Forgets them: a program that ends with reports ends with exit status 66. */
void plec_emu_clear_errors(void);

/* As a new process: frees all memory, streams, events and graphs, forgets errors. Nothing may be
 * under way in another thread. */
void plec_emu_reset(void);

/* The order in which threads, blocks, copies and streams take their turn. An odd seed completes
 * asynchronous copies as late as possible. */
void plec_emu_set_schedule(enum plec_emu_schedule schedule, uint64_t seed);

#ifdef __cplusplus
}
#endif

#endif
