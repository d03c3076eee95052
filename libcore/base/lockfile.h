/* SPDX-License-Identifier: Apache-2.0
 *
 * One process at a time in a folder: a file there is locked while it works, and says who that is.
 * The lock is the kernel's (fcntl, which NFS and Lustre pass on to their servers), so it ends with
 * the process, however that ends. Where a file system knows no locks the text decides: a holder on
 * this host counts while its process lives; one on another host until it has left in order, unless
 * it was of our own Slurm job, which was then requeued.
 */
#ifndef CHEX_BASE_LOCKFILE_H
#define CHEX_BASE_LOCKFILE_H

#include <stdbool.h>

#include "base/error.h"

/* Locks dir/name; the folder is made where it is missing. *fd_out stands for the lock until
 * chex_lockfile_release. Where another process holds it: CHEX_E_ENV, "SUBJECT is in use by ...:
 * wait for that run to end, or ADVICE". */
enum chex_status chex_lockfile_take(const char *dir, const char *name, const char *subject,
                                    const char *advice, int *fd_out, struct chex_error *err);

/* Whether chex_lockfile_take would find another process there, with its status and text; takes and
 * makes nothing. CHEX_OK too where there is no such file or folder yet. */
enum chex_status chex_lockfile_check(const char *dir, const char *name, const char *subject,
                                     const char *advice, struct chex_error *err);

/* remove: the file goes, for a folder that is to go with it; else it stays, empty. -1: nothing. */
void chex_lockfile_release(const char *dir, const char *name, int fd, bool remove);

#endif
