/* SPDX-License-Identifier: Apache-2.0
 *
 * Label format of MIMIC-CXR-JPG. It joins three files of one folder:
 *   mimic-cxr-2.0.0-chexpert.csv  (or -negbio.csv) the labels of each study
 *   mimic-cxr-2.0.0-metadata.csv  the images of each study and their views
 *   mimic-cxr-2.0.0-split.csv     train, validate or test of each image; optional
 * Each may be compressed (.csv.gz), as PhysioNet publishes them.
 *
 * Each row of the table is an image of the metadata with the labels of its study. The path of an
 * image is files/p10/p10000032/s50414267/DICOM_ID.jpg.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/fs.h"
#include "base/text.h"
#include "label/labels_format.h"
#include "label/labels_map.h"
#include "label/table_file.h"

#define EXPECTS "MIMIC-CXR's columns 'subject_id', 'study_id' and 14 findings"
#define META_EXPECTS "MIMIC-CXR's columns 'dicom_id', 'subject_id', 'study_id', 'ViewPosition'"
#define SPLIT_EXPECTS "MIMIC-CXR's columns 'dicom_id' and 'split'"

enum { MIN_ID_DIGITS = 3 };

/* One of the two files beside the labels. */
struct file {
    char *path, *text;
    size_t size;
    struct chex_csv csv;
};

struct study {
    const char *subject;
    size_t line;
    int8_t labels[CHEX_CHEXPERT_COUNT]; /* (class_count) */
};

struct join {
    struct chex_label_table *table;
    struct chex_csv *labels;
    struct file meta, split;
    struct chex_label_flags flags;
    struct chex_label_map studies; /* study id to its number */
    struct study *study;
    size_t study_count, study_capacity;
    size_t unlabelled, unsplit; /* images of studies without labels; images without a split */
};

static bool detect(const struct chex_label_header *h, char *why, size_t why_size) {
    if (!chex_label_header_has(h, "subject_id") || !chex_label_header_has(h, "study_id") ||
        chex_label_header_has(h, "dicom_id"))
        return false;
    snprintf(why, why_size, "a header with 'subject_id' and 'study_id'");
    return true;
}

/* ---- files beside the labels ---- */

/* Replaces the last part of the label file's name: "mimic-cxr-2.0.0-chexpert.csv" and "metadata"
 * give "mimic-cxr-2.0.0-metadata.csv" in the same folder. */
static char *name_beside(const struct chex_label_table *t, const char *what, const char *ending) {
    const char *dash = strrchr(t->path, '-');
    int dir = (int)(chex_fs_name(t->path) - t->path);
    if (dash && dash >= t->path + dir)
        return chex_fs_format("%.*s%s%s", (int)(dash - t->path) + 1, t->path, what, ending);
    return chex_fs_format("%.*smimic-cxr-2.0.0-%s%s", dir, t->path, what, ending);
}

/* Chooses the plain file, or the one with .gz if only that one exists. *there_out: whether there is
 * one. */
static enum chex_status find_beside(const struct chex_label_table *t, const char *what,
                                    struct file *file, bool *there_out, struct chex_error *err) {
    char *packed = name_beside(t, what, ".csv.gz"), *plain = name_beside(t, what, ".csv");
    const bool whole = packed && plain, unpacked = whole && chex_fs_exists(plain);
    *there_out = unpacked || (whole && chex_fs_exists(packed));
    file->path = *there_out && !unpacked ? packed : plain;
    free(file->path == plain ? packed : plain);
    return whole ? CHEX_OK : chex_error_memory(err, "%s", t->path);
}

static enum chex_status open_file(struct file *file, struct chex_error *err) {
    CHEX_TRY(chex_table_read(file->path, CHEX_LABELS_MAX_BYTES, &file->text, &file->size, err));
    chex_csv_init(&file->csv, file->path, file->text, file->size);
    chex_csv_log_separator(&file->csv);
    return chex_csv_header(&file->csv, err);
}

static void close_file(struct file *file) {
    chex_csv_release(&file->csv);
    free(file->path);
    free(file->text);
}

/* ---- studies ---- */

static bool is_number(const char *text) {
    size_t n = strlen(text);
    return n >= MIN_ID_DIGITS && n <= 18 && strspn(text, "0123456789") == n;
}

static enum chex_status add_study(struct join *j, int subject, int study, struct chex_error *err) {
    const struct chex_csv *csv = j->labels;
    const char *id = csv->fields[study];
    size_t number;
    if (!is_number(csv->fields[subject]))
        return chex_csv_fault(csv, subject, "a number of 3 to 18 digits", err);
    if (!is_number(id))
        return chex_csv_fault(csv, study, "a number of 3 to 18 digits", err);
    if (!chex_alloc_grow(&j->study, j->study_count, &j->study_capacity, sizeof *j->study))
        return chex_error_memory(err, "%s", j->table->path);
    CHEX_TRY(chex_label_map_add(&j->studies, id, j->study_count, &number, err));
    if (number != j->study_count) {
        char expected[64];
        snprintf(expected, sizeof expected, "each study once (it is on line %zu)",
                 j->study[number].line);
        return chex_csv_fault(csv, study, expected, err);
    }
    j->study[number] = (struct study){.subject = csv->fields[subject], .line = csv->line};
    j->study_count++;
    return chex_label_flags_read(&j->flags, csv, j->study[number].labels, err);
}

static enum chex_status read_studies(struct join *j, struct chex_error *err) {
    struct chex_csv *csv = j->labels;
    int subject, study;
    CHEX_TRY(chex_csv_header(csv, err));
    CHEX_TRY(chex_csv_find(csv, "subject_id", EXPECTS, &subject, err));
    CHEX_TRY(chex_csv_find(csv, "study_id", EXPECTS, &study, err));
    CHEX_TRY(chex_label_flags_init(&j->flags, j->table, csv, chex_class_chexpert,
                                   CHEX_CHEXPERT_COUNT, EXPECTS, err));
    const int ids[] = {subject, study};
    CHEX_TRY(chex_label_flags_list_ignored(&j->flags, j->table, &chex_label_format_mimic, csv, ids,
                                           2, err));
    for (bool more;;) {
        CHEX_TRY(chex_csv_row(csv, &more, err));
        if (!more)
            return CHEX_OK;
        CHEX_TRY(add_study(j, subject, study, err));
    }
}

/* ---- images ---- */

/* "AP AXIAL", "PA LLD", "XTABLE LATERAL": the first or last word is the view. LAO and others are
 * unknown. */
static enum chex_view parse_view(const char *text) {
    size_t n = strlen(text);
    if (!strncmp(text, "PA", 2) && (!text[2] || text[2] == ' '))
        return CHEX_VIEW_PA;
    if (!strncmp(text, "AP", 2) && (!text[2] || text[2] == ' '))
        return CHEX_VIEW_AP;
    if (!strcmp(text, "LL") || (n >= 7 && !strcmp(text + n - 7, "LATERAL")))
        return CHEX_VIEW_LATERAL;
    return CHEX_VIEW_UNKNOWN;
}

enum meta { DICOM, SUBJECT, STUDY, VIEW, META_COLUMNS };

static enum chex_status add_image(struct join *j, const int at[META_COLUMNS],
                                  struct chex_error *err) {
    struct chex_label_table *t = j->table;
    const struct chex_csv *csv = &j->meta.csv;
    const char *dicom = csv->fields[at[DICOM]], *subject = csv->fields[at[SUBJECT]];
    const char *study = csv->fields[at[STUDY]];
    size_t number = chex_label_map_find(&j->studies, study);
    if (number == SIZE_MAX) {
        j->unlabelled++;
        return CHEX_OK;
    }
    if (strcmp(subject, j->study[number].subject) != 0) {
        char expected[96];
        snprintf(expected, sizeof expected, "%s as for study %s in the label file",
                 j->study[number].subject, study);
        return chex_csv_fault(csv, at[SUBJECT], expected, err);
    }
    if (!*dicom || strlen(dicom) > 200 || strchr(dicom, '/'))
        return chex_csv_fault(csv, at[DICOM], "an id of 1 to 200 bytes without '/'", err);
    const char *path =
        chex_labels_format(t, "files/p%.2s/p%s/s%s/%s.jpg", subject, subject, study, dicom);
    struct chex_label_row *row;
    int8_t *labels;
    CHEX_TRY(chex_labels_add_row(t, csv->line, &row, &labels, err));
    row->patient_id = path ? chex_labels_copy(t, subject, strlen(subject)) : NULL;
    row->patient_id = row->patient_id ? chex_labels_patient(t, row->patient_id) : NULL;
    row->study_id = chex_labels_copy(t, study, strlen(study));
    if (!row->patient_id || !row->study_id)
        return chex_error_memory(err, "%s", t->path);
    memcpy(labels, j->study[number].labels, t->class_count);
    row->view = parse_view(csv->fields[at[VIEW]]);
    return chex_labels_set_image(t, row, path, (size_t)at[DICOM] + 1, err);
}

static enum chex_status read_images(struct join *j, struct chex_error *err) {
    static const char *const names[META_COLUMNS] = {"dicom_id", "subject_id", "study_id",
                                                    "ViewPosition"};
    struct chex_csv *csv = &j->meta.csv;
    int at[META_COLUMNS];
    bool there;
    CHEX_TRY(find_beside(j->table, "metadata", &j->meta, &there, err));
    if (!there)
        return chex_error_data(err, "%s: no %s beside it, expected MIMIC-CXR's metadata file there",
                               j->table->path, j->meta.path);
    CHEX_TRY(open_file(&j->meta, err));
    if (!(j->table->rows_path = chex_labels_copy(j->table, j->meta.path, strlen(j->meta.path))))
        return chex_error_memory(err, "%s", j->table->path);
    for (int c = 0; c < META_COLUMNS; c++)
        CHEX_TRY(chex_csv_find(csv, names[c], META_EXPECTS, &at[c], err));
    for (bool more;;) {
        CHEX_TRY(chex_csv_row(csv, &more, err));
        if (!more)
            break;
        CHEX_TRY(add_image(j, at, err));
    }
    if (j->table->count == 0)
        return chex_error_data(err, "%s: no image of a study of %s, expected some", j->meta.path,
                               j->table->path);
    return CHEX_OK;
}

/* ---- splits ---- */

static enum chex_status read_split(struct join *j, const struct chex_label_map *rows,
                                   struct chex_error *err) {
    struct chex_csv *csv = &j->split.csv;
    struct chex_label_table *t = j->table;
    int dicom, split;
    size_t stated = 0;
    CHEX_TRY(chex_csv_find(csv, "dicom_id", SPLIT_EXPECTS, &dicom, err));
    CHEX_TRY(chex_csv_find(csv, "split", SPLIT_EXPECTS, &split, err));
    for (bool more;;) {
        char id[256];
        int8_t value;
        CHEX_TRY(chex_csv_row(csv, &more, err));
        if (!more)
            break;
        if (!chex_field_split(csv->fields[split], &value) || value == CHEX_SPLIT_NOT_STATED)
            return chex_csv_fault(csv, split, "train, validate or test", err);
        snprintf(id, sizeof id, "%.200s.jpg", csv->fields[dicom]);
        const size_t row = chex_label_map_find(rows, id);
        if (row == SIZE_MAX)
            continue;
        struct chex_label_row *mine = &t->rows[row];
        if (mine->split != CHEX_SPLIT_NOT_STATED)
            return chex_csv_fault(csv, dicom, "each image once", err);
        mine->split = value;
        stated++;
    }
    j->unsplit = t->count - stated;
    t->split_from = chex_labels_copy(t, j->split.path, strlen(j->split.path));
    return t->split_from ? CHEX_OK : chex_error_memory(err, "%s", t->path);
}

static enum chex_status read_splits(struct join *j, bool *there_out, struct chex_error *err) {
    CHEX_AUTO(chex_label_map_release) struct chex_label_map rows = {0};
    CHEX_TRY(find_beside(j->table, "split", &j->split, there_out, err));
    if (!*there_out)
        return CHEX_OK;
    CHEX_TRY(open_file(&j->split, err));
    CHEX_TRY(chex_labels_index(j->table, &rows, err));
    return read_split(j, &rows, err);
}

static void describe(const struct join *j, bool splits) {
    struct chex_label_table *t = j->table;
    size_t n = strlen(t->detected), at = 0;
    snprintf(t->detected + n, sizeof t->detected - n, ", %zu %s, images by their metadata%s",
             j->study_count, j->study_count == 1 ? "study" : "studies",
             splits ? ", with splits" : ", no split file");
    if (j->unlabelled)
        at = (size_t)snprintf(t->warning, sizeof t->warning,
                              "%zu image%s of the metadata %s to studies without labels and %s "
                              "left out",
                              j->unlabelled, chex_text_s(j->unlabelled),
                              j->unlabelled == 1 ? "belongs" : "belong",
                              j->unlabelled == 1 ? "is" : "are");
    if (splits && j->unsplit)
        snprintf(t->warning + at, sizeof t->warning - at, "%s%zu image%s not in the split file",
                 at ? "; " : "", j->unsplit, j->unsplit == 1 ? " is" : "s are");
}

static void release(struct join *j) {
    chex_label_map_release(&j->studies);
    chex_label_flags_release(&j->flags);
    close_file(&j->meta);
    close_file(&j->split);
    free(j->study);
}

static enum chex_status parse(struct chex_label_table *t, const struct chex_label_input *input,
                              struct chex_error *err) {
    CHEX_AUTO(release) struct join j = {.table = t, .labels = input->csv};
    bool splits = false;
    CHEX_TRY(read_studies(&j, err));
    CHEX_TRY(read_images(&j, err));
    CHEX_TRY(read_splits(&j, &splits, err));
    describe(&j, splits);
    return CHEX_OK;
}

const struct chex_label_format chex_label_format_mimic = {
    .name = "mimic",
    .expects = "'subject_id', 'study_id'",
    .mined = "MIMIC-CXR's labels",
    .detect = detect,
    .parse = parse,
};
