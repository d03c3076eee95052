/* SPDX-License-Identifier: Apache-2.0
 *
 * The interface between labels.c and the label formats. To add a format, write one file
 * labels_NAME.c with one struct chex_label_format, and add one line to the list below.
 *
 * Formats use three groups of helpers, declared here: building a table (labels_table.c), fields
 * that mean the same in many formats (labels_fields.c), and one-hot columns (labels_flags.c).
 */
#ifndef CHEX_LABEL_LABELS_FORMAT_H
#define CHEX_LABEL_LABELS_FORMAT_H

#include <stdbool.h>

#include "label/classes.h"
#include "label/csv.h"
#include "label/labels.h"

/* Every format, in the order of --help: X(NAME) for chex_label_format_NAME in labels_NAME.c. */
#define CHEX_LABEL_FORMATS(X)                                                                      \
    X(nih)                                                                                         \
    X(list)                                                                                        \
    X(chexpert)                                                                                    \
    X(mimic)                                                                                       \
    X(vindr)                                                                                       \
    X(padchest)                                                                                    \
    X(csv)

/* The first line of a file that is not empty, without byte order mark. */
struct chex_label_header {
    const char *line;
    char **names; /* (count) column names; count is 0 if the line is not CSV */
    size_t count;
    const char *fault; /* the error if the line is not CSV, else NULL */
};
bool chex_label_header_has(const struct chex_label_header *header, const char *name);

struct chex_label_input {
    char *text; /* ends in a NUL; owned by the table, so rows may point into it */
    size_t size;
    struct chex_csv *csv; /* a parser at the start of the text, which the caller releases */
    const char *columns;  /* --columns, or NULL */
};

struct chex_label_format {
    const char *name;
    const char *expects; /* "columns 'Image Index', ...": ends the texts of wrong files */
    bool takes_columns;  /* reads --columns; "auto" with --columns chooses this format */
    bool general;        /* "auto" asks it only if no other format matches */
    const char *mined;   /* "CheXpert's labels", if a program mined them from reports; or NULL */
    const char *const *unread; /* known columns that are not read and not reported; NULL: none */
    /* True if the header is of this format. Writes the reason to `why`. */
    bool (*detect)(const struct chex_label_header *header, char *why, size_t why_size);
    /* Adds the rows of the input. */
    enum chex_status (*parse)(struct chex_label_table *table, const struct chex_label_input *input,
                              struct chex_error *err);
};

#define CHEX_LABEL_DECLARE(name) extern const struct chex_label_format chex_label_format_##name;
CHEX_LABEL_FORMATS(CHEX_LABEL_DECLARE)
#undef CHEX_LABEL_DECLARE

/* ---- building a table: labels_table.c ---- */

/* Creates a table without text and rows. Its classes are the 14. */
enum chex_status chex_labels_new(const char *path, struct chex_label_table **table_out,
                                 struct chex_error *err);

/* Completes a table after the last row: sets the rows' label pointers and makes ids unique.
 * - CHEX_E_DATA: no rows, an image that is there twice, an id that a shard cannot store. */
enum chex_status chex_labels_finish(struct chex_label_table *table, struct chex_error *err);

/* Sets the table's classes to the canonical names of names[0..count). Call it before the first row.
 * - Order: those of the 14 first, in their order; then the others, in the order of `names`.
 * - class_of_out (count): the class of each name.
 * - CHEX_E_DATA: no name, too many, a name that cannot be a class, two names of one class. */
enum chex_status chex_labels_set_classes(struct chex_label_table *table, const char *const *names,
                                         size_t count, size_t *class_of_out,
                                         struct chex_error *err);

/* Adds a row with labels 0 and all else unknown. *row_out and *labels_out (class_count) are valid
 * until the next row is added. */
enum chex_status chex_labels_add_row(struct chex_label_table *table, size_t line,
                                     struct chex_label_row **row_out, int8_t **labels_out,
                                     struct chex_error *err);

/* The labels of row i while the table is being built. */
int8_t *chex_labels_of(const struct chex_label_table *table, size_t row);

/* Copies text[0..size) and adds a NUL. The table owns the copy. NULL: out of memory. */
const char *chex_labels_copy(struct chex_label_table *table, const char *text, size_t size);

/* As chex_labels_copy(), with a format as in printf. The text is cut at 4095 bytes. */
const char *chex_labels_format(struct chex_label_table *table, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Sets path and image_id of a row, and patient and study unless they are already set.
 * - In general, the id is the file name, and the patient is the name up to the first '_' (or its
 *   last '.').
 * - CheXpert, .../patient00001/study1/view1.jpg: names repeat in every study. The path begins at
 *   "patient", and the id is this path with '_' for '/'. The study is patient00001/study1.
 * - MIMIC-CXR, .../p10000032/s50414267/ID.jpg: the patient is 10000032, the study 50414267.
 * - CHEX_E_DATA: no valid file name. `column` (from 1) is for the text. */
enum chex_status chex_labels_set_image(struct chex_label_table *table, struct chex_label_row *row,
                                       const char *path, size_t column, struct chex_error *err);

/* Returns a number of fewer than 8 digits padded with zeros to 8, as in file names. Returns any
 * other text unchanged. NULL: out of memory. */
const char *chex_labels_patient(struct chex_label_table *table, const char *text);

/* Sets table->ignored to the columns of the header that are neither in used[0..count) nor in the
 * format's `unread`. used: column numbers; -1 entries are skipped. */
enum chex_status chex_labels_list_ignored(struct chex_label_table *table,
                                          const struct chex_label_format *format,
                                          const struct chex_csv *csv, const int *used, size_t count,
                                          struct chex_error *err);

/* Returns the next line at *at, NUL-terminated without its line end, and advances *at. NULL at the
 * end. Changes the text. */
char *chex_labels_next_line(char **at, char *end);

/* ---- fields: labels_fields.c. False, and the output unchanged, if the text is not valid ---- */

#define CHEX_AGE_EXPECTED "up to 3 digits and perhaps Y, M, W or D"
#define CHEX_SEX_EXPECTED "M or F"
#define CHEX_VIEW_EXPECTED "PA, AP or LL"
#define CHEX_SPLIT_EXPECTED "train, val or test"
#define CHEX_FLAG_EXPECTED "1, 0, -1 or nothing (NA)"

/* In each of them a missing value (chex_csv_is_missing()) counts as empty, and a decimal comma as a
 * point. */

/* "58", "58.0", "58.75", "058Y", "013M", "002W", "021D" to whole years; empty is unknown. */
bool chex_field_age(const char *text, int *years_out);

/* M, F, Male, Female; empty, O, U, Unknown, Other and None are unknown. Any case. */
bool chex_field_sex(const char *text, char *sex_out);

/* PA, AP, L, LL, LATERAL; empty and "unknown" are unknown. Any case. */
bool chex_field_view(const char *text, enum chex_view *view_out);

/* train, val, valid, validate, validation, dev, test; empty is not stated. Any case. */
bool chex_field_split(const char *text, int8_t *split_out);

/* Sets the labels from a field such as "Effusion|Mass" or "No Finding" (`column` from 0). Changes
 * the field's text. CHEX_E_DATA: a finding that is not a class of the table. */
enum chex_status chex_field_findings(const struct chex_label_table *table, struct chex_csv *csv,
                                     size_t column, const char *column_name, int8_t *labels,
                                     struct chex_error *err);

/* Columns of a header that mean the same in many formats; -1: the file does not have it. */
struct chex_label_columns {
    int image, patient, study, view, age, sex, split;
};

/* Adds a row from these columns of the current record; `image` must be one. CHEX_E_DATA: a field
 * that is not valid, or an empty patient. */
enum chex_status chex_field_row(struct chex_label_table *table, const struct chex_csv *csv,
                                const struct chex_label_columns *at,
                                struct chex_label_row **row_out, int8_t **labels_out,
                                struct chex_error *err);

/* ---- one-hot columns: labels_flags.c ---- */

struct chex_label_flags {
    size_t count;
    int *column;      /* (count) in the header */
    size_t *class_of; /* (count) in the table */
};

/* Finds the columns with these names and makes the names the table's classes. CHEX_E_DATA: a column
 * is missing. */
enum chex_status chex_label_flags_init(struct chex_label_flags *flags,
                                       struct chex_label_table *table, const struct chex_csv *csv,
                                       const char *const *names, size_t count, const char *expects,
                                       struct chex_error *err);
void chex_label_flags_release(struct chex_label_flags *flags);

/* Removes from columns[0..count) the columns that are not one-hot labels: those with a value that
 * is no flag, and those without any 1, 0 or -1.
 * - csv: the header must have been read, the rows not. Rows are parsed from a copy; csv is
 *   unchanged.
 * - CHEX_E_DATA: at least 9 of 10 stated values of a column are flags, but not all. The text has
 * the first other value and its line.
 * - If more than half of the values are flags, table->warning says that the column is not read.
 * - *empty_out: the first column without any value, or -1. */
enum chex_status chex_label_flags_guess(struct chex_label_table *table, const struct chex_csv *csv,
                                        int *columns, size_t *count, int *empty_out,
                                        struct chex_error *err);

/* Calls chex_labels_list_ignored(). The columns that are read are at[0..count) and those of
 * `flags`. */
enum chex_status chex_label_flags_list_ignored(const struct chex_label_flags *flags,
                                               struct chex_label_table *table,
                                               const struct chex_label_format *format,
                                               const struct chex_csv *csv, const int *at,
                                               size_t count, struct chex_error *err);

/* Reads labels (class_count) from the current record. CHEX_E_DATA: a value that is no flag. */
enum chex_status chex_label_flags_read(const struct chex_label_flags *flags,
                                       const struct chex_csv *csv, int8_t *labels,
                                       struct chex_error *err);

#endif
