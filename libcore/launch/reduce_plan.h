/* SPDX-License-Identifier: Apache-2.0
 *
 * Who adds what to what: the part of the fixed tree (launch/reduce.h) that one process carries out,
 * worked out once. The value of a node always lies in the vector of its first leaf, at the process
 * that plays this leaf, so additions go to the left and the root is vector 0 of process 0.
 */
#ifndef CHEX_LAUNCH_REDUCE_PLAN_H
#define CHEX_LAUNCH_REDUCE_PLAN_H

#include "base/error.h"

enum chex_reduce_action {
    CHEX_REDUCE_ADD,     /* vector += vector `other` */
    CHEX_REDUCE_RECEIVE, /* vector += what process `other` sends */
    CHEX_REDUCE_SEND,    /* vector goes to process `other` */
};

struct chex_reduce_op {
    enum chex_reduce_action action;
    int vector, other;
};

struct chex_reduce_plan {
    int leaves;       /* of this process */
    int vectors;      /* that suffice */
    int *leaf_vector; /* [leaves] */
    int *
        leaf_after; /* [leaves] how many leaves must have been added up before its vector is free */
    int *local_end; /* [leaves] local[local_end[i - 1] .. local_end[i]) is due after leaf i */
    struct chex_reduce_op *local;
    struct chex_reduce_op *cross; /* with other processes, after the last leaf. In an order that is
                                   * the same for all processes: nobody waits in a circle */
    int local_count, cross_count;
};

/* For leaves [from, to) of a tree over [0, logical_ranks): a run of `size` processes, as
 * chex_reduce_run deals them out. */
enum chex_status chex_reduce_plan_init(struct chex_reduce_plan *plan, int logical_ranks, int from,
                                       int to, int size, struct chex_error *err);
void chex_reduce_plan_release(struct chex_reduce_plan *plan); /* half-built and zeroed allowed */

#endif
