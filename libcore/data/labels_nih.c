/* SPDX-License-Identifier: Apache-2.0
 *
 * ChestX-ray14's own label file, in the forms the NIH has shipped:
 *   Data_Entry_2017.csv        ages as "058Y", a comma at the end of each line
 *   its later edition          ages as "58", no such comma
 *   Data_Entry_2017_v2020.csv  "Patient Sex" for "Patient Gender"
 * The header's last two names, OriginalImage[Width,Height] and OriginalImagePixelSpacing[x,y], hold
 * a bare comma each: 9 names over rows of 11 fields. Read as CSV the header has 11 fields as well;
 * files saved anew may quote the two names, and then have 9 in the header and 11 in the rows.
 */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data/csv.h"
#include "data/labels_format.h"

enum column { IMAGE, FINDINGS, PATIENT, AGE, SEX, VIEW, COLUMNS };

static const char *const column_names[COLUMNS][2] = {
    [IMAGE] = {"Image Index", NULL},           [FINDINGS] = {"Finding Labels", NULL},
    [PATIENT] = {"Patient ID", NULL},          [AGE] = {"Patient Age", NULL},
    [SEX] = {"Patient Gender", "Patient Sex"}, [VIEW] = {"View Position", NULL},
};

struct layout {
    int at[COLUMNS]; /* field of a row, -1 where the file has no such column */
    size_t width;    /* fields of a row, the empty one behind a final comma not counted */
};

static bool detect(const char *line, char *why, size_t why_size) {
    if (!strstr(line, "Image Index") || !strstr(line, "Finding Labels"))
        return false;
    /* The names as they were meant: a comma within brackets parts nothing. */
    size_t names = 1, fields = 1;
    bool inside = false;
    for (const char *p = line; *p; p++) {
        inside = *p == '[' || (inside && *p != ']');
        if (*p != ',' || !p[1])
            continue;
        fields++;
        names += !inside;
    }
    snprintf(why, why_size, "a header of %zu names over rows of %zu fields with 'Image Index'",
             names, fields);
    return true;
}

static size_t width_without_final_comma(const struct chex_csv *csv) {
    return csv->count && !csv->fields[csv->count - 1][0] ? csv->count - 1 : csv->count;
}

static enum chex_status read_header(const struct chex_label_table *t, const struct chex_csv *csv,
                                    struct layout *layout, struct chex_error *err) {
    for (int c = 0; c < COLUMNS; c++)
        layout->at[c] = -1;
    size_t n = width_without_final_comma(csv), at = 0;
    for (size_t i = 0; i < n; i++, at++) {
        for (int c = 0; c < COLUMNS; c++)
            for (int k = 0; k < 2 && column_names[c][k]; k++)
                if (!strcmp(csv->fields[i], column_names[c][k]))
                    layout->at[c] = (int)at;
        /* A quoted name with its comma: the rows have two fields for it. */
        at += strchr(csv->fields[i], '[') && strchr(csv->fields[i], ',');
    }
    layout->width = at;
    for (int c = IMAGE; c <= PATIENT; c++)
        if (layout->at[c] < 0)
            return chex_error_set(
                err, CHEX_E_DATA, "%s: line %zu: the header has no column '%s', expected %s",
                t->path, csv->line, column_names[c][0], chex_label_format_nih.expects);
    return CHEX_OK;
}

static enum chex_status unknown_finding(const struct chex_label_table *t, size_t line,
                                        size_t column, const char *finding,
                                        struct chex_error *err) {
    char expected[320];
    int nearest = chex_class_nearest(finding);
    if (nearest >= 0)
        snprintf(expected, sizeof expected, "a known finding (perhaps %s) or 'No Finding'",
                 chex_class_names[nearest]);
    else
        snprintf(expected, sizeof expected, "'No Finding' or some of: %s", chex_class_list());
    return chex_labels_fault(t, line, column, "Finding Labels", finding, expected, err);
}

/* "Effusion|Mass" or "No Finding". */
static enum chex_status parse_findings(const struct chex_label_table *t, size_t line, size_t column,
                                       char *text, int8_t *labels, struct chex_error *err) {
    if (!strcmp(text, "No Finding"))
        return CHEX_OK;
    for (char *p = text, *next; p; p = next) {
        next = strchr(p, '|');
        if (next)
            *next++ = '\0';
        int c = chex_class_find(p);
        if (c < 0 && !strcmp(p, "No Finding"))
            return chex_labels_fault(t, line, column, "Finding Labels", p,
                                     "findings or 'No Finding', not both", err);
        if (c < 0)
            return unknown_finding(t, line, column, p, err);
        labels[c] = 1;
    }
    return CHEX_OK;
}

/* "58", "058Y", "013M", "002W", "021D" in whole years; empty is unknown. */
static bool parse_age(const char *text, int *years_out) {
    static const struct {
        char unit;
        int per_year;
    } units[] = {{'\0', 1}, {'Y', 1}, {'M', 12}, {'W', 52}, {'D', 365}};
    if (!*text)
        return true;
    size_t digits = strspn(text, "0123456789");
    if (digits < 1 || digits > 3 || (text[digits] && text[digits + 1]))
        return false;
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++)
        if (toupper((unsigned char)text[digits]) == units[i].unit) {
            *years_out = atoi(text) / units[i].per_year;
            return true;
        }
    return false;
}

static bool parse_sex(const char *text, char *sex_out) {
    if (*text && strcmp(text, "M") != 0 && strcmp(text, "F") != 0)
        return false;
    *sex_out = *text;
    return true;
}

static bool parse_view(const char *text, enum chex_view *view_out) {
    static const struct {
        const char *text;
        enum chex_view view;
    } known[] = {{"", CHEX_VIEW_UNKNOWN},
                 {"PA", CHEX_VIEW_PA},
                 {"AP", CHEX_VIEW_AP},
                 {"LL", CHEX_VIEW_LATERAL},
                 {"LATERAL", CHEX_VIEW_LATERAL}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!strcmp(text, known[i].text)) {
            *view_out = known[i].view;
            return true;
        }
    return false;
}

/* A bare number becomes the 8 digits it has in file names, so that tables of both kinds agree. */
static const char *patient_id(struct chex_label_table *t, const char *text) {
    size_t n = strlen(text);
    if (n >= 8 || strspn(text, "0123456789") != n)
        return text;
    char padded[9] = "00000000";
    memcpy(padded + 8 - n, text, n);
    return chex_labels_copy(t, padded, 8);
}

static enum chex_status parse_row(struct chex_label_table *t, const struct chex_csv *csv,
                                  const struct layout *layout, struct chex_error *err) {
    struct chex_label_row *row;
    int8_t *labels;
    static char none[1] = "";
    char *field[COLUMNS];
    for (int c = 0; c < COLUMNS; c++)
        field[c] = layout->at[c] < 0 ? none : csv->fields[layout->at[c]];
#define COLUMN(c) csv->line, (size_t)layout->at[c] + 1, column_names[c][0]
    CHEX_TRY(chex_labels_add_row(t, csv->line, &row, &labels, err));
    if (!*field[PATIENT])
        return chex_labels_fault(t, COLUMN(PATIENT), "", "a patient id", err);
    row->patient_id = patient_id(t, field[PATIENT]);
    if (!row->patient_id)
        return chex_error_set(err, CHEX_E_RESOURCE, "%s: out of memory", t->path);
    CHEX_TRY(chex_labels_set_image(t, row, field[IMAGE], err));
    CHEX_TRY(parse_findings(t, csv->line, (size_t)layout->at[FINDINGS] + 1, field[FINDINGS], labels,
                            err));
    if (!parse_age(field[AGE], &row->age_years))
        return chex_labels_fault(t, COLUMN(AGE), field[AGE],
                                 "up to 3 digits and perhaps Y, M, W or D", err);
    if (!parse_sex(field[SEX], &row->sex))
        return chex_labels_fault(t, COLUMN(SEX), field[SEX], "M or F", err);
    if (!parse_view(field[VIEW], &row->view))
        return chex_labels_fault(t, COLUMN(VIEW), field[VIEW], "PA, AP or LL", err);
#undef COLUMN
    return CHEX_OK;
}

static enum chex_status parse_records(struct chex_label_table *t, struct chex_csv *csv,
                                      struct chex_error *err) {
    bool more;
    struct layout layout;
    CHEX_TRY(chex_csv_next(csv, &more, err));
    CHEX_TRY(read_header(t, csv, &layout, err));
    for (;;) {
        CHEX_TRY(chex_csv_next(csv, &more, err));
        if (!more)
            return CHEX_OK;
        if (csv->count != layout.width &&
            (csv->count != layout.width + 1 || csv->fields[layout.width][0]))
            return chex_error_set(err, CHEX_E_DATA,
                                  "%s: line %zu: %zu columns, expected %zu as in the header",
                                  t->path, csv->line, csv->count, layout.width);
        CHEX_TRY(parse_row(t, csv, &layout, err));
    }
}

static enum chex_status parse(struct chex_label_table *t, char *text, size_t size,
                              struct chex_error *err) {
    struct chex_csv csv;
    chex_csv_init(&csv, t->path, text, size);
    enum chex_status st = parse_records(t, &csv, err);
    chex_csv_release(&csv);
    return st;
}

const struct chex_label_format chex_label_format_nih = {
    .name = "nih",
    .expects = "a header with 'Image Index', 'Finding Labels' and 'Patient ID'",
    .detect = detect,
    .parse = parse,
};
