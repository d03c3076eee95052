/* SPDX-License-Identifier: Apache-2.0
 *
 * All-gather and all-reduce in ceil(log2 n) rounds, for any number n of ranks. A collective library
 * that can exchange messages with two ranks at once gets both from here.
 *
 * Each rank sends and receives n - 1 of n blocks (twice for the sum), which is the least possible.
 * The sum needs scratch memory of half a vector.
 *
 * Sources: all-gather: Bruck et al., "Efficient algorithms for all-to-all communications in
 * multiport message-passing systems", 1997. Sum: Traeff, "Optimal, non-pipelined reduce-scatter and
 * allreduce algorithms", arXiv:2410.14234.
 */
#ifndef CHEX_LAUNCH_CIRCULANT_H
#define CHEX_LAUNCH_CIRCULANT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* The ranks, and how they exchange messages. */
struct chex_circulant {
    void *self; /* first argument of `exchange` */
    int rank, size;
    /* Sends out_bytes to rank `to` and receives in_bytes from rank `from`, at the same time: the
     * send does not wait for the receive. 0 bytes: there is no such message. */
    enum chex_status (*exchange)(void *self, const void *out, size_t out_bytes, int to, void *in,
                                 size_t in_bytes, int from, struct chex_error *err);
};

/* Every rank gives `bytes` bytes. all_out: size * bytes, in rank order. Collective. */
enum chex_status chex_circulant_allgather(const struct chex_circulant *c, const void *mine,
                                          size_t bytes, void *all_out, struct chex_error *err);

/* Elements of scratch memory for a sum of `count` elements. */
size_t chex_circulant_scratch(int size, size_t count);

/* data becomes the sum of the vectors of all ranks; all ranks get the same bits. The order of the
 * additions depends only on `size` and `count`. If chex_circulant_is_tree(size), it is the fixed
 * tree of launch/reduce.h with one leaf per rank. Collective. */
enum chex_status chex_circulant_sum(const struct chex_circulant *c, float *data, size_t count,
                                    float *scratch, struct chex_error *err);

/* Whether the sum adds along the fixed tree: `size` is a power of two. */
bool chex_circulant_is_tree(int size);

/* For a library that adds in the same order by its own messages (circulant.c has the order): the
 * place of a rank in the circle of a sum, which is also the rank at a place; the first element of
 * block b, 0 <= b <= size. */
int chex_circulant_place(int size, int rank);
size_t chex_circulant_block(size_t count, int size, int b);

#endif
