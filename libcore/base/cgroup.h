/* SPDX-License-Identifier: Apache-2.0
 *
 * The control groups of this process, versions 1 and 2.
 */
#ifndef CHEX_BASE_CGROUP_H
#define CHEX_BASE_CGROUP_H

#include <stdbool.h>

/* Calls fn with the folder of each group that a controller ("memory", "cpu") has for this process:
 * its own group and all parents, in /sys/fs/cgroup.
 * - root: "" except in tests, which put their own proc/ and sys/ there.
 * - v2: the group is of version 2, whose file names differ. */
void chex_cgroup_each(const char *root, const char *controller,
                      void (*fn)(void *arg, const char *folder, bool v2), void *arg);

#endif
