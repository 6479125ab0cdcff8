/* shadow.h: what the checker remembers of each four bytes: the last writes and reads, and which
 * bytes are initialised. */
#ifndef PLEC_TESTS_EMU_SHADOW_H
#define PLEC_TESTS_EMU_SHADOW_H

#include "tests/emu/state.h"

namespace plec_emu {

enum : uint32_t {
    HOST_OPERATION = 0xffffff,
    HOST_THREAD = 0xffffffff,     /* an access of the host */
    OPERATION_THREAD = 0xfffffffe /* of a copy or memset */
};

/* One access. */
struct Record {
    uint32_t operation : 24, bytes : 4 /* mask; 0: no record */, access : 4;
    uint32_t thread; /* index in the block for shared memory, Thread::id for global */
    uint32_t clock;
    Place place;
};

struct Cell {
    Record writes[2], reads[2];
};
static_assert(sizeof(Cell) == 64, "a cache line");

/* A cell and its bytes that are initialised. */
struct Word {
    Cell *cell;
    uint8_t *initialised;
};

Word shadow_of_global(const void *address); /* of device or pinned memory */
Word shadow_of_shared(int slot, unsigned offset);

} // namespace plec_emu

#endif
