/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm over the batches of all logical ranks of a step (--sync-bn), for every engine.
 *
 * V logical ranks pass batches of the same number of images at the same time. In the forward pass
 * the mean and variance of a channel become those of all V batches. In the backward pass the two
 * sums of a batch norm, S1 = sum dy and S2 = sum dy * xhat, do too, where the loss is the sum of
 * the V losses. dgamma and dbeta stay those of the logical rank, because the reduction of the
 * gradients adds them. These are the formulas of PyTorch's SyncBatchNorm (torch/nn/modules/
 * _functions.py), which follow from Ioffe and Szegedy's for the whole batch.
 */
#ifndef CHEX_ENGINE_SYNC_H
#define CHEX_ENGINE_SYNC_H

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

/* How an engine reaches the other logical ranks.
 * - sum: replaces values[i] by its sum over all logical ranks; all get the same bits. Every logical
 *   rank makes the same calls with the same counts. Runs on the thread that called pass, and blocks
 *   until all logical ranks have come. After an error the engine leaves the pass with it.
 * - The engine may call it inside pass only.
 * - any_order: an engine that reduces its gradients on a device may sum there instead, in double:
 * the order of the additions is free, or there are only two terms. */
struct chex_engine_sync {
    int logical_ranks;
    enum chex_status (*sum)(void *arg, double *values, size_t count, struct chex_error *err);
    void *arg;
    bool any_order;
};

/* values[i] becomes its mean over the logical ranks. sync NULL: nothing changes. */
enum chex_status chex_sync_mean(const struct chex_engine_sync *sync, double *values, size_t count,
                                struct chex_error *err);

/* moments: (2, channels), the means and the biased variances of a logical rank's batch. They become
 * those of all batches. The variance is mean(var + mean^2) - mean(mean)^2 in double: its relative
 * error is below 2^-50 * (1 + mean^2 / var). */
enum chex_status chex_sync_moments(const struct chex_engine_sync *sync, double *moments,
                                   size_t channels, struct chex_error *err);

/* Factor from the values of a logical rank's batch to those of all batches; sync NULL: 1. */
static inline int chex_sync_ranks(const struct chex_engine_sync *sync) {
    return sync ? sync->logical_ranks : 1;
}

#endif
