/* units.h: numbers and sizes as people write and read them. */
#ifndef PLEC_TOOLS_UNITS_H
#define PLEC_TOOLS_UNITS_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PLEC_UNIT_TEXT_MAX = 32 };

/* Bytes for a person, into buffer [PLEC_UNIT_TEXT_MAX]: "960 bytes", "1.1 KiB", "612.0 MiB",
 * "22.61 GiB", "1.02 TiB". Returns buffer. */
const char *plec_size_text(char *buffer, uint64_t n_bytes);
/* A number with thousands separators, into buffer [PLEC_UNIT_TEXT_MAX]: "33,030,144". */
const char *plec_count_text(char *buffer, uint64_t n);

/* Reads bytes: digits and an optional unit: B, KiB, MiB, GiB, TiB (powers of 1024), KB, MB, GB, TB
 * (powers of 1000). False when it is no size or exceeds 64 bits. */
bool plec_size_parse(uint64_t *out, const char *text);
/* Reads decimal digits, at most max. */
bool plec_count_parse(uint64_t *out, const char *text, uint64_t max);

#ifdef __cplusplus
}
#endif
#endif
