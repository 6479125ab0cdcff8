/* shared.h: shared memory: an arena with a slot for each resident block. A slot is larger than any
 * block's memory, so that what runs over meets nobody else's. */
#ifndef PLEC_TESTS_EMU_SHARED_H
#define PLEC_TESTS_EMU_SHARED_H

#include "tests/emu/state.h"

namespace plec_emu {

/* Address 0 stays invalid: dynamic shared memory begins here in each slot. */
enum { SHARED_SLOT = 256 << 10, SHARED_BASE = 1024, SHARED_LIMIT = 227 << 10 };

extern char *shared_arena;
extern size_t shared_arena_bytes;

void shared_reserve(int n_slots, Launch *launch);
/* New and poisoned memory for a block. */
void shared_begin(Block *block);

/* n bytes at a shared address of the running block; outside: reported, and the launch ends. */
char *shared_pointer(unsigned address, unsigned n_bytes, const char *file, int line);
bool shared_holds(unsigned address, size_t n_bytes);

} // namespace plec_emu

#endif
