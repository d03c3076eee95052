/* SPDX-License-Identifier: Apache-2.0
 *
 * Text files of results, written whole or not at all, and the two kinds of quoting they need.
 */
#ifndef CHEX_EVAL_TEXTFILE_H
#define CHEX_EVAL_TEXTFILE_H

#include <stdio.h>

#include "base/error.h"

struct chex_textfile {
    FILE *f;
    char *path, *temp;
};

/* Opens `path` under a temporary name. Ends with chex_textfile_close in any case. */
enum chex_status chex_textfile_open(const char *path, struct chex_textfile *t,
                                    struct chex_error *err);

/* Commits the file where `st` is CHEX_OK and every write went well, else removes it. Returns `st`
 * or the fault found here. */
enum chex_status chex_textfile_close(struct chex_textfile *t, enum chex_status st,
                                     struct chex_error *err);

/* One CSV field, in quotes where it needs them. */
void chex_put_csv(FILE *to, const char *field);

/* Text of an XML or HTML element or attribute: & < > " ' escaped, control characters dropped. */
void chex_put_xml(FILE *to, const char *text);

#endif
