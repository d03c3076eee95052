/* SPDX-License-Identifier: Apache-2.0
 *
 * The audit of shortcuts as JSON and CSV.
 */
#include <stddef.h>

#include "base/result.h"
#include "report/figures_text.h"
#include "report/report.h"

#define OF_SHORTCUT(member) offsetof(struct chex_shortcut, member)
const struct chex_column chex_shortcut_columns[CHEX_SHORTCUT_COLUMNS] = {
    {"auroc_alone", "alone", OF_SHORTCUT(alone), "attribute alone", 3, false},
    {"auroc_network", "network", OF_SHORTCUT(network), "network", 3, false},
    {"auroc_within", "within", OF_SHORTCUT(within), "network within", 3, false},
    {"drop", "drop", OF_SHORTCUT(drop), "drop", 3, false},
};

static json_t *class_json(const char *name, const struct chex_shortcut *k) {
    const char *direction = k->direction > 0 ? "larger" : k->direction < 0 ? "smaller" : NULL;
    json_t *o = chex_result(CHEX_FIELD("name", name), CHEX_MEMBER(k, positives),
                            CHEX_MEMBER(k, negatives), CHEX_FIELD("positives_are", direction));
    chex_columns_set(&o, chex_shortcut_columns, CHEX_SHORTCUT_COLUMNS, k);
    return o;
}

static json_t *classes_json(const struct chex_shortcuts *s, int a) {
    json_t *classes = json_array();
    for (int c = 0; c < s->scores->classes; c++)
        chex_json_append(&classes,
                         class_json(s->scores->per_class[c].name, &s->attribute[a].per_class[c]));
    return classes;
}

json_t *chex_shortcuts_json(const struct chex_shortcuts *s) {
    json_t *attributes = json_array();
    for (int a = 0; a < CHEX_SHORTCUT_COUNT; a++) {
        const struct chex_shortcut_table *t = &s->attribute[a];
        if (t->known)
            chex_json_append(&attributes, chex_result(CHEX_FIELD("name", chex_shortcut_names[a]),
                                                      CHEX_MEMBER(t, strata),
                                                      CHEX_FIELD("unknown_images", t->unknown),
                                                      CHEX_FIELD("classes", classes_json(s, a))));
    }
    return chex_result(CHEX_FIELD("attributes", attributes));
}

enum chex_status chex_shortcuts_put_csv(FILE *to, const struct chex_report *r,
                                        struct chex_error *err) {
    const struct chex_shortcuts *s = r->shortcuts;
    char names[CHEX_COLUMN_NAMES_BYTES] = "";
    struct chex_text_line line = {names, sizeof names, 0};
    json_t *rows = json_array();
    for (int a = 0; a < CHEX_SHORTCUT_COUNT; a++)
        for (int c = 0; s->attribute[a].known && c < s->scores->classes; c++) {
            json_t *row = class_json(s->scores->per_class[c].name, &s->attribute[a].per_class[c]);
            chex_json_set(&row, "attribute", json_string(chex_shortcut_names[a]));
            chex_json_set(&row, "strata", json_integer(s->attribute[a].strata));
            chex_json_append(&rows, row);
        }
    chex_text_append(&line, "attribute,class=name,positives,negatives,strata,positives_are?");
    chex_columns_names(&line, chex_shortcut_columns, CHEX_SHORTCUT_COLUMNS);
    return chex_csv_write(to, names, rows, err);
}
