/* SPDX-License-Identifier: Apache-2.0
 *
 * Energy of a run: of its GPUs (NVML, launch/nvml.h), and of the processors and the memory of its
 * nodes (RAPL, in Linux's powercap class). RAPL counts a whole node, with other jobs on it; usually
 * only root can read it.
 */
#ifndef CHEX_LAUNCH_ENERGY_H
#define CHEX_LAUNCH_ENERGY_H

#include <jansson.h>
#include <stddef.h>

/* Joules; 0: unknown. A sum is known only if each of its GPUs or nodes is. */
struct chex_energy {
    double gpu_j, node_j;
    int gpus, nodes;
};

/* {"gpu_joules", "gpus", "node_joules", "nodes"}; NULL: all unknown. */
json_t *chex_energy_json(const struct chex_energy *e);

/* The counters of this node. They wrap around after some minutes. */
struct chex_rapl;
/* Starts with 0 J. root: prefix of /sys, "" for this system. NULL: `why` gets the reason. */
struct chex_rapl *chex_rapl_start(const char *root, char *why, size_t size);
/* Reads the counters if that was 30 s ago. NULL does nothing. */
void chex_rapl_sample(struct chex_rapl *r);
/* Reads them. 0: unknown, because r is NULL, no counter moves, one cannot be read, or they were
 * last read so long ago that one may have wrapped around twice. */
double chex_rapl_joules(struct chex_rapl *r);

#endif
