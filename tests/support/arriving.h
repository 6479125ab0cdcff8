/* arriving.h: tests of streaming are built twice: for a device that reads experts as files have
 * them, and, with PLEC_ARRIVING, for one on which they arrive in a form of its own
 * (plec_device_arrival): copies then land, and experts arrive in their slots.
 */
#ifndef PLEC_TESTS_SUPPORT_ARRIVING_H
#define PLEC_TESTS_SUPPORT_ARRIVING_H

#include "host/streamer.h"

#include <map>

namespace plec_test {

#ifdef PLEC_ARRIVING
const bool arriving = true;
#else
const bool arriving = false;
#endif

/* The simulation that a test asks for, on such a device. */
class Arriving {
  public:
    explicit Arriving(const plec_simulation *asked) {
        if (asked != nullptr) simulation_ = *asked;
        simulation_.arrives = simulation_.arrives || arriving;
        given_ = asked != nullptr || arriving;
    }
    const plec_simulation *get() const { return given_ ? &simulation_ : nullptr; }

  private:
    plec_simulation simulation_ = {};
    bool given_;
};

/* What streamers take that were opened to learn it, by the bytes of a frame. */
inline std::map<uint64_t, plec_stream_stats> &known_sizes() {
    static std::map<uint64_t, plec_stream_stats> sizes;
    return sizes;
}
inline uint64_t learn_sizes(const plec_stream_stats &stats) {
    known_sizes()[stats.frame_bytes] = stats;
    return stats.frame_bytes;
}
/* The device budget of so many slots of extents whose frames have frame_bytes. */
inline uint64_t budget_of_slots(uint64_t frame_bytes, uint64_t n_slots) {
    auto found = known_sizes().find(frame_bytes);
    if (!arriving || found == known_sizes().end()) return frame_bytes * n_slots;
    return found->second.slot_bytes * n_slots + found->second.landing_bytes;
}

} // namespace plec_test
#endif
