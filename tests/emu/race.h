/* race.h: one access to one word against what is remembered of it. */
#ifndef PLEC_TESTS_EMU_RACE_H
#define PLEC_TESTS_EMU_RACE_H

#include "tests/emu/shadow.h"

namespace plec_emu {

struct WordAccess {
    Thread *thread; /* null: the host or an operation */
    const void *address;
    unsigned bytes; /* mask, of the word's four */
    int access;
    Place place;
    bool shared;
};

void check_word(const Word &word, const WordAccess &access);

/* Is the thread one of a dependent kernel that has not waited, nor knows of one that has? */
bool before_grid_wait(const Thread *thread);

/* "kernel block ... at line", for reports. */
std::string accessor(const Thread *thread, Place place);

} // namespace plec_emu

#endif
