/* array.cuh: device memory as an object, for tests: freed at the end of its scope. */
#ifndef PLEC_TESTS_EMU_CONTRACT_ARRAY_CUH
#define PLEC_TESTS_EMU_CONTRACT_ARRAY_CUH

#include "tests/emu/contract/contract.h"
#include <vector>

template <class T> struct device_array {
    T *data = nullptr;
    size_t n;

    explicit device_array(size_t count) : n(count) { allocate(); }
    explicit device_array(const std::vector<T> &from) : n(from.size()) {
        allocate();
        MUST(cudaMemcpy(data, from.data(), n * sizeof(T), cudaMemcpyHostToDevice));
    }
    device_array(const device_array &) = delete;
    device_array &operator=(const device_array &) = delete;
    ~device_array() { MUST(cudaFree(data)); }

    operator T *() { return data; }
    void zero() { MUST(cudaMemset(data, 0, n * sizeof(T))); }

    std::vector<T> get() const {
        std::vector<T> to(n);
        MUST(cudaMemcpy(to.data(), data, n * sizeof(T), cudaMemcpyDeviceToHost));
        return to;
    }

  private:
    void allocate() {
        void *memory = nullptr;
        MUST(cudaMalloc(&memory, n * sizeof(T)));
        data = (T *)memory;
    }
};

#endif
