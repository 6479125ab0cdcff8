/* mm_traffic.h: what mm_sync moves and issues for one operand of one expert, counted by the
 * emulation. */
#ifndef PLEC_TESTS_SUPPORT_MM_TRAFFIC_H
#define PLEC_TESTS_SUPPORT_MM_TRAFFIC_H

#include "device/cuda/fragment/all.cuh"
#include "device/cuda/planes.cuh"
#include "device/cuda/table.h"
#include "tests/emu/emulator.h"
#include "tests/support/mm_cases.h"

namespace plec_test {

/* Bytes of codes and scales of a matrix as planes. */
inline uint64_t planes_bytes(uint16_t format, uint32_t rows, uint32_t cols) {
#define PLANES_BYTES(tag, name)                                                                    \
    if (format == tag) {                                                                           \
        plec_planes planes = plec_planes_of<plec_fragment_##name>(rows, cols);                     \
        return plec_planes_at<plec_fragment_##name>(planes, planes.n_steps, 0);                    \
    }
    PLEC_FOR_EACH_FRAGMENT(PLANES_BYTES)
    return 0;
#undef PLANES_BYTES
}

struct Traffic {
    struct plec_emu_line weights, tokens; /* copies to shared memory */
    struct plec_emu_line loop;            /* what its main loop reads there; checked build */
    struct plec_emu_line mma;
    uint64_t weight_bytes; /* of the operand, as planes */
    double n_weights;
};

/* Gate and up of 128 rows, or a down of 128 rows whose columns are split over blocks; the rest of
 * the expert is f32, which runs in another kernel. */
enum TrafficOf { GATE_UP_TRAFFIC, DOWN_TRAFFIC };

inline Traffic traffic_of(uint16_t format, TrafficOf of, uint32_t n_rows) {
    const int f32 = PLEC_FORMAT_F32;
    CudaDevice cuda;
    plec_cuda_limit_rung(cuda.device, PLEC_CUDA_MM_SYNC);
    BankSpec spec = of == DOWN_TRAFFIC ? mm_spec(f32, f32, format, 16, 2048)
                                       : mm_spec(format, format, f32, 8, 64);
    uint32_t cols = of == DOWN_TRAFFIC ? 2048 : 1024;
    if (of == DOWN_TRAFFIC)
        spec.output_dim = 128;
    else
        spec.input_dim = cols;
    spec.fusion = PLEC_FUSED_GATE_FIRST;
    spec.n_entries = 1;
    Bank bank(spec);
    PackedBank uploaded(&cuda, bank.get());
    CudaLaunch launch(&cuda, uploaded.get(), make_step(bank.get(), n_rows, 1, 7));
    plec_emu_stats_start();
    launch.run();
    plec_emu_stats_stop();
    Traffic traffic;
    traffic.weights = plec_emu_stats("mm_sync", "mm_weights.cuh", PLEC_EMU_COPY_ASYNC);
    traffic.tokens = plec_emu_stats("mm_sync", "mm_tokens.cuh", PLEC_EMU_COPY_ASYNC);
    traffic.loop = plec_emu_stats("mm_sync", "mm_weights.cuh", PLEC_EMU_SHARED_LOAD);
    struct plec_emu_line sums = plec_emu_stats("mm_sync", "mm_sync.cuh", PLEC_EMU_SHARED_LOAD);
    traffic.loop.n_requests += sums.n_requests, traffic.loop.n_waves += sums.n_waves;
    traffic.loop.n_conflicts += sums.n_conflicts;
    traffic.mma = plec_emu_stats("mm_sync", NULL, PLEC_EMU_MMA);
    traffic.weight_bytes = planes_bytes(format, 128, cols);
    traffic.n_weights = 128.0 * cols;
    return traffic;
}

} // namespace plec_test
#endif
