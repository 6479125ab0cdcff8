/* nvtx.h: ranges, marks and counters for a profiler that listens to NVTX 3 (nsys, or any library in
 * NVTX_INJECTION64_PATH).
 *
 * Owns: the process's domain `plectrum`, its categories, registered strings, payload schema and
 * counters, made when the first level above off is asked for. The one file that sees NVTX headers
 * is nvtx.c; without them, or without a listener, all of this is nothing. Never: formats, allocates
 * or records.
 */
#ifndef PLEC_HOST_NVTX_H
#define PLEC_HOST_NVTX_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Each shows what those before it show. */
enum plec_nvtx_level {
    PLEC_NVTX_OFF,
    PLEC_NVTX_LAYERS,  /* requests, layers, routing, compute, waits */
    PLEC_NVTX_EXTENTS, /* and every read and copy, ready or cancelled */
    PLEC_NVTX_ALL      /* and hits, evictions, counters */
};

enum plec_nvtx_category {
    PLEC_NVTX_ROUTE = 1,
    PLEC_NVTX_PREFETCH,
    PLEC_NVTX_IO,
    PLEC_NVTX_H2D,
    PLEC_NVTX_COMPUTE,
    PLEC_NVTX_EVICT,
    PLEC_NVTX_COMM,
    PLEC_NVTX_SERVE,
    PLEC_NVTX_STALL
};
const char *plec_nvtx_category_name(enum plec_nvtx_category category);

/* What was compiled in: "3, payload schemas, counters"; NULL: nothing. */
const char *plec_nvtx_built(void);

struct plec_nvtx; /* the process's emitter */
struct plec_tracer_event;

/* NULL: not built in, or nobody listens. Makes domain and names at the first call, and asks then
 * whether somebody listens. Any thread. */
struct plec_nvtx *plec_nvtx_get(void);

/* Reads and copies open at once: those of one streamer. More are not shown. */
enum { PLEC_NVTX_OPEN = 64 };
/* What one tracer shows. Zeroed but for nvtx and level; nvtx NULL: nothing. */
struct plec_nvtx_view {
    struct plec_nvtx *nvtx;
    enum plec_nvtx_level level;
    /* Of the streamer, which tells one event at a time: */
    struct {
        uint64_t id, n_bytes, range;
        uint32_t what; /* 0: free */
    } open[PLEC_NVTX_OPEN];
    uint64_t in_flight, n_reads, n_copies;
    uint32_t n_hits, n_misses, n_evicted; /* of this dispatch */
};
/* Shows an event, if the level has it. Of a streamer, one call at a time; else any thread. */
void plec_nvtx_show(struct plec_nvtx_view *view, const struct plec_tracer_event *event);
/* Tells the listener, once, that the calling thread is called what the system calls it; nothing
 * before the first plec_nvtx_get. */
void plec_nvtx_name_thread(void);

#ifdef __cplusplus
}
#endif
#endif
