/* SPDX-License-Identifier: Apache-2.0
 *
 * The additions and messages of one process for the fixed tree (launch/reduce.h), computed once.
 *
 * The value of a node is stored in the vector of its first leaf, at the process that owns this
 * leaf. So additions go to the left, and the root is vector 0 of process 0.
 */
#ifndef CHEX_LAUNCH_REDUCE_ORDER_H
#define CHEX_LAUNCH_REDUCE_ORDER_H

#include "base/error.h"

enum chex_reduce_action {
    CHEX_REDUCE_ADD,     /* vector += vector `other` */
    CHEX_REDUCE_RECEIVE, /* vector += data from process `other` */
    CHEX_REDUCE_SEND,    /* send vector to process `other` */
};

struct chex_reduce_op {
    enum chex_reduce_action action;
    int vector, other;
};

struct chex_reduce_order {
    int leaves;       /* logical ranks of this process */
    int vectors;      /* vectors needed */
    int *leaf_vector; /* [leaves] */
    int *leaf_after;  /* [leaves] leaves that must have been added before its vector is free */
    int *local_end;   /* [leaves] local[local_end[i - 1] .. local_end[i]) runs after leaf i */
    struct chex_reduce_op *local;
    struct chex_reduce_op *cross; /* with other processes, after the last leaf; the same order on
                                     all processes, so no cycle of waits */
    int local_count, cross_count;
};

/* The plan for leaves [from, to) of a tree over [0, logical_ranks) with `size` processes. from and
 * to come from chex_reduce_run. */
enum chex_status chex_reduce_order_init(struct chex_reduce_order *plan, int logical_ranks, int from,
                                        int to, int size, struct chex_error *err);
void chex_reduce_order_release(struct chex_reduce_order *plan); /* half-built and zeroed allowed */

#endif
