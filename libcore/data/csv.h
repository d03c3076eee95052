/* SPDX-License-Identifier: Apache-2.0
 *
 * Comma-separated text (RFC 4180) in memory, record by record, in place.
 *
 * Fields may be quoted ("a ""b"", c", line breaks inside too); records end in LF or CRLF; a UTF-8
 * byte order mark is skipped; empty lines are skipped. NUL bytes, text behind a closing quote, a
 * quote inside a bare field and a quote that never closes are CHEX_E_DATA with file, line and
 * column.
 *
 * A table is a text whose first record names the columns: chex_csv_header() once, then
 * chex_csv_row() until there is no more.
 */
#ifndef CHEX_DATA_CSV_H
#define CHEX_DATA_CSV_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

struct chex_csv {
    /* The current record: `count` NUL-terminated fields inside the text, and the number of the line
     * it begins on (from 1). */
    char **fields;
    size_t count;
    size_t line;

    /* The header's names, once chex_csv_header() has read them; inside the text too. */
    char **names;
    size_t name_count;

    const char *path; /* for error texts */
    char *at, *end;
    size_t next_line, capacity;
};

/* Reads records out of text[0..size), which must have one writable byte behind it (chex_fs_read
 * gives that) and is changed in place. path and text must outlive the reader. */
void chex_csv_init(struct chex_csv *csv, const char *path, char *text, size_t size);
void chex_csv_release(struct chex_csv *csv); /* frees the lists of fields, not the text */

/* The next record. *more_out is false, and the fields are empty, at the end of the text. */
enum chex_status chex_csv_next(struct chex_csv *csv, bool *more_out, struct chex_error *err);

/* Takes the next record as the header. CHEX_E_DATA: there is none, or it is parted by semicolons or
 * tabs. */
enum chex_status chex_csv_header(struct chex_csv *csv, struct chex_error *err);

/* The column of that name, from 0, in *column_out. Where there is none: -1, or, unless `expects` is
 * NULL, CHEX_E_DATA with the text "..., expected EXPECTS". Two of that name are CHEX_E_DATA. */
enum chex_status chex_csv_find(const struct chex_csv *csv, const char *name, const char *expects,
                               int *column_out, struct chex_error *err);

/* The next record, which must have as many fields as the header. The header once more, as files put
 * behind each other have it, is passed over. */
enum chex_status chex_csv_row(struct chex_csv *csv, bool *more_out, struct chex_error *err);

/* A field of the current record: "FILE: line N, column C (NAME): 'VALUE', expected EXPECTED", with
 * `column` from 0. Always CHEX_E_DATA. */
enum chex_status chex_csv_fault(const struct chex_csv *csv, int column, const char *expected,
                                struct chex_error *err);

/* The same text for any file; `column` from 1, name NULL where it has none. */
enum chex_status chex_text_fault(const char *path, size_t line, size_t column, const char *name,
                                 const char *value, const char *expected, struct chex_error *err);

#endif
