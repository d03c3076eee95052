/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of a training run share. Private to libcore/train.
 */
#ifndef CHEX_TRAIN_SESSION_H
#define CHEX_TRAIN_SESSION_H

#include "base/progress.h"
#include "launch/reduce.h"
#include "model/checkpoint.h"
#include "train/input.h"
#include "train/runfiles.h"
#include "train/saved.h"
#include "train/stepstats.h"
#include "train/tfevents.h"
#include "train/trainer.h"
#include "train/watchdog.h"

/* The small record that every rank sends to all at the end of a step. The losses of its logical
 * ranks follow it. */
struct chex_step_card {
    int32_t wants_stop, wants_save;
    struct chex_step_times times;
};

struct chex_session {
    struct chex_train_config config;
    struct chex_train_world world;
    int rank, size;
    int logical_ranks, run_from, run_to; /* the logical ranks [run_from, run_to) are ours */

    struct chex_net *net;
    struct chex_engine *engine;
    struct chex_train_input input;
    size_t steps; /* an epoch */
    struct chex_reduce *reduce;
    struct chex_pipeline *pipeline;
    struct chex_watchdog *watchdog;

    struct chex_runfiles files;      /* rank 0 */
    struct chex_tfevents *events;    /* rank 0 */
    struct chex_checkpoint snapshot; /* rank 0: room for the whole state; class names borrowed */
    double saved_s;                  /* when the last checkpoint was written */
    char newest[512];                /* the newest checkpoint; "": there is none */
    int lock;                        /* rank 0: chex_lockfile_take's, or -1 */

    struct chex_position at;
    double started_s;                    /* when the first step of this process began */
    uint64_t started_step;               /* steps that were done then */
    struct chex_step_times *epoch_times; /* (size) sums of this epoch */
    struct chex_step_times *total_times; /* (size) and of this process */
    char *card, *cards;                  /* ours; (size) of all ranks */
    size_t card_bytes;
    bool together; /* the fault in hand is known to all ranks */
    bool complete; /* the checkpoint had done everything that was asked for */
};

/* setup.c */
enum chex_status chex_session_open(struct chex_session *s, struct chex_error *err);
void chex_session_close(struct chex_session *s);
enum chex_status chex_session_create_engine(struct chex_session *s, struct chex_error *err);

/* ranks.c: gathers every rank's place and writes ranks.json. Collective. */
enum chex_status chex_session_write_ranks(struct chex_session *s, struct chex_error *err);

/* resume.c: the state in and out of checkpoints. */
enum chex_status chex_session_save(struct chex_session *s, bool best, struct chex_error *err);
enum chex_status chex_session_restore(struct chex_session *s, struct chex_error *err);

/* validate.c: mean AUROC (NaN where undefined) and loss on the validation rows, the same on all
 * ranks. CHEX_E_PREEMPTED where a signal asked any rank to stop. Collective. */
enum chex_status chex_session_validate(struct chex_session *s, double *loss_out, double *auroc_out,
                                       int *defined_out, struct chex_error *err);

/* loop.c: all steps; and a checkpoint of where the run stands. Collective. */
enum chex_status chex_session_loop(struct chex_session *s, struct chex_error *err);
enum chex_status chex_session_checkpoint(struct chex_session *s, bool best, struct chex_error *err);
bool chex_session_out_of_steps(const struct chex_session *s); /* --max-steps is reached */

/* epoch.c: what follows the steps of an epoch, or the last one that --max-steps allows: save,
 * validate, report, save with the best result. The schedule sees whole epochs alone. Collective. */
enum chex_status chex_session_end_steps(struct chex_session *s, double started_s,
                                        uint64_t first_step, struct chex_error *err);
/* The closing lines of a run; rank 0. */
void chex_session_summarise(const struct chex_session *s);

/* Turns this rank's status into one that all ranks share. Collective. */
enum chex_status chex_session_agree(struct chex_session *s, enum chex_status mine,
                                    struct chex_error *err);

#endif
