/* SPDX-License-Identifier: Apache-2.0
 *
 * Predicts the speed of a run on a described cluster (--plan --cluster FILE; doc/scale.md has the
 * format of the file). A process is one rank with one GPU, or with its share of a node's cores.
 *
 * A step of n processes takes
 *   batch / images_per_s          measured on one process
 *   + wait_s * (H(n) - 1)         the step waits for its slowest process
 *   + exposed_s(n)                what the reduction takes after the end of backward
 *
 * - H(n) = 1 + 1/2 + ... + 1/n: if the times of a step differ between processes by a random delay
 *   with exponential tail and mean wait_s, the largest of n delays is wait_s * H(n) on average. The
 *   measured time of one process contains wait_s itself.
 * - exposed_s: buckets become ready evenly during backward and are reduced one after the other. A
 *   bucket takes 2 (p - 1) / p of its bytes over the link within nodes of p processes, 2 (N - 1) /
 * N over the network between N nodes, and 2 ceil(log2) latencies of each.
 */
#ifndef CHEX_TRAIN_CLUSTER_H
#define CHEX_TRAIN_CLUSTER_H

#include <stdint.h>

#include "base/error.h"

struct chex_cluster_link {
    double bytes_per_s; /* one way: of a process within the node, of a node between nodes */
    double latency_s;
};

struct chex_cluster {
    int nodes, node_processes;
    double images_per_s; /* of one process that runs alone */
    int batch_images;    /* of that measurement; 0: not stated */
    struct chex_cluster_link local, network;
    double backward_share; /* part of a pass in which gradients become ready */
    double wait_s;         /* known if several_processes is 0 */
    /* Another measurement, from which wait_s follows; 0: none. */
    int several_processes;
    double several_images_per_s;
};

/* What a step does. */
struct chex_cluster_work {
    uint64_t gradient_bytes, bucket_bytes;
    int batch_images; /* of a process */
    uint64_t rows;    /* of an epoch */
};

struct chex_cluster_row {
    int processes, nodes;
    double step_s, wait_s, exposed_s, images_per_s;
    double efficiency; /* images_per_s over that of as many single processes */
    double epoch_s;    /* without validation and checkpoints; 0: not one whole step */
};

/* CHEX_E_USAGE: the file cannot be read or is no description; the text names file and value. */
enum chex_status chex_cluster_read(const char *path, struct chex_cluster *out,
                                   struct chex_error *err);

/* Sets wait_s from the second measurement, if there is one. */
void chex_cluster_fit(struct chex_cluster *c, const struct chex_cluster_work *w);

/* The prediction for the first `processes` processes of the cluster, node by node. */
void chex_cluster_predict(const struct chex_cluster *c, const struct chex_cluster_work *w,
                          int processes, struct chex_cluster_row *out);

/* Numbers of processes worth a line: within a node, then whole nodes; the last is the cluster.
 * Returns how many, at most CHEX_CLUSTER_COUNTS. */
enum { CHEX_CLUSTER_COUNTS = 48 };
int chex_cluster_counts(const struct chex_cluster *c, int counts_out[CHEX_CLUSTER_COUNTS]);

#endif
