#include "tests/emu/fiber.h"
#include "tests/emu/settings.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <pthread.h>
#include <sys/mman.h>

#if PLEC_EMU_ASAN
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(PLEC_EMU_UCONTEXT) || !defined(__x86_64__)
#define PLEC_EMU_USE_UCONTEXT 1
#include <ucontext.h>
#else
#define PLEC_EMU_USE_UCONTEXT 0
#endif

namespace plec_emu {

static constexpr size_t PAGE = 4096;

#if !PLEC_EMU_USE_UCONTEXT
/* plec_emu_swap(where to save the stack pointer, stack pointer to load): callee-saved registers are
 * pushed on one stack and popped from the other. */
extern "C" void plec_emu_swap(void **save, void *load);
extern "C" void plec_emu_start(void);
asm(R"(
.text
.globl plec_emu_swap
.type plec_emu_swap,@function
plec_emu_swap:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size plec_emu_swap,.-plec_emu_swap
.globl plec_emu_start
.type plec_emu_start,@function
plec_emu_start:
  .cfi_startproc
  .cfi_undefined rip
  call *%rbx
  ud2
  .cfi_endproc
.size plec_emu_start,.-plec_emu_start
)");
#endif

void fiber_adopt(Fiber *fiber) {
    if (fiber->stack) return;
    pthread_attr_t attributes;
    void *stack;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &stack, &fiber->stack_bytes);
    pthread_attr_destroy(&attributes);
    fiber->stack = (char *)stack;
#if PLEC_EMU_USE_UCONTEXT
    fiber->saved = new ucontext_t;
#endif
}

static void allocate_stack(Fiber *fiber) {
    size_t n = settings.stack_bytes;
    char *memory = (char *)mmap(nullptr, n + PAGE, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, PAGE, PROT_NONE)) {
        perror("EMU: a fiber's stack");
        abort();
    }
    fiber->stack = memory + PAGE;
    fiber->stack_bytes = n;
}

void fiber_prepare(Fiber *fiber, void (*body)(void)) {
    if (!fiber->stack) allocate_stack(fiber);
    ASAN_UNPOISON_MEMORY_REGION(fiber->stack, fiber->stack_bytes);
    fiber->fake_stack = nullptr;
#if PLEC_EMU_USE_UCONTEXT
    if (!fiber->saved) fiber->saved = new ucontext_t;
    ucontext_t *context = (ucontext_t *)fiber->saved;
    getcontext(context);
    context->uc_stack.ss_sp = fiber->stack;
    context->uc_stack.ss_size = fiber->stack_bytes;
    context->uc_link = nullptr;
    makecontext(context, body, 0);
#else
    static unsigned colour; /* spreads the tops of stacks over the sets of the cache */
    uintptr_t top = ((uintptr_t)fiber->stack + fiber->stack_bytes) & ~(uintptr_t)15;
    void **stack = (void **)(top - colour++ % 29 * 320);
    *--stack = nullptr;
    *--stack = nullptr;
    *--stack = (void *)plec_emu_start;
    *--stack = nullptr;      /* rbp */
    *--stack = (void *)body; /* rbx */
    for (int i = 0; i < 4; i++)
        *--stack = nullptr; /* r12 to r15 */
    fiber->saved = stack;
#endif
}

void fiber_entered(void) {
#if PLEC_EMU_ASAN
    __sanitizer_finish_switch_fiber(nullptr, nullptr, nullptr);
#endif
}

static inline void swap(Fiber *from, Fiber *to) {
#if PLEC_EMU_USE_UCONTEXT
    swapcontext((ucontext_t *)from->saved, (ucontext_t *)to->saved);
#else
    plec_emu_swap(&from->saved, to->saved);
#endif
}

void fiber_switch(Fiber *from, Fiber *to) {
#if PLEC_EMU_ASAN
    __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_bytes);
#endif
    swap(from, to);
#if PLEC_EMU_ASAN
    __sanitizer_finish_switch_fiber(from->fake_stack, nullptr, nullptr);
#endif
}

void fiber_leave(Fiber *from, Fiber *to) {
#if PLEC_EMU_ASAN
    __sanitizer_start_switch_fiber(nullptr, to->stack, to->stack_bytes);
#endif
    swap(from, to);
    abort();
}

bool fiber_overflows_at(const Fiber *fiber, const void *address) {
    const char *byte = (const char *)address;
    return fiber->stack && byte >= fiber->stack - PAGE && byte < fiber->stack;
}

} // namespace plec_emu
