/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives during training: self (one rank), MPI (module chexnet-mpi.so) or NCCL (with the CUDA
 * engine). A collective library is one file that fills struct chex_coll_impl.
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
    enum chex_status (*init)(const struct chex_launch *launch, void **self_out,
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
    enum chex_status (*send)(void *self, const void *data, size_t bytes, int to, int tag,
                             struct chex_error *err);
    enum chex_status (*receive)(void *self, void *data, size_t bytes, int from, int tag,
                                struct chex_error *err);
};

/* The library that is compiled in; the others are modules. */
extern const struct chex_coll_impl chex_coll_self;

struct chex_coll {
    const struct chex_coll_impl *impl;
    void *self;
    int rank, size;
    const struct chex_launch_method *method; /* the method that started the ranks */
    struct chex_group *group; /* agree, broadcast, exchange and gather by this library */
};

/* Uses self for one rank, else MPI. Collective. CHEX_E_ENV: MPI is missing or unusable; the text
 * says why. */
enum chex_status chex_coll_create(const struct chex_launch *launch, struct chex_coll **coll_out,
                                  struct chex_error *err);
void chex_coll_destroy(struct chex_coll *coll); /* NULL allowed; collective */

/* Sets c->group from the other members; the caller destroys it. host: of this rank. For a library
 * that chex_coll_create() does not choose. `c` must stay where it is. */
enum chex_status chex_coll_make_group(struct chex_coll *c, const char *host,
                                      struct chex_error *err);

enum chex_status chex_coll_barrier(struct chex_coll *c, struct chex_error *err);

#endif
