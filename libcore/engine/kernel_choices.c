/* SPDX-License-Identifier: Apache-2.0
 *
 * The switch CHEX_CUDA_MEASURE, and texts of choices.
 */
#include "engine/kernel_choices.h"

#include <stdlib.h>
#include <string.h>

static const double most_s = 3600;

enum chex_status chex_kernel_measure_limit(double *limit_s_out, struct chex_error *err) {
    const char *text = getenv("CHEX_CUDA_MEASURE");
    char *end = NULL;
    *limit_s_out = 0;
    if (!text || !*text)
        return CHEX_OK;
    const double s = strtod(text, &end);
    if (*end || !(s >= 0 && s <= most_s))
        return chex_error_set(err, CHEX_E_USAGE,
                              "CHEX_CUDA_MEASURE: not a number of seconds ('%s'; expected 0 to %g)",
                              text, most_s);
    *limit_s_out = s;
    return CHEX_OK;
}

enum chex_status chex_kernel_measure(struct chex_engine *e, struct chex_error *err) {
    const struct chex_engine_choices *entries = e->impl->choices;
    double limit_s;
    CHEX_TRY(chex_kernel_measure_limit(&limit_s, err));
    return entries && limit_s > 0 ? entries->measure(e->self, limit_s, err) : CHEX_OK;
}

bool chex_kernel_same_device(const char *a, const char *b) {
    const size_t n = strcspn(a, "\n");
    return n == strcspn(b, "\n") && memcmp(a, b, n) == 0;
}
