/* arrival.c: where the operands of an entry lie when it has arrived: what all backends share. */
#include <string.h>

#include "device/backend.h"
#include "lyrw/cursor.h"

/* Room for n_bytes; where it starts. */
static enum plec_status take(uint64_t *at, struct plec_arrival *arrival, uint64_t n_bytes,
                             struct plec_error *err) {
    uint64_t end;
    *at = arrival->n_bytes;
    if (!plec_add_u64(&end, *at, n_bytes) || !plec_round_up_u64(&end, end, PLEC_ARRIVAL_ALIGNMENT))
        return plec_fail(err, PLEC_MALFORMED, "SizeOverflow", "an expert exceeds 64 bits");
    arrival->n_bytes = end;
    return PLEC_OK;
}

static enum plec_status place_operand(struct plec_arrival *out, int id,
                                      const struct plec_operand *operand, uint64_t form_bytes,
                                      struct plec_error *err) {
    uint64_t values = form_bytes, scales = 0;
    enum plec_status status = PLEC_OK;
    if (form_bytes == 0)
        status =
            plec_format_size(&values, &scales, operand->format, operand->rows, operand->cols, err);
    if (status == PLEC_OK) status = take(&out->values_at[id], out, values, err);
    if (status == PLEC_OK && id < PLEC_N_MATRICES && scales != 0)
        status = take(&out->scales_at[id], out, scales, err);
    out->changes = out->changes || form_bytes != 0;
    return status;
}

enum plec_status plec_arrival_place(struct plec_arrival *out, const struct plec_bank *bank,
                                    const uint64_t *form_bytes, struct plec_error *err) {
    enum plec_status status = PLEC_OK;
    out->changes = false;
    out->n_bytes = 0;
    memset(out->values_at, 0xFF, sizeof out->values_at);
    memset(out->scales_at, 0xFF, sizeof out->scales_at);
    for (int id = 0; status == PLEC_OK && id < PLEC_N_OPERANDS; id++)
        if (bank->operands[id].rows != 0)
            status = place_operand(out, id, &bank->operands[id],
                                   id < PLEC_N_MATRICES ? form_bytes[id] : 0, err);
    return status;
}

void plec_arrived_entry(struct plec_entry *out, const struct plec_arrival *arrival,
                        const uint8_t *block) {
    for (int id = 0; id < PLEC_N_OPERANDS; id++)
        out->values[id] =
            arrival->values_at[id] != UINT64_MAX ? block + arrival->values_at[id] : NULL;
    for (int id = 0; id < PLEC_N_MATRICES; id++)
        out->scales[id] =
            arrival->scales_at[id] != UINT64_MAX ? block + arrival->scales_at[id] : NULL;
}
