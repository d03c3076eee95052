/* SPDX-License-Identifier: Apache-2.0 */
#include "check/strain.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"

enum { PATH_BYTES = 2048, LINE_BYTES = 1024, CPUS = 4096 };

/* One group's; version 1 counts nanoseconds, version 2 microseconds. */
static void add_group(const char *path, bool v2, struct chex_strain *s) {
    uint64_t value;
    if (chex_fs_number(path, "nr_throttled ", &value))
        s->throttled_count += value;
    if (chex_fs_number(path, v2 ? "throttled_usec " : "throttled_time ", &value))
        s->throttled_s += (double)value * (v2 ? 1e-6 : 1e-9);
}

static void add_groups_above(const char *root, const char *mount, char *group, bool v2,
                             struct chex_strain *s) {
    char path[2 * PATH_BYTES];
    for (char *slash = group + strlen(group); slash; slash = strrchr(group, '/')) {
        *slash = '\0';
        snprintf(path, sizeof path, "%s%s%s/cpu.stat", root, mount, group);
        add_group(path, v2, s);
    }
}

/* Whether "cpu" is one of the names of a list such as "cpu,cpuacct". */
static bool names_cpu(const char *list) {
    for (const char *at = list; at; at = strchr(at, ',')) {
        at += *at == ',';
        const size_t n = strcspn(at, ",");
        if (n == 3 && strncmp(at, "cpu", 3) == 0)
            return true;
    }
    return false;
}

/* Lines of /proc/self/cgroup: "0::/path" is version 2, "4:cpu,cpuacct:/path" version 1. */
static void read_groups(const char *root, struct chex_strain *s) {
    char path[PATH_BYTES], line[LINE_BYTES], mount[LINE_BYTES];
    snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        char *names = strchr(line, ':'), *group = names ? strchr(names + 1, ':') : NULL;
        if (!group)
            continue;
        *group++ = '\0';
        names++;
        const bool v2 = !*names;
        if (!v2 && !names_cpu(names))
            continue;
        snprintf(mount, sizeof mount, "/sys/fs/cgroup%s%.100s", v2 ? "" : "/", names);
        add_groups_above(root, mount, group, v2, s);
    }
    if (f)
        fclose(f);
}

/* "cpu  user nice system idle iowait irq softirq steal ...", in ticks. */
static double steal_s(const char *root) {
    char path[PATH_BYTES];
    unsigned long long steal = 0;
    snprintf(path, sizeof path, "%s/proc/stat", root);
    FILE *f = fopen(path, "re");
    if (!f || fscanf(f, "cpu %*u %*u %*u %*u %*u %*u %*u %llu", &steal) != 1)
        steal = 0;
    if (f)
        fclose(f);
    return (double)steal / (double)sysconf(_SC_CLK_TCK);
}

/* Cores that this machine has not, or that say nothing, count 0. A package's count stands with each
 * of its cores; what matters is whether it moves. */
static uint64_t heat_count(const char *root) {
    static const char *const files[] = {"core_throttle_count", "package_throttle_count"};
    char path[PATH_BYTES];
    uint64_t sum = 0, value;
    for (int cpu = 0; cpu < CPUS; cpu++) {
        snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d", root, cpu);
        if (access(path, F_OK) != 0)
            break;
        for (int i = 0; i < 2; i++) {
            snprintf(path, sizeof path, "%s/sys/devices/system/cpu/cpu%d/thermal_throttle/%s", root,
                     cpu, files[i]);
            if (chex_fs_number(path, "", &value))
                sum += value;
        }
    }
    return sum;
}

void chex_strain_read(const char *root, struct chex_strain *out) {
    struct chex_strain s = {.wall_s = chex_clock_s()};
    struct rusage usage;
    read_groups(root, &s);
    s.steal_s = steal_s(root);
    s.heat_count = heat_count(root);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        s.pushed_count = (uint64_t)usage.ru_nivcsw;
    *out = s;
}

static uint64_t rise(uint64_t before, uint64_t after) {
    return after > before ? after - before : 0;
}
static double grown(double before, double after) { return after > before ? after - before : 0; }

struct chex_strain chex_strain_between(const struct chex_strain *b, const struct chex_strain *a) {
    return (struct chex_strain){.wall_s = grown(b->wall_s, a->wall_s),
                                .throttled_s = grown(b->throttled_s, a->throttled_s),
                                .throttled_count = rise(b->throttled_count, a->throttled_count),
                                .steal_s = grown(b->steal_s, a->steal_s),
                                .heat_count = rise(b->heat_count, a->heat_count),
                                .pushed_count = rise(b->pushed_count, a->pushed_count)};
}
