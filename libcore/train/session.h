/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of a training run share. Private to libcore/train.
 */
#ifndef CHEX_TRAIN_SESSION_H
#define CHEX_TRAIN_SESSION_H

#include "base/progress.h"
#include "data/members.h"
#include "launch/reduce.h"
#include "model/checkpoint.h"
#include "train/input.h"
#include "train/runfiles.h"
#include "train/saved.h"
#include "train/stepstats.h"
#include "train/tfevents.h"
#include "train/timeline.h"
#include "train/trainer.h"
#include "train/watchdog.h"

/* The small record that every rank sends to all at the end of a step. The losses of its logical
 * ranks follow it. */
struct chex_step_card {
    int32_t wants_stop, wants_save;
    struct chex_step_times times;
};

/* The memory that this process takes for the run; bytes. */
struct chex_train_needs {
    uint64_t program;               /* its own pages before the set-up: libraries' tables, MPI */
    uint64_t params, moments, work; /* of the engine: activations, copies of weights, scratch */
    uint64_t gradients;
    uint64_t ring, rows;                /* of the input: batches, and stored rows that stay */
    uint64_t snapshot;                  /* rank 0: a checkpoint on its way to the disk */
    bool on_device;                     /* engine and gradients are in a device's memory, */
    uint64_t device_left, device, host; /* of which so much is free besides; sums */
    uint64_t first_read, later_read;    /* of files: in the first epoch, in later ones */
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
    struct chex_timeline *timeline; /* NULL: none is wanted */
    struct chex_trace *trace;       /* its, or NULL */
    uint64_t device_ns;             /* of the trace: when the device came to the last backward */

    struct chex_train_needs needs;
    char tight[256];                  /* memory that may not suffice, in words; "" */
    struct chex_saved_room room;      /* rank 0 */
    struct chex_runfiles files;       /* rank 0 */
    struct chex_tfevents *events;     /* rank 0 */
    struct chex_checkpoint snapshot;  /* rank 0: room for the whole state; class names borrowed */
    double saved_s;                   /* when the last checkpoint was written */
    char members[CHEX_MEMBERS_BYTES]; /* rank 0: which images the splits of the data hold */
    char newest[512];                 /* the newest checkpoint; "": there is none */
    int lock;                         /* rank 0: chex_lockfile_take's, or -1 */

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

/* setup.c. With config.rehearse all of a run's set-up that touches no file but to read it, and
 * starts no thread of the input: what is wrong shows as it would in the run. */
void chex_session_init(struct chex_session *s, const struct chex_train_config *config,
                       const struct chex_train_world *world);
enum chex_status chex_session_open(struct chex_session *s, struct chex_error *err);
void chex_session_close(struct chex_session *s);
enum chex_status chex_session_create_engine(struct chex_session *s, struct chex_error *err);

/* needs.c: bytes of a checkpoint, but for the file's own tables. */
uint64_t chex_session_file_bytes(const struct chex_session *s);
/* Fills s->needs. */
enum chex_status chex_session_measure(struct chex_session *s, struct chex_error *err);
/* What the ranks of this node need against what it allows: CHEX_E_RESOURCE where that can never
 * fit. Where it is more than is free, or than Slurm was asked for, which may hold or not, s->tight
 * tells so, and the run warns. Collective. */
enum chex_status chex_session_check_memory(struct chex_session *s, struct chex_error *err);
/* The largest batch a logical rank for which each is enough; 0: none, -1: the engine cannot say. */
int chex_session_largest_batch(struct chex_session *s, uint64_t host_bytes, uint64_t device_bytes);
/* This rank's part of what the memory of its node allows, and of what is free there with what the
 * rank holds already; 0: unknown. */
uint64_t chex_session_allowed_bytes(const struct chex_session *s);
uint64_t chex_session_free_bytes(const struct chex_session *s);

/* ranks.c: every rank's place, as an array at rank 0 and NULL elsewhere; the same in ranks.json.
 * Collective. */
enum chex_status chex_session_gather_ranks(struct chex_session *s, json_t **ranks_out,
                                           struct chex_error *err);
enum chex_status chex_session_write_ranks(struct chex_session *s, struct chex_error *err);

/* options.c: CHEX_E_USAGE where a rank has other options than rank 0. Collective. */
enum chex_status chex_session_check_options(struct chex_session *s, struct chex_error *err);

/* resume.c: the state in and out of checkpoints. */
enum chex_status chex_session_save(struct chex_session *s, bool best, struct chex_error *err);
enum chex_status chex_session_restore(struct chex_session *s, struct chex_error *err);

/* validate.c: mean AUROC (NaN where undefined) and loss on the validation rows, the same on all
 * ranks. CHEX_E_PREEMPTED where a signal asked any rank to stop. Collective. */
enum chex_status chex_session_validate(struct chex_session *s, double *loss_out, double *auroc_out,
                                       int *defined_out, struct chex_error *err);

/* record.c: the file of --timeline, where one is wanted. Once the loop has ended with `st`, which
 * is returned, or the fault of the file in place of CHEX_OK. Collective where the ranks end
 * together. */
enum chex_status chex_session_open_timeline(struct chex_session *s, struct chex_error *err);
enum chex_status chex_session_end_timeline(struct chex_session *s, enum chex_status st,
                                           struct chex_error *err);
/* The watch's: rank 0's own part of it. */
void chex_session_last_words(void *session, const struct chex_mark *mark);
/* What a pass of logical rank v, which began at from_ns, says of itself. */
void chex_session_trace_pass(struct chex_session *s, int v, uint64_t from_ns,
                             const struct chex_pass_result *result);

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
