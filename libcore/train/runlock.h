/* SPDX-License-Identifier: Apache-2.0
 *
 * One run at a time in a run's folder: DIR/.lock is locked while a run works there, and says who
 * that is. The lock is the kernel's (fcntl, which NFS and Lustre pass on to their servers), so it
 * ends with the process, however that ends. Where a file system knows no locks, the text decides:
 * a holder of this host counts while its process lives, one of another host until it has left in
 * order, unless it is of our own job, which was then requeued.
 */
#ifndef CHEX_TRAIN_RUNLOCK_H
#define CHEX_TRAIN_RUNLOCK_H

#include "base/error.h"
#include "launch/launch.h"

/* *fd_out stands for the lock until chex_runlock_release. CHEX_E_ENV with the holder's host,
 * process and job where another run has it. DIR exists. */
enum chex_status chex_runlock_take(const char *dir, const struct chex_launch *launch, int *fd_out,
                                   struct chex_error *err);
void chex_runlock_release(int fd); /* -1: nothing */

#endif
