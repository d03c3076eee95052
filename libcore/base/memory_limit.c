/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads memory limits from /proc/meminfo, from the cgroup files (versions 1 and 2) and from Slurm's
 * environment. A limit of a parent cgroup applies too.
 */
#include "base/memory_limit.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/cgroup.h"
#include "base/fs.h"
#include "base/units.h"

/* What one group allows; UINT64_MAX without a limit. */
static uint64_t limit_of(const char *group, bool v2) {
    uint64_t limit;
    return chex_fs_number(group, v2 ? "memory.max" : "memory.limit_in_bytes", "", &limit)
               ? limit
               : UINT64_MAX;
}

/* What one group has left; UINT64_MAX without a limit. The kernel counts cached file pages as used,
 * but reclaims them when memory is needed, so the inactive ones are subtracted. */
static uint64_t left_by(const char *group, bool v2) {
    uint64_t limit = limit_of(group, v2), used, old = 0;
    if (limit == UINT64_MAX ||
        !chex_fs_number(group, v2 ? "memory.current" : "memory.usage_in_bytes", "", &used))
        return UINT64_MAX;
    chex_fs_number(group, "memory.stat", v2 ? "inactive_file " : "total_inactive_file ", &old);
    used -= old < used ? old : used;
    return limit > used ? limit - used : 0;
}

struct smallest {
    uint64_t (*ask)(const char *group, bool v2);
    uint64_t bytes;
};

static void ask_group(void *arg, const char *group, bool v2) {
    struct smallest *s = arg;
    const uint64_t bytes = s->ask(group, v2);
    s->bytes = bytes < s->bytes ? bytes : s->bytes;
}

static uint64_t ask_cgroups(uint64_t (*ask)(const char *group, bool v2), const char *root) {
    struct smallest s = {ask, UINT64_MAX};
    chex_cgroup_each(root, "memory", ask_group, &s);
    return s.bytes;
}

uint64_t chex_memory_group_bytes(const char *root) {
    const uint64_t limit = ask_cgroups(limit_of, root);
    /* Version 1 writes "none" as a number near 2^63. */
    return limit > UINT64_C(1) << 60 ? UINT64_MAX : limit;
}

uint64_t chex_memory_free_bytes(const char *root) {
    uint64_t kib;
    if (!chex_fs_number(root, "proc/meminfo", "MemAvailable:", &kib))
        return 0;
    uint64_t left = ask_cgroups(left_by, root);
    return left < kib * 1024 ? left : kib * 1024;
}

uint64_t chex_memory_own_bytes(const char *root) {
    uint64_t kib;
    return chex_fs_number(root, "proc/self/status", "RssAnon:", &kib) ? kib * 1024 : 0;
}

/* A number of MiB in the environment, in bytes; 0 if unset or without limit. */
static uint64_t mib_of(const char *variable) {
    const char *text = getenv(variable);
    uint64_t mib;
    return text && chex_parse_u64(text, &mib) && mib < UINT64_MAX >> 20 ? mib << 20 : 0;
}

static uint64_t allowed_by_slurm(void) {
    const uint64_t node = mib_of("SLURM_MEM_PER_NODE"), core = mib_of("SLURM_MEM_PER_CPU");
    const char *text = getenv("SLURM_CPUS_ON_NODE");
    uint64_t cores, bytes;
    if (node || !core || !text || !chex_parse_u64(text, &cores) ||
        __builtin_mul_overflow(core, cores, &bytes))
        return node;
    return bytes;
}

struct chex_memory_limit chex_memory_limit(const char *root) {
    uint64_t kib, swap_kib = 0;
    if (!chex_fs_number(root, "proc/meminfo", "MemTotal:", &kib))
        return (struct chex_memory_limit){.from = "machine"};
    chex_fs_number(root, "proc/meminfo", "SwapTotal:", &swap_kib);
    struct chex_memory_limit limit = {.bytes = (kib + swap_kib) * 1024, .from = "machine"};
    const uint64_t group = ask_cgroups(limit_of, root), slurm = allowed_by_slurm();
    if (group < limit.bytes)
        limit = (struct chex_memory_limit){.bytes = group, .from = "cgroup"};
    if (slurm && slurm < limit.bytes)
        limit = (struct chex_memory_limit){.bytes = slurm, .asked = true, .from = "Slurm"};
    return limit;
}
