/* cursor.h: a bounds-checked little-endian reader over bytes in memory.
 *
 * Owns nothing: the bytes must outlive the cursor. The first read that does not fit sticks: later
 * reads return 0 and change nothing, and plec_cursor_status tells where and what was wanted. So a
 * parser reads a whole record and checks once. Works at any alignment.
 */
#ifndef PLEC_LYRW_CURSOR_H
#define PLEC_LYRW_CURSOR_H

#include <stdbool.h>
#include <string.h>

#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_cursor {
    const uint8_t *data; /* [size] */
    uint64_t size;
    uint64_t at;                     /* next byte */
    bool failed;                     /* a read did not fit */
    uint64_t failed_at, failed_need; /* where the first such read stood and how much it wanted */
};

/* A cursor over [0, size) standing at `at`; at > size is a failed cursor. */
struct plec_cursor plec_cursor_at(const void *data, uint64_t size, uint64_t at);

/* Little-endian reads; each advances by its width, or fails the cursor and returns 0. */
uint8_t plec_cursor_u8(struct plec_cursor *cursor);
uint16_t plec_cursor_u16(struct plec_cursor *cursor);
uint32_t plec_cursor_u32(struct plec_cursor *cursor);
uint64_t plec_cursor_u64(struct plec_cursor *cursor);
float plec_cursor_f32(struct plec_cursor *cursor);
double plec_cursor_f64(struct plec_cursor *cursor);

/* A view of the next n bytes, or NULL with the cursor failed. */
const uint8_t *plec_cursor_bytes(struct plec_cursor *cursor, uint64_t n);

/* Bytes left; 0 on a failed cursor. */
uint64_t plec_cursor_left(const struct plec_cursor *cursor);

/* PLEC_OK, or PLEC_MALFORMED "Truncated" naming `what`, byte, need and have. */
PLEC_MUST_USE enum plec_status plec_cursor_status(const struct plec_cursor *cursor,
                                                  const char *what, struct plec_error *err);

/* Unaligned little-endian loads and stores for places already known to lie inside. */
uint16_t plec_load_u16(const void *p);
uint32_t plec_load_u32(const void *p);
uint64_t plec_load_u64(const void *p);
void plec_store_u16(void *p, uint16_t value);
void plec_store_u32(void *p, uint32_t value);
void plec_store_u64(void *p, uint64_t value);

/* Checked 64-bit arithmetic: false and *out untouched on overflow. */
bool plec_add_u64(uint64_t *out, uint64_t a, uint64_t b);
bool plec_mul_u64(uint64_t *out, uint64_t a, uint64_t b);
/* Rounds x up to a multiple of a power of two. */
bool plec_round_up_u64(uint64_t *out, uint64_t x, uint64_t alignment);

#ifdef __cplusplus
}
#endif
#endif
