/* SPDX-License-Identifier: Apache-2.0
 *
 * The images of a run: opens the shards with this rank's rows, copies them to the node first
 * (--stage) and decides whether rows stay in memory (--cache) or on the GPU (--resident). Used by
 * training and by --bench-input.
 */
#ifndef CHEX_TRAIN_RUN_INPUT_H
#define CHEX_TRAIN_RUN_INPUT_H

#include "input/cache.h"
#include "shard/selection.h"
#include "train/trainer.h"

struct chex_train_input {
    const struct chex_train_config *config; /* borrowed; these two are set before any call */
    const struct chex_train_world *world;
    struct chex_selection *selection;    /* from chex_train_input_select */
    char overlap[CHEX_ERROR_TEXT_BYTES]; /* rank 0: a warning of patients of several sets, or "" */
    struct chex_set *train, *val;        /* val: NULL if the data has none or with_val was false */
    struct chex_order_config order;
    int run_from, run_to;      /* this process plays logical ranks [run_from, run_to) */
    size_t val_first, val_end; /* validation rows of this process */
    struct chex_trace *trace;  /* for pipelines that are created later; NULL: none */
    struct chex_cache_choice cache;
    /* --head-only: of this process's rows; rows NULL until they are computed (train/head_only.h) */
    struct chex_pipeline_features train_features, val_features;
    /* The engine's answer; all false before chex_train_input_make_resident. */
    struct chex_resident_result resident;
};

/* Compares the manifests of all ranks. CHEX_E_DATA on all ranks if a rank has another set under its
 * path, CHEX_E_USAGE if it has other sets. The manifest lists the digest of each shard;
 * chex_set_open checks those. Collective. */
enum chex_status chex_train_input_same(const struct chex_train_input *input,
                                       struct chex_error *err);

/* Reads the manifests and resolves --findings, --uncertain and --where, unless this was done
 * before. Not collective. CHEX_E_USAGE or CHEX_E_DATA (chex_selection_create). */
enum chex_status chex_train_input_select(struct chex_train_input *input, struct chex_error *err);

/* Sets config->logical_ranks to the number of ranks if it is 0. CHEX_E_USAGE on all ranks if it is
 * less than the number of ranks. */
enum chex_status chex_train_choose_logical_ranks(struct chex_train_config *config, int ranks,
                                                 struct chex_error *err);

/* Opens the shards; selects first. `input` is zeroed or only selected, except config and world.
 * config->logical_ranks must be above 0. All ranks return the same status: CHEX_E_DATA,
 * CHEX_E_USAGE, CHEX_E_RESOURCE or that of chex_stage_create. Collective. */
enum chex_status chex_train_input_open(struct chex_train_input *input, bool with_val,
                                       struct chex_error *err);
void chex_train_input_close(struct chex_train_input *input); /* a zeroed one is allowed */

/* Asks the engine whether it crops stored rows itself (raw) and keeps them in its memory
 * (--resident). The answer applies to pipelines that are created later. Rows that the engine keeps
 * are not cached in host memory too, except with --cache memory. */
enum chex_status chex_train_input_make_resident(struct chex_train_input *input,
                                                struct chex_engine *engine, struct chex_error *err);

enum chex_status chex_train_input_pipeline(const struct chex_train_input *input, uint64_t epoch,
                                           size_t step, struct chex_pipeline **pipeline_out,
                                           struct chex_error *err);

/* One batch of any logical rank, read from --data independently of the run's pipeline. */
struct chex_train_input_one {
    struct chex_set *set;
    struct chex_pipeline *pipeline;
    struct chex_ready ready;
};
/* Opens the shards with the rows of logical rank v and makes its batch at this position. Only with
 * the pipeline `new`. On error nothing is open. */
enum chex_status chex_train_input_one_open(const struct chex_train_input *input, int v,
                                           uint64_t epoch, size_t step,
                                           struct chex_train_input_one *out,
                                           struct chex_error *err);
void chex_train_input_one_close(struct chex_train_input_one *one);

/* The memory and reads of a pipeline with batches of `batch`; creates nothing. */
enum chex_status chex_train_input_measure(const struct chex_train_input *input, int batch,
                                          struct chex_pipeline_needs *needs_out,
                                          struct chex_error *err);
int chex_train_input_threads(const struct chex_train_input *input);

/* Logs at the start: the pipeline, the width of the shuffle, where rows are kept. */
void chex_train_input_describe(const struct chex_train_input *input);

#endif
