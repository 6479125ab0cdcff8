/* version.c: `plectrum version`: what was built, what was found, what the machine offers. */
#include <jansson.h>
#include <openssl/crypto.h>
#include <openssl/opensslv.h>
#include <stdio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "device/device.h"
#include "host/nvtx.h"
#include "tools/plectrum/cli.h"
#include "tools/plectrum/commands.h"

static const struct plec_cli_command command = {
    .name = "version",
    .summary = "tell the version, what was built in and what the machine offers",
    .synopsis = "version [--json]",
    .description =
        "Prints the version of plectrum, the compiler and the libraries it was built with, whether "
        "the CUDA backend is built in, and the processor features that the CPU kernels choose by.",
    .exit_status = "0  done",
    .examples = "$ plectrum version\n$ plectrum version --json",
};

struct feature {
    const char *name;
    bool present;
};

/* The features the CPU backend chooses its kernels by. */
static size_t list_features(struct feature *out) {
    size_t n = 0;
#if defined(__x86_64__)
    __builtin_cpu_init();
    out[n++] = (struct feature){"avx2", __builtin_cpu_supports("avx2") != 0};
    out[n++] = (struct feature){"fma", __builtin_cpu_supports("fma") != 0};
    out[n++] = (struct feature){"avx512f", __builtin_cpu_supports("avx512f") != 0};
    out[n++] = (struct feature){"avx512bw", __builtin_cpu_supports("avx512bw") != 0};
    out[n++] = (struct feature){"avx512vnni", __builtin_cpu_supports("avx512vnni") != 0};
#elif defined(__aarch64__)
    out[n++] = (struct feature){"neon", true};
#endif
    return n;
}

/* NULL: the build found none. */
static const char *built_with(const char *version) {
    return version[0] == '\0' ? NULL : version;
}

static const char *or_without(const char *version, const char *without) {
    return version[0] == '\0' ? without : version;
}

static json_t *version_json(const struct feature *features, size_t n_features, const char *machine,
                            long n_processors) {
    json_t *cpu = json_object();
    for (size_t i = 0; i < n_features; i++)
        json_object_set_new(cpu, features[i].name, json_boolean(features[i].present));
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:s?, s:s?, s:s?, s:b, s:s?, s:b, s:s, s:I, s:o}", "version",
        PLEC_VERSION, "compiler", PLEC_COMPILER, "jansson", jansson_version_str(), "openssl",
        OpenSSL_version(OPENSSL_VERSION_STRING), "liburing", built_with(PLEC_LIBURING_VERSION),
        "hwloc", built_with(PLEC_HWLOC_VERSION), "nvtx", plec_nvtx_built(), "cuda",
        plec_device_backend_name(PLEC_DEVICE_CUDA) != NULL, "cuda_backend",
        plec_device_backend_name(PLEC_DEVICE_CUDA), "cuda_toolkit", PLEC_HAVE_CUDA_TOOLKIT,
        "machine", machine, "processors", (json_int_t)n_processors, "features", cpu);
}

int plec_command_version(int argc, char **argv) {
    bool as_json = false;
    const struct plec_cli_option options[] = {
        {"json", PLEC_CLI_FLAG, &as_json, NULL, NULL, "Print one JSON object."},
    };
    struct plec_cli cli = {.command = &command, .options = options, .n_options = 1};
    int leave = plec_cli_parse(&cli, argc, argv);
    if (leave != PLEC_CLI_GO_ON) return leave;

    struct feature features[8];
    size_t n_features = list_features(features);
    struct utsname system;
    const char *machine = uname(&system) == 0 ? system.machine : "unknown";
    long n_processors = sysconf(_SC_NPROCESSORS_ONLN);
    if (as_json)
        return plec_cli_print_json(version_json(features, n_features, machine, n_processors));

    printf("plectrum %s\n", PLEC_VERSION);
    printf("compiler    %s\n", PLEC_COMPILER);
    printf("jansson     %s\n", jansson_version_str());
    printf("OpenSSL     %s\n", OpenSSL_version(OPENSSL_VERSION_STRING));
    printf("liburing    %s\n",
           or_without(PLEC_LIBURING_VERSION, "not found: files are read by threads of pread"));
    printf("hwloc       %s\n",
           or_without(PLEC_HWLOC_VERSION, "not found: memory is bound to no NUMA node"));
    const char *nvtx = plec_nvtx_built();
    printf("NVTX        %s\n", nvtx != NULL ? nvtx : "not found: profilers are shown no ranges");
    const char *cuda = plec_device_backend_name(PLEC_DEVICE_CUDA);
    printf("CUDA        backend %s, toolkit %s\n", cuda == NULL ? "not built in" : cuda,
           PLEC_HAVE_CUDA_TOOLKIT ? "found" : "not found");
    printf("machine     %s, %ld processors,", machine, n_processors);
    for (size_t i = 0; i < n_features; i++)
        printf(" %s%s", features[i].present ? "" : "no-", features[i].name);
    putchar('\n');
    return PLEC_EXIT_OK;
}
