#include "host/pinned.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host/memory_limits.h"
#include "host/numa.h"
#include "host/slab.h"

enum { PAGE = 4096, THREADS_MAX = 8, REASON_BYTES = 192 };
static const uint64_t SLAB_DEFAULT = 256 << 20, SLAB_MAX = 1 << 30;
/* Left to the rest of the process and the system. */
static const uint64_t RESERVE = 64 << 20;

struct slab {
    uint8_t *memory;
    uint64_t n_bytes;
    bool pinned;
    bool of_device; /* from plec_pinned_alloc */
};

struct plec_pinned {
    struct plec_device *device;
    struct plec_pinned_options options;
    struct plec_pinned_info info;
    uint64_t slab_frames; /* in every slab but the last */
    uint32_t n_slabs_wanted;
    struct slab *slabs; /* [n_slabs_wanted] */
    struct plec_numa *numa;
    char reason[REASON_BYTES]; /* of the first thing that was not as asked */
    double started, told;
};

static double seconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void because(struct plec_pinned *pool, uint32_t slab, const char *step, const char *why) {
    if (pool->reason[0] != '\0') return;
    snprintf(pool->reason, sizeof pool->reason, "slab %u of %u: %s: %.120s", slab,
             pool->n_slabs_wanted, step, why);
}

static bool allowed(const struct plec_pinned *pool, uint32_t slab, int step) {
    const struct plec_pinned_options *o = &pool->options;
    return o->allow == NULL || o->allow(o->user, slab, step);
}

static void read_limits(struct plec_memory_limits *out, const struct plec_pinned *pool) {
    plec_memory_limits_read(out,
                            pool->options.limits_root != NULL ? pool->options.limits_root : "");
}

/* Whether the machine still holds a slab of this size. */
static bool has_room(struct plec_pinned *pool, uint32_t i, uint64_t n_bytes) {
    struct plec_memory_limits limits;
    char left[PLEC_BYTES_TEXT_MAX], why[64];
    read_limits(&limits, pool);
    uint64_t room = plec_memory_limits_left(&limits);
    if (room >= RESERVE && room - RESERVE >= n_bytes) return true;
    snprintf(why, sizeof why, "only %s of memory is left", plec_bytes_text(left, room));
    because(pool, i, "memory", why);
    return false;
}

static void bind_slab(struct plec_pinned *pool, uint32_t i) {
    const char *why;
    struct slab *slab = &pool->slabs[i];
    if (pool->numa == NULL || pool->info.numa_node < 0) return;
    if (plec_numa_bind(pool->numa, slab->memory, slab->n_bytes, pool->info.numa_node, &why)) return;
    plec_log_write(&pool->options.log, PLEC_LOG_RUN, "pinned memory: not bound to NUMA node %d: %s",
                   pool->info.numa_node, why);
    pool->info.numa_node = -1;
}

/* Memory of our own, every page present. */
static bool map_slab(struct plec_pinned *pool, uint32_t i, uint64_t n_bytes) {
    struct slab *slab = &pool->slabs[i];
    slab->memory = plec_slab_map(n_bytes);
    if (slab->memory == NULL) {
        because(pool, i, "mapping", strerror(errno));
        return false;
    }
    slab->n_bytes = n_bytes;
    bind_slab(pool, i);
    if (plec_slab_fault(slab->memory, n_bytes, pool->options.n_threads)) return true;
    because(pool, i, "first touch", strerror(errno));
    plec_slab_unmap(slab->memory, n_bytes);
    slab->memory = NULL;
    return false;
}

static bool allocate_slab(struct plec_pinned *pool, uint32_t i, uint64_t n_bytes) {
    struct slab *slab = &pool->slabs[i];
    struct plec_error err = {0};
    void *memory = NULL;
    if (!allowed(pool, i, 1)) {
        because(pool, i, "pinned allocation", "not allowed");
        return false;
    }
    if (plec_pinned_alloc(&memory, pool->device, n_bytes, &err) != PLEC_OK) {
        because(pool, i, "pinned allocation", err.message);
        return false;
    }
    if ((uintptr_t)memory % PAGE != 0) {
        because(pool, i, "pinned allocation", "not on a page");
        plec_pinned_free(pool->device, memory);
        return false;
    }
    *slab = (struct slab){memory, n_bytes, true, true};
    return true;
}

/* Once a slab is refused no other is tried: a driver may not recover from each refusal. */
static bool wants_pin(const struct plec_pinned *pool, uint32_t i) {
    return pool->options.mode != PLEC_PIN_OFF && (i == 0 || pool->slabs[i - 1].pinned);
}

static void pin_slab(struct plec_pinned *pool, uint32_t i) {
    struct slab *slab = &pool->slabs[i];
    struct plec_error err = {0};
    if (!allowed(pool, i, 1))
        because(pool, i, "pinning", "not allowed");
    else if (plec_device_pin(pool->device, slab->memory, slab->n_bytes, &err) == PLEC_OK)
        slab->pinned = true;
    else
        because(pool, i, "pinning", err.message);
}

static void release(struct plec_pinned *pool, struct slab *slab) {
    if (slab->of_device) {
        plec_pinned_free(pool->device, slab->memory);
        return;
    }
    if (slab->pinned) plec_device_unpin(pool->device, slab->memory, slab->n_bytes);
    plec_slab_unmap(slab->memory, slab->n_bytes);
}

static void tell_progress(struct plec_pinned *pool) {
    char done[PLEC_BYTES_TEXT_MAX], all[PLEC_BYTES_TEXT_MAX];
    double now = seconds();
    if (now - pool->told < 1) return;
    pool->told = now;
    plec_log_write(&pool->options.log, PLEC_LOG_STEP, "pinned memory: %s of %s after %.0f s",
                   plec_bytes_text(done, pool->info.obtained_bytes),
                   plec_bytes_text(all, pool->info.asked_bytes), now - pool->started);
}

static bool obtain(struct plec_pinned *pool, uint32_t i, uint64_t n_bytes) {
    bool pin = wants_pin(pool, i), allocate = pool->options.method == PLEC_PIN_ALLOCATE;
    if (!has_room(pool, i, n_bytes)) return false;
    if (!allowed(pool, i, 0)) {
        because(pool, i, "mapping", "not allowed");
        return false;
    }
    if (pin && allocate && allocate_slab(pool, i, n_bytes)) return true;
    if (!map_slab(pool, i, n_bytes)) return false;
    if (pin && !allocate) pin_slab(pool, i);
    return true;
}

/* One more slab; false ends the growing. */
static bool grow(struct plec_pinned *pool) {
    struct plec_pinned_info *info = &pool->info;
    uint32_t i = info->n_slabs;
    uint64_t left = pool->options.n_frames - info->n_frames;
    uint64_t n_frames = left < pool->slab_frames ? left : pool->slab_frames;
    uint64_t n_bytes = n_frames * info->frame_bytes;
    if (!obtain(pool, i, n_bytes)) return false;
    info->n_slabs++;
    info->n_frames += n_frames;
    info->obtained_bytes += n_bytes;
    if (pool->slabs[i].pinned) info->pinned_bytes += n_bytes;
    tell_progress(pool);
    return pool->slabs[i].pinned || pool->options.mode != PLEC_PIN_REQUIRE;
}

static uint32_t processors_available(void) {
    cpu_set_t set;
    return sched_getaffinity(0, sizeof set, &set) == 0 ? (uint32_t)CPU_COUNT(&set) : 1;
}

static void choose_node(struct plec_pinned *pool) {
    const char *why;
    struct plec_device_info device;
    plec_device_get_info(&device, pool->device);
    pool->info.numa_node =
        pool->options.numa_node >= 0 ? pool->options.numa_node : device.numa_node;
    if (pool->info.numa_node < 0) return;
    pool->numa = plec_numa_open(&why);
    if (pool->numa != NULL) return;
    plec_log_write(&pool->options.log, PLEC_LOG_RUN, "pinned memory: not bound to NUMA node %d: %s",
                   pool->info.numa_node, why);
    pool->info.numa_node = -1;
}

/* How many frames a slab has, and how many slabs that makes. */
static enum plec_status divide(struct plec_pinned *pool, struct plec_error *err) {
    const struct plec_pinned_options *o = &pool->options;
    uint64_t slab_bytes = o->slab_bytes == 0 ? SLAB_DEFAULT : o->slab_bytes;
    if (slab_bytes > SLAB_MAX) slab_bytes = SLAB_MAX;
    if (o->frame_bytes > SLAB_MAX)
        return plec_fail(err, PLEC_BAD_INPUT, "FrameTooLarge",
                         "a frame of %llu bytes; at most %llu: make extents narrower",
                         (unsigned long long)o->frame_bytes, (unsigned long long)SLAB_MAX);
    pool->slab_frames = slab_bytes < o->frame_bytes ? 1 : slab_bytes / o->frame_bytes;
    uint64_t n_slabs = (o->n_frames - 1) / pool->slab_frames + 1;
    if (o->n_frames > UINT64_MAX / o->frame_bytes || n_slabs > INT32_MAX)
        return plec_fail(err, PLEC_NO_MEMORY, "PinnedMemory", "%llu frames of %llu bytes",
                         (unsigned long long)o->n_frames, (unsigned long long)o->frame_bytes);
    pool->info.asked_bytes = o->n_frames * o->frame_bytes;
    pool->info.frame_bytes = o->frame_bytes;
    pool->n_slabs_wanted = (uint32_t)n_slabs;
    return PLEC_OK;
}

static void tell_limits(struct plec_pinned *pool) {
    struct plec_memory_limits limits;
    char text[PLEC_MEMORY_LIMITS_TEXT_MAX];
    read_limits(&limits, pool);
    snprintf(pool->info.limits, sizeof pool->info.limits, "%.140s (%.110s)",
             plec_memory_limits_text(text, &limits), pool->reason);
}

static void count_huge(struct plec_pinned *pool) {
    struct plec_pinned_info *info = &pool->info;
    struct plec_slab_range *ranges = calloc(info->n_slabs + 1u, sizeof *ranges);
    if (ranges == NULL) return;
    for (uint32_t i = 0; i < info->n_slabs; i++) {
        ranges[i] = (struct plec_slab_range){pool->slabs[i].memory, pool->slabs[i].n_bytes};
        info->waste_bytes += pool->slabs[i].n_bytes;
    }
    info->waste_bytes -= info->n_frames * info->frame_bytes;
    info->huge_bytes = plec_slab_huge_bytes(ranges, info->n_slabs);
    free(ranges);
}

/* Whether what was had is enough for the mode; says what is missing. */
static enum plec_status judge(struct plec_pinned *pool, struct plec_error *err) {
    const struct plec_pinned_info *info = &pool->info;
    char asked[PLEC_BYTES_TEXT_MAX], got[PLEC_BYTES_TEXT_MAX], pinned[PLEC_BYTES_TEXT_MAX];
    enum plec_pin_mode mode = pool->options.mode;
    uint64_t least_pinned = mode == PLEC_PIN_OFF ? 0 : info->asked_bytes;
    if (info->obtained_bytes == info->asked_bytes && info->pinned_bytes >= least_pinned)
        return PLEC_OK;
    tell_limits(pool);
    plec_bytes_text(asked, info->asked_bytes);
    plec_bytes_text(got, info->obtained_bytes);
    plec_bytes_text(pinned, info->pinned_bytes);
    if (info->n_frames == 0 || mode == PLEC_PIN_REQUIRE)
        return plec_fail(err, PLEC_NO_MEMORY, "PinnedMemory",
                         "asked %s, obtained %s, pinned %s: %s; limits: %s", asked, got, pinned,
                         pool->reason, info->limits);
    plec_log_write(&pool->options.log, PLEC_LOG_RUN,
                   "pinned memory: asked %s, obtained %s, pinned %s: %s; limits: %s", asked, got,
                   pinned, pool->reason, info->limits);
    return PLEC_OK;
}

enum plec_status plec_pinned_open(struct plec_pinned **out, struct plec_device *device,
                                  const struct plec_pinned_options *options,
                                  struct plec_error *err) {
    assert(options->frame_bytes > 0 && options->frame_bytes % PAGE == 0 && options->n_frames > 0);
    *out = NULL;
    struct plec_pinned *pool = calloc(1, sizeof *pool);
    if (pool == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "the frame pool");
    pool->device = device;
    pool->options = *options;
    pool->started = pool->told = seconds();
    if (pool->options.n_threads == 0) {
        uint32_t n = processors_available();
        pool->options.n_threads = n < THREADS_MAX ? n : THREADS_MAX;
    }
    enum plec_status status = divide(pool, err);
    if (status == PLEC_OK) {
        pool->slabs = calloc(pool->n_slabs_wanted, sizeof *pool->slabs);
        if (pool->slabs == NULL)
            status =
                plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%u slabs", pool->n_slabs_wanted);
    }
    if (status == PLEC_OK) {
        choose_node(pool);
        while (pool->info.n_slabs < pool->n_slabs_wanted && grow(pool))
            ;
        count_huge(pool);
        status = judge(pool, err);
    }
    plec_numa_close(pool->numa);
    pool->numa = NULL;
    if (status != PLEC_OK) {
        plec_pinned_close(pool);
        return status;
    }
    *out = pool;
    return PLEC_OK;
}

void plec_pinned_get_info(struct plec_pinned_info *out, const struct plec_pinned *pool) {
    *out = pool->info;
}

void *plec_pinned_frame(const struct plec_pinned *pool, uint64_t i) {
    assert(i < pool->info.n_frames);
    return pool->slabs[i / pool->slab_frames].memory +
           i % pool->slab_frames * pool->info.frame_bytes;
}

void *plec_pinned_slab(const struct plec_pinned *pool, uint32_t i, uint64_t *n_bytes) {
    assert(i < pool->info.n_slabs);
    *n_bytes = pool->slabs[i].n_bytes;
    return pool->slabs[i].memory;
}

void plec_pinned_close(struct plec_pinned *pool) {
    if (pool == NULL) return;
    for (uint32_t i = 0; i < pool->info.n_slabs; i++)
        release(pool, &pool->slabs[i]);
    free(pool->slabs);
    free(pool);
}
