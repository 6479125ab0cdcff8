#include "tests/emu/report.h"
#include "tests/emu/memory.h"
#include "tests/emu/settings.h"

#include <cstdarg>
#include <cstdio>
#include <map>
#include <set>
#include <tuple>
#include <unistd.h>

namespace plec_emu {

struct Found {
    int n = 0;
    std::string last;
};

struct Reports {
    int n = 0;
    std::string last; /* of any kind */
    std::map<std::string, Found> kinds;
    std::set<std::tuple<std::string, Place, Place>> places;
    std::set<std::string> lines;
};

/* Never destroyed: kernels may still run when static objects go. */
static Reports &reports = *new Reports;

static std::string format_text(const char *format, va_list args) {
    char buffer[4096];
    vsnprintf(buffer, sizeof(buffer), format, args);
    return buffer;
}

std::string text(const char *format, ...) {
    va_list args;
    va_start(args, format);
    std::string formatted = format_text(format, args);
    va_end(args);
    return formatted;
}

void report(const char *kind, const char *format, ...) {
    va_list args;
    va_start(args, format);
    Found &found = reports.kinds[kind];
    found.last = format_text(format, args);
    va_end(args);
    reports.last = std::string(kind) + ": " + found.last;
    reports.n++;
    if (++found.n <= settings.max_reports && !settings.quiet)
        fprintf(stderr, "EMU: %s: %s\n", kind, found.last.c_str());
}

bool first_time(const char *kind, Place a, Place b) {
    if (!reports.places.insert({kind, a, b}).second) return false;
    return reports.lines
        .insert(text("%s|%s|%s", kind, place_text(a).c_str(), place_text(b).c_str()))
        .second;
}

/* At the end of the process: memory that nobody freed, and an exit status that says so. */
static struct AtEnd {
    ~AtEnd() {
        std::string leaks = settings.leaks && !reports.n ? live_objects() : "";
        if (!leaks.empty()) report("leak", "%s", leaks.c_str());
        if (!reports.n || !settings.exit_status) return;
        fprintf(stderr, "EMU: %d problem(s) reported\n", reports.n);
        fflush(nullptr);
        _exit(settings.exit_status);
    }
} at_end;

} // namespace plec_emu

using namespace plec_emu;

int plec_emu_errors(const char *kind) {
    if (!kind) return reports.n;
    auto found = reports.kinds.find(kind);
    return found == reports.kinds.end() ? 0 : found->second.n;
}

const char *plec_emu_last_error(const char *kind) {
    if (!kind) return reports.last.c_str();
    auto found = reports.kinds.find(kind);
    return found == reports.kinds.end() ? "" : found->second.last.c_str();
}

void plec_emu_clear_errors(void) {
    reports = Reports();
}
