/* bind.h: what a manifest says about a layer, turned into the numbers the executors take: the
 * router's rules and the experts' activation. Pure: no file is touched here.
 */
#ifndef PLEC_HOST_BIND_H
#define PLEC_HOST_BIND_H

#include "device/layer.h"
#include "manifests/moe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The rules of a router over n_experts, without its tensors. has_selection_bias: role 257 is there
 * (it turns "softmax over the selected" into scores that are normalised). PLEC_UNSUPPORTED:
 * "SharedExpertSink", "NormAfterTopK", "QuantileBalanced" (no executable definition is published).
 * PLEC_MALFORMED: "SelectsNothing" (k = 0), "SelectionExceedsBank", "GroupsDoNotDivide",
 * "UnknownGating", "UnknownSelectOn", "UnknownWeightOn". Source: docs/format.md "Routers". */
PLEC_MUST_USE enum plec_status plec_bind_router(struct plec_router *out,
                                                const struct plec_moe_router *router,
                                                uint32_t n_experts, uint32_t hidden_size,
                                                bool has_selection_bias, struct plec_error *err);

/* The activation of a bank and its parameters: what is given, else the programme's default, which
 * is said through the log. which: "routed", "shared", "dense". PLEC_UNSUPPORTED
 * "UnknownActivation"; PLEC_MALFORMED "BadActivationLimit". */
PLEC_MUST_USE enum plec_status plec_bind_maths(struct plec_expert_maths *out,
                                               const struct plec_moe_expert *expert,
                                               const struct plec_programme *programme,
                                               const char *which, const struct plec_log *log,
                                               struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
