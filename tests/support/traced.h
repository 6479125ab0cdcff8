/* traced.h: a tracer that records, and what it held when it was last read. */
#ifndef PLEC_TESTS_SUPPORT_TRACED_H
#define PLEC_TESTS_SUPPORT_TRACED_H

#include <gtest/gtest.h>

#include <map>
#include <utility>

#include "host/tracer.h"

namespace plec_test {

struct Traced {
    explicit Traced(uint32_t events_per_thread = 0) {
        plec_tracer_options options = {};
        options.record = true;
        options.events_per_thread = events_per_thread;
        EXPECT_EQ(plec_tracer_open(&tracer, &options, nullptr), PLEC_OK);
    }
    ~Traced() {
        plec_tracer_snapshot_close(&seen);
        plec_tracer_close(tracer);
    }
    Traced(const Traced &) = delete;
    Traced &operator=(const Traced &) = delete;

    void read() {
        plec_tracer_snapshot_close(&seen);
        EXPECT_EQ(plec_tracer_read(&seen, tracer, nullptr), PLEC_OK);
    }
    const plec_tracer_event *begin() const { return seen.events; }
    const plec_tracer_event *end() const { return seen.events + seen.n_events; }

    /* Ends, or moments, of a kind; their bytes; and the time of its ranges, by thread. */
    uint64_t ends(plec_tracer_what what) const {
        uint64_t n = 0;
        for (const plec_tracer_event &event : *this)
            n += event.what == what && event.phase != PLEC_TRACE_BEGIN;
        return n;
    }
    uint64_t bytes(plec_tracer_what what) const {
        uint64_t n = 0;
        for (const plec_tracer_event &event : *this)
            if (event.what == what && event.phase != PLEC_TRACE_BEGIN) n += event.n_bytes;
        return n;
    }
    uint64_t span(plec_tracer_what what) const {
        uint64_t total = 0;
        std::map<uint32_t, uint64_t> begun;
        for (const plec_tracer_event &event : *this) {
            if (event.what != what) continue;
            if (event.phase == PLEC_TRACE_BEGIN)
                begun[event.thread] = event.at_ns;
            else
                total += event.at_ns - begun.at(event.thread);
        }
        return total;
    }

    plec_tracer *tracer = nullptr;
    plec_tracer_snapshot seen = {};
};

} // namespace plec_test
#endif
