/* wgmma.h: what the checker asks about matrix products under way. */
#ifndef PLEC_TESTS_EMU_WGMMA_H
#define PLEC_TESTS_EMU_WGMMA_H

#include "tests/emu/state.h"

namespace plec_emu {

/* The place of an unfinished wgmma of the block that reads shared memory in [offset, offset + n);
 * 0: none. */
Place wgmma_reading(const Block *block, unsigned offset, size_t n_bytes);

} // namespace plec_emu

#endif
