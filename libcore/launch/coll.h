/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives during training: self (one rank), shared memory (one node), MPI or NCCL (with the
 * CUDA engine). A collective library is one file that fills struct chex_coll_impl.
 *
 * Two modules are made of coll_mpi.c. Both libraries define the same functions, so a process loads
 * one of them at most.
 * - chexnet-mpi.so ("openmpi"): Open MPI, which needs a PMIx server, so the launch method pmix.
 * - chexnet-mpich.so ("mpich"): the ABI of MPICH, Cray MPICH and Intel MPI. It uses our PMI server
 *   (launch/pmi_server.h), under every launch method.
 *
 * All ranks make the same calls in the same order, except send and receive. One thread at a time
 * may call; it need not be the same thread.
 */
#ifndef CHEX_LAUNCH_COLL_H
#define CHEX_LAUNCH_COLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "launch/group.h"
#include "launch/launch.h"

struct chex_coll_impl {
    const char *name;
    /* start: a group of the launch, for exchanges before the library works. */
    enum chex_status (*init)(struct chex_launch *launch, struct chex_group *start, void **self_out,
                             struct chex_error *err);
    void (*destroy)(void *self);
    enum chex_status (*barrier)(void *self, struct chex_error *err);
    enum chex_status (*broadcast)(void *self, void *data, size_t bytes, int root,
                                  struct chex_error *err);
    enum chex_status (*allgather)(void *self, const void *mine, size_t bytes, void *all_out,
                                  struct chex_error *err);
    /* In place. All ranks get the same bits. The library chooses the order of additions. */
    enum chex_status (*sum_f32)(void *self, float *data, size_t count, struct chex_error *err);
    /* Whether sum_f32 of `size` ranks adds along the fixed tree (launch/reduce.h) with one leaf per
     * rank. NULL: never. */
    bool (*sums_by_tree)(int size);
    /* Both are NULL in a library of one rank. */
    enum chex_status (*send)(void *self, const void *data, size_t bytes, int to, int tag,
                             struct chex_error *err);
    enum chex_status (*receive)(void *self, void *data, size_t bytes, int from, int tag,
                                struct chex_error *err);
};

/* The libraries that are compiled in; the others are modules. */
extern const struct chex_coll_impl chex_coll_self, chex_coll_shm;

struct chex_coll {
    const struct chex_coll_impl *impl;
    void *self;
    int rank, size;
    const struct chex_launch_method *method; /* the method that started the ranks */
    struct chex_group *group;    /* agree, broadcast, exchange and gather by this library */
    struct chex_pmi_server *pmi; /* of MPICH, or NULL */
};

/* Uses self for one rank; shared memory for several ranks of one node, unless CHEX_MPI is set; else
 * MPI. Logs which. Collective.
 * - CHEX_E_ENV: MPI is missing or unusable, or the ranks would use different libraries; the text
 *   says why. */
enum chex_status chex_coll_create(struct chex_launch *launch, struct chex_coll **coll_out,
                                  struct chex_error *err);

/* Whether the ranks need MPI: they are on several nodes, or CHEX_MPI is set. */
bool chex_coll_needs_mpi(const struct chex_launch *launch);

/* Loads the module that CHEX_MPI names, else the first of the two that suits the launch method and
 * loads. CHEX_E_USAGE: CHEX_MPI is neither openmpi nor mpich. CHEX_E_ENV: the text says what to
 * load. */
enum chex_status chex_coll_load_mpi(const struct chex_launch *launch,
                                    const struct chex_coll_impl **impl_out, struct chex_error *err);

/* As chex_module_symbol, for any module. Before "mpich" it loads libmpi.so.12 or Debian's
 * libmpich.so.12: that module is linked with neither. */
enum chex_status chex_coll_module_symbol(const char *module, const char *symbol, void **symbol_out,
                                         struct chex_error *err);

void chex_coll_destroy(struct chex_coll *coll); /* NULL allowed; collective */

/* Sets c->group from the other members; the caller destroys it. host: of this rank. For a library
 * that chex_coll_create() does not choose. `c` must stay where it is. */
enum chex_status chex_coll_make_group(struct chex_coll *c, const char *host,
                                      struct chex_error *err);

enum chex_status chex_coll_barrier(struct chex_coll *c, struct chex_error *err);

#endif
