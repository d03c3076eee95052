/* SPDX-License-Identifier: Apache-2.0
 *
 * One run at a time in an output folder: the lock lies in its partial folder, and goes with that.
 */
#include <stdio.h>
#include <unistd.h>

#include "base/lockfile.h"
#include "data/create_private.h"

enum chex_status chex_create_lock(struct chex_create *c, struct chex_error *err) {
    char subject[CHEX_ERROR_TEXT_BYTES];
    snprintf(subject, sizeof subject, "output %s", c->o->output);
    return chex_lockfile_take(c->partial, CHEX_CREATE_LOCK, subject, "give another --output",
                              &c->lock_fd, err);
}

void chex_create_unlock(struct chex_create *c) {
    if (c->lock_fd < 0)
        return;
    /* Closed before rmdir: over NFS an open file keeps its folder. */
    chex_lockfile_release(c->partial, CHEX_CREATE_LOCK, c->lock_fd, true);
    c->lock_fd = -1;
    rmdir(c->partial); /* only where it is empty */
}
