/* SPDX-License-Identifier: Apache-2.0
 *
 * The settings of chex-train: its options, most of them in the structures that libcore reads, and
 * the texts that config.json and checkpoints record of them.
 */
#ifndef CHEX_CMD_TRAIN_SETTINGS_H
#define CHEX_CMD_TRAIN_SETTINGS_H

#include <jansson.h>

#include "bench/bench.h"
#include "command.h"
#include "prove/prove.h"

struct train_settings {
    struct chex_opt_common common;
    struct chex_train_config config; /* train_complete sets its derived members */
    struct chex_bench bench;
    struct chex_prove prove;
    /* Options from which members of `config` are derived. */
    const char *engine, *checkpoint_every, *save_before_end;
    int threads, logical_ranks;
    double focal_gamma, focal_alpha, asl_gamma_neg, asl_gamma_pos, asl_clip;
    bool requeue;

    bool plan;
    const char *preempt_signal;
    char proven_engine[128];  /* --prove: that of the run */
    int own_threads, size;    /* cores of this rank, and the number of processes */
    struct chex_opt_set *set; /* the origin of each value */
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

/* train_config.c: sets the derived members of s->config, except engine, device and requeue, which
 * are chosen once. Owns options and shared_options: train_release releases them. CHEX_E_USAGE: a
 * time, count or policy that cannot be parsed. */
enum chex_status train_complete(struct train_settings *s, struct chex_error *err);
void train_release(struct train_settings *s);
/* Takes over the options of a run, `recorded` with `origins` (NULL: unknown), that were not given
 * again. path: their file, for messages. restored: gets the list of changes. */
enum chex_status train_restore_options(struct train_settings *s, const char *path,
                                       const json_t *recorded, const json_t *origins,
                                       char *restored, size_t size, struct chex_error *err);

#endif
