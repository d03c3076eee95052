/* SPDX-License-Identifier: Apache-2.0
 *
 * Conditions that choose rows of sets by what the shards state about them: --where.
 *
 * "view=PA|AP,age>=18,sex=F,source=nih": conditions with commas between them; all must be true.
 * - view, sex and source: = or !=, and values with | between them. view: PA, AP, lateral. sex: F,
 *   M. source: names of the sets of --data.
 * - age, in years: = != < <= > >=, and one number.
 * - A value that a row does not state fails every condition, except that view, sex and age have the
 *   value `unknown` for = and !=.
 */
#ifndef CHEX_SHARD_WHERE_H
#define CHEX_SHARD_WHERE_H

#include <stdbool.h>

#include "base/error.h"
#include "shard/shard.h"
#include "shard/sources.h"

struct chex_where;

/* Parses the text. NULL or "": no condition, which every row meets. The caller frees *where_out.
 * sources NULL: conditions on the source are refused, and every source is admitted.
 * CHEX_E_USAGE: anything else than the grammar above, or a source that is not in `sources`. */
enum chex_status chex_where_parse(const char *text, const struct chex_sources *sources,
                                  struct chex_where **where_out, struct chex_error *err);
void chex_where_free(struct chex_where *where); /* NULL allowed */
CHEX_AUTO_POINTER(struct chex_where, chex_where_free)

/* Whether the conditions on the source admit source number `source`. */
bool chex_where_admits_source(const struct chex_where *where, int source);

/* Whether there are conditions on rows: view, age, sex. */
bool chex_where_has_row_conditions(const struct chex_where *where);

/* Whether a row meets the conditions on rows. */
bool chex_where_admits_row(const struct chex_where *where, const struct chex_shard *shard,
                           size_t row);

#endif
