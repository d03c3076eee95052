/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tables of predictions chex-eval compare reads: those of the command line, those of two
 * recipes (--runs, --against), or those of a sweep.
 */
#ifndef CHEX_EVALUATE_COMPARE_PATHS_H
#define CHEX_EVALUATE_COMPARE_PATHS_H

#include "evaluate/settings.h"

struct chex_compare_paths {
    size_t count;
    char **path;    /* (count) the reference, or the first training of the first recipe, first */
    size_t runs[2]; /* trainings of each recipe, in this order; 0: no recipes */
};

/* The runs of a sweep are the folders with a config.json, by number; those without a table are left
 * out with a warning. CHEX_E_USAGE: options that do not go together, fewer than two tables, too few
 * trainings. chex_compare_paths_release accepts {0} too. */
enum chex_status chex_compare_paths_find(const struct chex_opt_set *set,
                                         const struct chex_eval_settings *s,
                                         struct chex_compare_paths *out, struct chex_error *err);
void chex_compare_paths_release(struct chex_compare_paths *p);

#endif
