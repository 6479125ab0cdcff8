// bench_mm_memory [FORMAT...]: what mm_sync moves and issues, counted by the emulation: first one
// expert, eight tokens, gate and up of 1024 x 256, then tiles of every width and a down that is
// split. bits/wt: of the weights that mm_sync copies; moved: of all that the launch reads and
// writes but tokens and their staging, in bits a weight. A line a format; with --lines every source
// line.
#include "device/cuda/table.h"
#include "tests/support/mm_traffic.h"
#include "tests/support/moved.h"

namespace {

using namespace plec_test;

void run(uint16_t format) {
    CudaDevice cuda;
    plec_cuda_limit_rung(cuda.device, PLEC_CUDA_MM_SYNC);
    BankSpec spec = mm_spec(format, format, PLEC_FORMAT_F32, 8, 128);
    spec.input_dim = 1024;
    spec.fusion = PLEC_FUSED_GATE_FIRST;
    spec.n_entries = 1;
    Bank bank(spec);
    PackedBank uploaded(&cuda, bank.get());
    CudaLaunch launch(&cuda, uploaded.get(), make_step(bank.get(), 8, 1, 7));
    plec_emu_stats_start();
    launch.run();
    plec_emu_stats_stop();
}

double share(uint64_t part, uint64_t whole) {
    return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

void print(uint16_t format) {
    const double n_weights = 1024.0 * 256;
    struct plec_emu_line weights = plec_emu_stats("mm_sync", "mm_weights.cuh", PLEC_EMU_COPY_ASYNC);
    struct plec_emu_line tokens = plec_emu_stats("mm_sync", "mm_tokens.cuh", PLEC_EMU_COPY_ASYNC);
    struct plec_emu_line loads = plec_emu_stats("mm_sync", NULL, PLEC_EMU_SHARED_LOAD);
    struct plec_emu_line mma = plec_emu_stats("mm_sync", NULL, PLEC_EMU_MMA);
    Moved all = moved();
    printf("%-12s %8.3f %8.2f %8.3f %10.3f %8.2f %10.3f %10llu %8.4f\n",
           plec_format_find(format)->name,
           8.0 * static_cast<double>(weights.n_bytes_used) / n_weights,
           share(weights.n_bytes_used, weights.n_bytes_fetched),
           8.0 * static_cast<double>(all.loaded + all.stored) / n_weights,
           8.0 * static_cast<double>(tokens.n_bytes_fetched) / n_weights,
           share(tokens.n_bytes_used, tokens.n_bytes_fetched),
           static_cast<double>(loads.n_waves) / n_weights * 32,
           static_cast<unsigned long long>(loads.n_conflicts),
           static_cast<double>(mma.n_requests) / n_weights * 32);
}

void print_tiles(uint16_t format) {
    for (TrafficOf of : {GATE_UP_TRAFFIC, DOWN_TRAFFIC})
        for (uint32_t n_rows : {8u, 32u, 64u + 64u}) {
            Traffic t = traffic_of(format, of, n_rows);
            printf("%-12s %-8s %5u %11.3f %8.2f %8.2f %10llu\n", plec_format_find(format)->name,
                   of == DOWN_TRAFFIC ? "down" : "gate, up", n_rows,
                   static_cast<double>(t.weights.n_bytes_used) /
                       static_cast<double>(t.weight_bytes),
                   share(t.weights.n_bytes_used, t.weights.n_bytes_fetched),
                   share(t.tokens.n_bytes_used, t.tokens.n_bytes_fetched),
                   static_cast<unsigned long long>(t.loop.n_conflicts));
        }
}

bool wanted(int argc, char **argv, const char *name) {
    bool any = false;
    for (int i = 1; i < argc; i++) {
        any = any || argv[i][0] != '-';
        if (strcmp(argv[i], name) == 0) return true;
    }
    return !any;
}

} // namespace

int main(int argc, char **argv) {
    testing::InitGoogleTest(&argc, argv);
    bool lines = argc > 1 && strcmp(argv[1], "--lines") == 0;
    printf("CUDA emulated on the CPU: counts, not times. Per weight and lane where a weight is "
           "named.\n");
    printf("%-12s %8s %8s %8s %10s %8s %10s %10s %8s\n", "format", "bits/wt", "used %", "moved",
           "tokens b/wt", "used %", "waves/wt", "conflicts", "mma/wt");
    for (uint16_t format : MM_FORMATS) {
        if (!wanted(argc, argv, plec_format_find(format)->name)) continue;
        run(format);
        print(format);
        if (lines) plec_emu_stats_print(stdout);
    }
    printf("\n%-12s %-8s %5s %11s %8s %8s %10s\n", "format", "of", "rows", "times read", "used %",
           "tokens %", "conflicts");
    for (uint16_t format : MM_FORMATS)
        if (wanted(argc, argv, plec_format_find(format)->name)) print_tiles(format);
    return testing::Test::HasFailure() ? 1 : 0;
}
