/* statistics.h: what a grid's warps did, by source line: counted while plec_emu_stats_start's
 * effect lasts. The n-th visits of a warp's lanes to an instruction are taken for one request of
 * the warp: exact where they go together. */
#ifndef PLEC_TESTS_EMU_STATISTICS_H
#define PLEC_TESTS_EMU_STATISTICS_H

#include "tests/emu/emulator.h"
#include "tests/emu/report.h"

#include <cstddef>

namespace plec_emu {

struct Thread;

using Kind = plec_emu_kind;
constexpr Kind KIND_NONE = PLEC_EMU_KINDS; /* not to be counted */

void statistics_launch_begins(const std::string &kernel);
/* Requests whose other lanes will not come any more. */
void statistics_blocks_end(void);

/* One lane's part of a request. */
void statistics_access(Kind kind, Thread *thread, const void *address, size_t n_bytes, Place place);
/* A whole request: n lanes from lane 0. */
void statistics_request(Kind kind, const void *const *addresses, int n, size_t n_bytes,
                        Place place);
void statistics_bulk(const void *from, size_t n_bytes, Place place);
/* What a thread's copies of one line have under way. */
void statistics_under_way(Thread *thread, size_t n_bytes, Place place);
/* An instruction of a warp, or warpgroup, without addresses. */
void statistics_count(Kind kind, Place place);

} // namespace plec_emu

#endif
