/* SPDX-License-Identifier: Apache-2.0
 *
 * A group of ranks that work together: exchange, agree, broadcast and gather. Every layer uses
 * these operations. They mean the same at start-up, where the launcher carries the bytes, and
 * during training, where MPI does.
 *
 * All ranks make the same calls in the same order. One thread at a time may call.
 *
 * Memory. A rank that is out of memory still joins every operation, so no rank waits for one that
 * returned early.
 * - The group allocates what agree(), broadcast() and small exchanges need when it is made.
 * - Larger operations allocate, agree that every rank has the memory, and then exchange.
 * - If memory is short, all ranks return CHEX_E_RESOURCE together.
 *
 * Lost ranks. There is one rule for time: a rank is lost if it comes to an operation more than
 * `wait_ms` later than this rank. The operation then returns CHEX_E_LOST, and the text names the
 * missing ranks. MPI has no clock: during training the watchdog (train/watch/watchdog.h) ends a
 * stall.
 *
 * If the transport fails (a lost rank, or no memory inside the launcher's library), the group is
 * broken. This rank then returns its own status, and later operations fail at once. The caller must
 * end the job with chex_launch_abort().
 */
#ifndef CHEX_LAUNCH_GROUP_H
#define CHEX_LAUNCH_GROUP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "launch/launch.h"

/* Values of wait_ms. chex-env sets its own from --timeout. */
enum {
    CHEX_GROUP_START_MS = 60 * 1000,       /* ranks that start up: seconds of work */
    CHEX_GROUP_WORK_MS = 12 * 3600 * 1000, /* ranks that make shards or measure */
};

/* Bytes that each rank can give to an exchange without allocation. */
enum { CHEX_GROUP_BYTES = 1024 };

/* What carries the bytes. Every entry is collective. */
struct chex_group_transport {
    /* All-gather in rank order. `key` names the exchange in messages. */
    enum chex_status (*exchange)(void *arg, const char *key, const void *mine, size_t bytes,
                                 void *all_out, uint64_t wait_ms, struct chex_error *err);
    /* See chex_group_collect. NULL: it is made of `gather`. */
    enum chex_status (*collect)(void *arg, const char *key, const void *mine, size_t bytes,
                                void *all_out, uint64_t wait_ms, struct chex_error *err);
    /* Both are set, or both are NULL; then they are made of exchanges.
     * gather: rank 0 gets the bytes of all ranks in `all_out`; rank r gives sizes[r] bytes. */
    enum chex_status (*broadcast)(void *arg, void *data, size_t bytes, int root,
                                  struct chex_error *err);
    enum chex_status (*gather)(void *arg, const void *mine, const uint64_t *sizes, void *all_out,
                               struct chex_error *err);
};

struct chex_group {
    int rank, size;
    char host[CHEX_HOST_BYTES]; /* of this rank; "": unknown */
    uint64_t wait_ms;
    bool broken;     /* the transport failed */
    const void *all; /* result of chex_group_exchange */

    const struct chex_group_transport *transport;
    void *arg;
    void *memory; /* (size, memory_bytes) */
    size_t memory_bytes;
    uint64_t *sizes; /* (size), of a gather */
};

/* Makes a group. Not collective. `transport` may be NULL if size is 1. If it fails on one rank, the
 * caller must end the job. */
enum chex_status chex_group_create(int rank, int size, const char *host,
                                   const struct chex_group_transport *transport, void *arg,
                                   uint64_t wait_ms, struct chex_group **group_out,
                                   struct chex_error *err);

/* The ranks of a launch; the launcher carries the bytes. `launch` is borrowed. */
enum chex_status chex_group_of_launch(struct chex_launch *launch, uint64_t wait_ms,
                                      struct chex_group **group_out, struct chex_error *err);
void chex_group_destroy(struct chex_group *g); /* NULL allowed */

/* Every rank gives `bytes` bytes, the same number on all ranks. g->all then holds size * bytes
 * bytes in rank order, until the next call with this group. It is also a barrier. Above
 * CHEX_GROUP_BYTES the first call allocates. */
enum chex_status chex_group_exchange(struct chex_group *g, const char *key, const void *mine,
                                     size_t bytes, struct chex_error *err);

/* Every rank gives `bytes` bytes, the same number on all ranks, at least 1. Rank 0 gets them.
 * - all_out: size * bytes on rank 0, in rank order; NULL on the other ranks. Agree before that rank
 * 0 has the memory.
 * - The other ranks do not wait for it. */
enum chex_status chex_group_collect(struct chex_group *g, const char *key, const void *mine,
                                    size_t bytes, void *all_out, struct chex_error *err);

/* Call it after work that can fail on one rank. Every rank gives its status and, in err, its text.
 * CHEX_OK if all ranks give CHEX_OK. Otherwise all ranks return the same status and text:
 * - the worst status: the highest number, except that CHEX_E_PREEMPTED is the mildest;
 * - of the lowest rank that has it;
 * - with "rank N on HOST: " in front, unless all ranks failed with the same status and text. */
enum chex_status chex_group_agree(struct chex_group *g, enum chex_status mine,
                                  struct chex_error *err);

/* Call it after work that rank `root` did for all. All ranks return its status and text. What the
 * other ranks give is ignored. */
enum chex_status chex_group_follow(struct chex_group *g, int root, enum chex_status mine,
                                   struct chex_error *err);

/* Copies `bytes` bytes of rank `root` to all ranks. Never allocates. */
enum chex_status chex_group_broadcast(struct chex_group *g, void *data, size_t bytes, int root,
                                      struct chex_error *err);

/* Gives all ranks the text of rank 0; the other ranks allocate it. The caller frees *text.
 * CHEX_E_RESOURCE: a rank has no memory for it, or rank 0 has NULL. */
enum chex_status chex_group_share_text(struct chex_group *g, char **text, struct chex_error *err);

/* Gathers data of different size per rank at rank 0, in rank order.
 * - all_out: fresh memory on rank 0 (the caller frees it), NULL on other ranks.
 * - total_out: sum of the sizes. */
enum chex_status chex_group_gather(struct chex_group *g, const void *mine, size_t bytes,
                                   void **all_out, size_t *total_out, struct chex_error *err);

#endif
