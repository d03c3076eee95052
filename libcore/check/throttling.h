/* SPDX-License-Identifier: Apache-2.0
 *
 * Counters of the kernel that tell whether this process got its CPU time: throttling, stolen time,
 * load of other processes, heat. Read them before and after a measurement.
 */
#ifndef CHEX_CHECK_THROTTLING_H
#define CHEX_CHECK_THROTTLING_H

#include <stdint.h>

struct chex_throttling {
    double wall_s;            /* chex_clock_s() */
    double throttled_s;       /* time stopped by the CPU quota of the control group or its parents
                                 (cpu.stat) */
    uint64_t throttled_count; /* periods with such a stop */
    double steal_s;           /* all CPUs: the host of this virtual machine ran other guests */
    uint64_t heat_count;      /* thermal throttling events of cores and packages */
    double own_s;             /* CPU time of this process */
    double busy_s;            /* CPU time of all processes on the CPUs of this process */
    double node_busy_s;       /* CPU time of all processes on all CPUs */
    int cpus, node_cpus;      /* number of those CPUs; a constant, so never subtracted */
    double io_stall_s, memory_stall_s; /* waits for disks, for memory (PSI "some") */
    uint64_t paged_bytes;              /* read from and written to disks */
};

/* Reads all counters. root: "", or a folder of a test with its own proc/ and sys/. A counter that
 * the system does not have is 0. */
void chex_throttling_read(const char *root, struct chex_throttling *out);

/* after - before for each counter. Counters never decrease. If one did, it was reset, and the
 * difference is 0. */
struct chex_throttling chex_throttling_between(const struct chex_throttling *before,
                                               const struct chex_throttling *after);

#endif
