/* thread.h: threads of the library's own.
 *
 * They take no signal but their own faults: handlers run on the threads of the program, and a fault
 * that is blocked would end the process without its handler's word.
 */
#ifndef PLEC_HOST_THREAD_H
#define PLEC_HOST_THREAD_H

#include <pthread.h>

#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* what: names the thread in the error. PLEC_NO_MEMORY "ThreadNotStarted". */
PLEC_MUST_USE enum plec_status plec_thread_start(pthread_t *out, void *(*fn)(void *user),
                                                 void *user, const char *what,
                                                 struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
