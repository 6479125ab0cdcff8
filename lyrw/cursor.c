#include "lyrw/cursor.h"

struct plec_cursor plec_cursor_at(const void *data, uint64_t size, uint64_t at) {
    struct plec_cursor cursor = {data, size, at, false, 0, 0};
    if (at > size) {
        cursor.failed = true;
        cursor.failed_at = at;
    }
    return cursor;
}

uint64_t plec_cursor_left(const struct plec_cursor *cursor) {
    return cursor->failed ? 0 : cursor->size - cursor->at;
}

const uint8_t *plec_cursor_bytes(struct plec_cursor *cursor, uint64_t n) {
    if (cursor->failed) return NULL;
    if (n > cursor->size - cursor->at) {
        cursor->failed = true;
        cursor->failed_at = cursor->at;
        cursor->failed_need = n;
        return NULL;
    }
    const uint8_t *bytes = cursor->data + cursor->at;
    cursor->at += n;
    return bytes;
}

uint8_t plec_cursor_u8(struct plec_cursor *cursor) {
    const uint8_t *p = plec_cursor_bytes(cursor, 1);
    return p == NULL ? 0 : *p;
}

uint16_t plec_cursor_u16(struct plec_cursor *cursor) {
    const uint8_t *p = plec_cursor_bytes(cursor, 2);
    return p == NULL ? 0 : plec_load_u16(p);
}

uint32_t plec_cursor_u32(struct plec_cursor *cursor) {
    const uint8_t *p = plec_cursor_bytes(cursor, 4);
    return p == NULL ? 0 : plec_load_u32(p);
}

uint64_t plec_cursor_u64(struct plec_cursor *cursor) {
    const uint8_t *p = plec_cursor_bytes(cursor, 8);
    return p == NULL ? 0 : plec_load_u64(p);
}

float plec_cursor_f32(struct plec_cursor *cursor) {
    uint32_t bits = plec_cursor_u32(cursor);
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

double plec_cursor_f64(struct plec_cursor *cursor) {
    uint64_t bits = plec_cursor_u64(cursor);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

enum plec_status plec_cursor_status(const struct plec_cursor *cursor, const char *what,
                                    struct plec_error *err) {
    if (!cursor->failed) return PLEC_OK;
    uint64_t have = cursor->failed_at > cursor->size ? 0 : cursor->size - cursor->failed_at;
    return plec_fail_at(err, PLEC_MALFORMED, "Truncated", cursor->failed_at,
                        "%s: need %llu bytes, have %llu", what,
                        (unsigned long long)cursor->failed_need, (unsigned long long)have);
}

uint16_t plec_load_u16(const void *p) {
    const uint8_t *b = p;
    return (uint16_t)(b[0] | b[1] << 8);
}

uint32_t plec_load_u32(const void *p) {
    const uint8_t *b = p;
    return (uint32_t)b[0] | (uint32_t)b[1] << 8 | (uint32_t)b[2] << 16 | (uint32_t)b[3] << 24;
}

uint64_t plec_load_u64(const void *p) {
    const uint8_t *b = p;
    return (uint64_t)plec_load_u32(b) | (uint64_t)plec_load_u32(b + 4) << 32;
}

void plec_store_u16(void *p, uint16_t value) {
    uint8_t *b = p;
    b[0] = (uint8_t)value;
    b[1] = (uint8_t)(value >> 8);
}

void plec_store_u32(void *p, uint32_t value) {
    uint8_t *b = p;
    plec_store_u16(b, (uint16_t)value);
    plec_store_u16(b + 2, (uint16_t)(value >> 16));
}

void plec_store_u64(void *p, uint64_t value) {
    uint8_t *b = p;
    plec_store_u32(b, (uint32_t)value);
    plec_store_u32(b + 4, (uint32_t)(value >> 32));
}

bool plec_add_u64(uint64_t *out, uint64_t a, uint64_t b) {
    if (a > UINT64_MAX - b) return false;
    *out = a + b;
    return true;
}

bool plec_mul_u64(uint64_t *out, uint64_t a, uint64_t b) {
    if (a != 0 && b > UINT64_MAX / a) return false;
    *out = a * b;
    return true;
}

bool plec_round_up_u64(uint64_t *out, uint64_t x, uint64_t alignment) {
    uint64_t sum;
    if (!plec_add_u64(&sum, x, alignment - 1)) return false;
    *out = sum & ~(alignment - 1);
    return true;
}
