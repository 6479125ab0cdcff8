/* From the storage a manifest names to the segment keys that hold it. */
#include "manifests/index.h"

#include <string.h>

static const struct plec_index_segment *const *lower_bound(const struct plec_index *index,
                                                           const char *key) {
    size_t low = 0, high = index->n_segments;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(index->segments_by_key[middle]->key, key) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return index->segments_by_key + low;
}

const struct plec_index_segment *plec_index_find_segment(const struct plec_index *index,
                                                         const char *key) {
    const struct plec_index_segment *const *found = lower_bound(index, key);
    if (found == index->segments_by_key + index->n_segments) return NULL;
    return strcmp((*found)->key, key) == 0 ? *found : NULL;
}

/* N of "<storage>.segNN" as we write it: two digits, or as many as N needs; N fits the format's
 * 16-bit segment index. -1 for any other key. */
static int segment_number(const char *key, const char *storage) {
    size_t length = strlen(storage);
    if (strncmp(key, storage, length) != 0 || strncmp(key + length, ".seg", 4) != 0) return -1;
    const char *digits = key + length + 4;
    size_t n_digits = strspn(digits, "0123456789");
    if (n_digits < 2 || n_digits > 5 || digits[n_digits] != '\0') return -1;
    if (n_digits > 2 && digits[0] == '0') return -1;
    int number = 0;
    for (size_t i = 0; i < n_digits; i++)
        number = number * 10 + (digits[i] - '0');
    return number <= UINT16_MAX ? number : -1;
}

/* Keys that begin with storage follow each other in key order. */
static bool begins_with(const struct plec_index *index, const struct plec_index_segment *const *at,
                        const char *storage) {
    return at < index->segments_by_key + index->n_segments &&
           strncmp((*at)->key, storage, strlen(storage)) == 0;
}

enum plec_status plec_index_resolve_storage(const char **keys, size_t *n_keys,
                                            const struct plec_index *index, const char *storage,
                                            struct plec_error *err) {
    const struct plec_index_segment *whole = plec_index_find_segment(index, storage);
    *n_keys = 0;
    if (whole != NULL) {
        keys[(*n_keys)++] = whole->key;
        return PLEC_OK;
    }
    const struct plec_index_segment *const *first = lower_bound(index, storage);
    size_t n = 0;
    for (const struct plec_index_segment *const *at = first; begins_with(index, at, storage); at++)
        if (segment_number((*at)->key, storage) >= 0) keys[n++] = NULL;
    for (const struct plec_index_segment *const *at = first; begins_with(index, at, storage);
         at++) {
        int number = segment_number((*at)->key, storage);
        if (number >= 0 && (size_t)number < n) keys[number] = (*at)->key;
    }
    for (size_t i = 0; i < n; i++)
        if (keys[i] == NULL)
            return plec_fail(
                err, PLEC_MALFORMED, "SegmentGap",
                "storage \"%.200s\": %zu segments are declared, and \"%.200s.seg%02zu\""
                " is not among them",
                storage, n, storage, i);
    *n_keys = n;
    return PLEC_OK;
}
