/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a run's images come from: the shards of this rank's part, copied to the node before
 * (--stage) and kept in memory (--cache) or not. The same for training and for --bench-input.
 */
#ifndef CHEX_TRAIN_INPUT_H
#define CHEX_TRAIN_INPUT_H

#include "input/cache.h"
#include "train/trainer.h"

struct chex_train_input {
    struct chex_set *train, *val; /* val is NULL where the data has none, or it was not asked for */
    struct chex_order_config order;
    int run_from, run_to;      /* the logical ranks that this process plays */
    size_t val_first, val_end; /* validation rows of this process */
    struct chex_trace *trace;  /* for pipelines made from here on; NULL: none */
    struct chex_cache_choice cache;
    struct chex_held held; /* what the engine does with rows; all false before it was asked */
};

/* config->logical_ranks is set. CHEX_E_DATA, CHEX_E_USAGE, CHEX_E_RESOURCE and what
 * chex_stage_create returns, the same on all ranks. Collective. */
enum chex_status chex_train_input_open(const struct chex_train_config *config,
                                       const struct chex_train_world *world, bool with_val,
                                       struct chex_train_input *input_out, struct chex_error *err);
void chex_train_input_close(struct chex_train_input *input); /* a zeroed one is allowed */

/* Asks the engine whether it takes raw batches and holds rows (--resident), for the pipelines that
 * are made from here on. Rows that it holds are not kept in this process's memory too, unless
 * --cache memory says so. */
enum chex_status chex_train_input_hold(struct chex_train_input *input,
                                       const struct chex_train_config *config,
                                       struct chex_engine *engine, struct chex_error *err);

enum chex_status chex_train_input_pipeline(const struct chex_train_input *input,
                                           const struct chex_train_config *config, uint64_t epoch,
                                           size_t step, struct chex_pipeline **pipeline_out,
                                           struct chex_error *err);

/* What the pipeline would need with batches of `batch`; makes nothing. */
enum chex_status chex_train_input_measure(const struct chex_train_input *input,
                                          const struct chex_train_config *config, int batch,
                                          struct chex_pipeline_needs *needs_out,
                                          struct chex_error *err);
int chex_train_input_threads(const struct chex_train_input *input,
                             const struct chex_train_config *config);

/* The lines at the start: which pipeline, how wide the shuffle, where the rows are kept. */
void chex_train_input_describe(const struct chex_train_input *input,
                               const struct chex_train_config *config);

#endif
