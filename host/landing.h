/* landing.h: where the file's bytes of experts land on a device whose launches read another form of
 * them (plec_device_arrival), until they have arrived in their slot.
 *
 * One landing serves one copy stream: what it holds is one move of the scheduler (prefetch.h),
 * pieces end to end, each at a multiple of PLEC_LANDING_ALIGNMENT; the next move lands when the
 * arrival of the one before has run, in the stream's order. Pure arithmetic, any thread.
 */
#ifndef PLEC_HOST_LANDING_H
#define PLEC_HOST_LANDING_H

#include "device/device.h"
#include "host/extent.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLEC_LANDING_ALIGNMENT = 64 };
enum { PLEC_N_LANDINGS = 2 }; /* of a streamer: one a copy stream */

/* The bytes that a piece takes. */
static inline uint64_t plec_landed_bytes(uint64_t length) {
    return (length + PLEC_LANDING_ALIGNMENT - 1) / PLEC_LANDING_ALIGNMENT * PLEC_LANDING_ALIGNMENT;
}

/* What a bank takes on the device when it streams in the extents of a map. */
struct plec_device_extents {
    uint64_t slot_bytes;    /* of its largest extent */
    uint64_t landing_bytes; /* of one landing, for any move of its experts in chunks of at most
                               chunk_bytes; 0: it arrives as it is */
};
struct plec_device_extents plec_device_extents_of(const struct plec_arrival *arrival,
                                                  const struct plec_extent_map *map,
                                                  uint64_t chunk_bytes);

#ifdef __cplusplus
}
#endif
#endif
