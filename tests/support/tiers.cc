#include "tests/support/tiers.h"

#include <algorithm>

namespace plec_test {

void Tiers::poison(void *user, const plec_eviction *eviction) {
    std::vector<uint64_t> &memory = *static_cast<Poisoner *>(user)->memory;
    std::fill_n(memory.begin() + size_t(eviction->slot) * PLEC_EXTENT_MAX, PLEC_EXTENT_MAX, POISON);
}

Tiers::Tiers(const TiersOptions &options)
    : host_memory((options.n_frames + options.n_frame_staging) * PLEC_EXTENT_MAX, POISON),
      device_memory((options.n_slots + options.n_slot_staging) * PLEC_EXTENT_MAX, POISON),
      host_poisoner_{&host_memory}, device_poisoner_{&device_memory} {
    plec_error err = {};
    EXPECT_EQ(plec_keyspace_open_uniform(&keys, options.n_layers, options.n_experts, options.width,
                                         options.entry_bytes, &err),
              PLEC_OK)
        << err.message;
    plec_residency_options tier = {};
    tier.keys = &keys;
    tier.policy = options.policy;
    tier.tags = options.tags;
    tier.protect = options.protect;
    tier.max_unconsumed = options.max_unconsumed;
    tier.evicted = poison;
    tier.n_slots = options.n_frames;
    tier.n_staging = options.n_frame_staging;
    tier.user = &host_poisoner_;
    EXPECT_EQ(plec_residency_open(&host, &tier, &err), PLEC_OK) << err.message;
    if (options.has_device) {
        tier.n_slots = options.n_slots;
        tier.n_staging = options.n_slot_staging;
        tier.user = &device_poisoner_;
        EXPECT_EQ(plec_residency_open(&device, &tier, &err), PLEC_OK) << err.message;
    }
    plec_prefetch_options scheduler = options.prefetch;
    scheduler.keys = &keys;
    scheduler.host = host;
    scheduler.device = device;
    EXPECT_EQ(plec_prefetch_open(&prefetch, &scheduler, &err), PLEC_OK) << err.message;
}

Tiers::~Tiers() {
    plec_prefetch_close(prefetch);
    plec_residency_close(device);
    plec_residency_close(host);
    plec_keyspace_close(&keys);
}

bool Tiers::perform(const plec_job &job) {
    bool good = true;
    for (uint32_t bit = 0; bit < PLEC_EXTENT_MAX; bit++) {
        if ((job.mask >> bit & 1) == 0) continue;
        uint64_t &in_frame = host_memory[size_t(job.frame) * PLEC_EXTENT_MAX + bit];
        if (job.kind == PLEC_JOB_READ) {
            in_frame = content(job.key, bit);
        } else {
            good = good && in_frame == content(job.key, bit);
            device_memory[size_t(job.slot) * PLEC_EXTENT_MAX + bit] = in_frame;
        }
    }
    return good;
}

bool Tiers::intact(const plec_slot_ref &ref, uint32_t key, uint64_t mask) {
    for (uint32_t bit = 0; bit < PLEC_EXTENT_MAX; bit++)
        if ((mask >> bit & 1) != 0 &&
            final_memory()[size_t(ref.slot) * PLEC_EXTENT_MAX + bit] != content(key, bit))
            return false;
    return true;
}

void Tiers::run_all(uint64_t now) {
    plec_job job;
    while (plec_prefetch_next_read(&job, prefetch, now) ||
           plec_prefetch_next_copy(&job, prefetch, now)) {
        EXPECT_TRUE(perform(job)) << "key " << job.key << " was copied from a recycled frame";
        plec_prefetch_job_ended(prefetch, job.id, now, job.n_bytes, nullptr);
    }
}

std::string Tiers::fault() const {
    const char *broken = nullptr;
    return plec_prefetch_sound(prefetch, &broken) ? "" : broken;
}

} // namespace plec_test
