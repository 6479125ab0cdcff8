#include "tests/emu/runtime.h"
#include "tests/emu/emulator.h"
#include "tests/emu/memory.h"
#include "tests/emu/operation.h"
#include "tests/emu/report.h"

#include <condition_variable>
#include <mutex>

namespace plec_emu {

static std::mutex &mutex = *new std::mutex;
static std::condition_variable &changed = *new std::condition_variable;
static thread_local int depth, host_function = HOST;

Inside::Inside() {
    if (!depth++) mutex.lock();
}

Inside::~Inside() {
    if (--depth) return;
    close_device_window();
    mutex.unlock();
}

Call::Call(const char *name) {
    if (host_function != HOST)
        report("host-function", "%s is called from a host function of a stream", name);
}

int host_function_running(void) {
    return host_function;
}

void run_host_function(int operation, const std::function<void()> &work) {
    int held = depth, before = host_function;
    depth = 0;
    host_function = operation;
    close_device_window();
    mutex.unlock();
    work();
    mutex.lock();
    host_function = before;
    depth = held;
}

void runtime_changed(void) {
    changed.notify_all();
}

void runtime_wait_for_change(void) {
    close_device_window();
    std::unique_lock<std::mutex> held(mutex, std::adopt_lock);
    changed.wait(held);
    held.release();
}

} // namespace plec_emu

void plec_emu_reset(void) {
    plec_emu::Inside inside;
    plec_emu::streams_reset();
    plec_emu::memory_free_all();
    plec_emu_clear_errors();
    plec_emu_stats_stop();
}
