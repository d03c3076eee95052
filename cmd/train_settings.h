/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings of chex-train: its options, what they mean to libcore, and the texts that
 * config.json and checkpoints record of them.
 */
#ifndef CHEX_CMD_TRAIN_SETTINGS_H
#define CHEX_CMD_TRAIN_SETTINGS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "command.h"
#include "train/trainer.h"

struct train_settings {
    struct chex_opt_common common;
    const char *data, *findings, *uncertain, *where, *data_weights;
    const char *output, *engine, *init, *resume, *checkpoint_every, *preempt_signal, *stage;
    const char *save_before_end, *freeze;
    const char *timeline, *prove, *cluster;
    const char *pos_weight;
    int model, opt, sched, precision, order, pipeline, cache, resident, loss, loss_mean;
    int64_t image_size, batch_size, epochs, threads, workers, seed, logical_ranks, accumulate;
    int64_t checkpoint_keep, max_steps, stop_after, shuffle_block, patience, step_epochs, bench,
        bench_input, stretches, audit_steps;
    double crop_scale, hflip, rotate, brightness, contrast;
    double label_smoothing, focal_gamma, focal_alpha, asl_gamma_neg, asl_gamma_pos, asl_clip;
    double lr, min_lr, lr_factor, weight_decay, momentum, clip_norm, layer_decay, ema,
        warmup_epochs, consume;
    uint64_t stall_warn, stall_abort;
    bool deterministic, plan, bench_layers, bench_infer, antialias, job_comment, requeue;
    bool nesterov, decay_norms, sync_bn, head_only;
    int64_t accumulated_ranks; /* logical ranks by --accumulate; 0: not given */
    char proven_engine[128];   /* --prove: that of the run */
    struct chex_opt_set *set;  /* the origin of each value */
};

#define AT(member) offsetof(struct train_settings, member)

/* train_options.c: all options of chex-train; `run` is train_run. */
extern const struct chex_opt_program train_program;
/* chex-train.c */
enum chex_status train_run(struct chex_opt_set *set, void *settings, struct chex_error *err);

/* train_checks.c: options that contradict each other, or lack one that they need. CHEX_E_USAGE.
 * Again after the options of a resumed run were taken over. */
enum chex_status train_check_settings(const struct train_settings *s, struct chex_error *err);

/* Warns about options that the user gave and that have no effect with the values of others. Called
 * once the options are final: those of a resumed run are taken over. */
void train_warn_without_effect(const struct train_settings *s);

/* train_config.c */
struct chex_update train_update_of(const struct train_settings *s);
struct chex_loss train_loss_of(const struct train_settings *s);
/* The settings as libcore takes them. *out points into `s`, and owns out->options and
 * out->shared_options (json_decref). CHEX_E_USAGE: a time, count or policy that cannot be parsed.
 */
enum chex_status train_config_of(const struct train_settings *s, const char *engine,
                                 const struct chex_gpu *device, int threads,
                                 struct chex_train_config *out, struct chex_error *err);
/* Takes over the options of a run, `recorded` with `origins` (NULL: unknown), that were not given
 * again. path: their file, for messages. restored: gets the list of changes. */
enum chex_status train_restore_options(struct train_settings *s, const char *path,
                                       const json_t *recorded, const json_t *origins,
                                       char *restored, size_t size, struct chex_error *err);

/* train_bench_input.c: --bench-input. Rank 0 prints the result. Collective; *together as in
 * chex_train_run. */
enum chex_status train_bench_input(const struct train_settings *s,
                                   const struct chex_train_config *c,
                                   const struct chex_train_world *w, bool *together,
                                   struct chex_error *err);

#endif
