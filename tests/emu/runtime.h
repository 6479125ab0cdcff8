/* runtime.h: the lock of the emulated runtime. Calls may come from any thread; one at a time is
 * inside. A host function of a stream runs outside, as it may wait for another thread. */
#ifndef PLEC_TESTS_EMU_RUNTIME_H
#define PLEC_TESTS_EMU_RUNTIME_H

#include <functional>

namespace plec_emu {

/* Holds the lock; a thread may hold it several times. */
struct Inside {
    Inside();
    ~Inside();
    Inside(const Inside &) = delete;
};

/* The same at the door of a runtime function: none may be called from a host function. */
struct Call : Inside {
    explicit Call(const char *name);
};

/* Leaves the lock, however often held, for the length of `work`. */
void run_host_function(int operation, const std::function<void()> &work);
/* The operation whose host function the calling thread is in; HOST: none. */
int host_function_running(void);

/* Something got done; waits, without the lock, until another thread says so. */
void runtime_changed(void);
void runtime_wait_for_change(void);

} // namespace plec_emu

#define PLEC_EMU_CALL plec_emu::Call call_(__func__)

#endif
