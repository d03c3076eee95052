/* SPDX-License-Identifier: Apache-2.0
 *
 * Label tables: what a label file says about each image, whatever the file's format.
 *
 * A format is one file labels_NAME.c and one line in labels_format.h's list. Formats:
 *   nih       Data_Entry_2017.csv and Data_Entry_2017_v2020.csv, and chex-shard phantom's
 *             labels.csv: a header of 9 names over rows of 11 fields (two names hold a bare comma),
 *             or 11 over 11
 *   list      the CheXNet lists: a file name and 14 zeros or ones a line, no header
 *   chexpert  CheXpert's train.csv and valid.csv
 *   mimic     mimic-cxr-2.0.0-chexpert.csv with the metadata and split files beside it
 *   vindr     VinDr-CXR's findings of each reader, by image or by box
 *   padchest  PadChest's table, of whose findings the 14 are taken
 *   csv       any table with a header, its columns named by chex-shard's --columns
 *
 * Every fault is CHEX_E_DATA with file, line, column and what was expected.
 */
#ifndef CHEX_DATA_LABELS_H
#define CHEX_DATA_LABELS_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "data/shard.h"

enum { CHEX_AGE_UNKNOWN = -1, CHEX_SPLIT_NOT_STATED = -1 };

struct chex_label_row {
    const char *image_id;   /* unique in the table, without '/': the file name, or see
                               chex_labels_set_image() */
    const char *path;       /* what to look for below the image folder: the label file's words, with
                               folders if it has them */
    const char *patient_id; /* never empty; a bare number is padded to 8 digits, as in file names */
    int8_t *labels;         /* (class_count): 1, 0, CHEX_LABEL_UNCERTAIN, CHEX_LABEL_NOT_STATED */
    size_t line;            /* in the table's rows_path, from 1 */
    enum chex_view view;
    int age_years; /* as stated, nonsense included (the NIH's hold 414); CHEX_AGE_UNKNOWN */
    int8_t split;  /* enum chex_split as the label file states it; CHEX_SPLIT_NOT_STATED */
    char sex;      /* 'M', 'F' or 0 */
};

struct chex_label_table {
    char *path;                 /* the label file */
    const char *rows_path;      /* the file whose lines the rows are: `path`, or MIMIC's metadata */
    const char *format;         /* "nih" */
    char detected[256];         /* what told the format, for the log: "nih (header of 9 ...)" */
    char warning[256];          /* what a user should know, such as rows left out; "" for nothing */
    const char *const *classes; /* (class_count) names */
    size_t class_count;
    struct chex_label_row *rows; /* (count), in the file's order */
    size_t count;
    size_t file_count;        /* with those that chex_labels_keep_views() left out: they stand
                                 behind the others, in any order */
    const char *split_source; /* what states the rows' splits, "the folders of its paths"; or NULL
                                 where nothing does */

    /* What the rows point into. */
    int8_t *label_block;
    const char **class_block;
    char *text;
    void *strings;
};

/* format: a name from the table or "auto" (NULL likewise). columns: --columns, for format csv; may
 * be NULL. CHEX_E_USAGE: an unknown format, naming the known ones; columns that do not parse, or
 * with another format. */
enum chex_status chex_labels_load(const char *path, const char *format, const char *columns,
                                  struct chex_label_table **table_out, struct chex_error *err);

/* A list of file names, one a line (folders before the name are allowed, '#' comments are not):
 * a table with class_count 0 and patients taken from the names. */
enum chex_status chex_labels_load_names(const char *path, struct chex_label_table **table_out,
                                        struct chex_error *err);

void chex_labels_free(struct chex_label_table *table); /* NULL allowed */

/* Names of the formats, "auto" first, NULL at the end: for option tables. */
extern const char *const chex_label_format_names[];

/* Rows by image id. The index borrows the table: its rows must not move while it is in use. */
struct chex_label_index;
enum chex_status chex_label_index_create(const struct chex_label_table *table,
                                         struct chex_label_index **index_out,
                                         struct chex_error *err);
void chex_label_index_destroy(struct chex_label_index *index); /* NULL allowed */
const struct chex_label_row *chex_label_index_find(const struct chex_label_index *index,
                                                   const char *image_id);

/* How many patients the rows are of. */
enum chex_status chex_labels_count_patients(const struct chex_label_table *table, size_t *count_out,
                                            struct chex_error *err);

/* "PA,AP" (PA, AP, lateral, unknown; any case) to a bit mask 1 << enum chex_view. CHEX_E_USAGE
 * names the bad word and the known ones. */
enum chex_status chex_labels_parse_views(const char *text, unsigned *mask_out,
                                         struct chex_error *err);

/* Drops the rows whose view is not in the mask and returns how many went. The others keep their
 * order. */
size_t chex_labels_keep_views(struct chex_label_table *table, unsigned mask);

/* --uncertain: what becomes of CHEX_LABEL_UNCERTAIN. ignore: CHEX_LABEL_NOT_STATED, which neither
 * the loss nor the AUROC counts. */
enum chex_uncertain {
    CHEX_UNCERTAIN_KEEP,
    CHEX_UNCERTAIN_IGNORE,
    CHEX_UNCERTAIN_ZEROS,
    CHEX_UNCERTAIN_ONES
};
extern const char *const chex_uncertain_names[]; /* "keep", "ignore", "zeros", "ones", NULL */

/* Returns how many labels were uncertain. */
size_t chex_labels_apply_uncertain(struct chex_label_table *table, enum chex_uncertain policy);

/* --not-stated: what becomes of CHEX_LABEL_NOT_STATED, before --uncertain makes more of them. */
enum chex_not_stated { CHEX_NOT_STATED_KEEP, CHEX_NOT_STATED_ZEROS };
extern const char *const chex_not_stated_names[]; /* "keep", "zeros", NULL */

/* Returns how many labels were not stated. */
size_t chex_labels_apply_not_stated(struct chex_label_table *table, enum chex_not_stated policy);

/* "PA", "AP", "LATERAL", "unknown". Never NULL. */
const char *chex_view_name(enum chex_view view);

#endif
