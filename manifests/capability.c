#include "manifests/capability.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum plec_capability_cause plec_capability_operand(uint16_t format, uint16_t packing) {
    const struct plec_format *known = plec_format_find(format);
    if (known == NULL) return PLEC_CAUSE_UNSUPPORTED_FORMAT;
    bool fits = known->geometry == PLEC_PAIRED
                    ? packing == PLEC_PACKING_BLOCKS_VALUES
                    : packing == PLEC_PACKING_ROW_MAJOR || packing == PLEC_PACKING_BLOCKS_INLINE;
    return fits ? PLEC_CAUSE_NONE : PLEC_CAUSE_UNSUPPORTED_PACKING;
}

/* What is known of one role in one required segment. */
enum cell { CELL_EMPTY, CELL_USABLE, CELL_UNUSABLE };

/* One judgement under way. The cells of one role set: [PLEC_ROLE_SET_MAX][n_columns]. */
struct judge {
    const struct plec_capability_query *query;
    uint32_t
        *segments;    /* [n_columns] the required ones, ascending; unused when the bank is whole */
    size_t n_columns; /* at least 1: a bank in one piece is one column */
    uint8_t *cells;
};

static int compare_segments(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void sort_segments(struct judge *judge) {
    const struct plec_capability_query *query = judge->query;
    judge->n_columns = 1;
    if (query->n_required == 0) return;
    memcpy(judge->segments, query->required_segments, query->n_required * sizeof *judge->segments);
    qsort(judge->segments, query->n_required, sizeof *judge->segments, compare_segments);
    for (size_t i = 1; i < query->n_required; i++)
        if (judge->segments[i] != judge->segments[i - 1])
            judge->segments[judge->n_columns++] = judge->segments[i];
}

/* The columns a region covers: [*first, *end); empty when it lies outside. */
static void columns_of(size_t *first, size_t *end, const struct judge *judge,
                       const struct plec_capability_region *region) {
    *first = 0;
    *end = judge->n_columns;
    if (region->unsegmented || judge->query->n_required == 0) return;
    const uint32_t *found = bsearch(&region->segment, judge->segments, judge->n_columns,
                                    sizeof *judge->segments, compare_segments);
    *first = found == NULL ? 0 : (size_t)(found - judge->segments);
    *end = found == NULL ? 0 : *first + 1;
}

static enum plec_capability_cause operand_cause(const struct plec_capability_query *query,
                                                const struct plec_capability_region *region) {
    return query->operand != NULL ? query->operand(region->format, region->packing)
                                  : plec_capability_operand(region->format, region->packing);
}

static bool is_omitted(const struct plec_capability_query *query, uint16_t role) {
    for (size_t i = 0; i < query->n_omitted; i++)
        if (query->omitted[i] == role) return true;
    return false;
}

/* Marks a role's cells. One region of a cell that cannot be used spoils it, so that two biases of
 * an expert need both. Returns the cause that stands if no cell is usable. */
static struct plec_unusable_role mark_role(const struct judge *judge, uint8_t *cells,
                                           uint16_t role) {
    const struct plec_capability_query *query = judge->query;
    struct plec_unusable_role finding = {.role = role, .cause = PLEC_CAUSE_ABSENT};
    for (size_t i = 0; i < query->n_regions; i++) {
        const struct plec_capability_region *region = &query->regions[i];
        if (region->role != role) continue;
        size_t first, end;
        columns_of(&first, &end, judge, region);
        enum plec_capability_cause cause =
            first == end ? PLEC_CAUSE_OUTSIDE_REQUIRED : operand_cause(query, region);
        for (size_t j = first; j < end; j++)
            if (cells[j] != CELL_UNUSABLE)
                cells[j] = cause == PLEC_CAUSE_NONE ? CELL_USABLE : CELL_UNUSABLE;
        /* Causes are listed by weight; the first unsupported region stands for all. */
        if (cause <= finding.cause || finding.cause >= PLEC_CAUSE_UNSUPPORTED_FORMAT) continue;
        finding.cause = cause;
        finding.tag = cause == PLEC_CAUSE_UNSUPPORTED_PACKING ? region->packing : region->format;
        finding.has_segment = !region->unsegmented && query->n_required > 0;
        finding.segment = region->segment;
    }
    if (finding.cause == PLEC_CAUSE_ABSENT && is_omitted(query, role))
        finding.cause = PLEC_CAUSE_OMITTED;
    return finding;
}

static bool any_usable(const uint8_t *cells, size_t n) {
    return memchr(cells, CELL_USABLE, n) != NULL;
}

static bool contains(const struct plec_role_set *set, uint16_t role) {
    for (uint32_t i = 0; i < set->n_roles; i++)
        if (set->roles[i] == role) return true;
    return false;
}

static enum plec_fidelity weakest(const struct judge *judge, const struct plec_role_set *set) {
    enum plec_fidelity fidelity = PLEC_SOURCE_EXACT;
    for (size_t i = 0; i < judge->query->n_regions; i++) {
        const struct plec_capability_region *region = &judge->query->regions[i];
        size_t first, end;
        columns_of(&first, &end, judge, region);
        if (first != end && contains(set, region->role) && region->fidelity < fidelity)
            fidelity = region->fidelity;
    }
    return fidelity;
}

/* Every role is usable somewhere: compares where. */
static void judge_coverage(struct plec_capability_set *out, const struct judge *judge,
                           const struct plec_role_set *set) {
    bool differ = false, wanting = false;
    for (size_t j = 0; j < judge->n_columns; j++) {
        uint32_t n_covering = 0, lacking = 0;
        for (uint32_t i = 0; i < set->n_roles; i++) {
            bool covers = judge->cells[i * judge->n_columns + j] == CELL_USABLE;
            n_covering += covers;
            if (!covers) lacking = i;
        }
        if (n_covering == set->n_roles) {
            out->n_covered++;
            continue;
        }
        /* A segment the roles disagree on tells more than one that they all lack. */
        bool tells_more = n_covering > 0 && !differ;
        if (!wanting || tells_more) {
            out->wanting_role = set->roles[lacking];
            out->wanting_segment = judge->query->n_required > 0 ? judge->segments[j] : 0;
        }
        wanting = true;
        differ |= n_covering > 0;
    }
    out->outcome = differ ? PLEC_INVALID_SELECTION : wanting ? PLEC_INCOMPLETE : PLEC_EXECUTABLE;
    if (out->outcome == PLEC_EXECUTABLE) out->fidelity = weakest(judge, set);
}

static void judge_set(struct plec_capability_set *out, const struct judge *judge,
                      const struct plec_role_set *set) {
    memset(out, 0, sizeof *out);
    memset(judge->cells, CELL_EMPTY, PLEC_ROLE_SET_MAX * judge->n_columns);
    for (uint32_t i = 0; i < set->n_roles; i++) {
        uint8_t *cells = judge->cells + i * judge->n_columns;
        struct plec_unusable_role finding = mark_role(judge, cells, set->roles[i]);
        if (!any_usable(cells, judge->n_columns)) out->unusable[out->n_unusable++] = finding;
    }
    if (out->n_unusable > 0)
        out->outcome = PLEC_BLOCKED;
    else
        judge_coverage(out, judge, set);
}

/* A text that grows up to its capacity. */
struct text {
    char bytes[480];
    size_t size;
};

static void add(struct text *to, const char *format, ...) PLEC_PRINTF(2, 3);

static void add(struct text *to, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int n = vsnprintf(to->bytes + to->size, sizeof to->bytes - to->size, format, args);
    va_end(args);
    if (n > 0) to->size += (size_t)n;
    if (to->size >= sizeof to->bytes) to->size = sizeof to->bytes - 1;
}

static void add_unusable(struct text *to, const struct plec_unusable_role *finding) {
    char role[PLEC_NAME_MAX], tag[PLEC_NAME_MAX];
    add(to, "role %s ", plec_role_name(finding->role, role));
    switch (finding->cause) {
    case PLEC_CAUSE_NONE: break;
    case PLEC_CAUSE_OMITTED: add(to, "is omitted by the selection"); break;
    case PLEC_CAUSE_ABSENT: add(to, "is absent everywhere"); break;
    case PLEC_CAUSE_OUTSIDE_REQUIRED:
        add(to, "is present only outside the required segments");
        break;
    case PLEC_CAUSE_UNSUPPORTED_FORMAT:
        add(to, "has format %s, which is not supported", plec_format_name(finding->tag, tag));
        break;
    case PLEC_CAUSE_UNSUPPORTED_PACKING:
        add(to, "has packing %s, which is not supported", plec_packing_name(finding->tag, tag));
        break;
    }
    if (finding->has_segment) add(to, " (segment %u)", finding->segment);
}

static const struct {
    enum plec_status status;
    const char *name;
} cause_errors[] = {
    [PLEC_CAUSE_NONE] = {PLEC_MISSING, "MissingRegion"},
    [PLEC_CAUSE_OMITTED] = {PLEC_MISSING, "OmittedRegion"},
    [PLEC_CAUSE_ABSENT] = {PLEC_MISSING, "MissingRegion"},
    [PLEC_CAUSE_OUTSIDE_REQUIRED] = {PLEC_MISSING, "RegionOutsideSegments"},
    [PLEC_CAUSE_UNSUPPORTED_FORMAT] = {PLEC_UNSUPPORTED, "UnsupportedFormat"},
    [PLEC_CAUSE_UNSUPPORTED_PACKING] = {PLEC_UNSUPPORTED, "UnsupportedPacking"},
};

static void add_set(struct text *to, const struct plec_capability_query *query,
                    const struct plec_role_set *set) {
    char role[PLEC_NAME_MAX];
    add(to, "layer %u, %s bank, %s [", query->layer, query->bank, query->programme->name);
    for (uint32_t i = 0; i < set->n_roles; i++)
        add(to, "%s%s", i > 0 ? ", " : "", plec_role_name(set->roles[i], role));
    add(to, "]: ");
}

/* Tells the closest failure. */
static enum plec_status refuse(const struct plec_capability_set *failure, const struct judge *judge,
                               const struct plec_role_set *set, struct plec_error *err) {
    struct text text = {.size = 0};
    char role[PLEC_NAME_MAX];
    add_set(&text, judge->query, set);
    if (failure->outcome == PLEC_BLOCKED) {
        for (uint32_t i = 0; i < failure->n_unusable; i++) {
            if (i > 0) add(&text, "; ");
            add_unusable(&text, &failure->unusable[i]);
        }
        enum plec_capability_cause cause = failure->unusable[0].cause;
        return plec_fail(err, cause_errors[cause].status, cause_errors[cause].name, "%s",
                         text.bytes);
    }
    bool invalid = failure->outcome == PLEC_INVALID_SELECTION;
    add(&text, "%s: all roles cover %zu of %zu required segments; role %s lacks segment %u",
        !invalid                  ? "incomplete"
        : failure->n_covered == 0 ? "no common coverage"
                                  : "unequal coverage",
        failure->n_covered, judge->n_columns, plec_role_name(failure->wanting_role, role),
        failure->wanting_segment);
    return plec_fail(err, invalid ? PLEC_MALFORMED : PLEC_MISSING,
                     invalid ? "InvalidSelection" : "IncompleteSelection", "%s", text.bytes);
}

/* True when a is a better thing to tell than b: executable, or else closer to it. */
static bool is_better(const struct plec_capability_set *a, const struct plec_capability_set *b) {
    bool a_runs = a->outcome == PLEC_EXECUTABLE, b_runs = b->outcome == PLEC_EXECUTABLE;
    return a_runs != b_runs ? a_runs : a->n_unusable < b->n_unusable;
}

static enum plec_status judge_all(struct plec_capability *out, struct judge *judge,
                                  struct plec_error *err) {
    const struct plec_programme *programme = judge->query->programme;
    sort_segments(judge);
    for (uint32_t i = 0; i < programme->n_sets; i++) {
        judge_set(&out->sets[i], judge, &programme->sets[i]);
        out->n_executable += out->sets[i].outcome == PLEC_EXECUTABLE;
        if (is_better(&out->sets[i], &out->sets[out->best])) out->best = i;
    }
    if (out->n_executable > 0) return PLEC_OK;
    return refuse(&out->sets[out->best], judge, &programme->sets[out->best], err);
}

enum plec_status plec_capability_check(struct plec_capability *out,
                                       const struct plec_capability_query *query,
                                       struct plec_error *err) {
    memset(out, 0, sizeof *out);
    assert(query->programme->n_sets > 0);
    size_t n = query->n_required > 0 ? query->n_required : 1;
    struct judge judge = {.query = query};
    judge.segments = calloc(n, sizeof *judge.segments);
    judge.cells = calloc(n, PLEC_ROLE_SET_MAX);
    enum plec_status status =
        judge.segments == NULL || judge.cells == NULL
            ? plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%zu segments", query->n_required)
            : judge_all(out, &judge, err);
    free(judge.segments);
    free(judge.cells);
    return status;
}
