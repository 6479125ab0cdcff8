/* place.cc: places in the source. */
#include "tests/emu/report.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <link.h>
#include <unistd.h>
#include <unordered_map>
#include <vector>

namespace plec_emu {

/* Places that are lines have the top bit set. */
static constexpr Place LINE_BIT = 0x80000000u;

struct Line {
    const char *file;
    int line;
};

static std::vector<Line> &lines = *new std::vector<Line>;
static std::unordered_map<uint64_t, Place> &line_places = *new std::unordered_map<uint64_t, Place>;

Place place_of_line(const char *file, int line) {
    uint64_t key = (uint64_t)(uintptr_t)file * 1000003u + (unsigned)line;
    auto found = line_places.find(key);
    if (found != line_places.end()) return found->second;
    lines.push_back({file, line});
    return line_places[key] = LINE_BIT | (Place)(lines.size() - 1);
}

bool place_is_line(Place place) {
    return place & LINE_BIT;
}

static int first_object(struct dl_phdr_info *info, size_t, void *base) {
    *(uintptr_t *)base = info->dlpi_addr;
    return 1;
}

static uintptr_t executable_base(void) {
    uintptr_t base = 0;
    dl_iterate_phdr(first_object, &base);
    return base;
}

Place place_of_pc(const void *pc) {
    static const uintptr_t base = executable_base();
    return (Place)((uintptr_t)pc - base) & ~LINE_BIT;
}

const char *base_name(const char *path) {
    const char *slash = path ? strrchr(path, '/') : nullptr;
    return slash ? slash + 1 : path ? path : "?";
}

/* One line of addr2line: "file.cu:12 (discriminator 3)" without what follows the number. */
static void append_frame(std::string *frames, char *frame) {
    frame[strcspn(frame, "\n")] = 0;
    char *remark = strstr(frame, " (disc");
    if (remark) *remark = 0;
    if (!strncmp(frame, "instructions.h:", 15) || !strncmp(frame, "emulation.h:", 12)) return;
    if (!frames->empty()) *frames += " < ";
    *frames += frame;
}

static std::string resolve_pc(Place place) {
    char executable[256], frame[256];
    ssize_t n = readlink("/proc/self/exe", executable, sizeof(executable) - 1);
    executable[n > 0 ? n : 0] = 0;
    std::string frames;
    std::string command = text("addr2line -s -i -e '%s' %#x 2>/dev/null", executable, place - 1);
    FILE *output = popen(command.c_str(), "r");
    while (output && fgets(frame, sizeof(frame), output))
        append_frame(&frames, frame);
    if (output) pclose(output);
    return frames.empty() ? text("pc %#x", place) : frames;
}

std::string place_text(Place place) {
    static auto &known = *new std::unordered_map<Place, std::string>;
    if (!place) return "?";
    if (place & LINE_BIT) {
        const Line &line = lines[place & ~LINE_BIT];
        return text("%s:%d", base_name(line.file), line.line);
    }
    auto found = known.find(place);
    return found != known.end() ? found->second : known[place] = resolve_pc(place);
}

} // namespace plec_emu
