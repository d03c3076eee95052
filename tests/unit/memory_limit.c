/* SPDX-License-Identifier: Apache-2.0
 *
 * What is free and what is allowed, by the node, by cgroups of both versions and by Slurm.
 */
#include "base/memory_limit.h"

#include "dir.h"
#include "tap.h"

static void put(const char *path, const char *text) {
    BAIL_UNLESS(chex_fs_make_folder_of(dir_path("%s", path), NULL) == CHEX_OK, "%s", path);
    dir_put_text(path, text);
}

static void test_free(void) {
    OK(chex_memory_free_bytes(dir) == 0, "no /proc/meminfo: not known");
    put("/proc/meminfo", "MemTotal: 9999 kB\nMemFree: 1 kB\nMemAvailable:    1000 kB\n");
    OK(chex_memory_free_bytes(dir) == 1024000, "without cgroups: MemAvailable");
    put("/proc/self/cgroup", "0::/job/step\n");
    put("/sys/fs/cgroup/job/step/memory.max", "max\n");
    put("/sys/fs/cgroup/job/step/memory.current", "5\n");
    OK(chex_memory_free_bytes(dir) == 1024000, "a group without a limit");
    put("/sys/fs/cgroup/job/memory.max", "500000\n");
    put("/sys/fs/cgroup/job/memory.current", "200000\n");
    OK(chex_memory_free_bytes(dir) == 300000, "the limit of the group above");
    put("/sys/fs/cgroup/job/memory.stat", "anon 7\ninactive_file 150000\nactive_file 3\n");
    OK(chex_memory_free_bytes(dir) == 450000, "unused pages of files can be had");
    put("/sys/fs/cgroup/job/memory.current", "900000\n");
    OK(chex_memory_free_bytes(dir) == 0, "a limit that is passed leaves nothing");
    put("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/slurm/job\n2:cpu:/\n");
    put("/sys/fs/cgroup/memory/slurm/job/memory.limit_in_bytes", "9223372036854771712\n");
    OK(chex_memory_group_bytes(dir) == UINT64_MAX, "a limit near 2^63 is none");
    put("/sys/fs/cgroup/memory/slurm/job/memory.usage_in_bytes", "1\n");
    put("/sys/fs/cgroup/memory/memory.limit_in_bytes", "700000\n");
    put("/sys/fs/cgroup/memory/memory.usage_in_bytes", "100000\n");
    OK(chex_memory_free_bytes(dir) == 600000, "version 1, the limit at the root");
    OK(chex_memory_free_bytes("") > 0, "this machine: %llu bytes",
       (unsigned long long)chex_memory_free_bytes(""));
}

static bool limited(uint64_t bytes, const char *from) {
    const struct chex_memory_limit l = chex_memory_limit(dir);
    return l.bytes == bytes && strcmp(l.from, from) == 0;
}

/* Goes on with the files of the last test but its cgroups. */
static void test_limit(void) {
    put("/proc/self/cgroup", "0::/\n");
    OK(limited((uint64_t)9999 << 10, "machine"), "without limits: the machine's memory");
    put("/proc/meminfo", "MemTotal: 9000 kB\nSwapTotal: 1000 kB\n");
    OK(limited((uint64_t)10000 << 10, "machine"), "with its swap");
    put("/proc/self/cgroup", "0::/job/step\n");
    OK(limited(500000, "cgroup"), "the limit of a group, whatever is used of it");
    setenv("SLURM_MEM_PER_CPU", "2", 1);
    setenv("SLURM_CPUS_ON_NODE", "3", 1);
    OK(limited(500000, "cgroup"), "Slurm allows more");
    put("/proc/self/cgroup", "0::/\n");
    OK(limited((uint64_t)6 << 20, "Slurm"), "memory per core, times cores");
    setenv("SLURM_MEM_PER_NODE", "4", 1);
    OK(limited((uint64_t)4 << 20, "Slurm"), "memory per node");
    setenv("SLURM_MEM_PER_NODE", "0", 1);
    unsetenv("SLURM_MEM_PER_CPU");
    OK(limited((uint64_t)10000 << 10, "machine"), "0 is all of the node");
    OK(chex_memory_own_bytes(dir) == 0, "what a process holds is not known without its status");
    put("/proc/self/status", "VmRSS:\t 50 kB\nRssAnon:\t     30 kB\n");
    OK(chex_memory_own_bytes(dir) == 30 << 10 && chex_memory_own_bytes("") > 0,
       "its own pages alone count");
    OK(chex_memory_limit("").bytes > 0, "this machine: %llu bytes by its %s",
       (unsigned long long)chex_memory_limit("").bytes, chex_memory_limit("").from);
}

/* 2 TiB and 256 cores, by the machine and by Slurm. */
static void test_large(void) {
    put("/proc/meminfo", "MemTotal: 2147483648 kB\nSwapTotal: 0 kB\nMemAvailable: 2147483647 kB\n");
    OK(limited(UINT64_C(2) << 40, "machine"), "a machine of 2 TiB");
    OK(chex_memory_free_bytes(dir) == (UINT64_C(2) << 40) - 1024, "and what is free of it");
    unsetenv("SLURM_MEM_PER_NODE");
    setenv("SLURM_MEM_PER_CPU", "8000", 1);
    setenv("SLURM_CPUS_ON_NODE", "256", 1);
    OK(limited((UINT64_C(8000) << 20) * 256, "Slurm"), "256 times 8,000 MiB");
}

int main(void) {
    dir_make();
    unsetenv("SLURM_MEM_PER_NODE");
    unsetenv("SLURM_MEM_PER_CPU");
    test_free();
    test_limit();
    test_large();
    dir_remove();
    return tap_done();
}
