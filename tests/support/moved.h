/* moved.h: what the kernels of an emulated launch moved between device memory and themselves. */
#ifndef PLEC_TESTS_SUPPORT_MOVED_H
#define PLEC_TESTS_SUPPORT_MOVED_H

#include "tests/emu/emulator.h"

namespace plec_test {

struct Moved {
    uint64_t loaded, stored; /* bytes, of device memory */
};
/* By all kernels of a launch but those that read weights as files have them (of an f32 down) and
 * the staging of tokens, without staged tokens, which every block reads; ordinary loads and stores
 * are seen in the checked build alone. */
inline Moved moved() {
    Moved sum = {};
    auto count = [](int kind) {
        return plec_emu_stats(NULL, NULL, kind).n_bytes_used -
               plec_emu_stats("plain", NULL, kind).n_bytes_used -
               plec_emu_stats("mm_fma", NULL, kind).n_bytes_used -
               plec_emu_stats("stage", NULL, kind).n_bytes_used -
               plec_emu_stats(NULL, "mm_tokens.cuh", kind).n_bytes_used;
    };
    for (int kind : {PLEC_EMU_GLOBAL_LOAD, PLEC_EMU_COPY_ASYNC, PLEC_EMU_BULK})
        sum.loaded += count(kind);
    sum.stored = count(PLEC_EMU_GLOBAL_STORE);
    return sum;
}

} // namespace plec_test
#endif
