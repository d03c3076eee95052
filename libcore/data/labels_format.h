/* SPDX-License-Identifier: Apache-2.0
 *
 * What a label format is to labels.c: one of these in one file, and one line in the list here; and
 * what the formats are given: building a table (labels_table.c), fields that mean the same in many
 * formats (labels_fields.c) and one-hot columns (labels_flags.c).
 */
#ifndef CHEX_DATA_LABELS_FORMAT_H
#define CHEX_DATA_LABELS_FORMAT_H

#include <stdbool.h>

#include "data/classes.h"
#include "data/csv.h"
#include "data/labels.h"

/* Every format, in the order of --help: X(NAME) for chex_label_format_NAME in labels_NAME.c. */
#define CHEX_LABEL_FORMATS(X)                                                                      \
    X(nih)                                                                                         \
    X(list)                                                                                        \
    X(chexpert)                                                                                    \
    X(mimic)                                                                                       \
    X(vindr)                                                                                       \
    X(padchest)                                                                                    \
    X(csv)

/* The first line of a file that is not blank, without byte order mark. */
struct chex_label_header {
    const char *line;
    char **names; /* (count) read as CSV; count is 0 where it cannot be */
    size_t count;
    const char *fault; /* why it cannot; NULL where it can */
};
bool chex_label_header_has(const struct chex_label_header *header, const char *name);

struct chex_label_source {
    char *text; /* ends in a NUL and belongs to the table: rows may point into it */
    size_t size;
    const char *columns; /* --columns, or NULL */
};

struct chex_label_format {
    const char *name;
    const char *expects; /* "columns 'Image Index', ...": ends the texts of wrong files */
    bool takes_columns;  /* it reads --columns; then it is also what "auto" takes to be meant */
    bool general;        /* "auto" asks it only where no other format fits */
    /* True where the header is this format's; what told so goes to `why`. */
    bool (*detect)(const struct chex_label_header *header, char *why, size_t why_size);
    /* Adds the rows of the source. */
    enum chex_status (*parse)(struct chex_label_table *table,
                              const struct chex_label_source *source, struct chex_error *err);
};

#define CHEX_LABEL_DECLARE(name) extern const struct chex_label_format chex_label_format_##name;
CHEX_LABEL_FORMATS(CHEX_LABEL_DECLARE)
#undef CHEX_LABEL_DECLARE

/* ---- the file: labels_file.c ---- */

/* The whole text of a label file, a gzip file's unpacked, with a NUL behind it; the caller frees.
 * CHEX_E_DATA: damaged gzip, more than 1 GiB, a zip file, UTF-16. */
enum chex_status chex_labels_read(const char *path, char **text_out, size_t *size_out,
                                  struct chex_error *err);

/* ---- building a table: labels_table.c ---- */

/* A table of `path` without text and rows; its classes are the 14. */
enum chex_status chex_labels_new(const char *path, struct chex_label_table **table_out,
                                 struct chex_error *err);

/* Gives the rows their labels and refuses an empty table and an image that stands there twice. */
enum chex_status chex_labels_finish(struct chex_label_table *table, struct chex_error *err);

/* Sets the table's classes to the canonical names of names[0..count): ours first, in our order,
 * then the others in theirs. class_of_out (count) is the class of each name. Before the first row.
 * CHEX_E_DATA: none, too many, a name that cannot be kept, two names of one class. */
enum chex_status chex_labels_set_classes(struct chex_label_table *table, const char *const *names,
                                         size_t count, size_t *class_of_out,
                                         struct chex_error *err);

/* A row of zeros with all else unknown, at *row_out until the next row is added; its labels (1, 0,
 * ...) are at *labels_out for as long. */
enum chex_status chex_labels_add_row(struct chex_label_table *table, size_t line,
                                     struct chex_label_row **row_out, int8_t **labels_out,
                                     struct chex_error *err);

/* The labels of row i while the table is being built. */
int8_t *chex_labels_of(const struct chex_label_table *table, size_t row);

/* A copy of text[0..size) that lives as long as the table; NULL for lack of memory. */
const char *chex_labels_copy(struct chex_label_table *table, const char *text, size_t size);

/* As printf into such a copy. */
const char *chex_labels_format(struct chex_label_table *table, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Sets path, image_id and, unless it is there, the patient. Mostly the id is the name without
 * folders, and the patient what stands before its first '_' (or its '.'). Two sets' own folders are
 * known, in label files and lists alike:
 *   .../patient00001/study1/view1.jpg  CheXpert, whose names repeat from study to study: path from
 *                                      "patient" on, id the same with '_' for '/'
 *   .../p10000032/s50414267/ID.jpg     MIMIC-CXR: patient 10000032
 * `column` (from 1) is for the text of a name that cannot be one. */
enum chex_status chex_labels_set_image(struct chex_label_table *table, struct chex_label_row *row,
                                       const char *path, size_t column, struct chex_error *err);

/* Text that is a number of less than 8 digits with zeros before it, as in file names; else itself.
 * NULL for lack of memory. */
const char *chex_labels_patient(struct chex_label_table *table, const char *text);

enum chex_status chex_labels_no_memory(const struct chex_label_table *table,
                                       struct chex_error *err);

/* The next line of *at as a NUL-terminated string without its line end; NULL at the end. Changes
 * the text. */
char *chex_labels_next_line(char **at, char *end);

/* ---- fields: labels_fields.c. False, with nothing written, where the text is none ---- */

#define CHEX_AGE_EXPECTED "up to 3 digits and perhaps Y, M, W or D"
#define CHEX_SEX_EXPECTED "M or F"
#define CHEX_VIEW_EXPECTED "PA, AP or LL"
#define CHEX_SPLIT_EXPECTED "train, val or test"
#define CHEX_FLAG_EXPECTED "1, 0, -1 or nothing"

/* "58", "58.0", "58.75", "058Y", "013M", "002W", "021D" in whole years; empty is unknown. */
bool chex_field_age(const char *text, int *years_out);

/* M, F, Male, Female; empty, O, U, Unknown, Other and None are unknown. Any case. */
bool chex_field_sex(const char *text, char *sex_out);

/* PA, AP, L, LL, LATERAL; empty and "unknown" are unknown. Any case. */
bool chex_field_view(const char *text, enum chex_view *view_out);

/* train, val, valid, validate, validation, dev, test; empty is not stated. Any case. */
bool chex_field_split(const char *text, int8_t *split_out);

/* 1, 0, -1 with or without ".0"; empty is CHEX_LABEL_NOT_STATED. */
bool chex_field_flag(const char *text, int8_t *label_out);

/* Sets the labels of "Effusion|Mass" or "No Finding" in field `column` (from 0) of the record; the
 * field is taken apart. A finding that is no class of the table is CHEX_E_DATA. */
enum chex_status chex_field_findings(const struct chex_label_table *table, struct chex_csv *csv,
                                     size_t column, const char *column_name, int8_t *labels,
                                     struct chex_error *err);

/* ---- one-hot columns: labels_flags.c ---- */

struct chex_label_flags {
    size_t count;
    int *column;      /* (count) in the header */
    size_t *class_of; /* (count) in the table */
};

/* The columns of these names, which become the table's classes. CHEX_E_DATA: one is missing. */
enum chex_status chex_label_flags_init(struct chex_label_flags *flags,
                                       struct chex_label_table *table, const struct chex_csv *csv,
                                       const char *const *names, size_t count, const char *expects,
                                       struct chex_error *err);
void chex_label_flags_release(struct chex_label_flags *flags);

/* labels (class_count) from the current record. */
enum chex_status chex_label_flags_read(const struct chex_label_flags *flags,
                                       const struct chex_csv *csv, int8_t *labels,
                                       struct chex_error *err);

#endif
