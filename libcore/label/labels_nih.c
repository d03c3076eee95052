/* SPDX-License-Identifier: Apache-2.0
 *
 * Label format of ChestX-ray14, in the forms that the NIH has published:
 *   Data_Entry_2017.csv        ages as "058Y", a comma at the end of each line
 *   its later edition          ages as "58", no such comma
 *   Data_Entry_2017_v2020.csv  "Patient Sex" for "Patient Gender"
 * The header's last two names, OriginalImage[Width,Height] and OriginalImagePixelSpacing[x,y], hold
 * an unquoted comma each: 9 names, but 11 fields in every row. Parsed as CSV the header also has 11
 * fields. If another program saved the file, the two names may be quoted: then the header has 9
 * fields and the rows have 11.
 */
#include <stdio.h>
#include <string.h>

#include "label/labels_format.h"

enum column { IMAGE, FINDINGS, PATIENT, AGE, SEX, VIEW, COLUMNS };

static const char *const column_names[COLUMNS][2] = {
    [IMAGE] = {"Image Index", NULL},           [FINDINGS] = {"Finding Labels", NULL},
    [PATIENT] = {"Patient ID", NULL},          [AGE] = {"Patient Age", NULL},
    [SEX] = {"Patient Gender", "Patient Sex"}, [VIEW] = {"View Position", NULL},
};

struct layout {
    int at[COLUMNS]; /* field of a row; -1: the file has no such column */
    size_t width;    /* fields of a row, without the empty one after a final comma */
};

static bool detect(const struct chex_label_header *h, char *why, size_t why_size) {
    if (!chex_label_header_has(h, "Image Index") || !chex_label_header_has(h, "Finding Labels"))
        return false;
    /* Count the intended names: a comma inside brackets does not separate. */
    size_t names = 1, fields = 1;
    bool inside = false;
    for (const char *p = h->line; *p; p++) {
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

/* The fields are those of the header: n without the one after a final comma. Header and rows may
 * have different numbers of fields, so columns are compared by name only. */
static enum chex_status list_ignored(struct chex_label_table *t, const struct chex_csv *csv,
                                     size_t n, struct chex_error *err) {
    const struct chex_csv header = {.path = csv->path, .names = csv->fields, .name_count = n};
    return chex_labels_list_ignored(t, &chex_label_format_nih, &header, NULL, 0, err);
}

static enum chex_status read_header(struct chex_label_table *t, const struct chex_csv *csv,
                                    struct layout *layout, struct chex_error *err) {
    for (int c = 0; c < COLUMNS; c++)
        layout->at[c] = -1;
    size_t n = width_without_final_comma(csv), at = 0;
    for (size_t i = 0; i < n; i++, at++) {
        for (int c = 0; c < COLUMNS; c++)
            for (int k = 0; k < 2 && column_names[c][k]; k++)
                if (!strcmp(csv->fields[i], column_names[c][k]))
                    layout->at[c] = (int)at;
        /* A quoted name with a comma: the rows have two fields for it. */
        at += strchr(csv->fields[i], '[') && strchr(csv->fields[i], ',');
    }
    layout->width = at;
    CHEX_TRY(list_ignored(t, csv, n, err));
    for (int c = IMAGE; c <= PATIENT; c++)
        if (layout->at[c] < 0)
            return chex_error_set(
                err, CHEX_E_DATA, "%s: line %zu: the header has no column '%s', expected %s",
                t->path, csv->line, column_names[c][0], chex_label_format_nih.expects);
    return CHEX_OK;
}

static enum chex_status parse_row(struct chex_label_table *t, struct chex_csv *csv,
                                  const struct layout *layout, struct chex_error *err) {
    struct chex_label_row *row;
    int8_t *labels;
    static char none[1] = "";
    char *field[COLUMNS];
    for (int c = 0; c < COLUMNS; c++)
        field[c] = layout->at[c] < 0 ? none : csv->fields[layout->at[c]];
#define FAULT(c, expected)                                                                         \
    chex_text_fault(t->path, csv->line, (size_t)layout->at[c] + 1, column_names[c][0], field[c],   \
                    expected, err)
    CHEX_TRY(chex_labels_add_row(t, csv->line, &row, &labels, err));
    if (!*field[PATIENT])
        return FAULT(PATIENT, "a patient id");
    if (!(row->patient_id = chex_labels_patient(t, field[PATIENT])))
        return chex_error_memory(err, "%s", t->path);
    CHEX_TRY(chex_labels_set_image(t, row, field[IMAGE], (size_t)layout->at[IMAGE] + 1, err));
    CHEX_TRY(chex_field_findings(t, csv, (size_t)layout->at[FINDINGS], column_names[FINDINGS][0],
                                 labels, err));
    if (!chex_field_age(field[AGE], &row->age_years))
        return FAULT(AGE, CHEX_AGE_EXPECTED);
    if (!chex_field_sex(field[SEX], &row->sex))
        return FAULT(SEX, CHEX_SEX_EXPECTED);
    if (!chex_field_view(field[VIEW], &row->view))
        return FAULT(VIEW, CHEX_VIEW_EXPECTED);
#undef FAULT
    return CHEX_OK;
}

static enum chex_status parse(struct chex_label_table *t, const struct chex_label_source *source,
                              struct chex_error *err) {
    struct chex_csv *csv = source->csv;
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

/* All columns of all editions, read or not. A name with a comma is also listed as two halves. */
static const char *const known_columns[] = {"Image Index",
                                            "Finding Labels",
                                            "Follow-up #",
                                            "Patient ID",
                                            "Patient Age",
                                            "Patient Gender",
                                            "Patient Sex",
                                            "View Position",
                                            "OriginalImage[Width",
                                            "Height]",
                                            "OriginalImagePixelSpacing[x",
                                            "y]",
                                            "OriginalImage[Width,Height]",
                                            "OriginalImagePixelSpacing[x,y]",
                                            NULL};

const struct chex_label_format chex_label_format_nih = {
    .name = "nih",
    .expects = "columns 'Image Index', 'Finding Labels', 'Patient ID'",
    .mined = "The labels of the NIH's set",
    .unread = known_columns,
    .detect = detect,
    .parse = parse,
};
