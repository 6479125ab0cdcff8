/* io_plan.c: which bytes the next read of the system takes: rounding, slack, ends. Arithmetic only.
 */
#include "host/io_parts.h"

static uint64_t down(uint64_t x, uint64_t alignment) {
    return x & ~(alignment - 1);
}

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static void plan_buffered(struct plec_io_chunk *out, const struct plec_io_read *read, uint64_t at,
                          uint64_t end) {
    *out = (struct plec_io_chunk){.from = at,
                                  .length = end - at,
                                  .end = end,
                                  .to = (uint8_t *)read->to + (at - read->offset)};
}

/* Whether an aligned byte of the file lands on memory aligned enough. Memory and file move in step,
 * so it holds for all of them or for none. */
static bool agrees(const struct plec_io_read *read, const struct plec_io_file *file) {
    return ((uintptr_t)read->to - (uintptr_t)read->offset) % file->memory_align == 0;
}

/* From `from`, which is aligned, as far as one direct read may go; `from` itself: not at all. */
static uint64_t direct_end(const struct plec_io_read *read, uint64_t from, uint64_t end,
                           uint64_t piece_bytes, uint64_t alignment) {
    uint64_t last = read->offset + read->length;
    uint64_t stop = down(end, alignment);
    if (stop < end && end == last && alignment - (end - stop) <= read->slack_after)
        stop += alignment;
    return stop <= from ? from : least(stop, from + piece_bytes);
}

void plec_io_plan(struct plec_io_chunk *out, const struct plec_io_read *read,
                  const struct plec_io_file *file, uint64_t at, uint64_t end, uint64_t piece_bytes,
                  bool direct, bool exact) {
    uint64_t alignment = file->offset_align;
    uint64_t whole_end = least(end, at + piece_bytes);
    if (!direct || alignment > piece_bytes || !agrees(read, file)) {
        plan_buffered(out, read, at, whole_end);
        return;
    }
    uint64_t from = down(at, alignment);
    if (from < at && (exact || at != read->offset || at - from > read->slack_before)) {
        plan_buffered(out, read, at, least(end, from + alignment));
        return;
    }
    uint64_t stop = direct_end(read, from, end, piece_bytes, alignment);
    if (stop <= at) {
        plan_buffered(out, read, at, whole_end);
        return;
    }
    *out = (struct plec_io_chunk){.from = from,
                                  .length = stop - from,
                                  .end = least(stop, end),
                                  .to = (uint8_t *)read->to + (int64_t)(from - read->offset),
                                  .direct = true};
}
