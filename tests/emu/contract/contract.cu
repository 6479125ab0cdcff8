/* contract.cu: the list of cases and what they found. */
#include "tests/emu/contract/contract.h"

#include <stdarg.h>
#include <stdio.h>
#include <string>

static const plec_contract_case *first;

static std::string &faults() {
    static std::string text;
    return text;
}

plec_contract_case::plec_contract_case(const char *claim, int least, void (*body)(void))
    : name(claim), capability(least), run(body), next(first) {
    first = this;
}

const struct plec_contract_case *plec_contract_cases(void) {
    return first;
}

const char *plec_contract_take_faults(void) {
    static std::string taken;
    taken.swap(faults());
    faults().clear();
    return taken.c_str();
}

void plec_contract_fault(const char *format, ...) {
    char line[400];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    if (faults().size() < 8192) faults() += line;
}

void plec_contract_status(cudaError_t status, const char *what, int line) {
    if (status == cudaSuccess) return;
    plec_contract_fault("%s (line %d) failed: %s\n", what, line, cudaGetErrorString(status));
}
