/* SPDX-License-Identifier: Apache-2.0
 *
 * What every command does first and last under a launcher: learn rank and host, bind, look at the
 * GPUs, say so in one line a rank; and leave so that no other rank hangs.
 */
#ifndef CHEX_LAUNCH_WORLD_H
#define CHEX_LAUNCH_WORLD_H

#include <stdbool.h>

#include "launch/bind.h"
#include "launch/launch.h"

struct chex_world {
    struct chex_launch launch;
    struct chex_binding binding;
    struct chex_gpu_view gpu;
};

/* Call before any thread starts. Logs the line of each rank where there is more than one, at debug
 * level for a single process. Collective. */
enum chex_status chex_world_open(struct chex_world *world, struct chex_error *err);

/* The same for the one rank that does the work of a command while the others sit out
 * (chex_launch_sits_out). Not collective; ends with chex_world_close too. */
enum chex_status chex_world_open_alone(struct chex_world *world, struct chex_error *err);

/* In place of both, before exit: says what is wrong with the command line or the environment of
 * this rank, in err. What rank 0 says too is said by it alone. Ranks that have begun their work are
 * ended, for this one would not come. */
void chex_world_refuse(const struct chex_error *err);

/* Where all ranks return `status` together (or it is CHEX_OK) they finish; otherwise the job is
 * aborted with it. */
void chex_world_close(struct chex_world *world, enum chex_status status, bool together);

#endif
