#include "tools/plectrum/progress.h"

#include <time.h>
#include <unistd.h>

#include "tools/plectrum/units.h"

/* Seconds before a line appears, and between two redraws. */
static const double quiet_s = 1.0, redraw_s = 0.1;

static double monotonic_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct plec_progress plec_progress_start(const char *what, uint64_t total,
                                         enum plec_progress_unit unit) {
    struct plec_progress progress = {0};
    progress.stream = isatty(STDERR_FILENO) ? stderr : NULL;
    progress.now = monotonic_s;
    progress.what = what;
    progress.unit = unit;
    progress.total = total;
    progress.started = monotonic_s();
    return progress;
}

static void draw(struct plec_progress *progress, uint64_t done, double elapsed) {
    enum { BAR = 24 };
    char a[PLEC_UNIT_TEXT_MAX], b[PLEC_UNIT_TEXT_MAX], bar[BAR + 1];
    const char *(*text)(char *, uint64_t) =
        progress->unit == PLEC_PROGRESS_BYTES ? plec_size_text : plec_count_text;
    if (progress->total == 0) {
        fprintf(progress->stream, "\r\x1b[K%s  %s  %.0f s", progress->what, text(a, done), elapsed);
    } else {
        double share = (double)done / (double)progress->total;
        if (share > 1) share = 1;
        for (int i = 0; i < BAR; i++)
            bar[i] = i < (int)(share * BAR) ? '#' : '.';
        bar[BAR] = '\0';
        fprintf(progress->stream, "\r\x1b[K%s  [%s] %3.0f%%  %s of %s  %.0f s", progress->what, bar,
                share * 100, text(a, done), text(b, progress->total), elapsed);
    }
    fflush(progress->stream);
    progress->visible = true;
}

void plec_progress_update(struct plec_progress *progress, uint64_t done) {
    if (progress->stream == NULL) return;
    double now = progress->now();
    if (now - progress->started < quiet_s) return;
    if (progress->visible && now - progress->drawn < redraw_s) return;
    progress->drawn = now;
    draw(progress, done, now - progress->started);
}

void plec_progress_end(struct plec_progress *progress) {
    if (progress->stream == NULL || !progress->visible) return;
    fputs("\r\x1b[K", progress->stream);
    fflush(progress->stream);
    progress->visible = false;
}
