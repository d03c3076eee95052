/* SPDX-License-Identifier: Apache-2.0
 *
 * Rankings of one class, for the tests of figures.
 */
#ifndef CHEX_TESTS_UNIT_RANKING_H
#define CHEX_TESTS_UNIT_RANKING_H

#include "stats/auroc.h"
#include "tap.h"

static struct chex_error err;

static inline struct chex_ranking *rank(const double *score, const int8_t *label, size_t rows) {
    struct chex_ranking *r = NULL;
    MUST(chex_ranking_create(score, label, rows, 1, &r, &err));
    return r;
}

#endif
