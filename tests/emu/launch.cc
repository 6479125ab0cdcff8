#include "tests/emu/launch.h"
#include "tests/emu/core.h"
#include "tests/emu/operation.h"
#include "tests/emu/runtime.h"
#include "tests/emu/settings.h"
#include "tests/emu/statistics.h"

#include <algorithm>
#include <cstring>

namespace plec_emu {

static const size_t DEFAULT_SHARED_LIMIT = 48 << 10;
static std::map<const void *, size_t> &shared_limits = *new std::map<const void *, size_t>;

void allow_shared_bytes(const void *kernel, size_t n_bytes) {
    shared_limits[kernel] = std::max(n_bytes, DEFAULT_SHARED_LIMIT);
}

size_t shared_bytes_allowed(const void *kernel) {
    auto found = shared_limits.find(kernel);
    return found == shared_limits.end() ? DEFAULT_SHARED_LIMIT : found->second;
}

static size_t volume(dim3 d) {
    return (size_t)d.x * d.y * d.z;
}

static cudaError_t refuse_shape(const char *name, const void *kernel, const LaunchShape &shape) {
    const dim3 &grid = shape.grid, &block = shape.block;
    bool fits = volume(block) > 0 && volume(block) <= 1024 && block.z <= 64 && volume(grid) > 0 &&
                grid.x <= 0x7fffffff && grid.y <= 65535 && grid.z <= 65535;
    if (!fits) {
        report("launch", "%s: bad configuration, grid (%u,%u,%u) block (%u,%u,%u)", name, grid.x,
               grid.y, grid.z, block.x, block.y, block.z);
        return fail(cudaErrorInvalidConfiguration);
    }
    if (shape.shared_bytes > shared_bytes_allowed(kernel)) {
        report("launch", "%s: %zu bytes of dynamic shared memory, limit %zu (cudaFuncSetAttribute)",
               name, shape.shared_bytes, shared_bytes_allowed(kernel));
        return fail(cudaErrorInvalidValue);
    }
    if (shape.kind == LAUNCH_DEPENDENT && image_arch() < 90) {
        report("launch", "%s: a dependent launch on compute capability %d.%d, of an image of sm_%u",
               name, settings.capability / 10, settings.capability % 10, image_arch());
        return fail(cudaErrorNotSupported);
    }
    return cudaSuccess;
}

/* The kernel's text without the parentheses that a macro argument needs. */
static std::string bare_name(const char *name) {
    std::string bare = name;
    size_t first = bare.find_first_not_of("( "), last = bare.find_last_not_of(") ");
    if (first == std::string::npos) return bare;
    return bare.substr(first, last - first + 1);
}

static void run_kernel(const std::string &name, const LaunchShape &shape,
                       const KernelCall &kernel) {
    if (sticking_error()) return;
    Launch launch;
    launch.name = name;
    launch.grid = shape.grid;
    launch.block = shape.block;
    launch.shared_bytes = shape.shared_bytes;
    launch.cooperative = shape.kind == LAUNCH_COOPERATIVE;
    launch.dependent = shape.kind == LAUNCH_DEPENDENT;
    launch.run = kernel.run;
    launch.arguments = (const char *)kernel.arguments.get();
    launch.argument_bytes = kernel.argument_bytes;
    statistics_launch_begins(launch.name);
    if (!run_grid(launch)) stick_error(cudaErrorLaunchFailure);
    operations[(size_t)operation_running].waited_first = launch.waited_first;
}

static bool take_refusal(const char *name) {
    if (!settings.refused || !strstr(name, settings.refused)) return false;
    settings.refused = nullptr;
    return true;
}

cudaError_t enqueue_kernel(const char *name, const void *kernel, const LaunchShape &shape,
                           const KernelCall &call) {
    Call inside(name);
    cudaError_t error = refuse_shape(name, kernel, shape);
    if (error) return error;
    if (take_refusal(name)) return fail(cudaErrorLaunchOutOfResources);
    std::string bare = bare_name(name);
    Work kind = shape.kind == LAUNCH_DEPENDENT ? Work::DEPENDENT : Work::KERNEL;
    return issue(shape.stream, bare, kind, [=] { run_kernel(bare, shape, call); });
}

} // namespace plec_emu
