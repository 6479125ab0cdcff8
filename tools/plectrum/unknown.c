#include "tools/plectrum/unknown.h"

#include <string.h>

enum { BANK_KIND, ROLE, FORMAT, PACKING, LAYOUT, N_TAG_KINDS };

struct tags {
    /* One bit a tag already told: constant memory, whatever the number of schemas. */
    uint8_t told[N_TAG_KINDS][65536 / 8];
    void (*tell)(void *user, const char *name);
    void *user;
};

static void see(struct tags *tags, int kind, uint16_t tag, const char *name, const char *prefix) {
    /* Known tags have names of their own, unknown ones the prefix and their number. */
    if (strncmp(name, prefix, strlen(prefix)) != 0) return;
    uint8_t *byte = &tags->told[kind][tag / 8], bit = (uint8_t)(1u << tag % 8);
    if ((*byte & bit) != 0) return;
    *byte |= bit;
    tags->tell(tags->user, name);
}

void plec_unknown_tags(const struct plec_segment *segment,
                       void (*tell)(void *user, const char *name), void *user) {
    struct tags tags = {.tell = tell, .user = user};
    char name[PLEC_NAME_MAX];
    for (uint32_t i = 0; i < segment->header.num_banks; i++) {
        uint16_t kind = segment->banks[i].kind;
        see(&tags, BANK_KIND, kind, plec_bank_kind_name(kind, name), "bank_kind_");
    }
    for (uint64_t i = 0; i < segment->n_schemas; i++) {
        const struct plec_lyrw_schema *s = &segment->schemas[i];
        see(&tags, ROLE, s->role, plec_role_name(s->role, name), "role_");
        see(&tags, FORMAT, s->format, plec_format_name(s->format, name), "format_");
        see(&tags, PACKING, s->packing, plec_packing_name(s->packing, name), "packing_");
        see(&tags, LAYOUT, s->layout, plec_layout_name(s->layout, name), "layout_");
    }
}
