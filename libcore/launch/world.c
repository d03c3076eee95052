/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/world.h"

#include "base/log.h"

/* Behind the launch. */
static enum chex_status settle(struct chex_world *world, struct chex_error *err) {
    char line[512];
    const struct chex_launch *l = &world->launch;
    enum chex_status st = chex_bind(l, &world->binding, err);
    if (st != CHEX_OK) {
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
    return settle(world, err);
}

enum chex_status chex_world_open_alone(struct chex_world *world, struct chex_error *err) {
    CHEX_TRY(chex_launch_init_alone(&world->launch, err));
    return settle(world, err);
}

void chex_world_close(struct chex_world *world, enum chex_status status, bool together) {
    if (!together && status != CHEX_OK)
        chex_launch_abort(&world->launch, (int)status);
    chex_launch_finish(&world->launch);
}
