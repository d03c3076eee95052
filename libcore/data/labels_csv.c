/* SPDX-License-Identifier: Apache-2.0
 *
 * Any table with a header. --columns says which is what, ROLE=NAME with commas between:
 *   image      file name; needed
 *   patient    else what stands before the name's first '_'
 *   view, age, sex, split
 *   findings   names with '|' between, or "No Finding"
 *   labels     A:B:C: columns of 1, 0, -1 or nothing; beside `findings`: the names that may
 *              stand there, instead of the 14
 *
 * A role that is not given is looked for under its own name (image_id, patient_id and age_years are
 * tried as well), whatever its case, blanks and underscores; without `labels` and `findings` all
 * columns named as one of the 14 are labels.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "data/labels_format.h"

enum role { IMAGE, PATIENT, VIEW, AGE, SEX, SPLIT, FINDINGS, LABELS, ROLES };

static const char *const role_names[ROLES] = {"image", "patient", "view",     "age",
                                              "sex",   "split",   "findings", "labels"};
static const char *const other_names[ROLES] = {
    [IMAGE] = "image_id", [PATIENT] = "patient_id", [AGE] = "age_years"};

struct layout {
    char *spec;               /* taken apart */
    char *wanted[ROLES];      /* names from --columns, or NULL */
    int at[LABELS];           /* columns, -1: none */
    const char **class_names; /* (class_name_count) */
    size_t class_name_count;
    struct chex_label_flags flags; /* without a column of findings */
    size_t *class_of;
};

/* The name of the column that is a role's by itself; NULL where there is none. */
static const char *own_column(char *const *names, size_t count, int role) {
    const char *const tried[] = {role_names[role], other_names[role]};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; tried[k] && i < count; i++)
            if (chex_names_match(names[i], tried[k]))
                return names[i];
    return NULL;
}

static bool detect(const struct chex_label_header *h, char *why, size_t why_size) {
    size_t known = 0;
    for (size_t i = 0; i < h->count; i++)
        known += chex_class_find(h->names[i]) >= 0;
    bool findings = own_column(h->names, h->count, FINDINGS);
    if (!own_column(h->names, h->count, IMAGE) || (!known && !findings))
        return false;
    if (findings)
        snprintf(why, why_size, "a header with an image column and 'findings'");
    else
        snprintf(why, why_size, "a header with an image column and %zu known findings", known);
    return true;
}

/* ---- --columns ---- */

static enum chex_status bad_spec(const char *spec, const char *word, const char *what,
                                 struct chex_error *err) {
    return chex_error_set(err, CHEX_E_USAGE,
                          "columns '%s': '%s' %s, expected ROLE=NAME with commas between, ROLE one "
                          "of image, patient, view, age, sex, split, findings, labels",
                          spec, word, what);
}

static enum chex_status parse_spec(struct layout *l, const char *spec, struct chex_error *err) {
    char *save = NULL;
    for (char *word = strtok_r(l->spec, ",", &save); word; word = strtok_r(NULL, ",", &save)) {
        char *name = strchr(word, '=');
        if (!name || !name[1])
            return bad_spec(spec, word, "names no column", err);
        *name++ = '\0';
        int role = 0;
        while (role < ROLES && strcmp(role_names[role], word) != 0)
            role++;
        if (role == ROLES)
            return bad_spec(spec, word, "is no role", err);
        if (l->wanted[role])
            return bad_spec(spec, word, "is there twice", err);
        l->wanted[role] = name;
    }
    return CHEX_OK;
}

/* ---- the header ---- */

static enum chex_status missing(const struct chex_csv *csv, int role, struct chex_error *err) {
    char found[160] = "", name[32];
    size_t at = 0;
    for (size_t i = 0; i < csv->name_count && at + sizeof name + 6 < sizeof found; i++)
        at += (size_t)snprintf(found + at, sizeof found - at, "%s'%s'", i ? ", " : "",
                               chex_text_shown(csv->names[i], name, sizeof name));
    return chex_error_set(
        err, CHEX_E_DATA,
        "%s: line 1: the header has no column for %s, expected one named so or by "
        "--columns %s=NAME; there are %zu: %s",
        csv->path, role_names[role], role_names[role], csv->name_count, found);
}

static enum chex_status find_roles(struct layout *l, const struct chex_csv *csv,
                                   struct chex_error *err) {
    for (int r = 0; r < LABELS; r++) {
        l->at[r] = -1;
        if (l->wanted[r]) {
            CHEX_TRY(
                chex_csv_find(csv, l->wanted[r], "the one that --columns names", &l->at[r], err));
            continue;
        }
        if (r == FINDINGS && l->wanted[LABELS])
            continue; /* the labels are named: another column is not guessed */
        const char *own = own_column(csv->names, csv->name_count, r);
        if (own)
            CHEX_TRY(chex_csv_find(csv, own, NULL, &l->at[r], err));
    }
    return l->at[IMAGE] >= 0 ? CHEX_OK : missing(csv, IMAGE, err);
}

/* The names of the classes: those of labels=, or the columns that are named as one of the 14. */
static enum chex_status list_classes(struct layout *l, const struct chex_label_table *t,
                                     const struct chex_csv *csv, struct chex_error *err) {
    size_t room = csv->name_count + (l->wanted[LABELS] ? strlen(l->wanted[LABELS]) : 0) + 1;
    char *save = NULL;
    if (!(l->class_names = calloc(room, sizeof *l->class_names)))
        return chex_labels_no_memory(t, err);
    if (l->wanted[LABELS])
        for (char *w = strtok_r(l->wanted[LABELS], ":", &save); w; w = strtok_r(NULL, ":", &save))
            l->class_names[l->class_name_count++] = w;
    for (size_t i = 0; !l->wanted[LABELS] && i < csv->name_count; i++)
        if (chex_class_find(csv->names[i]) >= 0)
            l->class_names[l->class_name_count++] = csv->names[i];
    return l->class_name_count ? CHEX_OK : missing(csv, LABELS, err);
}

static enum chex_status find_classes(struct layout *l, struct chex_label_table *t,
                                     const struct chex_csv *csv, struct chex_error *err) {
    if (l->at[FINDINGS] >= 0 && !l->wanted[LABELS])
        return CHEX_OK; /* the 14 */
    CHEX_TRY(list_classes(l, t, csv, err));
    if (l->at[FINDINGS] < 0)
        return chex_label_flags_init(&l->flags, t, csv, l->class_names, l->class_name_count,
                                     "the one that --columns names", err);
    if (!(l->class_of = calloc(l->class_name_count, sizeof *l->class_of)))
        return chex_labels_no_memory(t, err);
    return chex_labels_set_classes(t, l->class_names, l->class_name_count, l->class_of, err);
}

/* ---- rows ---- */

static enum chex_status parse_facts(struct chex_label_row *row, const struct layout *l,
                                    const struct chex_csv *csv, struct chex_error *err) {
    const int *at = l->at;
    if (at[VIEW] >= 0 && !chex_field_view(csv->fields[at[VIEW]], &row->view))
        return chex_csv_fault(csv, at[VIEW], CHEX_VIEW_EXPECTED, err);
    if (at[AGE] >= 0 && !chex_field_age(csv->fields[at[AGE]], &row->age_years))
        return chex_csv_fault(csv, at[AGE], CHEX_AGE_EXPECTED, err);
    if (at[SEX] >= 0 && !chex_field_sex(csv->fields[at[SEX]], &row->sex))
        return chex_csv_fault(csv, at[SEX], CHEX_SEX_EXPECTED, err);
    if (at[SPLIT] >= 0 && !chex_field_split(csv->fields[at[SPLIT]], &row->split))
        return chex_csv_fault(csv, at[SPLIT], CHEX_SPLIT_EXPECTED, err);
    return CHEX_OK;
}

static enum chex_status parse_row(struct chex_label_table *t, struct chex_csv *csv,
                                  const struct layout *l, struct chex_error *err) {
    struct chex_label_row *row;
    int8_t *labels;
    const int *at = l->at;
    CHEX_TRY(chex_labels_add_row(t, csv->line, &row, &labels, err));
    if (at[PATIENT] >= 0) {
        if (!*csv->fields[at[PATIENT]])
            return chex_csv_fault(csv, at[PATIENT], "a patient id", err);
        if (!(row->patient_id = chex_labels_patient(t, csv->fields[at[PATIENT]])))
            return chex_labels_no_memory(t, err);
    }
    CHEX_TRY(chex_labels_set_image(t, row, csv->fields[at[IMAGE]], (size_t)at[IMAGE] + 1, err));
    CHEX_TRY(parse_facts(row, l, csv, err));
    if (at[FINDINGS] < 0)
        return chex_label_flags_read(&l->flags, csv, labels, err);
    return chex_field_findings(t, csv, (size_t)at[FINDINGS], csv->names[at[FINDINGS]], labels, err);
}

static enum chex_status parse_records(struct chex_label_table *t, struct chex_csv *csv,
                                      struct layout *l, struct chex_error *err) {
    CHEX_TRY(chex_csv_header(csv, err));
    CHEX_TRY(find_roles(l, csv, err));
    CHEX_TRY(find_classes(l, t, csv, err));
    for (bool more;;) {
        CHEX_TRY(chex_csv_row(csv, &more, err));
        if (!more)
            break;
        CHEX_TRY(parse_row(t, csv, l, err));
    }
    size_t n = strlen(t->detected);
    char image[48], patient[48];
    snprintf(
        t->detected + n, sizeof t->detected - n, ", image in '%s', patient in %s%s%s, %zu findings",
        chex_text_shown(csv->names[l->at[IMAGE]], image, sizeof image),
        l->at[PATIENT] < 0 ? "the image's name" : "'",
        l->at[PATIENT] < 0 ? ""
                           : chex_text_shown(csv->names[l->at[PATIENT]], patient, sizeof patient),
        l->at[PATIENT] < 0 ? "" : "'", t->class_count);
    if (l->at[SPLIT] >= 0)
        t->split_source = chex_labels_format(t, "column '%s'", csv->names[l->at[SPLIT]]);
    return l->at[SPLIT] < 0 || t->split_source ? CHEX_OK : chex_labels_no_memory(t, err);
}

static enum chex_status parse(struct chex_label_table *t, const struct chex_label_source *source,
                              struct chex_error *err) {
    struct chex_csv csv;
    struct layout l = {.spec = strdup(source->columns ? source->columns : "")};
    if (!l.spec)
        return chex_labels_no_memory(t, err);
    chex_csv_init(&csv, t->path, source->text, source->size);
    enum chex_status st = parse_spec(&l, source->columns, err);
    if (st == CHEX_OK)
        st = parse_records(t, &csv, &l, err);
    chex_label_flags_release(&l.flags);
    chex_csv_release(&csv);
    free(l.class_names);
    free(l.class_of);
    free(l.spec);
    return st;
}

const struct chex_label_format chex_label_format_csv = {
    .name = "csv",
    .expects = "'image' and named findings, or --columns",
    .takes_columns = true,
    .general = true,
    .detect = detect,
    .parse = parse,
};
