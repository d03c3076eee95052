/* SPDX-License-Identifier: Apache-2.0 */
#include "base/progress.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"

struct chex_progress {
    pthread_mutex_t lock;
    char what[48], unit[16], note[160];
    uint64_t total, done;
    double start, drawn;
    bool terminal, on_screen;
};

static const double redraw_s = 0.1, line_s = 10;

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
    p->terminal = isatty(STDERR_FILENO) && getenv("TERM") && strcmp(getenv("TERM"), "dumb") != 0;
    return p;
}

/* "sharding 120/1000 img  12 %  850 img/s  1.2 s left  note" */
static void describe(const struct chex_progress *p, char *buf, size_t size) {
    double spent = chex_clock_s() - p->start, rate = spent > 0 ? (double)p->done / spent : 0;
    int n = p->total
                ? snprintf(buf, size, "%s %llu/%llu %s  %3.0f %%", p->what,
                           (unsigned long long)p->done, (unsigned long long)p->total, p->unit,
                           100.0 * (double)p->done / (double)p->total)
                : snprintf(buf, size, "%s %llu %s", p->what, (unsigned long long)p->done, p->unit);
    char left[32];
    if (n < (int)size && rate > 0)
        n += snprintf(buf + n, size - (size_t)n, rate < 10 ? "  %.1f %s/s" : "  %.0f %s/s", rate,
                      p->unit);
    if (n < (int)size && rate > 0 && p->total > p->done)
        n += snprintf(buf + n, size - (size_t)n, "  %s left",
                      chex_format_duration(left, sizeof left, (double)(p->total - p->done) / rate));
    if (n < (int)size && p->note[0])
        snprintf(buf + n, size - (size_t)n, "  %s", p->note);
}

static void bar(const struct chex_progress *p, char *buf, size_t size) {
    enum { CELLS = 20 };
    int full = p->total ? (int)(CELLS * p->done / p->total) : 0;
    if (full > CELLS)
        full = CELLS;
    snprintf(buf, size, "[%.*s%.*s] ", full, "####################", CELLS - full,
             "--------------------");
}

/* How much of the text fits. It ends between two facts: a number that is cut reads as another. */
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
    if (columns <= 90 || (int)(strlen(cells) + strlen(text)) >= columns) /* facts go before it */
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
    if (now - p->drawn >= (p->terminal ? redraw_s : line_s)) {
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
