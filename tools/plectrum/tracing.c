#include "tools/plectrum/tracing.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "host/tracer_json.h"
#include "lyrw/atomic_file.h"
#include "tools/plectrum/timeline.h"

struct plec_tracing {
    struct plec_tracing_options options;
    struct plec_tracer *tracer;
    const char *model;
    char host[256], device[128];
    pthread_mutex_t lock; /* over writing, closing, device */
    bool closing, listens;
    pthread_t listener;
    sigset_t before;
};

void plec_tracing_cli_options(struct plec_cli_option *out, struct plec_tracing_words *words) {
    const struct plec_cli_option options[PLEC_TRACING_CLI_OPTIONS] = {
        {"trace", PLEC_CLI_TEXT, &words->trace, NULL, "FILE",
         "Write what happened when, as JSON for Perfetto or chrome://tracing."},
        {"plot", PLEC_CLI_TEXT, &words->plot, NULL, "FILE",
         "Draw what happened when, as SVG for any browser."},
        {"nvtx", PLEC_CLI_TEXT, &words->nvtx, NULL, "LEVEL",
         "off, layers (the default), extents or all: what a profiler such as nsys is shown."},
    };
    memcpy(out, options, sizeof options);
}

int plec_tracing_cli_read(struct plec_tracing_options *out, const struct plec_cli_command *command,
                          const struct plec_tracing_words *words) {
    static const char *const levels[] = {"off", "layers", "extents", "all"}; /* as the enum */
    *out = (struct plec_tracing_options){
        .path = words->trace, .plot = words->plot, .nvtx = PLEC_NVTX_LAYERS};
    if (words->trace != NULL && words->trace[0] == 0)
        return plec_cli_usage(command, "--trace wants the name of a file");
    if (words->plot != NULL && words->plot[0] == 0)
        return plec_cli_usage(command, "--plot wants the name of a file");
    if (words->nvtx == NULL) return PLEC_CLI_GO_ON;
    for (size_t i = 0; i < sizeof levels / sizeof levels[0]; i++)
        if (strcmp(words->nvtx, levels[i]) == 0) {
            out->nvtx = (enum plec_nvtx_level)i;
            return PLEC_CLI_GO_ON;
        }
    return plec_cli_usage(command, "--nvtx wants off, layers, extents or all, found '%s'",
                          words->nvtx);
}

/* --- the file -------------------------------------------------------------------------------- */

static void name_host(struct plec_tracing *tracing) {
    struct utsname system;
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    if (uname(&system) == 0)
        snprintf(tracing->host, sizeof tracing->host, "%.60s %.60s %.60s, %ld processors",
                 system.sysname, system.release, system.machine, n);
}

static void say_written(const struct plec_tracing *tracing,
                        const struct plec_tracer_snapshot *snapshot) {
    plec_cli_say("trace: %llu events in %s", (unsigned long long)snapshot->n_events,
                 tracing->options.path);
    if (snapshot->n_lost > 0)
        plec_cli_say("trace: %llu earlier events are lost: a thread's ring holds only so many",
                     (unsigned long long)snapshot->n_lost);
}

/* The lock is held. */
static enum plec_status write_file(struct plec_tracing *tracing, struct plec_error *err) {
    const struct plec_tracer_about about = {.version = PLEC_VERSION,
                                            .model = tracing->model,
                                            .host = tracing->host,
                                            .device =
                                                tracing->device[0] != 0 ? tracing->device : NULL};
    struct plec_tracer_snapshot snapshot;
    enum plec_status status = plec_tracer_read(&snapshot, tracing->tracer, err);
    if (status != PLEC_OK) return status;
    status = plec_tracer_write_json(tracing->options.path, &snapshot, &about, err);
    if (status == PLEC_OK) say_written(tracing, &snapshot);
    plec_tracer_snapshot_close(&snapshot);
    return status;
}

/* One panel of all that is left in the rings. */
static enum plec_status draw(const struct plec_tracing *tracing, struct plec_error *err) {
    if (tracing->options.plot == NULL || tracing->options.own_picture) return PLEC_OK;
    struct plec_tracer_snapshot snapshot;
    enum plec_status status = plec_tracer_read(&snapshot, tracing->tracer, err);
    if (status != PLEC_OK) return status;
    char title[512];
    snprintf(title, sizeof title, "%s on %s", tracing->model, tracing->device);
    const struct plec_timeline_panel panel = {.title = "the whole run", .snapshot = &snapshot};
    const struct plec_timeline_args args = {title, &panel, 1};
    status = plec_timeline_write(tracing->options.plot, &args, err);
    plec_tracer_snapshot_close(&snapshot);
    if (status == PLEC_OK) plec_cli_say("picture: %s", tracing->options.plot);
    return status;
}

/* --- signals --------------------------------------------------------------------------------- */

static void list_signals(sigset_t *out) {
    sigemptyset(out);
    sigaddset(out, SIGUSR2);
    sigaddset(out, SIGINT);
    sigaddset(out, SIGTERM);
}

/* The signal does to the process what it would have done: ends it, or nothing where it is ignored,
 * as SIGINT is in what a script runs in the background. */
static void let_through(int number) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, number);
    kill(getpid(), number);
    pthread_sigmask(SIG_UNBLOCK, &one, NULL); /* delivered before this returns */
    pthread_sigmask(SIG_BLOCK, &one, NULL);
}

/* Whether to go on listening. What comes while the file is being closed waits until all threads
 * take signals again. */
static bool take_signal(struct plec_tracing *tracing, int number) {
    struct plec_error err;
    pthread_mutex_lock(&tracing->lock);
    bool closing = tracing->closing;
    if (!closing && write_file(tracing, &err) != PLEC_OK) (void)plec_cli_error(&err);
    if (closing && number != SIGUSR2) kill(getpid(), number);
    /* With the lock: nobody begins the file anew in a process that is about to end. */
    if (!closing && number != SIGUSR2) let_through(number);
    pthread_mutex_unlock(&tracing->lock);
    return !closing;
}

static void *listen_for_signals(void *user) {
    sigset_t signals;
    int number;
    pthread_setname_np(pthread_self(), "plec-signals");
    list_signals(&signals);
    while (sigwait(&signals, &number) != 0 || take_signal(user, number))
        continue;
    return NULL;
}

static enum plec_status start_listening(struct plec_tracing *tracing, struct plec_error *err) {
    sigset_t signals;
    list_signals(&signals);
    pthread_sigmask(SIG_BLOCK, &signals, &tracing->before);
    int failed = pthread_create(&tracing->listener, NULL, listen_for_signals, tracing);
    tracing->listens = failed == 0;
    if (tracing->listens) return PLEC_OK;
    pthread_sigmask(SIG_SETMASK, &tracing->before, NULL);
    return plec_fail(err, PLEC_NO_MEMORY, "ThreadNotStarted", "for signals: %s", strerror(failed));
}

static void stop_listening(struct plec_tracing *tracing) {
    if (!tracing->listens) return;
    pthread_kill(tracing->listener, SIGUSR2);
    pthread_join(tracing->listener, NULL);
    /* A request for the file that came meanwhile is answered by the file there is. */
    const struct timespec no_wait = {0, 0};
    sigset_t request;
    sigemptyset(&request);
    sigaddset(&request, SIGUSR2);
    while (sigtimedwait(&request, NULL, &no_wait) == SIGUSR2)
        continue;
    pthread_sigmask(SIG_SETMASK, &tracing->before, NULL);
}

/* --- open and close -------------------------------------------------------------------------- */

static enum plec_status try_file(const char *path, struct plec_error *err) {
    struct plec_atomic_file file;
    enum plec_status status = plec_atomic_file_open_beside(&file, path, err);
    if (status == PLEC_OK) plec_atomic_file_abort(&file);
    return status;
}

static void release(struct plec_tracing *tracing) {
    plec_tracer_close(tracing->tracer);
    pthread_mutex_destroy(&tracing->lock);
    free(tracing);
}

enum plec_status plec_tracing_open(struct plec_tracing **out,
                                   const struct plec_tracing_options *options, const char *model,
                                   struct plec_error *err) {
    const struct plec_tracer_options tracer = {
        .record = options->path != NULL || options->plot != NULL, .nvtx = options->nvtx};
    *out = NULL;
    struct plec_tracing *tracing = calloc(1, sizeof *tracing);
    if (tracing == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a trace");
    pthread_mutex_init(&tracing->lock, NULL);
    tracing->options = *options;
    tracing->model = model;
    name_host(tracing);
    enum plec_status status = options->path != NULL ? try_file(options->path, err) : PLEC_OK;
    if (status == PLEC_OK && options->plot != NULL) status = try_file(options->plot, err);
    if (status == PLEC_OK) status = plec_tracer_open(&tracing->tracer, &tracer, err);
    if (status == PLEC_OK && options->path != NULL) status = start_listening(tracing, err);
    if (status != PLEC_OK) {
        release(tracing);
        return status;
    }
    *out = tracing;
    return PLEC_OK;
}

struct plec_tracer *plec_tracing_tracer(const struct plec_tracing *tracing) {
    return tracing != NULL && plec_tracer_active(tracing->tracer) ? tracing->tracer : NULL;
}

void plec_tracing_name_device(struct plec_tracing *tracing, const char *name) {
    pthread_mutex_lock(&tracing->lock);
    snprintf(tracing->device, sizeof tracing->device, "%s", name);
    pthread_mutex_unlock(&tracing->lock);
}

enum plec_status plec_tracing_close(struct plec_tracing *tracing, struct plec_error *err) {
    if (tracing == NULL) return PLEC_OK;
    pthread_mutex_lock(&tracing->lock);
    enum plec_status status = tracing->options.path != NULL ? write_file(tracing, err) : PLEC_OK;
    if (status == PLEC_OK) status = draw(tracing, err);
    tracing->closing = true;
    pthread_mutex_unlock(&tracing->lock);
    stop_listening(tracing);
    release(tracing);
    return status;
}
