/* bank.h: storages -> struct plec_bank: which schemas are the operands of a programme, their shapes
 * checked against each other, against the bank record and against the manifest, and every region of
 * every entry found and checked.
 *
 * The roles of one bank may come from several storages (a profile's variants). Views into the
 * store; tables in the caller's arena.
 */
#ifndef PLEC_HOST_BANK_H
#define PLEC_HOST_BANK_H

#include "host/operand.h"
#include "manifests/programme.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The roles an expert's operands have in files. */
enum plec_bank_role {
    PLEC_BANK_GATE,
    PLEC_BANK_UP,
    PLEC_BANK_FUSED,
    PLEC_BANK_DOWN,
    PLEC_BANK_BIAS,
    PLEC_N_BANK_ROLES
};
uint16_t plec_bank_role_tag(enum plec_bank_role role);

struct plec_bank_request {
    const struct plec_programme *programme;          /* NULL: the first whose roles are there */
    struct plec_storage *by_role[PLEC_N_BANK_ROLES]; /* where each role is read; NULL: nowhere */
    uint32_t n_entries; /* what the manifest says; 0: it says nothing */
    bool has_dims;
    uint32_t input, intermediate, output; /* what the manifest says, when has_dims */
};

/* Builds a bank, all but its maths and per-entry scales. PLEC_MISSING "UnsatisfiedProgramme" naming
 * the missing roles, "MissingRegion"; PLEC_MALFORMED "ExpertsContradicted",
 * "DimensionContradicted", "ShapesDisagree", "UndeclaredFusedLayout", "BiasUnmatched" and what
 * storage.h and operand.h list; PLEC_UNSUPPORTED "UnknownLayout" and operand.h's. *programme gets
 * the programme used. */
PLEC_MUST_USE enum plec_status plec_bank_build(struct plec_bank *out,
                                               const struct plec_programme **programme,
                                               struct plec_arena *arena,
                                               const struct plec_bank_request *request,
                                               struct plec_error *err);

/* Which schema is the bias of which operand, by the rule of docs/format.md "Two biases": sizes
 * first, then schema order. n_schemas biases of sizes[i] elements; places [n_schemas] gets
 * PLEC_GATE_BIAS (of a fused matrix too), PLEC_UP_BIAS or PLEC_DOWN_BIAS each. False when they
 * cannot be told apart. Sizes of absent operands are 0. */
bool plec_bank_match_biases(enum plec_operand_id *places, const uint64_t *sizes, uint32_t n_biases,
                            uint64_t gate_size, uint64_t up_size, uint64_t down_size);

#ifdef __cplusplus
}
#endif
#endif
