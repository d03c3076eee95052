/* SPDX-License-Identifier: Apache-2.0
 *
 * The audit of shortcuts as JSON and CSV.
 */
#include "base/result.h"
#include "report/figure_text.h"
#include "stats/shortcuts.h"

static const char *direction_of(const struct chex_shortcut *k) {
    return k->direction > 0 ? "larger" : k->direction < 0 ? "smaller" : NULL;
}

static json_t *class_json(const char *name, const struct chex_shortcut *k) {
    json_t *o =
        chex_result(CHEX_FIELD("name", name), CHEX_MEMBER(k, positives), CHEX_MEMBER(k, negatives),
                    CHEX_FIELD("positives_are", direction_of(k)));
    return chex_json_checked(o,
                             chex_figure_add_json(o, "auroc_alone", "alone", &k->alone) &&
                                 chex_figure_add_json(o, "auroc_network", "network", &k->network) &&
                                 chex_figure_add_json(o, "auroc_within", "within", &k->within) &&
                                 chex_figure_add_json(o, "drop", "drop", &k->drop));
}

static json_t *attribute_json(const struct chex_shortcuts *s, int a) {
    const struct chex_shortcut_table *t = &s->attribute[a];
    json_t *classes = json_array();
    bool good = classes != NULL;
    for (int c = 0; good && c < s->scores->classes; c++)
        good =
            chex_json_append(classes, class_json(s->scores->per_class[c].name, &t->per_class[c]));
    if (!good) {
        json_decref(classes);
        return NULL;
    }
    return chex_result(CHEX_FIELD("name", chex_shortcut_names[a]), CHEX_MEMBER(t, strata),
                       CHEX_FIELD("unknown_images", t->unknown), CHEX_FIELD("classes", classes));
}

json_t *chex_shortcuts_json(const struct chex_shortcuts *s) {
    json_t *attributes = json_array();
    bool good = attributes != NULL;
    for (int a = 0; good && a < CHEX_SHORTCUT_COUNT; a++)
        if (s->attribute[a].known)
            good = chex_json_append(attributes, attribute_json(s, a));
    if (!good) {
        json_decref(attributes);
        return NULL;
    }
    return chex_result(CHEX_FIELD("attributes", attributes));
}

void chex_shortcuts_put_csv(FILE *to, const struct chex_shortcuts *s) {
    fputs("attribute,class,positives,negatives,strata,positives_are,auroc_alone,alone_ci_low,"
          "alone_ci_high,auroc_network,network_ci_low,network_ci_high,auroc_within,within_ci_low,"
          "within_ci_high,drop,drop_ci_low,drop_ci_high\n",
          to);
    for (int a = 0; a < CHEX_SHORTCUT_COUNT; a++) {
        const struct chex_shortcut_table *t = &s->attribute[a];
        for (int c = 0; t->known && c < s->scores->classes; c++) {
            const struct chex_shortcut *k = &t->per_class[c];
            const char *direction = direction_of(k);
            fputs(chex_shortcut_names[a], to);
            chex_csv_put_text(to, s->scores->per_class[c].name);
            fprintf(to, ",%zu,%zu,%d,%s", k->positives, k->negatives, t->strata,
                    direction ? direction : "");
            chex_csv_put_figure(to, &k->alone);
            chex_csv_put_figure(to, &k->network);
            chex_csv_put_figure(to, &k->within);
            chex_csv_put_figure(to, &k->drop);
            putc('\n', to);
        }
    }
}
