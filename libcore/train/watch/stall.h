/* SPDX-License-Identifier: Apache-2.0
 *
 * The words of a stall report: finds the ranks that the others wait for and describes them. Input
 * are the marks of the ranks that answered. Pure functions: train/watch/watchdog.h does the timing
 * and the exchange.
 */
#ifndef CHEX_TRAIN_WATCH_STALL_H
#define CHEX_TRAIN_WATCH_STALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The phase of a rank. In a step all ranks pass through the phases in this order; only DATA and
 * COMPUTE alternate, once per logical rank. */
enum chex_phase {
    CHEX_PHASE_SETUP,
    CHEX_PHASE_RESTORE,
    CHEX_PHASE_STAGE,
    CHEX_PHASE_OPEN,
    CHEX_PHASE_FEATURES,
    CHEX_PHASE_REPORT,
    CHEX_PHASE_DATA,
    CHEX_PHASE_COMPUTE,
    CHEX_PHASE_VALIDATE,
    CHEX_PHASE_SAVE,
    CHEX_PHASE_STATISTICS, /* COMPUTE, in a sum of --sync-bn over other processes */
    CHEX_PHASE_REDUCE,
    CHEX_PHASE_UPDATE,
    CHEX_PHASE_WAIT, /* own part done; the rank waits in a collective for the others */
};

/* Where one rank is. Ranks exchange it as raw bytes. */
struct chex_mark {
    uint64_t stage;     /* train/watch/watchdog.h; those of two ranks differ by 1 at most */
    uint64_t step;      /* from 1; 0: before the first one */
    uint64_t silent_ms; /* since the last beat */
    int32_t phase;
    int32_t bucket, buckets; /* while reducing: bucket number from 1 (0: unknown); their count */
};

struct chex_stall {
    int size;
    const struct chex_mark *marks; /* (size) */
    const bool *came;              /* (size) the rank answered; at least one rank did */
    const bool *ended; /* (size) the rank has ended, as the launcher knows; NULL: none has */
    bool unsure;       /* others may have ended: silent ranks of several nodes are not named */
    bool setup;        /* ranks may still be in the set-up and unable to answer */
    void (*host)(void *arg, int rank, char *buf, size_t size); /* gives the node of a rank */
    void *arg;
};

/* The rank in the latest stage and phase; of several, the one that has waited longest. */
int chex_stall_waiter(const struct chex_stall *s);

/* "reducing gradients at step 118, bucket 4 of 7", "setting up before the first step". buf is
 * returned. */
const char *chex_stall_place(const struct chex_mark *mark, char *buf, size_t size);

/* Describes the late ranks, then those that wait:
 *   "rank 3 on n02 does not answer (stopped, gone or cut off); ranks 0-2 wait"
 *   "rank 3 on n02 has ended; ranks 0-2 wait"
 *   "rank 3 on n02 has been waiting for data for 60 s; ..."
 *   "rank 3 on n02 is computing, and moved 3 s ago; ..."    (slow, but alive)
 * A rank is late if it did not answer, or if it is in an earlier stage or phase than the furthest
 * rank. Exception: if a rank is silent or has not reached the reduction, all ranks in the reduction
 * count as waiting, and all that are in the exchange before this stage. A bucket or an exchange may
 * complete on some ranks only. If ranks have ended, only they are late: the others may be silent
 * because of them.
 * At most four groups are named; the rest are counted. Returns buf. */
const char *chex_stall_culprits(const struct chex_stall *s, char *buf, size_t size);

#endif
