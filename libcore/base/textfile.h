/* SPDX-License-Identifier: Apache-2.0
 *
 * Text files of results that are written atomically, and escaping for XML, base64.
 */
#ifndef CHEX_BASE_TEXTFILE_H
#define CHEX_BASE_TEXTFILE_H

#include <stddef.h>
#include <stdio.h>

#include "base/error.h"

struct chex_textfile {
    FILE *f;
    char *path, *temp;
};

/* Opens a temporary file for `path`. The caller always calls chex_textfile_close. */
enum chex_status chex_textfile_open(const char *path, struct chex_textfile *t,
                                    struct chex_error *err);

/* The same for DIR/NAME. */
enum chex_status chex_textfile_open_in(const char *dir, const char *name, struct chex_textfile *t,
                                       struct chex_error *err);

/* Renames the file to `path` if `st` is CHEX_OK and all writes succeeded. Otherwise removes it.
 * Returns `st`, or the error found here. */
enum chex_status chex_textfile_close(struct chex_textfile *t, enum chex_status st,
                                     struct chex_error *err);

/* Writes the text of an XML or HTML element or attribute. Escapes & < > " '. Control characters,
 * characters that change the writing direction and bytes that are not UTF-8 become \xNN. */
void chex_put_xml(FILE *to, const char *text);

/* The same for the name of a class, with blanks for underscores. */
void chex_put_xml_name(FILE *to, const char *name);

/* The same between two pieces of markup. */
void chex_put_xml_between(FILE *to, const char *before, const char *text, const char *after);
void chex_put_name_between(FILE *to, const char *before, const char *name, const char *after);

/* Writes bytes as base64 (RFC 4648), without line breaks. */
void chex_put_base64(FILE *to, const void *data, size_t bytes);

#endif
