/* pool.h: device memory reserved once, at open, and given out in pieces: after that nothing asks
 * the driver, whose own allocation waits for the whole device.
 *
 * First fit over the pieces in use, which are kept in order of address: there are few of them (the
 * buffers of a step, the slots of a streamer), made when things open. Owns no memory of the device;
 * knows numbers alone. Not thread-safe: its device locks.
 */
#ifndef PLEC_DEVICE_CUDA_POOL_H
#define PLEC_DEVICE_CUDA_POOL_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PLEC_CUDA_PIECES_MAX = 4096, PLEC_CUDA_PIECE_ALIGN = 256 };

struct plec_cuda_piece {
    uint64_t at, n_bytes;
};
struct plec_cuda_pool {
    uint64_t n_bytes; /* 0: nothing is reserved */
    uint32_t n_pieces;
    struct plec_cuda_piece pieces[PLEC_CUDA_PIECES_MAX]; /* [n_pieces] by at, none overlap */
};

/* Where a new piece begins; false: no gap holds it, or there are too many pieces. */
bool plec_cuda_pool_take(uint64_t *at, struct plec_cuda_pool *pool, uint64_t n_bytes);
/* False: no piece begins there. */
bool plec_cuda_pool_give(struct plec_cuda_pool *pool, uint64_t at);

#ifdef __cplusplus
}
#endif
#endif
