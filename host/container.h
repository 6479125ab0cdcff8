/* container.h: anything a path can open, as layers of banks.
 *
 * Owns: the mappings, manifests and tables of what it opened. Layers bound from it are views and
 * must be closed before it. Never: runs anything, copies weights. A container is read-only after
 * open; all calls but close may come from any thread.
 */
#ifndef PLEC_HOST_CONTAINER_H
#define PLEC_HOST_CONTAINER_H

#include "device/layer.h"
#include "host/arena.h"
#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_container;

enum plec_container_kind {
    PLEC_CONTAINER_VINDEX, /* a VINDEX3 bank directory */
    PLEC_CONTAINER_LYRW,   /* one .lyrw file */
    PLEC_CONTAINER_GGUF,   /* a GGUF file or split set */
    PLEC_CONTAINER_TEZW
};
const char *plec_container_kind_name(enum plec_container_kind kind);

struct plec_container_options {
    const char *profile;      /* NULL: "exact", else the first, else the manifest's storage */
    const char *architecture; /* GGUF: --as; NULL: what the file says */
    const char *set;          /* GGUF: --set "gating=sigmoid,norm=1"; NULL: nothing */
    struct plec_log log;
};

/* Opens a path by what it is: a directory by its index.json, a file by its first bytes. options
 * NULL: defaults. PLEC_BAD_INPUT "OptionUnused": an architecture or settings for something else.
 * Every status of the readers, with the path in front. */
PLEC_MUST_USE enum plec_status plec_container_open(struct plec_container **out, const char *path,
                                                   const struct plec_container_options *options,
                                                   struct plec_error *err);
enum plec_container_kind plec_container_get_kind(const struct plec_container *container);
void plec_container_close(struct plec_container *container);

/* Layers that have something to run, in the order of the source. */
size_t plec_container_n_layers(const struct plec_container *container);

struct plec_layer_info {
    uint32_t layer;
    bool dense;                                       /* one expert, no routing */
    uint32_t hidden_size, n_experts, top_k, n_shared; /* n_shared: entries of the shared bank */
    const char *programme; /* "gated-mlp-v1"; NULL when the source names none */
    const char *storage;   /* key or tensor prefix; a view */
};
/* i < plec_container_n_layers. What the source declares, without touching the bank files. */
void plec_container_layer_info(struct plec_layer_info *out, const struct plec_container *container,
                               size_t i);

/* What a source says of its model. Texts are views, UTF-8, never NULL but for derived_from. */
struct plec_container_about {
    const char *model, *family;
    const char *derived_from; /* what it was made from, or NULL */
    uint32_t n_layers;        /* of the model; 0: not said */
    bool derived;             /* not the model's own container */
};
void plec_container_get_about(struct plec_container_about *out,
                              const struct plec_container *container);

/* A layer ready to run: every operand resolved and checked. */
struct plec_bound_layer {
    struct plec_layer layer;    /* views into the container and into `owned` */
    bool dense;                 /* layer.routed is one expert: ids 0, weights 1 unless given */
    bool routing_required;      /* no router tensors: the caller must give ids and weights */
    bool router_input_required; /* the router reads another vector than the experts */
    const int32_t *token_table; /* [n_token_ids, router.top_k] experts by token id, or NULL: routed
                                   by scores */
    uint32_t n_token_ids;
    struct plec_matrix input_norm; /* gain of the norm in front of the layer: carried for whoever
                                      builds a model around it, never applied; or without values */
    const char *left_out;          /* tensor of a branch that reads another vector and is no part
                                      of the layer; NULL: nothing is left out. In `owned`, or a view */
    struct plec_arena owned;       /* tables and small vectors made by bind */
};

/* Resolves one layer. Refuses whatever running it would touch and is not exactly as declared:
 * PLEC_MISSING "NoSuchLayer", "StorageUndeclared", "MissingRegion"; PLEC_MALFORMED for lengths,
 * alignment, overlaps, dimensions and counts that disagree; PLEC_UNSUPPORTED for formats, packings
 * and router features without an executable definition. Names layer, bank, entry, role, segment. */
PLEC_MUST_USE enum plec_status plec_container_bind(struct plec_bound_layer *out,
                                                   struct plec_container *container, uint32_t layer,
                                                   struct plec_error *err);
void plec_bound_layer_close(struct plec_bound_layer *bound);

/* The files that hold the weights, numbered from 0 for the life of the container. Paths are views.
 */
uint32_t plec_container_n_files(const struct plec_container *container);
const char *plec_container_file_path(const struct plec_container *container, uint32_t file);
/* The file that holds the byte at p, a view of a bound layer, and the byte's offset in it. False
 * for bytes that are in no file, such as those in plec_bound_layer.owned. */
bool plec_container_locate(uint32_t *file, uint64_t *offset, struct plec_container *container,
                           const uint8_t *p);
/* The same as a locator for plec_extent_map_open (host/extent.h). */
struct plec_locator;
void plec_container_locator(struct plec_locator *out, struct plec_container *container);

#ifdef __cplusplus
}
#endif
#endif
