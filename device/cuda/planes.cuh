/* planes.cuh: a matrix as the kernels read it, made from the file's bytes.
 *
 * The rows in file order, eight neighbours a group; a step is k_step columns.
 *
 *   groups   [n_steps][rows / 8] of
 *              codes     [lane_words / 4 chunks][8 rows][4 lanes c][4 words], then, where two words
 *                        of a lane are left over, [8 rows][4 lanes c][2 words]; or, of swizzled
 *                        formats, as below
 *              records   [8 rows][record_words]    scales
 *              supers    [8 rows][super_words]
 *   factors  [rows] f32   what a row's sums are multiplied by at the end: the format's unit and row
 *                         scale, or NaN
 *
 * So neighbouring rows of one step are one run of bytes with all that belongs to them: one bulk
 * copy, and every sector that is fetched is used. Codes lie in it as eight rows' lanes read them,
 * without a bank conflict. Columns past the matrix are zero codes; rows that fill up the last group
 * are never written.
 *
 * Swizzled groups (bf16) are what wgmma takes for operand A as they are: [8 places][128 bytes], a
 * row's 64 columns in order, piece p of 16 bytes at p ^ place. Rows 2 h and 2 h + 1, whose lanes
 * mma.sync's operand A is read by together, are at places h and h + 4: so those lanes meet no bank
 * twice either.
 */
#ifndef PLEC_DEVICE_CUDA_PLANES_CUH
#define PLEC_DEVICE_CUDA_PLANES_CUH

#include "device/cuda/fragment/fragment.cuh"

struct plec_planes {
    uint32_t n_steps, n_groups; /* groups of a step */
    uint64_t factors, n_bytes;  /* byte offsets, each a multiple of 128 */
};

/* Byte offsets in a group, and its size: a multiple of 32. */
template <class F> struct plec_planes_group {
    enum {
        ROWS = 8,
        CHUNKS = F::lane_words / 4,
        REST = CHUNKS * 512, /* words left over */
        RECORDS = ROWS * F::lane_words * 16,
        SUPERS = RECORDS + ROWS * F::record_words * 4,
        BYTES = SUPERS + ROWS * F::super_words * 4
    };
};

enum { PLEC_PLANE_ALIGN = 128, PLEC_PLANE_SCRATCH = 13 };

/* Where row r (of 8) of a swizzled group lies, and the row that lies at a place. */
PLEC_HD uint32_t plec_planes_place(uint32_t r) {
    return r >> 1 | (r & 1) << 2;
}
PLEC_HD uint32_t plec_planes_row(uint32_t place) {
    return (place << 1 | place >> 2) & 7;
}

PLEC_HD uint64_t plec_planes_aligned(uint64_t n_bytes) {
    return (n_bytes + PLEC_PLANE_ALIGN - 1) / PLEC_PLANE_ALIGN * PLEC_PLANE_ALIGN;
}

/* 32-bit rows and columns of a few bytes each do not overflow 64 bits. */
template <class F> PLEC_HD plec_planes plec_planes_of(uint32_t rows, uint32_t cols) {
    plec_planes planes;
    planes.n_steps = cols / F::k_step + (cols % F::k_step != 0);
    planes.n_groups = rows / 8 + (rows % 8 != 0);
    uint64_t groups = (uint64_t)planes.n_steps * planes.n_groups;
    planes.factors = plec_planes_aligned(groups * plec_planes_group<F>::BYTES);
    planes.n_bytes = planes.factors + plec_planes_aligned((uint64_t)rows * 4);
    return planes;
}

/* Byte offset of the group of row r in a step. */
template <class F>
PLEC_HD uint64_t plec_planes_at(const plec_planes &planes, uint32_t step, uint32_t r) {
    return ((uint64_t)step * planes.n_groups + r / 8) * plec_planes_group<F>::BYTES;
}

/* Byte offset in the group of row r of word w of lane c. */
template <class F> PLEC_HD uint32_t plec_planes_word(uint32_t r, uint32_t c, uint32_t w) {
    if (F::swizzled) {
        uint32_t place = plec_planes_place(r % 8), piece = w / 4 * 4 + c;
        return place * 128 + (piece ^ place) * 16 + w % 4 * 4;
    }
    const uint32_t whole = F::lane_words / 4 * 4;
    return w < whole ? w / 4 * 512 + r % 8 * 64 + c * 16 + w % 4 * 4
                     : plec_planes_group<F>::REST + r % 8 * 32 + c * 8 + (w - whole) * 4;
}

/* A lane's chunk j of codes, where chunk 0 is at byte `first` of the group, or of groups in a row.
 */
template <class F> PLEC_HD uint32_t plec_planes_chunk(uint32_t first, uint32_t j) {
    return F::swizzled ? first ^ j * 64 : first + j * 512;
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
    typedef plec_planes_group<F> G;
    uint8_t *group = out + plec_planes_at<F>(planes, step, r);
    plec_planes_codes<F>(scratch, row, n_valid, step, c);
    for (uint32_t w = 0; w < F::lane_words; w++)
        *(uint32_t *)(group + plec_planes_word<F>(r, c, w)) = scratch[w];
    if (c != 0) return;
    F::record(scratch, row, step * F::k_step);
    for (int w = 0; w < (int)F::record_words; w++)
        *(uint32_t *)(group + G::RECORDS + (r % 8 * F::record_words + (uint32_t)w) * 4) =
            scratch[w];
    if (F::super_words != 0)
        *(uint32_t *)(group + G::SUPERS + r % 8 * 4) = F::super(row, step * F::k_step);
}

template <class F> PLEC_HD float plec_planes_factor(const plec_fragment_row &row, bool has_nan) {
    float unit = plec_bits_f32((uint32_t)(127 + F::unit) << 23);
    return has_nan ? plec_bits_f32(0x7FC00000u) : plec_mul(F::row_scale(row), unit);
}

#endif
