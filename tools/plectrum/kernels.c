/* kernels.c: `plectrum kernels`: the capability registry: programme x format x backend -> rung. */
#include <stdlib.h>
#include <string.h>

#include "device/device.h"
#include "manifests/capability.h"
#include "tools/plectrum/cli.h"
#include "tools/plectrum/commands.h"
#include "tools/plectrum/json_stream.h"

static const struct plec_cli_command command = {
    .name = "kernels",
    .summary = "list which programmes run in which formats on which backends",
    .synopsis = "kernels [--json]",
    .description =
        "Prints the capability registry of this build on this machine. For each programme (the "
        "arithmetic of an expert), element format and backend it says how far support has come:\n\n"
        "  representable  a container can say it; nothing here runs it\n"
        "  reference      runs, slow and plainly right\n"
        "  grouped        a kernel runs all tokens of an expert together\n"
        "  dispatched     ... and a run chooses that kernel by itself\n"
        "  production     ... and its speed is measured and held by a test\n\n"
        "Behind the rung of a device stands the kernel that it would run; where that depends on "
        "how many rows an expert has, the kernels of experts with up to 8 rows (S), up to 64 (M) "
        "and more (L). A layer runs at the lowest rung of its operands' formats.",
    .exit_status = "0  done",
    .examples = "$ plectrum kernels\n$ plectrum kernels --json | jq '.rows[] | select(.format == "
                "\"mxfp4\")'",
};

enum { REFERENCE, CPU, CUDA, N_BACKENDS };

/* The registry asks with no context; there is one device of a kind in a run of this command, or
 * what kept it from opening. */
static struct plec_device *devices[N_BACKENDS];
static struct plec_error refusals[N_BACKENDS];

static enum plec_rung reference_rung(const struct plec_programme *programme, uint16_t format) {
    (void)programme;
    (void)format; /* the registry asks only for formats with a codec, and those it reads */
    return PLEC_RUNG_REFERENCE;
}

static enum plec_rung device_rung(int backend, uint16_t format) {
    char name[PLEC_KERNEL_NAME_MAX];
    bool runs =
        devices[backend] != NULL && plec_device_kernel_name(devices[backend], format, name) != NULL;
    return runs ? PLEC_RUNG_DISPATCHED : PLEC_RUNG_REPRESENTABLE;
}

static enum plec_rung cpu_rung(const struct plec_programme *programme, uint16_t format) {
    (void)programme; /* its kernels are products and activations; no programme needs another */
    return device_rung(CPU, format);
}

static enum plec_rung cuda_rung(const struct plec_programme *programme, uint16_t format) {
    (void)programme;
    return device_rung(CUDA, format);
}

static const struct plec_backend_facts backends[N_BACKENDS] = {
    [REFERENCE] = {"reference", reference_rung},
    [CPU] = {"cpu", cpu_rung},
    [CUDA] = {"cuda", cuda_rung},
};

/* The kernel a backend would run, or NULL. name [PLEC_KERNEL_NAME_MAX]: it may be kept there. */
static const char *kernel_of(const struct plec_registry_row *row, char *name) {
    struct plec_device *device = devices[row->backend - backends];
    return device != NULL ? plec_device_kernel_name(device, row->format->tag, name) : NULL;
}

static json_t *backend_json(int i) {
    struct plec_device_info info = {.name = "double precision, one thread"};
    if (i != REFERENCE && devices[i] == NULL)
        return json_pack("{s:s, s:b, s:n}", "name", backends[i].name, "available", 0, "device");
    if (i != REFERENCE) plec_device_get_info(&info, devices[i]);
    return json_pack("{s:s, s:b, s:s}", "name", backends[i].name, "available", 1, "device",
                     info.name);
}

static json_t *programme_json(const struct plec_programme *programme) {
    json_t *sets = json_array();
    char name[PLEC_NAME_MAX];
    for (uint32_t i = 0; i < programme->n_sets; i++) {
        json_t *roles = json_array();
        for (uint32_t j = 0; j < programme->sets[i].n_roles; j++)
            json_array_append_new(roles,
                                  json_string(plec_role_name(programme->sets[i].roles[j], name)));
        json_array_append_new(sets, roles);
    }
    return json_pack("{s:s, s:b, s:s, s:o}", "name", programme->name, "latent", programme->latent,
                     "activation", programme->default_activation, "role_sets", sets);
}

static void row_json(void *user, const struct plec_registry_row *row) {
    char name[PLEC_KERNEL_NAME_MAX];
    plec_json_list_item(user, json_pack("{s:s, s:s, s:s, s:s, s:s?}", "programme",
                                        row->programme->name, "format", row->format->name,
                                        "backend", row->backend->name, "rung",
                                        plec_rung_name(row->rung), "kernel", kernel_of(row, name)));
}

static int print_json(void) {
    struct plec_json_stream stream = {.out = stdout}, *json = &stream;
    size_t n_programmes;
    const struct plec_programme *programmes = plec_programme_all(&n_programmes);
    plec_json_member(json, "kind", json_string("kernels"));
    plec_json_list_begin(json, "backends");
    for (int i = 0; i < N_BACKENDS; i++)
        plec_json_list_item(json, backend_json(i));
    plec_json_list_end(json);
    plec_json_list_begin(json, "programmes");
    for (size_t i = 0; i < n_programmes; i++)
        plec_json_list_item(json, programme_json(&programmes[i]));
    plec_json_list_end(json);
    plec_json_list_begin(json, "rows");
    plec_registry_visit(backends, N_BACKENDS, row_json, json);
    plec_json_list_end(json);
    if (plec_json_end(json)) return PLEC_EXIT_OK;
    plec_cli_say("cannot write the output");
    return PLEC_EXIT_MACHINE;
}

static void print_backends(void) {
    struct plec_device_info info;
    printf("backends\n  reference   double precision, one thread\n");
    for (int i = CPU; i < N_BACKENDS; i++) {
        if (devices[i] == NULL) {
            printf("  %-11s %s\n", backends[i].name, refusals[i].message);
            continue;
        }
        plec_device_get_info(&info, devices[i]);
        printf("  %-11s %s\n", backends[i].name, info.name);
    }
}

static void print_programme(const struct plec_programme *programme) {
    char name[PLEC_NAME_MAX];
    printf("  %-24s %-12s", programme->name, programme->default_activation);
    for (uint32_t i = 0; i < programme->n_sets; i++) {
        printf("%s", i > 0 ? "  or" : "");
        for (uint32_t j = 0; j < programme->sets[i].n_roles; j++)
            printf(" %s", plec_role_name(programme->sets[i].roles[j], name));
    }
    printf("\n");
}

/* Rows come programme by programme, then format by format, backends innermost. */
struct table {
    const struct plec_programme *programme; /* whose rows are printed */
    bool same;                              /* whether every programme has the same rungs */
    enum plec_rung *first;                  /* [n_formats * N_BACKENDS] of the first programme */
    size_t at;
};

static void compare_row(void *user, const struct plec_registry_row *row) {
    struct table *table = user;
    size_t n_formats, n_programmes;
    plec_format_all(&n_formats);
    size_t place = table->at++ % (n_formats * N_BACKENDS);
    if (row->programme == plec_programme_all(&n_programmes))
        table->first[place] = row->rung;
    else if (table->first[place] != row->rung)
        table->same = false;
}

static void print_row(void *user, const struct plec_registry_row *row) {
    const struct table *table = user;
    if (row->programme != table->programme) return;
    char cell[128], name[PLEC_KERNEL_NAME_MAX];
    const char *kernel = kernel_of(row, name);
    snprintf(cell, sizeof cell, "%s%s%s%s", plec_rung_name(row->rung), kernel ? " (" : "",
             kernel ? kernel : "", kernel ? ")" : "");
    bool last = row->backend == &backends[N_BACKENDS - 1];
    if (row->backend == &backends[0]) printf("  %-12s", row->format->name);
    printf(" %-*s%s", last ? 0 : 26, cell, last ? "\n" : "");
}

static int print_text(void) {
    size_t n_programmes, n_formats;
    const struct plec_programme *programmes = plec_programme_all(&n_programmes);
    plec_format_all(&n_formats);
    struct table table = {.same = true,
                          .first = calloc(n_formats * N_BACKENDS, sizeof *table.first)};
    if (table.first == NULL) {
        plec_cli_say("out of memory");
        return PLEC_EXIT_MACHINE;
    }
    plec_registry_visit(backends, N_BACKENDS, compare_row, &table);
    print_backends();
    printf("programmes                 activation   roles\n");
    for (size_t i = 0; i < n_programmes; i++)
        print_programme(&programmes[i]);
    for (size_t i = 0; i < (table.same ? 1 : n_programmes); i++) {
        table.programme = &programmes[i];
        printf("\n%s\n  %-12s %-26s %-26s %s\n",
               table.same ? "every programme" : programmes[i].name, "format", "reference", "cpu",
               "cuda");
        plec_registry_visit(backends, N_BACKENDS, print_row, &table);
    }
    free(table.first);
    return PLEC_EXIT_OK;
}

/* A backend that cannot be opened is shown as such: that is no failure of this command. */
static void open_device(int backend, enum plec_device_kind kind) {
    if (plec_device_open(&devices[backend], kind, NULL, &refusals[backend]) != PLEC_OK)
        devices[backend] = NULL;
}

int plec_command_kernels(int argc, char **argv) {
    bool as_json = false;
    const struct plec_cli_option options[] = {
        {"json", PLEC_CLI_FLAG, &as_json, NULL, NULL,
         "Print one JSON object: backends, programmes, and a row for each programme, format and "
         "backend."},
    };
    struct plec_cli cli = {.command = &command, .options = options, .n_options = 1};
    int leave = plec_cli_parse(&cli, argc, argv);
    if (leave != PLEC_CLI_GO_ON) return leave;

    open_device(CPU, PLEC_DEVICE_CPU);
    open_device(CUDA, PLEC_DEVICE_CUDA);
    leave = as_json ? print_json() : print_text();
    plec_device_close(devices[CPU]);
    plec_device_close(devices[CUDA]);
    return leave;
}
