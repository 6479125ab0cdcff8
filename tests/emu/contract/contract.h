/* contract.h: what kernels here rely on, as small cases with known answers. The same cases run in
 * the emulation (tests/emu_contract_test.cc) and, compiled by nvcc with main.cu, on a GPU: there
 * they say whether the emulation told the truth. No test framework, so that they need none there.
 */
#ifndef PLEC_TESTS_EMU_CONTRACT_CONTRACT_H
#define PLEC_TESTS_EMU_CONTRACT_CONTRACT_H

#include <cuda_runtime_api.h>
#include <stddef.h>

/* One case: registers itself before main. */
struct plec_contract_case {
    const char *name; /* a claim */
    int capability;   /* the least compute capability it needs, 80 or 90 (90: sm_90a) */
    void (*run)(void);
    const struct plec_contract_case *next;
    plec_contract_case(const char *claim, int least, void (*body)(void));
};

const struct plec_contract_case *plec_contract_cases(void);

/* What the cases of this process found wrong since the last call, as text; empty when nothing. */
const char *plec_contract_take_faults(void);

/* Adds a fault, printf-like. */
void plec_contract_fault(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A status that is not success is a fault. */
void plec_contract_status(cudaError_t status, const char *what, int line);

#define CONTRACT(claim, least)                                                                     \
    static void claim(void);                                                                       \
    static const plec_contract_case claim##_case(#claim, least, claim);                            \
    static void claim(void)

#define MUST(call) plec_contract_status((cudaError_t)(call), #call, __LINE__)

#define EXPECT_SAME(got, want, ...)                                                                \
    do {                                                                                           \
        if (!((got) == (want))) {                                                                  \
            plec_contract_fault(__VA_ARGS__);                                                      \
            plec_contract_fault(": got %g, want %g (line %d)\n", (double)(got), (double)(want),    \
                                __LINE__);                                                         \
        }                                                                                          \
    } while (0)

#endif
