/* bulk.h: copies that land by themselves. */
#ifndef PLEC_TESTS_EMU_BULK_H
#define PLEC_TESTS_EMU_BULK_H

#include "tests/emu/state.h"

namespace plec_emu {

/* One bulk copy of a resident block lands, or the cp.async copies that one arrival is for; false:
 * none is under way. */
bool land_a_copy(void);

/* The arrivals of cp.async (copy_async.cc): number i of a block's lands; how it counts. */
void land_arrival(Block *block, size_t i);
void mbarrier_check(unsigned address, const char *file, int line);
void mbarrier_arrive_late(Thread *thread, unsigned address, Place place);

} // namespace plec_emu

#endif
