/* collective.h: what the lanes of a warp, or the threads of a block, do together. The last to
 * arrive does the work of all; the others wait. */
#ifndef PLEC_TESTS_EMU_COLLECTIVE_H
#define PLEC_TESTS_EMU_COLLECTIVE_H

#include "tests/emu/state.h"
#include "tests/emu/statistics.h"

namespace plec_emu {

/* complete(arguments by lane, mask of those that take part) */
typedef void (*Complete)(void **arguments, unsigned mask);

struct CollectiveCall {
    const char *what;
    unsigned mask;
    void *argument;
    Complete complete;  /* null: nothing to do */
    Kind kind;          /* as statistics count it */
    bool aligned;       /* all lanes at the same instruction */
    bool orders_memory; /* what one lane did before is seen by all after */
    const char *file;
    int line;
};

void collective(const CollectiveCall &call);

/* A thread that ends frees those who would wait for it for ever, and is told about it. */
void leave_collectives(Thread *thread);
void leave_barriers(Thread *thread);

/* The running thread has returned from the kernel. */
void retire(void);

} // namespace plec_emu

#endif
