/* SPDX-License-Identifier: Apache-2.0
 *
 * Label format of any table with a header. --columns assigns columns to roles, as a comma-separated
 * list of ROLE=NAME:
 *   image      file name; required
 *   patient    without it: the file name up to its first '_'
 *   study, view, age, sex, split
 *   findings   names separated by '|', or "No Finding"
 *   labels     A:B:C: one-hot columns of 1, 0, -1 or empty. With `findings`: the names allowed in
 *              that column, instead of the 14
 *
 * A role that is not given is searched under its own name (also image_id, patient_id, study_id,
 * age_years), without regard to case, blanks and underscores. Without `labels` and `findings`, the
 * findings are:
 *   - all columns with the name of one of the 14;
 *   - other columns in which every value is 1, 0, -1 or empty, and at least one is not empty. A
 *     column with a word of other_words in its name is never a finding. If at least 9 of 10 values
 *     of a column are such values, another value is an error; if more than half, a warning.
 * All other columns are ignored, and the log lists them.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "base/text.h"
#include "label/labels_format.h"

enum role { IMAGE, PATIENT, STUDY, VIEW, AGE, SEX, SPLIT, FINDINGS, LABELS, ROLES };

static const char *const role_names[ROLES] = {"image", "patient", "study",    "view",  "age",
                                              "sex",   "split",   "findings", "labels"};
static const char *const other_names[ROLES] = {
    [IMAGE] = "image_id", [PATIENT] = "patient_id", [STUDY] = "study_id", [AGE] = "age_years"};

/* A column with one of these words in its name is no finding, even if all values are 0 or 1: in a
 * small table a follow-up number may be, and so may a sex. */
static const char *const other_words[] = {"age",      "sex",   "gender", "male",   "female",
                                          "view",     "id",    "follow", "number", "index",
                                          "followup", "visit", "width",  "height", "unnamed"};

struct layout {
    char *spec;               /* copy of --columns, split in place */
    char *wanted[ROLES];      /* names from --columns, or NULL */
    int at[LABELS];           /* column number of each role; -1: none */
    const char **class_names; /* (class_name_count) */
    size_t class_name_count;
    struct chex_label_flags flags; /* used if there is no column of findings */
    size_t *class_of;
};

static void release(struct layout *l) {
    chex_label_flags_release(&l->flags);
    CHEX_FREE(l->class_names, l->class_of, l->spec);
}

/* Returns the name of the column that has the role's own name; NULL if there is none. */
static const char *own_column(char *const *names, size_t count, int role) {
    const char *const tried[] = {role_names[role], other_names[role]};
    for (int k = 0; k < 2; k++)
        for (size_t i = 0; tried[k] && i < count; i++)
            if (chex_names_match(names[i], tried[k]))
                return names[i];
    return NULL;
}

static bool detect(const struct chex_label_header *h, char *why, size_t why_size) {
    const char *image = own_column(h->names, h->count, IMAGE);
    char shown[48];
    if (!image || h->count < 2)
        return false;
    snprintf(why, why_size, "a header with '%s'%s", chex_text_printable(image, shown, sizeof shown),
             own_column(h->names, h->count, FINDINGS) ? " and 'findings'" : "");
    return true;
}

/* ---- --columns ---- */

static enum chex_status bad_spec(const char *spec, const char *word, const char *what,
                                 struct chex_error *err) {
    return chex_error_set(
        err, CHEX_E_USAGE,
        "--columns '%s': '%s' %s, expected a comma-separated list of ROLE=NAME, ROLE one "
        "of image, patient, study, view, age, sex, split, findings, labels",
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
                               chex_text_printable(csv->names[i], name, sizeof name));
    return chex_error_data(err,
                           "%s: line 1: the header has no column for %s, expected one named so or "
                           "by --columns %s=NAME; there are %zu: %s",
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
            continue; /* labels= is given: do not guess another column */
        const char *own = own_column(csv->names, csv->name_count, r);
        if (own)
            CHEX_TRY(chex_csv_find(csv, own, NULL, &l->at[r], err));
    }
    return l->at[IMAGE] >= 0 ? CHEX_OK : missing(csv, IMAGE, err);
}

/* True if the name contains a word of other_words or is empty. A word is a run of letters. */
static bool names_other(const char *name) {
    for (const char *p = name; *p;) {
        size_t n = 0;
        while (isalpha((unsigned char)p[n]))
            n++;
        for (size_t i = 0; i < sizeof other_words / sizeof other_words[0]; i++)
            if (strlen(other_words[i]) == n && !strncasecmp(p, other_words[i], n))
                return true;
        p += n ? n : 1;
    }
    return !*name;
}

static bool is_role(const struct layout *l, size_t column) {
    for (int r = 0; r < LABELS; r++)
        if (l->at[r] == (int)column)
            return true;
    return false;
}

/* Finds the columns with labels if --columns does not name them. columns: capacity for all columns.
 */
static enum chex_status guess_columns(const struct layout *l, struct chex_label_table *t,
                                      const struct chex_csv *csv, int *columns, size_t *count_out,
                                      int *empty_out, struct chex_error *err) {
    size_t others = 0, count = 0;
    CHEX_AUTO_FREE int *other = calloc(csv->name_count, sizeof *other);
    if (!other)
        return chex_error_memory(err, "%s", t->path);
    for (size_t i = 0; i < csv->name_count; i++)
        if (!is_role(l, i) && chex_class_find(csv->names[i]) < 0 && !names_other(csv->names[i]))
            other[others++] = (int)i;
    enum chex_status st = chex_label_flags_guess(t, csv, other, &others, empty_out, err);
    for (size_t i = 0, next = 0; i < csv->name_count; i++) {
        const bool found = next < others && other[next] == (int)i;
        if (found || (!is_role(l, i) && chex_class_find(csv->names[i]) >= 0))
            columns[count++] = (int)i;
        next += found;
    }
    *count_out = count;
    return st;
}

/* empty: a column that may hold findings and has no value, or -1. */
static enum chex_status no_labels(const struct chex_csv *csv, int empty, struct chex_error *err) {
    char name[48];
    if (csv->at + strspn(csv->at, "\r\n") == csv->end)
        return chex_error_data(err, "%s: a header and no row, expected one for each image",
                               csv->path);
    if (empty >= 0)
        return chex_error_data(
            err,
            "%s: no column holds labels: every cell of column '%s' is empty, expected 1, 0 or -1",
            csv->path, chex_text_printable(csv->names[empty], name, sizeof name));
    return chex_error_data(
        err,
        "%s: no column holds labels (every value 1, 0, -1 or empty); name the columns by --columns "
        "labels=A:B, or by --columns findings=NAME one with names such as Effusion|Mass",
        csv->path);
}

/* Lists the names of the classes: those in --columns labels=, or those of the columns with labels.
 */
static enum chex_status list_classes(struct layout *l, struct chex_label_table *t,
                                     const struct chex_csv *csv, struct chex_error *err) {
    size_t capacity = csv->name_count + (l->wanted[LABELS] ? strlen(l->wanted[LABELS]) : 0) + 1;
    char *save = NULL;
    if (!(l->class_names = calloc(capacity, sizeof *l->class_names)))
        return chex_error_memory(err, "%s", t->path);
    if (l->wanted[LABELS]) {
        for (char *w = strtok_r(l->wanted[LABELS], ":", &save); w; w = strtok_r(NULL, ":", &save))
            l->class_names[l->class_name_count++] = w;
        return l->class_name_count ? CHEX_OK : missing(csv, LABELS, err);
    }
    CHEX_AUTO_FREE int *columns = calloc(capacity, sizeof *columns);
    int empty = -1;
    if (!columns)
        return chex_error_memory(err, "%s", t->path);
    CHEX_TRY(guess_columns(l, t, csv, columns, &l->class_name_count, &empty, err));
    for (size_t i = 0; i < l->class_name_count; i++)
        l->class_names[i] = csv->names[columns[i]];
    return l->class_name_count ? CHEX_OK : no_labels(csv, empty, err);
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
        return chex_error_memory(err, "%s", t->path);
    return chex_labels_set_classes(t, l->class_names, l->class_name_count, l->class_of, err);
}

/* ---- rows ---- */

static enum chex_status parse_row(struct chex_label_table *t, struct chex_csv *csv,
                                  const struct layout *l, struct chex_error *err) {
    const int *at = l->at;
    const struct chex_label_columns columns = {at[IMAGE], at[PATIENT], at[STUDY], at[VIEW],
                                               at[AGE],   at[SEX],     at[SPLIT]};
    struct chex_label_row *row;
    int8_t *labels;
    CHEX_TRY(chex_field_row(t, csv, &columns, &row, &labels, err));
    if (at[FINDINGS] < 0)
        return chex_label_flags_read(&l->flags, csv, labels, err);
    return chex_field_findings(t, csv, (size_t)at[FINDINGS], csv->names[at[FINDINGS]], labels, err);
}

/* Appends to the table's `detected` which column was used for which role. */
static void describe(struct chex_label_table *t, const struct chex_csv *csv,
                     const struct layout *l) {
    char image[48], patient[48] = "", own[160] = "";
    size_t n = strlen(t->detected), at = 0;
    chex_text_printable(csv->names[l->at[IMAGE]], image, sizeof image);
    if (l->at[PATIENT] >= 0)
        chex_text_printable(csv->names[l->at[PATIENT]], patient, sizeof patient);
    for (size_t c = 0; c < t->class_count && at < sizeof own; c++)
        if (chex_class_find(t->classes[c]) < 0)
            at += (size_t)snprintf(own + at, sizeof own - at, "%s%s",
                                   at ? ", " : ", own findings: ", t->classes[c]);
    if (at >= sizeof own)
        strcpy(own + sizeof own - 4, "...");
    snprintf(t->detected + n, sizeof t->detected - n, ", image in '%s', patient in %s%s%s", image,
             *patient ? "'" : "", *patient ? patient : "the image's name", *patient ? "'" : "");
    n = strlen(t->detected);
    snprintf(t->detected + n, sizeof t->detected - n, ", %zu finding%s%s", t->class_count,
             chex_text_s(t->class_count), own);
}

static enum chex_status parse_records(struct chex_label_table *t, struct chex_csv *csv,
                                      struct layout *l, struct chex_error *err) {
    CHEX_TRY(chex_csv_header(csv, err));
    CHEX_TRY(find_roles(l, csv, err));
    CHEX_TRY(find_classes(l, t, csv, err));
    CHEX_TRY(chex_label_flags_list_ignored(&l->flags, t, &chex_label_format_csv, csv, l->at, LABELS,
                                           err));
    for (bool more;;) {
        CHEX_TRY(chex_csv_row(csv, &more, err));
        if (!more)
            break;
        CHEX_TRY(parse_row(t, csv, l, err));
    }
    describe(t, csv, l);
    if (l->at[SPLIT] >= 0)
        t->split_from = chex_labels_format(t, "column '%s'", csv->names[l->at[SPLIT]]);
    return l->at[SPLIT] < 0 || t->split_from ? CHEX_OK : chex_error_memory(err, "%s", t->path);
}

static enum chex_status parse(struct chex_label_table *t, const struct chex_label_input *input,
                              struct chex_error *err) {
    CHEX_AUTO(release) struct layout l = {.spec = strdup(input->columns ? input->columns : "")};
    if (!l.spec)
        return chex_error_memory(err, "%s", t->path);
    CHEX_TRY(parse_spec(&l, input->columns, err));
    return parse_records(t, input->csv, &l, err);
}

const struct chex_label_format chex_label_format_csv = {
    .name = "csv",
    .expects = "'image' and named findings, or --columns",
    .takes_columns = true,
    .general = true,
    .detect = detect,
    .parse = parse,
};
