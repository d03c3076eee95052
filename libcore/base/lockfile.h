/* SPDX-License-Identifier: Apache-2.0
 *
 * Locks a folder for one process. The process locks a file in the folder while it works and writes
 * its host, process id and job into it.
 *
 * The lock is an fcntl lock, which NFS and Lustre pass to their servers. The kernel releases it
 * when the process ends for any reason. If the file system has no locks, the text of the file
 * decides:
 * - Owner on this host: it counts while its process lives.
 * - Owner on another host: it counts until it has released the lock.
 * - Exception: an owner on another host with our own Slurm job id does not count, because the job
 *   was requeued.
 */
#ifndef CHEX_BASE_LOCKFILE_H
#define CHEX_BASE_LOCKFILE_H

#include <stdbool.h>

#include "base/error.h"

/* Locks dir/name; creates the folder if it is missing.
 * - fd_out: holds the lock until chex_lockfile_release.
 * - CHEX_E_ENV: another process has the lock; "SUBJECT is in use by ...: wait for that run to end,
 *   or ADVICE". */
enum chex_status chex_lockfile_take(const char *dir, const char *name, const char *subject,
                                    const char *advice, int *fd_out, struct chex_error *err);

/* Tests whether another process has the lock, with the status and text of chex_lockfile_take. Locks
 * and creates nothing. CHEX_OK also if the file or folder does not exist. */
enum chex_status chex_lockfile_check(const char *dir, const char *name, const char *subject,
                                     const char *advice, struct chex_error *err);

/* CHEX_E_ENV if dir/name is another file than the one that `fd` holds: the folder was removed, and
 * another process has made it again. CHEX_OK if there is no such file. */
enum chex_status chex_lockfile_confirm(const char *dir, const char *name, const char *subject,
                                       int fd, struct chex_error *err);

/* Releases the lock. remove: the file is removed too (for a folder that will be removed); otherwise
 * it stays, empty. fd -1: does nothing. */
void chex_lockfile_release(const char *dir, const char *name, int fd, bool remove);

#endif
