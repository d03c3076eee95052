/* SPDX-License-Identifier: Apache-2.0
 *
 * --cache: what is free, by the node and by cgroups of both versions, and what follows from it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "input/cache.h"

#include "tap.h"

static char root[256];

static void put(const char *path, const char *text) {
    char whole[1024];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    char *slash = strrchr(whole, '/');
    *slash = '\0';
    BAIL_UNLESS(chex_fs_mkdirs(whole, NULL) == CHEX_OK, "%s", whole);
    *slash = '/';
    BAIL_UNLESS(chex_fs_write(whole, text, strlen(text), NULL) == CHEX_OK, "%s", whole);
}

static void test_free(void) {
    OK(chex_cache_free_bytes(root) == 0, "no /proc/meminfo: not known");
    put("/proc/meminfo", "MemTotal: 9999 kB\nMemFree: 1 kB\nMemAvailable:    1000 kB\n");
    OK(chex_cache_free_bytes(root) == 1024000, "without cgroups: MemAvailable");
    put("/proc/self/cgroup", "0::/job/step\n");
    put("/sys/fs/cgroup/job/step/memory.max", "max\n");
    put("/sys/fs/cgroup/job/step/memory.current", "5\n");
    OK(chex_cache_free_bytes(root) == 1024000, "a group without a limit");
    put("/sys/fs/cgroup/job/memory.max", "500000\n");
    put("/sys/fs/cgroup/job/memory.current", "200000\n");
    OK(chex_cache_free_bytes(root) == 300000, "the limit of the group above");
    put("/sys/fs/cgroup/job/memory.stat", "anon 7\ninactive_file 150000\nactive_file 3\n");
    OK(chex_cache_free_bytes(root) == 450000, "unused pages of files can be had");
    put("/sys/fs/cgroup/job/memory.current", "900000\n");
    OK(chex_cache_free_bytes(root) == 0, "a limit that is passed leaves nothing");
    put("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/slurm/job\n2:cpu:/\n");
    put("/sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes", "9223372036854771712\n");
    put("/sys/fs/cgroup/memory/slurm/job/memory.usage_in_bytes", "1\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "700000\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n");
    OK(chex_cache_free_bytes(root) == 600000, "version 1, the limit at the root");
    OK(chex_cache_free_bytes("") > 0, "this machine: %llu bytes",
       (unsigned long long)chex_cache_free_bytes(""));
}

static void test_choice(void) {
    struct chex_cache_choice c;
    struct chex_error err = {0};
    const uint64_t mib = 1 << 20;
    OK(chex_cache_choose(CHEX_CACHE_AUTO, 10 * mib, 20 * mib, 1, &c, &err) == CHEX_OK && c.keep,
       "auto: %s", c.why);
    OK(chex_cache_choose(CHEX_CACHE_AUTO, 10 * mib, 20 * mib, 2, &c, &err) == CHEX_OK && !c.keep &&
           strstr(c.why, "a process of this node"),
       "auto: %s", c.why);
    OK(chex_cache_choose(CHEX_CACHE_AUTO, 10 * mib, 0, 1, &c, &err) == CHEX_OK && !c.keep,
       "auto: %s", c.why);
    OK(chex_cache_choose(CHEX_CACHE_MEMORY, 10 * mib, 11 * mib, 1, &c, &err) == CHEX_OK && c.keep,
       "memory: %s", c.why);
    OK(chex_cache_choose(CHEX_CACHE_NONE, 10 * mib, 100 * mib, 1, &c, &err) == CHEX_OK && !c.keep,
       "none: %s", c.why);
    OK_STATUS(chex_cache_choose(CHEX_CACHE_MEMORY, 10 * mib, 36 * mib, 4, &c, &err),
              CHEX_E_RESOURCE, err, "the rows are 10.0 MiB, and 9.0 MiB a process of this node");
}

int main(void) {
    const char *tmp = getenv("TMPDIR");
    snprintf(root, sizeof root, "%s/chex-cache-XXXXXX", tmp ? tmp : "/tmp");
    BAIL_UNLESS(mkdtemp(root), "%s", root);
    test_free();
    test_choice();
    chex_fs_remove_tree(root, NULL);
    return tap_done();
}
