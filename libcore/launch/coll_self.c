/* SPDX-License-Identifier: Apache-2.0
 *
 * The collectives of one rank: copies and no-ops. There is no other rank to send to.
 */
#include <string.h>

#include "launch/coll.h"

static enum chex_status init(struct chex_launch *launch, struct chex_group *start, void **self_out,
                             struct chex_error *err) {
    (void)start;
    if (launch->size != 1)
        return chex_error_set(err, CHEX_E_FAIL, "collectives of one rank: started for %d ranks",
                              launch->size);
    *self_out = NULL;
    return CHEX_OK;
}

static void destroy(void *self) { (void)self; }

static enum chex_status barrier(void *self, struct chex_error *err) {
    (void)self, (void)err;
    return CHEX_OK;
}

static enum chex_status broadcast(void *self, void *data, size_t bytes, int root,
                                  struct chex_error *err) {
    (void)self, (void)data, (void)bytes;
    if (root != 0)
        return chex_error_set(err, CHEX_E_FAIL, "broadcast from rank %d of 1", root);
    return CHEX_OK;
}

static enum chex_status allgather(void *self, const void *mine, size_t bytes, void *all_out,
                                  struct chex_error *err) {
    (void)self, (void)err;
    if (bytes)
        memcpy(all_out, mine, bytes);
    return CHEX_OK;
}

static enum chex_status sum_f32(void *self, float *data, size_t count, struct chex_error *err) {
    (void)self, (void)data, (void)count, (void)err;
    return CHEX_OK;
}

const struct chex_coll_impl chex_coll_self = {
    .name = "self",
    .init = init,
    .destroy = destroy,
    .barrier = barrier,
    .broadcast = broadcast,
    .allgather = allgather,
    .sum_f32 = sum_f32,
};
