/* SPDX-License-Identifier: Apache-2.0 */
#include "input/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/units.h"

const char *const chex_cache_names[] = {"auto", "memory", "none", NULL};
const char *const chex_resident_names[] = {"auto", "never", NULL};

enum { PATH_BYTES = 4096, LINE_BYTES = 4352 };

/* The number behind `key` at the start of a line, or alone in the file where key is "". */
static bool number_in(const char *path, const char *key, uint64_t *out) {
    char line[LINE_BYTES];
    bool found = false;
    FILE *f = fopen(path, "re");
    if (!f)
        return false;
    while (!found && fgets(line, sizeof line, f))
        if (strncmp(line, key, strlen(key)) == 0) {
            char *end;
            *out = strtoull(line + strlen(key), &end, 10);
            found = end != line + strlen(key); /* "max" is no number */
        }
    fclose(f);
    return found;
}

/* What version 1 and version 2 of the cgroups call the same things. */
struct names {
    const char *mount, *limit, *used, *reclaimable;
};
static const struct names v2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file "};
static const struct names v1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                "memory.usage_in_bytes", "total_inactive_file "};

/* What one group leaves; UINT64_MAX without a limit. Pages of files that nobody uses count as
 * used there, but they go when memory is wanted. */
static uint64_t left_by(const char *root, const struct names *n, const char *group) {
    char path[2 * PATH_BYTES];
    uint64_t limit, used, old = 0;
    snprintf(path, sizeof path, "%s%s%s/%s", root, n->mount, group, n->limit);
    if (!number_in(path, "", &limit))
        return UINT64_MAX;
    snprintf(path, sizeof path, "%s%s%s/%s", root, n->mount, group, n->used);
    if (!number_in(path, "", &used))
        return UINT64_MAX;
    snprintf(path, sizeof path, "%s%s%s/memory.stat", root, n->mount, group);
    number_in(path, n->reclaimable, &old);
    used -= old < used ? old : used;
    return limit > used ? limit - used : 0;
}

static uint64_t left_by_all_above(const char *root, const struct names *n, char *group) {
    uint64_t least = UINT64_MAX;
    for (;;) {
        uint64_t left = left_by(root, n, strcmp(group, "/") == 0 ? "" : group);
        least = left < least ? left : least;
        char *slash = strrchr(group, '/');
        if (!slash || !*group)
            return least;
        *slash = '\0';
    }
}

/* Lines of /proc/self/cgroup: "0::/path" is version 2, "4:memory:/path" version 1. */
static uint64_t left_by_cgroups(const char *root) {
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
            left = left_by_all_above(root, &v2, group);
        else if (strcmp(kind, "memory") == 0)
            left = left_by_all_above(root, &v1, group);
        least = left < least ? left : least;
    }
    if (f)
        fclose(f);
    return least;
}

uint64_t chex_cache_free_bytes(const char *root) {
    char path[PATH_BYTES];
    uint64_t kib;
    snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (!number_in(path, "MemAvailable:", &kib))
        return 0;
    uint64_t left = left_by_cgroups(root);
    return left < kib * 1024 ? left : kib * 1024;
}

enum chex_status chex_cache_choose(enum chex_cache_mode mode, uint64_t need_bytes,
                                   uint64_t free_bytes, int processes,
                                   struct chex_cache_choice *choice_out, struct chex_error *err) {
    char need[32], free_text[32];
    struct chex_cache_choice c = {.need_bytes = need_bytes,
                                  .free_bytes = free_bytes / (uint64_t)processes};
    chex_format_bytes(need, sizeof need, need_bytes);
    chex_format_bytes(free_text, sizeof free_text, c.free_bytes);
    const char *shared = processes > 1 ? " a process of this node" : "";
    if (mode == CHEX_CACHE_MEMORY && free_bytes && need_bytes > c.free_bytes)
        return chex_error_set(err, CHEX_E_RESOURCE,
                              "--cache memory: the rows are %s, and %s%s is free: more nodes, "
                              "--order local or --cache none",
                              need, free_text, shared);
    c.keep =
        mode == CHEX_CACHE_MEMORY || (mode == CHEX_CACHE_AUTO && need_bytes <= c.free_bytes / 2);
    if (mode != CHEX_CACHE_AUTO)
        snprintf(c.why, sizeof c.why, "%s of rows %s (--cache %s)", need,
                 c.keep ? "kept in memory" : "read as needed", chex_cache_names[mode]);
    else if (!free_bytes)
        snprintf(c.why, sizeof c.why, "%s of rows read as needed: free memory cannot be measured",
                 need);
    else
        snprintf(c.why, sizeof c.why, "%s of rows %s: they take %s half of the %s%s that is free",
                 need, c.keep ? "kept in memory" : "read as needed",
                 c.keep ? "less than" : "more than", free_text, shared);
    *choice_out = c;
    return CHEX_OK;
}
