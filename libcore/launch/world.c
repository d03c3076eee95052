/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/world.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/log.h"

enum { REFUSE_MS = 10000 }; /* in which the others refuse too, if they do */

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

/* Whether all ranks refuse; *same_out: rank 0 for this reason. */
static bool all_refuse(struct chex_launch *launch, const struct chex_error *err, bool *same_out) {
    struct chex_error fault = {0};
    const uint64_t mine = chex_hash64(err->text, strlen(err->text));
    uint64_t *all = calloc((size_t)launch->size, sizeof *all);
    const bool told = all && chex_launch_exchange(launch, "refuse", &mine, sizeof mine, all,
                                                  REFUSE_MS, &fault) == CHEX_OK;
    *same_out = told && all[0] == mine;
    free(all);
    return told;
}

/* Rank 0 waits for nothing before it speaks, and the others are silent only once they know that it
 * has: so one line at least is seen whatever happens. */
void chex_world_refuse(const struct chex_error *err) {
    struct chex_launch launch;
    struct chex_error fault = {0};
    const bool speaks = chex_launch_env_rank() == 0;
    if (speaks)
        chex_err("%s", err->text);
    if (chex_launch_init(&launch, &fault) != CHEX_OK) {
        if (!speaks)
            chex_err("%s", err->text);
        return;
    }
    chex_log_set_rank(launch.rank, launch.size, launch.host);
    bool same;
    const bool together = all_refuse(&launch, err, &same);
    if (!speaks && !same)
        chex_err("%s", err->text);
    if (!together)
        chex_launch_abort(&launch, (int)err->status);
    chex_launch_finish(&launch);
}
