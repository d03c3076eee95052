/* SPDX-License-Identifier: Apache-2.0
 *
 * Start and end of every command under a launcher. Start: rank and host, binding, view of the GPUs,
 * one log line per rank. End: all ranks finish together, or the job is aborted so that no rank
 * hangs.
 */
#ifndef CHEX_LAUNCH_WORLD_H
#define CHEX_LAUNCH_WORLD_H

#include <stdbool.h>

#include "launch/bind.h"
#include "launch/group.h"
#include "launch/launch.h"

/* Must not move while it is open. */
struct chex_world {
    struct chex_launch launch;
    struct chex_group *group; /* the ranks of the launch, with CHEX_GROUP_START_MS */
    struct chex_binding binding;
    struct chex_gpu_view gpu;
};

/* Opens the world. Call before any thread starts. Collective. Logs one line per rank (for a single
 * process at debug level). */
enum chex_status chex_world_open(struct chex_world *world, struct chex_error *err);

/* The same for rank 0 if the other ranks sit out (chex_launch_sits_out). Not collective. End with
 * chex_world_close. */
enum chex_status chex_world_open_alone(struct chex_world *world, struct chex_error *err);

/* Reports a usage or environment error of this rank. Call it instead of open and close,
 * before exit.
 * - Ranks with the same error as rank 0 stay silent, so the error is printed once.
 * - If other ranks have started to work, the job is aborted, because they would wait for this rank.
 */
void chex_world_refuse(const struct chex_error *err);

/* Ends the world. together: all ranks return `status` together. If `status` is not CHEX_OK and
 * together is false, the job is aborted with `status`. */
void chex_world_close(struct chex_world *world, enum chex_status status, bool together);

#endif
