#include "lyrw/findings.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PLEC_NAME_LENGTH = 64 };

static struct plec_finding *grow(struct plec_findings *list) {
    if (list->n_items == PLEC_FINDINGS_MAX) return NULL;
    if (list->n_items == list->capacity) {
        size_t capacity = list->capacity == 0 ? 16 : list->capacity * 2;
        struct plec_finding *items = realloc(list->items, capacity * sizeof *items);
        if (items == NULL) {
            list->out_of_memory = 1;
            return NULL;
        }
        list->items = items;
        list->capacity = capacity;
    }
    return &list->items[list->n_items];
}

void plec_findings_add(struct plec_findings *list, enum plec_severity severity, const char *name,
                       const char *format, ...) {
    if (severity == PLEC_DEFECT)
        list->n_defects++;
    else
        list->n_notes++;
    struct plec_finding *item = grow(list);
    if (item == NULL) return;

    char text[PLEC_ERROR_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);

    struct plec_error escaped;
    plec_fail(&escaped, PLEC_MALFORMED, name, "%s", text);
    item->text = strdup(escaped.message + strlen(name) + 2);
    if (item->text == NULL) {
        list->out_of_memory = 1;
        return;
    }
    item->severity = severity;
    item->name = name;
    list->n_items++;
}

void plec_findings_add_error(struct plec_findings *list, enum plec_severity severity,
                             const struct plec_error *err) {
    char name[PLEC_NAME_LENGTH];
    snprintf(name, sizeof name, "%s: ", err->name);
    const char *found = strstr(err->message, name);
    int before = found == NULL ? 0 : (int)(found - err->message);
    const char *after = found == NULL ? err->message : found + strlen(name);
    plec_findings_add(list, severity, err->name, "%.*s%s", before, err->message, after);
}

enum plec_status plec_findings_to_error(const struct plec_findings *list, enum plec_status code,
                                        struct plec_error *err) {
    if (list->n_defects == 0) return PLEC_OK;
    char text[PLEC_ERROR_MESSAGE_MAX] = "";
    size_t at = 0;
    uint64_t told = 0;
    const char *first = NULL;
    for (size_t i = 0; i < list->n_items; i++) {
        const struct plec_finding *item = &list->items[i];
        if (item->severity != PLEC_DEFECT) continue;
        /* The first one's name stands in front of the whole message. */
        char part[PLEC_ERROR_MESSAGE_MAX];
        int length = first == NULL
                         ? snprintf(part, sizeof part, "%s", item->text)
                         : snprintf(part, sizeof part, "; %s: %s", item->name, item->text);
        if (first == NULL) first = item->name;
        if (length < 0 || at + (size_t)length + 32 >= sizeof text) break;
        memcpy(text + at, part, (size_t)length + 1);
        at += (size_t)length;
        told++;
    }
    if (first == NULL) first = "OutOfMemory";
    if (told < list->n_defects)
        snprintf(text + at, sizeof text - at, "; and %llu more",
                 (unsigned long long)(list->n_defects - told));
    return plec_fail(err, code, first, "%s", text);
}

void plec_findings_clear(struct plec_findings *list) {
    for (size_t i = 0; i < list->n_items; i++)
        free(list->items[i].text);
    free(list->items);
    memset(list, 0, sizeof *list);
}
