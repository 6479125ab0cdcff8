/* verify_hash.c: files held against the SHA-256 that the index records. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/verify_parts.h"
#include "lyrw/hash.h"

static void to_text(char out[PLEC_SHA256_TEXT], const uint8_t digest[PLEC_SHA256_BYTES]) {
    for (int i = 0; i < PLEC_SHA256_BYTES; i++)
        snprintf(out + 2 * i, 3, "%02x", digest[i]);
}

static enum plec_status hash_file(struct plec_container_verifier *v, const char *file,
                                  const uint8_t digest[PLEC_SHA256_BYTES], struct plec_error *err) {
    char wanted[PLEC_SHA256_TEXT], found[PLEC_SHA256_TEXT];
    size_t n_bytes = strlen(v->path) + strlen(file) + 2;
    char *path = malloc(n_bytes);
    if (path == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%s", file);
    snprintf(path, n_bytes, "%s/%s", v->path, file);
    struct stat info;
    bool there = stat(path, &info) == 0;
    enum plec_status status = plec_sha256_file(found, path, plec_container_read, v, err);
    free(path);
    if (status == PLEC_MISSING) {
        plec_findings_add(&v->report->findings, PLEC_DEFECT, "HashedFileMissing",
                          "%s: a hash is recorded, and it is no file that can be opened", file);
        return PLEC_OK;
    }
    if (status != PLEC_OK) return status;
    v->report->n_hashed++;
    v->report->hashed_bytes += there ? (uint64_t)info.st_size : 0;
    to_text(wanted, digest);
    if (strcmp(wanted, found) != 0)
        plec_findings_add(&v->report->findings, PLEC_DEFECT, "HashDiffers",
                          "%s: sha256 wanted %s, found %s", file, wanted, found);
    return PLEC_OK;
}

/* The names of all files with a recorded hash: members of plectrum.integrity.files. */
static json_t *recorded(const struct plec_index *index) {
    return json_object_get(json_object_get(index->plectrum, "integrity"), "files");
}

static void note_not_hashed(struct plec_container_verifier *v, json_t *files) {
    const struct plec_index *index = &v->vindex.index;
    for (size_t i = 0; i < index->n_segments; i++) {
        char name[4096];
        snprintf(name, sizeof name, "%s.lyrw", index->segments[i].key);
        if (json_object_get(files, name) == NULL)
            plec_findings_add(&v->report->findings, PLEC_NOTE, "NotHashed",
                              "%s: no hash is recorded", name);
    }
}

enum plec_status plec_verify_hashes(struct plec_container_verifier *v, struct plec_error *err) {
    json_t *files = recorded(&v->vindex.index);
    if (json_object_size(files) == 0) return PLEC_OK;
    const char *file;
    json_t *value;
    json_object_foreach(files, file, value) {
        uint8_t digest[PLEC_SHA256_BYTES];
        bool given = false;
        enum plec_status status = plec_index_sha256(digest, &given, &v->vindex.index, file, err);
        if (status == PLEC_OK && given) status = hash_file(v, file, digest, err);
        if (status == PLEC_UNSUPPORTED) {
            plec_findings_add_error(&v->report->findings, PLEC_DEFECT, err);
            return PLEC_OK;
        }
        if (status != PLEC_OK) return status;
    }
    note_not_hashed(v, files);
    return PLEC_OK;
}
