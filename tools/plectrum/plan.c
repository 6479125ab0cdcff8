/* plan.c: `plectrum plan`: what of a container fits, what will stream, and how fast that can be. */
#include "tools/plectrum/plan.h"

#include <stdlib.h>
#include <string.h>

#include "host/memory_limits.h"
#include "tools/measure/speeds.h"
#include "tools/plectrum/cli.h"
#include "tools/plectrum/commands.h"
#include "tools/plectrum/device_option.h"
#include "tools/plectrum/progress.h"
#include "tools/plectrum/stream_options.h"

static const struct plec_cli_command command = {
    .name = "plan",
    .summary = "tell what fits, what will stream, and how fast that can be",
    .synopsis = "plan PATH [--layer N] [--device NAME] [--threads N] [--tokens T] [--slots K]\n"
                "    [--device-budget BYTES] [--pinned-budget BYTES] [--extent N]\n"
                "    [--disk-gbs X [--read-us US]] [--link-gbs X] [--memory-gbs X]\n"
                "    [--io ENGINE] [--io-cache MODE] [--profile NAME] [--as ARCH]\n"
                "    [--set KEY=VALUE,...] [--json]",
    .description =
        "Opens a container, binds its layers and lays them out in extents as a run with these "
        "budgets would: how many extents the device and the frames hold, and what streams. From "
        "the speeds of the disk (measured on the container's own files, in reads of single experts "
        "and of extents), of copies to the device and of its memory follow the bytes a token from "
        "each tier, the time a token, and two floors: with everything resident, and with nothing "
        "kept.\n\n"
        "Experts are taken to be routed uniformly, E (1 - (1 - k/E)^T) of them in a step of T "
        "tokens, and to be kept by last use. Real routers are skewed and hit more: record a "
        "routing with `plectrum bench --record` and replay it with `plectrum trace replay`. "
        "Arithmetic is not counted: a large prefill can be slower than its bytes.\n\n"
        "Without --device-budget a GPU's is 85% of its memory; the CPU's, and frames without "
        "--pinned-budget, 35% of the memory that is left, each.\n\n"
        "The advised extent width is the widest of those within 5% of the fastest decode and "
        "within 5% of the fastest prefill, or, where there is none, of the fastest decode.",
    .exit_status = "0  done\n3  the container cannot be read or is refused; no such layer, no "
                   "layer that streams,\n   or not one expert fits",
    .examples = "$ plectrum plan model.vindex --device-budget 20GiB\n"
                "$ plectrum plan model.gguf --device-budget 8GiB --disk-gbs 6.5 --link-gbs 25 "
                "--json",
    .min_operands = 1,
    .max_operands = 1,
};

struct options {
    const char *path, *profile, *architecture, *set, *device_name;
    enum plec_run_device device;
    uint32_t layer, n_threads, n_tokens, n_slots; /* n_slots 0: as the layer says */
    double disk_gbs, read_us, link_gbs, memory_gbs;
    struct plec_stream_words words;
    struct plec_stream_options stream;
    bool layer_given, disk_given, read_given, link_given, memory_given, slots_given, json;
};

/* One bound layer that streams. */
struct bound {
    uint32_t number;
    struct plec_bound_layer layer;
};

struct planning {
    struct options o;
    struct plec_container *container;
    struct plec_device *device;
    struct plec_device_info info;
    struct bound *bounds;         /* [plan.n_layers] */
    struct plec_range *ranges[2]; /* samples: of single experts, of extents */
    struct plec_speed_reads reads[2];
    struct plec_progress progress;
    struct plec_cli_said said;
    uint64_t measured_bytes;
    struct plec_plan plan;
};

/* --- the command line ------------------------------------------------------------------------ */

static int check_options(struct options *o, bool device_given) {
    if (o->read_given && !o->disk_given)
        return plec_cli_usage(&command, "--read-us wants --disk-gbs too");
    if (o->disk_given && (o->words.io != NULL || o->words.io_cache != NULL))
        return plec_cli_usage(&command, "--io and --io-cache measure: not with --disk-gbs");
    if (o->n_tokens == 0) return plec_cli_usage(&command, "--tokens wants at least one");
    if (o->slots_given && o->n_slots == 0)
        return plec_cli_usage(&command, "--slots wants at least one expert");
    /* Budgets that were not given are measured later. */
    if (!device_given) o->words.device_budget = UINT64_MAX;
    o->words.device_given = true;
    int leave = plec_stream_cli_read(&o->stream, &command, &o->words);
    if (leave != PLEC_CLI_GO_ON) return leave;
    leave = plec_cli_device(&o->device, &command, o->device_name);
    if (leave == PLEC_CLI_GO_ON && o->device == PLEC_RUN_REFERENCE)
        return plec_cli_usage(&command, "--device: the reference streams nothing");
    if (leave == PLEC_CLI_GO_ON && o->device == PLEC_RUN_CUDA && o->n_threads != 0)
        return plec_cli_usage(&command, "--threads goes with the CPU, not with --device cuda");
    return leave;
}

static int read_options(struct options *o, struct plec_plan *plan, int argc, char **argv) {
    *o = (struct options){.device_name = "auto", .n_tokens = 512};
    struct plec_stream_words *words = &o->words;
    const struct plec_cli_option options[] = {
        {"layer", PLEC_CLI_U32, &o->layer, &o->layer_given, "N",
         "Plan for this layer alone, as run would stream it; all layers without it."},
        {"device", PLEC_CLI_TEXT, &o->device_name, NULL, "NAME", "auto, cpu or cuda."},
        {"threads", PLEC_CLI_U32, &o->n_threads, NULL, "N", "On the CPU: threads; all there are."},
        {"tokens", PLEC_CLI_U32, &o->n_tokens, NULL, "T", "Tokens of a step of prefill; 512."},
        {"slots", PLEC_CLI_U32, &o->n_slots, &o->slots_given, "K",
         "Experts a token; as many as a layer's router chooses, or 8 where there is none."},
        {"device-budget", PLEC_CLI_SIZE, &words->device_budget, &words->device_given, "BYTES",
         "Device memory for routed experts (64MiB, 20GiB)."},
        {"pinned-budget", PLEC_CLI_SIZE, &words->pinned_budget, &words->pinned_given, "BYTES",
         "Host memory for extents on their way; as much as --device-budget where that is given."},
        {"extent", PLEC_CLI_U32, &words->extent, &words->extent_given, "N",
         "Experts of an extent, 1 to 64; 16. Halved until one fits both budgets."},
        {"disk-gbs", PLEC_CLI_SPEED, &o->disk_gbs, &o->disk_given, "X",
         "GB/s (10^9 bytes) of large reads, instead of measuring."},
        {"read-us", PLEC_CLI_MICROSECONDS, &o->read_us, &o->read_given, "US",
         "Microseconds that a read takes beside its bytes, many being in flight; 0."},
        {"link-gbs", PLEC_CLI_SPEED, &o->link_gbs, &o->link_given, "X",
         "GB/s of copies to the device, instead of measuring."},
        {"memory-gbs", PLEC_CLI_SPEED, &o->memory_gbs, &o->memory_given, "X",
         "GB/s at which the device reads its memory, instead of measuring."},
        {"io", PLEC_CLI_TEXT, &words->io, NULL, "ENGINE", "auto, uring, pread or mmap."},
        {"io-cache", PLEC_CLI_TEXT, &words->io_cache, NULL, "MODE",
         "auto, direct or buffered; auto measures direct reads."},
        {"profile", PLEC_CLI_TEXT, &o->profile, NULL, "NAME",
         "The profile of the container's index that says which variants to read."},
        {"as", PLEC_CLI_TEXT, &o->architecture, NULL, "ARCH",
         "Read a GGUF file as this architecture."},
        {"set", PLEC_CLI_TEXT, &o->set, NULL, "KEY=VALUE,...",
         "Values a GGUF file does not say: gating=sigmoid,norm=1."},
        {"json", PLEC_CLI_FLAG, &o->json, NULL, NULL, "Print one JSON object."},
    };
    struct plec_cli cli = {
        .command = &command, .options = options, .n_options = sizeof options / sizeof options[0]};
    int leave = plec_cli_parse(&cli, argc, argv);
    if (leave != PLEC_CLI_GO_ON) return leave;
    o->path = plan->path = cli.operands[0];
    plan->device_measured = !words->device_given;
    plan->pinned_measured = !words->device_given && !words->pinned_given;
    return check_options(o, words->device_given);
}

/* --- layers ---------------------------------------------------------------------------------- */

static enum plec_status bind_layer(struct planning *p, uint32_t number, struct plec_error *err) {
    struct bound *bound = &p->bounds[p->plan.n_layers];
    bound->number = number;
    enum plec_status status = plec_container_bind(&bound->layer, p->container, number, err);
    if (status != PLEC_OK) return status;
    if (plec_budget_streams(&bound->layer)) {
        p->plan.n_layers++;
        return PLEC_OK;
    }
    p->plan.n_fixed_layers++;
    p->plan.fixed_bytes +=
        plec_budget_bank_bytes(&bound->layer.layer.routed) + plec_budget_other_bytes(&bound->layer);
    plec_bound_layer_close(&bound->layer);
    return PLEC_OK;
}

static enum plec_status bind_layers(struct planning *p, struct plec_error *err) {
    size_t n = plec_container_n_layers(p->container);
    bool found = false;
    p->bounds = calloc(n > 0 ? n : 1, sizeof *p->bounds);
    if (p->bounds == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%zu layers", n);
    p->progress = plec_progress_start("binding layers", n, PLEC_PROGRESS_COUNT);
    enum plec_status status = PLEC_OK;
    for (size_t i = 0; status == PLEC_OK && i < n; i++) {
        struct plec_layer_info info;
        plec_container_layer_info(&info, p->container, i);
        if (p->o.layer_given && info.layer != p->o.layer) continue;
        found = true;
        status = bind_layer(p, info.layer, err);
        plec_progress_update(&p->progress, i + 1);
    }
    plec_progress_end(&p->progress);
    if (status != PLEC_OK) return status;
    if (p->o.layer_given && !found)
        return plec_fail(err, PLEC_MISSING, "NoSuchLayer", "layer %u is none of its %zu layers",
                         p->o.layer, n);
    if (p->plan.n_layers == 0)
        return plec_fail(err, PLEC_BAD_INPUT, "NothingToStream",
                         "none of its layers has routed experts to choose from");
    return PLEC_OK;
}

/* --- extents --------------------------------------------------------------------------------- */

/* Experts a token, where the caller says it, or nobody does. */
static enum plec_status set_slots(struct plec_budget_layer *layer, const struct options *o,
                                  const struct bound *bound, struct plec_error *err) {
    enum { SLOTS = 8 };
    if (o->n_slots > layer->n_experts)
        return plec_fail(err, PLEC_BAD_INPUT, "TooManySlots",
                         "layer %u has %u experts, --slots wants %u a token", bound->number,
                         layer->n_experts, o->n_slots);
    if (o->n_slots != 0)
        layer->top_k = o->n_slots;
    else if (bound->layer.layer.router.top_k == 0)
        layer->top_k = SLOTS;
    if (layer->top_k > layer->n_experts) layer->top_k = layer->n_experts;
    return PLEC_OK;
}

static enum plec_status lay_out(struct planning *p, struct plec_plan_width *out, uint32_t width,
                                struct plec_error *err) {
    struct plec_locator locator;
    plec_container_locator(&locator, p->container);
    out->layers = calloc(p->plan.n_layers, sizeof *out->layers);
    if (out->layers == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%u layers", p->plan.n_layers);
    for (uint32_t i = 0; i < p->plan.n_layers; i++) {
        const struct bound *bound = &p->bounds[i];
        const struct plec_budget_of of = {&bound->layer, bound->number, width, &locator, p->device};
        enum plec_status status = plec_budget_describe(&out->layers[i], &of, err);
        if (status == PLEC_OK) status = set_slots(&out->layers[i], &p->o, bound, err);
        if (status != PLEC_OK) return status;
    }
    plec_budget_make(&out->budget, out->layers, p->plan.n_layers, width, p->plan.device_budget,
                     p->plan.pinned_budget);
    out->fits = out->budget.n_slots > 0 && out->budget.n_frames > 0;
    return PLEC_OK;
}

/* The widest width from the one asked for down by halves that fits, as the streamer chooses. */
static enum plec_status choose_width(struct planning *p, uint32_t asked, struct plec_error *err) {
    struct plec_plan *plan = &p->plan;
    for (uint32_t width = asked; width > 0; width /= 2)
        for (uint32_t i = 0; i < plan->n_widths; i++)
            if (plan->widths[i].budget.width == width && plan->widths[i].fits) {
                plan->chosen = i;
                if (width != asked)
                    plec_cli_say("extents of %u experts do not fit the budget, %u do", asked,
                                 width);
                return PLEC_OK;
            }
    return plec_budget_too_small(&plan->widths[0].budget, plan->device_budget, plan->pinned_budget,
                                 err);
}

/* All widths that a choice of the streamer may end at, in ascending order. */
static enum plec_status lay_out_all(struct planning *p, struct plec_error *err) {
    struct plec_plan *plan = &p->plan;
    uint32_t asked = p->o.stream.extent_width != 0 ? p->o.stream.extent_width : 16;
    bool listed[PLEC_EXTENT_MAX + 1] = {false};
    for (uint32_t width = 1; width <= PLEC_EXTENT_MAX; width *= 2)
        listed[width] = true;
    uint32_t halved = asked; /* of 24: 12, 6, 3; the first that fits is shown */
    enum plec_status status = PLEC_OK;
    for (; status == PLEC_OK && halved > 1 && !listed[halved]; halved /= 2) {
        struct plec_plan_width trial = {0};
        status = lay_out(p, &trial, halved, err);
        free(trial.layers);
        if (trial.fits) break;
    }
    listed[halved] = true;
    for (uint32_t width = 1; status == PLEC_OK && width <= PLEC_EXTENT_MAX; width++)
        if (listed[width]) status = lay_out(p, &plan->widths[plan->n_widths++], width, err);
    return status == PLEC_OK ? choose_width(p, asked, err) : status;
}

/* --- budgets and speeds ---------------------------------------------------------------------- */

static enum plec_status open_device(struct planning *p, struct plec_error *err) {
    struct plec_device_options options = {.n_threads = p->o.n_threads};
    enum plec_status status = PLEC_NO_DEVICE;
    if (p->o.device != PLEC_RUN_CPU)
        status = plec_device_open(&p->device, PLEC_DEVICE_CUDA, &options, err);
    if (status == PLEC_NO_DEVICE && p->o.device != PLEC_RUN_CUDA)
        status = plec_device_open(&p->device, PLEC_DEVICE_CPU, &options, err);
    return status;
}

/* What was not given, from what the machine has. */
static void measure_budgets(struct planning *p) {
    const struct plec_device_info *info = &p->info;
    struct plec_plan *plan = &p->plan;
    struct plec_memory_limits limits;
    plec_memory_limits_read(&limits, "");
    uint64_t share = plec_memory_limits_left(&limits) / 100 * 35;
    plan->device_budget = p->o.stream.device_budget;
    plan->pinned_budget = p->o.stream.pinned_budget;
    if (plan->device_measured)
        plan->device_budget = info->kind == PLEC_DEVICE_CPU ? share : info->memory_bytes / 100 * 85;
    if (plan->pinned_budget == 0)
        plan->pinned_budget = plan->pinned_measured ? share : plan->device_budget;
}

/* xorshift64*: the same sample every time. */
static uint32_t draw(uint64_t *state, uint32_t below) {
    *state ^= *state >> 12;
    *state ^= *state << 25;
    *state ^= *state >> 27;
    return (uint32_t)((*state * UINT64_C(0x2545F4914F6CDD1D)) >> 32) % below;
}

/* Appends the ranges of one expert (width 1), or of the extent that holds it, drawn by lot. */
static enum plec_status sample_map(struct planning *p, int which, const struct bound *bound,
                                   uint32_t width, uint32_t n_draws, struct plec_error *err) {
    struct plec_locator locator;
    struct plec_extent_map map;
    plec_container_locator(&locator, p->container);
    enum plec_status status =
        plec_extent_map_open(&map, &bound->layer.layer.routed, width, &locator, err);
    if (status != PLEC_OK) return status;
    uint64_t random = UINT64_C(0x9e3779b97f4a7c15) + bound->number;
    struct plec_speed_reads *reads = &p->reads[which];
    for (uint32_t i = 0; status == PLEC_OK && i < n_draws; i++) {
        uint32_t e = draw(&random, map.n_extents);
        uint32_t first = map.extent_first[e], n = map.extent_first[e + 1] - first;
        struct plec_range *more =
            realloc(p->ranges[which], (reads->n + n) * sizeof *p->ranges[which]);
        if (more == NULL) {
            status = plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "ranges to read");
            break;
        }
        memcpy(more + reads->n, map.extent_ranges + first, n * sizeof *more);
        reads->n += n;
        reads->ranges = p->ranges[which] = more;
    }
    plec_extent_map_close(&map);
    return status;
}

/* Ranges of experts and of wide extents, from every layer in turn. */
static enum plec_status sample_reads(struct planning *p, struct plec_error *err) {
    enum { SAMPLES = 1024 };
    uint32_t n_layers = p->plan.n_layers, each = (SAMPLES + n_layers - 1) / n_layers;
    enum plec_status status = PLEC_OK;
    for (uint32_t i = 0; status == PLEC_OK && i < n_layers; i++) {
        status = sample_map(p, 0, &p->bounds[i], 1, each, err);
        if (status == PLEC_OK)
            status = sample_map(p, 1, &p->bounds[i], PLEC_EXTENT_MAX, each / 16 + 1, err);
    }
    return status;
}

static void tell_measured(void *user, uint64_t n_bytes) {
    struct planning *p = user;
    p->measured_bytes += n_bytes;
    plec_progress_update(&p->progress, p->measured_bytes);
}

static const char *path_of(const void *user, uint32_t file) {
    return plec_container_file_path(user, file);
}

static enum plec_status measure_disk(struct planning *p, struct plec_error *err) {
    const struct plec_stream_options *stream = &p->o.stream;
    bool direct = stream->io_cache == PLEC_CACHE_AUTO && stream->io_engine != PLEC_IO_MMAP;
    enum plec_status status = sample_reads(p, err);
    if (status != PLEC_OK) return status;
    struct plec_disk_args args = {.io = {.engine = stream->io_engine,
                                         .cache = direct ? PLEC_CACHE_DIRECT : stream->io_cache,
                                         .log = plec_cli_log()},
                                  .n_files = plec_container_n_files(p->container),
                                  .path = path_of,
                                  .user = p->container,
                                  .small = p->reads[0],
                                  .large = p->reads[1]};
    if (args.n_files > 4096) args.io.max_files = args.n_files;
    const struct plec_speed_progress progress = {tell_measured, p};
    struct plec_disk_speed speed;
    p->progress = plec_progress_start("measuring the disk", 0, PLEC_PROGRESS_BYTES);
    status = plec_measure_disk(&speed, &args, &progress, err);
    plec_progress_end(&p->progress);
    p->plan.machine.disk_bytes_per_s = speed.bytes_per_s;
    p->plan.machine.read_s = speed.read_s;
    p->plan.io_engine = speed.engine;
    p->plan.io_cache = speed.cache;
    return status;
}

static enum plec_status measure_speeds(struct planning *p, struct plec_error *err) {
    struct plec_budget_machine *machine = &p->plan.machine;
    *machine = (struct plec_budget_machine){.disk_bytes_per_s = p->o.disk_gbs * 1e9,
                                            .read_s = p->o.read_us * 1e-6,
                                            .link_bytes_per_s = p->o.link_gbs * 1e9,
                                            .memory_bytes_per_s = p->o.memory_gbs * 1e9};
    p->plan.link_measured = !p->o.link_given;
    p->plan.memory_measured = !p->o.memory_given;
    enum plec_status status = PLEC_OK;
    if (!p->o.link_given) status = plec_measure_link(&machine->link_bytes_per_s, p->device, err);
    if (status == PLEC_OK && !p->o.memory_given)
        status = plec_measure_memory(&machine->memory_bytes_per_s, p->device, err);
    if (status == PLEC_OK && !p->o.disk_given) status = measure_disk(p, err);
    return status;
}

/* --- the plan -------------------------------------------------------------------------------- */

static double token_seconds(const struct plec_plan_width *width, int step) {
    return width->steps[step].step_s / width->steps[step].n_tokens;
}

static void expect_all(struct planning *p) {
    struct plec_plan *plan = &p->plan;
    const uint32_t tokens[PLEC_PLAN_STEPS] = {1, p->o.n_tokens};
    double fastest[PLEC_PLAN_STEPS] = {0};
    for (uint32_t i = 0; i < plan->n_widths; i++)
        for (int s = 0; s < PLEC_PLAN_STEPS && plan->widths[i].fits; s++) {
            struct plec_plan_width *width = &plan->widths[i];
            plec_budget_expect(&width->steps[s], &width->budget, &plan->machine, tokens[s]);
            if (fastest[s] == 0 || token_seconds(width, s) < fastest[s])
                fastest[s] = token_seconds(width, s);
        }
    bool both = false;
    for (uint32_t i = 0; i < plan->n_widths; i++) {
        const struct plec_plan_width *width = &plan->widths[i];
        if (!width->fits || token_seconds(width, PLEC_PLAN_DECODE) > 1.05 * fastest[0]) continue;
        bool prefill = token_seconds(width, PLEC_PLAN_PREFILL) <= 1.05 * fastest[1];
        if (both && !prefill) continue;
        both = prefill;
        plan->advised = i;
    }
}

static enum plec_status make_plan(struct planning *p, struct plec_error *err) {
    struct plec_container_options options = {.profile = p->o.profile,
                                             .architecture = p->o.architecture,
                                             .set = p->o.set,
                                             .log = plec_cli_log_once(&p->said)};
    enum plec_status status = plec_container_open(&p->container, p->o.path, &options, err);
    if (status != PLEC_OK) return status;
    p->plan.kind = plec_container_kind_name(plec_container_get_kind(p->container));
    status = bind_layers(p, err);
    if (status == PLEC_OK) {
        status = open_device(p, err);
        if (status != PLEC_OK) return status;
        plec_device_get_info(&p->info, p->device);
        p->plan.device_name = p->info.name;
        measure_budgets(p);
        status = lay_out_all(p, err);
    }
    if (status != PLEC_OK) {
        plec_error_context(err, "%s", p->o.path);
        return status;
    }
    status = measure_speeds(p, err);
    if (status == PLEC_OK) expect_all(p);
    return status;
}

static void close_planning(struct planning *p) {
    for (uint32_t i = 0; i < p->plan.n_widths; i++)
        free(p->plan.widths[i].layers);
    for (int i = 0; i < 2; i++)
        free(p->ranges[i]);
    for (uint32_t i = 0; i < p->plan.n_layers; i++)
        plec_bound_layer_close(&p->bounds[i].layer);
    free(p->bounds);
    plec_device_close(p->device);
    plec_container_close(p->container);
}

int plec_command_plan(int argc, char **argv) {
    struct planning planning = {.reads = {{NULL, 0}, {NULL, 0}}};
    struct plec_error err;
    int leave = read_options(&planning.o, &planning.plan, argc, argv);
    if (leave != PLEC_CLI_GO_ON) return leave;
    if (make_plan(&planning, &err) != PLEC_OK)
        leave = plec_cli_error(&err);
    else if (planning.o.json)
        leave = plec_plan_print_json(&planning.plan);
    else
        plec_plan_print(&planning.plan);
    close_planning(&planning);
    return leave == PLEC_CLI_GO_ON ? PLEC_EXIT_OK : leave;
}
