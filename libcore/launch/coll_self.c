/* SPDX-License-Identifier: Apache-2.0
 *
 * The collectives of one rank: copies and no-ops. send and receive fail, because there is no other
 * rank.
 */
#include <string.h>

#include "launch/coll.h"

static enum chex_status init(const struct chex_launch *launch, void **self_out,
                             struct chex_error *err) {
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

static enum chex_status send(void *self, const void *data, size_t bytes, int to, int tag,
                             struct chex_error *err) {
    (void)self, (void)data;
    return chex_error_set(err, CHEX_E_FAIL, "%zu bytes (tag %d) for rank %d of 1", bytes, tag, to);
}

static enum chex_status receive(void *self, void *data, size_t bytes, int from, int tag,
                                struct chex_error *err) {
    (void)self, (void)data;
    return chex_error_set(err, CHEX_E_FAIL, "%zu bytes (tag %d) expected from rank %d of 1", bytes,
                          tag, from);
}

const struct chex_coll_impl chex_coll_self = {
    .name = "self",
    .init = init,
    .destroy = destroy,
    .barrier = barrier,
    .broadcast = broadcast,
    .allgather = allgather,
    .sum_f32 = sum_f32,
    .send = send,
    .receive = receive,
};
