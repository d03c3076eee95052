/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads memory limits from /proc/meminfo, from the cgroup files (versions 1 and 2) and from Slurm's
 * environment. A limit of a parent cgroup applies too, so the code walks up to the root.
 */
#include "base/memory_limit.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/units.h"

enum { PATH_BYTES = 4096, LINE_BYTES = 4352 };

/* File names of cgroups version 1 and version 2. */
struct names {
    const char *mount, *limit, *used, *reclaimable;
};
static const struct names v2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};
static const struct names v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                "memory.usage_in_bytes", "total_inactive_file "};

/* What one group allows (limit_of) or has left (left_by); UINT64_MAX without a limit. The kernel
 * counts cached file pages as used, but reclaims them when memory is needed, so left_by subtracts
 * the inactive ones. */
typedef uint64_t (*ask_fn)(const char *root, const struct names *n, const char *group);

static uint64_t limit_of(const char *root, const struct names *n, const char *group) {
    char path[2 * PATH_BYTES];
    uint64_t limit;
    snprintf(path, sizeof path, "%s%s%s/%s", root, n->mount, group, n->limit);
    return chex_fs_number(path, "", &limit) ? limit : UINT64_MAX;
}

static uint64_t left_by(const char *root, const struct names *n, const char *group) {
    char path[2 * PATH_BYTES];
    uint64_t limit = limit_of(root, n, group), used, old = 0;
    if (limit == UINT64_MAX)
        return UINT64_MAX;
    snprintf(path, sizeof path, "%s%s%s/%s", root, n->mount, group, n->used);
    if (!chex_fs_number(path, "", &used))
        return UINT64_MAX;
    snprintf(path, sizeof path, "%s%s%s/memory.stat", root, n->mount, group);
    chex_fs_number(path, n->reclaimable, &old);
    used -= old < used ? old : used;
    return limit > used ? limit - used : 0;
}

static uint64_t ask_all_above(ask_fn ask, const char *root, const struct names *n, char *group) {
    uint64_t least = UINT64_MAX;
    for (;;) {
        uint64_t left = ask(root, n, strcmp(group, "/") == 0 ? "" : group);
        least = left < least ? left : least;
        char *slash = strrchr(group, '/');
        if (!slash || !*group)
            return least;
        *slash = '\0';
    }
}

/* Lines of /proc/self/cgroup: "0::/path" is version 2, "4:memory:/path" version 1. */
static uint64_t ask_cgroups(ask_fn ask, const char *root) {
    char path[PATH_BYTES], line[LINE_BYTES];
    uint64_t least = UINT64_MAX;
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *kind = strchr(line, ':'), *group = kind ? strchr(kind + 1, ':') : NULL;
        if (!group || strlen(group + 1) >= PATH_BYTES)
            continue;
        *group++ = '\0';
        kind++;
        uint64_t left = UINT64_MAX;
        if (!*kind)
            left = ask_all_above(ask, root, &v2, group);
        else if (strcmp(kind, "memory") == 0)
            left = ask_all_above(ask, root, &v1, group);
        least = left < least ? left : least;
    }
    if (f)
        fclose(f);
    return least;
}

uint64_t chex_memory_free_bytes(const char *root) {
    char path[PATH_BYTES];
    uint64_t kib;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (!chex_fs_number(path, "MemAvailable:", &kib))
        return 0;
    uint64_t left = ask_cgroups(left_by, root);
    return left < kib * 1024 ? left : kib * 1024;
}

uint64_t chex_memory_own_bytes(const char *root) {
    char path[PATH_BYTES];
    uint64_t kib;
    snprintf(path, sizeof path, "%s/proc/self/status", root);
    return chex_fs_number(path, "RssAnon:", &kib) ? kib * 1024 : 0;
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
    char path[PATH_BYTES];
    uint64_t kib, swap_kib = 0;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (!chex_fs_number(path, "MemTotal:", &kib))
        return (struct chex_memory_limit){.from = "machine"};
    chex_fs_number(path, "SwapTotal:", &swap_kib);
    struct chex_memory_limit limit = {.bytes = (kib + swap_kib) * 1024, .from = "machine"};
    const uint64_t group = ask_cgroups(limit_of, root), slurm = allowed_by_slurm();
    if (group < limit.bytes)
        limit = (struct chex_memory_limit){.bytes = group, .from = "cgroup"};
    if (slurm && slurm < limit.bytes)
        limit = (struct chex_memory_limit){.bytes = slurm, .asked = true, .from = "Slurm"};
    return limit;
}
