/* fiber.h: a stack of one's own. A CUDA thread is a fiber; the host thread that runs a grid is one
 * too. Switching is some ten instructions on x86-64, ucontext elsewhere or with PLEC_EMU_UCONTEXT.
 * AddressSanitizer is told of every switch. A grid runs in one host thread from start to end. */
#ifndef PLEC_TESTS_EMU_FIBER_H
#define PLEC_TESTS_EMU_FIBER_H

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define PLEC_EMU_ASAN 1
#else
#define PLEC_EMU_ASAN                           0
#define ASAN_POISON_MEMORY_REGION(address, n)   ((void)(address), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(address, n) ((void)(address), (void)(n))
#endif

namespace plec_emu {

struct Fiber {
    void *saved = nullptr; /* stack pointer, or ucontext_t, of a fiber that does not run */
    char *stack = nullptr; /* lowest address; a page without access lies below */
    size_t stack_bytes = 0;
    void *fake_stack = nullptr; /* AddressSanitizer's */
};

/* Takes the calling thread's own stack. */
void fiber_adopt(Fiber *fiber);

/* Makes the next switch to it call `body`, which never returns, on an empty stack. */
void fiber_prepare(Fiber *fiber, void (*body)(void));

/* Call at the start of a fiber's body. */
void fiber_entered(void);

/* Saves the running fiber in `from` and runs `to`. */
void fiber_switch(Fiber *from, Fiber *to);

/* The same from a fiber that will be prepared anew before it runs again. */
[[noreturn]] void fiber_leave(Fiber *from, Fiber *to);

/* True for the page that a stack overflow touches first. */
bool fiber_overflows_at(const Fiber *fiber, const void *address);

} // namespace plec_emu

#endif
