/* SPDX-License-Identifier: Apache-2.0
 *
 * Several sets as JSON, CSV and text.
 */
#include <stddef.h>

#include "base/result.h"
#include "report/figures_text.h"

#define OF_CELL(name, figure_of)                                                                   \
    {name, name, offsetof(struct chex_external_cell, figure[CHEX_EXTERNAL_##figure_of])}, {        \
        name "_drop", name "_drop",                                                                \
            offsetof(struct chex_external_cell, drop[CHEX_EXTERNAL_##figure_of])                   \
    }
static const struct chex_column columns[] = {
    OF_CELL("auroc", AUROC), OF_CELL("sensitivity", SENSITIVITY),
    OF_CELL("specificity", SPECIFICITY), OF_CELL("calibration_slope", SLOPE),
    OF_CELL("calibration_intercept", INTERCEPT)};
static const struct chex_column mean_columns[] = {
    {"common_mean", "common_mean", offsetof(struct chex_external_mean, own)},
    {"common_mean_of_first", "common_mean_of_first", offsetof(struct chex_external_mean, first)},
    {"mean_drop", "mean_drop", offsetof(struct chex_external_mean, drop)}};

static const char *class_name(const struct chex_external *x, int c) {
    return x->set[0].scores->per_class[c].name;
}

/* ---- JSON ---- */

static json_t *set_json(const struct chex_external *x, int k) {
    const struct chex_external_set *set = &x->set[k];
    const struct chex_external_mean *m = &x->mean[k];
    const struct chex_scores *s = set->scores;
    json_t *o = chex_result(
        CHEX_MEMBER(set, name), CHEX_MEMBER(set, data), CHEX_MEMBER(set, title),
        CHEX_FIELD("images", s->table->rows), CHEX_FIELD_IF(s->patients, "patients", s->patients),
        CHEX_MEMBER(s, mean), CHEX_FIELD("mean_ci_low", s->mean_interval.low),
        CHEX_FIELD("mean_ci_high", s->mean_interval.high), CHEX_FIELD("defined_count", s->defined),
        CHEX_FIELD("common_classes", m->classes));
    chex_columns_set(&o, mean_columns, CHEX_COUNT(mean_columns), m);
    return o;
}

static json_t *cell_json(const struct chex_external *x, int c, int k) {
    const struct chex_class_score *score = &x->set[k].scores->per_class[c];
    json_t *o =
        chex_result(CHEX_FIELD("set", x->set[k].name), CHEX_MEMBER(score, positives),
                    CHEX_MEMBER(score, negatives),
                    CHEX_FIELD("threshold", x->set[k].figures->per_class[c].operating.threshold));
    chex_columns_set(&o, columns, CHEX_COUNT(columns), &x->cell[c * x->sets + k]);
    return o;
}

static json_t *class_json(const struct chex_external *x, int c) {
    json_t *sets = json_array();
    for (int k = 0; k < x->sets; k++)
        chex_json_append(&sets, cell_json(x, c, k));
    return chex_result(CHEX_FIELD("name", class_name(x, c)), CHEX_FIELD("sets", sets));
}

json_t *chex_external_json(const struct chex_external *x) {
    json_t *sets = json_array(), *classes = json_array();
    for (int k = 0; k < x->sets; k++)
        chex_json_append(&sets, set_json(x, k));
    for (int c = 0; c < x->classes; c++)
        chex_json_append(&classes, class_json(x, c));
    return chex_result(CHEX_FIELD("schema", "chexnet-external"), CHEX_FIELD("version", 1),
                       CHEX_FIELD("tool_version", CHEXNET_VERSION), CHEX_FIELD("sets", sets),
                       CHEX_FIELD("classes", classes));
}

/* ---- CSV ---- */

enum chex_status chex_external_put_csv(FILE *to, const struct chex_external *x,
                                       struct chex_error *err) {
    char names[CHEX_COLUMN_NAMES_BYTES] = "";
    struct chex_text_line line = {names, sizeof names, 0};
    json_t *rows = json_array();
    for (int c = 0; c < x->classes; c++)
        for (int k = 0; k < x->sets; k++) {
            json_t *row = cell_json(x, c, k);
            chex_json_set(&row, "class", chex_json_text(class_name(x, c)));
            chex_json_append(&rows, row);
        }
    chex_text_append(&line, "class,set,positives,negatives");
    chex_columns_names(&line, columns, CHEX_COUNT(columns));
    return chex_csv_write(to, names, rows, err);
}

/* ---- text ---- */

struct widths {
    int class_name, set;
};

static struct widths measure(const struct chex_external *x) {
    const struct chex_scores *first = x->set[0].scores;
    struct widths w = {chex_names_width(first->table->class_names, first->classes, 19), 3};
    for (int k = 0; k < x->sets; k++) {
        const int n = chex_text_columns(x->set[k].name);
        w.set = n > w.set ? n : w.set;
    }
    return w;
}

static void print_line(FILE *to, struct widths w, const char *name, const char *set,
                       const char *positives, const struct chex_figure *auroc,
                       const struct chex_figure *drop) {
    char text[64];
    chex_text_printf(to, "%-*s  %-*s  %9s  ", chex_text_field(name, w.class_name), name,
                     chex_text_field(set, w.set), set, positives);
    chex_figure_format(auroc, false, text, sizeof text);
    if (drop) {
        fprintf(to, "%-25s  ", text);
        chex_figure_format(drop, true, text, sizeof text);
    }
    fprintf(to, "%s\n", text);
}

void chex_external_print(FILE *to, const struct chex_external *x) {
    const struct widths w = measure(x);
    char text[48];
    fprintf(to, "%-*s  %-*s  %9s  %-25s  %s\n", w.class_name, "finding", w.set, "set", "positives",
            "AUROC (95 % interval)", "drop (95 % interval)");
    for (int c = 0; c < x->classes; c++)
        for (int k = 0; k < x->sets; k++) {
            const struct chex_external_cell *cell = &x->cell[c * x->sets + k];
            const struct chex_class_score *score = &x->set[k].scores->per_class[c];
            if (k && score->positives + score->negatives == 0)
                continue; /* the set does not state the finding */
            snprintf(text, sizeof text, "%zu", score->positives);
            print_line(to, w, k ? "" : class_name(x, c), x->set[k].name, text,
                       &cell->figure[CHEX_EXTERNAL_AUROC],
                       k ? &cell->drop[CHEX_EXTERNAL_AUROC] : NULL);
        }
    for (int k = 1; k < x->sets; k++) {
        const struct chex_external_mean *m = &x->mean[k];
        snprintf(text, sizeof text, "mean of %d finding%s", m->classes, m->classes == 1 ? "" : "s");
        print_line(to, w, text, x->set[0].name, "", &m->first, NULL);
        print_line(to, w, "", x->set[k].name, "", &m->own, &m->drop);
    }
    fprintf(to,
            "drop: AUROC of %s minus that of the other set; above 0 the network is worse there\n"
            "mean: over the findings that both sets define\n",
            x->set[0].name);
}
