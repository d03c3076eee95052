/* SPDX-License-Identifier: Apache-2.0
 *
 * Subgroups as JSON, CSV and text.
 */
#include <math.h>

#include "base/result.h"
#include "base/text.h"
#include "report/figure_text.h"
#include "stats/subgroups.h"

/* Names of the figures, of their intervals and of their gaps. */
static const struct {
    const char *name, *interval, *rest, *rest_interval, *gap;
} texts[CHEX_SUBGROUP_FIGURES] = {
    [CHEX_SUBGROUP_AUROC] = {"auroc", "", "auroc_against_rest", "auroc_against_rest", "auroc_gap"},
    [CHEX_SUBGROUP_SENSITIVITY] = {"sensitivity", "sensitivity", "sensitivity_against_rest",
                                   "sensitivity_against_rest", "sensitivity_gap"},
    [CHEX_SUBGROUP_FPR] = {"false_positive_rate", "false_positive_rate",
                           "false_positive_rate_against_rest", "false_positive_rate_against_rest",
                           "false_positive_rate_gap"},
};

/* ---- JSON ---- */

static json_t *group_json(const char *name, const struct chex_group_score *k) {
    json_t *o = chex_result(
        CHEX_FIELD("name", name), CHEX_MEMBER(k, positives), CHEX_MEMBER(k, negatives),
        CHEX_FIELD("positive_patients", k->positive_clusters),
        CHEX_FIELD("negative_patients", k->negative_clusters), CHEX_MEMBER(k, too_small));
    bool good = o != NULL;
    for (int f = 0; good && f < CHEX_SUBGROUP_FIGURES; f++)
        good = f == CHEX_SUBGROUP_AUROC
                   ? json_object_set_new(o, "auroc", chex_json_real(k->figure[f].value)) == 0 &&
                         json_object_set_new(o, "ci_low",
                                             chex_json_real(k->figure[f].interval.low)) == 0 &&
                         json_object_set_new(o, "ci_high",
                                             chex_json_real(k->figure[f].interval.high)) == 0
                   : chex_figure_add_json(o, texts[f].name, texts[f].interval, &k->figure[f]);
    for (int f = 0; good && f < CHEX_SUBGROUP_FIGURES; f++)
        good = chex_figure_add_json(o, texts[f].rest, texts[f].rest_interval, &k->against_rest[f]);
    return chex_json_checked(o, good);
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
    bool good = groups != NULL;
    for (int i = 0; good && i < a->groups.count; i++)
        good = chex_json_append(groups, group_json(a->groups.name[i], &k->group[i]));
    if (!good)
        return chex_json_checked(groups, false);
    json_t *o = chex_result(CHEX_FIELD("name", name), CHEX_FIELD("groups", groups));
    good = o != NULL;
    for (int f = 0; good && f < CHEX_SUBGROUP_FIGURES; f++)
        good = json_object_set_new(o, texts[f].gap, gap_json(&a->groups, &k->gap[f])) == 0;
    return chex_json_checked(o, good);
}

static json_t *attribute_json(const struct chex_subgroups *s,
                              const struct chex_subgroup_attribute *a) {
    json_t *groups = json_array(), *classes = json_array();
    bool good = groups && classes;
    for (int i = 0; good && i < a->groups.count; i++)
        good = chex_json_append(groups, chex_result(CHEX_FIELD("name", a->groups.name[i]),
                                                    CHEX_FIELD("images", a->groups.rows[i])));
    for (int c = 0; good && c < s->scores->classes; c++)
        good = chex_json_append(classes, class_json(a, s->scores->per_class[c].name, c));
    if (!good) {
        json_decref(groups);
        json_decref(classes);
        return NULL;
    }
    return chex_result(CHEX_FIELD("name", chex_attribute_names[a->attribute]),
                       CHEX_FIELD("unknown_images", a->groups.unknown),
                       CHEX_FIELD("groups", groups), CHEX_FIELD("classes", classes));
}

json_t *chex_subgroups_json(const struct chex_subgroups *s) {
    json_t *attributes = json_array();
    bool good = attributes != NULL;
    for (int a = 0; good && a < s->count; a++)
        good = chex_json_append(attributes, attribute_json(s, &s->attribute[a]));
    if (!good) {
        json_decref(attributes);
        return NULL;
    }
    return chex_result(CHEX_FIELD("minimum_patients", (int)CHEX_SUBGROUP_MIN_CLUSTERS),
                       CHEX_FIELD("cluster", chex_cluster_names[s->scores->config.cluster]),
                       CHEX_FIELD("attributes", attributes));
}

/* ---- CSV ---- */

static void put_names(FILE *to, const char *name, const char *interval) {
    const char *dash = *interval ? "_" : "";
    fprintf(to, ",%s,%s%sci_low,%s%sci_high", name, interval, dash, interval, dash);
}

static void put_header(FILE *to) {
    fputs("attribute,class,group,images,positives,negatives,positive_patients,negative_patients,"
          "too_small",
          to);
    for (int f = 0; f < CHEX_SUBGROUP_FIGURES; f++)
        put_names(to, texts[f].name, texts[f].interval);
    for (int f = 0; f < CHEX_SUBGROUP_FIGURES; f++)
        put_names(to, texts[f].rest, texts[f].rest_interval);
    putc('\n', to);
}

void chex_subgroups_put_csv(FILE *to, const struct chex_subgroups *s) {
    put_header(to);
    for (int a = 0; a < s->count; a++) {
        const struct chex_subgroup_attribute *t = &s->attribute[a];
        for (int c = 0; c < s->scores->classes; c++)
            for (int i = 0; i < t->groups.count; i++) {
                const struct chex_group_score *k = &t->per_class[c].group[i];
                fputs(chex_attribute_names[t->attribute], to);
                chex_csv_put_text(to, s->scores->per_class[c].name);
                chex_csv_put_text(to, t->groups.name[i]);
                fprintf(to, ",%zu,%zu,%zu,%zu,%zu,%d", t->groups.rows[i], k->positives,
                        k->negatives, k->positive_clusters, k->negative_clusters, k->too_small);
                for (int f = 0; f < CHEX_SUBGROUP_FIGURES; f++)
                    chex_csv_put_figure(to, &k->figure[f]);
                for (int f = 0; f < CHEX_SUBGROUP_FIGURES; f++)
                    chex_csv_put_figure(to, &k->against_rest[f]);
                putc('\n', to);
            }
    }
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
            chex_text_printf(to, "gap of %s, %s: %s %s, %s above %s\n", texts[f].name,
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
