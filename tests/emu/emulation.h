/* emulation.h: put in front of a .cu file that g++ compiles (cmake/emulation.cmake). It gives the
 * keywords, the built-in variables and the launch; intrinsics.h and instructions.h the rest. The
 * host's side, cudaMalloc and so on, are the ordinary prototypes of cuda_runtime_api.h, which the
 * library plec_emulator implements. */
#ifndef PLEC_TESTS_EMU_EMULATION_H
#define PLEC_TESTS_EMU_EMULATION_H

#ifndef PLEC_CUDA_EMULATED
#error "compiled by plec_emulated_library (cmake/emulation.cmake) only"
#endif

#include "tests/emu/core.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <tuple>
#include <type_traits>
#include <utility>

/* A raw __shared__ would be a variable of the process: not to be compiled. */
#undef __shared__
#define __shared__ use_PLEC_SHARED_STATIC_or_PLEC_SHARED_DYNAMIC

/* Rewritten whenever another thread runs. */
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
static constexpr int warpSize = 32;

#define PLEC_EMU_HERE const char *file_ = __builtin_FILE(), int line_ = __builtin_LINE()

namespace plec_emu {

/* A kernel's arguments are copied when it is launched; each thread then has copies of its own. */
template <class... P> struct Bound {
    void (*kernel)(P...);
    std::tuple<std::decay_t<P>...> arguments;
    static void run(const void *bound) {
        const Bound *self = (const Bound *)bound;
        std::apply(self->kernel, self->arguments);
    }
};

template <class... P, class... A>
cudaError_t launch(const char *name, void (*kernel)(P...), const LaunchShape &shape,
                   A &&...arguments) {
    typedef Bound<P...> Call;
    std::shared_ptr<Call> call(new Call{
        kernel, std::tuple<std::decay_t<P>...>(static_cast<P>(std::forward<A>(arguments))...)});
    return enqueue_kernel(name, (const void *)kernel, shape, {Call::run, call, sizeof(Call)});
}

template <class T> inline uint64_t bits_of(T value) {
    static_assert(sizeof(T) <= 8, "at most 8 bytes");
    uint64_t bits = 0;
    __builtin_memcpy(&bits, &value, sizeof(value));
    return bits;
}

template <class T> inline T from_bits(uint64_t bits) {
    T value;
    __builtin_memcpy(&value, &bits, sizeof(value));
    return value;
}

} // namespace plec_emu

/* device/cuda/launch.cuh has the nvcc side of these. */
#define PLEC_SHARED_DYNAMIC(name)                                                                  \
    unsigned char *const name = (unsigned char *)plec_emu::dynamic_shared(__FILE__, __LINE__)
#define PLEC_SHARED_STATIC(type, name)                                                             \
    static char name##_key;                                                                        \
    auto &name = *(std::add_pointer_t<type>)plec_emu::static_shared(                               \
        &name##_key, sizeof(type), alignof(type), __FILE__, __LINE__)

#include "tests/emu/instructions.h"
#include "tests/emu/intrinsics.h"

#endif
