/* SPDX-License-Identifier: Apache-2.0
 *
 * What is measured between the ranks with the collectives of the training. Every call is collective
 * and fails on all ranks alike, or not at all.
 */
#ifndef CHEX_CHECK_BETWEEN_H
#define CHEX_CHECK_BETWEEN_H

#include "launch/coll.h"

struct chex_sum_rate {
    double small_s;  /* a sum of one number, median */
    double vector_s; /* a sum of `count` floats in buckets, as gradients are summed, median */
    double bus_bytes_per_s; /* what each rank must send and take at least: 2 (n - 1) / n of them */
    size_t wrong;       /* elements that are not the exact sum, on this rank, of all repetitions */
    size_t first_wrong; /* the lowest of the first repetition with any */
    int repeats;
};

/* Sums of whole numbers that are exact in any order of additions. For about `seconds`. */
enum chex_status chex_between_sums(struct chex_coll *coll, size_t count, double seconds,
                                   struct chex_sum_rate *out, struct chex_error *err);

/* The rate at which two neighbours in a ring of nodes throw a message back and forth. */
struct chex_link {
    int rank;           /* the other's; -1: there is no such neighbour */
    double bytes_per_s; /* each way, one message at a time */
    double latency_s;   /* of 8 bytes, one way */
};

/* One rank a node (its first) throws, with the node before and the node behind its own; all such
 * pairs that have no node in common at once. A node that is slow is so with both, a good one beside
 * it with one only. links_out[2]: before and behind. One of them is -1 with two nodes, which are
 * one pair, and both on all other ranks and with one node. */
enum chex_status chex_between_links(struct chex_coll *coll, int local_rank, size_t bytes,
                                    struct chex_link links_out[2], struct chex_error *err);

#endif
