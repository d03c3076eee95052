/* SPDX-License-Identifier: Apache-2.0
 *
 * Draws the progress bar on a terminal and prints plain progress lines otherwise.
 */
#include "base/progress.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/units.h"

struct chex_progress {
    pthread_mutex_t lock;
    char what[48], unit[16], note[160];
    uint64_t total, done;
    double first, start, drawn; /* start of the process's first bar, of this bar; last redraw */
    bool terminal, on_screen;
};

static const double redraw_s = 0.1;

/* Age of the work, and interval of the lines, in seconds. About 100 lines in eight hours. */
static const struct {
    double until, interval;
} line_intervals[] = {{60, 10}, {600, 30}, {3600, 120}, {1e30, 600}};

double chex_progress_interval_s(double age_s) {
    size_t i = 0;
    while (age_s >= line_intervals[i].until)
        i++;
    return line_intervals[i].interval;
}

/* Start of this process's first bar. A run has one bar per epoch. */
static double first_start(double now) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static double first;
    pthread_mutex_lock(&lock);
    if (first == 0)
        first = now;
    const double start = first;
    pthread_mutex_unlock(&lock);
    return start;
}

struct chex_progress *chex_progress_create(const char *what, const char *unit, uint64_t total,
                                           bool shown) {
    if (!shown || chex_log_level() < CHEX_LOG_INFO)
        return NULL;
    struct chex_progress *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    pthread_mutex_init(&p->lock, NULL);
    snprintf(p->what, sizeof p->what, "%s", what);
    snprintf(p->unit, sizeof p->unit, "%s", unit);
    p->total = total;
    p->start = p->drawn = chex_clock_s();
    p->first = first_start(p->start);
    p->terminal = isatty(STDERR_FILENO) && getenv("TERM") && strcmp(getenv("TERM"), "dumb") != 0;
    return p;
}

/* "sharding 120/1000 img  12 %  850 img/s  1.2 s left  note" */
static void describe(const struct chex_progress *p, char *buf, size_t size) {
    double spent = chex_clock_s() - p->start, rate = spent > 0 ? (double)p->done / spent : 0;
    struct chex_text_line line = {buf, size, 0};
    char left[32];
    if (p->total)
        chex_text_append(&line, "%s %" PRIu64 "/%" PRIu64 " %s  %3.0f %%", p->what, p->done,
                         p->total, p->unit, 100.0 * (double)p->done / (double)p->total);
    else
        chex_text_append(&line, "%s %" PRIu64 " %s", p->what, p->done, p->unit);
    if (rate > 0)
        chex_text_append(&line, rate < 10 ? "  %.1f %s/s" : "  %.0f %s/s", rate, p->unit);
    if (rate > 0 && p->total > p->done)
        chex_text_append(
            &line, "  %s left",
            chex_format_duration(left, sizeof left, (double)(p->total - p->done) / rate));
    if (p->note[0])
        chex_text_append(&line, "  %s", p->note);
}

static void bar(const struct chex_progress *p, char *buf, size_t size) {
    enum { CELLS = 20 };
    int full = p->total ? (int)(CELLS * p->done / p->total) : 0;
    if (full > CELLS)
        full = CELLS;
    snprintf(buf, size, "[%.*s%.*s] ", full, "####################", CELLS - full,
             "--------------------");
}

/* The length of the text that fits. It is cut between two facts, because a cut number looks like
 * another number. */
static int fitting(const char *text, int columns) {
    const int length = (int)strlen(text);
    if (length <= columns)
        return length;
    for (int n = columns; n > 0; n--)
        if (strncmp(text + n, "  ", 2) == 0 || strncmp(text + n, ", ", 2) == 0)
            return n;
    return columns;
}

static void draw(struct chex_progress *p) {
    char text[400], cells[64];
    describe(p, text, sizeof text);
    struct winsize w = {0};
    int columns = ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 && w.ws_col ? w.ws_col : 100;
    bar(p, cells, sizeof cells);
    if (columns <= 90 || (int)(strlen(cells) + strlen(text)) >= columns) /* facts before the bar */
        cells[0] = '\0';
    fprintf(stderr, "\r\033[K%s%.*s", cells, fitting(text, columns - 1), text);
    fflush(stderr);
    p->on_screen = true;
}

void chex_progress_set(struct chex_progress *p, uint64_t done, const char *note) {
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->done = done;
    if (note)
        snprintf(p->note, sizeof p->note, "%s", note);
    double now = chex_clock_s();
    if (now - p->drawn >= (p->terminal ? redraw_s : chex_progress_interval_s(now - p->first))) {
        p->drawn = now;
        char text[400];
        if (p->terminal) {
            draw(p);
        } else {
            describe(p, text, sizeof text);
            chex_info("%s", text);
        }
    }
    pthread_mutex_unlock(&p->lock);
}

void chex_progress_destroy(struct chex_progress *p, bool keep) {
    if (!p)
        return;
    if (p->on_screen) {
        fputs("\r\033[K", stderr);
        fflush(stderr);
    }
    if (keep) {
        char text[400];
        describe(p, text, sizeof text);
        chex_info("%s", text);
    }
    pthread_mutex_destroy(&p->lock);
    free(p);
}
