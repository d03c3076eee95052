/* SPDX-License-Identifier: Apache-2.0
 *
 * The launch methods, one file each. A new method is one line here and one line in launch.c.
 */
#ifndef CHEX_LAUNCH_METHODS_H
#define CHEX_LAUNCH_METHODS_H

#include "launch/launch.h"

extern const struct chex_launch_method chex_launch_pmix;
extern const struct chex_launch_method chex_launch_pmi2;
extern const struct chex_launch_method chex_launch_slurm;
extern const struct chex_launch_method chex_launch_single;

/* An integer >= 0 from the environment; `otherwise` if the variable is unset or no such number. */
int chex_launch_env_int(const char *name, int otherwise);

/* Sets host and job id, which all methods read from the same variables. */
void chex_launch_fill_names(struct chex_launch *launch);

/* The error of exchange `name` after its deadline, with the ranks that launch->came lacks: "rank 3
 * (n1), 5 (n2) and 7 more". unknown: the end of the text if launch->came is NULL. */
enum chex_status chex_launch_lost(const struct chex_launch *launch, const char *name,
                                  const char *unknown, uint64_t timeout_ms, struct chex_error *err);

#endif
