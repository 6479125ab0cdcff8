/* Any bytes as a GGUF file: parsed, checked, every key and every usable tensor touched. */
#include <stdint.h>
#include <stdlib.h>

#include "lyrw/gguf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Where what was read goes, so that no read is left out. */
static volatile uint64_t touched;

static uint64_t touch_key(const struct plec_gguf *file, const struct plec_gguf_key *key) {
    uint64_t u = 0, last = key->count == 0 ? 0 : key->count - 1;
    int64_t i = 0;
    double f = 0;
    bool b = false;
    struct plec_view view = {"", 0};
    struct plec_error err;
    (void)!plec_gguf_u64(&u, file, key, last, &err);
    (void)!plec_gguf_i64(&i, file, key, last, &err);
    (void)!plec_gguf_f64(&f, file, key, last, &err);
    (void)!plec_gguf_bool(&b, file, key, last, &err);
    (void)!plec_gguf_string(&view, file, key, last, &err);
    if (plec_gguf_find_key(file, key->name) != key) abort();
    return u + (uint64_t)i + b + (view.size > 0 ? (uint64_t)view.data[view.size - 1] : 0);
}

static uint64_t touch_tensor(const struct plec_gguf *file, const struct plec_gguf_tensor *tensor) {
    const uint8_t *bytes;
    struct plec_error err;
    if (plec_gguf_find_tensor(file, tensor->name) != tensor) abort();
    if (plec_gguf_use_tensor(&bytes, file, tensor, &err) != PLEC_OK) return 0;
    if (tensor->n_bytes == 0) abort();
    return (uint64_t)bytes[0] + bytes[tensor->n_bytes - 1];
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct plec_gguf file;
    struct plec_error err;
    if (plec_gguf_parse(&file, data, size, &err) != PLEC_OK) {
        if (err.byte > size) abort(); /* a fault stands inside the file */
        return 0;
    }
    uint64_t sum = 0;
    for (uint32_t i = 0; i < file.n_keys; i++)
        sum += touch_key(&file, &file.keys[i]);
    for (uint32_t i = 0; i < file.n_tensors; i++)
        sum += touch_tensor(&file, &file.tensors[i]);
    touched = sum;
    struct plec_findings strict = {0};
    plec_gguf_check_strict(&strict, &file);
    if (plec_gguf_require_sound(&file, &err) != PLEC_OK && strict.n_defects == 0) abort();
    plec_findings_clear(&strict);
    plec_gguf_close(&file);
    return 0;
}
