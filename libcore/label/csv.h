/* SPDX-License-Identifier: Apache-2.0
 *
 * Parser for comma-separated text (RFC 4180). It works in memory and in place, one record at a
 * time.
 *
 * - The separator is the one of comma, semicolon and tab that occurs most often in the first line,
 *   outside of quotes and brackets. Spreadsheets of countries with a decimal comma write
 * semicolons.
 * - Fields may be quoted: "a ""b"", c". Quoted fields may contain line breaks.
 * - Records end in LF or CRLF. Empty lines and a UTF-8 byte order mark are skipped.
 * - CHEX_E_DATA with file, line and column: a NUL byte, text after a closing quote, a quote inside
 *   an unquoted field, a quote that never closes, a carriage return without a line feed.
 *
 * For a table with a header, call chex_csv_header() once, then chex_csv_row() until *more_out is
 * false.
 */
#ifndef CHEX_LABEL_CSV_H
#define CHEX_LABEL_CSV_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct chex_csv {
    /* The current record: `count` NUL-terminated fields that point into the text, and the line
     * (from 1) on which the record begins. */
    char **fields;
    size_t count;
    size_t line;

    /* The column names after chex_csv_header(); they point into the text. */
    char **names;
    size_t name_count;

    const char *path; /* for error texts */
    char separator;
    char *at, *end;
    size_t next_line, capacity;
};

/* Starts parsing text[0..size). path and text must outlive the parser.
 * - The text is changed in place. text[size] must be writable; chex_fs_read() provides that byte.
 */
void chex_csv_init(struct chex_csv *csv, const char *path, char *text, size_t size);
void chex_csv_release(struct chex_csv *csv); /* frees the lists of fields, not the text */

/* Reads the next record. At the end of the text *more_out is false and `count` is 0. */
enum chex_status chex_csv_next(struct chex_csv *csv, bool *more_out, struct chex_error *err);

/* Reads the next record as the header. CHEX_E_DATA: no record. */
enum chex_status chex_csv_header(struct chex_csv *csv, struct chex_error *err);

/* Finds the column (from 0) with a name.
 * - No such column: with `expects` NULL *column_out is -1. Otherwise CHEX_E_DATA with the text
 *   "..., expected EXPECTS".
 * - CHEX_E_DATA: two columns have this name. */
enum chex_status chex_csv_find(const struct chex_csv *csv, const char *name, const char *expects,
                               int *column_out, struct chex_error *err);

/* Reads the next record. It must have as many fields as the header. A record equal to the header is
 * skipped: concatenated files repeat it. */
enum chex_status chex_csv_row(struct chex_csv *csv, bool *more_out, struct chex_error *err);

/* "commas", "semicolons" or "tabs". */
const char *chex_csv_separators(const struct chex_csv *csv);

/* Logs the separator unless it is a comma. */
void chex_csv_log_separator(const struct chex_csv *csv);

/* Parses a field as a finite number. With another separator than a comma, the decimal point may be
 * a comma. */
bool chex_csv_number(const struct chex_csv *csv, size_t column, double *out);

/* Whether a cell says that there is no value: empty, NA as R writes, NaN as pandas writes. */
bool chex_csv_is_missing(const char *cell);

/* Sets the error of a text of line `line` that is not UTF-8 and returns CHEX_E_DATA. The text names
 * the byte and the remedy. what: "image"; also: ends the text, or "". */
enum chex_status chex_text_encoding_fault(const char *path, size_t line, const char *what,
                                          const char *value, const char *also,
                                          struct chex_error *err);

/* Sets the error of a field of the current record (`column` from 0) and returns CHEX_E_DATA:
 * "FILE: line N, column C (NAME): 'VALUE', expected EXPECTED". */
enum chex_status chex_csv_fault(const struct chex_csv *csv, int column, const char *expected,
                                struct chex_error *err);

/* The same text for any file. `column` counts from 1; name may be NULL. */
enum chex_status chex_text_fault(const char *path, size_t line, size_t column, const char *name,
                                 const char *value, const char *expected, struct chex_error *err);

#endif
