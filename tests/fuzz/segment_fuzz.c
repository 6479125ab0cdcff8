/* segment_fuzz.c: LYRW files of any bytes: read, verified and written again. */
#include <stddef.h>
#include <stdint.h>

#include "tests/support/exercise_segment.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static volatile unsigned kept;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    kept = exercise_segment(data, size);
    return 0;
}
