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
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "label/labels_format.h"

#define EXPECTS "columns 'Image Index', 'Finding Labels', 'Patient ID'"

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

/* Gives csv->names a name for each field of a row, without the one after a final comma. A row has
 * two fields for a quoted name with a comma; the second has the name "". */
static enum chex_status name_fields(struct chex_csv *csv, struct chex_error *err) {
    static char none[1] = "";
    char **names = chex_alloc_zeroed(2 * csv->name_count, sizeof *names);
    size_t count = 0;
    if (!names)
        return chex_error_memory(err, "%s", csv->path);
    for (size_t i = 0; i < csv->name_count; i++) {
        char *name = csv->names[i];
        if (*name || i + 1 < csv->name_count)
            names[count++] = name;
        if (strchr(name, '[') && strchr(name, ','))
            names[count++] = none;
    }
    free(csv->names);
    csv->names = names;
    csv->name_count = count;
    return CHEX_OK;
}

static enum chex_status read_header(struct chex_label_table *t, struct chex_csv *csv,
                                    struct chex_label_columns *at, int *findings_out,
                                    struct chex_error *err) {
    CHEX_TRY(chex_csv_header(csv, err));
    CHEX_TRY(name_fields(csv, err));
    CHEX_TRY(chex_labels_list_ignored(t, &chex_label_format_nih, csv, NULL, 0, err));
    CHEX_TRY(chex_csv_find(csv, "Image Index", EXPECTS, &at->image, err));
    CHEX_TRY(chex_csv_find(csv, "Finding Labels", EXPECTS, findings_out, err));
    CHEX_TRY(chex_csv_find(csv, "Patient ID", EXPECTS, &at->patient, err));
    CHEX_TRY(chex_csv_find(csv, "Patient Age", NULL, &at->age, err));
    CHEX_TRY(chex_csv_find(csv, "View Position", NULL, &at->view, err));
    CHEX_TRY(chex_csv_find(csv, "Patient Gender", NULL, &at->sex, err));
    return at->sex >= 0 ? CHEX_OK : chex_csv_find(csv, "Patient Sex", NULL, &at->sex, err);
}

static enum chex_status parse(struct chex_label_table *t, const struct chex_label_input *input,
                              struct chex_error *err) {
    struct chex_csv *csv = input->csv;
    struct chex_label_columns at = {.study = -1, .split = -1};
    struct chex_label_row *row;
    int8_t *labels;
    int findings;
    CHEX_TRY(read_header(t, csv, &at, &findings, err));
    for (bool more;;) {
        CHEX_TRY(chex_csv_next(csv, &more, err));
        if (!more)
            return CHEX_OK;
        const size_t width = csv->name_count;
        if (csv->count != width && (csv->count != width + 1 || csv->fields[width][0]))
            return chex_error_data(err, "%s: line %zu: %zu columns, expected %zu as in the header",
                                   t->path, csv->line, csv->count, width);
        CHEX_TRY(chex_field_row(t, csv, &at, &row, &labels, err));
        CHEX_TRY(chex_field_findings(t, csv, (size_t)findings, "Finding Labels", labels, err));
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
    .expects = EXPECTS,
    .mined = "The labels of the NIH's set",
    .unread = known_columns,
    .detect = detect,
    .parse = parse,
};
