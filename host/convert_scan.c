/* Which matrices must keep their GGUF layout: their scales read through once, by all threads. */
#include <stdlib.h>

#include "host/convert_parts.h"

/* The matrices of a bank that may be repacked, shared out to threads one at a time. */
struct scan {
    const struct plec_convert *convert;
    const struct plec_bank *bank;
    struct plec_convert_piece *pieces; /* [n_pieces] */
    enum plec_operand_id *ids;         /* [n_pieces] */
    size_t n_pieces;
    pthread_mutex_t lock;
    size_t next;
    uint32_t left; /* operands found to keep their layout */
    enum plec_status status;
    struct plec_error error;
};

/* The next matrix of an operand that is still in question; false: none. */
static bool take_matrix(struct scan *scan, size_t *i) {
    pthread_mutex_lock(&scan->lock);
    while (scan->next < scan->n_pieces && (scan->left >> scan->ids[scan->next] & 1) != 0)
        scan->next++;
    bool found = scan->status == PLEC_OK && scan->next < scan->n_pieces;
    if (found) *i = scan->next++;
    pthread_mutex_unlock(&scan->lock);
    return found;
}

static enum plec_status scan_matrix(bool *allowed, const struct scan *scan, size_t i,
                                    uint8_t *scratch, struct plec_error *err) {
    const struct plec_operand *operand = &scan->bank->operands[scan->ids[i]];
    const struct plec_convert_piece *piece = &scan->pieces[i];
    uint64_t block = plec_format_find(operand->format)->block_bytes;
    uint64_t at_once = PLEC_CONVERT_SCRATCH / block, total = piece->n_bytes / block;
    enum plec_status status = PLEC_OK;
    *allowed = true;
    for (uint64_t at = 0; status == PLEC_OK && *allowed && at < total; at += at_once) {
        uint64_t n = total - at < at_once ? total - at : at_once;
        status =
            plec_convert_read_source(scratch, scan->convert, piece, at * block, n * block, err);
        if (status == PLEC_OK) *allowed = plec_repack_allowed(operand->format, scratch, n);
    }
    return status;
}

static void *scan_work(void *user) {
    struct scan *scan = user;
    struct plec_error error;
    uint8_t *scratch = malloc(PLEC_CONVERT_SCRATCH);
    size_t i = 0;
    while (scratch != NULL && take_matrix(scan, &i)) {
        bool allowed;
        enum plec_status status = scan_matrix(&allowed, scan, i, scratch, &error);
        pthread_mutex_lock(&scan->lock);
        if (status != PLEC_OK && scan->status == PLEC_OK) {
            scan->status = status;
            scan->error = error;
        }
        if (status == PLEC_OK && !allowed) scan->left |= 1u << scan->ids[i];
        pthread_mutex_unlock(&scan->lock);
    }
    free(scratch);
    return NULL;
}

static enum plec_status list_matrices(struct scan *scan, struct plec_convert *convert,
                                      struct plec_error *err) {
    uint32_t ids = plec_convert_repackable(scan->bank);
    enum plec_status status = PLEC_OK;
    for (int id = 0; id < PLEC_N_MATRICES; id++) {
        const struct plec_operand *operand = &scan->bank->operands[id];
        uint64_t n_bytes = 0;
        if ((ids >> id & 1) == 0) continue;
        status =
            plec_format_size(&n_bytes, NULL, operand->format, operand->rows, operand->cols, err);
        for (uint32_t e = 0; status == PLEC_OK && e < scan->bank->n_entries; e++) {
            struct plec_convert_piece *piece = &scan->pieces[scan->n_pieces];
            piece->n_bytes = n_bytes;
            scan->ids[scan->n_pieces++] = (enum plec_operand_id)id;
            status = plec_convert_locate(piece, convert, scan->bank->entries[e].values[id], err);
        }
    }
    return status;
}

static enum plec_status run_scan(struct scan *scan, struct plec_convert *convert,
                                 struct plec_error *err) {
    enum plec_status status = list_matrices(scan, convert, err);
    if (status != PLEC_OK) return status;
    struct plec_convert_team team;
    plec_convert_team_start(&team, convert->n_threads, scan_work, scan);
    scan_work(scan);
    plec_convert_team_join(&team);
    if (scan->status == PLEC_OK && scan->next < scan->n_pieces)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%d bytes", PLEC_CONVERT_SCRATCH);
    if (scan->status != PLEC_OK && err != NULL) *err = scan->error;
    return scan->status;
}

enum plec_status plec_convert_scan(uint32_t *left, struct plec_convert *convert,
                                   const struct plec_bank *bank, struct plec_error *err) {
    *left = 0;
    if (plec_convert_repackable(bank) == 0) return PLEC_OK;
    size_t most = (size_t)bank->n_entries * PLEC_N_MATRICES;
    struct scan scan = {.convert = convert, .bank = bank};
    scan.pieces = calloc(most, sizeof *scan.pieces);
    scan.ids = calloc(most, sizeof *scan.ids);
    pthread_mutex_init(&scan.lock, NULL);
    enum plec_status status =
        scan.pieces != NULL && scan.ids != NULL
            ? run_scan(&scan, convert, err)
            : plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%zu matrices", most);
    *left = scan.left;
    pthread_mutex_destroy(&scan.lock);
    free(scan.pieces);
    free(scan.ids);
    return status;
}
