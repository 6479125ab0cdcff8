/* bank_files.h: small bank directories made on the spot: LYRW files with seeded values from a list
 * of schemas, index.json and moe_manifest.json around them. For tests of whatever binds and runs
 * containers. */
#ifndef PLEC_TESTS_SUPPORT_BANK_FILES_H
#define PLEC_TESTS_SUPPORT_BANK_FILES_H

#include "lyrw/segment.h"
#include "tests/support/data.h"
#include "tests/support/json.h"

#include <map>
#include <string>
#include <vector>

namespace plec_test {

/* A schema; its index is its place. */
plec_lyrw_schema matrix(uint16_t role, uint32_t rows, uint32_t cols,
                        uint16_t format = PLEC_FORMAT_F32);
plec_lyrw_schema fused(uint32_t rows, uint32_t cols, uint16_t layout,
                       uint16_t format = PLEC_FORMAT_F32);
/* Values and scales of a paired format. */
plec_lyrw_schema values_of(uint16_t role, uint32_t rows, uint32_t cols, uint16_t pair,
                           uint16_t format = PLEC_FORMAT_MXFP4);
plec_lyrw_schema scales_of(uint32_t rows, uint32_t cols, uint16_t pair,
                           uint16_t format = PLEC_FORMAT_MXFP4);

/* One file with one bank; segment records as given, one over all entries when none is. */
struct BankFile {
    uint32_t layer = 0, n_entries = 4;
    uint16_t id = 0, kind = PLEC_BANK_ROUTED, flags = 0;
    uint32_t input = 8, intermediate = 6, output = 8;
    std::vector<plec_lyrw_schema> schemas;
    std::vector<plec_lyrw_segment> segments;
    unsigned seed = 1; /* values depend on it, the entry and the role alone */

    std::vector<uint8_t> bytes() const;
};

/* gate, up, down of 8 -> 6 -> 8 in f32. */
BankFile gated_bank(uint16_t kind = PLEC_BANK_ROUTED, uint32_t n_entries = 4);
/* A control file of `layer` with the given tensors. */
BankFile control_file(uint32_t layer, const std::vector<plec_lyrw_schema> &schemas);

/* Where the slot of a region stands in a file's bytes, and edits of it. */
uint64_t slot_of(const std::vector<uint8_t> &bytes, uint32_t entry, uint32_t schema);
void set_offset(std::vector<uint8_t> &bytes, uint32_t entry, uint32_t schema, uint64_t offset);
void set_length(std::vector<uint8_t> &bytes, uint32_t entry, uint32_t schema, uint64_t length);
uint64_t get_offset(const std::vector<uint8_t> &bytes, uint32_t entry, uint32_t schema);

/* A bank directory of one layer: layer 0, 4 routed experts of 8 -> 6 -> 8 under "routed/layer_000",
 * softmax top 2, no control file. Change what a test is about, then write. */
class BankDirectory {
  public:
    BankDirectory();
    void add(const std::string &key, const BankFile &file) { files[key] = file.bytes(); }
    /* Sets a member of the only layer, or of the index, from JSON text. */
    void set(const std::string &member, const std::string &text);
    void set_index(const std::string &member, const std::string &text);
    /* Adds a shared bank under "shared/layer_000". */
    void add_shared(const BankFile &file, const std::string &programme = "gated-mlp-v1");
    /* Adds a control file and names it. */
    void add_control(const std::vector<plec_lyrw_schema> &schemas);
    /* Writes everything and declares every file; returns the folder. */
    std::string write();

    std::map<std::string, std::vector<uint8_t>> files;
    Json index, manifest;

  private:
    TempDir dir_;
};

} // namespace plec_test
#endif
