/* SPDX-License-Identifier: Apache-2.0
 *
 * The session: the state of one training run on one rank, shared by the files of libcore/train
 * and by no other folder. Each block of declarations names the file that defines or owns it.
 * "Collective": all ranks must make the call, and in the same order.
 */
#ifndef CHEX_TRAIN_SESSION_H
#define CHEX_TRAIN_SESSION_H

#include "base/progress.h"
#include "launch/reduce.h"
#include "model/checkpoint.h"
#include "report/run_page.h"
#include "shard/members.h"
#include "train/run_input.h"
#include "train/step_reports.h"
#include "train/store/checkpoint_store.h"
#include "train/store/checkpoint_writer.h"
#include "train/store/request_files.h"
#include "train/store/runfiles.h"
#include "train/store/tfevents.h"
#include "train/sync_bn.h"
#include "train/trainer.h"
#include "train/watch/timeline.h"
#include "train/watch/watchdog.h"

/* Memory of this process for the run, in bytes. */
struct chex_train_needs {
    uint64_t program;         /* pages before the set-up: tables of libraries, MPI */
    uint64_t params, moments; /* of the engine; the moving average counts as a moment */
    uint64_t work;            /* of the engine: activations, copies of weights, scratch */
    uint64_t gradients;
    uint64_t ring, rows;             /* of the input: batches; stored rows that are cached */
    uint64_t snapshot;               /* rank 0: a checkpoint while it is written */
    bool on_device;                  /* engine and gradients are in a GPU's memory */
    uint64_t device_left;            /* of that memory: free besides */
    uint64_t device, host;           /* sums over the GPU's and the host's memory */
    uint64_t first_read, later_read; /* read from files: in the first epoch, in later ones */
};

/* Texts about labels that make training or validation impossible; "" if there is no such
 * problem. Rank 0. */
struct chex_label_gaps {
    char train[CHEX_ERROR_TEXT_BYTES], val[CHEX_ERROR_TEXT_BYTES];
    bool no_auroc; /* no finding of the validation images has positives and negatives */
};

/* run_timeline.c: all zero without --timeline. */
struct chex_run_timeline {
    struct chex_timeline *file;
    struct chex_trace *trace; /* of `file` */
    uint64_t device_ns;       /* when the device began the last backward */
};

/* run_output.c: rank 0 only. */
struct chex_run_output {
    int lock; /* from chex_lockfile_take, or -1 */
    struct chex_tfevents *events;
    double step_event_s; /* loop.c: when the last loss of a step was written to it; 0: never */
    double page_s; /* epoch.c: when run.html had the last loss of a step; 0: never, infinite: the
                      page cannot be written */
    struct chex_run_losses losses;   /* the same: for run.html before an epoch is complete */
    struct chex_checkpoint snapshot; /* buffers for the state; class names borrowed */
    uint64_t snapshot_step;          /* the step whose state is in the snapshot; 0: none */
    struct chex_checkpoint_line
        resumed;          /* the checkpoint that the run goes on from; step 0: none */
    FILE *checkpoint_log; /* train/store/checkpoint_log.h */
    struct chex_checkpoint_writer *writer;
    struct chex_error fault; /* of a checkpoint or a line of metrics.jsonl; CHEX_OK: none. All ranks
                                end after the next exchange of step reports. */
    /* Of the last validation; NaN: undefined. (classes), and with several sets (1 + sets, classes):
     * of all rows, then of the rows of each set. */
    double *aurocs;
};

/* Each block names the file that sets it up and changes it; the other files only read it. */
struct chex_session {
    /* setup.c: the ranks */
    struct chex_train_config config; /* run_state.c: options of the checkpoint, logical_ranks */
    struct chex_train_world world;
    int rank, size;
    double opened_s; /* when the set-up began */
    bool together;   /* all ranks know of the present failure, and can still exchange */

    /* setup.c: the engine; run_state.c, if the run resumes */
    struct chex_net *net;
    struct chex_engine *engine;    /* with --head-only that of the classifier */
    struct chex_engine *extractor; /* head_only.c: until the features are computed; else NULL */
    char engine_name[32], engine_variant[64]; /* of --engine */
    struct chex_loss_weights loss;            /* loss_setup.c; the engine borrows it */
    double *lr_scales;                        /* of the engine; NULL: all 1 */
    struct chex_sync_bn *sync_bn;             /* NULL without --sync-bn, or with one logical rank */
    struct chex_reduce *reduce;

    /* setup.c: the data */
    struct chex_train_input input; /* run_input.c */
    struct chex_pipeline *pipeline;
    size_t steps;        /* per epoch */
    char *members;       /* rank 0: which images each split of the data holds (shard/members.h) */
    char *trained_split; /* the same: "train", or "all"; of several sets joined with "+" */

    /* The checks of the set-up */
    struct chex_train_needs needs;      /* memory_budget.c */
    char memory_warning[256];           /* the same; "": the memory suffices */
    struct chex_label_gaps gaps;        /* label_gaps.c; rank 0 */
    struct chex_checkpoint_space space; /* checkpoint_store.c; rank 0 */

    /* run_state.c: where the run is; loop.c and epoch.c advance it */
    struct chex_checkpoint *restored; /* until the engine has its state; NULL: none */
    struct chex_position at;
    char newest[512];                   /* path of the newest checkpoint; "": none */
    bool complete;                      /* the checkpoint is at the end of the run */
    uint64_t started_step;              /* loop.c: steps that were done when this process began */
    double started_s;                   /* loop.c: when its first step began */
    double saved_s;                     /* loop.c: when the last checkpoint was begun */
    bool save_due;                      /* loop.c: one is due at the last step of the epoch */
    struct chex_time_left time_left;    /* loop.c; rank 0 */
    struct chex_request_files requests; /* run_output.c; rank 0 */
    bool stopped;                       /* loop.c: DIR/stop has ended the run */

    struct chex_pass_audit *audit; /* pass_audit.c; NULL: no --audit-steps */

    struct chex_step_reports reports;
    char advice[sizeof((struct chex_bottleneck *)0)->advice]; /* epoch.c: the last one logged */

    struct chex_runfiles files; /* rank 0 */
    struct chex_run_output output;
    struct chex_run_timeline timeline;
};

/* setup.c. With config.plan_only the set-up reads files but changes none, and starts no input
 * thread. Errors are the same as in a run. */
void chex_session_init(struct chex_session *s, const struct chex_train_config *config,
                       const struct chex_train_world *world);
enum chex_status chex_session_open(struct chex_session *s, struct chex_error *err);
void chex_session_close(struct chex_session *s);
enum chex_status chex_session_create_engine(struct chex_session *s, struct chex_error *err);
/* same_kernels.c: the engine's choices of kernels, the same on all ranks: those of the checkpoint,
 * or as rank 0 measures or has them. Before the engine has its state. Collective. */
enum chex_status chex_session_choose_kernels(struct chex_session *s, struct chex_error *err);
/* The choices in use, for the checkpoint: an array of lines. NULL with err unset: the engine has
 * none; with err set: out of memory. */
json_t *chex_session_kernels(const struct chex_session *s, struct chex_error *err);
/* Elements of the vectors that are reduced. */
size_t chex_session_gradients(const struct chex_session *s);
/* Resolves what the options choose of the data, once. Not collective. */
enum chex_status chex_session_select(struct chex_session *s, struct chex_error *err);
/* Starts the input at the position of the run. */
enum chex_status chex_session_open_pipeline(struct chex_session *s, struct chex_error *err);

/* run_output.c: checks the output folder, and locks it if it exists. */
enum chex_status chex_run_output_check(struct chex_run_output *o, const struct chex_train_config *c,
                                       struct chex_error *err);
/* Rank 0 creates and locks the folder. *made_out: it did not exist. */
enum chex_status chex_session_make_output(struct chex_session *s, bool *made_out,
                                          struct chex_error *err);
/* All ranks, after it: whether this node sees the folder. The run would end well without, but when
 * it is resumed rank 0 may be on this node.
 * - CHEX_E_ENV: it does not, and the place is on a file system of this node alone.
 * - Otherwise waits up to 5 s, because a network file system may show the folder late, then warns.
 */
enum chex_status chex_session_check_shared_output(const struct chex_session *s,
                                                  struct chex_error *err);
/* Rank 0: CHEX_E_ENV if the folder was removed and another run has begun in it. */
enum chex_status chex_session_confirm_output(const struct chex_session *s, struct chex_error *err);
/* Rank 0 removes the folder that it made, if it is empty. */
void chex_session_unmake_output(struct chex_session *s);
/* Creates the files of the folder, sets checkpoints of later steps aside, and allocates the
 * snapshot. */
enum chex_status chex_session_create_output(struct chex_session *s, struct chex_error *err);
/* For a complete run: repairs last.h5 and best.h5, if it ended while it wrote its last checkpoint.
 * Does nothing on other ranks. */
enum chex_status chex_session_repair_names(struct chex_session *s, struct chex_error *err);
void chex_run_output_release(struct chex_run_output *o, const char *dir);

/* loss_setup.c: fills s->loss on all ranks, and records its weights in config.options. counts: as
 * check_labels gave them. Collective; agree afterwards. */
enum chex_status chex_session_make_loss(struct chex_session *s,
                                        const struct chex_label_counts *counts,
                                        struct chex_error *err);

/* first_state.c: --init must fit the network. Comes before the data, because staging may take long.
 * Collective. */
enum chex_status chex_session_check_init(struct chex_session *s, struct chex_error *err);
/* Gives the engine the state of step 0. Rank 0 reads --init for all ranks. Collective. */
enum chex_status chex_session_init_state(struct chex_session *s, struct chex_error *err);

/* memory_budget.c: bytes of a checkpoint, without HDF5's own tables. */
uint64_t chex_train_file_bytes(const struct chex_net *net, const struct chex_train_config *c);
/* Fills s->needs. */
enum chex_status chex_session_measure(struct chex_session *s, struct chex_error *err);
/* Compares the need of this node's ranks with the limit of the node.
 * CHEX_E_RESOURCE: the need can never fit.
 * A need above the free memory, or above what the job requested from Slurm, may still work:
 * s->memory_warning says so, and the first rank of the node logs it. Collective. */
enum chex_status chex_session_check_memory(struct chex_session *s, struct chex_error *err);
/* The largest --batch-size that fits into both; 0: none fits, -1: the engine cannot tell. */
int chex_session_largest_batch(struct chex_session *s, uint64_t host_bytes, uint64_t device_bytes);
/* This rank's equal share of the node's memory limit; 0: unknown. */
uint64_t chex_train_allowed_bytes(const struct chex_launch *launch);
/* This rank's equal share of the node's free memory, plus what the rank already has; 0: unknown. */
uint64_t chex_train_free_bytes(const struct chex_launch *launch);

/* label_gaps.c: fills *gaps_out and counts_out (classes; of the training rows) on rank 0.
 * CHEX_E_DATA on rank 0 if no finding has both positive and negative training images. Collective;
 * agree afterwards. */
enum chex_status
chex_train_check_labels(const struct chex_train_world *world, const struct chex_train_input *input,
                        enum chex_pipeline_kind kind, struct chex_label_gaps *gaps_out,
                        struct chex_label_counts *counts_out, struct chex_error *err);
#define CHEX_NO_AUROC "val AUROC is undefined: best.h5 is chosen by the validation loss"

/* ranks_file.c: where each rank runs, as a JSON array on rank 0 and NULL on the others; and the
 * same in ranks.json, which rank 0 writes. Both are collective. */
enum chex_status chex_train_gather_ranks(const struct chex_train_world *world,
                                         const struct chex_train_config *config,
                                         const struct chex_train_input *input, json_t **ranks_out,
                                         struct chex_error *err);
enum chex_status chex_train_write_ranks(const struct chex_train_world *world,
                                        const struct chex_train_config *config,
                                        const struct chex_train_input *input,
                                        struct chex_runfiles *files, struct chex_error *err);

/* run_state.c: rank 0 takes a snapshot and hands it to the writer
 * (train/store/checkpoint_writer.h), after it has waited for the one before. from_s: when the steps
 * stopped. */
enum chex_status chex_session_save(struct chex_session *s, bool best, double hold_s, double from_s,
                                   struct chex_error *err);
/* Rank 0: what became of the last checkpoint. Without `wait`, CHEX_OK as long as it is not known.
 * With it, waits until no checkpoint is being written. Names it as the newest, once it is whole. */
enum chex_status chex_session_saved(struct chex_session *s, bool wait, enum chex_held held,
                                    struct chex_error *err);
/* Adds to the error of a write what the next start resumes from. Returns `st`. */
enum chex_status chex_session_write_failed(const struct chex_session *s, enum chex_status st,
                                           struct chex_error *err);
/* Rank 0, after it has written a line of metrics.jsonl between two exchanges of step reports: `st`
 * and `why` are the result. A failure becomes s->output.fault. */
void chex_session_metric_written(struct chex_session *s, enum chex_status st,
                                 const struct chex_error *why);
/* All ranks restore. */
enum chex_status chex_session_restore(struct chex_session *s, struct chex_error *err);
/* Gives the engine the state of s->restored, and releases that. */
enum chex_status chex_session_load_engine(struct chex_session *s, struct chex_error *err);

/* validate.c: on the validation rows. */
struct chex_validation {
    double loss; /* plain binary cross-entropy; with --loss-mean stated over the stated labels */
    double training_loss; /* the loss that the run minimises */
    double auroc;         /* mean, of the ranks of the logits; NaN if undefined */
    int64_t defined;      /* classes with an AUROC */
};

/* All ranks return the same values in `out`. CHEX_E_PREEMPTED if any rank got the signal to stop.
 * step: for the stall watch. time_left: of rank 0, all zero on the others. aurocs (as in struct
 * chex_run_output): set on rank 0, unused on the others. Collective. */
enum chex_status chex_train_validate(const struct chex_train_world *world,
                                     struct chex_engine *engine,
                                     const struct chex_train_input *input,
                                     const struct chex_train_config *train, uint64_t step,
                                     struct chex_time_left *time_left, double *aurocs,
                                     struct chex_validation *out, struct chex_error *err);

/* run_timeline.c: all four do nothing without --timeline.
 * Starts recording. Collective. */
enum chex_status chex_session_open_timeline(struct chex_session *s, struct chex_error *err);
/* Writes the file after the loop has returned `st`. Returns `st`; if `st` is CHEX_OK and the file
 * cannot be written, returns that error. Collective if all ranks return the same `st`. */
enum chex_status chex_session_end_timeline(struct chex_session *s, enum chex_status st,
                                           struct chex_error *err);
/* For chex_watchdog_on_abort: rank 0 writes its own events. */
void chex_session_write_stalled(struct chex_session *s, const struct chex_mark *mark);
/* Records the pass of logical rank v that began at from_ns. */
void chex_run_trace_pass(struct chex_run_timeline *t, bool on_device, int v, uint64_t from_ns,
                         const struct chex_pass_result *result);

/* loop.c: one step, without the save that *v may ask for. A step with a diverged loss is not
 * counted. Collective. */
enum chex_status chex_session_step(struct chex_session *s, struct chex_step_verdict *v,
                                   struct chex_error *err);
/* Runs all steps. Collective. */
enum chex_status chex_session_loop(struct chex_session *s, struct chex_error *err);
/* Saves the present position in the background, after hold_s (see chex_checkpoint_writer_put).
 * Collective. */
enum chex_status chex_session_checkpoint(struct chex_session *s, bool best, double hold_s,
                                         struct chex_error *err);
/* Returns when no checkpoint is being written; one that is held back is written now. All ranks
 * return its status. Collective. */
enum chex_status chex_session_complete_save(struct chex_session *s, struct chex_error *err);
bool chex_session_out_of_steps(const struct chex_session *s); /* --max-steps is reached */
/* The option that ends the run at this position: "epochs", "max-steps" or "stop-after"; NULL: there
 * is more to do. All ranks return the same. */
const char *chex_session_ended_by(const struct chex_session *s);

/* run_state.c: whether checkpoints of the run hold this part. */
bool chex_session_keeps(const struct chex_session *s, enum chex_state_part part);

/* epoch.c: validates the parameters, or with --ema their moving average. aurocs: as in struct
 * chex_run_output; rank 0. Collective. */
enum chex_status chex_session_validate(struct chex_session *s, double *aurocs,
                                       struct chex_validation *v, struct chex_error *err);
/* Rank 0: a loss for run.html, which is rewritten each 30 s until an epoch is complete. */
void chex_session_page_loss(struct chex_session *s, double loss, double now_s);
/* After the last step of an epoch, or the last one that --max-steps allows: saves,
 * validates, reports, and saves again with the result. The learning-rate schedule advances only
 * after whole epochs. Collective. */
enum chex_status chex_session_end_steps(struct chex_session *s, double started_s,
                                        uint64_t first_step, struct chex_error *err);
/* The closing lines of a run; rank 0. */
void chex_session_summarise(const struct chex_session *s);

/* Returns CHEX_OK if `mine` is CHEX_OK on all ranks, else the same error on all. On error sets
 * s->together, unless the exchange itself failed. Collective. */
enum chex_status chex_session_agree(struct chex_session *s, enum chex_status mine,
                                    struct chex_error *err);

#endif
