/* SPDX-License-Identifier: Apache-2.0
 *
 * Label format of PadChest: ImageID, PatientID, Projection, Labels ("['pleural effusion',
 * 'nodule']") among some thirty columns. Of its 193 findings, those that are one of the 14, or a
 * kind of one, are kept. The others are counted, and a warning has the number and the most frequent
 * names. Rows with empty Labels state nothing.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/text.h"
#include "label/labels_format.h"
#include "label/labels_map.h"

#define EXPECTS "PadChest's columns 'ImageID', 'PatientID', 'Projection' and 'Labels'"
#define LIST_EXPECTED "a list such as ['nodule', 'pleural effusion']"

enum column { IMAGE, PATIENT, PROJECTION, LABELS, SEX, STUDY_DATE, BIRTH, STUDY, COLUMNS };
static const char *const column_names[COLUMNS] = {
    "ImageID",          "PatientID",       "Projection",   "Labels",
    "PatientSex_DICOM", "StudyDate_DICOM", "PatientBirth", "StudyID"};

/* Findings below one of the 14 in PadChest's tree of findings. A report that states the kind does
 * not also state the parent. "subcutaneous emphysema" and "mediastinal mass" do not belong here. */
static const struct {
    const char *kind, *name;
} kinds[] = {
    {"laminar atelectasis", "Atelectasis"},
    {"lobar atelectasis", "Atelectasis"},
    {"round atelectasis", "Atelectasis"},
    {"segmental atelectasis", "Atelectasis"},
    {"total atelectasis", "Atelectasis"},
    {"atelectasis basal", "Atelectasis"},
    {"loculated pleural effusion", "Effusion"},
    {"loculated fissural effusion", "Effusion"},
    {"empyema", "Effusion"},
    {"hemothorax", "Effusion"},
    {"hydropneumothorax", "Effusion"},
    {"hydropneumothorax", "Pneumothorax"},
    {"multiple nodules", "Nodule"},
    {"atypical pneumonia", "Pneumonia"},
    {"apical pleural thickening", "Pleural_Thickening"},
    {"calcified pleural thickening", "Pleural_Thickening"},
};

/* A finding that is none of the 14, and how often it is stated. */
struct other {
    const char *name; /* in the table's text */
    size_t count;
};

struct totals {
    struct chex_label_map names; /* index in `other` */
    struct other *other;         /* (names.count) */
    size_t capacity, others;     /* others: sum of their counts */
    size_t unstated;             /* rows with empty Labels */
};

static bool detect(const struct chex_label_header *h, char *why, size_t why_size) {
    if (!chex_label_header_has(h, "ImageID") || !chex_label_header_has(h, "Labels") ||
        !chex_label_header_has(h, "Projection"))
        return false;
    snprintf(why, why_size, "a header with 'ImageID', 'Projection' and 'Labels'");
    return true;
}

static enum chex_view parse_projection(const char *text) {
    if (!strcmp(text, "PA"))
        return CHEX_VIEW_PA;
    if (!strncmp(text, "AP", 2)) /* AP_horizontal */
        return CHEX_VIEW_AP;
    return !strcmp(text, "L") ? CHEX_VIEW_LATERAL : CHEX_VIEW_UNKNOWN;
}

static enum chex_status count_other(struct totals *totals, const char *name,
                                    struct chex_error *err) {
    size_t at;
    const size_t next = totals->names.count;
    if (!chex_alloc_grow(&totals->other, next, &totals->capacity, sizeof *totals->other))
        return chex_error_memory(err, "the findings of PadChest");
    CHEX_TRY(chex_label_map_add(&totals->names, name, next, &at, err));
    if (at == next)
        totals->other[at] = (struct other){.name = name};
    totals->other[at].count++;
    totals->others++;
    return CHEX_OK;
}

static enum chex_status add_finding(char *name, int8_t *labels, struct totals *totals,
                                    struct chex_error *err) {
    name += strspn(name, " ");
    size_t n = strlen(name);
    while (n && name[n - 1] == ' ')
        name[--n] = '\0';
    int c = chex_class_find(name);
    bool known = c >= 0;
    if (known)
        labels[c] = 1;
    for (size_t i = 0; c < 0 && i < sizeof kinds / sizeof kinds[0]; i++)
        if (!strcmp(kinds[i].kind, name)) {
            labels[chex_class_find(kinds[i].name)] = 1;
            known = true;
        }
    if (!known && *name && strcmp(name, "normal") != 0)
        return count_other(totals, name, err);
    return CHEX_OK;
}

/* Parses a list of strings in single or double quotes. Changes the text. *valid_out: whether the
 * text is such a list. */
static enum chex_status parse_list(char *p, int8_t *labels, struct totals *totals, bool *valid_out,
                                   struct chex_error *err) {
    *valid_out = false;
    if (*p++ != '[')
        return CHEX_OK;
    p += strspn(p, " ");
    bool last = *p == ']';
    while (!last) {
        char quote = *p, *stop = quote == '\'' || quote == '"' ? strchr(p + 1, quote) : NULL;
        if (!stop)
            return CHEX_OK;
        *stop = '\0';
        CHEX_TRY(add_finding(p + 1, labels, totals, err));
        p = stop + 1 + strspn(stop + 1, " ");
        last = *p == ']';
        if (!last && *p++ != ',')
            return CHEX_OK;
        p += last ? 0 : strspn(p, " ");
    }
    *valid_out = !p[1];
    return CHEX_OK;
}

/* Computes the age from "20140915" and "1958" or "1958.0". Unknown if one of them is empty. */
static bool parse_age(const char *study, const char *birth, int *years_out) {
    size_t n = strspn(birth, "0123456789"), m = strspn(study, "0123456789");
    bool plain = n == 4 && (!birth[4] || !strcmp(birth + 4, ".0"));
    if (!*birth || !*study)
        return true;
    if (!plain || m != 8 || study[8])
        return false;
    char year[5] = "";
    memcpy(year, study, 4);
    int years = atoi(year) - atoi(birth);
    if (years < 0)
        return false;
    *years_out = years;
    return true;
}

static enum chex_status parse_row(struct chex_label_table *t, const struct chex_csv *csv,
                                  const int at[COLUMNS], struct totals *totals,
                                  struct chex_error *err) {
    struct chex_label_row *row;
    int8_t *labels;
    char *list = csv->fields[at[LABELS]];
    const struct chex_label_columns columns = {at[IMAGE], at[PATIENT], at[STUDY], -1,
                                               -1,        at[SEX],     -1};
    CHEX_TRY(chex_field_row(t, csv, &columns, &row, &labels, err));
    row->view = parse_projection(csv->fields[at[PROJECTION]]);
    if (at[STUDY_DATE] >= 0 && at[BIRTH] >= 0 &&
        !parse_age(csv->fields[at[STUDY_DATE]], csv->fields[at[BIRTH]], &row->age_years))
        return chex_csv_fault(csv, at[BIRTH], "a year not after StudyDate_DICOM (YYYYMMDD)", err);
    if (chex_csv_is_missing(list) || !strcmp(list, "[]")) {
        memset(labels, CHEX_LABEL_NOT_STATED, t->class_count);
        totals->unstated++;
        return CHEX_OK;
    }
    char whole[64];
    chex_text_printable(list, whole, sizeof whole);
    bool valid;
    CHEX_TRY(parse_list(list, labels, totals, &valid, err));
    if (!valid)
        return chex_text_fault(csv->path, csv->line, (size_t)at[LABELS] + 1, column_names[LABELS],
                               whole, LIST_EXPECTED, err);
    return CHEX_OK;
}

static int by_count(const void *a, const void *b) {
    const struct other *x = a, *y = b;
    return x->count != y->count ? (x->count < y->count ? 1 : -1) : strcmp(x->name, y->name);
}

/* Sorts totals->other, so the map is of no use afterwards. */
static void warn_of_others(struct chex_label_table *t, struct totals *totals) {
    enum { SHOWN = 5 };
    char name[40];
    struct chex_text_line line = {t->warning, sizeof t->warning, 0};
    const size_t count = totals->names.count;
    chex_text_append(&line, "only the 14 findings are kept");
    if (count) {
        qsort(totals->other, count, sizeof *totals->other, by_count);
        chex_text_append(&line, "; %zu mention%s of %zu other%s left out (", totals->others,
                         chex_text_s(totals->others), count, totals->others == 1 ? " is" : "s are");
        for (size_t i = 0; i < count && i < SHOWN; i++)
            chex_text_append(&line, "%s%s: %zu", i ? ", " : "",
                             chex_text_printable(totals->other[i].name, name, sizeof name),
                             totals->other[i].count);
        chex_text_append(&line, "%s)", count > SHOWN ? ", ..." : "");
    }
    if (totals->unstated)
        chex_text_append(&line, "; %zu image%s no finding", totals->unstated,
                         totals->unstated == 1 ? " states" : "s state");
}

static void release(struct totals *totals) {
    chex_label_map_release(&totals->names);
    free(totals->other);
}

static enum chex_status parse(struct chex_label_table *t, const struct chex_label_input *input,
                              struct chex_error *err) {
    CHEX_AUTO(release) struct totals totals = {0};
    struct chex_csv *csv = input->csv;
    int at[COLUMNS];
    CHEX_TRY(chex_csv_header(csv, err));
    for (int c = 0; c < COLUMNS; c++)
        CHEX_TRY(chex_csv_find(csv, column_names[c], c <= LABELS ? EXPECTS : NULL, &at[c], err));
    CHEX_TRY(chex_labels_list_ignored(t, &chex_label_format_padchest, csv, at, COLUMNS, err));
    for (bool more;;) {
        CHEX_TRY(chex_csv_row(csv, &more, err));
        if (!more)
            break;
        CHEX_TRY(parse_row(t, csv, at, &totals, err));
    }
    if (totals.others || totals.unstated)
        warn_of_others(t, &totals);
    return CHEX_OK;
}

static const char *const unread[] = {"ImageDir",
                                     "ViewPosition_DICOM",
                                     "MethodProjection",
                                     "Pediatric",
                                     "Modality_DICOM",
                                     "Manufacturer_DICOM",
                                     "PhotometricInterpretation_DICOM",
                                     "PixelRepresentation_DICOM",
                                     "PixelAspectRatio_DICOM",
                                     "SpatialResolution_DICOM",
                                     "BitsStored_DICOM",
                                     "WindowCenter_DICOM",
                                     "WindowWidth_DICOM",
                                     "Rows_DICOM",
                                     "Columns_DICOM",
                                     "XRayTubeCurrent_DICOM",
                                     "Exposure_DICOM",
                                     "ExposureInuAs_DICOM",
                                     "ExposureTime",
                                     "RelativeXRayExposure_DICOM",
                                     "ReportID",
                                     "Report",
                                     "MethodLabel",
                                     "Localizations",
                                     "LabelsLocalizationsBySentence",
                                     "labelCUIS",
                                     "LocalizationsCUIS",
                                     NULL};

const struct chex_label_format chex_label_format_padchest = {
    .name = "padchest",
    .expects = "'ImageID', 'Projection', 'Labels'",
    .mined = "Most of PadChest's labels",
    .unread = unread,
    .detect = detect,
    .parse = parse,
};
