/* SPDX-License-Identifier: Apache-2.0
 *
 * Selects the collective library, and makes it the transport of a group.
 */
#include "launch/coll.h"

#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/module.h"
#include "launch/guard.h"

enum { GATHER_TAG = 32000 }; /* the reduction's are below 16384 */

/* ---- the transport of a group ---- */

static enum chex_status exchange(void *arg, const char *key, const void *mine, size_t bytes,
                                 void *all_out, uint64_t wait_ms, struct chex_error *err) {
    struct chex_coll *c = arg;
    (void)key, (void)wait_ms; /* the library has no clock */
    return c->impl->allgather(c->self, mine, bytes, all_out, err);
}

static enum chex_status broadcast(void *arg, void *data, size_t bytes, int root,
                                  struct chex_error *err) {
    struct chex_coll *c = arg;
    return c->impl->broadcast(c->self, data, bytes, root, err);
}

static enum chex_status gather(void *arg, const void *mine, const uint64_t *sizes, void *all_out,
                               struct chex_error *err) {
    struct chex_coll *c = arg;
    unsigned char *all = all_out;
    if (c->rank != 0)
        return sizes[c->rank] == 0
                   ? CHEX_OK
                   : c->impl->send(c->self, mine, (size_t)sizes[c->rank], 0, GATHER_TAG, err);
    if (sizes[0])
        memcpy(all, mine, (size_t)sizes[0]);
    all += sizes[0];
    for (int r = 1; r < c->size; all += sizes[r++])
        if (sizes[r])
            CHEX_TRY(c->impl->receive(c->self, all, (size_t)sizes[r], r, GATHER_TAG, err));
    return CHEX_OK;
}

static const struct chex_group_transport coll_transport = {
    .exchange = exchange, .broadcast = broadcast, .gather = gather};

enum chex_status chex_coll_make_group(struct chex_coll *c, const char *host,
                                      struct chex_error *err) {
    return chex_group_create(c->rank, c->size, host, &coll_transport, c, 0, &c->group, err);
}

/* ---- the library ---- */

enum chex_status chex_coll_create(const struct chex_launch *launch, struct chex_coll **coll_out,
                                  struct chex_error *err) {
    const struct chex_coll_impl *impl = &chex_coll_self;
    if (launch->size > 1) {
        void *symbol = NULL;
        if (strcmp(launch->method, "slurm") == 0)
            return chex_error_set(err, CHEX_E_ENV,
                                  "%d ranks need MPI, and Open MPI needs PMIx: use srun --mpi=pmix "
                                  "(srun --mpi=list prints the types of this Slurm)",
                                  launch->size);
        enum chex_status st = chex_module_symbol("mpi", "chexnet_coll_mpi", &symbol, err);
        if (st != CHEX_OK)
            return chex_error_prefix(err, st, "%d ranks need MPI", launch->size);
        impl = symbol;
    }
    struct chex_coll *c = chex_alloc_zeroed(1, sizeof *c);
    if (!c)
        return chex_error_memory(err, NULL);
    *c = (struct chex_coll){.impl = impl, .rank = launch->rank, .size = launch->size};
    c->method = launch->impl;
    enum chex_status st = chex_coll_make_group(c, launch->host, err);
    struct chex_guard *guard = chex_guard_begin(c->method, "the start of MPI");
    if (st == CHEX_OK)
        st = impl->init(launch, &c->self, err);
    chex_guard_end(guard);
    if (st != CHEX_OK) {
        chex_group_destroy(c->group);
        free(c);
        return st;
    }
    *coll_out = c;
    return CHEX_OK;
}

void chex_coll_destroy(struct chex_coll *c) {
    if (!c)
        return;
    struct chex_guard *guard = chex_guard_begin(c->method, "the end of MPI");
    c->impl->destroy(c->self);
    chex_guard_end(guard);
    chex_group_destroy(c->group);
    free(c);
}

enum chex_status chex_coll_barrier(struct chex_coll *c, struct chex_error *err) {
    return c->impl->barrier(c->self, err);
}
