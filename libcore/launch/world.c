/* SPDX-License-Identifier: Apache-2.0
 *
 * Start and end of a command under a launcher: launch, bind, view of GPUs, and a common exit.
 */
#include "launch/world.h"

#include <string.h>

#include "base/hash.h"
#include "base/log.h"

enum { REFUSE_MS = 10000 }; /* the other ranks must report their error within this time */

/* After the launch: makes the group, binds, reads the view of the GPUs and logs the line of the
 * rank. */
static enum chex_status bind_and_log(struct chex_world *world, struct chex_error *err) {
    char line[CHEX_BIND_LINE_BYTES];
    const struct chex_launch *l = &world->launch;
    world->group = NULL;
    enum chex_status st =
        chex_group_of_launch(&world->launch, CHEX_GROUP_START_MS, &world->group, err);
    if (st == CHEX_OK)
        st = chex_bind(l, &world->binding, err);
    if (st != CHEX_OK) {
        chex_group_destroy(world->group);
        chex_launch_abort(&world->launch, (int)st);
        chex_launch_finish(&world->launch);
        return st;
    }
    chex_gpu_view(&world->gpu);
    chex_bind_line(l, &world->binding, &world->gpu, line, sizeof line);
    if (l->size > 1)
        chex_log_all("%s", line);
    else
        chex_debug("%s", line);
    if (world->binding.note[0])
        chex_warn("%s", world->binding.note);
    return CHEX_OK;
}

enum chex_status chex_world_open(struct chex_world *world, struct chex_error *err) {
    CHEX_TRY(chex_launch_init(&world->launch, err));
    chex_log_set_rank(world->launch.rank, world->launch.size, world->launch.host);
    chex_launch_warn_left_out(&world->launch);
    return bind_and_log(world, err);
}

enum chex_status chex_world_open_alone(struct chex_world *world, struct chex_error *err) {
    CHEX_TRY(chex_launch_init_alone(&world->launch, err));
    return bind_and_log(world, err);
}

void chex_world_close(struct chex_world *world, enum chex_status status, bool together) {
    if (!together && status != CHEX_OK)
        chex_launch_abort(&world->launch, (int)status);
    chex_group_destroy(world->group);
    chex_launch_finish(&world->launch);
}

/* Whether all ranks have an error. *same_out: rank 0 has the same error text as this rank. */
static bool all_refuse(struct chex_launch *launch, const struct chex_error *err, bool *same_out) {
    struct chex_error fault = {0};
    struct chex_group *group = NULL;
    const uint64_t mine = chex_hash64(err->text, strlen(err->text));
    const bool exchanged =
        chex_group_of_launch(launch, REFUSE_MS, &group, &fault) == CHEX_OK &&
        chex_group_exchange(group, "refuse", &mine, sizeof mine, &fault) == CHEX_OK;
    *same_out = exchanged && *(const uint64_t *)group->all == mine;
    chex_group_destroy(group);
    return exchanged;
}

/* Rank 0 prints first and waits for no rank. Other ranks stay silent only after they know that rank
 * 0 has printed the same text. So at least one line is printed in every case. */
void chex_world_refuse(const struct chex_error *err) {
    struct chex_launch launch;
    struct chex_error fault = {0};
    const bool is_first = chex_launch_env_rank() == 0;
    if (is_first)
        chex_err("%s", err->text);
    if (chex_launch_init(&launch, &fault) != CHEX_OK) {
        if (!is_first)
            chex_err("%s", err->text);
        return;
    }
    chex_log_set_rank(launch.rank, launch.size, launch.host);
    bool same;
    const bool together = all_refuse(&launch, err, &same);
    if (!is_first && !same)
        chex_err("%s", err->text);
    if (!together)
        chex_launch_abort(&launch, (int)err->status);
    chex_launch_finish(&launch);
}
