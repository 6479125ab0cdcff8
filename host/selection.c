#include "host/selection.h"

#include <string.h>

static const struct {
    const char *name;
    enum plec_bank_role role;
} role_names[] = {
    {"gate", PLEC_BANK_GATE}, {"up", PLEC_BANK_UP},     {"gate_up_fused", PLEC_BANK_FUSED},
    {"down", PLEC_BANK_DOWN}, {"bias", PLEC_BANK_BIAS},
};

/* Skips prefix; NULL when text does not start with it. */
static const char *skip(const char *text, const char *prefix) {
    size_t n = strlen(prefix);
    return text != NULL && strncmp(text, prefix, n) == 0 ? text + n : NULL;
}

/* A decimal u32 without leading zeros; NULL when there is none. */
static const char *skip_number(uint32_t *out, const char *text) {
    if (text == NULL || text[0] < '0' || text[0] > '9') return NULL;
    if (text[0] == '0' && text[1] >= '0' && text[1] <= '9') return NULL;
    uint64_t value = 0;
    for (; *text >= '0' && *text <= '9'; text++) {
        value = value * 10 + (uint64_t)(*text - '0');
        if (value > UINT32_MAX) return NULL;
    }
    *out = (uint32_t)value;
    return text;
}

bool plec_region_set_parse(struct plec_region_set *out, const char *name) {
    memset(out, 0, sizeof *out);
    const char *rest = skip_number(&out->layer, skip(name, "layer."));
    const char *routed = skip(rest, ".routed."), *shared = skip(rest, ".shared.");
    const char *role = routed != NULL ? routed : shared;
    if (role == NULL || *role == '\0') return false;
    out->shared = shared != NULL;
    out->gate_up = strcmp(role, "gate_up") == 0;
    out->known_role = out->gate_up;
    for (size_t i = 0; i < sizeof role_names / sizeof role_names[0]; i++)
        if (strcmp(role, role_names[i].name) == 0) {
            out->role = role_names[i].role;
            out->known_role = true;
        }
    return true;
}

enum plec_status plec_selection_check_profile(const struct plec_resolved_profile *profile,
                                              struct plec_error *err) {
    for (size_t i = 0; i < profile->n_selections; i++) {
        const struct plec_resolved_selection *selection = &profile->selections[i];
        struct plec_region_set set;
        bool meant = plec_region_set_parse(&set, selection->region_set) && set.known_role;
        if (selection->chosen && !meant)
            return plec_fail(err, PLEC_UNSUPPORTED, "RegionSetWithoutMeaning",
                             "profile %s selects set %s: a run reads sets named "
                             "layer.N.routed.ROLE or layer.N.shared.ROLE",
                             profile->name, selection->region_set);
    }
    return PLEC_OK;
}

/* *out is NULL when the index declares no file of the storage. */
static enum plec_status open_storage(struct plec_storage **out, struct plec_arena *arena,
                                     const struct plec_selection_args *args, const char *name,
                                     struct plec_error *err) {
    *out = NULL;
    struct plec_arena scratch = {NULL};
    size_t n_keys = 0;
    const char **keys = plec_arena_alloc(&scratch, args->index->n_segments, sizeof *keys, err);
    enum plec_status status =
        keys == NULL ? PLEC_NO_MEMORY
                     : plec_index_resolve_storage(keys, &n_keys, args->index, name, err);
    struct plec_storage *storage = NULL;
    if (status == PLEC_OK && n_keys > 0) {
        storage = plec_arena_alloc(arena, 1, sizeof *storage, err);
        status = storage == NULL ? PLEC_NO_MEMORY
                                 : plec_storage_open(storage, arena, args->store, name, keys,
                                                     n_keys, args->kind, err);
    }
    plec_arena_close(&scratch);
    if (status != PLEC_OK || storage == NULL) return status;
    if (storage->logical_layer != args->layer)
        return plec_fail(err, PLEC_MALFORMED, "LayerContradicted",
                         "segment %s: the manifest says layer %u, the file's header %u",
                         storage->parts[0].key, args->layer, storage->logical_layer);
    *out = storage;
    return PLEC_OK;
}

/* The storage of a name, opened once a bank however many sets read it. */
struct opened {
    /* the manifest's, one a role, and one of a set that is then refused as a conflict */
    struct plec_storage *items[PLEC_N_BANK_ROLES + 2];
    size_t n_items;
};

static enum plec_status find_storage(struct plec_storage **out, struct opened *opened,
                                     struct plec_arena *arena,
                                     const struct plec_selection_args *args, const char *name,
                                     struct plec_error *err) {
    for (size_t i = 0; i < opened->n_items; i++)
        if (strcmp(opened->items[i]->name, name) == 0) {
            *out = opened->items[i];
            return PLEC_OK;
        }
    enum plec_status status = open_storage(out, arena, args, name, err);
    if (status == PLEC_OK && *out != NULL) opened->items[opened->n_items++] = *out;
    return status;
}

static enum plec_status fail_undeclared(const char *storage, struct plec_error *err) {
    return plec_fail(err, PLEC_MISSING, "StorageUndeclared",
                     "storage %s: the index declares neither that segment key nor %s.seg00",
                     storage, storage);
}

/* The roles a set replaces, as a mask, and those its storage must have. */
static unsigned replaced_roles(const struct plec_region_set *set) {
    const unsigned gate_up = 1u << PLEC_BANK_GATE | 1u << PLEC_BANK_UP | 1u << PLEC_BANK_FUSED;
    if (set->gate_up) return gate_up;
    return 1u << set->role;
}

/* Points the roles of a set at its storage. A fused matrix and gate with up stand for one another:
 * where a set gives one, the other is no longer read from the manifest's storage. */
static enum plec_status apply(struct plec_storage **by_role, unsigned *selected,
                              const struct plec_region_set *set,
                              const struct plec_resolved_selection *selection,
                              struct plec_storage *storage, struct plec_error *err) {
    unsigned roles = replaced_roles(set), n_found = 0;
    if ((roles & *selected) != 0)
        return plec_fail(err, PLEC_MALFORMED, "ConflictingSelections",
                         "set %s gives a role that another set gives too", selection->region_set);
    for (int i = 0; i < PLEC_N_BANK_ROLES; i++) {
        if ((roles & 1u << i) == 0) continue;
        bool found = plec_storage_has_role(storage, plec_bank_role_tag((enum plec_bank_role)i));
        by_role[i] = found ? storage : NULL;
        n_found += found;
    }
    if (n_found == 0)
        return plec_fail(err, PLEC_MISSING, "SelectedRoleMissing",
                         "set %s selects variant %s: segment %s has no such region",
                         selection->region_set, selection->variant, storage->parts[0].key);
    if (!set->gate_up && set->role == PLEC_BANK_FUSED) {
        if ((*selected & 1u << PLEC_BANK_GATE) == 0) by_role[PLEC_BANK_GATE] = NULL;
        if ((*selected & 1u << PLEC_BANK_UP) == 0) by_role[PLEC_BANK_UP] = NULL;
    }
    if (!set->gate_up && (set->role == PLEC_BANK_GATE || set->role == PLEC_BANK_UP) &&
        (*selected & 1u << PLEC_BANK_FUSED) == 0)
        by_role[PLEC_BANK_FUSED] = NULL;
    *selected |= roles;
    return PLEC_OK;
}

static enum plec_status apply_set(struct plec_storage **by_role, unsigned *selected,
                                  struct opened *opened, struct plec_arena *arena,
                                  const struct plec_selection_args *args,
                                  const struct plec_resolved_selection *selection,
                                  const struct plec_region_set *set, struct plec_error *err) {
    if (!set->known_role)
        return plec_fail(err, PLEC_UNSUPPORTED, "RegionSetWithoutMeaning",
                         "set %s: a run reads the roles gate, up, gate_up, gate_up_fused, down and "
                         "bias",
                         selection->region_set);
    struct plec_storage *storage;
    enum plec_status status = find_storage(&storage, opened, arena, args, selection->storage, err);
    if (status == PLEC_OK && storage == NULL) status = fail_undeclared(selection->storage, err);
    if (status == PLEC_OK) return apply(by_role, selected, set, selection, storage, err);
    plec_error_context(err, "set %s variant %s", selection->region_set, selection->variant);
    return status;
}

enum plec_status plec_selection_open(struct plec_storage **by_role, struct plec_arena *arena,
                                     const struct plec_selection_args *args,
                                     struct plec_error *err) {
    struct opened opened = {{NULL}, 0};
    struct plec_storage *base;
    unsigned selected = 0;
    enum plec_status status = find_storage(&base, &opened, arena, args, args->storage, err);
    for (int i = 0; i < PLEC_N_BANK_ROLES; i++)
        by_role[i] = base;
    for (size_t i = 0; status == PLEC_OK && i < args->profile->n_selections; i++) {
        struct plec_region_set set;
        const struct plec_resolved_selection *selection = &args->profile->selections[i];
        if (!plec_region_set_parse(&set, selection->region_set)) continue;
        if (set.layer != args->layer || set.shared != args->shared) continue;
        status = apply_set(by_role, &selected, &opened, arena, args, selection, &set, err);
    }
    if (status == PLEC_OK && base == NULL && selected == 0)
        return fail_undeclared(args->storage, err);
    return status;
}
