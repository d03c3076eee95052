/* SPDX-License-Identifier: Apache-2.0
 *
 * A training run: from a folder of shards to last.h5 and best.h5.
 *
 * Every rank calls chex_train_run with the same settings. One step is one pass per logical rank
 * (forward, loss, backward), the reduction of the gradients in buckets while backward goes on, and
 * one update. At the end of a step all ranks exchange a small card (losses, times, wishes to stop
 * or to save), so that they leave the loop, save and notice a diverged loss together.
 */
#ifndef CHEX_TRAIN_TRAINER_H
#define CHEX_TRAIN_TRAINER_H

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "input/cache.h"
#include "input/pipeline.h"
#include "launch/bind.h"
#include "launch/coll.h"
#include "train/schedule.h"

struct chex_train_config {
    const char *data_dir, *output_dir;
    const char *model, *engine;    /* engine: a spec as chex_engine_create takes it */
    const struct chex_gpu *device; /* chex_choose_gpu's, or NULL; borrowed */
    int image_size, batch, threads, workers;
    int64_t epochs;
    uint64_t max_steps; /* 0: no limit */
    enum chex_precision precision;
    struct chex_schedule schedule;
    struct chex_update update; /* optimiser and its constants; lr and step are set by the run */
    const char *init;          /* safetensors, or NULL */
    const char *resume;        /* "auto", "none" or a file */
    uint64_t seed;
    bool deterministic;
    int logical_ranks; /* 0: the checkpoint's where the run goes on, else the number of ranks */
    enum chex_order_kind order;
    enum chex_pipeline_kind pipeline;
    size_t shuffle_block;
    struct chex_augment_options augment;
    enum chex_cache_mode cache;
    enum chex_resident_mode resident;
    const char *stage; /* folder of the node for a copy of the shards, or NULL */
    uint64_t save_every_ms, save_every_steps; /* 0: off */
    int save_keep;
    uint64_t stall_warn_ms, stall_abort_ms;
    const char *timeline;   /* the file of train/timeline.h, or NULL */
    bool rehearse;          /* set up, and change no file: train/plan.h sets it */
    json_t *options;        /* what config.json records, borrowed */
    json_t *shared_options; /* name and text of what all ranks must have alike, borrowed; or NULL */
};

/* Where a run stands: what a checkpoint's meta holds. */
struct chex_position {
    uint64_t epoch, step_in_epoch;
    uint64_t step;     /* updates done since the start */
    double epoch_loss; /* sum of the losses of this epoch's steps */
    double best_score; /* the highest validation AUROC, or minus the lowest loss */
    bool has_best;
    uint64_t best_epoch, best_step; /* where it was found; 0: an older file does not say */
    /* The steps of the epoch, or those of --max-steps, are done, and their validation is not. */
    bool validation_due;
};

/* Which of the two best_score is. */
static inline bool chex_best_is_auroc(const struct chex_position *at) {
    return at->best_score >= 0;
}

/* The surroundings, all borrowed. */
struct chex_train_world {
    struct chex_launch *launch;
    struct chex_coll *coll;
    const struct chex_binding *binding;
    const struct chex_gpu_view *gpu;
    volatile sig_atomic_t *stop; /* non-zero once a signal asked to save and leave */
    struct chex_position *end;   /* NULL, or where the run stood when it returned */
};

/* Returns CHEX_OK when all epochs are done, CHEX_E_PREEMPTED when it was asked to stop and has
 * saved. *together_out: all ranks return this status, so the caller may finish in the ordinary way;
 * false: this rank alone failed and the others must be aborted. Collective. */
enum chex_status chex_train_run(const struct chex_train_config *config,
                                const struct chex_train_world *world, bool *together_out,
                                struct chex_error *err);

#endif
