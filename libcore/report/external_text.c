/* SPDX-License-Identifier: Apache-2.0
 *
 * Several sets as JSON, CSV and text.
 */
#include <math.h>
#include <string.h>

#include "base/result.h"
#include "base/text.h"
#include "report/figure_text.h"
#include "stats/external.h"

static const struct {
    const char *name, *drop;
} texts[CHEX_EXTERNAL_FIGURES] = {
    [CHEX_EXTERNAL_AUROC] = {"auroc", "auroc_drop"},
    [CHEX_EXTERNAL_SENSITIVITY] = {"sensitivity", "sensitivity_drop"},
    [CHEX_EXTERNAL_SPECIFICITY] = {"specificity", "specificity_drop"},
    [CHEX_EXTERNAL_SLOPE] = {"calibration_slope", "calibration_slope_drop"},
    [CHEX_EXTERNAL_INTERCEPT] = {"calibration_intercept", "calibration_intercept_drop"},
};

static const char *class_name(const struct chex_external *x, int c) {
    return x->set[0].scores->per_class[c].name;
}

/* ---- JSON ---- */

static json_t *set_facts_json(const struct chex_external *x, int k) {
    const struct chex_external_set *set = &x->set[k];
    const struct chex_external_mean *m = &x->mean[k];
    const struct chex_scores *s = set->scores;
    return chex_result(
        CHEX_MEMBER(set, name), CHEX_MEMBER(set, data), CHEX_MEMBER(set, title),
        CHEX_FIELD("images", s->table->rows), CHEX_FIELD_IF(s->patients, "patients", s->patients),
        CHEX_MEMBER(s, mean), CHEX_FIELD("mean_ci_low", s->mean_interval.low),
        CHEX_FIELD("mean_ci_high", s->mean_interval.high), CHEX_FIELD("defined_count", s->defined),
        CHEX_FIELD("common_classes", m->classes));
}

static json_t *set_json(const struct chex_external *x, int k) {
    const struct chex_external_mean *m = &x->mean[k];
    json_t *o = set_facts_json(x, k);
    return chex_json_checked(
        o, chex_figure_add_json(o, "common_mean", "common_mean", &m->own) &&
               chex_figure_add_json(o, "common_mean_of_first", "common_mean_of_first", &m->first) &&
               chex_figure_add_json(o, "mean_drop", "mean_drop", &m->drop));
}

static json_t *cell_json(const struct chex_external *x, int c, int k) {
    const struct chex_external_cell *cell = &x->cell[c * x->sets + k];
    const struct chex_class_score *score = &x->set[k].scores->per_class[c];
    json_t *o =
        chex_result(CHEX_FIELD("set", x->set[k].name), CHEX_MEMBER(score, positives),
                    CHEX_MEMBER(score, negatives),
                    CHEX_FIELD("threshold", x->set[k].figures->per_class[c].operating.threshold));
    bool good = o != NULL;
    for (int f = 0; good && f < CHEX_EXTERNAL_FIGURES; f++)
        good = chex_figure_add_json(o, texts[f].name, texts[f].name, &cell->figure[f]) &&
               chex_figure_add_json(o, texts[f].drop, texts[f].drop, &cell->drop[f]);
    return chex_json_checked(o, good);
}

static json_t *class_json(const struct chex_external *x, int c) {
    json_t *sets = json_array();
    bool good = sets != NULL;
    for (int k = 0; good && k < x->sets; k++)
        good = chex_json_append(sets, cell_json(x, c, k));
    if (!good)
        return chex_json_checked(sets, false);
    return chex_result(CHEX_FIELD("name", class_name(x, c)), CHEX_FIELD("sets", sets));
}

json_t *chex_external_json(const struct chex_external *x) {
    json_t *sets = json_array(), *classes = json_array();
    bool good = sets && classes;
    for (int k = 0; good && k < x->sets; k++)
        good = chex_json_append(sets, set_json(x, k));
    for (int c = 0; good && c < x->classes; c++)
        good = chex_json_append(classes, class_json(x, c));
    if (good)
        return chex_result(CHEX_FIELD("schema", "chexnet-external"), CHEX_FIELD("version", 1),
                           CHEX_FIELD("tool_version", CHEXNET_VERSION), CHEX_FIELD("sets", sets),
                           CHEX_FIELD("classes", classes));
    json_decref(sets);
    json_decref(classes);
    return NULL;
}

/* ---- CSV ---- */

void chex_external_put_csv(FILE *to, const struct chex_external *x) {
    fputs("class,set,positives,negatives", to);
    for (int f = 0; f < CHEX_EXTERNAL_FIGURES; f++)
        fprintf(to, ",%s,%s_ci_low,%s_ci_high,%s,%s_ci_low,%s_ci_high", texts[f].name,
                texts[f].name, texts[f].name, texts[f].drop, texts[f].drop, texts[f].drop);
    putc('\n', to);
    for (int c = 0; c < x->classes; c++)
        for (int k = 0; k < x->sets; k++) {
            const struct chex_external_cell *cell = &x->cell[c * x->sets + k];
            const struct chex_class_score *score = &x->set[k].scores->per_class[c];
            chex_text_put_cell(to, score->name);
            chex_csv_put_text(to, x->set[k].name);
            fprintf(to, ",%zu,%zu", score->positives, score->negatives);
            for (int f = 0; f < CHEX_EXTERNAL_FIGURES; f++) {
                chex_csv_put_figure(to, &cell->figure[f]);
                chex_csv_put_figure(to, &cell->drop[f]);
            }
            putc('\n', to);
        }
}

/* ---- text ---- */

struct widths {
    int class_name, set;
};

static struct widths measure(const struct chex_external *x) {
    struct widths w = {19, 3};
    for (int c = 0; c < x->classes; c++) {
        const int n = chex_text_columns(class_name(x, c));
        w.class_name = n > w.class_name ? n : w.class_name;
    }
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
