/* planes.cuh: a matrix as the kernels read it, made from the file's bytes.
 *
 * Four planes in one buffer, the rows in file order. A step is k_step columns.
 *
 *   codes    [n_steps][rows][lane_words * 4 words]   a row of one step: chunks of four words a
 * lane, [chunk][lane c][4], then, where two are left over, [lane c][2] records
 * [n_steps][rows][record_words]           scales supers   [n_steps][rows][super_words] factors
 * [rows] f32                              what a row's sums are multiplied by at the end: the
 * format's unit and row scale, or NaN
 *
 * Neighbouring rows of one step are neighbours in memory, so that every sector that is fetched is
 * used, and every chunk is aligned for a 16-byte copy. Columns past the matrix are zero codes.
 */
#ifndef PLEC_DEVICE_CUDA_PLANES_CUH
#define PLEC_DEVICE_CUDA_PLANES_CUH

#include "device/cuda/fragment/fragment.cuh"

struct plec_planes {
    uint32_t n_steps, rows;
    uint64_t records, supers, factors, n_bytes; /* byte offsets, each a multiple of 128 */
};

enum { PLEC_PLANE_ALIGN = 128, PLEC_PLANE_SCRATCH = 13 };

PLEC_HD uint64_t plec_planes_aligned(uint64_t n_bytes) {
    return (n_bytes + PLEC_PLANE_ALIGN - 1) / PLEC_PLANE_ALIGN * PLEC_PLANE_ALIGN;
}

/* 32-bit rows and columns of a plane's few bytes each do not overflow 64 bits. */
template <class F> PLEC_HD plec_planes plec_planes_of(uint32_t rows, uint32_t cols) {
    plec_planes planes;
    planes.n_steps = cols / F::k_step + (cols % F::k_step != 0);
    planes.rows = rows;
    uint64_t cells = (uint64_t)planes.n_steps * rows;
    planes.records = plec_planes_aligned(cells * F::lane_words * 16);
    planes.supers = planes.records + plec_planes_aligned(cells * F::record_words * 4);
    planes.factors = planes.supers + plec_planes_aligned(cells * F::super_words * 4);
    planes.n_bytes = planes.factors + plec_planes_aligned((uint64_t)rows * 4);
    return planes;
}

/* Byte offset of word w of lane c's words in a row of codes. */
template <class F> PLEC_HD uint32_t plec_planes_word(uint32_t c, uint32_t w) {
    const uint32_t whole = F::lane_words / 4 * 4;
    return w < whole ? w / 4 * 64 + c * 16 + w % 4 * 4 : whole * 16 + c * 8 + (w - whole) * 4;
}

/* Codes of lane c in one step of a row; columns from n_valid on are 0. */
template <class F>
PLEC_HD void plec_planes_codes(uint32_t *words, const plec_fragment_row &row, uint32_t n_valid,
                               uint32_t step, uint32_t c) {
    for (uint32_t w = 0; w < F::lane_words; w++)
        words[w] = 0;
    uint32_t k = step * F::k_step;
    for (uint32_t b = 0; b < F::k_step / 32; b++)
        if (F::packs != 0 && k + 32 * b + 32 <= n_valid)
            F::pack(words, row, k, b, c);
        else
            plec_fragment_pack<F>(words, row, k, b, c, n_valid);
}

/* The same into its place, and with lane 0 the scales of the step. scratch: PLEC_PLANE_SCRATCH
 * words of the caller's alone, in shared memory on a device: words are indexed as the format says.
 */
template <class F>
PLEC_HD void plec_planes_fill(uint8_t *out, const plec_planes &planes, uint32_t r,
                              const plec_fragment_row &row, uint32_t n_valid, uint32_t step,
                              uint32_t c, uint32_t *scratch) {
    uint64_t cell = (uint64_t)step * planes.rows + r;
    plec_planes_codes<F>(scratch, row, n_valid, step, c);
    for (uint32_t w = 0; w < F::lane_words; w++)
        *(uint32_t *)(out + cell * F::lane_words * 16 + plec_planes_word<F>(c, w)) = scratch[w];
    if (c != 0) return;
    F::record(scratch, row, step * F::k_step);
    for (int w = 0; w < (int)F::record_words; w++)
        *(uint32_t *)(out + planes.records + (cell * F::record_words + (uint32_t)w) * 4) =
            scratch[w];
    if (F::super_words != 0)
        *(uint32_t *)(out + planes.supers + cell * 4) = F::super(row, step * F::k_step);
}

template <class F> PLEC_HD float plec_planes_factor(const plec_fragment_row &row, bool has_nan) {
    float unit = plec_bits_f32((uint32_t)(127 + F::unit) << 23);
    return has_nan ? plec_bits_f32(0x7FC00000u) : plec_mul(F::row_scale(row), unit);
}

#endif
