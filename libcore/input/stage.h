/* SPDX-License-Identifier: Apache-2.0
 *
 * A node-local copy of the shards (--stage DIR).
 *
 * 1. Every rank calls chex_stage_create(). The ranks exchange which rows they need.
 * 2. Local rank 0 of each node copies the shards that its node needs to DIR/chexnet-JOB-XXXXXX,
 *    reads them again and verifies the checksum of each row. The other ranks wait in the exchange.
 * 3. Every rank opens the shards of the copy.
 * 4. Local rank 0 removes the files' names (chex_stage_remove()). The open files stay readable. The
 *    kernel frees the space when the last process ends, so nothing is left after a crash.
 * There is no lock file. Only files that were made here are removed.
 */
#ifndef CHEX_INPUT_STAGE_H
#define CHEX_INPUT_STAGE_H

#include <signal.h>

#include "launch/group.h"
#include "shard/shard.h"

enum { CHEX_STAGE_PARTS = 4 }; /* with folds, two splits for training and for validation */

/* Rows [row_from, row_to) of a split that this rank will read. */
struct chex_stage_part {
    enum chex_split split;
    size_t row_from, row_to;
};

struct chex_stage_config {
    const char *source, *dir; /* the folder of shards; an existing folder on the node */
    const char *job;          /* job id, for the folder's name; "" outside a job */
    int node, local_rank;
    struct chex_stage_part parts[CHEX_STAGE_PARTS];
    int part_count;
    bool look;                         /* check the folder and the space, copy nothing */
    const volatile sig_atomic_t *stop; /* non-zero: stop copying. NULL: never */
    struct chex_group *group;          /* must wait while a node copies (minutes) */
    /* NULL allowed. waits: called before a wait for other ranks. copied: called after it, and after
     * each block by a rank that copies. */
    void (*waits)(void *arg);
    void (*copied)(void *arg);
    void *arg;
};

struct chex_stage;

/* Copies and verifies. Collective: all ranks return the same status and text (chex_group_agree).
 * - CHEX_E_ENV: DIR is no folder or cannot be written. CHEX_E_RESOURCE: not enough space; checked
 *   before anything is copied. CHEX_E_DATA: a shard is damaged. CHEX_E_PREEMPTED: `stop` was set.
 * - On failure the copy of the node is removed. */
enum chex_status chex_stage_create(const struct chex_stage_config *config,
                                   struct chex_stage **stage_out, struct chex_error *err);

/* The folder to read from: the copy, or the source if `look` was set. */
const char *chex_stage_path(const struct chex_stage *stage);

/* Removes the copy's names on the rank that made it; no-op on other ranks. Call it after every rank
 * of the node has opened its shards or has failed. Warns if something cannot be removed. */
void chex_stage_remove(struct chex_stage *stage);
void chex_stage_destroy(struct chex_stage *stage); /* NULL allowed; removes what is left */
CHEX_AUTO_POINTER(struct chex_stage, chex_stage_destroy)

#endif
