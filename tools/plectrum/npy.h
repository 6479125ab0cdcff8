/* npy.h: arrays as NumPy .npy files, versions 1 and 2: f32, f16 and i32, little-endian, C order.
 *
 *   OFFSET SIZE MEANING
 *    0     6    0x93 N U M P Y
 *    6     2    version: 1.0 or 2.0
 *    8     2|4  header length, u16 (version 1) or u32 (version 2)
 *   10|12  n    a Python literal: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }
 *   ..     ..   the values
 *
 * A view is checked whole before it is handed out: the data must be exactly as long as the shape
 * says. Nothing is allocated by what a file says.
 */
#ifndef PLEC_TOOLS_NPY_H
#define PLEC_TOOLS_NPY_H

#include "lyrw/mapping.h"

#ifdef __cplusplus
extern "C" {
#endif

enum plec_npy_type { PLEC_NPY_F32, PLEC_NPY_F16, PLEC_NPY_I32 };
enum { PLEC_NPY_DIMS_MAX = 4 };

struct plec_npy_view {
    enum plec_npy_type type;
    uint32_t n_dims;
    uint64_t dims[PLEC_NPY_DIMS_MAX]; /* [n_dims] */
    uint64_t n_values;
    const uint8_t *values; /* n_values of the type, at any alignment; a view */
};

/* Reads data [size]. PLEC_MALFORMED: "NotNpy", "NpyVersion", "Truncated", "NpyHeader",
 * "TooManyDimensions", "ShapeOverflow", "ShortArray", "TrailingBytes"; PLEC_UNSUPPORTED:
 * "WrongDtype", "FortranOrder". */
PLEC_MUST_USE enum plec_status plec_npy_parse(struct plec_npy_view *out, const void *data,
                                              uint64_t size, struct plec_error *err);

/* An array file, mapped. A zeroed one is closed. */
struct plec_npy {
    struct plec_mapping mapping;
    struct plec_npy_view view;
};
/* Maps and parses; errors have the path in front. */
PLEC_MUST_USE enum plec_status plec_npy_open(struct plec_npy *out, const char *path,
                                             struct plec_error *err);
void plec_npy_close(struct plec_npy *npy);

/* Writes values [rows, cols], C order, version 1.0: a file whole under its name or not at all; what
 * stands there and is no regular file is written to. PLEC_IO, PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_npy_write(const char *path, enum plec_npy_type type,
                                              const void *values, uint64_t rows, uint64_t cols,
                                              struct plec_error *err);

/* "f32", "f16", "i32". */
const char *plec_npy_type_name(enum plec_npy_type type);
/* Bytes of one value. */
uint32_t plec_npy_type_bytes(enum plec_npy_type type);

#ifdef __cplusplus
}
#endif
#endif
