/* Any bytes as a .npy file: parsing must not read outside them, and a view that is handed out must
 * lie inside them. */
#include <stdint.h>
#include <stdlib.h>

#include "tools/plectrum/npy.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct plec_npy_view view;
    struct plec_error err;
    if (plec_npy_parse(&view, data, size, &err) != PLEC_OK) return 0;
    uint64_t n_bytes = view.n_values * plec_npy_type_bytes(view.type);
    if (n_bytes > size || view.values < data || view.values + n_bytes > data + size) abort();
    uint64_t n = 1;
    for (uint32_t i = 0; i < view.n_dims; i++)
        n *= view.dims[i];
    if (n != view.n_values) abort();
    return 0;
}
