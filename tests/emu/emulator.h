/* emulator.h: what a test may ask of the emulation beside the CUDA runtime's own functions. */
#ifndef PLEC_TESTS_EMU_EMULATOR_H
#define PLEC_TESTS_EMU_EMULATOR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

enum plec_emu_schedule {
    PLEC_EMU_FIFO,   /* threads, blocks and streams in turn */
    PLEC_EMU_RANDOM, /* any that can run */
    PLEC_EMU_LIFO,   /* the last that became ready; blocks backwards */
    PLEC_EMU_PCT     /* priorities by chance: some warps run far ahead of others */
};

/* The order in which threads, blocks, copies and streams take their turn from now on. An odd seed
 * completes asynchronous copies as late as possible. */
void plec_emu_set_schedule(enum plec_emu_schedule schedule, uint64_t seed);

/* ---- problems -------------------------------------------------------------------------------- */

/* Problems reported since the last clear; of one kind ("race", "oob", ...), or of all (NULL). A
 * problem of the same source lines is reported once. */
int plec_emu_errors(const char *kind);

/* What the last one of a kind said, or "kind: what" of the last of all (NULL); "" when there is
 * none. Valid until the next report. */
const char *plec_emu_last_error(const char *kind);

/* Forgets them: a program that ends with reports ends with exit status 66. */
void plec_emu_clear_errors(void);

/* Counts problems without printing them, for tests that make them on purpose. */
void plec_emu_set_quiet(bool quiet);

/* Tensor cores take subnormal bf16 and f16 operands for 0 from now on, or do not. */
void plec_emu_set_flush_subnormals(bool flush);
/* The same of wgmma alone. */
void plec_emu_set_wgmma_flushes(bool flushes);

/* Kernels say from now on that they were compiled for this architecture, 80, whatever the device
 * is; 0: for the device's. */
void plec_emu_set_image(int capability);

/* The next launch of a kernel whose name holds `kernel` is refused: cudaErrorLaunchOutOfResources.
 * NULL: none. Valid until then. */
void plec_emu_refuse_launch(const char *kernel);

/* As a new process: frees all memory, streams, events and graphs, forgets errors. Nothing may be
 * under way in another thread. */
void plec_emu_reset(void);

/* ---- statistics ------------------------------------------------------------------------------ */

enum plec_emu_kind {
    PLEC_EMU_GLOBAL_LOAD, /* loads and stores: seen in the checked build only */
    PLEC_EMU_GLOBAL_STORE,
    PLEC_EMU_COPY_ASYNC,
    PLEC_EMU_BULK,
    PLEC_EMU_SHARED_LOAD,
    PLEC_EMU_SHARED_STORE,
    PLEC_EMU_LDMATRIX, /* a request is one 8x8 matrix */
    PLEC_EMU_STMATRIX,
    PLEC_EMU_ATOMIC,
    PLEC_EMU_MMA,
    PLEC_EMU_WGMMA,   /* of a warpgroup */
    PLEC_EMU_SHUFFLE, /* votes and reductions, too */
    PLEC_EMU_BARRIER,
    PLEC_EMU_KINDS
};

/* Sums over requests: what a warp does at one instruction at once. */
struct plec_emu_line {
    uint64_t n_requests;
    uint64_t n_bytes; /* that lanes asked for */
    /* global memory: distinct bytes of each request, and 32 for each sector that it touches */
    uint64_t n_bytes_used, n_bytes_fetched;
    /* shared memory: passes through the banks, and how many of them conflicts added */
    uint64_t n_waves, n_conflicts;
};

/* Counts from zero, from now until stop or reset. */
void plec_emu_stats_start(void);
void plec_emu_stats_stop(void);

/* The sum over kernels whose name holds `kernel`, places whose text ("mm_sync.cuh:120") holds
 * `place`, and a kind; NULL and -1: any. */
struct plec_emu_line plec_emu_stats(const char *kernel, const char *place, int kind);

/* Bytes that the cp.async copies of a block have under way at most: of each thread and line the
 * most, added up, for the block with the most. Bytes that are zeros for want of a source are none.
 */
uint64_t plec_emu_stats_under_way(const char *kernel, const char *place);

/* A table by kernel, line and kind. */
void plec_emu_stats_print(FILE *to);

/* Counts the reads of each byte of device memory by kernels, while statistics are on. */
void plec_emu_watch(const void *start, uint64_t n_bytes);
/* Of the bytes watched from start: how often the least and the most read ones were. False: nothing
 * is watched there. */
bool plec_emu_watched(const void *start, uint32_t *fewest, uint32_t *most);

#ifdef __cplusplus
}
#endif

#endif
