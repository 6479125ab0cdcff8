#include "tools/plectrum/device_option.h"

#include <string.h>

int plec_cli_device(enum plec_run_device *out, const struct plec_cli_command *command,
                    const char *name) {
    static const struct {
        const char *name;
        enum plec_run_device device;
    } names[] = {{"auto", PLEC_RUN_AUTO},
                 {"cpu", PLEC_RUN_CPU},
                 {"cuda", PLEC_RUN_CUDA},
                 {"reference", PLEC_RUN_REFERENCE}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i].name) == 0) {
            *out = names[i].device;
            return PLEC_CLI_GO_ON;
        }
    return plec_cli_usage(command, "--device wants auto, cpu, cuda or reference, found '%s'", name);
}

void plec_device_cli_options(struct plec_cli_option *out, struct plec_device_words *words) {
    const struct plec_cli_option options[PLEC_DEVICE_CLI_OPTIONS] = {
        {"device", PLEC_CLI_TEXT, &words->device, NULL, "NAME",
         "auto (a GPU where there is one, else the CPU), cpu, cuda or reference (double precision, "
         "one "
         "thread)."},
        {"threads", PLEC_CLI_U32, &words->n_threads, NULL, "N",
         "On the CPU: threads; all there are."},
        {"graphs", PLEC_CLI_TEXT, &words->graphs, NULL, "on|off",
         "On cuda: steps of up to 64 tokens are captured as graphs when their size comes for the "
         "second time, and replayed; on. Streamed layers are always launched kernel by kernel."},
        {"rung", PLEC_CLI_TEXT, &words->rung, NULL, "NAME",
         "The kernels to run experts with: auto (the fastest), plain, on cuda also mm_sync, ... "
         "(those, or the next slower ones that a format has) and the baselines cublas_loop and "
         "cublas_grouped, whose weights are rounded to bf16. A wrong name is answered with those "
         "that the device has."},
        {"cublas", PLEC_CLI_TEXT, &words->cublas, NULL, "FILE",
         "The path of those baselines' cuBLAS, also where it has no slash; the libcublas.so.13 or "
         ".12 that the loader finds."},
    };
    memcpy(out, options, sizeof options);
}

int plec_device_cli_read(struct plec_device_choice *out, const struct plec_cli_command *command,
                         const struct plec_device_words *words) {
    const char *graphs = words->graphs != NULL ? words->graphs : "on";
    *out = (struct plec_device_choice){.n_threads = words->n_threads,
                                       .eager = strcmp(graphs, "off") == 0,
                                       .rung = words->rung,
                                       .cublas = words->cublas};
    if (!out->eager && strcmp(graphs, "on") != 0)
        return plec_cli_usage(command, "--graphs wants on or off, found '%s'", graphs);
    return plec_cli_device(&out->device, command, words->device != NULL ? words->device : "auto");
}

void plec_device_choose(struct plec_runner_options *out, const struct plec_device_choice *choice) {
    out->device = choice->device;
    out->n_threads = choice->n_threads;
    out->eager = choice->eager;
    out->rung = choice->rung;
    out->cublas = choice->cublas;
}

json_t *plec_graphs_json(const struct plec_runner *runner) {
    struct plec_graph_stats stats;
    if (!plec_runner_graph_stats(&stats, runner)) return json_null();
    return json_pack("{s:I, s:I, s:I}", "captured", (json_int_t)stats.captured, "replayed",
                     (json_int_t)stats.replayed, "launched", (json_int_t)stats.launched);
}
