/* Trace files: valid whatever the trace has seen, and equal to the counters. */
#include "host/tracer_json.h"
#include "tests/support/stream_model.h"
#include "tests/support/trace_json.h"
#include "tests/support/traced.h"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <thread>
#include <vector>

using namespace plec_test;

namespace {

const plec_tracer_about about = {"0.0", "a \"model\" in C:\\ \xff\n", "a host", "a device"};

/* Writes what a tracer holds now; the path. */
std::string write_trace(Traced *traced, const TempDir &dir) {
    std::string path = dir.path("trace.json");
    plec_error error = {};
    traced->read();
    EXPECT_EQ(plec_tracer_write_json(path.c_str(), &traced->seen, &about, &error), PLEC_OK)
        << error.message;
    return path;
}

plec_stream_options small_budget(const StreamModel &model, uint32_t n_slots, uint32_t n_frames) {
    plec_stream_options stream = {};
    stream.extent_width = 3;
    stream.device_budget = UINT64_C(1) << 30;
    StreamRunner runner(model.path(), stream, 1);
    uint64_t frame_bytes = runner.stats().frame_bytes;
    stream.device_budget = n_slots * frame_bytes;
    stream.pinned_budget = n_frames * frame_bytes;
    return stream;
}

void run_steps(const StreamModel &model, const StreamRunner &runner, int n_steps, uint32_t seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < n_steps; i++)
        for (uint32_t layer = 0; layer < model.spec.n_layers; layer++)
            runner.run(StreamStep::random(random, model.spec, layer, 1 + random() % 4,
                                          model.spec.n_experts));
}

TEST(TracerJson, AnEmptyTraceIsAFileToo) {
    TempDir dir;
    Traced traced;
    TraceFile file(write_trace(&traced, dir));
    EXPECT_TRUE(file.n_slices.empty());
    EXPECT_STREQ(json_string_value(json_object_get(file.other(), "model")),
                 "a \"model\" in C:\\ ??");
    EXPECT_EQ(json_integer_value(json_object_get(file.other(), "lost")), 0);
}

TEST(TracerJson, WaitsAreTheStallAndBytesAreWhatTheIoLayerMoved) {
    TempDir dir;
    StreamModelSpec spec;
    spec.n_layers = 3, spec.router = true;
    StreamModel model(spec);
    bool streamer_worked = false;
    for (uint32_t n_slots : {1u, 3u, 40u}) {
        Traced traced;
        plec_stream_stats stats;
        {
            plec_stream_options stream = small_budget(model, n_slots, 1 + n_slots / 2);
            stream.speculation = PLEC_SPECULATE_ON;
            StreamRunner runner(model.path(), stream, 2, 64, 64, traced.tracer);
            run_steps(model, runner, 8, n_slots);
            stats = runner.settled();
        }
        TraceFile file(write_trace(&traced, dir));
        EXPECT_EQ(file.slice_ns["extent.wait"], stats.stall_ns);
        EXPECT_EQ(file.n_slices["extent.wait"], stats.waits);
        EXPECT_EQ(file.sums["extent.read.bytes"], stats.io.bytes);
        EXPECT_EQ(file.sums["extent.read.bytes"], stats.read_bytes);
        EXPECT_EQ(file.sums["extent.h2d.bytes"], stats.copied_bytes);
        EXPECT_EQ(file.sums["extent.use.device_bytes"], stats.device_hit_bytes);
        EXPECT_EQ(file.sums["extent.use.host_bytes"], stats.host_hit_bytes);
        EXPECT_EQ(file.sums["extent.use.disk_bytes"], stats.disk_miss_bytes);
        EXPECT_EQ(file.n_slices["moe.layer"], 24u);
        EXPECT_EQ(file.n_slices["moe.dispatch"], stats.dispatches);
        EXPECT_GT(file.n_slices["moe.gate_up"], 0u);
        EXPECT_EQ(file.n_truncated, 0u);
        EXPECT_GT(file.n_flows, 0u);
        EXPECT_GT(file.n_lives, 0u);
        EXPECT_EQ(file.last_counter["in-flight bytes.read"], 0);
        EXPECT_EQ(file.last_counter["in-flight bytes.copy"], 0);
        EXPECT_EQ(file.last_counter["queue depth.reads"], 0);
        /* GB/s times ns is bytes. */
        double read = static_cast<double>(stats.read_bytes);
        double copied = static_cast<double>(stats.copied_bytes);
        EXPECT_NEAR(file.area("read GB/s.rate"), read, 0.001 * read);
        EXPECT_NEAR(file.area("copy GB/s.rate"), copied, 0.001 * copied);
        EXPECT_EQ(file.last_counter["pinned bytes.bytes"], stats.pinned.pinned_bytes);
        double hits = 100.0 * static_cast<double>(stats.device_hits);
        EXPECT_NEAR(file.last_counter["hit %.device"], hits / static_cast<double>(stats.experts),
                    0.01);
        streamer_worked |= file.thread_names.count("plec-streamer") == 1;
        EXPECT_EQ(file.thread_names.count("plec-compute"), 1u);
    }
    /* Whoever waits does the work as well: a run can end before the streamer's own thread had any.
     */
    EXPECT_TRUE(streamer_worked);
}

/* Each use of experts that came from a file is led to from its read. */
TEST(TracerJson, EveryExtentThatWasFetchedIsLedToItsUse) {
    TempDir dir;
    StreamModel model;
    Traced traced;
    {
        plec_stream_options stream = small_budget(model, 40, 40);
        stream.speculation = PLEC_SPECULATE_OFF;
        StreamRunner runner(model.path(), stream, 1, 64, 64, traced.tracer);
        std::mt19937 random(1);
        for (int32_t expert : {0, 3, 6, 9}) /* an extent each */
            runner.run(StreamStep::of(random, model.spec, 0, {expert}));
    }
    TraceFile file(write_trace(&traced, dir));
    EXPECT_EQ(file.n_slices["extent.read"], 4u);
    EXPECT_EQ(file.n_lives, 4u);
    EXPECT_EQ(file.n_flows, 4u);
}

/* While an expert is copied from its frame it is read again, in an extent that is read whole: the
 * second read is not where the copy came from. */
TEST(TracerJson, ACopyIsNotLedToFromAReadThatEndedAfterItBegan) {
    const struct {
        uint8_t what, phase;
        uint64_t id;
    } events[] = {
        {PLEC_TRACE_LAYER, PLEC_TRACE_BEGIN, 1},     {PLEC_TRACE_READ, PLEC_TRACE_BEGIN, 2},
        {PLEC_TRACE_READ, PLEC_TRACE_END, 2},        {PLEC_TRACE_COPY, PLEC_TRACE_BEGIN, 3},
        {PLEC_TRACE_READ, PLEC_TRACE_BEGIN, 4},      {PLEC_TRACE_READ, PLEC_TRACE_END, 4},
        {PLEC_TRACE_COPY, PLEC_TRACE_END, 3},        {PLEC_TRACE_READY, PLEC_TRACE_MOMENT, 0},
        {PLEC_TRACE_HAND_OUT, PLEC_TRACE_MOMENT, 0}, {PLEC_TRACE_LAYER, PLEC_TRACE_END, 1}};
    TempDir dir;
    Traced traced;
    uint64_t at_ns = 1000;
    for (const auto &event : events) {
        plec_tracer_event out = {};
        out.at_ns = at_ns += 1000;
        out.id = event.id, out.what = event.what, out.phase = event.phase;
        out.key = event.what == PLEC_TRACE_LAYER ? uint32_t(PLEC_NO_KEY) : 0;
        out.mask = out.n_bytes = 1;
        plec_tracer_add(traced.tracer, &out);
    }
    TraceFile file(write_trace(&traced, dir)); /* checks the order of a flow's points */
    EXPECT_EQ(file.n_flows, 1u);
}

TEST(TracerJson, IsValidWhereverTheTraceIsCut) {
    TempDir dir;
    StreamModel model;
    Traced traced;
    {
        StreamRunner runner(model.path(), small_budget(model, 2, 2), 2, 64, 64, traced.tracer);
        run_steps(model, runner, 3, 7);
    }
    traced.read();
    uint64_t cut = 0, n = traced.seen.n_events;
    ASSERT_GT(n, 100u);
    std::string path = dir.path("cut.json");
    /* Beginnings, ends, and pieces from the middle. */
    for (uint64_t at = 0; at <= n; at += 1 + n / 41)
        for (bool front : {true, false}) {
            plec_tracer_snapshot part = traced.seen;
            part.events += front ? at : 0;
            part.n_events = front ? n - at : at;
            part.read_ns = at == 0 ? part.read_ns : 0;
            ASSERT_EQ(plec_tracer_write_json(path.c_str(), &part, &about, nullptr), PLEC_OK);
            TraceFile file(path);
            cut += file.n_truncated;
            if (testing::Test::HasFailure()) FAIL() << "cut at " << at << " of " << n;
        }
    EXPECT_GT(cut, 0u);
}

TEST(TracerJson, WhatARingLostIsSaid) {
    TempDir dir;
    StreamModel model;
    Traced traced(64);
    {
        StreamRunner runner(model.path(), small_budget(model, 2, 2), 2, 64, 64, traced.tracer);
        run_steps(model, runner, 6, 7);
    }
    TraceFile file(write_trace(&traced, dir));
    EXPECT_GT(json_integer_value(json_object_get(file.other(), "lost")), 0);
}

TEST(TracerJson, MayBeWrittenWhileThreadsRecord) {
    TempDir dir;
    StreamModel model;
    Traced traced(1024);
    std::atomic<bool> stop{false};
    std::thread busy([&] {
        StreamRunner runner(model.path(), small_budget(model, 2, 2), 2, 64, 64, traced.tracer);
        for (uint32_t seed = 0; !stop; seed++)
            run_steps(model, runner, 1, seed);
    });
    for (int i = 0; i < 8; i++)
        TraceFile file(write_trace(&traced, dir));
    stop = true;
    busy.join();
}

TEST(TracerJson, AFailedReadAndACancelledForwardAreInIt) {
    TempDir dir;
    StreamModel model;
    Traced traced;
    {
        plec_stream_options stream = small_budget(model, 3, 3);
        stream.io_fault.before = [](void *, uint32_t, uint64_t, uint64_t) { return EIO; };
        StreamRunner runner(model.path(), stream, 1, 64, 64, traced.tracer);
        std::mt19937 random(1);
        std::vector<float> out;
        plec_error error = {};
        EXPECT_EQ(runner.forward(StreamStep::of(random, model.spec, 0, {1, 2}), &out, &error),
                  PLEC_IO);
    }
    TraceFile file(write_trace(&traced, dir));
    EXPECT_GT(file.n_moments["extent.cancel"], 0u);
    EXPECT_EQ(file.n_moments["extent.ready"], 0u);
}

TEST(TracerJson, AFolderThatIsNotThereIsAnError) {
    TempDir dir;
    Traced traced;
    traced.read();
    plec_error error = {};
    EXPECT_EQ(
        plec_tracer_write_json(dir.path("no/trace.json").c_str(), &traced.seen, &about, &error),
        PLEC_IO);
    EXPECT_STREQ(error.name, "CannotCreate");
}

} // namespace
