/* convert.h: any container into a VINDEX3 bank directory.
 *
 * Reads the layers of the source as a run binds them, so that what the result binds to is what the
 * source ran as: the same numbers, the same bytes. Experts' bytes are never re-quantised; GGUF
 * mxfp4 and nvfp4 move into LYRW's own regions where that changes no value (lyrw/repack.h). What
 * the standard manifest cannot say stands in its additive members (docs/format.md); what they
 * cannot say either is refused by name, before anything is written.
 *
 *   DST/routed/layer_NNN[.segKK].lyrw   the experts, in extents
 *   DST/shared/layer_NNN.lyrw           shared experts
 *   DST/dense/layer_NNN.lyrw            a dense layer, or the dense branch beside experts
 *   DST/control/layer_NNN.lyrw          router, biases, norms, factors
 *   DST/moe_manifest.json, index.json   index.json last, with the SHA-256 of every other file
 *   DST/convert.state.json              until then: which files are whole
 *
 * A run that ends early (killed, a full disk, asked to stop) leaves whole files and the state; the
 * same conversion begun again keeps them and goes on. Another conversion into that folder clears it
 * first. index.json appears as the last step: before it DST is no container.
 *
 * Memory: tables of the layer at hand, and a few pieces of the files being read and written, less
 * than an extent. Owns: the source container, its descriptors. One thread calls; reading, writing
 * and hashing run on threads of its own.
 */
#ifndef PLEC_HOST_CONVERT_H
#define PLEC_HOST_CONVERT_H

#include "host/container.h"
#include "lyrw/segment_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLEC_CONVERT_EXTENT = 16, PLEC_CONVERT_MAX_EXTENT = 65536, PLEC_CONVERT_MAX_THREADS = 64 };

struct plec_convert_options {
    struct plec_container_options source;
    bool some_layers; /* only first_layer to last_layer, both included */
    uint32_t first_layer, last_layer;
    uint32_t extent;       /* routed experts an extent has; 0: PLEC_CONVERT_EXTENT */
    uint64_t segment_cap;  /* bytes a file may have; 0: no cap */
    enum plec_order order; /* of the regions inside an extent */
    uint32_t n_threads;    /* that read and write; 0: by the machine */
    /* Bytes made so far of all; false stops with PLEC_CANCELLED. Called from the caller's thread;
     * NULL: not called. */
    bool (*progress)(void *user, uint64_t done, uint64_t total);
    void *user;
};

struct plec_convert;

/* Opens the source and plans every file. options NULL: defaults. Reads no weights. Statuses of
 * plec_container_open and plec_container_bind; PLEC_MISSING "NoSuchLayer"; PLEC_BAD_INPUT
 * "BadLayers", "BadExtent", "BadThreads", "CapTooSmall", "TooManySegments"; PLEC_UNSUPPORTED, each
 * naming the layer: "NoManifestField" (a value no field of the manifests says: which),
 * "HiddenSizesDiffer", "FusedUpFirst", "BiasUnmatched". */
PLEC_MUST_USE enum plec_status plec_convert_open(struct plec_convert **out, const char *source,
                                                 const struct plec_convert_options *options,
                                                 struct plec_error *err);
void plec_convert_close(struct plec_convert *convert);

struct plec_convert_file {
    const char *name; /* under DST, "routed/layer_003.seg01.lyrw"; a view */
    uint32_t layer;
    uint32_t first_entry, n_entries, extent; /* extent 0: none (control files) */
    uint64_t n_bytes; /* at most: a matrix that cannot be repacked may take a little less */
    bool repacks;     /* has matrices that are repacked, should their scales allow it */
};
size_t plec_convert_n_files(const struct plec_convert *convert);
struct plec_convert_file plec_convert_file_at(const struct plec_convert *convert, size_t i);
size_t plec_convert_n_layers(const struct plec_convert *convert);
/* Bytes of all files, at most. */
uint64_t plec_convert_bytes(const struct plec_convert *convert);

struct plec_convert_report {
    uint64_t n_layers, n_files;
    uint64_t n_kept;            /* files whole from an earlier, interrupted run */
    uint64_t bytes, bytes_kept; /* of all files; of those kept */
    uint64_t n_repacked;        /* matrices, one an expert, in files written now */
    uint64_t n_left;            /* matrices that had to keep their GGUF layout */
};

/* Makes the files. PLEC_BAD_INPUT "NotEmpty" (DST holds something that is not our interrupted
 * conversion), "NotAFolder", "InUse" (another process is writing it); PLEC_MALFORMED
 * "SourceChanged"; PLEC_CANCELLED; PLEC_IO "ReadFailed", "WriteFailed", "CannotReserve",
 * "SyncFailed", "RenameFailed", "CannotCreate". *out is filled as far as it came. */
PLEC_MUST_USE enum plec_status plec_convert_run(struct plec_convert_report *out,
                                                struct plec_convert *convert,
                                                const char *destination, struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
