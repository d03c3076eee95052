/* SPDX-License-Identifier: Apache-2.0
 *
 * Who am I, and who are the others: rank, size and node from PMIx, from Slurm's environment, or a
 * single process; and the small exchanges at start-up that need no collective library.
 *
 * A method is one file and one line in the table of launch.c. No PMIx or Slurm header is included
 * here.
 */
#ifndef CHEX_LAUNCH_LAUNCH_H
#define CHEX_LAUNCH_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { CHEX_HOST_BYTES = 64 };

struct chex_launch {
    const char *method; /* "pmix", "slurm" (environment only), "single" */
    int rank, size;
    int local_rank, local_size; /* on this node */
    int node, nodes;
    char host[CHEX_HOST_BYTES]; /* Slurm's node name where there is one */
    char job_id[32];            /* "" outside a job */
    const struct chex_launch_method *impl;
    void *self;
};

struct chex_launch_method {
    const char *name;
    const char *rank_variable; /* the environment's; NULL where there is but one process */
    /* Whether this process was started that way (looks at the environment only). */
    bool (*present)(void);
    /* Fills `launch`. Every rank calls it. */
    enum chex_status (*init)(struct chex_launch *launch, struct chex_error *err);
    /* Every rank gives `bytes` bytes (the same number on all); all_out gets size * bytes in rank
     * order. Collective. Fails with CHEX_E_LOST after timeout_ms, naming the ranks that did not
     * come. NULL: this method cannot exchange (slurm without PMIx with size > 1). */
    enum chex_status (*exchange)(struct chex_launch *launch, const char *key, const void *mine,
                                 size_t bytes, void *all_out, uint64_t timeout_ms,
                                 struct chex_error *err);
    /* See chex_launch_leave, chex_launch_look and chex_launch_host; all three or none (NULL). */
    enum chex_status (*leave)(struct chex_launch *launch, const char *key, const void *mine,
                              size_t bytes, struct chex_error *err);
    void (*look)(const struct chex_launch *launch, const char *key, int from, int to, size_t bytes,
                 void *all_out, bool *came_out, uint64_t wait_ms);
    void (*host)(const struct chex_launch *launch, int rank, char *buf, size_t size);
    /* Ends every rank of the job with `status`; prints nothing. Returns where it cannot. */
    void (*abort)(struct chex_launch *launch, int status);
    void (*finish)(struct chex_launch *launch);
};

/* Tries PMIx, then Slurm, then single, and keeps the first that is present. Under srun without a
 * usable PMIx and more than one task: CHEX_E_ENV with the cure (srun --mpi=pmix). The caller owns
 * `launch`; call before any thread starts. */
enum chex_status chex_launch_init(struct chex_launch *launch, struct chex_error *err);

/* As a single process whatever started this one: for the rank that does the work of one process
 * while the others sit out (chex_launch_sits_out). */
enum chex_status chex_launch_init_alone(struct chex_launch *launch, struct chex_error *err);

/* Tasks of the Slurm job where this is one process that srun did not start (a batch script that
 * forgot srun), else 0. */
int chex_launch_tasks_left_out(const struct chex_launch *launch);

/* Warns of it, with the remedy. */
void chex_launch_warn_left_out(const struct chex_launch *launch);

/* This process's rank as the environment has it, without joining the others. */
int chex_launch_env_rank(void);

/* For `work` that is one process's: true on all ranks but 0, which then have nothing to do. The
 * environment alone is asked, so that the ranks need not join; rank 1 warns, for a script that
 * gives every rank work of its own would miss it. */
bool chex_launch_sits_out(const char *work);

/* All ranks' bytes to all ranks; a barrier too. `key` names the exchange (letters); each call uses
 * a fresh PMIx key behind it. With one rank it copies. Collective. */
enum chex_status chex_launch_exchange(struct chex_launch *launch, const char *key, const void *mine,
                                      size_t bytes, void *all_out, uint64_t timeout_ms,
                                      struct chex_error *err);

/* Notes that ranks leave for each other, without anybody waiting: what a rank that still runs says
 * of itself when another one hangs. The launcher's own daemons carry them, apart from the network
 * of the collectives, and answer for a rank that does nothing. The three calls are not collective
 * and may be made by any thread, with an exchange under way. */

/* Whether there are other ranks, and notes can be left for them. */
bool chex_launch_can_look(const struct chex_launch *launch);

/* Leaves `bytes` bytes, 1 or more, under `key`, which this rank must not have used before. It goes
 * to this node's daemon and no further until somebody looks; it stays until the job ends. */
enum chex_status chex_launch_leave(struct chex_launch *launch, const char *key, const void *mine,
                                   size_t bytes, struct chex_error *err);

/* What the ranks [from, to) have left under `key`: asks until all of it is here or wait_ms have
 * passed. came_out[r - from]: the `bytes` bytes of rank r are at all_out + (r - from) * bytes.
 * Without `bytes` (all_out may be NULL) it only finds out who has left something. The caller's own
 * rank is left out: false. */
void chex_launch_look(const struct chex_launch *launch, const char *key, int from, int to,
                      size_t bytes, void *all_out, bool *came_out, uint64_t wait_ms);

/* The node of a rank, or "host unknown". With any method. */
void chex_launch_host(const struct chex_launch *launch, int rank, char *buf, size_t size);

/* Collective in the good case: every rank calls it last. Never leave by exit() without it: an
 * unfinalised PMIx client kills the step with status 137. */
void chex_launch_finish(struct chex_launch *launch);

/* Ends all ranks with `status` when one cannot go on; print the cause first. With one rank, or
 * where the method cannot, it does nothing and returns. */
void chex_launch_abort(struct chex_launch *launch, int status);

#endif
