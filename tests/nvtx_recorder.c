/* nvtx_recorder.c: a library that NVTX loads (NVTX_INJECTION64_PATH) and that writes all it is told
 * as JSON lines to the file PLEC_NVTX_RECORD. For tests of what a profiler would see.
 *
 * Each line has "t": hook, domain, category, string, thread, schema, counter, sample, push, pop,
 * start, end, mark. With PLEC_NVTX_PLAIN set it plays an old tool, which knows no extension. The
 * hook runs once for every shared object that includes NVTX: all of them write into one file. Names
 * are written as they are: ours need no escapes.
 */
#include <inttypes.h>
#include <nvtx3/nvToolsExt.h>
#include <nvtx3/nvToolsExtCounters.h>
#include <nvtx3/nvToolsExtPayload.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* What NVTX looks for in the library. */
#define EXPORTED __attribute__((visibility("default")))
EXPORTED int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table);
EXPORTED int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module);

enum { MAX_NAMES = 256, MAX_ENTRIES = 32, NAME_BYTES = 64 };

/* Handles are pointers into these; a line is written whole. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static FILE *record;
static char names[MAX_NAMES][NAME_BYTES];
static uint32_t n_names;
static uint64_t n_ranges, n_counters;

static struct schema {
    char name[NAME_BYTES];
    struct {
        char name[NAME_BYTES];
        uint64_t type, offset;
    } entries[MAX_ENTRIES];
    size_t n_entries;
} schema;
static const uint64_t SCHEMA_ID = UINT64_C(1) << 33;

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void begin_line(const char *what, uint64_t at_ns) {
    fprintf(record, "{\"t\":\"%s\",\"at\":%" PRIu64 ",\"tid\":%ld", what, at_ns,
            (long)syscall(SYS_gettid));
}

static void write_line(const char *what, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static void write_line(const char *what, const char *format, ...) {
    va_list args;
    uint64_t at_ns = now_ns();
    pthread_mutex_lock(&lock);
    begin_line(what, at_ns);
    va_start(args, format);
    vfprintf(record, format, args);
    va_end(args);
    fputs("}\n", record);
    fflush(record);
    pthread_mutex_unlock(&lock);
}

/* A handle for a name, which stays. */
static char *keep_name(const char *name) {
    pthread_mutex_lock(&lock);
    char *kept = names[n_names < MAX_NAMES - 1 ? n_names++ : n_names];
    snprintf(kept, NAME_BYTES, "%s", name);
    pthread_mutex_unlock(&lock);
    return kept;
}

/* --- events ---------------------------------------------------------------------------------- */

static uint64_t read_number(const uint8_t *at, uint64_t type) {
    uint64_t value = 0;
    size_t n = type == NVTX_PAYLOAD_ENTRY_TYPE_UINT8    ? 1
               : type == NVTX_PAYLOAD_ENTRY_TYPE_UINT16 ? 2
               : type == NVTX_PAYLOAD_ENTRY_TYPE_UINT32 ? 4
                                                        : 8;
    memcpy(&value, at, n);
    return value;
}

static void write_extended(const nvtxEventAttributes_t *event) {
    const nvtxPayloadData_t *data = (const nvtxPayloadData_t *)(uintptr_t)event->payload.ullValue;
    for (int32_t i = 0; i < event->reserved0; i++) {
        if (data[i].schemaId == NVTX_PAYLOAD_ENTRY_TYPE_UINT64) {
            fprintf(record, ",\"packed\":\"%" PRIx64 "\"",
                    read_number(data[i].payload, NVTX_PAYLOAD_ENTRY_TYPE_UINT64));
            continue;
        }
        if (data[i].schemaId != SCHEMA_ID) continue;
        fputs(",\"payload\":{", record);
        for (size_t e = 0; e < schema.n_entries; e++)
            fprintf(record, "%s\"%s\":%" PRIu64, e == 0 ? "" : ",", schema.entries[e].name,
                    read_number((const uint8_t *)data[i].payload + schema.entries[e].offset,
                                schema.entries[e].type));
        fputs("}", record);
    }
}

static void write_event(const char *what, nvtxDomainHandle_t domain,
                        const nvtxEventAttributes_t *event, uint64_t range) {
    uint64_t at_ns = now_ns();
    bool registered = event->messageType == NVTX_MESSAGE_TYPE_REGISTERED;
    pthread_mutex_lock(&lock);
    begin_line(what, at_ns);
    fprintf(
        record,
        ",\"domain\":\"%s\",\"registered\":%s,\"name\":\"%s\",\"category\":%u,\"colour\":\"%08x\"",
        (const char *)domain, registered ? "true" : "false",
        registered ? (const char *)event->message.registered : "", event->category, event->color);
    if (range != 0) fprintf(record, ",\"range\":%" PRIu64, range);
    if (event->payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64)
        fprintf(record, ",\"packed\":\"%" PRIx64 "\"", event->payload.ullValue);
    if (event->payloadType == NVTX_PAYLOAD_TYPE_EXT) write_extended(event);
    fputs("}\n", record);
    fflush(record);
    pthread_mutex_unlock(&lock);
}

static int range_push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
    write_event("push", domain, event, 0);
    return 0;
}

static int range_pop(nvtxDomainHandle_t domain) {
    write_line("pop", ",\"domain\":\"%s\"", (const char *)domain);
    return 0;
}

static nvtxRangeId_t range_start(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
    uint64_t range = __atomic_add_fetch(&n_ranges, 1, __ATOMIC_RELAXED);
    write_event("start", domain, event, range);
    return range;
}

static void range_end(nvtxDomainHandle_t domain, nvtxRangeId_t range) {
    write_line("end", ",\"domain\":\"%s\",\"range\":%" PRIu64, (const char *)domain, range);
}

static void mark(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *event) {
    write_event("mark", domain, event, 0);
}

/* --- names ----------------------------------------------------------------------------------- */

static nvtxDomainHandle_t domain_create(const char *name) {
    write_line("domain", ",\"name\":\"%s\"", name);
    return (nvtxDomainHandle_t)(void *)keep_name(name);
}

static nvtxStringHandle_t register_string(nvtxDomainHandle_t domain, const char *name) {
    write_line("string", ",\"domain\":\"%s\",\"name\":\"%s\"", (const char *)domain, name);
    return (nvtxStringHandle_t)(void *)keep_name(name);
}

static void name_category(nvtxDomainHandle_t domain, uint32_t category, const char *name) {
    write_line("category", ",\"domain\":\"%s\",\"category\":%u,\"name\":\"%s\"",
               (const char *)domain, category, name);
}

static void name_thread(uint32_t tid, const char *name) {
    write_line("thread", ",\"id\":%u,\"name\":\"%s\"", tid, name);
}

/* --- extensions ------------------------------------------------------------------------------ */

static uint64_t register_schema(nvtxDomainHandle_t domain, const nvtxPayloadSchemaAttr_t *from) {
    (void)domain;
    pthread_mutex_lock(&lock);
    snprintf(schema.name, sizeof schema.name, "%s", from->name);
    schema.n_entries = from->numEntries < MAX_ENTRIES ? from->numEntries : MAX_ENTRIES;
    for (size_t i = 0; i < schema.n_entries; i++) {
        snprintf(schema.entries[i].name, NAME_BYTES, "%s", from->entries[i].name);
        schema.entries[i].type = from->entries[i].type;
        schema.entries[i].offset = from->entries[i].offset;
    }
    pthread_mutex_unlock(&lock);
    write_line("schema", ",\"name\":\"%s\",\"entries\":%zu", from->name, from->numEntries);
    return SCHEMA_ID;
}

static uint64_t register_counter(nvtxDomainHandle_t domain, const nvtxCounterAttr_t *from) {
    (void)domain;
    uint64_t id = __atomic_add_fetch(&n_counters, 1, __ATOMIC_RELAXED);
    write_line("counter", ",\"name\":\"%s\",\"id\":%" PRIu64, from->name, id);
    return id;
}

static void sample_counter(nvtxDomainHandle_t domain, uint64_t counter, int64_t value) {
    (void)domain;
    write_line("sample", ",\"id\":%" PRIu64 ",\"value\":%" PRId64, counter, value);
}

EXPORTED int InitializeInjectionNvtxExtension(nvtxExtModuleInfo_t *module) {
    if (getenv("PLEC_NVTX_PLAIN") != NULL || record == NULL || module->segmentsCount == 0) return 0;
    intptr_t *slots = module->segments[0].functionSlots;
    if (module->moduleId == NVTX_EXT_PAYLOAD_MODULEID)
        slots[NVTX3EXT_CBID_nvtxPayloadSchemaRegister] = (intptr_t)register_schema;
    if (module->moduleId == NVTX_EXT_COUNTERS_MODULEID) {
        slots[NVTX3EXT_CBID_nvtxCounterRegister] = (intptr_t)register_counter;
        slots[NVTX3EXT_CBID_nvtxCounterSampleInt64] = (intptr_t)sample_counter;
    }
    return 1;
}

/* --- the hook -------------------------------------------------------------------------------- */

static void take(const NvtxExportTableCallbacks *callbacks, NvtxCallbackModule module, uint32_t id,
                 NvtxFunctionPointer function) {
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    if (callbacks->GetModuleFunctionTable(module, &table, &size) && id < size)
        *table[id] = function;
}

static void open_record(void) {
    const char *path = getenv("PLEC_NVTX_RECORD");
    if (path != NULL) record = fopen(path, "a");
}

EXPORTED int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_export_table) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    static const struct {
        uint32_t id;
        NvtxFunctionPointer function;
    } functions[] = {
        {NVTX_CBID_CORE2_DomainCreateA, (NvtxFunctionPointer)domain_create},
        {NVTX_CBID_CORE2_DomainRegisterStringA, (NvtxFunctionPointer)register_string},
        {NVTX_CBID_CORE2_DomainNameCategoryA, (NvtxFunctionPointer)name_category},
        {NVTX_CBID_CORE2_DomainRangePushEx, (NvtxFunctionPointer)range_push},
        {NVTX_CBID_CORE2_DomainRangePop, (NvtxFunctionPointer)range_pop},
        {NVTX_CBID_CORE2_DomainRangeStartEx, (NvtxFunctionPointer)range_start},
        {NVTX_CBID_CORE2_DomainRangeEnd, (NvtxFunctionPointer)range_end},
        {NVTX_CBID_CORE2_DomainMarkEx, (NvtxFunctionPointer)mark},
    };
    const NvtxExportTableCallbacks *callbacks = get_export_table(NVTX_ETID_CALLBACKS);
    pthread_once(&once, open_record);
    if (callbacks == NULL || record == NULL) return 0;
    write_line("hook", ",\"pid\":%ld", (long)getpid());
    for (size_t i = 0; i < sizeof functions / sizeof functions[0]; i++)
        take(callbacks, NVTX_CB_MODULE_CORE2, functions[i].id, functions[i].function);
    take(callbacks, NVTX_CB_MODULE_CORE, NVTX_CBID_CORE_NameOsThreadA,
         (NvtxFunctionPointer)name_thread);
    return 1;
}
