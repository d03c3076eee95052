/* SPDX-License-Identifier: Apache-2.0
 *
 * Allows one run at a time in an output folder. Rank 0 locks a file in the partial folder
 * (base/lockfile.h) before it changes the output, and removes both after the run.
 */
#include <stdio.h>
#include <unistd.h>

#include "base/lockfile.h"
#include "ingest/create_private.h"

enum chex_status chex_create_lock(struct chex_create *c, struct chex_error *err) {
    char subject[CHEX_ERROR_TEXT_BYTES];
    snprintf(subject, sizeof subject, "output %s", c->o->output);
    const enum chex_status st = chex_lockfile_take(c->partial, CHEX_CREATE_LOCK, subject,
                                                   "give another --output", &c->lock_fd, err);
    if (st != CHEX_OK)
        rmdir(c->partial); /* fails, as intended, if it is not empty */
    return st;
}

void chex_create_unlock(struct chex_create *c) {
    if (c->lock_fd < 0)
        return;
    /* Close before rmdir: on NFS an open file keeps its folder non-empty. */
    chex_lockfile_release(c->partial, CHEX_CREATE_LOCK, c->lock_fd, true);
    c->lock_fd = -1;
    rmdir(c->partial); /* fails, as intended, if it is not empty */
}
