/* dump.h: the lines of the text that stands beside each test file in data/lyrw, and the same lines
 * made from a parsed file, so that a test compares whole lines and misses no field. */
#ifndef PLEC_TESTS_SUPPORT_DUMP_H
#define PLEC_TESTS_SUPPORT_DUMP_H

#include "lyrw/segment.h"
#include "lyrw/segment_matrix.h"
#include "tests/support/data.h"

#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <optional>
#include <sstream>
#include <string>

namespace plec_test {

__attribute__((format(printf, 1, 2))) inline std::string format(const char *text, ...) {
    char line[1024];
    va_list args;
    va_start(args, text);
    vsnprintf(line, sizeof line, text, args);
    va_end(args);
    return line;
}

/* The error as dumps write it: name and fields, without the byte. */
inline std::string error_fields(const plec_error &err) {
    std::string text = err.message;
    size_t colon = text.find(": "), at = text.rfind(" at byte ");
    std::string name = text.substr(0, colon);
    std::string fields = text.substr(colon + 2, at == std::string::npos ? at : at - colon - 2);
    size_t place = fields.find(" at=");
    if (name == "Truncated")
        fields = "what=\"" + fields.substr(0, place) + "\"" + fields.substr(place);
    return name + " " + fields;
}

/* The value of `key=` in a line; "" when it has none. */
inline std::string field(const std::string &line, const std::string &key) {
    std::stringstream words(line);
    for (std::string word; words >> word;)
        if (word.compare(0, key.size() + 1, key + "=") == 0) return word.substr(key.size() + 1);
    return "";
}

inline uint16_t role_of(const std::string &name) {
    char buffer[PLEC_NAME_MAX];
    for (uint32_t role = 0; role < 65536; role++)
        if (plec_role_name(static_cast<uint16_t>(role), buffer) == name)
            return static_cast<uint16_t>(role);
    ADD_FAILURE() << "no role " << name;
    return 0;
}

inline std::string header_line(const plec_segment &s) {
    const plec_lyrw_header &h = s.header;
    return format("header version=%u logical_layer=%u num_banks=%u num_segments=%u flags=0x%08x "
                  "multi_segment=%u reserved_raw=0x%08x",
                  h.format_version, h.logical_layer, h.num_banks, h.num_segments, h.flags,
                  h.flags & PLEC_LYRW_FLAG_MULTI_SEGMENT, h.reserved);
}

inline std::string layout_line(const plec_segment &s) {
    return format("layout bank_table=24 segment_table=%" PRIu64 " schema_table=%" PRIu64
                  " entry_table=%" PRIu64 " entry_table_bytes=%" PRIu64 " payload_start=%" PRIu64,
                  s.segment_table, s.schema_table, s.entry_table, s.entry_table_bytes,
                  s.payload_start);
}

inline std::string bank_line(const plec_segment &s, uint32_t ordinal) {
    const plec_lyrw_bank &b = s.banks[ordinal];
    char kind[PLEC_NAME_MAX];
    return format("bank ordinal=%u id=%u kind=%s schemas=%u browse=%s flags_raw=0x%04x "
                  "num_entries=%u input_dim=%u intermediate_dim=%u output_dim=%u walkable=%" PRIu64,
                  ordinal, b.id, plec_bank_kind_name(b.kind, kind), b.n_schemas,
                  plec_browse_name(b.flags), b.flags, b.num_entries, b.input_dim,
                  b.intermediate_dim, b.output_dim, uint64_t(b.num_entries) * b.intermediate_dim);
}

inline std::string schema_line(const plec_segment &s, uint32_t bank, uint32_t index) {
    const plec_lyrw_schema &m = s.schemas[s.banks[bank].first_schema + index];
    char role[PLEC_NAME_MAX], format_name[PLEC_NAME_MAX], packing[PLEC_NAME_MAX],
        layout[PLEC_NAME_MAX];
    uint64_t bytes = 0;
    std::string defined = plec_lyrw_schema_bytes(&bytes, &m) ? std::to_string(bytes) : "undefined";
    std::string pair = m.pair_id == PLEC_LYRW_UNPAIRED ? "none" : std::to_string(m.pair_id);
    return format("schema bank_ordinal=%u index=%u role=%s format=%s packing=%s pair_id=%s "
                  "layout=%s rows=%u cols=%u defined_len=%s",
                  bank, m.index, plec_role_name(m.role, role),
                  plec_format_name(m.format, format_name), plec_packing_name(m.packing, packing),
                  pair.c_str(), plec_layout_name(m.layout, layout), m.rows, m.cols,
                  defined.c_str());
}

inline std::string segment_line(const plec_segment &s, uint32_t ordinal) {
    const plec_lyrw_segment &r = s.segments[ordinal];
    return format("segment ordinal=%u bank=%u index=%u first=%u count=%u entry_table=%" PRIu64,
                  ordinal, r.bank_id, r.index, r.first_entry, r.entry_count, r.entry_table);
}

/* All values of a region's matrix; nothing when it cannot be decoded. */
inline std::optional<std::vector<float>> decode(const plec_segment &s, uint16_t bank,
                                                uint32_t entry, uint32_t schema) {
    plec_matrix matrix;
    if (plec_segment_matrix(&matrix, &s, bank, entry, schema, nullptr) != PLEC_OK)
        return std::nullopt;
    std::vector<float> values(size_t(matrix.rows) * matrix.cols);
    for (uint32_t row = 0; row < matrix.rows; row++)
        plec_matrix_row_f32(values.data() + size_t(row) * matrix.cols, &matrix, row);
    return values;
}

inline std::string decoded_fields(const std::vector<float> &values) {
    std::string line = format(" decoded_fnv=%016" PRIx64 " decoded_first=",
                              fnv1a64(values.data(), values.size() * sizeof(float)));
    for (size_t i = 0; i < values.size() && i < 4; i++) {
        uint32_t bits;
        memcpy(&bits, &values[i], sizeof bits);
        line += format(i == 0 ? "%08x" : ",%08x", bits);
    }
    return line;
}

/* What follows the coordinates in a region, by_role or by_pair line. */
inline std::string place(plec_status status, const plec_region &region, const plec_error &err) {
    if (status != PLEC_OK) return " error " + error_fields(err);
    if (!region.present) return " absent";
    return format(" offset=%" PRIu64 " length=%" PRIu64, region.offset, region.length);
}

/* `decoded`: false for a line whose values have no meaning in the reference. */
inline std::string region_line(const plec_segment &s, uint16_t bank, uint32_t entry,
                               uint32_t schema, bool decoded) {
    const plec_lyrw_schema &m =
        s.schemas[s.banks[plec_segment_find_bank(&s, bank)].first_schema + schema];
    char role[PLEC_NAME_MAX];
    plec_region region;
    plec_error err = {};
    plec_status status = plec_segment_region(&region, &s, bank, entry, schema, &err);
    std::string line = format("region bank=%u entry=%u schema=%u role=%s", bank, entry, schema,
                              plec_role_name(m.role, role)) +
                       place(status, region, err);
    if (status != PLEC_OK || !region.present) return line;
    line += format(" fnv=%016" PRIx64, fnv1a64(s.data + region.offset, region.length));
    auto values = decode(s, bank, entry, schema);
    return decoded && values ? line + decoded_fields(*values) : line;
}

} // namespace plec_test
#endif
