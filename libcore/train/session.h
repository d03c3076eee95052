/* SPDX-License-Identifier: Apache-2.0
 *
 * The session: the state of one training run on one rank, shared by the files of libcore/train
 * and, for --plan and --prove, of libcore/plan and libcore/prove. Other files have headers of their
 * own for what they do with a session.
 * "Collective": all ranks must make the call, and in the same order.
 */
#ifndef CHEX_TRAIN_SESSION_H
#define CHEX_TRAIN_SESSION_H

#include "base/progress.h"
#include "infer/feature_file.h"
#include "launch/energy.h"
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

/* trainer.c */
struct chex_run_energy {
    struct chex_rapl *rapl; /* on one rank of each node, if it can be read; else NULL */
    uint64_t gpu_mj;        /* counter of this rank's GPU before the steps; 0: unknown */
    struct chex_energy sum; /* of all ranks, after the steps */
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
    double loss,
        saved_unix_s; /* loop.c: of the last step; save.c: of the newest checkpoint, or 0 */
    double metrics_s; /* run_metrics.c: when --metrics was written; 0: never, infinite: it fails */
    uint64_t metrics_step;   /* the same: the step at that time */
    struct chex_error fault; /* of a checkpoint or a line of metrics.jsonl; CHEX_OK: none. All ranks
                                end after the next exchange of step reports. */
    /* Of the last validation; NaN: undefined. (classes), and with several sets (1 + sets, classes):
     * of all rows, then of the rows of each set. */
    double *aurocs;
};

/* Each block names the file that sets it up and changes it; the other files only read it. */
struct chex_session {
    /* setup.c: the ranks */
    struct chex_train_config config; /* store/restore.c: options of the checkpoint, logical_ranks */
    struct chex_train_world world;
    int rank, size;
    double opened_s; /* when the set-up began */
    bool together;   /* all ranks know of the present failure, and can still exchange */

    /* setup.c: the engine; store/restore.c, if the run resumes */
    struct chex_net *net;
    struct chex_engine *engine;    /* with --head-only that of the classifier */
    struct chex_engine *extractor; /* head_only.c: until the features are computed; else NULL */
    struct chex_feature_file *features; /* the same: of --features, until its rows are copied */
    char features_digest[17];           /* the same: of the file; or "" */
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

    /* store/restore.c: where the run is; loop.c and epoch.c advance it */
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
    struct chex_run_energy energy;
};

/* With config.plan_only the set-up reads files but changes none, and starts no input thread. Errors
 * are the same as in a run. */
void chex_session_init(struct chex_session *s, const struct chex_train_config *config,
                       const struct chex_train_world *world);
enum chex_status chex_session_open(struct chex_session *s, struct chex_error *err);
/* After the work, which returned `st`, or a set-up that failed: closes the session, unless only
 * this rank failed. *together_out as in chex_train_run. */
void chex_session_end(struct chex_session *s, enum chex_status st, bool *together_out);

/* The name of the network, before it is made. */
const char *chex_session_model(const struct chex_session *s);
/* Elements of the vectors that are reduced. */
size_t chex_session_gradients(const struct chex_session *s);
/* Resolves what the options choose of the data, once. Not collective. */
enum chex_status chex_session_select(struct chex_session *s, struct chex_error *err);
/* Starts the input at the position of the run. */
enum chex_status chex_session_open_pipeline(struct chex_session *s, struct chex_error *err);
/* describe.c: logs what the run is about to do. */
void chex_session_describe(const struct chex_session *s);

/* Returns CHEX_OK if `mine` is CHEX_OK on all ranks, else the same error on all. On error sets
 * s->together, unless the exchange itself failed. Collective. */
enum chex_status chex_session_agree(struct chex_session *s, enum chex_status mine,
                                    struct chex_error *err);
/* Gives all ranks rank 0's bytes. The stall watch knows that this rank waits. Collective. */
enum chex_status chex_session_broadcast(struct chex_session *s, void *data, size_t bytes,
                                        struct chex_error *err);
/* Gives all ranks rank 0's text; the other ranks allocate it. The caller frees *text. Collective.
 */
enum chex_status chex_session_share_text(struct chex_session *s, char **text,
                                         struct chex_error *err);

#endif
