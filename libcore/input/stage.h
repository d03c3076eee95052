/* SPDX-License-Identifier: Apache-2.0
 *
 * A node-local copy of the shards (--stage DIR).
 *
 * Every rank calls chex_stage_create; the first rank of each node copies what the ranks of the node
 * need into DIR/chexnet-JOB-XXXXXX, reads it again and compares each row with its checksum, while
 * the others wait in the exchange. Once all have opened the copy, its names are removed
 * (chex_stage_remove): the space is given back when the last of them ends, however it ends, and
 * nothing stays behind after a crash. No lock file, nothing that was not made here is touched.
 */
#ifndef CHEX_INPUT_STAGE_H
#define CHEX_INPUT_STAGE_H

#include <signal.h>

#include "data/shard.h"

enum { CHEX_STAGE_PARTS = 2 };

/* Rows that this rank will open. */
struct chex_stage_part {
    enum chex_split split;
    size_t row_from, row_to;
};

struct chex_stage_config {
    const char *source, *dir; /* the folder of shards; an existing folder of the node */
    const char *job;          /* for the name; "" outside a job */
    int rank, size, node, local_rank;
    struct chex_stage_part parts[CHEX_STAGE_PARTS];
    int part_count;
    bool look;                         /* look at folder and space and copy nothing */
    const volatile sig_atomic_t *stop; /* non-zero: leave. NULL: never */
    /* Every rank gives `bytes` bytes and gets those of all, in rank order; waits without a limit of
     * time worth naming. */
    enum chex_status (*exchange)(void *arg, const void *mine, size_t bytes, void *all_out,
                                 struct chex_error *err);
    void *arg;
};

struct chex_stage;

/* CHEX_E_ENV: DIR is no folder or cannot be written. CHEX_E_RESOURCE: it has not the space, told
 * before anything is copied. CHEX_E_DATA: a shard is damaged. CHEX_E_PREEMPTED: asked to stop. On
 * any failure of a rank nothing is left of its copy; the statuses of the ranks of a node agree,
 * those of different nodes may not. Collective. */
enum chex_status chex_stage_create(const struct chex_stage_config *config,
                                   struct chex_stage **stage_out, struct chex_error *err);

/* The copy's folder: takes the place of the source, and is the source itself after a mere look. */
const char *chex_stage_path(const struct chex_stage *stage);

/* Removes the names, on the rank that made them. Call when every rank of the node has opened what
 * it needs, or has given up. Warns where something cannot be removed. */
void chex_stage_remove(struct chex_stage *stage);
void chex_stage_destroy(struct chex_stage *stage); /* NULL allowed; removes what is left */

#endif
