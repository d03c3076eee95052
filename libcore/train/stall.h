/* SPDX-License-Identifier: Apache-2.0
 *
 * Who holds the others up, in words: from what each rank says of itself, and from silence. No
 * clock, no message: that is train/watchdog.h.
 */
#ifndef CHEX_TRAIN_STALL_H
#define CHEX_TRAIN_STALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What a rank is at. In a step all ranks go through them in this order, but for DATA and COMPUTE,
 * which alternate. */
enum chex_phase {
    CHEX_PHASE_SETUP,
    CHEX_PHASE_REPORT,
    CHEX_PHASE_DATA,
    CHEX_PHASE_COMPUTE,
    CHEX_PHASE_VALIDATE,
    CHEX_PHASE_SAVE,
    CHEX_PHASE_REDUCE,
    CHEX_PHASE_UPDATE,
    CHEX_PHASE_WAIT, /* with its own part done: what follows begins on all ranks together */
};

/* What one rank says of itself. Plain bytes: ranks give it away as it lies. */
struct chex_mark {
    uint64_t step;
    uint64_t silent_ms; /* since it came to the phase, or last called there */
    int32_t phase;
    int32_t bucket, buckets; /* while reducing: the bucket, from 1 (0: not known), of how many */
};

struct chex_stall {
    int size;
    const struct chex_mark *marks; /* (size) */
    const bool *came;              /* (size) who answered; at least one did */
    bool setup;                    /* a rank may not be as far as to answer */
    void (*host)(void *arg, int rank, char *buf, size_t size); /* the node of a rank */
    void *arg;
};

/* The rank that has come furthest, of these the one that has waited longest. */
int chex_stall_waiter(const struct chex_stall *s);

/* "reducing gradients at step 118, bucket 4 of 7". buf is returned. */
const char *chex_stall_place(const struct chex_mark *mark, char *buf, size_t size);

/* "rank 3 on n02 does not answer (stopped, gone or cut off); ranks 0-2 wait", and so for ranks that
 * answer, but are behind: "... has been waiting for data for 60 s", or "is computing, and moved 3 s
 * ago" where it is slow. A sum may end on some ranks and need a rank that is missing on others:
 * while one is silent, or has not come to the sums, those within them wait, too. A few are named,
 * the others counted. buf is returned. */
const char *chex_stall_culprits(const struct chex_stall *s, char *buf, size_t size);

#endif
