/* Any bytes as a TEZW file: every matrix of an accepted one must lie inside it. */
#include <stdint.h>
#include <stdlib.h>

#include "lyrw/tezw.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct plec_tezw file;
    struct plec_error err;
    if (plec_tezw_parse(&file, data, size, &err) != PLEC_OK) {
        if (err.byte > size) abort();
        return 0;
    }
    uint64_t at = PLEC_TEZW_HEADER_BYTES;
    for (uint32_t layer = 0; layer < file.n_layer; layer++)
        for (unsigned kind = layer == 0 ? 0 : PLEC_TEZW_RMS1; kind < PLEC_TEZW_N_KINDS; kind++) {
            struct plec_tezw_tensor tensor = plec_tezw_tensor_at(&file, layer, kind);
            if (tensor.at != at || tensor.n_bytes > size - at) abort();
            at += tensor.n_bytes;
        }
    if (at != size) abort();
    return 0;
}
