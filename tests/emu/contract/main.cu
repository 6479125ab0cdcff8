/* main.cu: the contract as a program for a machine with a GPU. One line a case; exit status 1 when
 * one failed, 77 when there is no GPU. Usage: contract [PART OF A NAME] */
#include "tests/emu/contract/contract.h"

#include <stdio.h>
#include <string.h>

static int device_capability(void) {
    int major = 0, minor = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) != cudaSuccess)
        return 0;
    if (cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) != cudaSuccess)
        return 0;
    return major * 10 + minor;
}

int main(int argc, char **argv) {
    int capability = device_capability(), n_failed = 0;
    if (!capability) {
        printf("skipped: no GPU\n");
        return 77;
    }
    for (const plec_contract_case *c = plec_contract_cases(); c; c = c->next) {
        if (argc > 1 && !strstr(c->name, argv[1])) continue;
        bool able = c->capability == 80 ? capability >= 80 : capability == c->capability;
        if (!able) {
            printf("skipped %s: needs sm_%d, this is sm_%d\n", c->name, c->capability, capability);
            continue;
        }
        c->run();
        plec_contract_status(cudaDeviceSynchronize(), "cudaDeviceSynchronize", __LINE__);
        const char *faults = plec_contract_take_faults();
        n_failed += *faults != 0;
        printf("%s %s\n%s", *faults ? "FAILED " : "ok     ", c->name, faults);
        fflush(stdout);
    }
    printf("contract on sm_%d: %s\n", capability, n_failed ? "FAILED" : "holds");
    return n_failed != 0;
}
