#include "lyrw/mapping.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What an empty file maps to: mmap refuses length 0, and a NULL base would make every reader ask.
 */
static const uint8_t nothing[1];

static enum plec_status map_descriptor(struct plec_mapping *out, int fd, const char *path,
                                       struct plec_error *err) {
    struct stat info;
    if (fstat(fd, &info) != 0)
        return plec_fail(err, PLEC_IO, "StatFailed", "%s: %s", path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return plec_fail(err, PLEC_MISSING, "NotAFile", "%s: not a regular file", path);
    out->size = (uint64_t)info.st_size;
    if (out->size == 0) {
        out->data = nothing;
        return PLEC_OK;
    }
    void *data = mmap(NULL, (size_t)out->size, PROT_READ, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
        out->size = 0;
        return plec_fail(err, PLEC_IO, "MapFailed", "%s: %s", path, strerror(errno));
    }
    out->data = data;
    return PLEC_OK;
}

enum plec_status plec_mapping_open(struct plec_mapping *out, const char *path,
                                   struct plec_error *err) {
    memset(out, 0, sizeof *out);
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return plec_fail(err, PLEC_MISSING, "CannotOpen", "%s: %s", path, strerror(errno));
    enum plec_status status = map_descriptor(out, fd, path, err);
    close(fd);
    return status;
}

void plec_mapping_close(struct plec_mapping *mapping) {
    if (mapping->data != NULL && mapping->data != nothing)
        munmap((void *)(uintptr_t)mapping->data, (size_t)mapping->size);
    memset(mapping, 0, sizeof *mapping);
}
