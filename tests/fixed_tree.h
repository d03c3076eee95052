/* SPDX-License-Identifier: Apache-2.0
 *
 * The fixed tree of launch/reduce.h as its definition says: the sums that a reduction must have, to
 * the last bit.
 */
#ifndef CHEX_TESTS_FIXED_TREE_H
#define CHEX_TESTS_FIXED_TREE_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "base/rng.h"

/* Element i of logical rank v. Values of many sizes, so that another order of additions gives other
 * bits. */
static double tree_leaf(int step, int v, size_t i) {
    struct chex_rng4 r = chex_rng((uint64_t)step, CHEX_RNG_TEST, (uint64_t)v, (uint32_t)i);
    return (double)ldexpf(chex_rng_unit(r.v[0]) - 0.5f, (int)chex_rng_below(r.v[1], 12));
}

/* The sum of `leaf` over the logical ranks [a, b). single: in float. Rounding the sum of two floats
 * in double to float gives their sum in float. */
static double tree_sum(double (*leaf)(int step, int v, size_t i), bool single, int step, int a,
                       int b, size_t i) {
    if (b - a == 1)
        return leaf(step, a, i);
    int power = 1;
    while (power * 2 < b - a)
        power *= 2;
    const double left = tree_sum(leaf, single, step, a, a + power, i);
    const double sum = left + tree_sum(leaf, single, step, a + power, b, i);
    return single ? (double)(float)sum : sum;
}

#endif
