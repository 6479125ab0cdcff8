/* grid.cc: a grid's blocks, a few at a time. */
#include "tests/emu/check.h"
#include "tests/emu/collective.h"
#include "tests/emu/faults.h"
#include "tests/emu/launch.h"
#include "tests/emu/scheduler.h"
#include "tests/emu/settings.h"
#include "tests/emu/shared.h"
#include "tests/emu/statistics.h"
#include "tests/emu/wgmma.h"

#include <algorithm>
#include <cuda_runtime.h>

extern dim3 blockDim, gridDim;

namespace plec_emu {

static std::vector<Thread *> &pool = *new std::vector<Thread *>; /* with their stacks */

static int choose_resident(const Launch &launch, unsigned n_blocks) {
    if (launch.cooperative) return (int)n_blocks;
    int n = settings.n_resident;
    if (!n) n = by_chance() ? 1 + (int)random_below(3) : 1;
    return std::max(1, std::min(n, (int)n_blocks));
}

static std::vector<unsigned> block_order(unsigned n_blocks) {
    std::vector<unsigned> order(n_blocks);
    for (unsigned i = 0; i < n_blocks; i++)
        order[i] = settings.schedule == PLEC_EMU_LIFO ? n_blocks - 1 - i : i;
    for (unsigned i = n_blocks; by_chance() && i > 1; i--)
        std::swap(order[i - 1], order[random_below(i)]);
    return order;
}

static void clear_synchronisation(Block *block) {
    for (Barrier &barrier : block->barriers) {
        clock_drop(&barrier.released);
        barrier = Barrier();
    }
    for (auto &each : block->mbarriers) {
        clock_drop(&each.second.arriving);
        clock_drop(&each.second.completed);
    }
    for (Acquired &acquired : block->acquired)
        clock_drop(&acquired.clock);
    block->mbarriers.clear();
    block->acquired.clear();
    block->grid_waits.clear();
    block->bulk.clear();
    block->arrivals.clear();
    block->released = block->released_early = false;
    block->mbarrier_waits.clear();
    block->warpgroups.clear();
}

static void start_warps(Block *block) {
    block->warps.assign((size_t)(block->n_threads + 31) / 32, Warp());
    int first = 0;
    for (Warp &warp : block->warps) {
        int n = std::min(32, block->n_threads - first);
        warp.block = block;
        warp.first = first;
        warp.lanes = n == 32 ? ~0u : (1u << n) - 1;
        first += 32;
    }
}

static void start_thread(Thread *t, Block *block, int index, const dim3 &shape) {
    unsigned i = (unsigned)index;
    t->block = block;
    t->warp = &block->warps[i / 32];
    t->index = index;
    t->lane = index % 32;
    t->position = {i % shape.x, i / shape.x % shape.y, i / (shape.x * shape.y)};
    t->started = false;
    t->copies.clear();
    t->copy_groups.clear();
    t->n_open_copies = 0;
    t->id = block->index * 1024 + i;
    t->grid_waited = false;
    t->n_wgmma = 0;
    t->wgmma_fenced = false;
    t->wgmma_groups.clear();
    t->n_visits.clear();
    clock_start(t);
}

/* Under pct a warp's lanes have neighbouring priorities, so that whole warps run ahead. */
static void choose_priorities(Block *block) {
    for (const Warp &warp : block->warps) {
        uint64_t priority = (random_bits() >> 16) & ~(uint64_t)0xff;
        for (int lane = 0; lane < 32 && warp.lanes >> lane & 1; lane++)
            warp.thread(lane)->priority = priority + (random_bits() & 0xff);
    }
}

static void start_block(Block *block, unsigned index, int slot, const Launch &launch) {
    int n_threads = (int)(launch.block.x * launch.block.y * launch.block.z);
    block->index = index;
    block->position = {index % launch.grid.x, index / launch.grid.x % launch.grid.y,
                       index / (launch.grid.x * launch.grid.y)};
    block->slot = slot;
    block->n_threads = block->n_live = n_threads;
    clear_synchronisation(block);
    shared_begin(block);
    start_warps(block);
    block->threads.resize((size_t)n_threads);
    for (int i = 0; i < n_threads; i++) {
        Thread *t = block->threads[(size_t)i] = pool[(size_t)(slot * n_threads + i)];
        start_thread(t, block, i, launch.block);
    }
    choose_priorities(block);
    resident.push_back(block);
}

/* A block that let nobody start before it ended did so then. */
static void note_release(Launch *launch, const Block &block) {
    bool waited = block.released;
    for (const Thread *t : block.threads)
        waited |= t->grid_waited;
    launch->waited_first |= waited && !block.released_early;
}

static void check_waited(const Launch &launch, bool waited) {
    if (launch.dependent && !waited)
        report("dependent-launch",
               "%s was launched as dependent and no thread calls griddepcontrol.wait",
               launch.name.c_str());
}

bool run_grid(Launch &launch) {
    unsigned n_blocks = launch.grid.x * launch.grid.y * launch.grid.z;
    size_t n_threads = (size_t)launch.block.x * launch.block.y * launch.block.z;
    int n_resident = choose_resident(launch, n_blocks);
    prepare_fault_stack();
    launch_running = &launch;
    shared_reserve(n_resident, &launch);
    while (pool.size() < (size_t)n_resident * n_threads)
        pool.push_back(new Thread);
    blockDim = launch.block;
    gridDim = launch.grid;
    std::vector<unsigned> order = block_order(n_blocks);
    std::vector<Block> blocks((size_t)n_resident);
    bool waited = false;
    for (unsigned first = 0; first < n_blocks && !launch.failed; first += (unsigned)n_resident) {
        resident.clear();
        scheduler_reset((size_t)n_resident * n_threads);
        for (int slot = 0; slot < n_resident && first + (unsigned)slot < n_blocks; slot++)
            start_block(&blocks[(size_t)slot], order[first + (unsigned)slot], slot, launch);
        for (Block *block : resident)
            for (Thread *t : block->threads)
                make_ready(t);
        run_threads();
        for (Block *block : resident) {
            for (Thread *t : block->threads)
                waited |= t->grid_waited;
            note_release(&launch, *block);
        }
        statistics_blocks_end();
    }
    if (!launch.failed) check_waited(launch, waited);
    for (Block &block : blocks)
        clear_synchronisation(&block);
    resident.clear();
    launch_running = nullptr;
    return !launch.failed;
}

} // namespace plec_emu
