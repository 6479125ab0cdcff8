/* simulator.h: an engine in virtual time: a disk, a link and a compute stream that take as long as
 * set, with delays and failures, driving residency, prefetch and prediction as the real one does.
 *
 * A read takes the disk's latency, then its bytes' time with the disk to itself; up to `depth` are
 * under way. A copy likewise on the link. Experts compute one extent after the other, as they get
 * ready; the reference goes back when the computation ends. Content is checked at both ends of it.
 */
#ifndef PLEC_TESTS_SUPPORT_SIMULATOR_H
#define PLEC_TESTS_SUPPORT_SIMULATOR_H

#include <deque>
#include <functional>
#include <map>
#include <queue>
#include <random>

#include "tests/support/tiers.h"

namespace plec_test {

struct Pipe {
    double bytes_per_ns = 5;
    uint64_t latency_ns = 80000;
    uint32_t depth = 8;
};

struct SimulatorOptions {
    TiersOptions tiers;
    Pipe disk, link{25, 10000, 2};
    uint64_t compute_ns = 20000; /* an expert */
    uint64_t max_delay_ns = 0;   /* added at random to every end of a read or copy */
    uint32_t seed = 1;
    /* Told each job when it ends, and how many ended before: true fails it. */
    std::function<bool(const plec_job &job, uint64_t n)> fails;
    /* Told each job when it is given, and how many were given before: true puts it back once. */
    std::function<bool(const plec_job &job, uint64_t n)> returns;
    /* Told how many events there were: true cancels the oldest demand that waits. */
    std::function<bool(uint64_t n)> cancels;
    uint64_t patience_ns = 0; /* of every demand; 0: endless */
};

/* What running one layer gave. */
struct LayerRun {
    uint64_t ns = 0;                 /* from its start to the end of its last computation */
    uint64_t stall_ns = 0;           /* of that, without computing */
    std::vector<uint64_t> waits;     /* of its demands, 0 for hits */
    std::vector<std::string> errors; /* names, of those that failed */
    uint32_t ready = 0;
};

class Simulator {
  public:
    explicit Simulator(const SimulatorOptions &options);

    Tiers tiers;
    uint64_t now = 0;
    /* Requests to make, first ones first, as soon as the queue has room and their deadline is less
     * than a step away. */
    std::deque<plec_request> plan;
    uint64_t read_bytes = 0, copied_bytes = 0, computed = 0; /* computed: experts */
    uint64_t n_ended = 0, n_given = 0, n_events = 0;         /* jobs, jobs, events */
    uint64_t longest_queue = 0;

    /* Runs a dispatch: demands what it needs, holding what fits and streaming the rest, and
     * computes it. Needs are of different keys. */
    LayerRun run_layer(uint64_t step, uint32_t layer, std::vector<plec_need> needs);
    /* Lets time pass, e.g. for attention between layers. */
    void pass(uint64_t ns);
    /* Until nothing is under way. */
    void drain();
    /* References held and jobs under way; 0 after drain. */
    size_t n_open() const { return events_.size(); }

  private:
    struct Event {
        uint64_t at, order;
        bool is_job;
        plec_job job;
        plec_demand_result result; /* of a computation */
        bool operator<(const Event &other) const {
            return at != other.at ? at > other.at : order > other.order;
        }
    };
    struct Dispatch {
        std::vector<plec_need> needs;
        plec_fit fit;
        uint32_t next = 0, streaming = 0, done = 0;
        std::map<plec_ticket, bool> open; /* whether it streams */
        LayerRun run;
    };

    void start_jobs();
    void ask();
    void ask_one(uint32_t i);
    void take_results();
    void got(const plec_demand_result &result, bool stream);
    void compute(const plec_demand_result &result);
    bool next_event();
    void end_job(const plec_job &job);
    bool put_back(const plec_job &job);
    uint64_t through(Pipe &pipe, uint64_t *free_at, uint64_t n_bytes);

    SimulatorOptions options_;
    std::mt19937_64 random_;
    std::priority_queue<Event> events_;
    uint64_t position_ = 0, order_ = 0, disk_free_ = 0, link_free_ = 0, compute_free_ = 0;
    uint32_t reading_ = 0, copying_ = 0;
    std::map<uint32_t, bool> streams_; /* computations under way, by event order */
    Dispatch *dispatch_ = nullptr;
};

/* The extents that these experts of a layer make, with masks. */
std::vector<plec_need> needs_of(const plec_keyspace &keys, uint32_t layer,
                                const std::vector<int32_t> &ids);

/* Routing, made up: [step][layer] distinct experts. */
enum class Trace { UNIFORM, ZIPF, MARKOV };
std::vector<std::vector<std::vector<int32_t>>> make_trace(Trace kind, uint32_t n_steps,
                                                          uint32_t n_layers, uint32_t n_experts,
                                                          uint32_t top_k, uint32_t seed);

/* The value below which a share of them is; 0 of none. */
uint64_t quantile(std::vector<uint64_t> values, double share);

} // namespace plec_test
#endif
