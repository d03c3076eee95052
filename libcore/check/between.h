/* SPDX-License-Identifier: Apache-2.0
 *
 * Measurements between ranks, with the collectives that training uses.
 *
 * Every call is collective. It fails on all ranks, or on none.
 */
#ifndef CHEX_CHECK_BETWEEN_H
#define CHEX_CHECK_BETWEEN_H

#include "launch/coll.h"

struct chex_sum_rate {
    double small_s;         /* sum of one number, median */
    double vector_s;        /* sum of `count` floats in buckets, like gradients, median */
    double bus_bytes_per_s; /* bus bandwidth as in NCCL tests: 2 (n - 1) / n * bytes / vector_s */
    size_t wrong;           /* elements on this rank that are not the exact sum */
    size_t first_wrong;     /* index of the first one, in the first repetition that has any */
    int repeats;
    double small_spread, vector_spread; /* chex_spread of the repetitions */
};

/* Measures sums for about `seconds`. The addends are small whole numbers, so the sums are exact in
 * any order of additions. */
enum chex_status chex_between_sums(struct chex_coll *coll, size_t count, double seconds,
                                   struct chex_sum_rate *out, struct chex_error *err);

/* Ping-pong between two neighbours in a ring of nodes. */
struct chex_link {
    int rank;           /* rank of the neighbour; -1: no such neighbour */
    double bytes_per_s; /* one way, one message at a time */
    double latency_s;   /* of 8 bytes, one way */
};

/* Measures the links of a ring of nodes. The first rank of each node plays ping-pong with the
 * previous and with the next node. Pairs without a common node run at the same time.
 * - links_out[0]: link to the previous node. links_out[1]: link to the next node.
 * - With two nodes there is one link, so one entry has rank -1.
 * - With one node, and on all other ranks, both entries have rank -1.
 * A slow node has two slow links. A good node next to it has only one. */
enum chex_status chex_between_links(struct chex_coll *coll, int local_rank, size_t bytes,
                                    struct chex_link links_out[2], struct chex_error *err);

#endif
