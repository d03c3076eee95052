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
    OK_STATUS(c->impl->send(c->self, &mine, 4, 1, 0, &err), CHEX_E_FAIL, err, "rank 1 of 1");
    OK_STATUS(c->impl->receive(c->self, &mine, 4, 1, 0, &err), CHEX_E_FAIL, err, "rank 1 of 1");

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

static void check_without_mpi(void) {
    struct chex_launch launch = {.method = "pmix", .size = 2, .local_size = 2, .nodes = 1};
    struct chex_coll *c = NULL;
    setenv("CHEX_LIBDIR", "/nowhere", 1);
    OK_STATUS(chex_coll_create(&launch, &c, &err), CHEX_E_ENV, err, "2 ranks need MPI");
    OK(c == NULL, "the output is left alone");
}

int main(void) {
    check_self();
    check_without_mpi();
    return tap_done();
}
