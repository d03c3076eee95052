/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures sums over all ranks, and the links between neighbouring nodes.
 *
 * Sums: rank r contributes element (i + 7 r) mod 32 at index i. The exact sum of each index is
 * known, so a wrong element proves a fault.
 *
 * Links: the nodes form a ring of n pairs (k, k + 1). Pairs run in rounds: first even k, then odd
 * k, so that each node is in one pair at a time. If n is odd, the last pair has a round of its own.
 */
#include "check/between.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/clock.h"
#include "check/outlier.h"
#include "launch/reduce.h"

enum { MAX_REPEATS = 1000, RESIDUES = 32 };

/* Rank 0 sets the number of repetitions from the time of one, `once_s`. Collective. */
static enum chex_status agree_on_repeats(struct chex_coll *c, double once_s, double seconds,
                                         int *repeats_out, struct chex_error *err) {
    int32_t n = once_s * 2 > seconds             ? 2
                : once_s * MAX_REPEATS < seconds ? MAX_REPEATS
                                                 : (int32_t)(seconds / once_s);
    CHEX_TRY(chex_group_broadcast(c->group, &n, sizeof n, 0, err));
    *repeats_out = n;
    return CHEX_OK;
}

/* ---- sums ---- */

static enum chex_status small_sum(struct chex_coll *c, double *seconds_out,
                                  struct chex_error *err) {
    float one = 1;
    const double start = chex_clock_s();
    CHEX_TRY(c->impl->sum_f32(c->self, &one, 1, err));
    *seconds_out = chex_clock_s() - start;
    return CHEX_OK;
}

static enum chex_status small_sums(struct chex_coll *c, double seconds, double *work,
                                   struct chex_sum_rate *out, struct chex_error *err) {
    enum { WARM_UP = 5 };
    int repeats;
    for (int i = 0; i < WARM_UP; i++)
        CHEX_TRY(small_sum(c, &work[0], err));
    CHEX_TRY(agree_on_repeats(c, work[0], seconds, &repeats, err));
    for (int i = 0; i < repeats; i++)
        CHEX_TRY(small_sum(c, &work[i], err));
    out->small_s = chex_median(work, repeats);
    out->small_spread = chex_spread(work, repeats);
    return CHEX_OK;
}

/* Element i of a rank: a whole number below RESIDUES, so fp32 is exact up to 2^24 / 32 ranks. */
static float element(int rank, size_t i) { return (float)((i + 7 * (size_t)rank) % RESIDUES); }

static void expected_sums(int ranks, float sums[RESIDUES]) {
    for (size_t k = 0; k < RESIDUES; k++) {
        sums[k] = 0;
        for (int r = 0; r < ranks; r++)
            sums[k] += element(r, k);
    }
}

static void compare(const float *sum, size_t count, const float expected[RESIDUES],
                    struct chex_sum_rate *out) {
    for (size_t i = 0; i < count; i++) {
        if (sum[i] == expected[i % RESIDUES])
            continue;
        if (out->wrong == 0 || i < out->first_wrong)
            out->first_wrong = i;
        out->wrong++;
    }
}

static enum chex_status vector_sum(struct chex_coll *c, struct chex_reduce *reduce, size_t count,
                                   const float expected[RESIDUES], double *seconds_out,
                                   struct chex_sum_rate *out, struct chex_error *err) {
    const float *sum;
    double exposed_s;
    float *mine = chex_reduce_leaf(reduce, c->rank);
    for (size_t i = 0; i < count; i++)
        mine[i] = element(c->rank, i);
    CHEX_TRY(chex_coll_barrier(c, err));
    const double start = chex_clock_s();
    chex_reduce_ready(reduce, 0, count);
    CHEX_TRY(chex_reduce_finish(reduce, &sum, &exposed_s, err));
    *seconds_out = chex_clock_s() - start;
    if (out->wrong == 0)
        compare(sum, count, expected, out);
    return CHEX_OK;
}

static enum chex_status vector_sums(struct chex_coll *c, size_t count, double seconds, double *work,
                                    struct chex_sum_rate *out, struct chex_error *err) {
    struct chex_reduce *reduce = NULL;
    const struct chex_reduce_config config = {.coll = c, .logical_ranks = c->size, .count = count};
    float expected[RESIDUES];
    expected_sums(c->size, expected);
    /* All ranks agree first, so that no rank waits for one that is out of memory. */
    enum chex_status st =
        chex_group_agree(c->group, chex_reduce_create(&config, &reduce, err), err);
    if (st == CHEX_OK)
        st = vector_sum(c, reduce, count, expected, &work[0], out, err);
    if (st == CHEX_OK)
        st = agree_on_repeats(c, work[0], seconds, &out->repeats, err);
    for (int i = 0; i < out->repeats && st == CHEX_OK; i++)
        st = vector_sum(c, reduce, count, expected, &work[i], out, err);
    chex_reduce_destroy(reduce);
    if (st != CHEX_OK)
        return st;
    out->vector_s = chex_median(work, out->repeats);
    out->vector_spread = chex_spread(work, out->repeats);
    out->bus_bytes_per_s =
        2.0 * (c->size - 1) / c->size * (double)count * sizeof(float) / out->vector_s;
    return CHEX_OK;
}

enum chex_status chex_between_sums(struct chex_coll *coll, size_t count, double seconds,
                                   struct chex_sum_rate *out, struct chex_error *err) {
    struct chex_sum_rate r = {0};
    double *work = chex_alloc_zeroed(MAX_REPEATS, sizeof *work);
    enum chex_status st = work ? CHEX_OK : chex_error_memory(err, NULL);
    st = chex_group_agree(coll->group, st, err);
    if (st == CHEX_OK)
        st = small_sums(coll, seconds / 4, work, &r, err);
    if (st == CHEX_OK)
        st = vector_sums(coll, count, seconds, work, &r, err);
    free(work);
    if (st == CHEX_OK)
        *out = r;
    return st;
}

/* ---- links ---- */

enum { TAG = 31000, SMALL = 8, SMALL_TURNS = 50, TURNS = 4, ROUNDS = 3 };

/* Sends a message to rank `other` and back, `turns` times. The rank with `first` sends first. */
static enum chex_status ping_pong(struct chex_coll *c, int other, bool first, void *data,
                                  size_t bytes, int turns, double *seconds_out,
                                  struct chex_error *err) {
    const double start = chex_clock_s();
    for (int i = 0; i < turns; i++) {
        if (first)
            CHEX_TRY(c->impl->send(c->self, data, bytes, other, TAG, err));
        CHEX_TRY(c->impl->receive(c->self, data, bytes, other, TAG, err));
        if (!first)
            CHEX_TRY(c->impl->send(c->self, data, bytes, other, TAG, err));
    }
    *seconds_out = chex_clock_s() - start;
    return CHEX_OK;
}

static enum chex_status link_with(struct chex_coll *c, int other, bool first, char *data,
                                  size_t bytes, struct chex_link *out, struct chex_error *err) {
    struct chex_link l = {.rank = other};
    double seconds;
    CHEX_TRY(ping_pong(c, other, first, data, SMALL, SMALL_TURNS, &seconds, err));
    l.latency_s = seconds / (2 * SMALL_TURNS);
    /* Warm-up: opens the connection. */
    CHEX_TRY(ping_pong(c, other, first, data, bytes, 1, &seconds, err));
    CHEX_TRY(ping_pong(c, other, first, data, bytes, TURNS, &seconds, err));
    l.bytes_per_s = 2.0 * TURNS * (double)bytes / seconds;
    /* Both ends report the figures of the first one. */
    double figures[2] = {l.bytes_per_s, l.latency_s};
    CHEX_TRY(first ? c->impl->send(c->self, figures, sizeof figures, other, TAG, err)
                   : c->impl->receive(c->self, figures, sizeof figures, other, TAG, err));
    l.bytes_per_s = figures[0];
    l.latency_s = figures[1];
    *out = l;
    return CHEX_OK;
}

/* Writes the first rank of each node to `ring` (size entries). Returns the number of nodes. */
static int make_ring(const int32_t *local, int size, int *ring) {
    int n = 0;
    for (int r = 0; r < size; r++)
        if (local[r] == 0)
            ring[n++] = r;
    return n;
}

/* The round of pair k, which is nodes k and k + 1 of the ring: 0 for even k, 1 for odd k, 2 for the
 * last pair of an odd number. */
static int round_of_pair(int pair, int n) { return n % 2 == 1 && pair == n - 1 ? 2 : pair % 2; }

static enum chex_status measure_ring(struct chex_coll *c, const int *ring, int n, char *data,
                                     size_t bytes, struct chex_link links[2],
                                     struct chex_error *err) {
    int me = -1;
    for (int k = 0; k < n; k++)
        me = ring[k] == c->rank ? k : me;
    const int previous = (me + n - 1) % n, next = (me + 1) % n;
    const bool wrap = n > 2; /* two nodes have only one link */
    for (int round = 0; round < ROUNDS; round++) {
        if (me >= 0 && (wrap || me == 0) && round_of_pair(me, n) == round)
            CHEX_TRY(link_with(c, ring[next], true, data, bytes, &links[1], err));
        if (me >= 0 && (wrap || me == 1) && round_of_pair(previous, n) == round)
            CHEX_TRY(link_with(c, ring[previous], false, data, bytes, &links[0], err));
        CHEX_TRY(chex_coll_barrier(c, err));
    }
    return CHEX_OK;
}

enum chex_status chex_between_links(struct chex_coll *coll, int local_rank, size_t bytes,
                                    struct chex_link links_out[2], struct chex_error *err) {
    const int32_t mine = local_rank;
    struct chex_link links[2] = {{.rank = -1}, {.rank = -1}};
    int *ring = chex_alloc_zeroed((size_t)coll->size, sizeof *ring), n = 0;
    char *data = local_rank == 0 ? chex_alloc_zeroed(bytes, 1) : NULL;
    enum chex_status st = CHEX_OK;
    if (!ring || (local_rank == 0 && !data))
        st = chex_error_memory(err, NULL);
    st = chex_group_agree(coll->group, st, err);
    if (st == CHEX_OK)
        st = chex_group_exchange(coll->group, "ring", &mine, sizeof mine, err);
    if (st == CHEX_OK)
        n = make_ring(coll->group->all, coll->size, ring);
    if (st == CHEX_OK && n > 1)
        st = measure_ring(coll, ring, n, data, bytes, links, err);
    free(ring);
    free(data);
    if (st == CHEX_OK)
        memcpy(links_out, links, sizeof links);
    return st;
}
