#include "tests/emu/tensor_map.h"

#include <algorithm>
#include <cstring>

namespace plec_emu {

static const uint64_t MAGIC = 0x454d55544d415032ull;

bool read_tensor_map(TensorMap *map, const void *from) {
    memcpy(map, from, sizeof(*map));
    return map->magic == MAGIC;
}

TensorSpan tensor_row(const TensorMap &map, int x, int y, unsigned row) {
    int64_t at = (int64_t)y + row;
    int64_t first = std::max<int64_t>(x, 0);
    int64_t end = std::min<int64_t>((int64_t)x + map.box_columns, map.columns);
    if (at < 0 || at >= map.rows || end <= first) return {nullptr, 0};
    return {map.base + (uint64_t)at * map.pitch + (uint64_t)first * map.element_bytes,
            (uint32_t)(end - first) * map.element_bytes};
}

/* Sixteen-byte pieces of a row change places by the row, in patterns of the swizzle's width. */
static unsigned swizzled(unsigned address, uint32_t swizzle) {
    unsigned pieces = swizzle ? (1u << swizzle) - 1 : 0;
    return address ^ ((address >> 7 & pieces) << 4);
}

void tensor_fill(char *target, unsigned address, const TensorMap &map, int x, int y) {
    unsigned row_bytes = map.box_columns * map.element_bytes;
    for (unsigned row = 0; row < map.box_rows; row++)
        for (unsigned column = 0; column < map.box_columns; column++) {
            int64_t gx = (int64_t)x + column, gy = (int64_t)y + row;
            unsigned offset = row * row_bytes + column * map.element_bytes;
            char *to = target + (swizzled(address + offset, map.swizzle) - address);
            bool inside = gx >= 0 && gy >= 0 && gx < map.columns && gy < map.rows;
            if (!inside)
                memset(to, 0, map.element_bytes);
            else
                memcpy(to, map.base + gy * (int64_t)map.pitch + gx * map.element_bytes,
                       map.element_bytes);
        }
}

CUresult encode_tiled(CUtensorMap *to, CUtensorMapDataType type, cuuint32_t rank, void *base,
                      const cuuint64_t *dimensions, const cuuint64_t *pitches,
                      const cuuint32_t *box, const cuuint32_t *element_strides,
                      CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                      CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
    static const uint32_t SIZES[] = {1, 2, 4, 4, 8, 8, 2, 4, 8, 2};
    if (rank != 2 || (size_t)type >= sizeof(SIZES) / sizeof(*SIZES) ||
        interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || (int)swizzle > 3 ||
        element_strides[0] != 1 || element_strides[1] != 1)
        return CUDA_ERROR_NOT_SUPPORTED;
    TensorMap map = {};
    map.magic = MAGIC;
    map.base = (const char *)base;
    map.element_bytes = SIZES[type];
    map.columns = (uint32_t)dimensions[0];
    map.rows = (uint32_t)dimensions[1];
    map.box_columns = box[0];
    map.box_rows = box[1];
    map.swizzle = (uint32_t)swizzle;
    map.pitch = pitches[0];
    uint64_t row_bytes = (uint64_t)box[0] * map.element_bytes;
    bool aligned = (uintptr_t)base % 16 == 0 && map.pitch % 16 == 0 && row_bytes % 16 == 0;
    bool fits = box[0] <= 256 && box[1] <= 256 && (!swizzle || row_bytes <= 16u << swizzle);
    if (!aligned || !fits) return CUDA_ERROR_INVALID_VALUE;
    memcpy(to, &map, sizeof(map));
    return CUDA_SUCCESS;
}

} // namespace plec_emu
