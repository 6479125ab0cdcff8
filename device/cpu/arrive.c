/* arrive.c: entries that arrive on the CPU device: its launches read the file's own form, so that
 * an arrival is a copy. */
#include <string.h>

#include "device/cpu/cpu.h"

enum plec_status plec_cpu_arrival(struct plec_arrival *out, const struct plec_device *base,
                                  const struct plec_bank *bank, struct plec_error *err) {
    static const uint64_t none[PLEC_N_MATRICES];
    const struct plec_cpu_device *device = (const struct plec_cpu_device *)base;
    enum plec_status status = plec_arrival_place(out, bank, none, err);
    out->changes = device->simulation.arrives;
    return status;
}

struct arrive_args {
    const struct plec_bank *bank;
    struct plec_entry from;
    uint8_t *to;
};

static void copy_operand(struct plec_entry *to, const struct arrive_args *args, int id) {
    const struct plec_operand *operand = &args->bank->operands[id];
    uint64_t values = 0, scales = 0;
    enum plec_status status =
        plec_format_size(&values, &scales, operand->format, operand->rows, operand->cols, NULL);
    if (status != PLEC_OK || operand->rows == 0) return; /* the arrival was refused for it */
    memcpy((uint8_t *)to->values[id], args->from.values[id], values);
    if (id < PLEC_N_MATRICES && scales != 0)
        memcpy((uint8_t *)to->scales[id], args->from.scales[id], scales);
}

static enum plec_status run_arrive(struct plec_cpu_stream *stream, const void *user,
                                   struct plec_error *err) {
    const struct arrive_args *args = user;
    const struct plec_simulation *simulation = &stream->device->simulation;
    struct plec_arrival arrival;
    struct plec_entry to;
    enum plec_status status = plec_cpu_arrival(&arrival, &stream->device->base, args->bank, err);
    if (status != PLEC_OK) return status;
    if (simulation->fail_copy != NULL &&
        simulation->fail_copy(simulation->user, args->to, arrival.n_bytes))
        return plec_fail(err, PLEC_NO_DEVICE, "CopyFailed",
                         "an arrival of %llu bytes, on a device told to fail it",
                         (unsigned long long)arrival.n_bytes);
    plec_arrived_entry(&to, &arrival, args->to);
    for (int id = 0; id < PLEC_N_OPERANDS; id++)
        copy_operand(&to, args, id);
    return PLEC_OK;
}

enum plec_status plec_cpu_arrive(struct plec_stream *stream, const struct plec_arrive_args *args,
                                 struct plec_error *err) {
    (void)err;
    enum plec_status status = PLEC_OK;
    for (uint32_t i = 0; status == PLEC_OK && i < args->n; i++) {
        struct arrive_args one = {args->bank, args->from[i], args->to[i]};
        status = plec_cpu_enqueue(stream, run_arrive, &one, sizeof one);
    }
    return status;
}
