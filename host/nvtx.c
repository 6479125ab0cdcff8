/* The one file that sees NVTX headers. */
#include "host/nvtx.h"

#include <stddef.h>

static const char *const categories[] = {
    [PLEC_NVTX_ROUTE] = "route", [PLEC_NVTX_PREFETCH] = "prefetch", [PLEC_NVTX_IO] = "io",
    [PLEC_NVTX_H2D] = "h2d",     [PLEC_NVTX_COMPUTE] = "compute",   [PLEC_NVTX_EVICT] = "evict",
    [PLEC_NVTX_COMM] = "comm",   [PLEC_NVTX_SERVE] = "serve",       [PLEC_NVTX_STALL] = "stall"};

const char *plec_nvtx_category_name(enum plec_nvtx_category category) {
    return categories[category];
}

#if defined(PLEC_NVTX) && defined(__has_include)
#if __has_include(<nvtx3/nvToolsExt.h>)
#define HAVE_NVTX
#endif
#if __has_include(<nvtx3/nvToolsExtPayload.h>)
#define HAVE_PAYLOADS
#endif
#if __has_include(<nvtx3/nvToolsExtCounters.h>)
#define HAVE_COUNTERS
#endif
#endif

#ifndef HAVE_NVTX

const char *plec_nvtx_built(void) {
    return NULL;
}
struct plec_nvtx *plec_nvtx_get(void) {
    return NULL;
}
void plec_nvtx_show(struct plec_nvtx_view *view, const struct plec_tracer_event *event) {
    (void)view;
    (void)event;
}
void plec_nvtx_name_thread(void) {}

#else

#include <nvtx3/nvToolsExt.h>
#ifdef HAVE_PAYLOADS
#include <nvtx3/nvToolsExtPayload.h>
#endif
#ifdef HAVE_COUNTERS
#include <nvtx3/nvToolsExtCounters.h>
#endif
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "host/tracer.h"

/* Marks that sum up a dispatch, beside what events are called. */
enum { HIT = PLEC_N_TRACES, MISS, EVICT, N_STRINGS };
enum { COUNT_IN_FLIGHT, COUNT_READS, COUNT_COPIES, COUNT_PINNED, N_COUNTERS };

struct plec_nvtx {
    nvtxDomainHandle_t domain;
    nvtxStringHandle_t strings[N_STRINGS];
    uint64_t schema; /* 0: the listener takes none */
    uint64_t counters[N_COUNTERS];
};

/* The process's, settled once. */
static struct plec_nvtx emitter;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic bool asked;

/* ARGB. */
static const uint32_t colours[] = {
    [PLEC_NVTX_ROUTE] = 0xff8e6bbf,   [PLEC_NVTX_PREFETCH] = 0xff4f9da6,
    [PLEC_NVTX_IO] = 0xff3b75af,      [PLEC_NVTX_H2D] = 0xfff0a30a,
    [PLEC_NVTX_COMPUTE] = 0xff519e3e, [PLEC_NVTX_EVICT] = 0xff8c8c8c,
    [PLEC_NVTX_COMM] = 0xffd17ab5,    [PLEC_NVTX_SERVE] = 0xff333f48,
    [PLEC_NVTX_STALL] = 0xffc53a32};

static const enum plec_nvtx_level levels[PLEC_N_TRACES] = {
    [PLEC_TRACE_REQUEST] = PLEC_NVTX_LAYERS,    [PLEC_TRACE_STEADY] = PLEC_NVTX_LAYERS,
    [PLEC_TRACE_LAYER] = PLEC_NVTX_LAYERS,      [PLEC_TRACE_ROUTE] = PLEC_NVTX_LAYERS,
    [PLEC_TRACE_LOOK_AHEAD] = PLEC_NVTX_LAYERS, [PLEC_TRACE_DISPATCH] = PLEC_NVTX_EXTENTS,
    [PLEC_TRACE_PLAN] = PLEC_NVTX_LAYERS,       [PLEC_TRACE_WAIT] = PLEC_NVTX_LAYERS,
    [PLEC_TRACE_GATE_UP] = PLEC_NVTX_LAYERS,    [PLEC_TRACE_DOWN] = PLEC_NVTX_LAYERS,
    [PLEC_TRACE_READ] = PLEC_NVTX_EXTENTS,      [PLEC_TRACE_COPY] = PLEC_NVTX_EXTENTS,
    [PLEC_TRACE_READY] = PLEC_NVTX_EXTENTS,     [PLEC_TRACE_CANCEL] = PLEC_NVTX_EXTENTS,
    [PLEC_TRACE_HAND_OUT] = PLEC_NVTX_ALL,      [PLEC_TRACE_EVICT_SLOT] = PLEC_NVTX_ALL,
    [PLEC_TRACE_EVICT_FRAME] = PLEC_NVTX_ALL,   [PLEC_TRACE_PINNED] = PLEC_NVTX_ALL,
};

const char *plec_nvtx_built(void) {
#if defined(HAVE_PAYLOADS) && defined(HAVE_COUNTERS)
    return "3, payload schemas, counters";
#elif defined(HAVE_PAYLOADS)
    return "3, payload schemas";
#else
    return "3";
#endif
}

/* --- what is named once ---------------------------------------------------------------------- */

static void name_strings(void) {
    for (uint32_t i = 0; i < PLEC_N_TRACES; i++)
        emitter.strings[i] =
            nvtxDomainRegisterStringA(emitter.domain, plec_tracer_name((enum plec_tracer_what)i));
    emitter.strings[HIT] = nvtxDomainRegisterStringA(emitter.domain, "extent.hit");
    emitter.strings[MISS] = nvtxDomainRegisterStringA(emitter.domain, "extent.miss");
    emitter.strings[EVICT] = nvtxDomainRegisterStringA(emitter.domain, "extent.evict");
}

#ifdef HAVE_PAYLOADS

/* What every event carries where the listener can show it. */
struct payload {
    uint16_t layer, extent, first_expert, n; /* n: experts */
    uint32_t bytes;                          /* at most 4 GiB - 1 */
    uint8_t tier, prio;                      /* tier: 0 device, 1 host, 2 disk */
    uint8_t reason;                          /* a status */
    uint64_t experts;                        /* first_expert + bit */
    uint64_t id;
};

static void name_schema(void) {
#define FIELD(kind, member)                                                                        \
    {                                                                                              \
        .type = NVTX_PAYLOAD_ENTRY_TYPE_##kind, .name = #member,                                   \
        .offset = offsetof(struct payload, member)                                                 \
    }
    static const nvtxPayloadSchemaEntry_t entries[] = {
        FIELD(UINT16, layer), FIELD(UINT16, extent), FIELD(UINT16, first_expert),
        FIELD(UINT16, n),     FIELD(UINT32, bytes),  FIELD(UINT8, tier),
        FIELD(UINT8, prio),   FIELD(UINT8, reason),  FIELD(UINT64, experts),
        FIELD(UINT64, id)};
#undef FIELD
    const nvtxPayloadSchemaAttr_t schema = {
        .fieldMask = NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NAME | NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_TYPE |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_NUM_ENTRIES |
                     NVTX_PAYLOAD_SCHEMA_ATTR_FIELD_STATIC_SIZE,
        .name = "extent",
        .type = NVTX_PAYLOAD_SCHEMA_TYPE_STATIC,
        .entries = entries,
        .numEntries = sizeof entries / sizeof entries[0],
        .payloadStaticSize = sizeof(struct payload)};
    emitter.schema = nvtxPayloadSchemaRegister(emitter.domain, &schema);
}

#else

static void name_schema(void) {}

#endif

#ifdef HAVE_COUNTERS

static void name_counters(void) {
    static const char *const names[N_COUNTERS] = {"in-flight bytes", "reads", "copies",
                                                  "pinned bytes"};
    for (int i = 0; i < N_COUNTERS; i++) {
        const nvtxCounterAttr_t counter = {.structSize = sizeof counter,
                                           .schemaId = NVTX_PAYLOAD_ENTRY_TYPE_INT64,
                                           .name = names[i],
                                           .scopeId = NVTX_SCOPE_CURRENT_SW_PROCESS};
        emitter.counters[i] = nvtxCounterRegister(emitter.domain, &counter);
    }
}

static void sample(const struct plec_nvtx *nvtx, int counter, uint64_t value) {
    if (nvtx->counters[counter] != NVTX_COUNTER_ID_NONE)
        nvtxCounterSampleInt64(nvtx->domain, nvtx->counters[counter], (int64_t)value);
}

#else

static void name_counters(void) {}
static void sample(const struct plec_nvtx *nvtx, int counter, uint64_t value) {
    (void)nvtx;
    (void)counter;
    (void)value;
}

#endif

static void open_emitter(void) {
    atomic_store(&asked, true);
    emitter.domain = nvtxDomainCreateA("plectrum");
    if (emitter.domain == NULL) return;
    for (uint32_t i = PLEC_NVTX_ROUTE; i <= PLEC_NVTX_STALL; i++)
        nvtxDomainNameCategoryA(emitter.domain, i, categories[i]);
    name_strings();
    name_schema();
    name_counters();
}

struct plec_nvtx *plec_nvtx_get(void) {
    pthread_once(&once, open_emitter);
    return emitter.domain != NULL ? &emitter : NULL;
}

void plec_nvtx_name_thread(void) {
    static _Thread_local bool named;
    char name[16];
    if (named || !atomic_load(&asked)) return;
    named = true;
    if (plec_nvtx_get() != NULL && pthread_getname_np(pthread_self(), name, sizeof name) == 0)
        nvtxNameOsThreadA((uint32_t)syscall(SYS_gettid), name);
}

/* --- one event ------------------------------------------------------------------------------- */

/* layer:12 | extent:12 | prio:4 | reason:4 | MiB:32, the first at the top; MiB rounded up. */
static uint64_t pack(const struct plec_tracer_event *event) {
    uint64_t mib = (event->n_bytes >> 20) + ((event->n_bytes & 0xfffff) != 0);
    uint64_t extent = event->key == PLEC_NO_KEY ? 0 : event->extent;
    return (uint64_t)(event->layer & 0xfff) << 52 | (extent & 0xfff) << 40 |
           (uint64_t)(event->urgency & 0xf) << 36 | (uint64_t)(event->status & 0xf) << 32 |
           (mib & 0xffffffff);
}

/* An event's attributes, and what they point at: both live while it is shown. */
struct shown {
    nvtxEventAttributes_t attributes;
#ifdef HAVE_PAYLOADS
    struct payload payload;
    nvtxPayloadData_t data[2];
    uint64_t packed;
#endif
};

#ifdef HAVE_PAYLOADS

static uint8_t tier_of(const struct plec_tracer_event *event) {
    if (event->what == PLEC_TRACE_READ) return 2;
    if (event->what == PLEC_TRACE_COPY || event->what == PLEC_TRACE_EVICT_FRAME) return 1;
    return 0;
}

static void attach(struct shown *out, const struct plec_nvtx *nvtx,
                   const struct plec_tracer_event *event) {
    if (nvtx->schema == 0) return;
    bool keyed = event->key != PLEC_NO_KEY;
    uint32_t n = event->mask != 0 ? (uint32_t)__builtin_popcountll(event->mask) : event->value;
    out->payload = (struct payload){.layer = (uint16_t)event->layer,
                                    .extent = keyed ? (uint16_t)event->extent : 0,
                                    .first_expert = keyed ? (uint16_t)event->first_expert : 0,
                                    .n = (uint16_t)n,
                                    .bytes = event->n_bytes < UINT32_MAX ? (uint32_t)event->n_bytes
                                                                         : UINT32_MAX,
                                    .tier = tier_of(event),
                                    .prio = event->urgency,
                                    .reason = event->status,
                                    .experts = event->mask,
                                    .id = event->id};
    out->data[0] = (nvtxPayloadData_t){nvtx->schema, sizeof out->payload, &out->payload};
    out->packed = out->attributes.payload.ullValue;
    out->data[1] =
        (nvtxPayloadData_t){NVTX_PAYLOAD_ENTRY_TYPE_UINT64, sizeof out->packed, &out->packed};
    out->attributes.payloadType = NVTX_PAYLOAD_TYPE_EXT;
    out->attributes.reserved0 = 2;
    out->attributes.payload.ullValue = (uint64_t)(uintptr_t)out->data;
}

#else

static void attach(struct shown *out, const struct plec_nvtx *nvtx,
                   const struct plec_tracer_event *event) {
    (void)out;
    (void)nvtx;
    (void)event;
}

#endif

static void describe(struct shown *out, const struct plec_nvtx *nvtx, uint32_t string,
                     enum plec_nvtx_category category, const struct plec_tracer_event *event) {
    out->attributes = (nvtxEventAttributes_t){.version = NVTX_VERSION,
                                              .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                              .category = category,
                                              .colorType = NVTX_COLOR_ARGB,
                                              .color = colours[category],
                                              .payloadType = NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
                                              .messageType = NVTX_MESSAGE_TYPE_REGISTERED};
    out->attributes.payload.ullValue = pack(event);
    out->attributes.message.registered = nvtx->strings[string];
    attach(out, nvtx, event);
}

static void mark(const struct plec_nvtx *nvtx, uint32_t string, enum plec_nvtx_category category,
                 const struct plec_tracer_event *event) {
    struct shown shown;
    describe(&shown, nvtx, string, category, event);
    nvtxDomainMarkEx(nvtx->domain, &shown.attributes);
}

/* --- reads and copies: ranges across threads ------------------------------------------------- */

static void count_moving(struct plec_nvtx_view *view, const struct plec_tracer_event *event,
                         uint64_t n_bytes) {
    bool begins = event->phase == PLEC_TRACE_BEGIN;
    uint64_t *n = event->what == PLEC_TRACE_READ ? &view->n_reads : &view->n_copies;
    *n += begins ? 1 : UINT64_MAX;
    view->in_flight += begins ? n_bytes : 0 - n_bytes;
    if (view->level < PLEC_NVTX_ALL) return;
    sample(view->nvtx, event->what == PLEC_TRACE_READ ? COUNT_READS : COUNT_COPIES, *n);
    sample(view->nvtx, COUNT_IN_FLIGHT, view->in_flight);
}

static void start_moving(struct plec_nvtx_view *view, const struct plec_tracer_event *event) {
    uint32_t i = 0;
    while (i < PLEC_NVTX_OPEN && view->open[i].what != 0)
        i++;
    if (i == PLEC_NVTX_OPEN) return;
    struct shown shown;
    describe(&shown, view->nvtx, event->what,
             plec_tracer_category((enum plec_tracer_what)event->what), event);
    view->open[i].id = event->id;
    view->open[i].what = event->what;
    view->open[i].n_bytes = event->n_bytes;
    view->open[i].range = nvtxDomainRangeStartEx(view->nvtx->domain, &shown.attributes);
    count_moving(view, event, event->n_bytes);
}

static void end_moving(struct plec_nvtx_view *view, const struct plec_tracer_event *event) {
    for (uint32_t i = 0; i < PLEC_NVTX_OPEN; i++) {
        if (view->open[i].what != event->what || view->open[i].id != event->id) continue;
        nvtxDomainRangeEnd(view->nvtx->domain, view->open[i].range);
        view->open[i].what = 0;
        count_moving(view, event, view->open[i].n_bytes);
        return;
    }
}

/* --- what a dispatch sums up to -------------------------------------------------------------- */

static void sum_up(const struct plec_nvtx_view *view, uint32_t string,
                   enum plec_nvtx_category category, const struct plec_tracer_event *end,
                   uint32_t n) {
    if (n == 0) return;
    struct plec_tracer_event event = {
        .layer = end->layer, .key = PLEC_NO_KEY, .id = end->id, .value = n};
    mark(view->nvtx, string, category, &event);
}

static void end_dispatch(struct plec_nvtx_view *view, const struct plec_tracer_event *end) {
    sum_up(view, HIT, PLEC_NVTX_PREFETCH, end, view->n_hits);
    sum_up(view, MISS, PLEC_NVTX_PREFETCH, end, view->n_misses);
    sum_up(view, EVICT, PLEC_NVTX_EVICT, end, view->n_evicted);
    view->n_hits = view->n_misses = view->n_evicted = 0;
}

/* One mark a layer with counts, not one an expert. */
static void count_moment(struct plec_nvtx_view *view, const struct plec_tracer_event *event) {
    uint32_t n = (uint32_t)__builtin_popcountll(event->mask);
    uint32_t hits = (uint32_t)__builtin_popcountll(event->in_slot);
    switch (event->what) {
    case PLEC_TRACE_HAND_OUT: view->n_hits += hits, view->n_misses += n - hits; return;
    case PLEC_TRACE_EVICT_SLOT: view->n_evicted += n; return;
    case PLEC_TRACE_PINNED: sample(view->nvtx, COUNT_PINNED, event->n_bytes); return;
    default: return;
    }
}

void plec_nvtx_show(struct plec_nvtx_view *view, const struct plec_tracer_event *event) {
    if (view->level < levels[event->what]) return;
    const struct plec_nvtx *nvtx = view->nvtx;
    enum plec_nvtx_category category = plec_tracer_category((enum plec_tracer_what)event->what);
    bool begins = event->phase == PLEC_TRACE_BEGIN;
    struct shown shown;
    plec_nvtx_name_thread();
    switch (event->what) {
    case PLEC_TRACE_READ:
    case PLEC_TRACE_COPY:
        if (begins)
            start_moving(view, event);
        else
            end_moving(view, event);
        return;
    case PLEC_TRACE_READY:
    case PLEC_TRACE_CANCEL: mark(nvtx, event->what, category, event); return;
    case PLEC_TRACE_HAND_OUT:
    case PLEC_TRACE_EVICT_SLOT:
    case PLEC_TRACE_EVICT_FRAME:
    case PLEC_TRACE_PINNED: count_moment(view, event); return;
    default: break;
    }
    if (!begins) {
        if (event->what == PLEC_TRACE_DISPATCH) end_dispatch(view, event);
        nvtxDomainRangePop(nvtx->domain);
        return;
    }
    describe(&shown, nvtx, event->what, category, event);
    nvtxDomainRangePushEx(nvtx->domain, &shown.attributes);
}

#endif
