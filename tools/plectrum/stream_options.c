#include "tools/plectrum/stream_options.h"

#include <stdio.h>
#include <string.h>

#include "tools/plectrum/units.h"

void plec_stream_cli_options(struct plec_cli_option *out, struct plec_stream_words *words) {
    const struct plec_cli_option options[PLEC_STREAM_CLI_OPTIONS] = {
        {"device-budget", PLEC_CLI_SIZE, &words->device_budget, &words->device_given, "BYTES",
         "Stream the routed experts through this much device memory (64MiB, 20GiB); they are used "
         "where the files are mapped without it."},
        {"pinned-budget", PLEC_CLI_SIZE, &words->pinned_budget, &words->pinned_given, "BYTES",
         "Host memory for extents on their way; as much as --device-budget."},
        {"extent", PLEC_CLI_U32, &words->extent, &words->extent_given, "N",
         "Experts of an extent, 1 to 64; 16."},
        {"io", PLEC_CLI_TEXT, &words->io, NULL, "ENGINE", "auto, uring, pread or mmap."},
        {"io-cache", PLEC_CLI_TEXT, &words->io_cache, NULL, "MODE", "auto, direct or buffered."},
        {"pin", PLEC_CLI_TEXT, &words->pin, NULL, "MODE",
         "prefer, require or off: whether frames are pinned."},
        {"policy", PLEC_CLI_TEXT, &words->policy, NULL, "NAME",
         "lru or lfu: which experts leave first."},
        {"speculate", PLEC_CLI_TEXT, &words->speculate, NULL, "MODE",
         "auto (what pays), off or on: fetching experts that are guessed."},
        {"bypass", PLEC_CLI_FLAG, &words->bypass, NULL, NULL,
         "Keep nothing: every use is read and copied anew, which is what streaming costs without "
         "a cache."},
    };
    memcpy(out, options, sizeof options);
}

/* The place of a word in a list that ends with NULL; the first when none was given, -1 when it is
 * not in it. */
static int find_word(const char *word, const char *const *words) {
    if (word == NULL) return 0;
    for (int i = 0; words[i] != NULL; i++)
        if (strcmp(word, words[i]) == 0) return i;
    return -1;
}

static bool any_given(const struct plec_stream_words *words) {
    return words->pinned_given || words->extent_given || words->io != NULL ||
           words->io_cache != NULL || words->pin != NULL || words->policy != NULL ||
           words->speculate != NULL || words->bypass;
}

int plec_stream_cli_read(struct plec_stream_options *out, const struct plec_cli_command *command,
                         const struct plec_stream_words *words) {
    /* In the order of the enums. */
    static const char *const io[] = {"auto", "uring", "pread", "mmap", NULL};
    static const char *const cache[] = {"auto", "direct", "buffered", NULL};
    static const char *const pin[] = {"prefer", "require", "off", NULL};
    static const char *const policy[] = {"lru", "lfu", NULL};
    static const char *const speculate[] = {"auto", "off", "on", NULL};
    const struct {
        const char *option, *wants, *word;
        const char *const *words;
    } lists[] = {{"--io", "auto, uring, pread or mmap", words->io, io},
                 {"--io-cache", "auto, direct or buffered", words->io_cache, cache},
                 {"--pin", "prefer, require or off", words->pin, pin},
                 {"--policy", "lru or lfu", words->policy, policy},
                 {"--speculate", "auto, off or on", words->speculate, speculate}};
    int found[sizeof lists / sizeof lists[0]];
    *out = (struct plec_stream_options){0};
    if (!words->device_given && any_given(words))
        return plec_cli_usage(command, "options of streaming go with --device-budget");
    if ((words->device_given && words->device_budget == 0) ||
        (words->pinned_given && words->pinned_budget == 0))
        return plec_cli_usage(command,
                              "%s wants at least one byte: what is on its way stands there, even "
                              "where nothing is to be kept",
                              words->device_given && words->device_budget == 0 ? "--device-budget"
                                                                               : "--pinned-budget");
    if (words->extent_given && (words->extent == 0 || words->extent > PLEC_EXTENT_MAX))
        return plec_cli_usage(command, "--extent wants 1 to %d, found %u", PLEC_EXTENT_MAX,
                              words->extent);
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        found[i] = find_word(lists[i].word, lists[i].words);
        if (found[i] < 0)
            return plec_cli_usage(command, "%s wants %s, found '%s'", lists[i].option,
                                  lists[i].wants, lists[i].word);
    }
    out->device_budget = words->device_budget;
    out->pinned_budget = words->pinned_budget;
    out->extent_width = words->extent;
    out->bypass = words->bypass;
    out->io_engine = (enum plec_io_engine)found[0];
    out->io_cache = (enum plec_io_cache)found[1];
    out->pin = (enum plec_pin_mode)found[2];
    out->policy = (enum plec_residency_policy)found[3];
    out->speculation = (enum plec_speculation)found[4];
    return PLEC_CLI_GO_ON;
}

static double milliseconds(uint64_t ns) {
    return (double)ns / 1e6;
}

void plec_stream_text_tiers(char out[PLEC_STREAM_TEXT_MAX], const struct plec_stream_stats *stats) {
    char a[PLEC_UNIT_TEXT_MAX], b[PLEC_UNIT_TEXT_MAX];
    plec_size_text(a, stats->slot_bytes), plec_size_text(b, stats->frame_bytes);
    snprintf(out, PLEC_STREAM_TEXT_MAX, "%u slots%s%s and %u frames of %s", stats->n_slots,
             stats->landing_bytes > 0 ? " of " : "", stats->landing_bytes > 0 ? a : "",
             stats->n_frames, b);
}

void plec_stream_print(const struct plec_stream_stats *stats) {
    char a[PLEC_UNIT_TEXT_MAX], b[PLEC_UNIT_TEXT_MAX], tiers[PLEC_STREAM_TEXT_MAX];
    plec_stream_text_tiers(tiers, stats);
    printf("streamed     extents of %u: %s, %s pinned, %s %s\n", stats->extent_width, tiers,
           plec_size_text(b, stats->pinned.pinned_bytes), stats->io.engine, stats->io.cache);
    printf("handed out   %llu experts: %llu from slots, %llu from frames, %llu from files\n",
           (unsigned long long)stats->experts, (unsigned long long)stats->device_hits,
           (unsigned long long)stats->host_hits, (unsigned long long)stats->disk_misses);
    printf("moved        %s read, %s copied\n", plec_size_text(a, stats->read_bytes),
           plec_size_text(b, stats->copied_bytes));
    printf("stall        %.3f ms: %.3f disk, %.3f copies, %.3f slots, %.3f other\n",
           milliseconds(stats->stall_ns), milliseconds(stats->stall_disk_ns),
           milliseconds(stats->stall_copy_ns), milliseconds(stats->stall_slot_ns),
           milliseconds(stats->stall_other_ns));
}

static void set_count(json_t *object, const char *name, uint64_t value) {
    json_object_set_new(object, name, json_integer((json_int_t)value));
}

json_t *plec_stream_json(const struct plec_stream_stats *stats) {
    json_t *object = json_object();
    if (object == NULL) return NULL;
    const struct {
        const char *name;
        uint64_t value;
    } counts[] = {{"extent_width", stats->extent_width},
                  {"frame_bytes", stats->frame_bytes},
                  {"slot_bytes", stats->slot_bytes},
                  {"landing_bytes", stats->landing_bytes},
                  {"weight_bytes", stats->weight_bytes},
                  {"slots", stats->n_slots},
                  {"frames", stats->n_frames},
                  {"pinned_bytes", stats->pinned.pinned_bytes},
                  {"dispatches", stats->dispatches},
                  {"parts", stats->parts},
                  {"experts", stats->experts},
                  {"expert_bytes", stats->expert_bytes},
                  {"device_hits", stats->device_hits},
                  {"device_hit_bytes", stats->device_hit_bytes},
                  {"host_hits", stats->host_hits},
                  {"host_hit_bytes", stats->host_hit_bytes},
                  {"disk_misses", stats->disk_misses},
                  {"disk_miss_bytes", stats->disk_miss_bytes},
                  {"read_bytes", stats->read_bytes},
                  {"copied_bytes", stats->copied_bytes},
                  {"evictions", stats->device.evictions},
                  {"wasted_bytes", stats->device.wasted_bytes},
                  {"thrash_bytes", stats->device.thrash_bytes},
                  {"waits", stats->waits},
                  {"stall_ns", stats->stall_ns},
                  {"stall_disk_ns", stats->stall_disk_ns},
                  {"stall_copy_ns", stats->stall_copy_ns},
                  {"stall_slot_ns", stats->stall_slot_ns},
                  {"stall_other_ns", stats->stall_other_ns}};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        set_count(object, counts[i].name, counts[i].value);
    json_object_set_new(object, "io", json_string(stats->io.engine));
    json_object_set_new(object, "io_cache", json_string(stats->io.cache));
    return object;
}
