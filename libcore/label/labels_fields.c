/* SPDX-License-Identifier: Apache-2.0
 *
 * Parsers for fields that mean the same in many label files: age, sex, view, split, flag, findings.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "label/labels_format.h"

bool chex_field_age(const char *text, int *years_out) {
    static const struct {
        char unit;
        int per_year;
    } units[] = {{'\0', 1}, {'Y', 1}, {'M', 12}, {'W', 52}, {'D', 365}};
    if (chex_csv_is_missing(text))
        return true;
    size_t digits = strspn(text, "0123456789");
    if (digits < 1 || digits > 3)
        return false;
    const char *rest = text + digits;
    if ((rest[0] == '.' || rest[0] == ',') &&
        rest[1]) /* 58.0 of a column with gaps, 0.5 of children */
        rest += 1 + strspn(rest + 1, "0123456789");
    if (rest[0] && rest[1])
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (toupper((unsigned char)*rest) == units[i].unit) {
            *years_out = atoi(text) / units[i].per_year;
            return true;
        }
    return false;
}

/* Returns the index of the word in the table, ignoring case; -1 if it is not there. A missing value
 * is the empty word. */
static int find_word(const char *text, const char *const *words) {
    if (chex_csv_is_missing(text))
        text = "";
    for (int i = 0; words[i]; i++)
        if (!strcasecmp(text, words[i]))
            return i;
    return -1;
}

bool chex_field_sex(const char *text, char *sex_out) {
    static const char *const words[] = {"M", "Male",    "F",     "Female", "",  "O",
                                        "U", "Unknown", "Other", "None",   NULL};
    int w = find_word(text, words);
    if (w >= 0)
        *sex_out = w < 2 ? 'M' : w < 4 ? 'F' : '\0';
    return w >= 0;
}

bool chex_field_view(const char *text, enum chex_view *view_out) {
    static const char *const words[] = {"PA", "AP", "L", "LL", "LATERAL", "", "unknown", NULL};
    static const enum chex_view views[] = {CHEX_VIEW_PA,      CHEX_VIEW_AP,      CHEX_VIEW_LATERAL,
                                           CHEX_VIEW_LATERAL, CHEX_VIEW_LATERAL, CHEX_VIEW_UNKNOWN,
                                           CHEX_VIEW_UNKNOWN};
    int w = find_word(text, words);
    if (w >= 0)
        *view_out = views[w];
    return w >= 0;
}

bool chex_field_split(const char *text, int8_t *split_out) {
    static const char *const words[] = {"",           "train", "val",  "valid", "validate",
                                        "validation", "dev",   "test", NULL};
    static const int8_t splits[] = {CHEX_SPLIT_NOT_STATED,
                                    CHEX_TRAIN,
                                    CHEX_VAL,
                                    CHEX_VAL,
                                    CHEX_VAL,
                                    CHEX_VAL,
                                    CHEX_VAL,
                                    CHEX_TEST};
    int w = find_word(text, words);
    if (w >= 0)
        *split_out = splits[w];
    return w >= 0;
}

bool chex_field_flag(const char *text, int8_t *label_out) {
    if (chex_csv_is_missing(text)) {
        *label_out = CHEX_LABEL_NOT_STATED;
        return true;
    }
    if (!strcasecmp(text, "true") || !strcasecmp(text, "false")) {
        *label_out = !strcasecmp(text, "true");
        return true;
    }
    bool negative = *text == '-';
    const char *p = text + negative;
    if ((*p != '0' && *p != '1') || (negative && *p == '0'))
        return false;
    const char *rest = p + 1;
    if (*rest == '.' || *rest == ',')
        rest += 1 + strspn(rest + 1, "0");
    if (*rest)
        return false;
    *label_out = negative ? CHEX_LABEL_UNCERTAIN : (int8_t)(*p - '0');
    return true;
}

enum chex_status chex_field_row(struct chex_label_table *t, const struct chex_csv *csv,
                                const struct chex_label_columns *at,
                                struct chex_label_row **row_out, int8_t **labels_out,
                                struct chex_error *err) {
    char *const *fields = csv->fields;
    const char *study = at->study >= 0 ? fields[at->study] : "";
    CHEX_TRY(chex_labels_add_row(t, csv->line, row_out, labels_out, err));
    struct chex_label_row *row = *row_out;
    if (at->patient >= 0 && chex_csv_is_missing(fields[at->patient]))
        return chex_csv_fault(csv, at->patient, "a patient id", err);
    if (at->patient >= 0 && !(row->patient_id = chex_labels_patient(t, fields[at->patient])))
        return chex_error_memory(err, "%s", t->path);
    if (!chex_csv_is_missing(study) && !(row->study_id = chex_labels_copy(t, study, strlen(study))))
        return chex_error_memory(err, "%s", t->path);
    CHEX_TRY(chex_labels_set_image(t, row, fields[at->image], (size_t)at->image + 1, err));
    if (at->view >= 0 && !chex_field_view(fields[at->view], &row->view))
        return chex_csv_fault(csv, at->view, CHEX_VIEW_EXPECTED, err);
    if (at->age >= 0 && !chex_field_age(fields[at->age], &row->age_years))
        return chex_csv_fault(csv, at->age, CHEX_AGE_EXPECTED, err);
    if (at->sex >= 0 && !chex_field_sex(fields[at->sex], &row->sex))
        return chex_csv_fault(csv, at->sex, CHEX_SEX_EXPECTED, err);
    if (at->split >= 0 && !chex_field_split(fields[at->split], &row->split))
        return chex_csv_fault(csv, at->split, CHEX_SPLIT_EXPECTED, err);
    return CHEX_OK;
}

/* Returns the table's class of a finding; -1 if it is none. */
static int class_of(const struct chex_label_table *t, const char *finding) {
    char name[CHEX_CLASS_NAME_BYTES];
    if (!t->class_block)
        return chex_class_find(finding);
    if (chex_class_canonical(finding, name))
        for (size_t c = 0; c < t->class_count; c++)
            if (!strcmp(t->classes[c], name))
                return (int)c;
    return -1;
}

static enum chex_status unknown_finding(const struct chex_label_table *t,
                                        const struct chex_csv *csv, size_t column, const char *name,
                                        const char *finding, struct chex_error *err) {
    char expected[360];
    int nearest = t->class_block ? -1 : chex_class_nearest(finding);
    size_t at = 0;
    if (nearest >= 0)
        snprintf(expected, sizeof expected,
                 "'No Finding' or known findings with '|' between (perhaps %s)",
                 chex_class_names[nearest]);
    else
        at = (size_t)snprintf(expected, sizeof expected,
                              "'No Finding' or some of these with '|' between: ");
    for (size_t c = 0; at && c < t->class_count && at < sizeof expected; c++)
        at += (size_t)snprintf(expected + at, sizeof expected - at, "%s%s", c ? ", " : "",
                               t->classes[c]);
    return chex_text_fault(csv->path, csv->line, column + 1, name, finding, expected, err);
}

enum chex_status chex_field_findings(const struct chex_label_table *t, struct chex_csv *csv,
                                     size_t column, const char *column_name, int8_t *labels,
                                     struct chex_error *err) {
    char *p = csv->fields[column];
    if (!strcmp(p, "No Finding"))
        return CHEX_OK;
    for (char *next; p; p = next) {
        next = strchr(p, '|');
        if (next)
            *next++ = '\0';
        int c = class_of(t, p);
        if (c < 0 && !strcmp(p, "No Finding"))
            return chex_text_fault(csv->path, csv->line, column + 1, column_name, p,
                                   "findings or 'No Finding', not both", err);
        if (c < 0)
            return unknown_finding(t, csv, column, column_name, p, err);
        labels[c] = 1;
    }
    return CHEX_OK;
}
