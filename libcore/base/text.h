/* SPDX-License-Identifier: Apache-2.0
 *
 * Texts from outside: names of files, fields of tables, values of options.
 */
#ifndef CHEX_BASE_TEXT_H
#define CHEX_BASE_TEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* Whether all of it is UTF-8: neither overlong nor a surrogate. JSON and HDF5's texts are. */
bool chex_text_is_utf8(const char *text);

/* Names of files may hold any bytes, and JSON cannot: before work whose result names this one.
 * what: "--output"; user: "--json". CHEX_E_USAGE where it is no UTF-8 text; NULL is none. */
enum chex_status chex_text_for_json(const char *what, const char *name, const char *user,
                                    struct chex_error *err);

/* text, cut to size - 4 bytes and "..." where longer, without what cannot be printed; returns
 * `out`. */
const char *chex_text_shown(const char *text, char *out, size_t size);

/* Columns that UTF-8 text takes on a terminal: its characters. */
int chex_text_columns(const char *text);

/* The width that makes printf's %-*s, which counts bytes, fill so many columns with `text`. */
int chex_text_field(const char *text, int columns);

#endif
