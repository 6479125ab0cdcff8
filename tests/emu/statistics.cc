#include "tests/emu/statistics.h"
#include "tests/emu/state.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <set>
#include <tuple>

namespace plec_emu {

/* ---- what is kept ---------------------------------------------------------------------------- */

struct Tally {
    uint64_t n_requests = 0, n_bytes = 0, n_used = 0, n_sectors = 0, n_waves = 0, n_ideal = 0;
};

/* A request that not all lanes have come to. */
struct Request {
    uintptr_t address[32];
    unsigned lanes;
    size_t n_bytes; /* of a lane */
};

struct Watch {
    const char *start;
    std::vector<uint32_t> n_reads; /* by byte */
};

using RequestKey =
    std::tuple<unsigned, int, Place, int, uint32_t>; /* block, warp, place, kind, visit */
using UnderWayKey = std::tuple<unsigned, unsigned, int, Place>; /* launch, block, thread, place */
using TallyKey = std::tuple<unsigned, Place, int>;              /* launch, place, kind */

struct Statistics {
    bool on = false;
    std::vector<std::string> launches;
    std::map<TallyKey, Tally> tallies;
    std::map<RequestKey, Request> requests;
    std::map<UnderWayKey, uint64_t> under_way; /* bytes, at most */
    std::vector<Watch> watches;
};
static Statistics &statistics = *new Statistics;

static Tally &tally_of(Kind kind, Place place) {
    return statistics.tallies[{(unsigned)statistics.launches.size() - 1, place, (int)kind}];
}

static bool is_global(Kind kind) {
    return kind <= PLEC_EMU_BULK;
}
static bool is_shared(Kind kind) {
    return kind >= PLEC_EMU_SHARED_LOAD && kind <= PLEC_EMU_STMATRIX;
}

/* ---- requests -------------------------------------------------------------------------------- */

/* Distinct units of 2^shift bytes that a request touches. */
static uint64_t count_units(const Request &r, unsigned shift) {
    std::set<uintptr_t> units;
    for (int lane = 0; lane < 32; lane++) {
        if (!(r.lanes >> lane & 1)) continue;
        uintptr_t first = r.address[lane] >> shift,
                  last = (r.address[lane] + r.n_bytes - 1) >> shift;
        for (uintptr_t unit = first; unit <= last; unit++)
            units.insert(unit);
    }
    return units.size();
}

/* Lanes that are served together: 128 bytes' worth. */
static int lanes_together(size_t n_bytes) {
    return n_bytes <= 4 ? 32 : n_bytes == 8 ? 16 : 8;
}

/* Passes through the 32 banks of four bytes: lanes of a group that want different words of one bank
 * take turns. */
static uint64_t waves_of_group(const Request &r, int first, int n) {
    std::set<uintptr_t> words[32];
    for (int lane = first; lane < first + n; lane++) {
        if (!(r.lanes >> lane & 1)) continue;
        uintptr_t last = (r.address[lane] + r.n_bytes - 1) / 4;
        for (uintptr_t word = r.address[lane] / 4; word <= last; word++)
            words[word % 32].insert(word);
    }
    size_t most = 0;
    for (const std::set<uintptr_t> &bank : words)
        most = std::max(most, bank.size());
    return most;
}

static void count_waves(Tally *tally, const Request &r) {
    int n = lanes_together(r.n_bytes);
    for (int first = 0; first < 32; first += n) {
        uint64_t waves = waves_of_group(r, first, n);
        tally->n_waves += waves;
        tally->n_ideal += waves > 0;
    }
}

static void close_request(Kind kind, Place place, const Request &r) {
    Tally &tally = tally_of(kind, place);
    tally.n_requests++;
    tally.n_bytes += (uint64_t)__builtin_popcount(r.lanes) * r.n_bytes;
    if (is_global(kind)) {
        tally.n_used += count_units(r, 0);
        tally.n_sectors += count_units(r, 5);
    } else if (is_shared(kind)) {
        count_waves(&tally, r);
    }
}

static void note_reads(Kind kind, const void *address, size_t n_bytes) {
    if (kind == PLEC_EMU_GLOBAL_STORE || !is_global(kind)) return;
    for (Watch &watch : statistics.watches) {
        size_t offset = (size_t)((const char *)address - watch.start);
        for (size_t i = 0; i < n_bytes; i++)
            if (offset + i < watch.n_reads.size()) watch.n_reads[offset + i]++;
    }
}

void statistics_access(Kind kind, Thread *thread, const void *address, size_t n_bytes,
                       Place place) {
    if (!statistics.on) return;
    /* An instruction counts itself, by its line; what its wrapper loads is part of it. */
    note_reads(kind, address, n_bytes);
    uint32_t visit = thread->n_visits[(uint64_t)place << 8 | (uint64_t)kind]++;
    RequestKey key = {thread->block->index, thread->index / 32, place, (int)kind, visit};
    Request &r = statistics.requests[key];
    r.address[thread->lane] = (uintptr_t)address;
    r.lanes |= 1u << thread->lane;
    r.n_bytes = n_bytes;
    if (r.lanes != thread->warp->lanes) return;
    close_request(kind, place, r);
    statistics.requests.erase(key);
}

void statistics_request(Kind kind, const void *const *addresses, int n, size_t n_bytes,
                        Place place) {
    if (!statistics.on) return;
    Request r = {};
    for (int lane = 0; lane < n; lane++)
        r.address[lane] = (uintptr_t)addresses[lane];
    r.lanes = n == 32 ? ~0u : (1u << n) - 1;
    r.n_bytes = n_bytes;
    close_request(kind, place, r);
}

void statistics_bulk(const void *from, size_t n_bytes, Place place) {
    if (!statistics.on) return;
    note_reads(PLEC_EMU_BULK, from, n_bytes);
    Tally &tally = tally_of(PLEC_EMU_BULK, place);
    uintptr_t first = (uintptr_t)from / 32, last = ((uintptr_t)from + n_bytes - 1) / 32;
    tally.n_requests++;
    tally.n_bytes += n_bytes;
    tally.n_used += n_bytes;
    tally.n_sectors += last - first + 1;
}

void statistics_under_way(Thread *thread, size_t n_bytes, Place place) {
    if (!statistics.on) return;
    unsigned launch = (unsigned)statistics.launches.size() - 1;
    uint64_t &most = statistics.under_way[{launch, thread->block->index, thread->index, place}];
    most = std::max(most, (uint64_t)n_bytes);
}

void statistics_count(Kind kind, Place place) {
    if (statistics.on && kind != KIND_NONE) tally_of(kind, place).n_requests++;
}

void statistics_launch_begins(const std::string &kernel) {
    if (statistics.on) statistics.launches.push_back(kernel);
}

void statistics_blocks_end(void) {
    for (const auto &each : statistics.requests)
        close_request((Kind)std::get<3>(each.first), std::get<2>(each.first), each.second);
    statistics.requests.clear();
}

/* ---- reading --------------------------------------------------------------------------------- */

static void add(plec_emu_line *line, const Tally &tally) {
    line->n_requests += tally.n_requests;
    line->n_bytes += tally.n_bytes;
    line->n_bytes_used += tally.n_used;
    line->n_bytes_fetched += tally.n_sectors * 32;
    line->n_waves += tally.n_waves;
    line->n_conflicts += tally.n_waves - tally.n_ideal;
}

static bool contains(const std::string &text, const char *part) {
    return !part || text.find(part) != std::string::npos;
}

static const char *const KIND_NAMES[] = {"global load", "global store", "cp.async", "bulk copy",
                                         "shared load", "shared store", "ldmatrix", "stmatrix",
                                         "atomic",      "mma",          "wgmma",    "shuffle",
                                         "barrier"};
static_assert(sizeof(KIND_NAMES) / sizeof(*KIND_NAMES) == PLEC_EMU_KINDS, "a name for each kind");

/* Rows by launch (0: all of the kernel), kernel, place as text, and kind: instructions of one line
 * are one row. */
using Row = std::tuple<unsigned, std::string, std::string, int>;

static std::map<Row, plec_emu_line> rows(bool by_launch) {
    std::map<Row, plec_emu_line> table;
    for (const auto &each : statistics.tallies) {
        unsigned launch = std::get<0>(each.first);
        std::string place = place_text(std::get<1>(each.first));
        int kind = std::get<2>(each.first);
        add(&table[{by_launch ? launch : 0, statistics.launches[launch], place, kind}],
            each.second);
    }
    return table;
}

static void print_row(FILE *to, const Row &row, const plec_emu_line &line) {
    int kind = std::get<3>(row);
    fprintf(to, "  %-44s %-12s %10llu", std::get<2>(row).c_str(), KIND_NAMES[kind],
            (unsigned long long)line.n_requests);
    if (is_global((Kind)kind))
        fprintf(to, " %12llu bytes, %5.1f%% of %llu fetched", (unsigned long long)line.n_bytes,
                100.0 * (double)line.n_bytes_used / (double)line.n_bytes_fetched,
                (unsigned long long)line.n_bytes_fetched);
    else if (is_shared((Kind)kind))
        fprintf(to, " %12llu bytes, %llu conflicts in %llu waves", (unsigned long long)line.n_bytes,
                (unsigned long long)line.n_conflicts, (unsigned long long)line.n_waves);
    fputc('\n', to);
}

static void print_table(FILE *to, bool by_launch) {
    std::string kernel;
    unsigned launch = 0;
    for (const auto &each : rows(by_launch)) {
        bool same = std::get<0>(each.first) == launch && std::get<1>(each.first) == kernel;
        launch = std::get<0>(each.first);
        kernel = std::get<1>(each.first);
        auto n = std::count(statistics.launches.begin(), statistics.launches.end(), kernel);
        if (!same && by_launch)
            fprintf(to, "EMU: %s, launch %u\n", kernel.c_str(), launch);
        else if (!same)
            fprintf(to, "EMU: %s, %ld launch(es)\n", kernel.c_str(), (long)n);
        print_row(to, each.first, each.second);
    }
}

static Watch *watch_at(const void *start) {
    for (Watch &watch : statistics.watches)
        if (watch.start == start) return &watch;
    return nullptr;
}

static struct FromEnvironment {
    FromEnvironment() {
        const char *text = getenv("PLEC_EMU_STATS");
        if (text && atoi(text)) plec_emu_stats_start();
    }
    ~FromEnvironment() {
        const char *text = getenv("PLEC_EMU_STATS");
        if (text && statistics.on) print_table(stderr, atoi(text) > 1);
    }
} from_environment;

} // namespace plec_emu

using namespace plec_emu;

void plec_emu_stats_start(void) {
    statistics = Statistics();
    statistics.on = true;
    statistics.launches.push_back("before any launch");
}

void plec_emu_stats_stop(void) {
    statistics.on = false;
}

struct plec_emu_line plec_emu_stats(const char *kernel, const char *place, int kind) {
    struct plec_emu_line sum = {};
    for (const auto &each : statistics.tallies) {
        if (kind >= 0 && std::get<2>(each.first) != kind) continue;
        if (!contains(statistics.launches[std::get<0>(each.first)], kernel)) continue;
        if (place && !contains(place_text(std::get<1>(each.first)), place)) continue;
        add(&sum, each.second);
    }
    return sum;
}

uint64_t plec_emu_stats_under_way(const char *kernel, const char *place) {
    std::map<std::tuple<unsigned, unsigned>, uint64_t> blocks; /* launch, block */
    for (const auto &each : statistics.under_way) {
        if (!contains(statistics.launches[std::get<0>(each.first)], kernel)) continue;
        if (place && !contains(place_text(std::get<3>(each.first)), place)) continue;
        blocks[{std::get<0>(each.first), std::get<1>(each.first)}] += each.second;
    }
    uint64_t most = 0;
    for (const auto &block : blocks)
        most = std::max(most, block.second);
    return most;
}

void plec_emu_stats_print(FILE *to) {
    print_table(to, false);
}

void plec_emu_watch(const void *start, uint64_t n_bytes) {
    statistics.watches.push_back({(const char *)start, std::vector<uint32_t>(n_bytes)});
}

bool plec_emu_watched(const void *start, uint32_t *fewest, uint32_t *most) {
    const Watch *watch = watch_at(start);
    if (!watch || watch->n_reads.empty()) return false;
    *fewest = *std::min_element(watch->n_reads.begin(), watch->n_reads.end());
    *most = *std::max_element(watch->n_reads.begin(), watch->n_reads.end());
    return true;
}
