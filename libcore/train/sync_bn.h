/* SPDX-License-Identifier: Apache-2.0
 *
 * --sync-bn: the engines of a process whose logical ranks pass their batches at the same time.
 *
 * Batch norm over all logical ranks needs a sum in the middle of every pass (launch/rank_sum.h). So
 * the logical ranks of a process cannot pass one after another through one engine, as without
 * --sync-bn: each has an engine of its own, with its activations, and a thread.
 *
 * - Engine 0 is that of the session: it validates and gives the state for checkpoints. The others
 *   get a copy of its state at the start, and the same updates. So they stay equal to the last bit.
 * - The compute threads of the process are divided among its engines.
 * - Gradients stay in the engines' own vectors until all passes have ended. Only then the caller
 *   gives them to the reduction, so that one thread at a time calls the collective library.
 * - A pass that fails ends the passes of the other logical ranks of this process with its error.
 * The caller then ends the job, as after any error of one rank.
 */
#ifndef CHEX_TRAIN_SYNC_BN_H
#define CHEX_TRAIN_SYNC_BN_H

#include "engine/engine.h"
#include "launch/rank_sum.h"

enum { CHEX_SYNC_BN_MOST = 12 }; /* logical ranks of a process: their batches are held together */

struct chex_sync_bn;

/* Sums over the logical ranks in a pass of the engines cpu and cuda, and their bytes: forward and
 * backward, one for each operation whose output a batch norm reads. */
void chex_sync_bn_sums(const struct chex_net *net, int *sums_out, uint64_t *bytes_out);

/* Whether the logical ranks of this process can pass together: CHEX_E_USAGE if they are more than
 * CHEX_SYNC_BN_MOST, or several that share a GPU or the old pipeline. Comes before all work. */
enum chex_status chex_sync_bn_check(const struct chex_coll *coll, int logical_ranks, bool on_device,
                                    bool old_pipeline, struct chex_error *err);

/* For the logical ranks of this process. coll and net are borrowed. Not collective. */
enum chex_status chex_sync_bn_create(struct chex_coll *coll, const struct chex_net *net,
                                     int logical_ranks, bool deterministic,
                                     struct chex_sync_bn **out, struct chex_error *err);
void chex_sync_bn_destroy(struct chex_sync_bn *b); /* NULL allowed; before engine 0 */

/* Completes the configuration of engine i: its sums, and its share of config->threads. */
void chex_sync_bn_configure(struct chex_sync_bn *b, int i, struct chex_engine_config *config);

/* Creates the engines after the first. first: engine 0 with its state, borrowed. config: that of
 * engine 0 before chex_sync_bn_configure. */
enum chex_status chex_sync_bn_start(struct chex_sync_bn *b, const char *spec,
                                    const struct chex_engine_config *config,
                                    struct chex_engine *first, struct chex_error *err);

/* Engines of this process, 1 if b is NULL. */
int chex_sync_bn_engines(const struct chex_sync_bn *b);
const struct chex_rank_sum *chex_sync_bn_sum(const struct chex_sync_bn *b);

/* The passes of all engines at the same time; batches and results_out: one for each engine. The
 * gradient of engine 0 goes to first_grad, the others to chex_sync_bn_grad. Collective. */
enum chex_status chex_sync_bn_pass(struct chex_sync_bn *b, const struct chex_batch *batches,
                                   float *first_grad, struct chex_pass_result *results_out,
                                   struct chex_error *err);
const float *chex_sync_bn_grad(const struct chex_sync_bn *b, int i); /* i >= 1 */

/* chex_engine_update of all engines. */
enum chex_status chex_sync_bn_update(struct chex_sync_bn *b, const struct chex_update *update,
                                     const float *grad, struct chex_error *err);

#endif
