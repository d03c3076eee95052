/* SPDX-License-Identifier: Apache-2.0
 *
 * Reads the counters of check/throttling.h.
 *
 * Sources: cpu.stat of the control group and its parents (cgroup version 1 and 2), /proc/stat,
 * /proc/pressure, /proc/vmstat, thermal_throttle in /sys, getrusage.
 */
#include "check/throttling.h"

#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/fs.h"

enum { PATH_BYTES = 2048, LINE_BYTES = 1024, CPUS = 4096 };

/* Adds the counters of one group. Version 1 counts nanoseconds, version 2 microseconds. */
static void add_group(void *arg, const char *group, bool v2) {
    struct chex_throttling *s = arg;
    uint64_t value;
    if (chex_fs_number(group, "cpu.stat", "nr_throttled ", &value))
        s->throttled_count += value;
    if (chex_fs_number(group, "cpu.stat", v2 ? "throttled_usec " : "throttled_time ", &value))
        s->throttled_s += (double)value * (v2 ? 1e-6 : 1e-9);
}

/* The CPUs that this process may run on. */
struct cpus {
    cpu_set_t *set;
    size_t bytes;
};

static struct cpus own_cpus(void) {
    struct cpus c = {.set = CPU_ALLOC(CPUS), .bytes = CPU_ALLOC_SIZE(CPUS)};
    if (c.set && sched_getaffinity(0, c.bytes, c.set) != 0)
        CPU_ZERO_S(c.bytes, c.set);
    return c;
}

/* Lines "cpu user nice system idle iowait irq softirq steal ..." in ticks. The first line is the
 * sum, then one line per CPU follows. */
static void read_cpu_times(const char *root, struct chex_throttling *s) {
    char path[PATH_BYTES], line[LINE_BYTES];
    const double tick_s = 1 / (double)sysconf(_SC_CLK_TCK);
    unsigned long long user, nice, system, irq, softirq, steal;
    struct cpus own = own_cpus();
    snprintf(path, sizeof path, "%s/proc/stat", root);
    FILE *f = fopen(path, "re");
    while (f && fgets(line, sizeof line, f) && strncmp(line, "cpu", 3) == 0) {
        const char *numbers = line + strcspn(line, " ");
        if (sscanf(numbers, "%llu %llu %llu %*u %*u %llu %llu %llu", &user, &nice, &system, &irq,
                   &softirq, &steal) != 6)
            continue;
        const double busy_s = (double)(user + nice + system + irq + softirq) * tick_s;
        if (line[3] == ' ') {
            s->steal_s = (double)steal * tick_s;
            s->node_busy_s = busy_s;
            continue;
        }
        const long cpu = strtol(line + 3, NULL, 10);
        s->node_cpus++;
        if (own.set && cpu >= 0 && CPU_ISSET_S((size_t)cpu, own.bytes, own.set)) {
            s->cpus++;
            s->busy_s += busy_s;
        }
    }
    if (f)
        fclose(f);
    CPU_FREE(own.set);
}

/* "some avg10=0.00 avg60=0.00 avg300=0.00 total=1234", in microseconds. */
static double stall_s(const char *root, const char *file) {
    char line[128];
    const char *total =
        chex_fs_line(root, file, "some", line, sizeof line) ? strstr(line, "total=") : NULL;
    return total ? atof(total + strlen("total=")) * 1e-6 : 0;
}

static uint64_t paged_bytes(const char *root) {
    uint64_t in = 0, out = 0;
    (void)chex_fs_number(root, "proc/vmstat", "pgpgin ", &in);
    (void)chex_fs_number(root, "proc/vmstat", "pgpgout ", &out);
    return (in + out) * 1024;
}

/* The sum of the thermal throttling events of all cores. Missing files count 0. Each core reports
 * the count of its package too, so events are counted several times. Only a change matters. */
static uint64_t heat_count(const char *root) {
    static const char *const files[] = {"thermal_throttle/core_throttle_count",
                                        "thermal_throttle/package_throttle_count"};
    char folder[PATH_BYTES];
    uint64_t sum = 0, value;
    for (int cpu = 0; cpu < CPUS; cpu++) {
        snprintf(folder, sizeof folder, "%s/sys/devices/system/cpu/cpu%d", root, cpu);
        if (access(folder, F_OK) != 0)
            break;
        for (int i = 0; i < 2; i++)
            if (chex_fs_number(folder, files[i], "", &value))
                sum += value;
    }
    return sum;
}

void chex_throttling_read(const char *root, struct chex_throttling *out) {
    struct chex_throttling s = {.wall_s = chex_clock_s()};
    struct rusage usage;
    chex_cgroup_each(root, "cpu", add_group, &s);
    read_cpu_times(root, &s);
    s.io_stall_s = stall_s(root, "proc/pressure/io");
    s.memory_stall_s = stall_s(root, "proc/pressure/memory");
    s.paged_bytes = paged_bytes(root);
    s.heat_count = heat_count(root);
    if (getrusage(RUSAGE_SELF, &usage) == 0)
        s.own_s = (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
                  1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
    *out = s;
}

struct chex_throttling chex_throttling_between(const struct chex_throttling *b,
                                               const struct chex_throttling *a) {
    struct chex_throttling d = {.cpus = a->cpus, .node_cpus = a->node_cpus};
#define SET_INCREASE(member) d.member = a->member > b->member ? a->member - b->member : 0
    SET_INCREASE(wall_s);
    SET_INCREASE(throttled_s);
    SET_INCREASE(throttled_count);
    SET_INCREASE(steal_s);
    SET_INCREASE(heat_count);
    SET_INCREASE(own_s);
    SET_INCREASE(busy_s);
    SET_INCREASE(node_busy_s);
    SET_INCREASE(io_stall_s);
    SET_INCREASE(memory_stall_s);
    SET_INCREASE(paged_bytes);
#undef SET_INCREASE
    return d;
}
