/* SPDX-License-Identifier: Apache-2.0
 *
 * Between check_run.c and check_expected.c.
 */
#ifndef CHEX_CHECK_EXPECTED_H
#define CHEX_CHECK_EXPECTED_H

#include "check/check.h"

/* Fails the answer where another text is expected of the check than was found, or where a figure is
 * beyond its limit. A figure that was not measured has no limit. */
void chex_check_expected_apply(const struct chex_check_expected *e, const struct chex_check *check,
                               struct chex_check_result *r);

#endif
