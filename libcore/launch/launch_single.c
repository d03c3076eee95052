/* SPDX-License-Identifier: Apache-2.0
 *
 * One process without a launcher: a laptop, a login node, the body of a batch script.
 */
#include <stdio.h>

#include "launch/methods.h"

static bool present(void) { return true; }

static void why(char *buf, size_t size) {
    snprintf(buf, size, "not a task of srun, mpirun or mpiexec");
}

static enum chex_status init(struct chex_launch *launch, struct chex_error *err) {
    (void)err;
    launch->size = launch->local_size = launch->nodes = 1;
    chex_launch_fill_names(launch);
    return CHEX_OK;
}

const struct chex_launch_method chex_launch_single = {
    .name = "single", .present = present, .why = why, .init = init};
