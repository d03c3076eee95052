/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts the speed of a run on a described cluster (--plan --machines FILE; doc/scale.md has the
 * format of the file). A process is one rank with one GPU, or with its share of a node's cores.
 *
 * A step of n processes, each of which passes P batches (--accumulate), takes
 *   P * batch / images_per_s      measured on one process
 *   + wait_s * (M(n, P) - P)      the step waits for its slowest process
 *   + exposed_s(n)                what the reduction takes after the end of backward
 *   + sync_s(n)                   --sync-bn: exchanges in the middle of the passes
 *   + audit_s(n)                  --audit-steps: the mean of the additional passes
 *
 * - wait_s: if the times of a pass differ between processes by a random delay with exponential tail
 *   and mean wait_s, the delays of P passes have Erlang's distribution, and the largest of n is
 *   wait_s * M(n, P) on average; M(n, 1) = 1 + 1/2 + ... + 1/n. The measured time of one process
 *   contains wait_s itself.
 * - exposed_s: buckets become ready evenly during the last backward and are reduced one after the
 *   other. A bucket takes 2 (p - 1) / p of its bytes over the link within nodes of p processes,
 *   2 (N - 1) / N over the network between N nodes, and 2 ceil(log2) latencies of each. With
 *   --sync-bn all buckets become ready at the end (train/sync_bn.h).
 * - sync_s: a sum goes up a tree of ceil(log2 p) links within nodes and ceil(log2 N) between them,
 *   and down again. Nothing hides it. Copies between GPU and host memory are left out.
 * - audit_s: in one of N steps, a pass is repeated and the reduction is not hidden, because the
 *   audited gradient is hashed first. Hashing and reading the batch again are left out.
 */
#ifndef CHEX_PLAN_MACHINES_H
#define CHEX_PLAN_MACHINES_H

#include <stdint.h>

#include "base/error.h"

struct chex_machines_link {
    double bytes_per_s; /* one way: of a process within the node, of a node between nodes */
    double latency_s;
};

struct chex_machines {
    int nodes, node_processes;
    double images_per_s; /* of one process that runs alone */
    int batch_images;    /* of that measurement; 0: not stated */
    struct chex_machines_link local, network;
    double backward_share; /* part of a pass in which gradients become ready */
    double wait_s;         /* known if several_processes is 0 */
    /* Another measurement, from which wait_s follows; 0: none. */
    int several_processes;
    double several_images_per_s;
};

/* What a step does. */
struct chex_machines_work {
    uint64_t gradient_bytes, bucket_bytes;
    int batch_images; /* of a logical rank */
    uint64_t rows;    /* of an epoch */
    /* Logical ranks, whose batches a process passes one after another: so many on each process, or
     * so many in all (0: not fixed), then divided among the processes. */
    int process_passes, logical_ranks;
    /* --sync-bn: sums in a pass of all logical ranks, and their bytes; 0: without it. */
    int sync_sums;
    uint64_t sync_bytes;
    uint64_t audit_steps; /* 0: no audits */
};

struct chex_machines_row {
    int processes, nodes;
    int passes; /* of a process in a step */
    double step_s, wait_s, exposed_s, sync_s, audit_s, images_per_s;
    double efficiency; /* images_per_s over that of as many single processes */
    double epoch_s;    /* without validation and checkpoints; 0: not one whole step */
};

/* CHEX_E_USAGE: the file cannot be read or is no description; the text names file and value. */
enum chex_status chex_machines_read(const char *path, struct chex_machines *out,
                                    struct chex_error *err);

/* Sets wait_s from the second measurement, if there is one. Both measurements are of one pass a
 * step, without --sync-bn and --audit-steps. */
void chex_machines_fit(struct chex_machines *c, const struct chex_machines_work *w);

/* The prediction for the first `processes` processes of the cluster, node by node. processes: at
 * most w->logical_ranks, if these are fixed. */
void chex_machines_predict(const struct chex_machines *c, const struct chex_machines_work *w,
                           int processes, struct chex_machines_row *out);

/* Numbers of processes worth a line: within a node, then whole nodes; the last is the cluster.
 * Rising. Returns how many, at most CHEX_MACHINES_COUNTS. */
enum { CHEX_MACHINES_COUNTS = 48 };
int chex_machines_counts(const struct chex_machines *c, int counts_out[CHEX_MACHINES_COUNTS]);

#endif
