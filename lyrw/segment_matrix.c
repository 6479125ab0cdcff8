#include "lyrw/segment_matrix.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "lyrw/segment_tables.h"

/* One region being read, with what messages about it name. */
struct site {
    const struct plec_segment *segment;
    const struct plec_lyrw_bank *bank;
    const struct plec_lyrw_schema *schema;
    uint32_t entry;
};

static enum plec_status refuse(const struct site *site, enum plec_status code, const char *name,
                               const char *why, struct plec_error *err) {
    char role[PLEC_NAME_MAX], format[PLEC_NAME_MAX], packing[PLEC_NAME_MAX];
    return plec_fail(err, code, name, "bank=%u entry=%u role=%s format=%s packing=%s: %s",
                     site->bank->id, site->entry, plec_role_name(site->schema->role, role),
                     plec_format_name(site->schema->format, format),
                     plec_packing_name(site->schema->packing, packing), why);
}

/* Whether format and packing together have a definition that can be decoded. */
static enum plec_status check_definition(const struct site *site, const struct plec_format *format,
                                         struct plec_error *err) {
    uint16_t packing = site->schema->packing;
    if (packing > PLEC_PACKING_BLOCKS_SCALES)
        return refuse(site, PLEC_UNSUPPORTED, "UnknownPacking", "no reading of it is known", err);
    if (format == NULL) return refuse(site, PLEC_UNSUPPORTED, "UnknownFormat", "no codec", err);
    if (packing == PLEC_PACKING_BLOCKS_SCALES)
        return refuse(site, PLEC_UNSUPPORTED, "NotAMatrix", "scales of another region", err);
    bool split = packing == PLEC_PACKING_BLOCKS_VALUES;
    if (split && format->geometry == PLEC_TRAILING)
        return refuse(site, PLEC_UNSUPPORTED, "NoTensorScale",
                      "split over two regions it has no place for the tensor scale", err);
    if (split && format->geometry == PLEC_INLINE)
        return refuse(site, PLEC_UNSUPPORTED, "NoScaleStream", "its scales lie inside its blocks",
                      err);
    if (!split && format->geometry == PLEC_PAIRED)
        return refuse(site, PLEC_UNSUPPORTED, "StreamsStoredApart",
                      "it needs its scales in a second region", err);
    return PLEC_OK;
}

/* The bytes of the region, exactly `want` of them. */
static enum plec_status view(const uint8_t **out, const struct site *site, uint64_t want,
                             struct plec_error *err) {
    struct plec_region region;
    enum plec_status status = plec_segment_region(&region, site->segment, site->bank->id,
                                                  site->entry, site->schema->index, err);
    if (status != PLEC_OK) return status;
    if (!region.present)
        return refuse(site, PLEC_MISSING, "MissingRegion", "not in this file", err);
    if (region.length != want) {
        char why[96];
        snprintf(why, sizeof why, "length=%" PRIu64 " at offset=%" PRIu64 ", shape needs %" PRIu64,
                 region.length, region.offset, want);
        return refuse(site, PLEC_MALFORMED, "LengthNotShape", why, err);
    }
    *out = site->segment->data + region.offset;
    return PLEC_OK;
}

static enum plec_status view_scales(const uint8_t **out, const struct site *site, uint64_t want,
                                    struct plec_error *err) {
    const struct plec_lyrw_schema *values = site->schema;
    uint32_t partner;
    enum plec_status status = plec_segment_partner_schema(&partner, site->segment, site->bank,
                                                          values->index, PLEC_ROLE_SCALES, err);
    if (status != PLEC_OK) return status;
    struct site scales = *site;
    scales.schema = &site->segment->schemas[site->bank->first_schema + partner];
    if (scales.schema->format != values->format)
        return refuse(&scales, PLEC_MALFORMED, "PairFormatDiffers", "not the values' format", err);
    if (scales.schema->rows != values->rows || scales.schema->cols != values->cols)
        return refuse(&scales, PLEC_MALFORMED, "PairShapeDiffers", "not the values' shape", err);
    if (scales.schema->packing != PLEC_PACKING_BLOCKS_SCALES)
        return refuse(&scales, PLEC_MALFORMED, "MissingPartner", "the partner is no scales", err);
    return view(out, &scales, want, err);
}

enum plec_status plec_segment_matrix(struct plec_matrix *out, const struct plec_segment *segment,
                                     uint16_t bank_id, uint32_t entry, uint32_t schema,
                                     struct plec_error *err) {
    memset(out, 0, sizeof *out);
    int32_t ordinal = plec_segment_find_bank(segment, bank_id);
    if (ordinal < 0 || schema >= segment->banks[ordinal].n_schemas)
        return plec_fail(err, PLEC_MISSING, "MissingRegion", "bank=%u schema=%u: not in this file",
                         bank_id, schema);
    const struct plec_lyrw_bank *bank = &segment->banks[ordinal];
    struct site site = {segment, bank, &segment->schemas[bank->first_schema + schema], entry};
    enum plec_status status = check_definition(&site, plec_format_find(site.schema->format), err);
    if (status != PLEC_OK) return status;
    struct plec_matrix matrix = {site.schema->format, site.schema->rows, site.schema->cols, NULL,
                                 NULL};
    uint64_t n_values, n_scales;
    status = plec_format_size(&n_values, &n_scales, matrix.format, matrix.rows, matrix.cols, err);
    if (status != PLEC_OK) {
        plec_error_context(err, "bank=%u entry=%u schema=%u", bank_id, entry, schema);
        return status;
    }
    status = view(&matrix.values, &site, n_values, err);
    if (status == PLEC_OK && site.schema->packing == PLEC_PACKING_BLOCKS_VALUES)
        status = view_scales(&matrix.scales, &site, n_scales, err);
    if (status == PLEC_OK) *out = matrix;
    return status;
}
