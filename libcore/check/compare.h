/* SPDX-License-Identifier: Apache-2.0
 *
 * Comparison of the figures of a check across ranks. Used by check_run.c and the checks.
 */
#ifndef CHEX_CHECK_COMPARE_H
#define CHEX_CHECK_COMPARE_H

#include "check/check.h"

/* The worst measured value of a figure among n ranks, and its rank in *rank_out. 0: not measured.
 */
double chex_check_worst(const struct chex_check_measurement *figure, int index,
                        const struct chex_check_result *const *all, int n, int *rank_out);

/* Compares the figures that are marked `compared`.
 * - Adds the range of the ranks' values to the found text of a pass.
 * - Worsens *merged if a unit is slower than the others of its kind (check/outlier.h). With several
 *   nodes a unit is a node, otherwise a rank.
 * - A node counts with its worst rank, because all ranks wait for the slowest.
 * - The fault is the node's. If ranks share CPUs, or other processes disturbed the measurement, it
 *   is only a warning for the user. */
void chex_check_compare(const struct chex_check *check, const struct chex_check_record *records,
                        const struct chex_check_result *const *all, int n,
                        struct chex_check_result *merged);

#endif
