/* SPDX-License-Identifier: Apache-2.0
 *
 * Means and variances of several batches from those of each.
 */
#include "engine/sync.h"

enum chex_status chex_sync_mean(const struct chex_engine_sync *sync, double *values, size_t count,
                                struct chex_error *err) {
    if (!sync)
        return CHEX_OK;
    CHEX_TRY(sync->sum(sync->arg, values, count, err));
    for (size_t i = 0; i < count; i++)
        values[i] /= sync->logical_ranks;
    return CHEX_OK;
}

enum chex_status chex_sync_moments(const struct chex_engine_sync *sync, double *moments,
                                   size_t channels, struct chex_error *err) {
    double *mean = moments, *var = moments + channels;
    if (!sync)
        return CHEX_OK;
    for (size_t c = 0; c < channels; c++)
        var[c] += mean[c] * mean[c];
    CHEX_TRY(chex_sync_mean(sync, moments, 2 * channels, err));
    for (size_t c = 0; c < channels; c++) {
        const double v = var[c] - mean[c] * mean[c];
        var[c] = v < 0 ? 0 : v; /* NaN stays */
    }
    return CHEX_OK;
}
