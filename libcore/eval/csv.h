/* SPDX-License-Identifier: Apache-2.0
 *
 * The CSV of this layer's tables, in memory and in place: fields split at commas, "quoted" where
 * they hold one, lines ended by LF or CRLF, a leading byte order mark dropped, blank lines passed
 * over. Label tables have a reader of their own in data/, with the quirks of their publishers.
 */
#ifndef CHEX_EVAL_CSV_H
#define CHEX_EVAL_CSV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#include "base/error.h"

struct chex_csv {
    const char *path; /* for errors; borrowed */
    char *at;         /* the rest of the text, changed in place */
    size_t line;      /* of the record that was read last, from 1 */
    char **fields;    /* (count) of that record; they live in the text */
    size_t count, capacity;
};

/* `text` is NUL-terminated, borrowed and changed. */
void chex_csv_init(struct chex_csv *csv, const char *path, char *text);
void chex_csv_release(struct chex_csv *csv);

/* The next record; *more_out is false at the end. CHEX_E_DATA: a quote that does not close on its
 * line, text behind a closing quote. */
enum chex_status chex_csv_next(struct chex_csv *csv, bool *more_out, struct chex_error *err);

/* Writes one field, in quotes where it needs them. */
void chex_csv_put(FILE *to, const char *field);

#endif
