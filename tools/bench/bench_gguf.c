/* bench_gguf.c: what looking at a GGUF model of full size costs: a split set of 400 GB with 1000
 * tensors and a vocabulary of 250,000 tokens, whose weights are holes. Prints time and peak memory
 * of `plectrum inspect`. Usage: bench_gguf [PLECTRUM]
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "lyrw/cursor.h"
#include "lyrw/gguf_write.h"
#include "tools/bench/measure.h"

enum {
    N_RUNS = 10,
    N_SHARDS = 9,
    N_TENSORS = 1000,
    N_TOKENS = 250000,
    TOKEN_BYTES = 7, /* and merges of twice that: about what real vocabularies have */
    N_LAYERS = 100
};

static const uint64_t total_bytes = UINT64_C(400000000000);

/* Strings of one length, their bytes as a file has them. */
static void put_texts(struct plec_gguf_writer *writer, const char *name, uint64_t n, size_t size) {
    size_t each = 8 + size, n_bytes = 12 + (size_t)n * each;
    uint8_t *bytes = calloc(1, n_bytes);
    if (bytes == NULL) return;
    plec_store_u32(bytes, PLEC_GGUF_STRING);
    plec_store_u64(bytes + 4, n);
    for (uint64_t i = 0; i < n; i++) {
        uint8_t *at = bytes + 12 + i * each;
        plec_store_u64(at, size);
        for (size_t k = 0; k < size; k++)
            at[8 + k] = (uint8_t)('a' + (i >> (3 * k) & 15));
    }
    plec_gguf_put_raw(writer, plec_view_of(name), PLEC_GGUF_ARRAY, bytes, n_bytes);
    free(bytes);
}

static void put_vocabulary(struct plec_gguf_writer *writer) {
    uint8_t *zeros = calloc(N_TOKENS, 4);
    put_texts(writer, "tokenizer.ggml.tokens", N_TOKENS, TOKEN_BYTES);
    put_texts(writer, "tokenizer.ggml.merges", N_TOKENS, 2 * TOKEN_BYTES);
    if (zeros != NULL) {
        plec_gguf_put_array(writer, "tokenizer.ggml.token_type", PLEC_GGUF_I32, zeros, N_TOKENS);
        plec_gguf_put_array(writer, "tokenizer.ggml.scores", PLEC_GGUF_F32, zeros, N_TOKENS);
    }
    free(zeros);
}

static void put_keys(struct plec_gguf_writer *writer, uint32_t shard) {
    uint8_t two[2];
    if (shard == 0) {
        plec_gguf_put_string(writer, "general.architecture", "deepseek2");
        plec_gguf_put_u32(writer, "deepseek2.block_count", N_LAYERS);
        plec_gguf_put_u32(writer, "deepseek2.expert_count", 256);
        put_vocabulary(writer);
    }
    plec_store_u16(two, (uint16_t)shard);
    plec_gguf_put_raw(writer, plec_view_of("split.no"), PLEC_GGUF_U16, two, 2);
    plec_store_u16(two, N_SHARDS);
    plec_gguf_put_raw(writer, plec_view_of("split.count"), PLEC_GGUF_U16, two, 2);
    plec_gguf_put_u32(writer, "split.tensors.count", N_TENSORS);
}

/* Shard 0 holds no tensors; the others share them. */
static uint64_t put_tensors(struct plec_gguf_writer *writer, uint32_t shard) {
    enum { EACH = N_TENSORS / (N_SHARDS - 1) };
    uint64_t blocks = total_bytes / N_TENSORS / 144 / 256, n_bytes = 0;
    const uint64_t ne[] = {256, blocks, 256};
    for (uint32_t i = shard == 0 ? EACH : 0; i < EACH; i++) {
        char name[64];
        uint32_t number = (shard - 1) * EACH + i;
        snprintf(name, sizeof name, "blk.%u.part_%u.weight", number % N_LAYERS, number / N_LAYERS);
        plec_gguf_put_tensor(writer, plec_view_of(name), PLEC_GGUF_TYPE_Q4_K, 3, ne, 0);
        n_bytes += blocks * 256 * 144;
    }
    return n_bytes;
}

static uint64_t make_shard(const char *root, uint32_t shard, struct plec_error *err) {
    char path[256];
    snprintf(path, sizeof path, "%s/m-%05u-of-%05u.gguf", root, shard + 1, N_SHARDS);
    struct plec_gguf_writer *writer = plec_gguf_writer_new(32);
    const uint8_t *header;
    uint64_t n_header = 0, size = 0;
    put_keys(writer, shard);
    uint64_t n_bytes = put_tensors(writer, shard);
    if (plec_gguf_writer_header(&header, &n_header, writer, err) == PLEC_OK &&
        plec_gguf_writer_begin(writer, path, err) == PLEC_OK &&
        plec_gguf_writer_finish(writer, true, err) == PLEC_OK) {
        size = n_header + n_bytes;
        if (truncate(path, (off_t)size) != 0) {
            plec_fail(err, PLEC_IO, "CannotGrow", "%s", path);
            size = 0;
        }
    }
    plec_gguf_writer_free(writer);
    return size;
}

static int measure(const char *tool, const char *root, const char *form, uint64_t n_bytes) {
    char path[256];
    snprintf(path, sizeof path, "%s/m-%05u-of-%05u.gguf", root, 5, N_SHARDS);
    char *const line[] = {(char *)tool, "inspect", (char *)form, path, NULL};
    struct plec_run_cost cost = plec_measure_runs(line, N_RUNS, 0);
    if (cost.exit_status != 0) {
        fprintf(stderr, "bench_gguf: %s inspect %s left with %d\n", tool, path, cost.exit_status);
        return 1;
    }
    printf("inspect %-7s %d files, %.1f GB, %d tensors, %d tokens: %.1f ms (best of %d), peak %.1f "
           "MiB\n",
           form, N_SHARDS, (double)n_bytes * 1e-9, N_TENSORS, N_TOKENS, cost.wall_ms, N_RUNS,
           (double)cost.peak_kib / 1024);
    return 0;
}

int main(int argc, char **argv) {
    char tool[4096], root[] = "/tmp/plectrum-bench-XXXXXX", line[64];
    plec_measure_tool(tool, sizeof tool, argv[0]);
    if (argc > 1) snprintf(tool, sizeof tool, "%s", argv[1]);
    if (mkdtemp(root) == NULL) {
        perror(root);
        return 4;
    }
    struct plec_error err = {0};
    uint64_t n_bytes = 0, made = 1;
    for (uint32_t i = 0; i < N_SHARDS && made > 0; i++)
        n_bytes += made = make_shard(root, i, &err);
    int failed = 1;
    if (made == 0)
        fprintf(stderr, "bench_gguf: %s\n", err.message);
    else
        failed = measure(tool, root, "--", n_bytes) | measure(tool, root, "--json", n_bytes);
    snprintf(line, sizeof line, "rm -rf '%s'", root);
    return system(line) != 0 || failed;
}
