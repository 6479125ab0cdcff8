/* tensor_map.h: tiled maps of two dimensions, as cuTensorMapEncodeTiled makes them, in a form of
 * our own inside the 128 bytes. */
#ifndef PLEC_TESTS_EMU_TENSOR_MAP_H
#define PLEC_TESTS_EMU_TENSOR_MAP_H

#include <cstdint>
#include <cuda.h>

namespace plec_emu {

struct TensorMap {
    uint64_t magic;
    const char *base;
    uint32_t element_bytes, columns, rows, box_columns, box_rows;
    uint32_t swizzle; /* 0: none; 1, 2, 3: 32, 64, 128 bytes */
    uint64_t pitch;   /* bytes from row to row */
    uint64_t padding[10];
};
static_assert(sizeof(TensorMap) == sizeof(CUtensorMap), "128 bytes");

/* What a row of a box has in the matrix; n_bytes 0: it lies outside. */
struct TensorSpan {
    const char *from;
    uint32_t n_bytes;
};

bool read_tensor_map(TensorMap *map, const void *from);
TensorSpan tensor_row(const TensorMap &map, int x, int y, unsigned row);
/* The box at column x, row y in its place in shared memory; what lies outside is 0. */
void tensor_fill(char *target, unsigned address, const TensorMap &map, int x, int y);

CUresult encode_tiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base,
                      const cuuint64_t *dimensions, const cuuint64_t *pitches,
                      const cuuint32_t *box, const cuuint32_t *element_strides,
                      CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                      CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);

} // namespace plec_emu

#endif
