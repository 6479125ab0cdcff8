/* trace_json.h: what must hold of every trace file, and its sums. */
#ifndef PLEC_TESTS_SUPPORT_TRACE_JSON_H
#define PLEC_TESTS_SUPPORT_TRACE_JSON_H

#include <gtest/gtest.h>
#include <jansson.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace plec_test {

class TraceFile {
  public:
    explicit TraceFile(const std::string &path) {
        json_error_t error;
        root_ = json_load_file(path.c_str(), JSON_REJECT_DUPLICATES, &error);
        EXPECT_NE(root_, nullptr) << path << ": " << error.text << " at line " << error.line;
        if (root_ == nullptr) return;
        EXPECT_STREQ(text(root_, "displayTimeUnit"), "ns");
        for (const char *member : {"clock", "version", "host"})
            EXPECT_NE(json_object_get(other(), member), nullptr) << member;
        json_t *events = json_object_get(root_, "traceEvents");
        EXPECT_TRUE(json_is_array(events));
        size_t i;
        json_t *event;
        json_array_foreach(events, i, event) take(event);
        check_slices();
        check_flows();
        for (const auto &life : lives_)
            EXPECT_EQ(life.second, 0) << "b without e: " << life.first;
        for (const Track &track : used_)
            EXPECT_EQ(named_.count(track), 1u) << track.first << "/" << track.second << " unnamed";
    }
    ~TraceFile() { json_decref(root_); }
    TraceFile(const TraceFile &) = delete;
    TraceFile &operator=(const TraceFile &) = delete;

    json_t *other() const { return json_object_get(root_, "otherData"); }
    /* Of slices by name: how many, their time in ns, and sums of a member of args. */
    std::map<std::string, uint64_t> n_slices, slice_ns, n_moments, n_counters;
    std::map<std::string, uint64_t> sums; /* "extent.read.bytes" */
    std::map<std::string, double> last_counter;
    /* A counter's area: its value times the ns until it changes. */
    double area(const std::string &counter) {
        auto &samples = samples_[counter];
        std::stable_sort(samples.begin(), samples.end(),
                         [](const auto &a, const auto &b) { return a.first < b.first; });
        double total = 0;
        for (size_t i = 0; i + 1 < samples.size(); i++)
            total +=
                samples[i].second * static_cast<double>(samples[i + 1].first - samples[i].first);
        return total;
    }
    uint64_t n_truncated = 0, n_lives = 0, n_flows = 0;
    std::set<std::string> thread_names;

  private:
    using Track = std::pair<json_int_t, json_int_t>;
    struct Slice {
        int64_t from, to;
    };
    struct Point {
        char phase;
        Track track;
        int64_t at;
    };

    static const char *text(json_t *object, const char *member) {
        const char *value = json_string_value(json_object_get(object, member));
        EXPECT_NE(value, nullptr) << member;
        return value != nullptr ? value : "";
    }
    /* Microseconds with three decimals, as ns. */
    static int64_t ns(json_t *event, const char *member) {
        json_t *value = json_object_get(event, member);
        EXPECT_TRUE(json_is_real(value)) << member;
        double exact = json_real_value(value) * 1000;
        EXPECT_NEAR(exact, std::round(exact), 0.01) << member << " has more than ns";
        return std::llround(exact);
    }
    void take(json_t *event) {
        const char *phase = text(event, "ph");
        int64_t at = ns(event, "ts");
        EXPECT_GE(at, 0);
        ASSERT_EQ(strlen(phase), 1u);
        Track track = {json_integer_value(json_object_get(event, "pid")),
                       json_integer_value(json_object_get(event, "tid"))};
        json_t *args = json_object_get(event, "args");
        if (json_is_true(json_object_get(args, "truncated"))) n_truncated++;
        switch (*phase) {
        case 'M': take_name(event, args, track); return;
        case 'X': take_slice(event, args, track, at); return;
        case 'b':
        case 'e': take_life(event, *phase, at); return;
        case 's':
        case 't':
        case 'f':
            EXPECT_STREQ(text(event, "bp"), "e");
            flows_[text(event, "id")].push_back({*phase, track, at});
            return;
        case 'C': take_counter(event, args, at); return;
        case 'i':
            EXPECT_STREQ(text(event, "s"), "t");
            used_.insert(track);
            n_moments[text(event, "name")]++;
            add_sums(text(event, "name"), args);
            return;
        default: FAIL() << "phase " << phase;
        }
    }
    void take_name(json_t *event, json_t *args, Track track) {
        if (strcmp(text(event, "name"), "thread_name") != 0) return;
        EXPECT_TRUE(named_.insert(track).second) << "named twice";
        thread_names.insert(text(args, "name"));
    }
    void take_slice(json_t *event, json_t *args, Track track, int64_t at) {
        int64_t took = ns(event, "dur");
        EXPECT_GE(took, 0);
        used_.insert(track);
        slices_[track].push_back({at, at + took});
        std::string name = text(event, "name");
        n_slices[name]++;
        slice_ns[name] += static_cast<uint64_t>(took);
        add_sums(name, args);
    }
    void add_sums(const std::string &name, json_t *args) {
        const char *key;
        json_t *value;
        json_object_foreach(args, key, value) {
            if (json_is_integer(value))
                sums[name + "." + key] += static_cast<uint64_t>(json_integer_value(value));
        }
    }
    void take_life(json_t *event, char phase, int64_t at) {
        EXPECT_TRUE(json_is_string(json_object_get(event, "id")));
        std::string id = std::string(text(event, "cat")) + " " + text(event, "id");
        int &open = lives_[id];
        open += phase == 'b' ? 1 : -1;
        EXPECT_GE(open, 0) << "e without b: " << id;
        EXPECT_LE(open, 1) << "b twice: " << id;
        if (phase == 'b') born_[id] = at, n_lives++;
        EXPECT_GE(at, born_[id]);
    }
    void take_counter(json_t *event, json_t *args, int64_t at) {
        const char *key;
        json_t *value;
        n_counters[text(event, "name")]++;
        json_object_foreach(args, key, value) {
            EXPECT_TRUE(json_is_number(value));
            EXPECT_GE(json_number_value(value), 0);
            std::string name = std::string(text(event, "name")) + "." + key;
            last_counter[name] = json_number_value(value);
            samples_[name].push_back({at, json_number_value(value)});
        }
    }
    /* Slices of one track nest or lie apart. */
    void check_slices() {
        for (auto &track : slices_) {
            std::vector<Slice> &slices = track.second;
            std::stable_sort(slices.begin(), slices.end(), [](const Slice &a, const Slice &b) {
                return a.from != b.from ? a.from < b.from : a.to > b.to;
            });
            std::vector<Slice> stack;
            for (const Slice &slice : slices) {
                while (!stack.empty() && stack.back().to <= slice.from)
                    stack.pop_back();
                EXPECT_TRUE(stack.empty() || slice.to <= stack.back().to)
                    << "slices overlap on " << track.first.first << "/" << track.first.second;
                stack.push_back(slice);
            }
        }
    }
    bool in_slice(const Point &point) const {
        auto found = slices_.find(point.track);
        if (found == slices_.end()) return false;
        for (const Slice &slice : found->second)
            if (slice.from <= point.at && point.at <= slice.to) return true;
        return false;
    }
    /* Each flow: one s, then t's, then one f, all in slices, in order of time. */
    void check_flows() {
        n_flows = flows_.size();
        for (const auto &flow : flows_) {
            const std::vector<Point> &points = flow.second;
            ASSERT_GE(points.size(), 2u);
            EXPECT_EQ(points.front().phase, 's');
            EXPECT_EQ(points.back().phase, 'f');
            for (size_t i = 0; i < points.size(); i++) {
                EXPECT_TRUE(in_slice(points[i])) << "flow " << flow.first << ", point " << i;
                EXPECT_TRUE(i == 0 || points[i].at >= points[i - 1].at);
                bool inner = i > 0 && i + 1 < points.size();
                EXPECT_EQ(points[i].phase == 't', inner);
            }
        }
    }

    json_t *root_ = nullptr;
    std::map<Track, std::vector<Slice>> slices_;
    std::map<std::string, std::vector<Point>> flows_;
    std::map<std::string, std::vector<std::pair<int64_t, double>>> samples_;
    std::map<std::string, int> lives_;
    std::map<std::string, int64_t> born_;
    std::set<Track> used_, named_;
};

} // namespace plec_test
#endif
