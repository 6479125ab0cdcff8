#include "tools/plectrum/units.h"

#include <stdio.h>
#include <string.h>

#include "lyrw/cursor.h"

const char *plec_size_text(char *buffer, uint64_t n_bytes) {
    static const struct {
        double unit;
        const char *name;
        int decimals;
    } units[] = {{1099511627776.0, "TiB", 2},
                 {1073741824.0, "GiB", 2},
                 {1048576.0, "MiB", 1},
                 {1024.0, "KiB", 1}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if ((double)n_bytes >= units[i].unit) {
            snprintf(buffer, PLEC_UNIT_TEXT_MAX, "%.*f %s", units[i].decimals,
                     (double)n_bytes / units[i].unit, units[i].name);
            return buffer;
        }
    snprintf(buffer, PLEC_UNIT_TEXT_MAX, "%llu %s", (unsigned long long)n_bytes,
             n_bytes == 1 ? "byte" : "bytes");
    return buffer;
}

const char *plec_count_text(char *buffer, uint64_t n) {
    char digits[24];
    int n_digits = snprintf(digits, sizeof digits, "%llu", (unsigned long long)n);
    char *to = buffer;
    for (int i = 0; i < n_digits; i++) {
        if (i > 0 && (n_digits - i) % 3 == 0) *to++ = ',';
        *to++ = digits[i];
    }
    *to = '\0';
    return buffer;
}

/* Digits at the front of *text, which moves past them. */
static bool read_digits(uint64_t *out, const char **text) {
    const char *at = *text;
    uint64_t value = 0;
    for (; *at >= '0' && *at <= '9'; at++)
        if (!plec_mul_u64(&value, value, 10) || !plec_add_u64(&value, value, (uint64_t)(*at - '0')))
            return false;
    if (at == *text) return false;
    *out = value;
    *text = at;
    return true;
}

bool plec_count_parse(uint64_t *out, const char *text, uint64_t max) {
    uint64_t value;
    if (!read_digits(&value, &text) || *text != '\0' || value > max) return false;
    *out = value;
    return true;
}

bool plec_size_parse(uint64_t *out, const char *text) {
    static const struct {
        const char *name;
        uint64_t factor;
    } units[] = {{"", 1},
                 {"B", 1},
                 {"KiB", UINT64_C(1) << 10},
                 {"MiB", UINT64_C(1) << 20},
                 {"GiB", UINT64_C(1) << 30},
                 {"TiB", UINT64_C(1) << 40},
                 {"KB", 1000},
                 {"MB", 1000000},
                 {"GB", 1000000000},
                 {"TB", UINT64_C(1000000000000)}};
    uint64_t value;
    if (!read_digits(&value, &text)) return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (strcmp(text, units[i].name) == 0) return plec_mul_u64(out, value, units[i].factor);
    return false;
}
