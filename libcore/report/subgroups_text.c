/* SPDX-License-Identifier: Apache-2.0
 *
 * Subgroups as JSON, CSV and text.
 */
#include <math.h>
#include <stddef.h>

#include "base/result.h"
#include "base/text.h"
#include "report/figures_text.h"
#include "report/report.h"

#define OF_GROUP(member, figure) offsetof(struct chex_group_score, member[CHEX_SUBGROUP_##figure])
static const struct chex_column columns[] = {
    {"auroc", "", OF_GROUP(figure, AUROC)},
    {"sensitivity", "sensitivity", OF_GROUP(figure, SENSITIVITY)},
    {"false_positive_rate", "false_positive_rate", OF_GROUP(figure, FPR)},
    {"auroc_against_rest", "auroc_against_rest", OF_GROUP(against_rest, AUROC)},
    {"sensitivity_against_rest", "sensitivity_against_rest", OF_GROUP(against_rest, SENSITIVITY)},
    {"false_positive_rate_against_rest", "false_positive_rate_against_rest",
     OF_GROUP(against_rest, FPR)},
};

/* The name of a figure is that of its column. */
static const char *name_of(int figure) { return columns[figure].key; }

/* ---- JSON ---- */

static json_t *group_json(const char *name, const struct chex_group_score *k) {
    json_t *o = chex_result(
        CHEX_FIELD("name", name), CHEX_MEMBER(k, positives), CHEX_MEMBER(k, negatives),
        CHEX_FIELD("positive_patients", k->positive_clusters),
        CHEX_FIELD("negative_patients", k->negative_clusters), CHEX_MEMBER(k, too_small));
    chex_columns_set(&o, columns, CHEX_COUNT(columns), k);
    return o;
}

static json_t *gap_json(const struct chex_groups *g, const struct chex_subgroup_gap *gap) {
    if (gap->high < 0)
        return json_null();
    return chex_result(CHEX_FIELD("highest", g->name[gap->high]),
                       CHEX_FIELD("lowest", g->name[gap->low]), CHEX_FIELD("value", gap->gap.value),
                       CHEX_FIELD("ci_low", gap->gap.interval.low),
                       CHEX_FIELD("ci_high", gap->gap.interval.high));
}

static json_t *class_json(const struct chex_subgroup_attribute *a, const char *name, int c) {
    const struct chex_subgroup_class *k = &a->per_class[c];
    json_t *groups = json_array();
    char key[64];
    for (int i = 0; i < a->groups.count; i++)
        chex_json_append(&groups, group_json(a->groups.name[i], &k->group[i]));
    json_t *o = chex_result(CHEX_FIELD("name", name), CHEX_FIELD("groups", groups));
    for (int f = 0; f < CHEX_SUBGROUP_FIGURES; f++) {
        snprintf(key, sizeof key, "%s_gap", name_of(f));
        chex_json_set(&o, key, gap_json(&a->groups, &k->gap[f]));
    }
    return o;
}

static json_t *attribute_json(const struct chex_subgroups *s,
                              const struct chex_subgroup_attribute *a) {
    json_t *groups = json_array(), *classes = json_array();
    for (int i = 0; i < a->groups.count; i++)
        chex_json_append(&groups, chex_result(CHEX_FIELD("name", a->groups.name[i]),
                                              CHEX_FIELD("images", a->groups.rows[i])));
    for (int c = 0; c < s->scores->classes; c++)
        chex_json_append(&classes, class_json(a, s->scores->per_class[c].name, c));
    return chex_result(CHEX_FIELD("name", chex_attribute_names[a->attribute]),
                       CHEX_FIELD("unknown_images", a->groups.unknown),
                       CHEX_FIELD("groups", groups), CHEX_FIELD("classes", classes));
}

json_t *chex_subgroups_json(const struct chex_subgroups *s) {
    json_t *attributes = json_array();
    for (int a = 0; a < s->count; a++)
        chex_json_append(&attributes, attribute_json(s, &s->attribute[a]));
    return chex_result(CHEX_FIELD("minimum_patients", (int)CHEX_SUBGROUP_MIN_CLUSTERS),
                       CHEX_FIELD("cluster", chex_cluster_names[s->scores->config.cluster]),
                       CHEX_FIELD("attributes", attributes));
}

/* ---- CSV ---- */

enum chex_status chex_subgroups_put_csv(FILE *to, const struct chex_report *r,
                                        struct chex_error *err) {
    const struct chex_subgroups *s = r->subgroups;
    char names[CHEX_COLUMN_NAMES_BYTES] = "";
    struct chex_text_line line = {names, sizeof names, 0};
    json_t *rows = json_array();
    for (int a = 0; a < s->count; a++) {
        const struct chex_subgroup_attribute *t = &s->attribute[a];
        for (int c = 0; c < s->scores->classes; c++)
            for (int i = 0; i < t->groups.count; i++) {
                json_t *row = group_json(t->groups.name[i], &t->per_class[c].group[i]);
                chex_json_set(&row, "attribute", json_string(chex_attribute_names[t->attribute]));
                chex_json_set(&row, "class", chex_json_text(s->scores->per_class[c].name));
                chex_json_set(&row, "images", chex_json_unsigned(t->groups.rows[i]));
                chex_json_append(&rows, row);
            }
    }
    chex_text_append(&line, "attribute,class,group=name,images,positives,negatives,"
                            "positive_patients,negative_patients,too_small");
    chex_columns_names(&line, columns, CHEX_COUNT(columns));
    return chex_csv_write(to, names, rows, err);
}

/* ---- text ---- */

/* Whether the AUROC of a class is known in every group, so that groups can be compared by their
 * means. */
static bool in_all_groups(const struct chex_subgroup_attribute *a, int c) {
    for (int i = 0; i < a->groups.count; i++)
        if (a->per_class[c].group[i].too_small ||
            isnan(a->per_class[c].group[i].figure[CHEX_SUBGROUP_AUROC].value))
            return false;
    return true;
}

static void print_groups(FILE *to, const struct chex_subgroups *s,
                         const struct chex_subgroup_attribute *a) {
    int classes = 0;
    for (int c = 0; c < s->scores->classes; c++)
        classes += in_all_groups(a, c);
    for (int i = 0; i < a->groups.count; i++) {
        double sum = 0;
        for (int c = 0; c < s->scores->classes; c++)
            sum += in_all_groups(a, c) ? a->per_class[c].group[i].figure[CHEX_SUBGROUP_AUROC].value
                                       : 0;
        fprintf(to, "%-9s  ", chex_attribute_names[a->attribute]);
        chex_text_printf(to, "%-*s", chex_text_field(a->groups.name[i], 16), a->groups.name[i]);
        fprintf(to, "  %8zu", a->groups.rows[i]);
        if (classes)
            fprintf(to, "  %.4f\n", sum / classes);
        else
            fputs("  -\n", to);
    }
    if (a->groups.unknown)
        fprintf(to, "%-9s  %-16s  %8zu  -\n", chex_attribute_names[a->attribute], "unknown",
                a->groups.unknown);
}

/* Prints the gaps of one figure whose intervals exclude 0. Returns their number. */
static int print_gaps(FILE *to, const struct chex_subgroups *s, int f, int *tested) {
    int found = 0;
    for (int a = 0; a < s->count; a++)
        for (int c = 0; c < s->scores->classes; c++) {
            const struct chex_subgroup_attribute *t = &s->attribute[a];
            const struct chex_subgroup_gap *gap = &t->per_class[c].gap[f];
            char text[64];
            *tested += gap->high >= 0 && !isnan(gap->gap.interval.low);
            if (gap->high < 0 || !(gap->gap.interval.low > 0))
                continue;
            found++;
            chex_text_printf(to, "gap of %s, %s: %s %s, %s above %s\n", name_of(f),
                             s->scores->per_class[c].name, chex_attribute_names[t->attribute],
                             chex_figure_format(&gap->gap, true, text, sizeof text),
                             t->groups.name[gap->high], t->groups.name[gap->low]);
        }
    return found;
}

void chex_subgroups_print(FILE *to, const struct chex_subgroups *s) {
    int found = 0, tested = 0;
    fprintf(to, "\n%-9s  %-16s  %8s  %s\n", "attribute", "group", "images", "mean AUROC");
    for (int a = 0; a < s->count; a++)
        print_groups(to, s, &s->attribute[a]);
    for (int f = 0; f < CHEX_SUBGROUP_FIGURES; f++)
        found += print_gaps(to, s, f, &tested);
    fprintf(to,
            "mean AUROC: of the findings with at least %d %ss with and %d without the finding in "
            "each group\n"
            "gaps: %d of %d largest differences between groups have an interval above 0; with many "
            "groups and findings some do by chance\n",
            (int)CHEX_SUBGROUP_MIN_CLUSTERS, chex_cluster_names[s->scores->config.cluster],
            (int)CHEX_SUBGROUP_MIN_CLUSTERS, found, tested);
}
