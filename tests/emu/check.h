/* check.h: the checker: every access of the checked build, and those that instructions make in any
 * build, against bounds, what is initialised, and the order of threads, blocks and streams. The
 * functions do nothing where no checked object takes part. */
#ifndef PLEC_TESTS_EMU_CHECK_H
#define PLEC_TESTS_EMU_CHECK_H

#include "tests/emu/state.h"

namespace plec_emu {

enum Access {
    ACCESS_READ = 0,
    ACCESS_WRITE = 1,
    ACCESS_ATOMIC = 2,
    ACCESS_ASYNC = 4, /* by the asynchronous proxy */
    ACCESS_UNDEFINED =
        8 /* a write leaves the bytes undefined, a read does not mind that they are */
};

/* By a thread of the grid; null: the host, or an operation of a stream. */
void check_access(Thread *thread, const void *address, size_t n_bytes, int access, Place place);
/* By the operation that runs. */
void check_range(const void *address, size_t n_bytes, int access);

/* Freed memory: nothing is known of it. */
void check_forget(const void *address, size_t n_bytes);
void check_shared_reserve(int n_slots);
void check_shared_clear(const Block *block, unsigned offset, size_t n_bytes);

} // namespace plec_emu

#endif
