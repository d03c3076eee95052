/* SPDX-License-Identifier: Apache-2.0
 *
 * Results of one run that appear together in a folder which may hold other files.
 *
 * POSIX renames one file at a time, so a set of files is published in two steps:
 * 1. All files are written into DIR/.eval.tmp.XXXXXX, and synced. A failure removes that folder; a
 *    killed process leaves it, and the next run removes it. DIR/ is unchanged so far.
 * 2. The folder is renamed to DIR/.eval.ready. From here on the set counts as complete: its files
 *    move to DIR/ one by one. If the process is killed, the next run moves the rest.
 * Folders in the set are merged with those of DIR file by file, their auroc.json last. Names given
 * to chex_publish_replace() are replaced whole: a marker in the set asks for it, and is removed
 * after the old entry is gone and before the first file moves. So a killed run never removes a new
 * file. The key file (auroc.json) of an older set goes first and that of the new set comes last, so
 * a reader who finds the key file never sees files of two runs.
 *
 * One process at a time: the caller holds a lock on DIR.
 */
#ifndef CHEX_REPORT_PUBLISH_H
#define CHEX_REPORT_PUBLISH_H

#include <stdbool.h>

#include "base/error.h"

struct chex_publish {
    const char *dir, *key; /* borrowed */
    char *path;            /* where the files are written */
};

/* Whether a killed run left a complete set that has not been moved yet. */
bool chex_publish_pending(const char *dir);

/* Moves what a killed run left complete, and removes what it left incomplete. */
enum chex_status chex_publish_recover(const char *dir, const char *key, struct chex_error *err);

/* Makes the folder of step 1; s->path names it. Ends with chex_publish_end() in any case. */
enum chex_status chex_publish_begin(const char *dir, const char *key, struct chex_publish *s,
                                    struct chex_error *err);

/* DIR/NAME of an older run, a file or a folder, is removed when the set is published, even if the
 * set has no NAME. */
enum chex_status chex_publish_replace(const struct chex_publish *s, const char *name,
                                      struct chex_error *err);

/* Publishes the files if `st` is CHEX_OK, else removes them. Returns `st`, or the fault found here;
 * error texts then name the files as they would be called in DIR. */
enum chex_status chex_publish_end(struct chex_publish *s, enum chex_status st,
                                  struct chex_error *err);

#endif
