/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares files and options across ranks. One path can name different files on different nodes: a
 * copy on a local disk, an outdated mirror, another mount. With different options ranks would make
 * different collective calls, or compute different things.
 */
#ifndef CHEX_LAUNCH_SAME_H
#define CHEX_LAUNCH_SAME_H

#include <jansson.h>

#include "launch/coll.h"

/* Compares the contents of `count` files on all ranks, by their XXH3. The paths may differ between
 * ranks; NULL is a file that this rank lacks.
 * - CHEX_E_DATA on all ranks, with one text: the first file and the first rank that differ from
 *   rank 0, by path, rank and host.
 * - A file that a rank cannot read is not compared there: the rank's next reader reports it.
 * - With one rank no file is read.
 * Collective; `count` is the same on all ranks. */
enum chex_status chex_same_files(struct chex_coll *coll, const struct chex_launch *launch,
                                 const char *const *paths, size_t count, struct chex_error *err);

/* Compares options with those of rank 0. `mine` has texts by the names of the options; NULL: out of
 * memory. CHEX_E_USAGE on a rank that differs: the caller agrees. Collective. */
enum chex_status chex_same_options(struct chex_group *group, json_t *mine, struct chex_error *err);

#endif
