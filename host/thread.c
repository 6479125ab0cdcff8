#include "host/thread.h"

#include <signal.h>
#include <string.h>

enum plec_status plec_thread_start(pthread_t *out, void *(*fn)(void *user), void *user,
                                   const char *what, struct plec_error *err) {
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(&blocked, faults[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    int failed = pthread_create(out, NULL, fn, user);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed == 0) return PLEC_OK;
    return plec_fail(err, PLEC_NO_MEMORY, "ThreadNotStarted", "%s: %s", what, strerror(failed));
}
