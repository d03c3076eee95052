/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts a split of shards on all ranks, for chex-eval itself and for deploy.
 */
#ifndef CHEX_EVALUATE_EVALUATE_H
#define CHEX_EVALUATE_EVALUATE_H

#include <jansson.h>
#include <stdio.h>

#include "engine/engine.h"
#include "evaluate/network.h"
#include "evaluate/settings.h"
#include "launch/coll.h"
#include "shard/shard.h"
#include "stats/predictions.h"

/* A split that was predicted, on all ranks. */
struct chex_eval_split {
    const struct chex_eval_settings *s;
    FILE *out; /* for results that are printed */
    struct chex_engine *engine;
    struct chex_coll *coll;
    const struct chex_set *set; /* opened with the rows of this rank */
    enum chex_split split;
    const struct chex_eval_network *network;
    int image_size, threads;
    const struct chex_predictions *table; /* on rank 0; NULL on the others */
    json_t *provenance;                   /* on rank 0; NULL on the others */
};

/* What is done with a predicted split. */
struct chex_eval_split_use {
    /* Before the work, on rank 0. */
    enum chex_status (*check)(const struct chex_eval_settings *s, struct chex_error *err);
    /* Collective; all ranks return the same status. */
    enum chex_status (*work)(const struct chex_eval_split *split, struct chex_error *err);
    bool unpredicted; /* table and provenance are NULL; images of the training are allowed */
};

/* Opens data, network and engine, checks that they fit, and predicts --split, on all ranks. Then
 * calls use->work. With use NULL it is chex_evaluate (evaluate/subcommands.h). out: for results
 * that are printed, on rank 0. */
enum chex_status chex_eval_split_run(const struct chex_opt_set *set,
                                     const struct chex_eval_settings *s,
                                     const struct chex_eval_split_use *use, FILE *out,
                                     struct chex_error *err);

#endif
