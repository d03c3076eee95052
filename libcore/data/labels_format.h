/* SPDX-License-Identifier: Apache-2.0
 *
 * What a label format is to labels.c: one of these in one file, and one line in labels.c's table;
 * and what labels.c gives to the formats.
 */
#ifndef CHEX_DATA_LABELS_FORMAT_H
#define CHEX_DATA_LABELS_FORMAT_H

#include <stdbool.h>

#include "data/classes.h"
#include "data/labels.h"

struct chex_label_format {
    const char *name;
    const char *expects; /* "a header with 'Image Index', ...": ends the texts of wrong files */
    /* True where the first line (NUL-terminated, no line end, no byte order mark) is this format's;
     * what told so goes to `why`. */
    bool (*detect)(const char *line, char *why, size_t why_size);
    /* Adds the rows of text[0..size), which ends in a NUL and belongs to the table: rows may point
     * into it. */
    enum chex_status (*parse)(struct chex_label_table *table, char *text, size_t size,
                              struct chex_error *err);
};

extern const struct chex_label_format chex_label_format_nih, chex_label_format_list;

/* A table of `path` without text and rows. */
enum chex_status chex_labels_new(const char *path, struct chex_label_table **table_out,
                                 struct chex_error *err);

/* Gives the rows their labels and refuses an empty table and an image that stands there twice. */
enum chex_status chex_labels_finish(struct chex_label_table *table, struct chex_error *err);

/* A row of zeros with all else unknown, at *row_out until the next row is added; its labels (1, 0,
 * ...) are at *labels_out for as long. */
enum chex_status chex_labels_add_row(struct chex_label_table *table, size_t line,
                                     struct chex_label_row **row_out, int8_t **labels_out,
                                     struct chex_error *err);

/* A copy of text[0..size) that lives as long as the table; NULL for lack of memory. */
const char *chex_labels_copy(struct chex_label_table *table, const char *text, size_t size);

/* Sets path, image_id (the name without folders) and, unless it is there, the patient: what stands
 * before the name's first '_' (or its '.'). */
enum chex_status chex_labels_set_image(struct chex_label_table *table, struct chex_label_row *row,
                                       const char *path, struct chex_error *err);

/* "FILE: line N, column C (NAME): 'VALUE', expected WHAT". `name` may be NULL. */
enum chex_status chex_labels_fault(const struct chex_label_table *table, size_t line, size_t column,
                                   const char *name, const char *value, const char *expected,
                                   struct chex_error *err);

/* The next line of *at as a NUL-terminated string without its line end; NULL at the end. Changes
 * the text. */
char *chex_labels_next_line(char **at, char *end);

#endif
