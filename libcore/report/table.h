/* SPDX-License-Identifier: Apache-2.0
 *
 * Tables of results. A column describes a figure once, for JSON, CSV, text, report.html and the
 * model card. The rows of CSV files are the JSON objects of the results.
 */
#ifndef CHEX_REPORT_TABLE_H
#define CHEX_REPORT_TABLE_H

#include <jansson.h>
#include <stdio.h>

#include "base/text.h"
#include "stats/figure.h"

struct chex_column {
    const char *key;      /* of the value in a JSON object; also its name in a CSV file */
    const char *interval; /* the keys of its interval: INTERVAL_ci_low and INTERVAL_ci_high; "":
                             ci_low and ci_high */
    size_t at;            /* offset of the struct chex_figure in the structure of a row */
    const char *heading;  /* for people; NULL: only in text, under its key */
    int digits;           /* decimals for people */
    bool card;            /* the model card has it too */
};

/* The figure of a row. row: the structure that column->at refers to. */
const struct chex_figure *chex_column_figure(const struct chex_column *column, const void *row);

/* Sets the figures of a row in an object, as chex_json_set does; undefined numbers are null. */
void chex_columns_set(json_t **object, const struct chex_column *columns, size_t count,
                      const void *row);

/* Appends ",KEY,INTERVAL_ci_low,INTERVAL_ci_high" for each column. */
enum { CHEX_COLUMN_NAMES_BYTES = 2048 };
void chex_columns_names(struct chex_text_line *to, const struct chex_column *columns, size_t count);

/* Writes a CSV file and releases `rows`, an array of objects, or NULL if there was no memory.
 * names: the header, without line feed. Each name is a key of the objects; NAME=KEY names another.
 * A cell whose key is missing is empty. null is "nan", or empty if '?' follows the name. */
enum chex_status chex_csv_write(FILE *to, const char *names, json_t *rows, struct chex_error *err);

/* "0.8123 (0.7811 to 0.8402)"; "-" if undefined. sign: with a sign before each number. Returns buf.
 */
const char *chex_figure_format(const struct chex_figure *f, bool sign, char *buf, size_t size);

/* The width of a column of class names: at least `least`. */
int chex_names_width(char *const *names, int count, int least);

#endif
