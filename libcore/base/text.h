/* SPDX-License-Identifier: Apache-2.0
 *
 * External text: file names, table fields, option values.
 */
#ifndef CHEX_BASE_TEXT_H
#define CHEX_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/error.h"

/* The plural ending: "%zu step%s", n, chex_text_s(n). */
static inline const char *chex_text_s(uint64_t n) { return n == 1 ? "" : "s"; }

/* Whether the text is longer than the suffix and ends with it. */
bool chex_text_ends_with(const char *text, const char *suffix);

/* Whether the text is valid UTF-8, without overlong forms and surrogates. JSON and HDF5 texts must
 * be. */
bool chex_text_is_utf8(const char *text);

/* File names may contain any bytes, but JSON text may not. Call this before work whose result
 * contains `name`.
 * - what: "--output"; user: "--json".
 * - CHEX_E_USAGE: `name` is not UTF-8. NULL is accepted. */
enum chex_status chex_text_for_json(const char *what, const char *name, const char *user,
                                    struct chex_error *err);

/* Whether the text contains a control character (C0, DEL, C1). */
bool chex_text_has_control(const char *text);

/* External text in a form that is safe for a terminal, a log line or an error text.
 * - Valid UTF-8 is unchanged.
 * - Bytes that are not UTF-8, control characters (C0, DEL, C1), line separators and characters that
 *   change the writing direction become \xNN per byte.
 * - A result of more than size - 4 bytes is cut between characters and ends in "...".
 *
 * size: of `out`, at least 5. Returns `out`, which always ends in NUL. */
const char *chex_text_printable(const char *text, char *out, size_t size);

/* Whether chex_text_printable() would leave the text unchanged, for any length. */
bool chex_text_is_printable(const char *text);

/* printf for people: unprintable bytes become \xNN, except line feeds. */
void chex_text_printf(FILE *to, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Writes one text cell of a CSV file.
 * - Unprintable bytes become \xNN, so a cell has no line breaks.
 * - The cell is quoted if it contains a comma or a quote, or if an apostrophe is added.
 * - Spreadsheets read a cell that begins with = + - or @ as a formula. Such a cell gets an
 *   apostrophe in front, which spreadsheets read as "this is text". A text that begins with
 *   apostrophes followed by one of the four characters gets one more apostrophe, so that readers
 *   can undo this.
 * - Write errors: ferror(to). */
void chex_text_put_cell(FILE *to, const char *text);

/* The same, always quoted. */
void chex_text_put_quoted_cell(FILE *to, const char *text);

/* The text of a cell that chex_text_put_cell() wrote, after a CSV reader has removed the quotes:
 * `cell`, or the byte after its first apostrophe. */
const char *chex_text_of_cell(const char *cell);

/* Whether a spreadsheet would read a cell with this text as a formula. */
bool chex_text_is_formula(const char *text);

/* A text in a buffer of fixed size, built in parts. What does not fit is cut and ends in "...".
 * size: at least 4. */
struct chex_text_line {
    char *text;
    size_t size, used;
};
void chex_text_append(struct chex_text_line *line, const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* Finds the word of a list that is closest to a misspelt one, for "did you mean". Start with {.word
 * = ...}, offer all words, then read `best` (NULL: no word is close). A word is close if
 * - it differs in at most a third of the letters, or in one letter (inserted, dropped, changed, or
 *   two exchanged), or
 * - it begins with the misspelt word, which has at least 3 letters. */
struct chex_text_nearest {
    const char *word, *best;
    int distance; /* of best */
};

/* Returns whether the candidate is now the best. */
bool chex_text_offer(struct chex_text_nearest *nearest, const char *candidate);

/* strcmp, for qsort and bsearch of an array of texts. */
int chex_text_compare(const void *a, const void *b);

/* strcmp of the two texts read from end to start. */
int chex_text_compare_ends(const char *a, const char *b);

/* Reads the next range of a list such as "0-3,8" and moves *list past it. False: the list has
 * ended, or what follows is no range. */
bool chex_text_next_range(const char **list, long *from_out, long *to_out);

/* Reads a list of names with commas between, in letters of either case: bit k of the mask is
 * names[k] (NULL at the end). Returns NULL, or the first word that is no name. */
const char *chex_text_mask(const char *list, const char *const *names, unsigned *mask_out);

/* Columns of UTF-8 text on a terminal: the number of its characters. */
int chex_text_columns(const char *text);

/* The width for printf's %-*s, which counts bytes, so that `text` fills `columns` columns. */
int chex_text_field(const char *text, int columns);

#endif
