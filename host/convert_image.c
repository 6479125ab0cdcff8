/* Files as runs of bytes: tables in front, then each region from where the source has it. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/convert_parts.h"
#include "lyrw/cursor.h"

/* -- the source's files ----------------------------------------------------------------------- */

static enum plec_status changed(const struct plec_convert_input *input, struct plec_error *err) {
    return plec_fail(err, PLEC_MALFORMED, "SourceChanged",
                     "%s is not the file it was when the conversion began", input->path);
}

static enum plec_status open_input(struct plec_convert_input *input, struct plec_error *err) {
    struct stat info;
    input->fd = open(input->path, O_RDONLY | O_CLOEXEC);
    if (input->fd < 0 || fstat(input->fd, &info) != 0)
        return plec_fail(err, PLEC_IO, "ReadFailed", "%s: %s", input->path, strerror(errno));
    return (uint64_t)info.st_size == input->size ? PLEC_OK : changed(input, err);
}

void plec_convert_close_inputs(struct plec_convert *convert) {
    for (uint32_t i = 0; i < convert->n_inputs; i++) {
        if (convert->inputs[i].fd >= 0) close(convert->inputs[i].fd);
        convert->inputs[i].fd = -1;
    }
}

enum plec_status plec_convert_locate(struct plec_convert_piece *piece, struct plec_convert *convert,
                                     const uint8_t *p, struct plec_error *err) {
    uint32_t file;
    piece->from = p;
    piece->input = PLEC_CONVERT_NO_INPUT;
    if (!plec_container_locate(&file, &piece->input_at, convert->container, p)) return PLEC_OK;
    piece->input = file;
    struct plec_convert_input *input = &convert->inputs[file];
    return input->fd >= 0 ? PLEC_OK : open_input(input, err);
}

static enum plec_status read_file(uint8_t *out, const struct plec_convert_input *input, uint64_t at,
                                  uint64_t n, struct plec_error *err) {
    while (n > 0) {
        ssize_t taken = pread(input->fd, out, (size_t)n, (off_t)at);
        if (taken < 0 && errno == EINTR) continue;
        if (taken < 0)
            return plec_fail_at(err, PLEC_IO, "ReadFailed", at, "%s: %s", input->path,
                                strerror(errno));
        if (taken == 0) return changed(input, err);
        out += taken;
        at += (uint64_t)taken;
        n -= (uint64_t)taken;
    }
    return PLEC_OK;
}

enum plec_status plec_convert_read_source(uint8_t *out, const struct plec_convert *convert,
                                          const struct plec_convert_piece *piece, uint64_t at,
                                          uint64_t n, struct plec_error *err) {
    if (piece->input != PLEC_CONVERT_NO_INPUT)
        return read_file(out, &convert->inputs[piece->input], piece->input_at + at, n, err);
    memcpy(out, piece->from + at, (size_t)n);
    return PLEC_OK;
}

/* -- making an image -------------------------------------------------------------------------- */

static int by_place(const void *a, const void *b) {
    const struct plec_convert_piece *x = a, *y = b;
    return x->at < y->at ? -1 : x->at > y->at;
}

static enum plec_status add_region(struct plec_convert_piece *piece, struct plec_convert *convert,
                                   const struct plec_convert_shape *shape, uint32_t schema,
                                   uint32_t entry, const uint8_t *slot, struct plec_error *err) {
    const struct plec_convert_stream *stream = &shape->streams[schema];
    const struct plec_lyrw_schema *declared = &shape->schemas[schema];
    piece->at = plec_load_u64(slot);
    piece->n_bytes = plec_load_u64(slot + 8);
    piece->how = stream->how;
    if (stream->how != PLEC_REPACK_NONE)
        piece->n_blocks = (uint64_t)declared->rows *
                          (declared->cols / plec_format_find(stream->source_format)->block_elems);
    return plec_convert_locate(piece, convert, plec_convert_source_of(shape, schema, entry), err);
}

/* The regions as the tables place them. */
static enum plec_status add_regions(struct plec_convert_image *image, struct plec_convert *convert,
                                    const struct plec_convert_shape *shape,
                                    const struct plec_convert_planned *file, const uint8_t *slots,
                                    struct plec_error *err) {
    uint32_t n_schemas = shape->bank.n_schemas;
    enum plec_status status = PLEC_OK;
    for (uint32_t i = 0; i < file->n_entries; i++)
        for (uint32_t schema = 0; status == PLEC_OK && schema < n_schemas; schema++) {
            struct plec_convert_piece *piece = &image->pieces[image->n_pieces++];
            status = add_region(piece, convert, shape, schema, file->first_entry + i, slots, err);
            slots += PLEC_LYRW_SLOT_BYTES;
        }
    qsort(image->pieces, image->n_pieces, sizeof *image->pieces, by_place);
    return status;
}

enum plec_status plec_convert_image_open(struct plec_convert_image *out,
                                         struct plec_convert *convert,
                                         const struct plec_convert_shape *shape,
                                         const struct plec_convert_planned *file,
                                         struct plec_error *err) {
    memset(out, 0, sizeof *out);
    const struct plec_lyrw_segment record = {
        .index = file->segment, .first_entry = file->first_entry, .entry_count = file->n_entries};
    struct plec_segment_plan plan =
        plec_convert_segment_plan(shape, &record, convert->layers[file->layer],
                                  file->n_segments > 1, &convert->options, file->extent);
    struct plec_segment_layout layout;
    enum plec_status status = plec_segment_plan_layout(&layout, &plan, err);
    if (status != PLEC_OK) return status;
    out->n_bytes = layout.file_bytes;
    out->structure = malloc((size_t)layout.structure_bytes);
    out->pieces = calloc((size_t)layout.n_regions + 1, sizeof *out->pieces);
    if (out->structure == NULL || out->pieces == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "tables of %" PRIu64 " regions",
                         layout.n_regions);
    status = plec_segment_plan_render(out->structure, &plan, err);
    if (status != PLEC_OK) return status;
    out->pieces[out->n_pieces++] = (struct plec_convert_piece){
        .n_bytes = layout.structure_bytes, .from = out->structure, .input = PLEC_CONVERT_NO_INPUT};
    uint64_t n_slots = (uint64_t)file->n_entries * shape->bank.n_schemas;
    const uint8_t *slots = out->structure + layout.structure_bytes - n_slots * PLEC_LYRW_SLOT_BYTES;
    return add_regions(out, convert, shape, file, slots, err);
}

void plec_convert_image_close(struct plec_convert_image *image) {
    free(image->pieces);
    free(image->structure);
    memset(image, 0, sizeof *image);
}

/* -- reading one ------------------------------------------------------------------------------ */

/* The first piece that ends behind `at`. */
static size_t find_piece(const struct plec_convert_image *image, uint64_t at) {
    size_t low = 0, high = image->n_pieces;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const struct plec_convert_piece *piece = &image->pieces[middle];
        if (piece->at + piece->n_bytes <= at)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static enum plec_status read_repacked(uint8_t *out, const struct plec_convert *convert,
                                      const struct plec_convert_piece *piece, uint64_t at,
                                      uint64_t n, uint8_t *scratch, struct plec_error *err) {
    while (n > 0) {
        struct plec_repack_step step =
            plec_repack_plan(piece->how, piece->n_blocks, at, n, PLEC_CONVERT_SCRATCH);
        enum plec_status status =
            plec_convert_read_source(scratch, convert, piece, step.source_at, step.n_source, err);
        if (status != PLEC_OK) return status;
        plec_repack_make(out, piece->how, piece->n_blocks, at, &step, scratch);
        out += step.n_out;
        at += step.n_out;
        n -= step.n_out;
    }
    return PLEC_OK;
}

enum plec_status plec_convert_image_read(uint8_t *out, const struct plec_convert *convert,
                                         const struct plec_convert_image *image, uint64_t at,
                                         uint64_t n, uint8_t *scratch, struct plec_error *err) {
    uint64_t end = at + n;
    enum plec_status status = PLEC_OK;
    for (size_t i = find_piece(image, at); status == PLEC_OK && at < end; i++) {
        const struct plec_convert_piece *piece = i < image->n_pieces ? &image->pieces[i] : NULL;
        uint64_t start = piece != NULL && piece->at < end ? piece->at : end;
        if (start > at) { /* a gap */
            memset(out, 0, (size_t)(start - at));
            out += start - at;
            at = start;
        }
        if (at == end) break;
        uint64_t from = at - piece->at, take = piece->n_bytes - from;
        if (take > end - at) take = end - at;
        status = piece->how == PLEC_REPACK_NONE
                     ? plec_convert_read_source(out, convert, piece, from, take, err)
                     : read_repacked(out, convert, piece, from, take, scratch, err);
        out += take;
        at += take;
    }
    return status;
}

void plec_convert_image_expect(const struct plec_convert *convert,
                               const struct plec_convert_image *image, uint64_t at, uint64_t n) {
    uint64_t end = at + n;
    for (size_t i = find_piece(image, at); i < image->n_pieces; i++) {
        const struct plec_convert_piece *piece = &image->pieces[i];
        if (piece->at >= end) return;
        if (piece->input == PLEC_CONVERT_NO_INPUT || piece->how != PLEC_REPACK_NONE) continue;
        uint64_t first = piece->at > at ? piece->at : at;
        uint64_t last = piece->at + piece->n_bytes < end ? piece->at + piece->n_bytes : end;
        posix_fadvise(convert->inputs[piece->input].fd,
                      (off_t)(piece->input_at + first - piece->at), (off_t)(last - first),
                      POSIX_FADV_WILLNEED);
    }
}
