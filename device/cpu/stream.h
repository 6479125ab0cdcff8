/* stream.h: streams and events of the CPU backend.
 *
 * A stream is a thread and a bounded ring of operations; the thread runs them in order. Operation k
 * is done once n_done > k, whether it ran, failed or was skipped. An event is a mark on a stream:
 * "all before operation k"; so a record costs no operation, and a wait holds for the very record
 * that was the latest when it was called, however often the event is recorded again.
 *
 * A closed stream's struct, with its ring and its counters, stays with the device and serves the
 * next open: marks on it stay true.
 */
#ifndef PLEC_DEVICE_CPU_STREAM_H
#define PLEC_DEVICE_CPU_STREAM_H

#include <pthread.h>
#include <stdatomic.h>

#include "device/backend.h"
#include "device/cpu/pool.h"

enum {
    PLEC_CPU_OPERATION_BYTES = 128, /* arguments of the largest operation */
    PLEC_CPU_QUEUE_DEFAULT = 256,
    PLEC_CPU_QUEUE_MAX = 1 << 20,
    PLEC_CPU_SCRATCH_BYTES = 1 << 20 /* a stream's own, for launches without a workspace */
};

struct plec_cpu_device;
struct plec_cpu_stream;

/* Runs on the stream's thread. args: the copy made when it was enqueued. */
typedef enum plec_status plec_cpu_run(struct plec_cpu_stream *stream, const void *args,
                                      struct plec_error *err);

struct plec_cpu_operation {
    plec_cpu_run *run;
    bool always; /* also on a failed stream: waits keep the order that others rely on */
    _Alignas(16) unsigned char args[PLEC_CPU_OPERATION_BYTES];
};

struct plec_cpu_stream {
    struct plec_stream base;
    struct plec_cpu_device *device;
    struct plec_cpu_stream *next_free;
    pthread_t thread;
    pthread_mutex_t mutex;   /* over all below */
    pthread_cond_t work;     /* n_enqueued grew, or closing */
    pthread_cond_t progress; /* n_done grew */
    uint32_t n_waiting;      /* threads waiting for progress */
    uint32_t capacity;
    bool closing, failed;
    struct plec_error error;         /* of the first failure since the last sync */
    _Atomic uint64_t n_enqueued;     /* ever, over all lives of the struct */
    _Atomic uint64_t n_done;         /* n_enqueued - n_done <= capacity */
    struct plec_cpu_operation *ring; /* [capacity], operation k at k % capacity */
    void *scratch;                   /* [PLEC_CPU_SCRATCH_BYTES], 64-byte aligned */
};

/* A point in the work of a stream; stream NULL: never recorded. */
struct plec_cpu_mark {
    struct plec_cpu_stream *stream;
    uint64_t position;
};

struct plec_cpu_event {
    struct plec_event base;
    pthread_mutex_t mutex;
    struct plec_cpu_mark mark;
};

/* Copies args [n_bytes] into the ring; waits for room. Always PLEC_OK: failures come with the next
 * sync. */
enum plec_status plec_cpu_enqueue(struct plec_stream *stream, plec_cpu_run *run, const void *args,
                                  size_t n_bytes);

enum plec_status plec_cpu_stream_open(struct plec_stream **out, struct plec_device *device,
                                      struct plec_error *err);
void plec_cpu_stream_close(struct plec_stream *stream);
void plec_cpu_stream_set_name(struct plec_stream *stream, const char *name);
enum plec_status plec_cpu_stream_sync(struct plec_stream *stream, struct plec_error *err);
/* Frees what a closed stream left with its device. */
void plec_cpu_stream_release(struct plec_cpu_stream *stream);

enum plec_status plec_cpu_event_open(struct plec_event **out, struct plec_device *device,
                                     struct plec_error *err);
void plec_cpu_event_close(struct plec_event *event);
enum plec_status plec_cpu_event_record(struct plec_event *event, struct plec_stream *stream,
                                       struct plec_error *err);
enum plec_status plec_cpu_event_wait(struct plec_stream *stream, struct plec_event *event,
                                     struct plec_error *err);
bool plec_cpu_event_done(const struct plec_event *event);
void plec_cpu_event_sync(struct plec_event *event);

#endif
