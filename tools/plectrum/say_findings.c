#include "tools/plectrum/say_findings.h"

#include "tools/plectrum/cli.h"

int plec_say_findings(const char *path, const struct plec_findings *findings) {
    for (size_t i = 0; i < findings->n_items; i++) {
        const struct plec_finding *item = &findings->items[i];
        plec_cli_say("%s: %s%s: %s", path, item->severity == PLEC_NOTE ? "remark: " : "",
                     item->name, item->text);
    }
    uint64_t n_more = findings->n_defects + findings->n_notes - findings->n_items;
    if (n_more > 0) plec_cli_say("%s: and %llu more findings", path, (unsigned long long)n_more);
    return findings->n_defects > 0 ? PLEC_EXIT_FOUND : PLEC_EXIT_OK;
}
