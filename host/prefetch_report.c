/* What the scheduler tells: counters, its watchdog, a picture of its state, its own audit. */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "host/prefetch_parts.h"

static const char *const urgency_names[] = {"demand", "certain", "likely", "idle"};

static uint32_t count_queued(const struct plec_prefetch *prefetch, int urgency) {
    uint32_t n = 0;
    for (int q = 0; q < PLEC_N_QUEUES; q++)
        n += prefetch->queues[q][urgency].n;
    return n;
}

void plec_prefetch_get_counters(struct plec_prefetch_counters *out,
                                const struct plec_prefetch *prefetch) {
    *out = prefetch->counters;
    for (int c = 0; c < PLEC_N_URGENCIES; c++)
        out->classes[c].queued = count_queued(prefetch, c);
    out->n_requests = prefetch->n_requests;
    out->n_waiting = prefetch->n_waiting;
    out->n_untaken = prefetch->n_untaken;
}

/* --- the picture --------------------------------------------------------------------------- */

struct text {
    char *at;
    size_t left;
};

static void say(struct text *text, const char *format, ...) PLEC_PRINTF(2, 3);
static void say(struct text *text, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text->at, text->left, format, args);
    va_end(args);
    size_t written = n < 0 ? 0 : (size_t)n < text->left ? (size_t)n : text->left - 1;
    text->at += written;
    text->left -= written;
}

static void say_tier(struct text *text, const char *name, const struct plec_residency *tier) {
    struct plec_residency_counters counters;
    plec_residency_get_counters(&counters, tier);
    say(text, "%s: %u free, %u at rest, %u in use, %" PRIu64 " refused\n", name, counters.free,
        counters.at_rest, counters.in_use, counters.refused);
}

static void say_classes(struct text *text, const struct plec_prefetch *prefetch) {
    for (int c = 0; c < PLEC_N_URGENCIES; c++) {
        const struct plec_class_counters *counters = &prefetch->counters.classes[c];
        say(text, "%s: %u queued, %u reads (%" PRIu64 " bytes) and %u copies under way\n",
            urgency_names[c], count_queued(prefetch, c), counters->reading, counters->reading_bytes,
            counters->copying);
    }
}

static void say_demand(struct text *text, const struct plec_prefetch *prefetch,
                       const struct plec_demand *demand, uint64_t now) {
    const struct plec_load *load = &prefetch->loads[demand->load];
    say(text,
        "demand: key %u experts %" PRIx64 " waits %" PRIu64 " ms: in frame %" PRIx64
        ", on device %" PRIx64 ", reading %" PRIx64 ", copying %" PRIx64 ", %s frame, %s slot\n",
        demand->result.key, demand->result.mask, (now - demand->asked_at) / 1000000,
        plec_residency_valid(prefetch->options.host, load->key),
        prefetch->options.device != NULL ? plec_residency_valid(prefetch->options.device, load->key)
                                         : 0,
        load->reading, load->copying, load->holds_frame ? "holds" : "no",
        load->holds_slot ? "holds" : "no");
}

static void say_job(struct text *text, const struct plec_prefetch *prefetch,
                    const struct plec_started *job, uint64_t now) {
    say(text,
        "job %u: %s %s key %u experts %" PRIx64 " at %" PRIu64 ", %" PRIu64 " bytes, for %" PRIu64
        " ms\n",
        job->id, urgency_names[job->urgency], job->kind == PLEC_JOB_READ ? "read" : "copy",
        prefetch->loads[job->load].key, job->mask, job->at, job->n_bytes,
        (now - job->started_at) / 1000000);
}

void plec_prefetch_dump(const struct plec_prefetch *prefetch, uint64_t now, char *out,
                        size_t size) {
    if (size == 0) return;
    out[0] = 0;
    struct text text = {out, size};
    say(&text, "position %" PRIu64 ": %u demands wait, %u not taken, %u requests, %u reads\n",
        prefetch->position, prefetch->n_waiting, prefetch->n_untaken, prefetch->n_requests,
        prefetch->n_reading);
    say_classes(&text, prefetch);
    say_tier(&text, "frames", prefetch->options.host);
    if (prefetch->options.device != NULL) say_tier(&text, "slots", prefetch->options.device);
    for (uint32_t d = 0; d < prefetch->options.max_demands; d++)
        if (prefetch->demands[d].phase == PLEC_DEMAND_WAITS)
            say_demand(&text, prefetch, &prefetch->demands[d], now);
    for (uint32_t i = 0; i < prefetch->n_started; i++)
        if (prefetch->started[i].id != 0) say_job(&text, prefetch, &prefetch->started[i], now);
}

/* --- the watchdog -------------------------------------------------------------------------- */

static void give_up(struct plec_prefetch *prefetch, uint32_t d, bool stalled) {
    struct plec_demand *demand = &prefetch->demands[d];
    uint64_t ms = (prefetch->now - demand->asked_at) / 1000000;
    if (stalled)
        plec_fail(&demand->result.error, PLEC_IO, "DemandStalled",
                  "extent %u: waited %" PRIu64 " ms while nothing moved", demand->result.key, ms);
    else
        plec_fail(&demand->result.error, PLEC_CANCELLED, "DeadlinePast",
                  "extent %u: not there after %" PRIu64 " ms", demand->result.key, ms);
    uint32_t l = demand->load;
    plec_demand_end(prefetch, d, stalled ? PLEC_IO : PLEC_CANCELLED);
    plec_load_refresh(prefetch, l);
}

bool plec_prefetch_expire(struct plec_prefetch *prefetch, uint64_t now, char *dump, size_t size) {
    prefetch->now = now;
    if (prefetch->n_waiting == 0) return false;
    uint64_t patience = prefetch->options.watchdog_ns;
    bool still = now - prefetch->last_sign_ns >= patience, stalled = false;
    for (uint32_t d = 0; d < prefetch->options.max_demands; d++) {
        const struct plec_demand *demand = &prefetch->demands[d];
        if (demand->phase != PLEC_DEMAND_WAITS) continue;
        bool stuck = still && now - demand->asked_at >= patience;
        if (stuck && !stalled && dump != NULL) plec_prefetch_dump(prefetch, now, dump, size);
        stalled = stalled || stuck;
        if (stuck || (demand->deadline != 0 && now >= demand->deadline))
            give_up(prefetch, d, stuck);
    }
    prefetch->counters.stalls += stalled;
    return stalled;
}

/* --- the audit ----------------------------------------------------------------------------- */

static const char *load_fault(const struct plec_prefetch *prefetch, uint32_t l) {
    const struct plec_load *load = &prefetch->loads[l];
    uint64_t seen = 0, demanded = 0, reading = 0, copying = 0;
    for (int c = 0; c < PLEC_N_URGENCIES; c++) {
        if ((load->want[c] & seen) != 0) return "an expert is wanted in two classes";
        seen |= load->want[c];
        bool readable = plec_load_readable(prefetch, load, c) != 0;
        bool copyable = plec_load_copyable(prefetch, load, c) != 0;
        if (readable != (plec_heap_has(&prefetch->queues[PLEC_TO_READ][c], l) ||
                         plec_heap_has(&prefetch->queues[PLEC_TO_READ_PLACED][c], l)))
            return "what can be read is not queued, or the reverse";
        if (copyable != (plec_heap_has(&prefetch->queues[PLEC_TO_COPY][c], l) ||
                         plec_heap_has(&prefetch->queues[PLEC_TO_COPY_PLACED][c], l)))
            return "what can be copied is not queued, or the reverse";
    }
    struct plec_residency *final = plec_final_tier(prefetch);
    for (uint32_t d = load->demands; d != PLEC_NONE; d = prefetch->demands[d].next)
        demanded |= prefetch->demands[d].result.mask;
    demanded &= ~plec_residency_valid(final, load->key);
    if (demanded != load->want[PLEC_DEMAND]) return "what demands miss is not wanted";
    if (load->demands != PLEC_NONE && demanded == 0) return "a demand waits for what is there";
    for (uint32_t i = 0; i < prefetch->n_started; i++) {
        const struct plec_started *job = &prefetch->started[i];
        if (job->id == 0 || job->kind != PLEC_JOB_READ || job->load != l) continue;
        if ((reading & job->mask) != 0) return "an expert is read twice";
        reading |= job->mask;
    }
    for (uint32_t m = 0; m < prefetch->n_moves; m++)
        if (prefetch->moves[m].load == l) copying |= prefetch->moves[m].mask;
    if (reading != load->reading || copying != load->copying) return "jobs and loads disagree";
    if (load->demands == PLEC_NONE && (load->holds_frame || load->holds_slot))
        return "a hold without a demand";
    if (seen == 0 && reading == 0 && copying == 0) return "a load with nothing to do";
    return NULL;
}

bool plec_prefetch_sound(const struct plec_prefetch *prefetch, const char **broken) {
    uint32_t n_counted = 0, n_waiting = 0, n_untaken = 0, n_reading = 0;
    if (!plec_residency_sound(prefetch->options.host, broken)) return false;
    if (prefetch->options.device != NULL && !plec_residency_sound(prefetch->options.device, broken))
        return false;
    for (uint32_t l = 0; l < prefetch->n_loads && *broken == NULL; l++) {
        if (prefetch->loads[l].key == PLEC_NO_KEY) continue;
        if (prefetch->key_load[prefetch->loads[l].key] != l) *broken = "a load no key leads to";
        if (*broken == NULL) *broken = load_fault(prefetch, l);
        n_counted += prefetch->loads[l].counted;
    }
    for (uint32_t d = 0; d < prefetch->options.max_demands; d++) {
        n_waiting += prefetch->demands[d].phase == PLEC_DEMAND_WAITS;
        n_untaken += prefetch->demands[d].phase == PLEC_DEMAND_ENDED;
    }
    for (uint32_t i = 0; i < prefetch->n_started; i++)
        n_reading += prefetch->started[i].id != 0 && prefetch->started[i].kind == PLEC_JOB_READ;
    for (int q = 0; q < PLEC_N_QUEUES; q++)
        for (int c = 0; c < PLEC_N_URGENCIES; c++)
            if ((prefetch->queues[q][c].n > 0) != ((prefetch->filled & plec_queue_bit(q, c)) != 0))
                *broken = "a queue is taken for empty, or the reverse";
    if (*broken == NULL && n_counted != prefetch->n_requests) *broken = "requests miscounted";
    if (*broken == NULL && (n_waiting != prefetch->n_waiting || n_untaken != prefetch->n_untaken))
        *broken = "demands miscounted";
    if (*broken == NULL && n_reading != prefetch->n_reading) *broken = "reads miscounted";
    if (*broken == NULL && n_counted > prefetch->options.max_requests) *broken = "the queue grew";
    return *broken == NULL;
}
