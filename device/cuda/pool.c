#include "device/cuda/pool.h"

#include <string.h>

/* Bytes of a piece: whole units, so that the next one begins aligned; 0 when that overflows. */
static uint64_t whole_units(uint64_t n_bytes) {
    uint64_t units = n_bytes / PLEC_CUDA_PIECE_ALIGN + (n_bytes % PLEC_CUDA_PIECE_ALIGN != 0);
    if (units == 0) units = 1;
    return units > UINT64_MAX / PLEC_CUDA_PIECE_ALIGN ? 0 : units * PLEC_CUDA_PIECE_ALIGN;
}

static void insert(struct plec_cuda_pool *pool, uint32_t i, uint64_t at, uint64_t n_bytes) {
    memmove(&pool->pieces[i + 1], &pool->pieces[i], (pool->n_pieces - i) * sizeof pool->pieces[0]);
    pool->pieces[i] = (struct plec_cuda_piece){at, n_bytes};
    pool->n_pieces++;
}

bool plec_cuda_pool_take(uint64_t *at, struct plec_cuda_pool *pool, uint64_t n_bytes) {
    uint64_t wanted = whole_units(n_bytes), end = 0;
    if (wanted == 0 || pool->n_pieces == PLEC_CUDA_PIECES_MAX) return false;
    for (uint32_t i = 0; i <= pool->n_pieces; i++) {
        uint64_t next = i < pool->n_pieces ? pool->pieces[i].at : pool->n_bytes;
        if (next - end >= wanted) {
            insert(pool, i, end, wanted);
            *at = end;
            return true;
        }
        if (i < pool->n_pieces) end = next + pool->pieces[i].n_bytes;
    }
    return false;
}

bool plec_cuda_pool_give(struct plec_cuda_pool *pool, uint64_t at) {
    uint32_t i = 0;
    while (i < pool->n_pieces && pool->pieces[i].at != at)
        i++;
    if (i == pool->n_pieces) return false;
    pool->n_pieces--;
    memmove(&pool->pieces[i], &pool->pieces[i + 1], (pool->n_pieces - i) * sizeof pool->pieces[0]);
    return true;
}
