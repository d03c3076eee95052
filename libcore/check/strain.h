/* SPDX-License-Identifier: Apache-2.0
 *
 * What the kernel counts of time that this process did not get, and of heat: read before and after
 * a measurement.
 */
#ifndef CHEX_CHECK_STRAIN_H
#define CHEX_CHECK_STRAIN_H

#include <stdint.h>

struct chex_strain {
    double wall_s;      /* chex_clock_s() */
    double throttled_s; /* the control group's quota was used up (cpu.stat), on the way up too */
    uint64_t throttled_count; /* periods in which it was */
    double steal_s;           /* all CPUs: a virtual machine's host ran somebody else */
    uint64_t heat_count;      /* times that cores or packages were slowed down by heat */
    uint64_t pushed_count;    /* times that this process was taken off a CPU for another */
};

/* `root` is "" but for tests, who put their own proc/ and sys/ there. What a system does not count
 * stays 0. */
void chex_strain_read(const char *root, struct chex_strain *out);

/* after - before, each of them; a counter that went back has gone nowhere. */
struct chex_strain chex_strain_between(const struct chex_strain *before,
                                       const struct chex_strain *after);

#endif
