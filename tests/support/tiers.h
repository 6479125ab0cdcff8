/* tiers.h: a small keyspace, two tiers with remembered content, and the scheduler over them, for
 * tests that play the engine by hand.
 *
 * Memory is an array of words, one for each expert of each slot: what is read into a frame, copied
 * into a slot and poisoned at eviction is remembered, so that a test can see a slot recycled under
 * its reader.
 */
#ifndef PLEC_TESTS_SUPPORT_TIERS_H
#define PLEC_TESTS_SUPPORT_TIERS_H

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "host/prefetch.h"

namespace plec_test {

struct TiersOptions {
    uint32_t n_layers = 4, n_experts = 32, width = 8;
    uint64_t entry_bytes = 1000;
    uint32_t n_frames = 4, n_frame_staging = 0;
    bool has_device = true;
    uint32_t n_slots = 4, n_slot_staging = 0;
    plec_residency_policy policy = PLEC_RESIDENCY_LRU;
    uint32_t protect = 0, max_unconsumed = 0;
    bool tags = false;
    plec_prefetch_options prefetch = {}; /* tiers and keys are filled in */
};

class Tiers {
  public:
    static constexpr uint64_t POISON = ~uint64_t(0);

    explicit Tiers(const TiersOptions &options);
    ~Tiers();
    Tiers(const Tiers &) = delete;
    Tiers &operator=(const Tiers &) = delete;

    plec_keyspace keys;
    plec_residency *host = nullptr, *device = nullptr;
    plec_prefetch *prefetch = nullptr;
    std::vector<uint64_t> host_memory, device_memory; /* [slots * 64] */

    plec_residency *final_tier() const { return device != nullptr ? device : host; }
    std::vector<uint64_t> &final_memory() {
        return device != nullptr ? device_memory : host_memory;
    }
    /* What an expert's bytes are, in this memory. */
    static uint64_t content(uint32_t key, uint32_t bit) { return uint64_t(key) << 8 | bit; }

    /* Does a job's work on the memory. False: it read bytes that were not there. */
    bool perform(const plec_job &job);
    /* Whether the experts a reference stands for are in its slot. */
    bool intact(const plec_slot_ref &ref, uint32_t key, uint64_t mask);
    /* Runs every job that may start until none may; in order, without failures. */
    void run_all(uint64_t now);
    /* The scheduler's audit; empty: sound. */
    std::string fault() const;

  private:
    struct Poisoner {
        std::vector<uint64_t> *memory;
    };
    static void poison(void *user, const plec_eviction *eviction);
    Poisoner host_poisoner_, device_poisoner_;
};

} // namespace plec_test
#endif
