/* SPDX-License-Identifier: Apache-2.0
 *
 * The memory of this machine, and the part of it that cgroups and Slurm leave to this process.
 *
 * `root` is "" except in tests, which put their own proc/ and sys/ there.
 */
#ifndef CHEX_BASE_MEMORY_LIMIT_H
#define CHEX_BASE_MEMORY_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

/* Bytes that the processes of this cgroup can still allocate: the minimum of MemAvailable and of
 * what each limit of the cgroup and its parents leaves. 0: unknown. */
uint64_t chex_memory_free_bytes(const char *root);

/* Bytes of this process's anonymous pages in memory (RssAnon). 0: unknown. */
uint64_t chex_memory_own_bytes(const char *root);

/* The least limit of the cgroup and its parents. UINT64_MAX: none. */
uint64_t chex_memory_group_bytes(const char *root);

/* The upper limit for all processes of this job step on this node together. */
struct chex_memory_limit {
    uint64_t bytes; /* 0: unknown */
    bool asked; /* the limit is the request to Slurm; sites differ in whether Slurm enforces it */
    const char *from; /* "cgroup", "Slurm" or "machine" (memory and swap); a literal */
};

/* The minimum of:
 * - the limits of the cgroup and its parents
 * - SLURM_MEM_PER_NODE, or SLURM_MEM_PER_CPU times SLURM_CPUS_ON_NODE (MiB; 0 is the whole node)
 * - memory and swap of the machine */
struct chex_memory_limit chex_memory_limit(const char *root);

#endif
