/* io_file.c: descriptors of a file, the alignment it asks of direct reads, and which cache to use.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/io_parts.h"
#include "host/memory_limits.h"

/* What a file system that does not say is taken to ask for. */
enum { ALIGNMENT_UNTOLD = 4096, ALIGNMENT_MAX = 1 << 20 };

static bool is_power_of_two(uint64_t x) {
    return x != 0 && (x & (x - 1)) == 0;
}

/* Whether direct reads are possible; the memory alignment is made to divide the offset's, so that
 * whatever is aligned in the file is aligned in memory when one byte of it is. */
static bool learn_alignment(struct plec_io_file *file) {
    file->offset_align = file->memory_align = ALIGNMENT_UNTOLD;
#if defined(STATX_DIOALIGN)
    struct statx info;
    memset(&info, 0, sizeof info);
    if (statx(file->buffered, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) != 0 ||
        (info.stx_mask & STATX_DIOALIGN) == 0)
        return true;
    if (!is_power_of_two(info.stx_dio_mem_align) || !is_power_of_two(info.stx_dio_offset_align) ||
        info.stx_dio_mem_align > ALIGNMENT_MAX || info.stx_dio_offset_align > ALIGNMENT_MAX)
        return false;
    file->memory_align = info.stx_dio_mem_align;
    file->offset_align = info.stx_dio_offset_align > info.stx_dio_mem_align
                             ? info.stx_dio_offset_align
                             : info.stx_dio_mem_align;
#endif
    return true;
}

/* A second descriptor of the very same file, for direct reads; -1: there can be none. */
static int open_direct(const struct plec_io_file *file, const struct stat *known) {
    struct stat info;
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd < 0) return -1;
    if (fstat(fd, &info) == 0 && info.st_dev == known->st_dev && info.st_ino == known->st_ino)
        return fd;
    close(fd);
    return -1;
}

static enum plec_status cannot_open(const char *path, struct plec_error *err) {
    int reason = errno;
    struct rlimit files;
    if (reason == EMFILE && getrlimit(RLIMIT_NOFILE, &files) == 0)
        return plec_fail(err, PLEC_MISSING, "CannotOpen",
                         "%s: %s: the limit of open files is %llu (ulimit -n)", path,
                         strerror(reason), (unsigned long long)files.rlim_cur);
    return plec_fail(err, PLEC_MISSING, "CannotOpen", "%s: %s", path, strerror(reason));
}

static enum plec_status open_both(struct plec_io_file *file, struct plec_error *err) {
    struct stat info;
    /* O_NONBLOCK: opening a FIFO must not wait for a writer. Cleared after: io_uring would take it
     * as a wish to fail where a read had to wait. */
    file->buffered = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (file->buffered < 0) return cannot_open(file->path, err);
    if (fstat(file->buffered, &info) != 0)
        return plec_fail(err, PLEC_MISSING, "CannotOpen", "%s: %s", file->path, strerror(errno));
    if (!S_ISREG(info.st_mode))
        return plec_fail(err, PLEC_MISSING, "NotAFile", "%s: not a regular file", file->path);
    fcntl(file->buffered, F_SETFL, O_RDONLY);
    /* Ranges are read whole by offset: reading ahead of them only costs. */
    posix_fadvise(file->buffered, 0, 0, POSIX_FADV_RANDOM);
    file->size = (uint64_t)info.st_size;
    if (!learn_alignment(file)) return PLEC_OK;
    errno = 0;
    file->direct = open_direct(file, &info);
    if (file->direct < 0 && errno == EMFILE) return cannot_open(file->path, err);
    return PLEC_OK;
}

enum plec_status plec_io_file_open(struct plec_io_file *out, const char *path,
                                   struct plec_error *err) {
    *out = (struct plec_io_file){.buffered = -1, .direct = -1};
    out->path = strdup(path);
    if (out->path == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%s", path);
    enum plec_status status = open_both(out, err);
    if (status != PLEC_OK) plec_io_file_close(out);
    return status;
}

void plec_io_file_close(struct plec_io_file *file) {
    if (file->buffered >= 0) close(file->buffered);
    if (file->direct >= 0) close(file->direct);
    free(file->path);
    *file = (struct plec_io_file){.buffered = -1, .direct = -1};
}

/* Why the cache is what it is; "": it was chosen here. */
static const char *why_cache(const struct plec_io *io) {
    if (io->options.engine == PLEC_IO_MMAP && io->options.cache == PLEC_CACHE_DIRECT)
        return ", which mmap always is: direct was asked for";
    return io->options.cache == PLEC_CACHE_AUTO ? "" : " as asked";
}

/* Files that fit three quarters of what is left are best kept by the system's cache. */
void plec_io_settle(struct plec_io *io) {
    struct plec_memory_limits limits;
    char files[PLEC_BYTES_TEXT_MAX], left[PLEC_BYTES_TEXT_MAX];
    plec_memory_limits_read(&limits, "");
    uint64_t room = plec_memory_limits_left(&limits);
    bool fit = io->file_bytes <= room / 4 * 3;
    bool was_settled = io->settled, was_direct = io->direct;
    io->direct =
        io->options.cache == PLEC_CACHE_DIRECT || (io->options.cache == PLEC_CACHE_AUTO && !fit);
    if (io->options.engine == PLEC_IO_MMAP) io->direct = false;
    io->drop_behind = !io->direct && !fit;
    io->settled = true;
    io->counters.cache = io->direct ? "direct" : "buffered";
    io->counters.buffered_files = 0;
    for (uint32_t i = 0; i < io->n_files && io->direct; i++)
        if (io->files[i].direct < 0 || io->files[i].direct_refused) io->counters.buffered_files++;
    if (was_settled && was_direct == io->direct) return;
    char refused[64] = "";
    if (io->counters.buffered_files > 0)
        snprintf(refused, sizeof refused, "; %llu of them can only be read buffered",
                 (unsigned long long)io->counters.buffered_files);
    plec_log_write(&io->options.log, PLEC_LOG_RUN,
                   "io: %s, %s%s: %u files of %s, %s of memory left%s%s", io->ops->name,
                   io->counters.cache, why_cache(io), io->n_files,
                   plec_bytes_text(files, io->file_bytes), plec_bytes_text(left, room), refused,
                   io->drop_behind ? "; pages are dropped behind the reads" : "");
}

void plec_io_turn_to_buffered(struct plec_io *io, uint32_t index, int reason) {
    struct plec_io_file *file = &io->files[index];
    if (file->direct_refused) return;
    file->direct_refused = true;
    io->counters.fallbacks++;
    io->counters.buffered_files++;
    plec_log_write(&io->options.log, PLEC_LOG_RUN,
                   "io: %s: a direct read was refused (%s): it is read buffered from here on",
                   file->path, strerror(reason));
}
