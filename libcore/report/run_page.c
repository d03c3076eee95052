/* SPDX-License-Identifier: Apache-2.0
 *
 * run.html: head numbers, curves by epoch, AUROC by finding, time shares, and a table of the last
 * epochs. Every number comes from the lines of metrics.jsonl, so a resumed run shows all epochs.
 * Until the first epoch is complete, the page shows the losses of steps.
 */
#include "report/run_page.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/alloc.h"
#include "base/textfile.h"
#include "base/units.h"
#include "report/html.h"
#include "report/svg.h"

enum {
    TABLE_ROWS = 20,  /* epochs in the table */
    DOTTED_ROWS = 30, /* more epochs are drawn without dots */
};
static const double min_units = 0.5;

#define AS_FIRST CHEX_SVG_AS_CURVE " stroke-width=\"1.8\""
#define AS_SECOND CHEX_SVG_AS_SECOND " stroke-width=\"1.8\" stroke-dasharray=\"5 3\""

/* The rows as arrays of numbers, NaN if unknown. */
struct series {
    size_t count;
    struct chex_svg_scale x; /* epochs */
    double *epoch, *first, *second;
    size_t best; /* index of the best row; `count`: none */
};

static const json_t *row_of(const struct chex_run_page *p, size_t i) {
    return json_array_get(p->rows, i);
}

static double number(const json_t *object, const char *key) {
    const json_t *v = json_object_get(object, key);
    return json_is_number(v) ? json_number_value(v) : NAN;
}

/* inner: NULL, or the member that holds the object with `key`. */
static void fill(const struct chex_run_page *p, const char *inner, const char *key, double *out) {
    for (size_t i = 0; i < json_array_size(p->rows); i++) {
        const json_t *row = row_of(p, i);
        out[i] = number(inner ? json_object_get(row, inner) : row, key);
    }
}

static double highest(const double *v, size_t count) {
    double top = NAN;
    for (size_t i = 0; i < count; i++)
        top = fmax(top, v[i]);
    return top;
}

/* From 0 to a round number that no value exceeds. */
static struct chex_svg_scale from_zero(double top) {
    const bool tiny = top > 0 && top < 1e-4; /* chex_svg_round_up has a lower limit */
    return (struct chex_svg_scale){0, isnan(top) || top <= 0 ? 1
                                      : tiny                 ? top
                                                             : chex_svg_round_up(top)};
}

static enum chex_status open_series(const struct chex_run_page *p, struct series *s,
                                    struct chex_error *err) {
    *s = (struct series){.count = json_array_size(p->rows)};
    s->epoch = chex_alloc_zeroed(3 * s->count, sizeof *s->epoch);
    if (!s->epoch && s->count)
        return chex_error_memory(err, "run.html");
    s->first = s->epoch + s->count;
    s->second = s->first + s->count;
    fill(p, NULL, "epoch", s->epoch);
    const double last = fmax(2, highest(s->epoch, s->count));
    s->x = (struct chex_svg_scale){0, 2 * ceil(last / 2)}; /* the tick in the middle is whole */
    s->best = s->count;
    for (size_t i = 0; i < s->count; i++)
        if (json_is_true(json_object_get(row_of(p, i), "best")))
            s->best = i;
    return CHEX_OK;
}

/* ---- panels ---- */

static void put_curve(FILE *to, const struct series *s, const char *line, const char *dot,
                      struct chex_svg_scale y, const double *v) {
    chex_svg_line(to, line, s->x, y, s->epoch, v, s->count, min_units);
    for (size_t i = 0; i < s->count; i++)
        if (!isnan(v[i]) && (s->count <= DOTTED_ROWS || i + 1 == s->count))
            fprintf(to, "<circle %s cx=\"%.1f\" cy=\"%.1f\" r=\"2\"/>\n", dot,
                    chex_svg_x(s->x, s->epoch[i]), chex_svg_y(y, v[i]));
}

/* s->first, and s->second if `both`. */
static void put_panel(FILE *to, const struct series *s, const char *title, const char *first,
                      const char *second, struct chex_svg_scale y, bool both) {
    chex_svg_title(to, title, first, second);
    chex_svg_axes(to, s->x, y);
    if (both)
        put_curve(to, s, AS_SECOND, CHEX_SVG_AS_SECOND, y, s->second);
    put_curve(to, s, AS_FIRST, CHEX_SVG_AS_DOT, y, s->first);
}

static void put_loss(FILE *to, const struct chex_run_page *p, struct series *s) {
    fill(p, NULL, "loss", s->first);
    fill(p, NULL, "val_loss", s->second);
    put_panel(to, s, "Loss", "training: blue, solid", "validation: orange, dashed",
              from_zero(fmax(highest(s->first, s->count), highest(s->second, s->count))), true);
}

/* A panel of one member of the rows, with its last value below the title. y.high NaN: from the
 * values. digits: of the last value; decimals, or significant digits if y.high is NaN. */
static void put_member(FILE *to, const struct chex_run_page *p, struct series *s, const char *inner,
                       const char *key, const char *title, struct chex_svg_scale y, int digits) {
    char last[48];
    fill(p, inner, key, s->first);
    const double v = s->first[s->count - 1];
    if (isnan(v))
        snprintf(last, sizeof last, "last: undefined");
    else if (isnan(y.high))
        snprintf(last, sizeof last, "last: %.*g", digits, v);
    else
        snprintf(last, sizeof last, "last: %.*f", digits, v);
    if (isnan(y.high))
        y = from_zero(highest(s->first, s->count));
    put_panel(to, s, title, last, NULL, y, false);
}

static const struct chex_svg_scale share = {0, 1}, own_scale = {0, NAN};

static void put_curves(FILE *to, const struct chex_run_page *p, struct series *s) {
    enum { PANELS = 4 };
    const struct chex_svg_sheet sheet = chex_svg_begin(
        to, PANELS, "Curves", "Losses, mean AUROC, learning rate and speed by epoch.", false);
    chex_svg_end_defs(&sheet);
    for (int i = 0; i < PANELS; i++) {
        chex_svg_open_panel(&sheet, i);
        switch (i) {
        case 0: put_loss(to, p, s); break;
        case 1: put_member(to, p, s, NULL, "val_auroc_mean", "Mean AUROC", share, 4); break;
        case 2: put_member(to, p, s, NULL, "lr", "Learning rate", own_scale, 3); break;
        default: put_member(to, p, s, NULL, "images_per_s", "Images per second", own_scale, 4);
        }
        chex_svg_close_panel(&sheet);
    }
    chex_svg_end(&sheet);
}

static void put_shares(FILE *to, const struct chex_run_page *p, struct series *s) {
    static const struct {
        const char *key, *title;
    } shares[] = {{"data_wait", "Waiting for data"}, {"forward", "Forward"},
                  {"backward", "Backward"},          {"allreduce_exposed", "All-reduce exposed"},
                  {"optimizer", "Optimiser"},        {"other", "Other"}};
    enum { PANELS = CHEX_COUNT(shares) };
    const struct chex_svg_sheet sheet =
        chex_svg_begin(to, PANELS, "Time shares",
                       "Share of each phase in the time of the steps, by epoch.", false);
    chex_svg_end_defs(&sheet);
    for (int i = 0; i < PANELS; i++) {
        chex_svg_open_panel(&sheet, i);
        put_member(to, p, s, "time_shares", shares[i].key, shares[i].title, share, 2);
        chex_svg_close_panel(&sheet);
    }
    chex_svg_end(&sheet);
    const char *advice = json_string_value(json_object_get(row_of(p, s->count - 1), "advice"));
    if (advice) {
        chex_put_xml_between(to, "<p>Last epoch: ", advice, ".</p>\n");
    }
}

/* ---- AUROC by finding ---- */

static void put_findings(FILE *to, const struct chex_run_page *p, struct series *s,
                         const json_t *findings) {
    const char *name;
    const json_t *value;
    int i = 0;
    const struct chex_svg_sheet sheet =
        chex_svg_begin(to, (int)json_object_size(findings), "AUROC by finding",
                       "Validation AUROC of each finding by epoch.", false);
    chex_svg_end_defs(&sheet);
    json_object_foreach((json_t *)findings, name, value) {
        chex_svg_open_panel(&sheet, i++);
        put_member(to, p, s, "auroc", name, name, share, 4);
        chex_svg_segment(to, CHEX_SVG_AS_DOTTED, s->x, share, s->x.low, 0.5, s->x.high, 0.5);
        chex_svg_close_panel(&sheet);
    }
    chex_svg_end(&sheet);
}

static void put_findings_table(FILE *to, const struct chex_run_page *p, struct series *s,
                               const json_t *findings) {
    static const char *const headings[] = {"finding", "last", "in best.h5", "highest", "in epoch"};
    const char *name;
    const json_t *value;
    chex_html_begin_table(to, "stack", "Validation AUROC of each finding.", headings, 5);
    json_object_foreach((json_t *)findings, name, value) {
        fill(p, "auroc", name, s->first);
        const double top = highest(s->first, s->count);
        size_t at = 0;
        while (at + 1 < s->count && s->first[at] != top)
            at++;
        chex_html_begin_row(to, name);
        chex_html_number(to, headings[1], s->first[s->count - 1], 4, NULL);
        chex_html_number(to, headings[2], s->best < s->count ? s->first[s->best] : NAN, 4, NULL);
        chex_html_number(to, headings[3], top, 4, NULL);
        chex_html_number(to, headings[4], isnan(top) ? NAN : s->epoch[at], 0, NULL);
        fputs("</tr>\n", to);
    }
    chex_html_end_table(to);
}

/* ---- AUROC by set ---- */

/* The validation AUROC of each finding in each set, at the last epoch. */
static void put_sets_table(FILE *to, const json_t *findings, const json_t *sets) {
    enum { MOST = 8 };
    const char *headings[MOST + 1] = {"finding"}, *name, *set;
    const json_t *value, *of;
    int count = 1;
    json_object_foreach((json_t *)sets, set, of) if (count <= MOST) headings[count++] = set;
    chex_html_begin_table(to, "stack", "Validation AUROC in each set, last epoch.", headings,
                          count);
    chex_html_begin_row(to, "mean");
    for (int i = 1; i < count; i++)
        chex_html_number(to, headings[i],
                         number(json_object_get(sets, headings[i]), "val_auroc_mean"), 4, NULL);
    fputs("</tr>\n", to);
    json_object_foreach((json_t *)findings, name, value) {
        chex_html_begin_row(to, name);
        for (int i = 1; i < count; i++) {
            of = json_object_get(json_object_get(sets, headings[i]), "auroc");
            chex_html_number(to, headings[i], number(of, name), 4, NULL);
        }
        fputs("</tr>\n", to);
    }
    chex_html_end_table(to);
    if (json_object_size(sets) > MOST)
        chex_html_note(to, "The first sets; metrics.jsonl has all.");
}

/* ---- epochs ---- */

static void put_general(FILE *to, const char *label, double v) {
    char text[32] = "\u2013";
    if (!isnan(v))
        snprintf(text, sizeof text, "%.4g", v);
    chex_html_text(to, label, text);
}

static void put_epochs(FILE *to, const struct chex_run_page *p, const struct series *s) {
    static const char *const headings[] = {"epoch",      "training loss", "validation loss",
                                           "mean AUROC", "learning rate", "images/s",
                                           "time",       "best so far"};
    chex_html_begin_table(to, "stack", "The last epochs; metrics.jsonl has all.", headings, 8);
    for (size_t k = 0; k < s->count && k < TABLE_ROWS; k++) {
        const json_t *row = row_of(p, s->count - 1 - k);
        const double seconds = number(row, "epoch_s");
        char name[32], time[32] = "\u2013";
        snprintf(name, sizeof name, "%.0f", number(row, "epoch"));
        if (!isnan(seconds))
            chex_format_duration(time, sizeof time, seconds);
        chex_html_begin_row(to, name);
        put_general(to, headings[1], number(row, "loss"));
        put_general(to, headings[2], number(row, "val_loss"));
        chex_html_number(to, headings[3], number(row, "val_auroc_mean"), 4, NULL);
        put_general(to, headings[4], number(row, "lr"));
        put_general(to, headings[5], number(row, "images_per_s"));
        chex_html_text(to, headings[6], time);
        chex_html_text(to, headings[7], json_is_true(json_object_get(row, "best")) ? "yes" : "no");
        fputs("</tr>\n", to);
    }
    chex_html_end_table(to);
}

/* ---- before the first epoch is complete ---- */

void chex_run_losses_add(struct chex_run_losses *l, uint64_t step, double loss) {
    enum { CAPACITY = CHEX_COUNT(l->loss) };
    if (l->count == CAPACITY) {
        l->count /= 2;
        for (size_t i = 0; i < l->count; i++) {
            l->step[i] = l->step[2 * i];
            l->loss[i] = l->loss[2 * i];
        }
        l->every *= 2;
    }
    l->every += l->every == 0;
    if (l->added++ % l->every != 0)
        return;
    l->step[l->count] = (double)step;
    l->loss[l->count++] = loss;
}

static void put_losses(FILE *to, const struct chex_run_page *p) {
    const struct chex_run_losses *l = p->losses;
    const double last = l->step[l->count - 1];
    const struct chex_svg_scale x = {0, 2 * ceil(fmax(2, last) / 2)},
                                y = from_zero(highest(l->loss, l->count));
    char text[128];
    fputs("<h2>Loss of steps</h2>\n", to);
    snprintf(text, sizeof text,
             "Written after step %llu of %llu in epoch %llu. The curves follow after the epoch.",
             (unsigned long long)p->step, (unsigned long long)p->steps,
             (unsigned long long)p->epoch);
    chex_html_note(to, text);
    const struct chex_svg_sheet sheet =
        chex_svg_begin(to, 1, "Loss of steps", "Training loss of single steps by step.", false);
    chex_svg_end_defs(&sheet);
    chex_svg_open_panel(&sheet, 0);
    snprintf(text, sizeof text, "step %.0f: %.4g", last, l->loss[l->count - 1]);
    chex_svg_title(to, "Loss", text, NULL);
    chex_svg_axes(to, x, y);
    chex_svg_line(to, AS_FIRST, x, y, l->step, l->loss, l->count, min_units);
    fprintf(to, "<circle " CHEX_SVG_AS_DOT " cx=\"%.1f\" cy=\"%.1f\" r=\"2\"/>\n",
            chex_svg_x(x, last), chex_svg_y(y, l->loss[l->count - 1]));
    chex_svg_close_panel(&sheet);
    chex_svg_end(&sheet);
}

/* ---- the page ---- */

static void put_card(FILE *to, const char *kind, const char *what, int digits, double v) {
    char value[48] = "\u2013";
    if (!isnan(v))
        snprintf(value, sizeof value, "%.*f", digits, v);
    fprintf(to, "<div class=\"card%s\"><b>%s</b>%s</div>\n", kind, value, what);
}

static void put_head(FILE *to, const struct chex_run_page *p, const struct series *s) {
    const json_t *last = row_of(p, s->count - 1);
    const json_t *best = s->best < s->count ? row_of(p, s->best) : NULL;
    char of[48], heading[80];
    snprintf(heading, sizeof heading, "Training of a %s", p->model);
    chex_html_open_page(to, "Training", p->dir, heading);
    fputs("<div class=\"cards\">\n", to);
    snprintf(of, sizeof of, "of %lld epochs", (long long)p->epochs);
    put_card(to, "", of, 0, s->count ? number(last, "epoch") : 0);
    if (s->count) {
        put_card(to, " main", "mean AUROC of best.h5", 4, number(best, "val_auroc_mean"));
        put_card(to, "", "epoch of best.h5", 0, number(best, "epoch"));
        put_card(to, "", "mean AUROC, last epoch", 4, number(last, "val_auroc_mean"));
        put_card(to, "", "images per second", 1, number(last, "images_per_s"));
    }
    fputs("</div>\n", to);
}

static void put_options(FILE *to, const struct chex_run_page *p) {
    json_t *value;
    const char *name, *before = "";
    fputs("<h2>Options</h2>\n<details><summary>All options of the last start</summary><p>", to);
    json_object_foreach(p->options, name, value) {
        if (!*json_string_value(value))
            continue; /* not given */
        fprintf(to, "%s<code>--%s ", before, name);
        chex_put_xml(to, json_string_value(value));
        fputs("</code>", to);
        before = ", ";
    }
    fputs("</p></details>\n", to);
}

static void put_results(FILE *to, const struct chex_run_page *p, struct series *s) {
    const json_t *findings = json_object_get(row_of(p, s->count - 1), "auroc");
    fputs("<h2>Curves</h2>\n", to);
    chex_html_note(to, "The horizontal axis is the epoch in all curves.");
    put_curves(to, p, s);
    if (json_object_size(findings)) {
        fputs("<h2>AUROC by finding</h2>\n", to);
        put_findings(to, p, s, findings);
        put_findings_table(to, p, s, findings);
    }
    const json_t *sets = json_object_get(row_of(p, s->count - 1), "sets");
    if (json_object_size(sets)) {
        fputs("<h2>AUROC by set</h2>\n", to);
        put_sets_table(to, findings, sets);
    }
    fputs("<h2>Time shares</h2>\n", to);
    put_shares(to, p, s);
    fputs("<h2>Epochs</h2>\n", to);
    put_epochs(to, p, s);
}

static void put_page(FILE *to, const struct chex_run_page *p, struct series *s) {
    put_head(to, p, s);
    if (s->count)
        put_results(to, p, s);
    else
        put_losses(to, p);
    if (p->options)
        put_options(to, p);
    chex_html_close_page(to);
}

enum chex_status chex_run_page_write(const struct chex_run_page *page, struct chex_error *err) {
    struct chex_textfile file;
    struct series s;
    CHEX_TRY(open_series(page, &s, err));
    enum chex_status st = chex_textfile_open_in(page->dir, "run.html", &file, err);
    if (st == CHEX_OK) {
        put_page(file.f, page, &s);
        st = chex_textfile_close(&file, CHEX_OK, err);
    }
    free(s.epoch);
    return st;
}
