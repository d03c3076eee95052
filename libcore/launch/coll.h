/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives while training: self (one rank), MPI (module chexnet-mpi.so), NCCL (with the CUDA
 * engine). A collective library is one file that fills struct chex_coll_impl.
 *
 * Every call but send and receive is made by all ranks in the same order. Calls may come from one
 * thread at a time, not always the same one.
 */
#ifndef CHEX_LAUNCH_COLL_H
#define CHEX_LAUNCH_COLL_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
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
    /* In place; the order of additions is the library's. */
    enum chex_status (*sum_f32)(void *self, float *data, size_t count, struct chex_error *err);
    enum chex_status (*send)(void *self, const void *data, size_t bytes, int to, int tag,
                             struct chex_error *err);
    enum chex_status (*receive)(void *self, void *data, size_t bytes, int from, int tag,
                                struct chex_error *err);
};

struct chex_coll {
    const struct chex_coll_impl *impl;
    void *self;
    int rank, size;
};

/* self for one rank, else MPI. CHEX_E_ENV with what is missing. Collective. */
enum chex_status chex_coll_create(const struct chex_launch *launch, struct chex_coll **coll_out,
                                  struct chex_error *err);
void chex_coll_destroy(struct chex_coll *coll); /* NULL allowed; collective */

enum chex_status chex_coll_barrier(struct chex_coll *c, struct chex_error *err);
enum chex_status chex_coll_broadcast(struct chex_coll *c, void *data, size_t bytes, int root,
                                     struct chex_error *err);
enum chex_status chex_coll_allgather(struct chex_coll *c, const void *mine, size_t bytes,
                                     void *all_out, struct chex_error *err);

/* Gathers `bytes` bytes (they may differ per rank) at rank 0, in rank order; *all_out is fresh
 * memory there (the caller frees) and NULL elsewhere; sizes_out (size entries) may be NULL. */
enum chex_status chex_coll_gather_var(struct chex_coll *c, const void *mine, size_t bytes,
                                      void **all_out, size_t *sizes_out, size_t *total_out,
                                      struct chex_error *err);

/* All ranks learn the worst status of any rank and, where it is not CHEX_OK, that rank's text:
 * so that nobody waits for a rank that has failed. Collective. */
enum chex_status chex_coll_agree(struct chex_coll *c, enum chex_status mine,
                                 struct chex_error *err);

#endif
