/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes checkpoints in a thread of rank 0, while the training goes on.
 *
 * Problem: to build, write and flush a checkpoint takes a third of a second on a fast local disk,
 * and many seconds on a busy file system. The steps of all ranks would wait for it.
 *
 * Idea: the main thread copies the state into the snapshot and hands it over. The thread writes it.
 *   - One checkpoint at a time: before the main thread fills the snapshot again, it calls
 *     chex_checkpoint_writer_result(), which waits for the write in progress.
 *   - A checkpoint may be held back for some time. The one before a validation is: if the
 *     validation ends before, the one after it takes its place, and one file is written, not two.
 *   - The main thread learns the result from chex_checkpoint_writer_result(), so nothing is
 * reported as saved before the file is whole.
 *
 * The thread is the only one in HDF5 for the time that it builds the file's image in memory
 * (base/h5_private.h has the lock); the disk is written outside the lock.
 */
#ifndef CHEX_TRAIN_STORE_CHECKPOINT_WRITER_H
#define CHEX_TRAIN_STORE_CHECKPOINT_WRITER_H

#include "base/trace.h"
#include "train/store/checkpoint_log.h"
#include "train/store/checkpoint_store.h"

struct chex_checkpoint_writer_config {
    const char *dir; /* of the run */
    int keep;        /* numbered checkpoints; 0: all */
    const struct chex_net *net;
    struct chex_checkpoint *snapshot; /* all but meta, which the writer sets and frees */
    FILE *log;                        /* train/store/checkpoint_log.h */
    struct chex_trace *trace;         /* or NULL */
};

struct chex_checkpoint_writer;

/* Starts the thread. All pointers of the configuration are borrowed. */
enum chex_status chex_checkpoint_writer_create(const struct chex_checkpoint_writer_config *config,
                                               struct chex_checkpoint_writer **out,
                                               struct chex_error *err);
/* Completes the write in progress; a held checkpoint is not written. NULL allowed. */
void chex_checkpoint_writer_destroy(struct chex_checkpoint_writer *w);

/* Hands the snapshot over. The caller changes it again only after chex_checkpoint_writer_result.
 *   - about: what the line of the log says; digest, file, time and write_s are filled in later.
 *   - meta: JSON text of the checkpoint; the writer frees it.
 *   - hold_s: the writing begins after so many seconds, or by chex_checkpoint_writer_result.
 *     INFINITY: only by the latter. */
void chex_checkpoint_writer_put(struct chex_checkpoint_writer *w,
                                const struct chex_checkpoint_line *about, char *meta,
                                double hold_s);

/* What to do with a checkpoint that is held back. CHEX_HELD_STAYS: nothing, and do not wait. */
enum chex_held { CHEX_HELD_WRITE, CHEX_HELD_DROP, CHEX_HELD_STAYS };

/* Returns the status of the last write, once. Waits until no checkpoint is being written, except
 * with CHEX_HELD_STAYS: then CHEX_OK and step 0 while the writer works or has nothing to do.
 *   - written_out: the line of the checkpoint that became whole since the last call; step 0: none.
 *   - CHEX_E_DIVERGED: a parameter is not finite; such a state never replaces a good one.
 *   - CHEX_E_RESOURCE, CHEX_E_ENV: of the file system. Nothing is left of the file, and the
 *     checkpoint before it stays. */
enum chex_status chex_checkpoint_writer_result(struct chex_checkpoint_writer *w,
                                               enum chex_held held,
                                               struct chex_checkpoint_line *written_out,
                                               struct chex_error *err);

/* Before the process is ended: waits at most so many seconds for the write in progress. Any thread.
 * NULL allowed. */
void chex_checkpoint_writer_linger(struct chex_checkpoint_writer *w, double seconds);

#endif
