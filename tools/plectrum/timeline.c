#include "tools/plectrum/timeline.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lyrw/atomic_file.h"
#include "lyrw/view.h"
#include "tools/plectrum/timeline_parts.h"
#include "tools/plectrum/units.h"

/* Pixels. */
enum {
    WIDTH = 1200,
    LEFT = 160, /* names of lanes */
    RIGHT = 20,
    PLOT = WIDTH - LEFT - RIGHT,
    ROW = 15,
    THIN_ROW = 9, /* in lanes of several rows */
    GAP = 7,
    BARS = 42, /* height of the experts' lane */
    TITLE = 30,
    LEGEND = 24,
    HEAD = 40, /* of a panel: its title and counts */
    AXIS = 26,
    PANEL_GAP = 18
};
/* What is thinner is painted with its neighbours. */
static const double THINNEST = 1.5;

/* By category of events (enum plec_nvtx_category); 0: layers. */
static const struct {
    const char *name, *fill;
} colours[] = {
    {"layer", "#cfd4da"},           {"route", "#8e63ce"},          {"plan, read ahead", "#f2b661"},
    {"read, demanded", "#d9822b"},  {"copy to device", "#2f7fc1"}, {"compute", "#3d9a50"},
    {"evict", "#8a8f98"},           {"communicate", "#1aa6a6"},    {"serve", "#b05f8a"},
    {"wait for experts", "#d1343a"}};
enum { N_COLOURS = sizeof colours / sizeof colours[0] };

static const struct {
    const char *name, *fill;
} tiers[PLEC_TIMELINE_TIERS] = {
    {"in a slot", "#3d9a50"}, {"in a frame", "#2f7fc1"}, {"in a file", "#d9822b"}};

struct drawing {
    FILE *out;
    const struct plec_timeline_gathered *panel;
    double top; /* where the next thing is drawn */
};

/* --- words ----------------------------------------------------------------------------------- */

/* Text of anybody's making, as XML has it; what is not printable as \xNN. */
static void put_text(FILE *out, const char *text) {
    static const char *const escapes[] = {
        ['&'] = "&amp;", ['<'] = "&lt;", ['>'] = "&gt;", ['"'] = "&quot;", ['\''] = "&#39;"};
    for (size_t left = strlen(text); left > 0;) {
        size_t n = plec_view_clean_length(text, left);
        if (n == 0) {
            fprintf(out, "\\x%02x", (unsigned char)*text);
            n = 1;
        } else {
            for (size_t i = 0; i < n; i++) {
                unsigned char c = (unsigned char)text[i];
                if (c < sizeof escapes / sizeof escapes[0] && escapes[c] != NULL)
                    fputs(escapes[c], out);
                else
                    fputc(c, out);
            }
        }
        text += n;
        left -= n;
    }
}

enum { TIME_TEXT = 32 };

/* "12 us", "3.5 ms": of a number of nanoseconds, as exact as steps of `step` ask for. */
static const char *time_text(char *buffer, double ns, double step) {
    static const struct {
        double ns;
        const char *name;
    } units[] = {{1e9, "s"}, {1e6, "ms"}, {1e3, "\xc2\xb5s"}, {1, "ns"}};
    size_t u = 0;
    double large = ns > step ? ns : step;
    while (u + 1 < sizeof units / sizeof units[0] && units[u].ns > large * 1.0000001)
        u++;
    int decimals = 0;
    for (double s = step / units[u].ns; s < 0.9999999 && decimals < 6; s *= 10)
        decimals++;
    snprintf(buffer, TIME_TEXT, "%.*f %s", decimals, ns / units[u].ns, units[u].name);
    return buffer;
}

/* A length of time, three digits. */
static const char *length_text(char *buffer, double ns) {
    double step = 1;
    while (step * 1000 <= ns)
        step *= 10;
    return time_text(buffer, ns, step);
}

/* --- boxes ----------------------------------------------------------------------------------- */

static double x_of(const struct drawing *d, uint64_t ns) {
    return LEFT + (double)ns / (double)d->panel->span_ns * PLOT;
}

/* What a pointer over the box says. */
static void put_tip(const struct drawing *d, const struct plec_timeline_box *box) {
    char a[PLEC_UNIT_TEXT_MAX], time[TIME_TEXT];
    fprintf(d->out, "<title>%s", plec_tracer_name((enum plec_tracer_what)box->what));
    if (box->layer != UINT32_MAX) fprintf(d->out, ", layer %u", box->layer);
    if (box->what == PLEC_TRACE_READ || box->what == PLEC_TRACE_COPY)
        fprintf(d->out, ", extent %u, %u expert%s from %u on, %s", box->extent, box->value,
                box->value == 1 ? "" : "s", box->first_expert, plec_size_text(a, box->n_bytes));
    if (box->what == PLEC_TRACE_LAYER || box->what == PLEC_TRACE_ROUTE)
        fprintf(d->out, ", %u token%s", box->value, box->value == 1 ? "" : "s");
    fprintf(d->out, ": %s%s</title>", length_text(time, (double)(box->to - box->from)),
            box->failed ? ", failed" : "");
}

static void put_box(const struct drawing *d, const struct plec_timeline_box *box, double y,
                    double height) {
    double x = x_of(d, box->from), width = x_of(d, box->to) - x;
    fprintf(d->out, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"%s>", x,
            y, width > 0.4 ? width - 0.3 : width, height, colours[box->colour].fill,
            box->failed ? " stroke=\"#000\"" : "");
    put_tip(d, box);
    fputs("</rect>\n", d->out);
    if (box->what != PLEC_TRACE_LAYER || width < 26) return;
    fprintf(d->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"in\">%s%u</text>\n", x + width / 2,
            y + height - 3.5, width >= 56 ? "layer " : "", box->layer);
}

/* Shares of pixel columns that thin boxes of one row and colour cover. */
struct columns {
    double covered[N_COLOURS][PLOT + 1];
};

static void add_thin(struct columns *columns, const struct drawing *d,
                     const struct plec_timeline_box *box) {
    double from = x_of(d, box->from) - LEFT, to = x_of(d, box->to) - LEFT;
    int first = (int)from;
    /* A moment is seen too. */
    if (to < from + 0.25) to = from + 0.25;
    for (int column = first; column < to && column <= PLOT; column++) {
        double begin = from > column ? from : column, end = to < column + 1 ? to : column + 1;
        columns->covered[box->colour][column] += end - begin;
    }
}

/* How strongly a column is painted, in quarters. */
static int strength(double covered) {
    if (covered <= 0) return 0;
    return covered >= 0.875 ? 4 : covered >= 0.6 ? 3 : covered >= 0.3 ? 2 : 1;
}

static void put_columns(const struct drawing *d, const struct columns *columns, double y,
                        double height) {
    for (int colour = 0; colour < N_COLOURS; colour++)
        for (int column = 0, n; column <= PLOT; column += n) {
            int quarters = strength(columns->covered[colour][column]);
            n = 1;
            while (column + n <= PLOT && strength(columns->covered[colour][column + n]) == quarters)
                n++;
            if (quarters == 0) continue;
            fprintf(d->out, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" fill=\"%s\"",
                    LEFT + column, y, n, height, colours[colour].fill);
            if (quarters < 4) fprintf(d->out, " fill-opacity=\"%.2f\"", 0.25 * quarters + 0.1);
            fputs("/>\n", d->out);
        }
}

static void put_row(const struct drawing *d, const struct plec_timeline_lane *lane, uint32_t row,
                    struct columns *columns, double y, double height) {
    memset(columns, 0, sizeof *columns);
    for (int thin = 1; thin >= 0; thin--) {
        for (uint32_t i = lane->first; i < lane->first + lane->n; i++) {
            const struct plec_timeline_box *box = &d->panel->boxes[i];
            bool is_thin = x_of(d, box->to) - x_of(d, box->from) < THINNEST;
            if (box->row != row || is_thin != (thin == 1)) continue;
            if (thin)
                add_thin(columns, d, box);
            else
                put_box(d, box, y, height);
        }
        if (thin) put_columns(d, columns, y, height);
    }
}

static double row_height(const struct plec_timeline_lane *lane) {
    return lane->n_rows > 1 ? THIN_ROW : ROW;
}

static double lane_height(const struct plec_timeline_lane *lane) {
    return lane->n_rows * row_height(lane);
}

static void put_lane_name(const struct drawing *d, const char *name, double y) {
    fprintf(d->out, "<text x=\"%d\" y=\"%.1f\" class=\"lane\">", LEFT - 8, y);
    put_text(d->out, name);
    fputs("</text>\n", d->out);
}

static void put_lane(struct drawing *d, const struct plec_timeline_lane *lane,
                     struct columns *columns) {
    double height = row_height(lane), whole = lane_height(lane);
    fprintf(d->out, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%.1f\" class=\"back\"/>\n",
            LEFT, d->top, PLOT, whole);
    put_lane_name(d, lane->name, d->top + whole / 2 + 4);
    for (uint32_t row = 0; row < lane->n_rows; row++)
        put_row(d, lane, row, columns, d->top + row * height, height - 1);
    d->top += whole + GAP;
}

/* --- the experts' lane ----------------------------------------------------------------------- */

static uint64_t n_experts(const struct plec_timeline_gathered *panel) {
    uint64_t n = 0;
    for (int tier = 0; tier < PLEC_TIMELINE_TIERS; tier++)
        n += panel->experts[tier];
    return n;
}

static uint32_t tallest_bin(const struct plec_timeline_gathered *panel) {
    uint32_t most = 1;
    for (int bin = 0; bin < PLEC_TIMELINE_BINS; bin++) {
        uint32_t n = 0;
        for (int tier = 0; tier < PLEC_TIMELINE_TIERS; tier++)
            n += panel->bins[bin][tier];
        if (n > most) most = n;
    }
    return most;
}

static void put_experts(struct drawing *d) {
    const struct plec_timeline_gathered *panel = d->panel;
    if (n_experts(panel) == 0) return;
    double each = (double)PLOT / PLEC_TIMELINE_BINS, scale = (double)BARS / tallest_bin(panel);
    fprintf(d->out, "<rect x=\"%d\" y=\"%.1f\" width=\"%d\" height=\"%d\" class=\"back\"/>\n", LEFT,
            d->top, PLOT, BARS);
    put_lane_name(d, "experts handed out", d->top + BARS / 2.0 + 4);
    for (int bin = 0; bin < PLEC_TIMELINE_BINS; bin++) {
        double bottom = d->top + BARS;
        for (int tier = 0; tier < PLEC_TIMELINE_TIERS; tier++) {
            uint32_t n = panel->bins[bin][tier];
            if (n == 0) continue;
            bottom -= n * scale;
            fprintf(d->out,
                    "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\">"
                    "<title>%u %s</title></rect>\n",
                    LEFT + bin * each, bottom, each - 0.5, n * scale, tiers[tier].fill, n,
                    tiers[tier].name);
        }
    }
    d->top += BARS + GAP;
}

/* --- the axis -------------------------------------------------------------------------------- */

/* 1, 2 or 5 times a power of ten, so that about ten of them make the span. */
static double tick_step(double span) {
    double step = 1;
    while (step * 10 <= span / 10)
        step *= 10;
    if (step * 5 <= span / 8) return step * 5;
    return step * 2 <= span / 8 ? step * 2 : step;
}

static void put_axis(struct drawing *d, double lanes_top) {
    double span = (double)d->panel->span_ns, step = tick_step(span);
    char text[TIME_TEXT];
    for (double at = 0; at <= span * 1.0000001; at += step) {
        double x = LEFT + at / span * PLOT;
        fprintf(d->out,
                "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"tick\"/>\n"
                "<text x=\"%.1f\" y=\"%.1f\" class=\"axis\">%s</text>\n",
                x, lanes_top, x, d->top, x, d->top + 14, time_text(text, at, step));
    }
    d->top += AXIS;
}

/* --- panels ---------------------------------------------------------------------------------- */

static const struct plec_timeline_lane *find_lane(const struct plec_timeline_gathered *panel,
                                                  uint8_t what) {
    for (uint32_t i = 0; i < panel->n_lanes; i++)
        if (panel->boxes[panel->lanes[i].first].what == what) return &panel->lanes[i];
    return NULL;
}

static double percent(double part, double whole) {
    return whole > 0 ? 100 * part / whole : 0;
}

static void put_counts(const struct drawing *d) {
    const struct plec_timeline_gathered *panel = d->panel;
    char a[PLEC_UNIT_TEXT_MAX], b[PLEC_UNIT_TEXT_MAX], time[TIME_TEXT];
    double span = (double)panel->span_ns, all = (double)n_experts(panel);
    const uint64_t *experts = panel->experts;
    fprintf(d->out, "<text x=\"%d\" y=\"%.1f\" class=\"note\">%s", LEFT, d->top + 32,
            length_text(time, span));
    if (all > 0)
        fprintf(d->out,
                ": %.0f experts, %llu from slots (%.0f%%), %llu from frames, %llu from files", all,
                (unsigned long long)experts[PLEC_TIMELINE_SLOT],
                percent((double)experts[PLEC_TIMELINE_SLOT], all),
                (unsigned long long)experts[PLEC_TIMELINE_FRAME],
                (unsigned long long)experts[PLEC_TIMELINE_FILE]);
    const struct plec_timeline_lane *disk = find_lane(panel, PLEC_TRACE_READ);
    const struct plec_timeline_lane *link = find_lane(panel, PLEC_TRACE_COPY);
    if (all > 0 || disk != NULL)
        fprintf(d->out,
                "%s%s read (disk busy %.0f%%), %s copied (%.0f%%); waiting %.0f%%, idle %.0f%%",
                all > 0 ? "; " : ": ", plec_size_text(a, panel->read_bytes),
                disk != NULL ? percent((double)disk->busy_ns, span) : 0,
                plec_size_text(b, panel->copied_bytes),
                link != NULL ? percent((double)link->busy_ns, span) : 0,
                percent((double)panel->wait_ns, span), percent((double)panel->idle_ns, span));
    if (panel->n_threads_left_out > 0)
        fprintf(d->out, "; %u more threads are not shown", panel->n_threads_left_out);
    fputs("</text>\n", d->out);
}

static void put_lost(const struct drawing *d, const struct plec_timeline_panel *panel) {
    if (panel->snapshot->n_lost == 0) return;
    fprintf(d->out,
            "<text x=\"%d\" y=\"%.1f\" class=\"lost\">%llu older events were overwritten</text>\n",
            WIDTH - RIGHT, d->top + 14, (unsigned long long)panel->snapshot->n_lost);
}

static void put_panel(struct drawing *d, const struct plec_timeline_panel *panel,
                      struct columns *columns) {
    fprintf(d->out, "<text x=\"%d\" y=\"%.1f\" class=\"panel\">", LEFT, d->top + 14);
    put_text(d->out, panel->title);
    fputs("</text>\n", d->out);
    put_counts(d);
    put_lost(d, panel);
    d->top += HEAD;
    double lanes_top = d->top;
    for (uint32_t i = 0; i < d->panel->n_lanes; i++)
        put_lane(d, &d->panel->lanes[i], columns);
    put_experts(d);
    put_axis(d, lanes_top);
    d->top += PANEL_GAP;
}

static double panel_height(const struct plec_timeline_gathered *panel) {
    double height = HEAD + AXIS + PANEL_GAP;
    for (uint32_t i = 0; i < panel->n_lanes; i++)
        height += lane_height(&panel->lanes[i]) + GAP;
    return n_experts(panel) > 0 ? height + BARS + GAP : height;
}

/* --- the file -------------------------------------------------------------------------------- */

/* The colours that are used, by name. */
static void put_legend(struct drawing *d, const struct plec_timeline_gathered *panels, size_t n) {
    bool used[N_COLOURS] = {false}, experts = false;
    for (size_t i = 0; i < n; i++) {
        for (uint32_t b = 0; b < panels[i].n_boxes; b++)
            used[panels[i].boxes[b].colour] = true;
        experts = experts || n_experts(&panels[i]) > 0;
    }
    double x = LEFT;
    for (int i = 0; i < N_COLOURS + PLEC_TIMELINE_TIERS; i++) {
        bool tier = i >= N_COLOURS;
        if (tier ? !experts : !used[i]) continue;
        const char *name = tier ? tiers[i - N_COLOURS].name : colours[i].name;
        const char *fill = tier ? tiers[i - N_COLOURS].fill : colours[i].fill;
        if (i == N_COLOURS) {
            fprintf(d->out, "<text x=\"%.1f\" y=\"%.1f\" class=\"note\">experts found:</text>\n",
                    x + 10, d->top + 10);
            x += 100;
        }
        fprintf(d->out,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"11\" height=\"11\" fill=\"%s\"/>"
                "<text x=\"%.1f\" y=\"%.1f\" class=\"note\">%s</text>\n",
                x, d->top, fill, x + 15, d->top + 10, name);
        x += 15 + 6.4 * (double)strlen(name) + 12;
    }
    d->top += LEGEND;
}

static void put_head(struct drawing *d, const char *title, double height) {
    fprintf(d->out,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%.0f\" "
            "viewBox=\"0 0 %d %.0f\" font-family=\"DejaVu Sans, Verdana, sans-serif\">\n<style>"
            "text{font-size:11px;fill:#24292f}.title{font-size:16px;font-weight:bold}"
            ".panel{font-size:13px;font-weight:bold}.lane{text-anchor:end}"
            ".axis{text-anchor:middle;fill:#57606a}.in{text-anchor:middle;font-size:10px}"
            ".lost{text-anchor:end;fill:#d1343a}.note{fill:#424a53}.back{fill:#f4f5f7}"
            ".tick{stroke:#000;stroke-opacity:0.12}</style>\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
            "<text x=\"16\" y=\"22\" class=\"title\">",
            WIDTH, height, WIDTH, height);
    put_text(d->out, title);
    fputs("</text>\n", d->out);
    d->top = TITLE + 6;
}

static enum plec_status draw(FILE *out, const struct plec_timeline_args *args,
                             struct plec_timeline_gathered *panels, struct plec_error *err) {
    struct columns *columns = malloc(sizeof *columns);
    if (columns == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a picture");
    double height = TITLE + 6 + LEGEND;
    for (size_t i = 0; i < args->n_panels; i++)
        height += panel_height(&panels[i]);
    struct drawing d = {.out = out};
    put_head(&d, args->title, height);
    put_legend(&d, panels, args->n_panels);
    for (size_t i = 0; i < args->n_panels; i++) {
        d.panel = &panels[i];
        put_panel(&d, &args->panels[i], columns);
    }
    fputs("</svg>\n", out);
    free(columns);
    return PLEC_OK;
}

enum plec_status plec_timeline_write(const char *path, const struct plec_timeline_args *args,
                                     struct plec_error *err) {
    char *text = NULL;
    size_t n_bytes = 0;
    struct plec_timeline_gathered *panels = calloc(args->n_panels + 1, sizeof *panels);
    FILE *out = panels != NULL ? open_memstream(&text, &n_bytes) : NULL;
    enum plec_status status =
        out != NULL ? PLEC_OK : plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a picture");
    for (size_t i = 0; status == PLEC_OK && i < args->n_panels; i++)
        status = plec_timeline_gather(&panels[i], &args->panels[i], err);
    if (status == PLEC_OK) status = draw(out, args, panels, err);
    if (out != NULL && fclose(out) != 0 && status == PLEC_OK)
        status = plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a picture");
    if (status == PLEC_OK) status = plec_atomic_file_store(path, text, n_bytes, err);
    free(text);
    for (size_t i = 0; panels != NULL && i < args->n_panels; i++)
        plec_timeline_gathered_close(&panels[i]);
    free(panels);
    return status;
}
