/* SPDX-License-Identifier: Apache-2.0
 *
 * A training run: reads a folder of shards and writes last.h5 and best.h5.
 *
 * Every rank calls chex_train_run with the same settings. One step is:
 *   - one pass per logical rank: forward, loss, backward;
 *   - the reduction of the gradients, in buckets, while backward still runs;
 *   - one update of the parameters;
 *   - an exchange of step reports (losses, times, requests to stop or to save).
 * All ranks see the same reports. So they stop, save and detect a diverged loss at the same step.
 */
#ifndef CHEX_TRAIN_TRAINER_H
#define CHEX_TRAIN_TRAINER_H

#include <jansson.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"
#include "input/cache.h"
#include "input/pipeline.h"
#include "launch/bind.h"
#include "launch/coll.h"
#include "launch/energy.h"
#include "shard/folds.h"
#include "train/loss_weights.h"
#include "train/schedule.h"
#include "train/watch/save_before_end.h"

/* The settings of a run. chex-train's option table (cmd/train_options.c) writes most of them; their
 * types are those of base/opt.h. "Derived": cmd/train_config.c sets it from several options. */
struct chex_train_config {
    /* --data: a folder of shards, or several sets; --findings, --uncertain and --where as typed,
     * NULL: not given (shard/selection.h) */
    const char *data_dir, *findings, *uncertain, *where, *data_weights;
    struct chex_fold fold; /* --folds and --fold */
    const char *output_dir;
    int model;                     /* of chex_net_names */
    const char *engine;            /* derived: a spec for chex_engine_create */
    const struct chex_gpu *device; /* from chex_choose_gpu, or NULL; borrowed */
    int image_size, batch, workers;
    int threads; /* derived */
    int64_t epochs;
    uint64_t max_steps;  /* 0: no limit */
    uint64_t stop_after; /* epochs without a better result; 0: no limit */
    enum chex_precision precision;
    struct chex_schedule schedule; /* `epochs` is derived */
    struct chex_update update;     /* the optimiser; the run sets lr and step; betas are derived */
    struct chex_loss loss;         /* gammas, clip and alpha are derived; no weights */
    const char *pos_weight;        /* "none", "balanced" or a file (train/loss_weights.h) */
    enum chex_loss_mean loss_mean;
    const char *freeze;   /* patterns of frozen parameters (train/layer_rates.h), or NULL */
    double layer_decay;   /* the same; 1: none */
    bool head_only;       /* train/head_only.h; derived: set with `features` */
    const char *features; /* a file of infer/feature_file.h to train on, or NULL */
    double ema_decay;     /* of the moving average (engine/update.h); 0: none */
    const char *init;     /* a file that model/weights.h reads, or NULL */
    const char *resume;   /* "auto", "none" or a file */
    uint64_t seed;
    bool deterministic;
    bool sync_bn;         /* batch statistics of all logical ranks of a step (train/sync_bn.h) */
    uint64_t audit_steps; /* train/watch/pass_audit.h; 0: off */
    int accumulate;       /* logical ranks of each process; 0: by logical_ranks */
    int logical_ranks;    /* derived; 0: as in the checkpoint, or without one the number of ranks */
    enum chex_order_kind order;
    enum chex_pipeline_kind pipeline;
    size_t shuffle_block;
    struct chex_augment_options augment;
    enum chex_cache_mode cache;
    enum chex_resident_mode resident;
    const char *stage; /* node-local folder for a copy of the shards, or NULL */
    uint64_t save_every_ms, save_every_steps; /* derived; 0: off */
    uint64_t save_every_epochs;               /* derived; 0: the end of every epoch saves */
    int save_keep;
    struct chex_save_before_end save_before_end; /* derived */
    bool job_comment; /* write the speed into the comment of the Slurm job */
    bool requeue; /* derived: put the job back after a save or lost ranks (train/watch/requeue.h) */
    uint64_t stall_warn_ms, stall_abort_ms;
    const char *cluster;          /* file of plan/machines.h for the plan, or NULL */
    const char *timeline;         /* file for train/watch/timeline.h, or NULL */
    const char *metrics;          /* file for train/watch/run_metrics.h, or NULL */
    bool plan_only;               /* set up and change no file; set by chex_train_plan */
    bool prove;                   /* with plan_only: repeats steps of the run in output_dir
                                     (prove/prove.h) */
    const json_t *proven_loss;    /* with prove: the recorded weights of the loss, or NULL */
    const json_t *proven_kernels; /* the same: choices of kernels (train/same_kernels.c) */
    json_t *options;              /* for config.json; borrowed */
    json_t *shared_options; /* name and text of options that must be equal on all ranks; borrowed,
                               or NULL */
};

/* The position of a run. The meta data of a checkpoint holds it. */
struct chex_position {
    uint64_t epoch, step_in_epoch;
    uint64_t step;     /* updates done since the start */
    double epoch_loss; /* sum of the losses of this epoch's steps */
    double best_score; /* the highest validation AUROC, or minus the lowest loss */
    bool has_best;
    uint64_t best_epoch, best_step; /* of best_score */
    uint64_t ema_step;              /* with --ema: the step at which the average began */
    /* The last step of the epoch, or of --max-steps, is done, and its validation is not. */
    bool validation_due;
};

/* True: best_score is an AUROC. False: it is minus a loss; minus a loss of 0 is -0.0. */
static inline bool chex_best_is_auroc(const struct chex_position *at) {
    return !signbit(at->best_score);
}

/* Called when a run resumes from the checkpoint `path`. Takes over each recorded option that the
 * user has not given again, and rewrites *config.
 *   options: recorded options, by name and text
 *   origins: where each came from at the last start (command line, file, ...)
 *   restored:   gets a text that lists the options that changed */
typedef enum chex_status chex_train_restore_fn(void *arg, const char *path, const json_t *options,
                                               const json_t *origins,
                                               struct chex_train_config *config, char *restored,
                                               size_t size, struct chex_error *err);

struct chex_watchdog;

/* What the caller provides; all borrowed. */
struct chex_train_world {
    struct chex_launch *launch;
    struct chex_coll *coll;
    const struct chex_binding *binding;
    const struct chex_gpu_view *gpu;
    /* Non-zero once a signal, or the end of the job (train/watch/save_before_end.h), asked to save
     * and leave. */
    volatile sig_atomic_t *stop;
    const struct chex_slurm_library *slurm; /* rank 0; NULL: not available, for slurm_why */
    const char *slurm_why;
    struct chex_position *end;      /* NULL, or gets the position when the run returns */
    struct chex_energy *energy;     /* the same: the energy of this start */
    chex_train_restore_fn *restore; /* on every rank; NULL: no option is taken over */
    /* Called on rank 0 with restore_arg when the options are final, before data are opened; or
     * NULL. */
    void (*options_final)(void *arg);
    void *restore_arg;              /* of both */
    struct chex_watchdog *watchdog; /* set by the run; the caller leaves NULL */
};

/* CHEX_OK: all epochs are done. CHEX_E_PREEMPTED: a signal asked to stop, and the run has saved.
 * *together_out true: all ranks return this status, and the caller finishes as usual.
 * *together_out false: only this rank failed, and the caller must abort the job. Collective. */
enum chex_status chex_train_run(const struct chex_train_config *config,
                                const struct chex_train_world *world, bool *together_out,
                                struct chex_error *err);

#endif
