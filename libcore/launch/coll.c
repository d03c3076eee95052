/* SPDX-License-Identifier: Apache-2.0
 *
 * Selects the collective library, and makes it the transport of a group.
 */
#include "launch/coll.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "base/module.h"
#include "launch/guard.h"
#include "launch/pmi_server.h"

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

/* ---- MPI ---- */

/* The value of CHEX_MPI; NULL: unset or empty. */
static const char *forced_mpi(void) {
    const char *name = getenv("CHEX_MPI");
    return name && *name ? name : NULL;
}

enum chex_status chex_coll_module_symbol(const char *module, const char *symbol, void **symbol_out,
                                         struct chex_error *err) {
    if (strcmp(module, "mpich") == 0 && chex_module_installed(module) &&
        !dlopen("libmpich.so.12", RTLD_NOW | RTLD_GLOBAL) &&
        !dlopen("libmpi.so.12", RTLD_NOW | RTLD_GLOBAL))
        return chex_error_set(err, CHEX_E_ENV, "module chexnet-mpich.so: %s", dlerror());
    return chex_module_symbol(module, symbol, symbol_out, err);
}

static enum chex_status load(const char *module, const struct chex_coll_impl **impl_out,
                             struct chex_error *err) {
    void *symbol = NULL;
    CHEX_TRY(chex_coll_module_symbol(module, "chexnet_coll_mpi", &symbol, err));
    *impl_out = symbol;
    return CHEX_OK;
}

enum chex_status chex_coll_load_mpi(const struct chex_launch *launch,
                                    const struct chex_coll_impl **impl_out,
                                    struct chex_error *err) {
    const char *forced = forced_mpi();
    const bool pmix = launch->size <= 1 || strcmp(launch->method, "pmix") == 0;
    const bool openmpi = !forced || strcmp(forced, "openmpi") == 0;
    const bool mpich = !forced || strcmp(forced, "mpich") == 0;
    struct chex_error why = {0};
    if (!openmpi && !mpich)
        return chex_error_set(err, CHEX_E_USAGE,
                              "CHEX_MPI: '%s' is not valid: expected openmpi or mpich", forced);
    if (openmpi && !pmix)
        chex_error_set(err, CHEX_E_ENV,
                       "Open MPI needs PMIx, but %s started the ranks: use srun --mpi=pmix, or "
                       "MPICH",
                       launch->method);
    else if (openmpi && load("mpi", impl_out, err) == CHEX_OK)
        return CHEX_OK;
    if (mpich && load("mpich", impl_out, &why) == CHEX_OK)
        return CHEX_OK;
    if (!openmpi)
        *err = why;
    else if (mpich && chex_module_installed("mpich"))
        chex_error_set(err, CHEX_E_ENV, "%s; %s", err->text, why.text);
    return err->status;
}

/* ---- the library ---- */

bool chex_coll_needs_mpi(const struct chex_launch *launch) {
    return launch->size > 1 && (launch->nodes > 1 || forced_mpi());
}

/* Whether all ranks come to the same library. impl: NULL if this rank has the error `st`. */
static enum chex_status agree_on(struct chex_group *g, const struct chex_coll_impl *impl,
                                 enum chex_status st, struct chex_error *err) {
    char name[16] = "";
    if (impl)
        snprintf(name, sizeof name, "%s", impl->name);
    CHEX_TRY(chex_group_exchange(g, "library", name, sizeof name, err));
    const char(*all)[sizeof name] = g->all;
    for (int r = 0; r < g->size; r++)
        if (!all[r][0])
            return chex_group_agree(g, st, err);
    for (int r = 1; r < g->size; r++)
        if (strcmp(all[r], all[0]) != 0)
            return chex_error_set(err, CHEX_E_ENV,
                                  "rank 0 would use %s, rank %d %s: CHEX_MPI and the modules must "
                                  "be the same on all nodes",
                                  all[0], r, all[r]);
    return CHEX_OK;
}

static enum chex_status start_mpi(struct chex_launch *launch, struct chex_group *g,
                                  struct chex_coll *c, struct chex_error *err) {
    struct chex_error why = {0};
    enum chex_status st = chex_coll_load_mpi(launch, &c->impl, &why);
    if (st != CHEX_OK)
        chex_error_set(err, st, "%d ranks need MPI: %s", launch->size, why.text);
    CHEX_TRY(agree_on(g, c->impl, st, err));
    if (strcmp(c->impl->name, "mpich") == 0)
        CHEX_TRY(chex_pmi_server_start(launch, &c->pmi, err));
    struct chex_guard *guard = chex_guard_begin(c->method, "the start of MPI");
    st = c->impl->init(launch, g, &c->self, err);
    chex_guard_end(guard);
    return st;
}

static enum chex_status start(struct chex_launch *launch, struct chex_group *g, struct chex_coll *c,
                              struct chex_error *err) {
    const bool alone = launch->size == 1;
    if (chex_coll_needs_mpi(launch))
        return start_mpi(launch, g, c, err);
    c->impl = alone ? &chex_coll_self : &chex_coll_shm;
    CHEX_TRY(agree_on(g, c->impl, CHEX_OK, err));
    const enum chex_status st = c->impl->init(launch, g, &c->self, err);
    if (st == CHEX_OK && !alone)
        chex_info("%d ranks of one node: shared memory", launch->size);
    if (st != CHEX_E_ENV && st != CHEX_E_RESOURCE)
        return st;
    if (launch->rank == 0)
        chex_warn("%s: MPI is used", err->text);
    c->impl = NULL;
    return start_mpi(launch, g, c, err);
}

enum chex_status chex_coll_create(struct chex_launch *launch, struct chex_coll **coll_out,
                                  struct chex_error *err) {
    struct chex_group *g = NULL;
    struct chex_coll *c = chex_alloc_zeroed(1, sizeof *c);
    if (!c)
        return chex_error_memory(err, NULL);
    *c = (struct chex_coll){.rank = launch->rank, .size = launch->size, .method = launch->impl};
    enum chex_status st = chex_coll_make_group(c, launch->host, err);
    if (st == CHEX_OK)
        st = chex_group_of_launch(launch, CHEX_GROUP_START_MS, &g, err);
    if (st == CHEX_OK)
        st = start(launch, g, c, err);
    chex_group_destroy(g);
    if (st != CHEX_OK) {
        chex_pmi_server_end(c->pmi);
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
    struct chex_guard *guard = chex_guard_begin(c->method, "the end of the collectives");
    c->impl->destroy(c->self);
    chex_guard_end(guard);
    chex_pmi_server_end(c->pmi);
    chex_group_destroy(c->group);
    free(c);
}

enum chex_status chex_coll_barrier(struct chex_coll *c, struct chex_error *err) {
    return c->impl->barrier(c->self, err);
}
