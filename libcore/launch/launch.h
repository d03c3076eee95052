/* SPDX-License-Identifier: Apache-2.0
 *
 * Rank, size and node of this process, from PMIx, PMI, Slurm's environment or for a single process.
 * Small exchanges at start-up that need no collective library.
 *
 * A launch method is one file and one line in the table of launch.c. This header includes no PMIx
 * or Slurm header.
 */
#ifndef CHEX_LAUNCH_LAUNCH_H
#define CHEX_LAUNCH_LAUNCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum { CHEX_HOST_BYTES = 64 };

struct chex_launch {
    const char *method; /* "pmix", "pmi2", "slurm" (no server), "single" */
    char why[96];       /* why this method and not another one; "": it comes first */
    int rank, size;
    int local_rank, local_size; /* on this node */
    int node, nodes;
    char host[CHEX_HOST_BYTES]; /* Slurm's node name if Slurm gives one, else the host name */
    char job_id[32];            /* "" outside a job */
    bool *came;     /* (size) which ranks came to the exchange that failed; NULL: unknown */
    unsigned round; /* of exchanges, the same on all ranks */
    bool broken;    /* an exchange failed: no further collective call */
    const struct chex_launch_method *impl;
    void *self;
};

/* Gathers `bytes` bytes of each rank (the same number on all ranks) under a key that was never used
 * before: at most 46 letters, digits and dots.
 * - name: of the exchange, for texts. all: size * bytes, in rank order; undefined after a failure.
 * - CHEX_E_LOST after timeout_ms, with the ranks that are missing. */
typedef enum chex_status (*chex_launch_gather_fn)(struct chex_launch *launch, const char *name,
                                                  const char *key, const void *mine, size_t bytes,
                                                  unsigned char *all, uint64_t timeout_ms,
                                                  struct chex_error *err);

struct chex_launch_method {
    const char *name;
    const char *rank_variable; /* environment variable; NULL: the method starts one process only */
    /* Whether this method started this process. Looks at the environment only. */
    bool (*present)(void);
    /* Writes the text of `why`. NULL: it is empty. */
    void (*why)(char *buf, size_t size);
    /* Fills `launch`. Every rank calls it. */
    enum chex_status (*init)(struct chex_launch *launch, struct chex_error *err);
    /* On all ranks (collective), and on rank 0 alone: chex_launch_exchange and chex_launch_collect.
     * NULL if the method starts one process only. */
    chex_launch_gather_fn gather, gather_at_0;
    /* See chex_launch_publish, chex_launch_lookup and chex_launch_host. All three are set, or all
     * are NULL. */
    enum chex_status (*publish)(struct chex_launch *launch, const char *key, const void *mine,
                                size_t bytes, struct chex_error *err);
    void (*lookup)(const struct chex_launch *launch, const char *key, int from, int to,
                   size_t bytes, void *all_out, bool *came_out, uint64_t wait_ms);
    void (*host)(const struct chex_launch *launch, int rank, char *buf, size_t size);
    /* See chex_launch_ended. NULL: unknown. */
    int (*ended)(const struct chex_launch *launch, int from, int to, bool *ended_out);
    /* Ends every rank of the job with `status`. Prints nothing. Returns if it cannot. */
    void (*abort)(struct chex_launch *launch, int status);
    void (*finish)(struct chex_launch *launch);
    /* Whether the launcher has ended while this process runs. Any thread. NULL: unknown. */
    bool (*gone)(void);
};

/* Uses the first method that is present: PMIx, PMI, Slurm, single.
 * - Call it before any thread starts. The caller owns `launch`.
 * - CHEX_E_ENV: the launcher's server or the folder of the step cannot be used. The text names the
 *   remedy. */
enum chex_status chex_launch_init(struct chex_launch *launch, struct chex_error *err);

/* Starts as a single process, whatever started this one. For rank 0 of a command that needs one
 * process only (see chex_launch_sits_out). */
enum chex_status chex_launch_init_alone(struct chex_launch *launch, struct chex_error *err);

/* The number of tasks of the Slurm job if this process was not started by srun (a batch script
 * without srun), else 0. */
int chex_launch_tasks_left_out(const struct chex_launch *launch);

/* Logs a warning with the remedy if chex_launch_tasks_left_out() is not 0. */
void chex_launch_warn_left_out(const struct chex_launch *launch);

/* This process's rank from the environment. Does not connect to the other ranks. */
int chex_launch_env_rank(void);

/* For work of a single process: true on all ranks except rank 0; these ranks have nothing to do.
 * - Reads the environment only, so the ranks need not connect.
 * - Rank 1 logs a warning, in case a script meant to give each rank its own work. */
bool chex_launch_sits_out(const char *work);

/* All-gather of `bytes` bytes per rank; also a barrier. Collective.
 * - key: name of the exchange (letters). Each call adds a counter, so every key is new.
 * - With one rank it copies. */
enum chex_status chex_launch_exchange(struct chex_launch *launch, const char *key, const void *mine,
                                      size_t bytes, void *all_out, uint64_t timeout_ms,
                                      struct chex_error *err);

/* Every rank gives `bytes` bytes (the same number on all ranks, at least 1), and rank 0 gets those
 * of all ranks.
 * - all_out: size * bytes on rank 0, in rank order. NULL on the other ranks; they do not wait, and
 *   their nodes do not get the data.
 * - Rank 0 returns CHEX_E_LOST after timeout_ms, with the ranks that are missing.
 * Collective. */
enum chex_status chex_launch_collect(struct chex_launch *launch, const char *key, const void *mine,
                                     size_t bytes, void *all_out, uint64_t timeout_ms,
                                     struct chex_error *err);

/* Publish and lookup: one-sided messages between ranks. A running rank publishes its state; other
 * ranks look it up when a rank hangs.
 * - The launcher's daemons carry the data, not the network of the collectives. They answer even if
 *   the publishing rank is blocked.
 * - The three calls are not collective. Any thread may call them, also during an exchange. */

/* Whether there are other ranks and the method supports publish and lookup. */
bool chex_launch_can_lookup(const struct chex_launch *launch);

/* Publishes `bytes` bytes (at least 1) under `key`.
 * - This rank must not have used `key` before.
 * - PMIx: the data stays at this node's daemon until a rank looks it up. PMI: srun or mpiexec has
 *   it. It is kept until the job ends.
 */
enum chex_status chex_launch_publish(struct chex_launch *launch, const char *key, const void *mine,
                                     size_t bytes, struct chex_error *err);

/* Looks up what ranks [from, to) published under `key`. Returns when all values are here or after
 * wait_ms.
 * - came_out[r - from]: rank r has published; its bytes are at all_out + (r - from) * bytes.
 * - bytes 0: only tests which ranks have published; all_out may be NULL.
 * - The caller's own rank is skipped: false. */
void chex_launch_lookup(const struct chex_launch *launch, const char *key, int from, int to,
                        size_t bytes, void *all_out, bool *came_out, uint64_t wait_ms);

/* Which ranks [from, to) run no more, because their node has left the job step: ended_out[r -
 * from]. Returns how many; -1: unknown.
 * - Asks Slurm, for 4 s at most. Later look-ups leave these ranks out.
 * - Call it before a look-up of ranks that may be gone: Slurm's daemon of this node does not answer
 *   for half a minute after a request for a value of such a node.
 * - Any thread. */
int chex_launch_ended(const struct chex_launch *launch, int from, int to, bool *ended_out);

/* The node name of a rank, or "host unknown". Works with every method. */
void chex_launch_host(const struct chex_launch *launch, int rank, char *buf, size_t size);

/* Every rank calls it last. Collective unless the job is aborted. Never exit() without it: a PMIx
 * client without finalize makes Slurm kill the step with status 137. */
void chex_launch_finish(struct chex_launch *launch);

/* Ends all ranks with `status` if one rank cannot continue. Print the cause before. Does nothing
 * with one rank, or if the method cannot abort. */
void chex_launch_abort(struct chex_launch *launch, int status);

#endif
