/* convert_parts.h: what the parts of the converter share. Internal to host/. */
#ifndef PLEC_HOST_CONVERT_PARTS_H
#define PLEC_HOST_CONVERT_PARTS_H

#include <jansson.h>
#include <pthread.h>

#include "host/convert.h"
#include "lyrw/atomic_file.h"
#include "lyrw/hash.h"
#include "lyrw/repack.h"
#include "manifests/moe.h"

enum { PLEC_CONVERT_KEY_MAX = 64, PLEC_CONVERT_SCHEMAS_MAX = 40 };

/* The files of a layer by what is in them; also the order they are made in. */
enum plec_convert_part {
    PLEC_CONVERT_ROUTED,
    PLEC_CONVERT_SHARED,
    PLEC_CONVERT_DENSE, /* the only bank of a dense layer, or the branch beside experts */
    PLEC_CONVERT_CONTROL,
    PLEC_CONVERT_N_PARTS
};

/* -- what a file holds (convert_shape.c, convert_control.c) ----------------------------------- */

/* Where the bytes of a schema come from. */
struct plec_convert_stream {
    const uint8_t *bytes;    /* of the only entry; NULL: a bank's operand */
    enum plec_operand_id id; /* of a bank */
    bool scales;             /* that operand's scales, not its values */
    uint16_t source_format;
    enum plec_repack how;
};

/* A bank with its schemas, and which of the source's bytes fill them. */
struct plec_convert_shape {
    struct plec_lyrw_bank bank;
    struct plec_lyrw_schema schemas[PLEC_CONVERT_SCHEMAS_MAX];
    struct plec_convert_stream streams[PLEC_CONVERT_SCHEMAS_MAX];
    const struct plec_bank *source; /* NULL: a control file */
};

/* The file form of a bank. left: bit id set: that operand keeps its GGUF layout. PLEC_UNSUPPORTED
 * "FusedUpFirst", "BiasUnmatched". */
PLEC_MUST_USE enum plec_status plec_convert_shape_bank(struct plec_convert_shape *out,
                                                       const struct plec_bank *bank,
                                                       enum plec_bank_kind kind, uint32_t left,
                                                       struct plec_error *err);
/* Operands that plec_repack_target gives another format, as bits. */
uint32_t plec_convert_repackable(const struct plec_bank *bank);

/* The control file of a layer. *needed false: the layer has no small tensors. */
void plec_convert_shape_control(struct plec_convert_shape *out, bool *needed,
                                const struct plec_bound_layer *bound);

/* The source's bytes of one schema of one entry. */
const uint8_t *plec_convert_source_of(const struct plec_convert_shape *shape, uint32_t schema,
                                      uint32_t entry);

/* -- what the manifest says (convert_manifest.c) ---------------------------------------------- */

/* Names that stand in a layer's manifest entry; views must outlive it. */
struct plec_convert_names {
    char scores[PLEC_CONVERT_KEY_MAX + 32], gate_bias[PLEC_CONVERT_KEY_MAX + 32];
    char latent_in[PLEC_CONVERT_KEY_MAX + 32], latent_out[PLEC_CONVERT_KEY_MAX + 32];
    char norm[PLEC_CONVERT_KEY_MAX + 32];
    char keys[PLEC_CONVERT_N_PARTS][PLEC_CONVERT_KEY_MAX];
};

/* Fills out->keys for a layer. */
void plec_convert_keys(struct plec_convert_names *out, uint32_t layer);

/* Appends what a bound layer is to a manifest. control: it has a control file. Refuses what would
 * not bind to the same values: PLEC_UNSUPPORTED "NoManifestField". */
PLEC_MUST_USE enum plec_status plec_convert_describe(json_t *manifest,
                                                     struct plec_convert_names *names,
                                                     const struct plec_bound_layer *bound,
                                                     uint32_t layer, bool control,
                                                     struct plec_error *err);

/* -- the plan (convert_plan.c) ---------------------------------------------------------------- */

struct plec_convert_planned {
    char key[PLEC_CONVERT_KEY_MAX], name[PLEC_CONVERT_KEY_MAX + 8];
    size_t layer; /* index into layers */
    enum plec_convert_part part;
    uint16_t segment, n_segments;
    uint32_t first_entry, n_entries, extent;
    uint64_t n_bytes;
    bool repacks;
    bool whole; /* under its name, hash known */
    char sha256[PLEC_SHA256_TEXT];
};

/* A file of the source, as it was when the plan was made. */
struct plec_convert_input {
    const char *path;
    uint64_t size, mtime_ns;
    int fd; /* -1: closed */
};

struct plec_convert {
    struct plec_container *container;
    struct plec_convert_options options;
    struct plec_container_about about;
    uint32_t n_threads, hidden_size, last_layer;
    uint32_t *layers; /* [n_layers] numbers */
    size_t n_layers;
    struct plec_convert_planned *files; /* [n_files], layer by layer */
    size_t n_files, files_room;
    uint64_t n_bytes, done; /* of all files; made so far */
    json_t *manifest;
    struct plec_convert_input *inputs; /* [n_inputs] */
    uint32_t n_inputs;
    char fingerprint[PLEC_SHA256_TEXT]; /* of the sources, the options and the plan */
};

/* Fills layers, files, manifest, inputs and fingerprint of an opened container. */
PLEC_MUST_USE enum plec_status plec_convert_make_plan(struct plec_convert *convert,
                                                      struct plec_error *err);
/* The shape of a bound layer's part; control files: left is ignored. */
PLEC_MUST_USE enum plec_status plec_convert_shape_part(struct plec_convert_shape *out,
                                                       const struct plec_bound_layer *bound,
                                                       enum plec_convert_part part, uint32_t left,
                                                       struct plec_error *err);
/* NULL for the control file and for parts a layer has not. */
const struct plec_bank *plec_convert_bank_of(const struct plec_bound_layer *bound,
                                             enum plec_convert_part part);
/* The plan of a file of one bank, segment and order; record must outlive it. */
struct plec_segment_plan plec_convert_segment_plan(const struct plec_convert_shape *shape,
                                                   const struct plec_lyrw_segment *record,
                                                   uint32_t layer, bool several,
                                                   const struct plec_convert_options *options,
                                                   uint32_t extent);

/* -- bytes of a file (convert_image.c) -------------------------------------------------------- */

enum { PLEC_CONVERT_NO_INPUT = -1 };

/* A run of bytes of a file being made. */
struct plec_convert_piece {
    uint64_t at, n_bytes; /* in the file */
    const uint8_t *from;  /* in memory; of a file's mapping when input is set */
    int64_t input;        /* index of the source file, or PLEC_CONVERT_NO_INPUT */
    uint64_t input_at;    /* offset in it */
    uint64_t n_blocks;    /* of the source, when repacked */
    enum plec_repack how;
};

/* A file as a function from its offsets to bytes; what no piece covers is zero. */
struct plec_convert_image {
    uint64_t n_bytes;
    struct plec_convert_piece *pieces; /* [n_pieces] by place, without overlap */
    size_t n_pieces;
    uint8_t *structure; /* tables in front of the payload */
};

/* The image of a planned file; opens the source files it needs. Close in any case. */
PLEC_MUST_USE enum plec_status plec_convert_image_open(struct plec_convert_image *out,
                                                       struct plec_convert *convert,
                                                       const struct plec_convert_shape *shape,
                                                       const struct plec_convert_planned *file,
                                                       struct plec_error *err);
void plec_convert_image_close(struct plec_convert_image *image);

enum { PLEC_CONVERT_SCRATCH = 1 << 20 };
/* Bytes [at, at + n) of an image into out. scratch: [PLEC_CONVERT_SCRATCH]. Any thread. PLEC_IO
 * "ReadFailed"; PLEC_MALFORMED "SourceChanged" (a file that ends too early). */
PLEC_MUST_USE enum plec_status plec_convert_image_read(uint8_t *out,
                                                       const struct plec_convert *convert,
                                                       const struct plec_convert_image *image,
                                                       uint64_t at, uint64_t n, uint8_t *scratch,
                                                       struct plec_error *err);
/* Asks for the source bytes of that range ahead of reading them. */
void plec_convert_image_expect(const struct plec_convert *convert,
                               const struct plec_convert_image *image, uint64_t at, uint64_t n);

/* Finds which source file holds p, and opens it. p in none: memory of our own. PLEC_IO
 * "ReadFailed"; PLEC_MALFORMED "SourceChanged". */
PLEC_MUST_USE enum plec_status plec_convert_locate(struct plec_convert_piece *piece,
                                                   struct plec_convert *convert, const uint8_t *p,
                                                   struct plec_error *err);
/* n bytes of a piece's source, from source byte `at` on. */
PLEC_MUST_USE enum plec_status plec_convert_read_source(uint8_t *out,
                                                        const struct plec_convert *convert,
                                                        const struct plec_convert_piece *piece,
                                                        uint64_t at, uint64_t n,
                                                        struct plec_error *err);
void plec_convert_close_inputs(struct plec_convert *convert);

/* -- threads (convert_pipe.c) ----------------------------------------------------------------- */

struct plec_convert_team {
    pthread_t threads[PLEC_CONVERT_MAX_THREADS];
    uint32_t n_threads; /* that could be started; maybe none */
};
/* Starts work(user) on up to n_threads, at most PLEC_CONVERT_MAX_THREADS, threads. */
void plec_convert_team_start(struct plec_convert_team *team, uint32_t n_threads,
                             void *(*work)(void *), void *user);
void plec_convert_team_join(struct plec_convert_team *team);

/* Writes an image to an open file and hashes it, reporting progress. */
PLEC_MUST_USE enum plec_status plec_convert_pipe(char sha256[PLEC_SHA256_TEXT],
                                                 struct plec_convert *convert,
                                                 const struct plec_convert_image *image,
                                                 struct plec_atomic_file *file,
                                                 struct plec_error *err);
/* Which of a bank's operands have scales that must stay as they are, as bits (convert_scan.c). */
PLEC_MUST_USE enum plec_status plec_convert_scan(uint32_t *left, struct plec_convert *convert,
                                                 const struct plec_bank *bank,
                                                 struct plec_error *err);

/* -- the folder (convert_folder.c) ------------------------------------------------------------ */

struct plec_convert_folder {
    char *root;
    int fd;        /* of the folder, locked; -1: closed */
    json_t *state; /* convert.state.json */
};

/* Takes the folder for this conversion: made, locked, cleared of another one's files and of what a
 * killed process left half-written. Files already whole are marked in convert->files. */
PLEC_MUST_USE enum plec_status plec_convert_folder_open(struct plec_convert_folder *out,
                                                        const char *path,
                                                        struct plec_convert *convert,
                                                        struct plec_error *err);
/* "<root>/<name>", to be freed; NULL: no memory, told in *err. */
char *plec_convert_folder_path(const struct plec_convert_folder *folder, const char *name,
                               struct plec_error *err);
/* Notes durably that a file is whole. */
PLEC_MUST_USE enum plec_status plec_convert_folder_record(struct plec_convert_folder *folder,
                                                          const struct plec_convert_planned *file,
                                                          struct plec_error *err);
/* Removes the state: the conversion is done. */
PLEC_MUST_USE enum plec_status plec_convert_folder_finish(struct plec_convert_folder *folder,
                                                          struct plec_error *err);
void plec_convert_folder_close(struct plec_convert_folder *folder);

#endif
