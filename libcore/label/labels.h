/* SPDX-License-Identifier: Apache-2.0
 *
 * Label tables: the content of a label file, one row for each image, for every supported format.
 *
 * A format is one file labels_NAME.c and one line in labels_format.h's list. Formats:
 *   nih       Data_Entry_2017.csv and Data_Entry_2017_v2020.csv, and chex-shard phantom's
 *             labels.csv: a header of 9 names over rows of 11 fields (two names hold a bare comma),
 *             or 11 over 11
 *   list      the CheXNet lists: a file name and 14 zeros or ones per line, no header
 *   chexpert  CheXpert's train.csv and valid.csv
 *   mimic     mimic-cxr-2.0.0-chexpert.csv with the metadata and split files beside it
 *   vindr     VinDr-CXR: the findings of each reader, by image or by box
 *   padchest  PadChest's table; only findings that are one of the 14 are kept
 *   csv       any table with a header; chex-shard --columns names its columns
 *
 * Every fault of a file is CHEX_E_DATA. The text has file, line, column and the expected value.
 */
#ifndef CHEX_LABEL_LABELS_H
#define CHEX_LABEL_LABELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "label/labels_map.h"
#include "label/values.h"

enum { CHEX_AGE_UNKNOWN = -1, CHEX_SPLIT_NOT_STATED = -1 };

/* Largest size of a label file after unpacking. 10 million rows take 1 to 2 GiB. */
#define CHEX_LABELS_MAX_BYTES (UINT64_C(4) << 30)

struct chex_label_row {
    const char *image_id;   /* unique in the table: the file name; the path if file names repeat
                               (image_ids.h); CheXpert: see chex_labels_set_image() */
    const char *path;       /* the path in the label file, with folders if it has them; searched
                               below the image folder */
    const char *patient_id; /* never empty; a bare number is padded to 8 digits, as in file names */
    const char *study_id;   /* NULL: not stated */
    int8_t *labels;         /* (class_count): 1, 0, CHEX_LABEL_UNCERTAIN, CHEX_LABEL_NOT_STATED */
    size_t line;            /* in the table's rows_path, from 1 */
    enum chex_view view;
    int age_years; /* as stated, even if impossible (the NIH's file has 414); CHEX_AGE_UNKNOWN */
    int8_t split;  /* enum chex_split in the label file; CHEX_SPLIT_NOT_STATED */
    char sex;      /* 'M', 'F' or 0 */
    bool patient_guessed; /* patient_id comes from the file name */
};

struct chex_label_table {
    char *path;            /* the label file */
    const char *rows_path; /* the file of the rows' `line`: `path`, or MIMIC's metadata */
    const char *format;    /* "nih" */
    char detected[400];    /* the format and the reason, for the log: "nih (header of 9 ...)" */
    char warning[256];     /* for the user, such as the number of rows left out; or "" */
    const char *const *classes; /* (class_count) names */
    size_t class_count;
    const char *ignored;         /* unknown columns that were not read, "width, site"; or NULL */
    struct chex_label_row *rows; /* (count), in the file's order */
    size_t count;
    size_t file_count;      /* rows of the file. Rows dropped by chex_labels_keep_views() are at
                               [count, file_count), in any order */
    const char *split_from; /* what states the rows' splits: "the folders of its paths"; or NULL */

    /* Memory that the rows point into. */
    int8_t *label_block;
    const char **class_block;
    char *text;
    void *strings;
};

/* Loads a label file. The caller frees *table_out with chex_labels_free().
 * - format: a name from the list above. "auto" or NULL: detect the format from the first line.
 * - columns: the value of --columns (format csv only), or NULL.
 * - CHEX_E_USAGE: an unknown format; columns that cannot be parsed, or with another format.
 * - CHEX_E_DATA: the file is not of this format, has a fault or states an image twice. */
enum chex_status chex_labels_load(const char *path, const char *format, const char *columns,
                                  struct chex_label_table **table_out, struct chex_error *err);

/* Loads a list of file names, one per line. The table has class_count 0, and patients come from the
 * names. Folders before a name are allowed. Comments with '#' are not. */
enum chex_status chex_labels_load_names(const char *path, struct chex_label_table **table_out,
                                        struct chex_error *err);

void chex_labels_free(struct chex_label_table *table); /* NULL allowed */
CHEX_AUTO_POINTER(struct chex_label_table, chex_labels_free)

/* Names of the formats, "auto" first, NULL at the end: for option tables. */
extern const char *const chex_label_format_names[];

/* If a program mined the labels of this format from radiology reports: which labels, to begin a
 * sentence, such as "Most of PadChest's labels". Otherwise, or for an unknown name, NULL. */
const char *chex_label_format_mined(const char *name);

/* Adds the number of each row to an empty map under its image id; of two equal ids, the first. The
 * map borrows the ids. The caller releases it, also after a failure. */
enum chex_status chex_labels_index(const struct chex_label_table *table,
                                   struct chex_label_map *map_out, struct chex_error *err);

/* Counts the distinct patients of the rows. */
enum chex_status chex_labels_count_patients(const struct chex_label_table *table, size_t *count_out,
                                            struct chex_error *err);

/* Parses --views, such as "PA,AP" (PA, AP, lateral, unknown; any case), to a mask of
 * 1 << enum chex_view. CHEX_E_USAGE: an unknown word. */
enum chex_status chex_labels_parse_views(const char *text, unsigned *mask_out,
                                         struct chex_error *err);

/* Drops the rows with a view that is not in the mask. Returns the number of dropped rows. The other
 * rows keep their order. */
size_t chex_labels_keep_views(struct chex_label_table *table, unsigned mask);

/* Writes the views of the file with their numbers of images: "PA (18), AP (6)". Includes rows that
 * chex_labels_keep_views() dropped. Returns `out`. */
const char *chex_labels_views_text(const struct chex_label_table *table, char *out, size_t size);

/* --uncertain: the value that replaces CHEX_LABEL_UNCERTAIN. "ignore" replaces it by
 * CHEX_LABEL_NOT_STATED, which loss and AUROC leave out. */
enum chex_uncertain {
    CHEX_UNCERTAIN_KEEP,
    CHEX_UNCERTAIN_IGNORE,
    CHEX_UNCERTAIN_ZEROS,
    CHEX_UNCERTAIN_ONES
};
extern const char *const chex_uncertain_names[]; /* "keep", "ignore", "zeros", "ones", NULL */

/* Replaces uncertain labels. Returns their number. */
size_t chex_labels_apply_uncertain(struct chex_label_table *table, enum chex_uncertain policy);

/* --not-stated: the value that replaces CHEX_LABEL_NOT_STATED. Apply it before --uncertain, which
 * may add such labels. */
enum chex_not_stated { CHEX_NOT_STATED_KEEP, CHEX_NOT_STATED_ZEROS };
extern const char *const chex_not_stated_names[]; /* "keep", "zeros", NULL */

/* Replaces labels that are not stated. Returns their number. */
size_t chex_labels_apply_not_stated(struct chex_label_table *table, enum chex_not_stated policy);

/* Parses a cell with a label: 1, 0, -1 with or without ".0", true, false, or a missing value
 * (chex_csv_is_missing()), which is CHEX_LABEL_NOT_STATED. False, and the output unchanged: any
 * other text. */
bool chex_field_flag(const char *text, int8_t *label_out);

/* "PA", "AP", "LATERAL", "unknown". Never NULL. */
const char *chex_view_name(enum chex_view view);

#endif
