/* The registry half of capability.h: programme x format x backend -> rung. */
#include "manifests/capability.h"

static const char *const rung_names[] = {"representable", "reference", "grouped", "dispatched",
                                         "production"};

const char *plec_rung_name(enum plec_rung rung) {
    return rung <= PLEC_RUNG_PRODUCTION ? rung_names[rung] : "unknown";
}

enum plec_rung plec_registry_rung(const struct plec_backend_facts *backend,
                                  const struct plec_programme *programme, const uint16_t *formats,
                                  size_t n_formats) {
    enum plec_rung lowest = PLEC_RUNG_PRODUCTION;
    for (size_t i = 0; i < n_formats; i++) {
        enum plec_rung rung = plec_format_find(formats[i]) != NULL
                                  ? backend->rung(programme, formats[i])
                                  : PLEC_RUNG_REPRESENTABLE;
        if (rung < lowest) lowest = rung;
    }
    return n_formats > 0 ? lowest : PLEC_RUNG_REPRESENTABLE;
}

void plec_registry_visit(const struct plec_backend_facts *backends, size_t n_backends,
                         void (*visit)(void *user, const struct plec_registry_row *row),
                         void *user) {
    size_t n_programmes, n_formats;
    const struct plec_programme *programmes = plec_programme_all(&n_programmes);
    const struct plec_format *formats = plec_format_all(&n_formats);
    for (size_t i = 0; i < n_programmes; i++) {
        for (size_t j = 0; j < n_formats; j++) {
            for (size_t k = 0; k < n_backends; k++) {
                struct plec_registry_row row = {&programmes[i], &formats[j], &backends[k],
                                                PLEC_RUNG_REPRESENTABLE};
                row.rung = plec_registry_rung(&backends[k], &programmes[i], &formats[j].tag, 1);
                visit(user, &row);
            }
        }
    }
}
