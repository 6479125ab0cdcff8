/* capability.h: can the regions a run selected carry a programme, and how far has each backend come
 * with it?
 *
 * The check is per bank and knows names and tags only: which role is there, in which segments, in
 * which format and packing. Lengths, shapes and pairs are the binder's. The registry is the same
 * question asked of the code: programme x format x backend -> rung. Owns nothing.
 */
#ifndef PLEC_MANIFESTS_CAPABILITY_H
#define PLEC_MANIFESTS_CAPABILITY_H

#include "manifests/index.h"
#include "manifests/programme.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One selected region of a bank: its schema in one segment, or in all of them. */
struct plec_capability_region {
    uint16_t role, format, packing;
    enum plec_fidelity fidelity;
    bool unsegmented; /* covers every segment; `segment` is then ignored */
    uint32_t segment;
};

/* Why a required role cannot be used, the lightest cause first. */
enum plec_capability_cause {
    PLEC_CAUSE_NONE,
    PLEC_CAUSE_OMITTED,          /* by the selection, on purpose: no defect */
    PLEC_CAUSE_ABSENT,           /* in no segment at all */
    PLEC_CAUSE_OUTSIDE_REQUIRED, /* only in segments the run does not need */
    PLEC_CAUSE_UNSUPPORTED_FORMAT,
    PLEC_CAUSE_UNSUPPORTED_PACKING
};

/* PLEC_CAUSE_NONE when a region in this format and packing can be an operand: the format has a
 * codec, and the packing is the one of its geometry (packings 0 and 1 alike mean the whole operand,
 * 2 the values of a paired format). */
enum plec_capability_cause plec_capability_operand(uint16_t format, uint16_t packing);

struct plec_capability_query {
    uint32_t layer;   /* coordinates of messages, with bank */
    const char *bank; /* "routed", "shared", "dense" */
    const struct plec_programme *programme;
    const struct plec_capability_region *regions; /* [n_regions], any order */
    size_t n_regions;
    const uint32_t *required_segments; /* [n_required], any order; none: the bank is in one piece */
    size_t n_required;
    const uint16_t *omitted; /* [n_omitted] roles the selection leaves out on purpose */
    size_t n_omitted;
    /* What the executor can read; NULL: plec_capability_operand. */
    enum plec_capability_cause (*operand)(uint16_t format, uint16_t packing);
};

enum plec_capability_outcome {
    PLEC_EXECUTABLE,        /* every role covers every required segment */
    PLEC_INCOMPLETE,        /* the roles agree on which segments they cover, and some are wanting */
    PLEC_INVALID_SELECTION, /* the roles cover different segments: never an approximation */
    PLEC_BLOCKED            /* a role is usable nowhere; segments are not compared */
};

struct plec_unusable_role {
    uint16_t role;
    enum plec_capability_cause cause;
    uint16_t tag;     /* the format or packing not supported */
    bool has_segment; /* false: absent, omitted, or not in segments */
    uint32_t segment; /* where it was seen */
};

/* One acceptable role set of the programme. */
struct plec_capability_set {
    enum plec_capability_outcome outcome;
    struct plec_unusable_role unusable[PLEC_ROLE_SET_MAX]; /* BLOCKED: in the set's order */
    uint32_t n_unusable;
    size_t n_covered;            /* required segments every role covers; 0 with INVALID_SELECTION:
                                    no common coverage */
    uint16_t wanting_role;       /* INCOMPLETE, INVALID_SELECTION: a role that lacks ... */
    uint32_t wanting_segment;    /* ... this required segment, the lowest that is lacked */
    enum plec_fidelity fidelity; /* EXECUTABLE: the weakest of the regions it uses */
};

struct plec_capability {
    struct plec_capability_set sets[PLEC_ROLE_SETS_MAX]; /* [programme->n_sets], in its order */
    uint32_t n_executable;                               /* all of them are kept */
    uint32_t best; /* the first executable set; else the closest failure: the fewest unusable
                      roles, ties to the first */
};

/* Judges every acceptable set. PLEC_OK when one is executable. Else the closest failure, naming
 * layer, bank, role, segment and tag: PLEC_MISSING "OmittedRegion", "MissingRegion",
 * "RegionOutsideSegments" or "IncompleteSelection"; PLEC_UNSUPPORTED "UnsupportedFormat" or
 * "UnsupportedPacking"; PLEC_MALFORMED "InvalidSelection". PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_capability_check(struct plec_capability *out,
                                                     const struct plec_capability_query *query,
                                                     struct plec_error *err);

/* How far a backend has come with a programme in a format; each rung includes those below it. */
enum plec_rung {
    PLEC_RUNG_REPRESENTABLE, /* a container can say it; nothing runs it */
    PLEC_RUNG_REFERENCE,     /* runs, slow and plainly right */
    PLEC_RUNG_GROUPED,       /* a kernel runs all tokens of an expert together */
    PLEC_RUNG_DISPATCHED,    /* ... and a run chooses that kernel by itself */
    PLEC_RUNG_PRODUCTION     /* ... and its speed is measured and held by a test */
};
const char *plec_rung_name(enum plec_rung rung);

/* What a backend says of itself. Facts come from the backend's own table of kernels. */
struct plec_backend_facts {
    const char *name; /* "reference", "cpu", "cuda" */
    enum plec_rung (*rung)(const struct plec_programme *programme, uint16_t format);
};

/* The rung of an expert whose operands are in these formats [n_formats]: the lowest of theirs. A
 * format without a codec is representable, whatever the backend says. */
enum plec_rung plec_registry_rung(const struct plec_backend_facts *backend,
                                  const struct plec_programme *programme, const uint16_t *formats,
                                  size_t n_formats);

struct plec_registry_row {
    const struct plec_programme *programme;
    const struct plec_format *format;
    const struct plec_backend_facts *backend;
    enum plec_rung rung;
};
/* Calls visit(user, row) for every programme x format x backend, backends innermost. */
void plec_registry_visit(const struct plec_backend_facts *backends, size_t n_backends,
                         void (*visit)(void *user, const struct plec_registry_row *row),
                         void *user);

#ifdef __cplusplus
}
#endif
#endif
