/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives of one rank, and what is said where MPI cannot be had. MPI itself is tried in
 * tests/slurm.
 */
#include "launch/coll.h"

#include "tap.h"

static struct chex_error err;

static void check_self(void) {
    struct chex_launch launch = {.method = "single", .size = 1, .local_size = 1, .nodes = 1};
    struct chex_coll *c = NULL;
    OK_CALL(chex_coll_create(&launch, &c, &err));
    BAIL_UNLESS(c, "no collectives");
    OK(strcmp(c->impl->name, "self") == 0 && c->rank == 0 && c->size == 1, "one rank: self");
    int mine = 7;
    float sum32 = 2.5f;
    OK_CALL(chex_coll_barrier(c, &err));
    OK_CALL(chex_group_broadcast(c->group, &mine, sizeof mine, 0, &err));
    OK_STATUS(chex_group_broadcast(c->group, &mine, sizeof mine, 1, &err), CHEX_E_FAIL, err,
              "rank 1 of 1");
    OK_CALL(chex_group_exchange(c->group, "all", &mine, sizeof mine, &err));
    OK(*(const int *)c->group->all == 7, "an exchange of one rank copies");
    OK_CALL(c->impl->sum_f32(c->self, &sum32, 1, &err));
    OK(sum32 == 2.5f, "a sum of one");

    void *gathered = NULL;
    size_t total = 0;
    OK_CALL(chex_group_gather(c->group, "abc", 3, &gathered, &total, &err));
    OK(gathered && total == 3 && memcmp(gathered, "abc", 3) == 0, "gather of one");
    free(gathered);
    OK_CALL(chex_group_gather(c->group, NULL, 0, &gathered, &total, &err));
    OK(total == 0 && gathered, "gather of nothing");
    free(gathered);

    OK_CALL(chex_group_agree(c->group, CHEX_OK, &err));
    chex_error_set(&err, CHEX_E_DATA, "shard 3 is torn");
    OK(chex_group_agree(c->group, CHEX_E_DATA, &err) == CHEX_E_DATA &&
           strcmp(err.text, "shard 3 is torn") == 0,
       "one rank agrees with itself");
    chex_coll_destroy(c);
    chex_coll_destroy(NULL);
}

/* Both ranks give the same. */
static enum chex_status exchange_alike(struct chex_launch *launch, const char *name,
                                       const char *key, const void *mine, size_t bytes,
                                       unsigned char *all_out, uint64_t timeout_ms,
                                       struct chex_error *e) {
    (void)name, (void)key, (void)timeout_ms, (void)e;
    for (int r = 0; r < launch->size; r++)
        memcpy((char *)all_out + (size_t)r * bytes, mine, bytes);
    return CHEX_OK;
}

static void check_without_mpi(void) {
    static const struct chex_launch_method method = {.gather = exchange_alike};
    struct chex_launch launch = {
        .method = "pmix", .size = 2, .local_size = 1, .nodes = 2, .impl = &method};
    struct chex_coll *c = NULL;
    setenv("CHEX_LIBDIR", "/nowhere", 1);
    OK_STATUS(chex_coll_create(&launch, &c, &err), CHEX_E_ENV, err,
              "2 ranks need MPI: module chexnet-mpi.so: /nowhere");
    OK(c == NULL, "the output is left alone");
    setenv("CHEX_MPI", "mpich", 1);
    OK_STATUS(chex_coll_create(&launch, &c, &err), CHEX_E_ENV, err,
              "2 ranks need MPI: module chexnet-mpich.so: /nowhere");
    setenv("CHEX_MPI", "lam", 1);
    OK_STATUS(chex_coll_create(&launch, &c, &err), CHEX_E_USAGE, err,
              "CHEX_MPI: 'lam' is not valid: expected openmpi or mpich");
    launch.method = "pmi2";
    setenv("CHEX_MPI", "openmpi", 1);
    OK_STATUS(chex_coll_create(&launch, &c, &err), CHEX_E_ENV, err,
              "Open MPI needs PMIx, but pmi2 started the ranks: use srun --mpi=pmix, or MPICH");
}

int main(void) {
    check_self();
    check_without_mpi();
    return tap_done();
}
