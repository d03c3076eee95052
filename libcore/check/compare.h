/* SPDX-License-Identifier: Apache-2.0
 *
 * The figures of a check, across ranks. Between check_run.c and the checks.
 */
#ifndef CHEX_CHECK_COMPARE_H
#define CHEX_CHECK_COMPARE_H

#include "check/check.h"

/* Of n ranks, the worst value of a figure that was measured; 0: of none. *rank_out: whose. */
double chex_check_worst(const struct chex_figure *figure, int index,
                        const struct chex_check_result *const *all, int n, int *rank_out);

/* Adds to what a pass has found how far the ranks' figures lie apart, and worsens *merged where a
 * node of several, or a rank of one node, is behind the others of its kind (check/outlier.h). A
 * node is as good as its worst rank, for which all wait. The fault is the node's, but for ranks
 * that share CPUs. Figures that are not `compared` are left alone. */
void chex_check_compare(const struct chex_check *check, const struct chex_check_card *cards,
                        const struct chex_check_result *const *all, int n,
                        struct chex_check_result *merged);

#endif
