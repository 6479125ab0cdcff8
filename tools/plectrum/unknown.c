#include "tools/plectrum/unknown.h"

#include <string.h>

enum { BANK_KIND, ROLE, FORMAT, PACKING, LAYOUT };

struct teller {
    struct plec_unknown_tags *tags;
    void (*tell)(void *user, const char *name);
    void *user;
};

static void see(const struct teller *teller, int kind, uint16_t tag, const char *name,
                const char *prefix) {
    /* Known tags have names of their own, unknown ones the prefix and their number. */
    if (strncmp(name, prefix, strlen(prefix)) != 0) return;
    uint8_t *byte = &teller->tags->told[kind][tag / 8], bit = (uint8_t)(1u << tag % 8);
    if ((*byte & bit) != 0) return;
    *byte |= bit;
    teller->tell(teller->user, name);
}

void plec_unknown_tags(struct plec_unknown_tags *tags, const struct plec_segment *segment,
                       void (*tell)(void *user, const char *name), void *user) {
    struct teller teller = {tags, tell, user};
    char name[PLEC_NAME_MAX];
    for (uint32_t i = 0; i < segment->header.num_banks; i++) {
        uint16_t kind = segment->banks[i].kind;
        see(&teller, BANK_KIND, kind, plec_bank_kind_name(kind, name), "bank_kind_");
    }
    for (uint64_t i = 0; i < segment->n_schemas; i++) {
        const struct plec_lyrw_schema *s = &segment->schemas[i];
        see(&teller, ROLE, s->role, plec_role_name(s->role, name), "role_");
        see(&teller, FORMAT, s->format, plec_format_name(s->format, name), "format_");
        see(&teller, PACKING, s->packing, plec_packing_name(s->packing, name), "packing_");
        see(&teller, LAYOUT, s->layout, plec_layout_name(s->layout, name), "layout_");
    }
}
