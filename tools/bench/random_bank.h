/* random_bank.h: a bank of experts with random weights in a device's memory, for measurements.
 *
 * Owns: the device memory and the tables. A few different experts are encoded on the host and
 * copied out over the rest, so that a bank of gigabytes is made in seconds; each expert has bytes
 * of its own, so that no cache serves two of them. Weights are normal, of variance 1 / columns.
 */
#ifndef PLEC_BENCH_RANDOM_BANK_H
#define PLEC_BENCH_RANDOM_BANK_H

#include "device/device.h"

/* xorshift64*: the same draws on every machine. */
struct plec_bench_random {
    uint64_t state; /* never 0 */
};
uint32_t plec_bench_draw(struct plec_bench_random *random, uint32_t below);
/* Mean 0, variance 1: the sum of twelve uniform draws. */
float plec_bench_draw_normal(struct plec_bench_random *random);

struct plec_bench_bank_args {
    struct plec_device *device;
    struct plec_stream *stream;
    uint16_t gate_format, down_format; /* with encoders */
    enum plec_activation activation;
    uint32_t input_dim, intermediate_dim;
    uint32_t n_entries;
    uint64_t most_bytes; /* of device memory; entries beyond it share bytes with others */
    uint64_t seed;
};
struct plec_bench_bank {
    struct plec_device *device;
    struct plec_bank bank; /* gate and up fused, gate first */
    struct plec_entry *entries;
    uint8_t *bytes; /* device: experts as they arrived */
    uint64_t n_bytes;
    uint64_t entry_bytes; /* of an expert, as files have it */
    uint64_t block_bytes; /* and in device memory */
    uint32_t n_stored;    /* entries with bytes of their own */
};
/* PLEC_UNSUPPORTED "NoEncoder"; PLEC_NO_MEMORY, also when most_bytes holds no entry; statuses of
 * the device. Waits until the bytes are there. */
PLEC_MUST_USE enum plec_status plec_bench_bank_open(struct plec_bench_bank *out,
                                                    const struct plec_bench_bank_args *args,
                                                    struct plec_error *err);
/* A zeroed bank is nothing. */
void plec_bench_bank_close(struct plec_bench_bank *bank);

#endif
