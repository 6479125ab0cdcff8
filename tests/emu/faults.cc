#include "tests/emu/faults.h"
#include "tests/emu/fiber.h"
#include "tests/emu/memory.h"
#include "tests/emu/report.h"
#include "tests/emu/state.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ucontext.h>
#include <unistd.h>

namespace plec_emu {

static struct sigaction previous;

static const void *program_counter(void *context) {
#if defined(__x86_64__)
    return (const char *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP] + 1;
#else
    (void)context;
    return nullptr;
#endif
}

/* The process is lost, so that what is not safe in a handler may be tried. */
[[noreturn]] static void end(int status, const std::string &what) {
    fprintf(stderr, "EMU: %s\n", what.c_str());
    fflush(nullptr);
    _exit(status);
}

static void on_fault(int signal, siginfo_t *info, void *context) {
    void *address = info->si_addr;
    if (is_device(address) && !device_window_open())
        end(HOST_TOUCHED_DEVICE, text("host-deref: the host touches device memory at %p (%s)",
                                      address, describe_address(address).c_str()));
    if (running && fiber_overflows_at(running, address))
        end(STACK_OVERFLOWED,
            text("stack-overflow of %s: raise PLEC_EMU_STACK (KiB)", who(running).c_str()));
    if (running)
        end(BAD_ADDRESS, text("bad address %p in %s, near %s", address, who(running).c_str(),
                              place_text(place_of_pc(program_counter(context))).c_str()));
    sigaction(signal, &previous, nullptr);
    raise(signal);
}

void prepare_fault_stack(void) {
    static thread_local bool prepared;
    if (prepared || PLEC_EMU_ASAN) return; /* AddressSanitizer brings its own */
    prepared = true;
    stack_t alternative = {};
    alternative.ss_size = 1 << 16;
    alternative.ss_sp = malloc(alternative.ss_size); /* as long as the thread, and then forgotten */
    if (alternative.ss_sp) sigaltstack(&alternative, nullptr);
}

void catch_faults(void) {
    struct sigaction action = {};
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, &previous);
}

} // namespace plec_emu
