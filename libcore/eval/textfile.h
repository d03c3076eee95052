/* SPDX-License-Identifier: Apache-2.0
 *
 * Text files of results that are written atomically, and quoting for CSV and XML.
 */
#ifndef CHEX_EVAL_TEXTFILE_H
#define CHEX_EVAL_TEXTFILE_H

#include <stdio.h>

#include "base/error.h"

struct chex_textfile {
    FILE *f;
    char *path, *temp;
};

/* Opens a temporary file for `path`. The caller always calls chex_textfile_close. */
enum chex_status chex_textfile_open(const char *path, struct chex_textfile *t,
                                    struct chex_error *err);

/* Renames the file to `path` if `st` is CHEX_OK and all writes succeeded. Otherwise removes it.
 * Returns `st`, or the error found here. */
enum chex_status chex_textfile_close(struct chex_textfile *t, enum chex_status st,
                                     struct chex_error *err);

/* Writes the text of an XML or HTML element or attribute. Escapes & < > " ' and drops control
 * characters. */
void chex_put_xml(FILE *to, const char *text);

/* Writes bytes as base64, as in a data URI. */
void chex_put_base64(FILE *to, const unsigned char *data, size_t bytes);

#endif
