/* SPDX-License-Identifier: Apache-2.0
 *
 * Comma-separated text (RFC 4180) in memory, record by record, in place.
 *
 * Fields may be quoted ("a ""b"", c", line breaks inside too); records end in LF or CRLF; a UTF-8
 * byte order mark is skipped; empty lines are skipped. NUL bytes, text behind a closing quote, a
 * quote inside a bare field and a quote that never closes are CHEX_E_DATA with file, line and
 * column.
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

    const char *path; /* for error texts */
    char *at, *end;
    size_t next_line, capacity;
};

/* Reads records out of text[0..size), which must have one writable byte behind it (chex_fs_read
 * gives that) and is changed in place. path and text must outlive the reader. */
void chex_csv_init(struct chex_csv *csv, const char *path, char *text, size_t size);
void chex_csv_release(struct chex_csv *csv); /* frees the field list, not the text */

/* The next record. *more_out is false, and the fields are empty, at the end of the text. */
enum chex_status chex_csv_next(struct chex_csv *csv, bool *more_out, struct chex_error *err);

#endif
