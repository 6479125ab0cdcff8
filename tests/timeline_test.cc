/* The picture of a trace: well-formed whatever it is of, true in its counts and places, and small
 * however much happened. */
#include "tools/plectrum/timeline.h"

#include "tests/support/data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>

using namespace plec_test;

namespace {

const uint64_t MS = 1000000;

/* Events made up, as a tracer would give them. */
class Recording {
  public:
    Recording() {
        add_thread("main");
        add_thread("compute");
        snapshot.start_ns = 0;
    }
    void add_thread(const char *name) {
        plec_tracer_thread thread = {};
        thread.tid = static_cast<uint32_t>(100 + threads_.size());
        snprintf(thread.name, sizeof thread.name, "%s", name);
        threads_.push_back(thread);
    }
    plec_tracer_event &event(plec_tracer_what what, plec_tracer_phase phase, uint64_t at_ns,
                             uint32_t thread = 0) {
        plec_tracer_event e = {};
        e.what = static_cast<uint8_t>(what);
        e.phase = static_cast<uint8_t>(phase);
        e.at_ns = at_ns;
        e.layer = UINT32_MAX;
        e.thread = thread;
        events_.push_back(e);
        return events_.back();
    }
    void range(plec_tracer_what what, uint64_t from, uint64_t to, uint32_t layer,
               uint32_t thread = 0) {
        event(what, PLEC_TRACE_BEGIN, from, thread).layer = layer;
        event(what, PLEC_TRACE_END, to, thread).layer = layer;
    }
    /* A read or a copy of some experts. */
    void move(plec_tracer_what what, uint64_t id, uint64_t from, uint64_t to, uint64_t n_bytes,
              plec_urgency urgency = PLEC_DEMAND) {
        for (plec_tracer_phase phase : {PLEC_TRACE_BEGIN, PLEC_TRACE_END}) {
            plec_tracer_event &e = event(what, phase, phase == PLEC_TRACE_BEGIN ? from : to, 1);
            e.id = id;
            e.layer = 3;
            e.extent = 2;
            e.first_expert = 16;
            e.mask = 7;
            e.n_bytes = n_bytes;
            e.urgency = static_cast<uint8_t>(urgency);
        }
    }
    void hand_out(uint64_t at, uint64_t mask, uint64_t in_slot, uint64_t in_frame) {
        plec_tracer_event &e = event(PLEC_TRACE_HAND_OUT, PLEC_TRACE_MOMENT, at);
        e.mask = mask;
        e.in_slot = in_slot;
        e.in_frame = in_frame;
    }
    std::string draw(uint64_t from = 0, uint64_t to = 0, const std::string &title = "a title") {
        std::stable_sort(events_.begin(), events_.end(),
                         [](const plec_tracer_event &a, const plec_tracer_event &b) {
                             return a.at_ns < b.at_ns;
                         });
        snapshot.events = events_.data();
        snapshot.n_events = events_.size();
        snapshot.threads = threads_.data();
        snapshot.n_threads = static_cast<uint32_t>(threads_.size());
        plec_timeline_panel panel = {"a panel", &snapshot, from, to};
        plec_timeline_args args = {title.c_str(), &panel, 1};
        plec_error err;
        EXPECT_EQ(plec_timeline_write(dir_.path("out.svg").c_str(), &args, &err), PLEC_OK)
            << err.message;
        return read_text(dir_.path("out.svg"));
    }
    plec_tracer_snapshot snapshot = {};

  private:
    std::vector<plec_tracer_event> events_;
    std::vector<plec_tracer_thread> threads_;
    TempDir dir_;
};

size_t count(const std::string &text, const std::string &part) {
    size_t n = 0;
    for (size_t at = 0; (at = text.find(part, at)) != std::string::npos; at += part.size())
        n++;
    return n;
}

/* Reads name="value" attributes up to the end of a tag's inside. */
bool attributes_well_formed(const std::string &inner, size_t at) {
    while (at < inner.size()) {
        if (inner[at] != ' ') return false;
        size_t equals = inner.find('=', at);
        if (equals == std::string::npos || equals + 1 >= inner.size()) return false;
        for (size_t i = at + 1; i < equals; i++)
            if (isalnum(inner[i]) == 0 && inner[i] != '-') return false;
        size_t end = inner.find('"', equals + 2);
        if (inner[equals + 1] != '"' || end == std::string::npos) return false;
        if (inner.substr(equals, end - equals).find_first_of("<&") != std::string::npos)
            return false;
        at = end + 1;
    }
    return true;
}

/* Every element is closed, every attribute quoted, every & an entity. */
void expect_well_formed(const std::string &svg) {
    std::vector<std::string> open;
    for (size_t at = 0; at < svg.size();) {
        if (svg[at] == '&') {
            std::string entity = svg.substr(at, svg.find(';', at) - at + 1);
            EXPECT_TRUE(entity == "&amp;" || entity == "&lt;" || entity == "&gt;" ||
                        entity == "&quot;" || entity == "&#39;")
                << entity;
        }
        ASSERT_NE(svg[at], '>') << svg.substr(at > 60 ? at - 60 : 0, 80);
        if (svg[at] != '<') {
            at++;
            continue;
        }
        size_t end = svg.find('>', at);
        ASSERT_NE(end, std::string::npos);
        std::string inner = svg.substr(at + 1, end - at - 1);
        bool closes = inner[0] == '/', empty = inner.back() == '/';
        if (empty) inner.pop_back();
        if (closes) inner.erase(0, 1);
        size_t name = 0;
        while (name < inner.size() && islower(inner[name]) != 0)
            name++;
        ASSERT_GT(name, 0u) << inner;
        ASSERT_TRUE(attributes_well_formed(inner, name)) << inner;
        if (closes) {
            ASSERT_FALSE(open.empty());
            EXPECT_EQ(open.back(), inner);
            open.pop_back();
        } else if (!empty) {
            open.push_back(inner.substr(0, name));
        }
        at = end + 1;
    }
    EXPECT_TRUE(open.empty());
}

/* The number of an attribute in a tag. */
double attribute(const std::string &tag, const std::string &name) {
    size_t at = tag.find(" " + name + "=\"");
    return at == std::string::npos ? NAN : atof(tag.c_str() + at + name.size() + 3);
}

/* The rectangles of a fill, in order. */
struct Box {
    double first, second, top, height; /* x, width */
};
std::vector<Box> boxes(const std::string &svg, const std::string &fill) {
    std::vector<Box> out;
    for (size_t at = 0; (at = svg.find("<rect ", at)) != std::string::npos; at++) {
        std::string tag = svg.substr(at, svg.find('>', at) - at);
        if (tag.find("fill=\"" + fill + "\"") != std::string::npos)
            out.push_back({attribute(tag, "x"), attribute(tag, "width"), attribute(tag, "y"),
                           attribute(tag, "height")});
    }
    return out;
}

const char *const READ = "#d9822b", *const AHEAD = "#f2b661", *const COPY = "#2f7fc1",
                  *const WAIT = "#d1343a", *const COMPUTE = "#3d9a50", *const LAYER = "#cfd4da";

TEST(Timeline, PlacesRangesByTheirTimes) {
    Recording r;
    r.range(PLEC_TRACE_LAYER, 0, 10 * MS, 3);
    r.range(PLEC_TRACE_WAIT, 1 * MS, 3 * MS, 3);
    r.range(PLEC_TRACE_GATE_UP, 5 * MS, 6 * MS, 3, 1);
    r.move(PLEC_TRACE_READ, 1, 1 * MS, 2 * MS, 4096);
    r.move(PLEC_TRACE_COPY, 1, 2 * MS, 3 * MS, 4096);
    r.move(PLEC_TRACE_READ, 2, 4 * MS, 9 * MS, 8192, PLEC_LIKELY);
    std::string svg = r.draw();
    expect_well_formed(svg);
    /* 10 ms over 1020 pixels from 160 on; boxes end 0.3 early. The first of a colour is the
     * legend's. */
    auto expect_box = [&](const char *fill, double from_ms, double to_ms) {
        auto all = boxes(svg, fill);
        ASSERT_EQ(all.size(), 2u) << fill;
        EXPECT_NEAR(all[1].first, 160 + 102 * from_ms, 0.06) << fill;
        EXPECT_NEAR(all[1].second, 102 * (to_ms - from_ms) - 0.3, 0.11) << fill;
    };
    expect_box(LAYER, 0, 10);
    expect_box(WAIT, 1, 3);
    expect_box(COMPUTE, 5, 6);
    expect_box(READ, 1, 2);
    expect_box(COPY, 2, 3);
    expect_box(AHEAD, 4, 9);
    for (const char *part :
         {">layer 3</text>",
          ">10.0 ms: 12.0 KiB read (disk busy 60%), 4.0 KiB copied (10%); "
          "waiting 20%, idle 20%</text>",
          ">main 100</text>", ">compute 101</text>", ">disk reads</text>",
          "<title>extent.read, layer 3, extent 2, 3 experts from 16 on, 4.0 KiB: 1.00 ms</title>",
          ">0 ms</text>", ">10 ms</text>"})
        EXPECT_NE(svg.find(part), std::string::npos) << part << "\n" << svg;
    EXPECT_EQ(svg.find("evict"), std::string::npos); /* the legend names what is there */
}

TEST(Timeline, CountsExpertsByWhereTheyWere) {
    Recording r;
    r.hand_out(1 * MS, 0xFF, 0x0F, 0x31); /* 4 in slots; of the rest 2 in frames */
    r.hand_out(2 * MS, 0x3, 0, 0);
    r.move(PLEC_TRACE_READ, 1, 0, 2 * MS, 2048);
    r.range(PLEC_TRACE_LAYER, 0, 4 * MS, 0);
    std::string svg = r.draw();
    expect_well_formed(svg);
    EXPECT_NE(
        svg.find(">4.00 ms: 10 experts, 4 from slots (40%), 2 from frames, 4 from files; 2.0 KiB "
                 "read (disk busy 50%), 0 bytes copied (0%); waiting 0%, idle 0%<"),
        std::string::npos)
        << svg;
    EXPECT_NE(svg.find("<title>2 in a frame</title>"), std::string::npos);
    /* In a panel that begins later, the first are left out. */
    svg = r.draw(1500000, 4 * MS);
    EXPECT_NE(svg.find(" 2 experts, 0 from slots (0%), 0 from frames, 2 from files"),
              std::string::npos);
}

TEST(Timeline, WaitingBesideComputationIsNotIdle) {
    Recording r;
    r.range(PLEC_TRACE_WAIT, 0, 5 * MS, 0);
    r.range(PLEC_TRACE_GATE_UP, 1 * MS, 4 * MS, 0, 1);
    r.range(PLEC_TRACE_DOWN, 4 * MS, 10 * MS, 0, 1);
    r.move(PLEC_TRACE_READ, 1, 0, MS, 1);
    EXPECT_NE(r.draw().find("waiting 50%, idle 10%"), std::string::npos);
}

TEST(Timeline, CutsRangesAtTheEdgesOfThePanel) {
    Recording r;
    r.range(PLEC_TRACE_LAYER, 0, 10 * MS, 1);
    r.move(PLEC_TRACE_READ, 1, 1 * MS, 6 * MS, 4096);
    std::string svg = r.draw(5 * MS, 7 * MS);
    expect_well_formed(svg);
    auto layers = boxes(svg, LAYER), reads = boxes(svg, READ);
    ASSERT_EQ(layers.size(), 2u);
    EXPECT_DOUBLE_EQ(layers[1].first, 160);
    EXPECT_NEAR(layers[1].second, 1020, 0.5);
    ASSERT_EQ(reads.size(), 2u);
    EXPECT_DOUBLE_EQ(reads[1].first, 160);
    EXPECT_NEAR(reads[1].second, 510, 0.5);
    /* What lies outside is not there at all. */
    svg = r.draw(7 * MS, 9 * MS);
    EXPECT_TRUE(boxes(svg, READ).empty());
}

TEST(Timeline, RangesWithoutABeginOrAnEndReachTheEdges) {
    Recording r;
    r.event(PLEC_TRACE_PINNED, PLEC_TRACE_MOMENT, 0);
    r.event(PLEC_TRACE_WAIT, PLEC_TRACE_END, 4 * MS);
    r.event(PLEC_TRACE_GATE_UP, PLEC_TRACE_BEGIN, 6 * MS, 1);
    r.event(PLEC_TRACE_READ, PLEC_TRACE_BEGIN, 8 * MS).id = 5;
    r.event(PLEC_TRACE_PINNED, PLEC_TRACE_MOMENT, 10 * MS);
    r.snapshot.n_lost = 12;
    std::string svg = r.draw();
    expect_well_formed(svg);
    auto waits = boxes(svg, WAIT), computes = boxes(svg, COMPUTE), reads = boxes(svg, READ);
    ASSERT_EQ(waits.size(), 2u);
    EXPECT_NEAR(waits[1].first, 160, 0.1);
    EXPECT_NEAR(waits[1].second, 408, 0.5);
    ASSERT_EQ(computes.size(), 2u);
    EXPECT_NEAR(computes[1].first, 160 + 612, 0.1);
    ASSERT_EQ(reads.size(), 2u);
    EXPECT_NEAR(reads[1].second, 204, 0.5);
    EXPECT_NE(svg.find("12 older events were overwritten"), std::string::npos);
}

TEST(Timeline, OverlappingReadsStandBelowEachOther) {
    Recording r;
    for (uint64_t i = 0; i < 3; i++)
        r.move(PLEC_TRACE_READ, i, i * MS, (i + 5) * MS, 1);
    r.move(PLEC_TRACE_READ, 9, 8 * MS, 10 * MS, 1);
    std::string svg = r.draw();
    std::vector<double> tops;
    for (const Box &box : boxes(svg, READ))
        if (box.height == 8) tops.push_back(box.top); /* not the legend's */
    ASSERT_EQ(tops.size(), 4u);
    EXPECT_DOUBLE_EQ(tops[0], tops[1]); /* the first and the last, which share a row */
    EXPECT_DOUBLE_EQ(tops[2], tops[0] + 9);
    EXPECT_DOUBLE_EQ(tops[3], tops[0] + 18);
}

TEST(Timeline, EscapesWhateverTextItIsGiven) {
    Recording r;
    r.add_thread("<b>&\"'\x01\xff");
    r.range(PLEC_TRACE_WAIT, 0, MS, 0, 2);
    std::string svg = r.draw(0, 0, "</text><script>alert(\"1\")</script> & \x1b[31m \xc3\xa9");
    expect_well_formed(svg);
    EXPECT_EQ(count(svg, "<script"), 0u);
    EXPECT_NE(svg.find("&lt;script&gt;alert(&quot;1&quot;)"), std::string::npos);
    EXPECT_NE(svg.find("\\x1b[31m \xc3\xa9"), std::string::npos);
    EXPECT_NE(svg.find("&lt;b&gt;&amp;&quot;&#39;\\x01\\xff 102"), std::string::npos);
}

TEST(Timeline, ManyEventsMakeASmallPicture) {
    Recording r;
    for (uint64_t i = 0; i < 50000; i++) {
        r.range(PLEC_TRACE_GATE_UP, i * 1000, i * 1000 + 700, 0, 1);
        r.move(PLEC_TRACE_READ, i, i * 1000, i * 1000 + 2500, 4096,
               i % 2 != 0 ? PLEC_DEMAND : PLEC_LIKELY);
        r.hand_out(i * 1000, 1, i % 2, 0);
    }
    std::string svg = r.draw();
    expect_well_formed(svg);
    EXPECT_LT(svg.size(), 1500000u);
    EXPECT_LT(count(svg, "<rect"), 12000u);
    EXPECT_NE(svg.find("50000 experts, 25000 from slots (50%)"), std::string::npos);
    EXPECT_NE(svg.find("195.3 MiB read"), std::string::npos);
}

TEST(Timeline, AMomentIsSeen) {
    Recording r;
    r.range(PLEC_TRACE_WAIT, 5 * MS, 5 * MS, 0);
    r.range(PLEC_TRACE_LAYER, 0, 10 * MS, 0);
    EXPECT_EQ(boxes(r.draw(), WAIT).size(), 2u);
}

TEST(Timeline, ThreadsBeyondThoseThatFitAreCounted) {
    Recording r;
    for (int i = 0; i < 60; i++)
        r.add_thread("worker");
    for (uint32_t t = 0; t < 62; t++)
        r.range(PLEC_TRACE_GATE_UP, t * MS, (t + 1) * MS, 0, t);
    std::string svg = r.draw();
    expect_well_formed(svg);
    EXPECT_NE(svg.find("29 more threads are not shown"), std::string::npos);
}

TEST(Timeline, NothingAtAllIsStillAPicture) {
    Recording r;
    expect_well_formed(r.draw());
    plec_timeline_args args = {"", nullptr, 0};
    plec_error err;
    TempDir dir;
    EXPECT_EQ(plec_timeline_write(dir.path("empty.svg").c_str(), &args, &err), PLEC_OK);
    expect_well_formed(read_text(dir.path("empty.svg")));
}

TEST(Timeline, AFileThatCannotBeWrittenIsNamed) {
    plec_timeline_args args = {"", nullptr, 0};
    plec_error err;
    EXPECT_EQ(plec_timeline_write("/nonexistent/folder/out.svg", &args, &err), PLEC_IO);
    EXPECT_NE(std::string(err.message).find("/nonexistent/folder/out.svg"), std::string::npos);
}

} // namespace
