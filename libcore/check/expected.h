/* SPDX-License-Identifier: Apache-2.0
 *
 * Between check_run.c and check_expected.c.
 */
#ifndef CHEX_CHECK_EXPECTED_H
#define CHEX_CHECK_EXPECTED_H

#include "check/check.h"

/* Fails the answer where a value is expected for `name` and another was found. */
void chex_check_expected_apply(const struct chex_check_expected *e, const char *name,
                               struct chex_check_result *r);

#endif
