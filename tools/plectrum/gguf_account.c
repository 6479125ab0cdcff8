/* The modes account and bytes: every byte of a model given to something, and every field of a file
 * with the bytes it begins with. */
#include "tools/plectrum/gguf_modes.h"

#include <stdlib.h>
#include <string.h>

#include "lyrw/cursor.h"
#include "tools/plectrum/cli.h"
#include "tools/plectrum/gguf_sheet.h"
#include "tools/plectrum/gguf_text.h"
#include "tools/plectrum/json_stream.h"

/* -- account --------------------------------------------------------------------------------- */

struct type_sum {
    uint32_t type;
    uint64_t n_tensors, n_elements, n_bytes;
};

struct account {
    uint64_t head, keys, infos, padding; /* the header, in the pieces it is made of */
    uint64_t n_keys;
    uint64_t between; /* zeros behind tensors, up to the alignment */
    uint64_t tensors; /* their bytes, by shape and type */
    uint64_t files;   /* the files on disk */
    uint64_t given;   /* all but `files` together */
    uint64_t n_in_line,
        n_elsewhere;        /* tensors that start where the one before them ended, or not */
    struct type_sum *types; /* [n_types], by id */
    uint32_t n_types;
    bool overflow, incomplete;
};

static void add(struct account *account, uint64_t *sum, uint64_t value) {
    account->overflow |= !plec_add_u64(sum, *sum, value);
}

static int by_type(const void *a, const void *b) {
    const struct type_sum *x = a, *y = b;
    return x->type < y->type ? -1 : x->type > y->type;
}

/* One entry a tensor, sorted and merged: a hostile file may use as many types as tensors. */
static bool sum_types(struct account *account, const struct plec_sheet *sheet) {
    account->types = malloc((sheet->n_tensors + (size_t)1) * sizeof *account->types);
    if (account->types == NULL) return false;
    for (uint32_t i = 0; i < sheet->n_tensors; i++) {
        const struct plec_sheet_tensor *tensor = &sheet->tensors[i];
        account->types[i] = (struct type_sum){tensor->type, 1, tensor->n_elements, tensor->n_bytes};
    }
    qsort(account->types, sheet->n_tensors, sizeof *account->types, by_type);
    for (uint32_t i = 0; i < sheet->n_tensors; i++) {
        struct type_sum *from = &account->types[i];
        if (account->n_types > 0 && account->types[account->n_types - 1].type == from->type) {
            struct type_sum *to = &account->types[account->n_types - 1];
            to->n_tensors++;
            add(account, &to->n_elements, from->n_elements);
            add(account, &to->n_bytes, from->n_bytes);
        } else {
            account->types[account->n_types++] = *from;
        }
    }
    return true;
}

/* Walks the tensors in the order of their records: each must start where the one before it ended,
 * rounded up to the alignment. The zeros behind the last one count as far as the file has them. */
static void account_data(struct account *account, const struct plec_sheet *sheet,
                         const struct plec_sheet_file *file) {
    uint64_t wanted = 0;
    for (uint32_t i = 0; i < file->n_tensors; i++) {
        const struct plec_sheet_tensor *tensor = &sheet->tensors[file->first_tensor + i];
        uint64_t end, padded;
        if (tensor->offset == wanted)
            account->n_in_line++;
        else
            account->n_elsewhere++;
        add(account, &account->tensors, tensor->n_bytes);
        if (!plec_add_u64(&end, tensor->offset, tensor->n_bytes) ||
            !plec_round_up_u64(&padded, end, file->alignment)) {
            account->overflow = true;
            return;
        }
        uint64_t have = file->n_bytes > file->data_at ? file->n_bytes - file->data_at : 0;
        bool last = i + 1 == file->n_tensors;
        uint64_t stop = last && have < padded ? have : padded;
        if (stop > end) add(account, &account->between, stop - end);
        wanted = padded;
    }
}

/* A file without tensors has no data to align, but writers pad it all the same. */
static void account_empty(struct account *account, const struct plec_sheet_file *file) {
    uint64_t padded;
    if (!plec_round_up_u64(&padded, file->infos_end, file->alignment)) return;
    uint64_t stop = padded < file->n_bytes ? padded : file->n_bytes;
    if (stop > file->infos_end) add(account, &account->padding, stop - file->infos_end);
}

static void account_file(struct account *account, const struct plec_sheet *sheet,
                         const struct plec_sheet_file *file) {
    if (!file->present) return;
    add(account, &account->files, file->n_bytes);
    add(account, &account->head, PLEC_GGUF_HEAD_BYTES);
    account->n_keys += file->n_keys;
    if (file->infos_end == 0) {
        account->incomplete = true;
        return;
    }
    add(account, &account->keys, file->infos_at - PLEC_GGUF_HEAD_BYTES);
    add(account, &account->infos, file->infos_end - file->infos_at);
    add(account, &account->padding, file->data_at - file->infos_end);
    if (file->n_tensors == 0)
        account_empty(account, file);
    else
        account_data(account, sheet, file);
}

/* False when out of memory. */
static bool make_account(struct account *account, const struct plec_sheet *sheet) {
    *account = (struct account){0};
    for (uint32_t i = 0; i < sheet->n_files; i++)
        account_file(account, sheet, &sheet->files[i]);
    const uint64_t parts[] = {account->head,    account->keys,    account->infos,
                              account->padding, account->between, account->tensors};
    for (unsigned i = 0; i < sizeof parts / sizeof parts[0]; i++)
        add(account, &account->given, parts[i]);
    return sum_types(account, sheet);
}

static bool adds_up(const struct account *account) {
    return !account->overflow && !account->incomplete && account->given == account->files &&
           account->n_elsewhere == 0;
}

/* Bytes of the files that belong to nothing; "-8" when more is claimed than is there. */
static void left_over_text(char *out, size_t room, const struct account *account) {
    bool too_many = account->given > account->files;
    uint64_t distance =
        too_many ? account->given - account->files : account->files - account->given;
    snprintf(out, room, "%s%llu", too_many ? "-" : "", (unsigned long long)distance);
}

static void print_number(const char *what, uint64_t value) {
    printf("  %-34s %16llu\n", what, (unsigned long long)value);
}

static void print_pieces(const struct account *account, const struct plec_sheet *sheet) {
    char what[64];
    printf("the header, piece by piece\n");
    print_number("the fixed numbers at the front", account->head);
    snprintf(what, sizeof what, "%llu metadata entries", (unsigned long long)account->n_keys);
    print_number(what, account->keys);
    snprintf(what, sizeof what, "%u info records", sheet->n_tensors);
    print_number(what, account->infos);
    if (sheet->n_files == 1)
        snprintf(what, sizeof what, "padding to alignment %llu",
                 (unsigned long long)sheet->files[0].alignment);
    else
        snprintf(what, sizeof what, "padding to the alignment");
    print_number(what, account->padding);
    if (sheet->n_files == 1) print_number("tensor data starts at", sheet->files[0].data_at);
}

static void print_types(const struct account *account, const struct plec_sheet *sheet) {
    char text[PLEC_GGUF_TYPE_TEXT_MAX];
    uint64_t n_elements = 0;
    printf("the tensors, by element type\n  %-10s %10s %20s %20s\n", "type", "tensors", "weights",
           "bytes");
    for (uint32_t i = 0; i < account->n_types; i++) {
        const struct type_sum *sum = &account->types[i];
        printf("  %-10s %10llu %20llu %20llu\n", plec_gguf_type_text(sum->type, text),
               (unsigned long long)sum->n_tensors, (unsigned long long)sum->n_elements,
               (unsigned long long)sum->n_bytes);
        n_elements += sum->n_elements;
    }
    printf("  %-10s %10u %20llu %20llu\n", "all", sheet->n_tensors, (unsigned long long)n_elements,
           (unsigned long long)account->tensors);
}

static void print_account(const struct account *account, const struct plec_sheet *sheet) {
    char left_over[32];
    left_over_text(left_over, sizeof left_over, account);
    print_pieces(account, sheet);
    print_types(account, sheet);
    uint64_t header = account->head + account->keys + account->infos + account->padding;
    printf("what it comes to\n");
    print_number("header and padding", header);
    print_number("every tensor's bytes", account->tensors);
    if (account->between > 0) print_number("padding behind tensors", account->between);
    print_number("all of it together", account->given);
    print_number(sheet->n_files == 1 ? "the file on disk" : "the files on disk", account->files);
    printf("  %-34s %16s\n", "left over", left_over);
    printf("%llu tensors start where the one before them ended, and %llu do not\n",
           (unsigned long long)account->n_in_line, (unsigned long long)account->n_elsewhere);
}

static bool account_json(const struct account *account, const struct plec_sheet *sheet) {
    struct plec_json_stream json = {.out = stdout};
    char left_over[32], text[PLEC_GGUF_TYPE_TEXT_MAX];
    left_over_text(left_over, sizeof left_over, account);
    plec_json_member(&json, "mode", json_string("account"));
    plec_json_member(&json, "head", plec_json_of_u64(account->head));
    plec_json_member(&json, "n_keys", plec_json_of_u64(account->n_keys));
    plec_json_member(&json, "keys", plec_json_of_u64(account->keys));
    plec_json_member(&json, "n_tensors", plec_json_of_u64(sheet->n_tensors));
    plec_json_member(&json, "infos", plec_json_of_u64(account->infos));
    plec_json_member(&json, "padding", plec_json_of_u64(account->padding));
    plec_json_list_begin(&json, "types");
    for (uint32_t i = 0; i < account->n_types; i++) {
        const struct type_sum *sum = &account->types[i];
        plec_json_list_item(&json, json_pack("{s:s, s:I, s:o, s:o, s:o}", "type",
                                             plec_gguf_type_text(sum->type, text), "id",
                                             (json_int_t)sum->type, "tensors",
                                             plec_json_of_u64(sum->n_tensors), "weights",
                                             plec_json_of_u64(sum->n_elements), "bytes",
                                             plec_json_of_u64(sum->n_bytes)));
    }
    plec_json_list_end(&json);
    plec_json_member(&json, "tensor_bytes", plec_json_of_u64(account->tensors));
    plec_json_member(&json, "padding_behind_tensors", plec_json_of_u64(account->between));
    plec_json_member(&json, "together", plec_json_of_u64(account->given));
    plec_json_member(&json, "files", plec_json_of_u64(account->files));
    plec_json_member(&json, "left_over", json_integer(strtoll(left_over, NULL, 10)));
    plec_json_member(&json, "in_line", plec_json_of_u64(account->n_in_line));
    plec_json_member(&json, "elsewhere", plec_json_of_u64(account->n_elsewhere));
    plec_json_member(&json, "adds_up", json_boolean(adds_up(account)));
    return plec_json_end(&json);
}

int plec_gguf_account(const char *const *operands, const struct plec_gguf_options *options) {
    struct plec_sheet sheet;
    struct plec_error err;
    if (plec_sheet_open(&sheet, operands[0], &err) != PLEC_OK) return plec_cli_error(&err);
    struct account account;
    bool written = make_account(&account, &sheet);
    if (!written)
        plec_cli_say("out of memory");
    else if (options->json)
        written = account_json(&account, &sheet);
    else
        print_account(&account, &sheet);
    if (account.overflow) plec_cli_say("%s: the sums are more than 64 bits count", sheet.path);
    int leave = plec_sheet_judge(&sheet);
    if (leave == PLEC_EXIT_OK && !adds_up(&account)) leave = PLEC_EXIT_FOUND;
    if (!written) leave = PLEC_EXIT_MACHINE;
    free(account.types);
    plec_sheet_close(&sheet);
    return leave;
}
