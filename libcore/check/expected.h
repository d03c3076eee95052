/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares answers with expected values. Used by check_run.c, implemented in check_expected.c.
 */
#ifndef CHEX_CHECK_EXPECTED_H
#define CHEX_CHECK_EXPECTED_H

#include "check/check.h"

/* Compares an answer with the expected values.
 * - Fails it if the found text differs from the expected one, or if a figure is beyond its limit.
 * - Only warns the user if other processes disturbed the measurement.
 * - Only warns if the limit is within four times the spread of the measurement.
 * - Ignores the limit of a figure that was not measured. */
void chex_check_expected_apply(const struct chex_check_expected *e, const struct chex_check *check,
                               struct chex_check_result *r);

#endif
