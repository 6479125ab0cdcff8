/* report.h: problems found, and the places in the source that they name.
 *
 * A place is 32 bits: a file and line that the source gave, or an offset of a program counter in
 * the executable, which addr2line turns into lines only when somebody wants to read it. */
#ifndef PLEC_TESTS_EMU_REPORT_H
#define PLEC_TESTS_EMU_REPORT_H

#include <cstdint>
#include <string>

namespace plec_emu {

using Place = uint32_t; /* 0: nowhere */

Place place_of_line(const char *file, int line);
Place place_of_pc(const void *pc);   /* a return address */
std::string place_text(Place place); /* "kernel.cu:12", inlined ones after " < " */
bool place_is_line(Place place);     /* given by file and line */

/* The file's name without its folders. */
const char *base_name(const char *path);

/* Counts a problem of a kind and prints it, up to settings.max_reports of one kind. */
void report(const char *kind, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* True the first time a kind meets this pair of places since errors were cleared, whichever
 * instructions of those lines they are. */
bool first_time(const char *kind, Place a, Place b);

std::string text(const char *format, ...) __attribute__((format(printf, 1, 2)));

} // namespace plec_emu

#endif
