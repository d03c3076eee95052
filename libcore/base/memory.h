/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of this machine and what the cgroups and Slurm leave of it to this process.
 *
 * `root` is "" but for tests, who put their own proc/ and sys/ there.
 */
#ifndef CHEX_BASE_MEMORY_H
#define CHEX_BASE_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes that processes of this one's cgroup can still take: what the kernel calls available, or
 * what the tightest limit of the cgroup and those above it leaves. 0: cannot be measured. */
uint64_t chex_memory_free_bytes(const char *root);

/* Bytes of this process's own pages that are in memory now; 0: unknown. */
uint64_t chex_memory_own_bytes(const char *root);

/* The most that all processes of this job step on this node may ever hold together. */
struct chex_memory_limit {
    uint64_t bytes;   /* 0: unknown */
    bool asked;       /* of Slurm; sites differ in whether that binds */
    const char *from; /* "cgroup", "Slurm" or "machine" (its memory and swap); lives for ever */
};

/* The tightest of: the limits of the cgroup and those above it; SLURM_MEM_PER_NODE, or
 * SLURM_MEM_PER_CPU times SLURM_CPUS_ON_NODE (MiB; 0 is all of the node); the machine. */
struct chex_memory_limit chex_memory_limit(const char *root);

#endif
