/* SPDX-License-Identifier: Apache-2.0
 *
 * The launch methods, one file each. A new one is a line here and a line in launch.c.
 */
#ifndef CHEX_LAUNCH_METHODS_H
#define CHEX_LAUNCH_METHODS_H

#include "launch/launch.h"

extern const struct chex_launch_method chex_launch_pmix;
extern const struct chex_launch_method chex_launch_slurm;
extern const struct chex_launch_method chex_launch_single;

/* A whole number >= 0 from the environment, or `otherwise` where it is unset or no such number. */
int chex_launch_env_int(const char *name, int otherwise);

/* Host and job number, which all methods take from the same places. */
void chex_launch_fill_names(struct chex_launch *launch);

#endif
