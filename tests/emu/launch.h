/* launch.h: kernels in a stream, and a grid's run from its first thread to its last. */
#ifndef PLEC_TESTS_EMU_LAUNCH_H
#define PLEC_TESTS_EMU_LAUNCH_H

#include "tests/emu/state.h"

#include <memory>

namespace plec_emu {

/* cudaFuncSetAttribute: dynamic shared memory beyond 48 KiB. */
void allow_shared_bytes(const void *kernel, size_t n_bytes);
size_t shared_bytes_allowed(const void *kernel);

/* Runs all blocks of a grid; false: a thread trapped, or none could go on. */
bool run_grid(Launch &launch);

} // namespace plec_emu

#endif
