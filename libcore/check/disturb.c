/* SPDX-License-Identifier: Apache-2.0
 *
 * Judges the quiet window and the measured window by fixed thresholds. check/disturb.h explains
 * both.
 */
#include "check/disturb.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"

enum { QUIET_MS = 200 };

/* Thresholds. Below them a disturbance changes a measurement by less than its own noise. The kernel
 * counts CPU time in ticks of 10 ms: 0.25 CPUs are five ticks of the quiet window. */
static const double most_quiet_cpus = 0.25, most_quiet_share = 0.05; /* both must be exceeded */
static const double most_own_share = 0.05, most_own_s = 0.1;         /* both must be exceeded */
static const double most_steal_share = 0.02, most_stall_share = 0.1;
static const double most_paged_bytes_per_s = 20e6;

bool chex_disturb_quiet(const struct chex_throttling *d, enum chex_disturb_kind kind, char *why,
                        size_t size) {
    if (d->wall_s <= 0)
        return false;
    const double cpus = (d->node_busy_s - d->own_s) / d->wall_s;
    const double paged = (double)d->paged_bytes / d->wall_s;
    if (kind == CHEX_DISTURB_CPU && cpus > most_quiet_cpus &&
        cpus > most_quiet_share * d->node_cpus)
        snprintf(why, size, "other processes used %.1f of the node's %d CPUs", cpus, d->node_cpus);
    else if (kind == CHEX_DISTURB_CPU && d->memory_stall_s > most_stall_share * d->wall_s)
        snprintf(why, size, "other processes waited for memory");
    else if (kind == CHEX_DISTURB_DISK && d->io_stall_s > most_stall_share * d->wall_s)
        snprintf(why, size, "other processes waited for disks %.0f %% of the time",
                 100 * d->io_stall_s / d->wall_s);
    else if (kind == CHEX_DISTURB_DISK && paged > most_paged_bytes_per_s)
        snprintf(why, size, "other processes moved %.0f MB/s from or to disks", paged / 1e6);
    else
        return false;
    return true;
}

bool chex_disturb_during(const struct chex_throttling *d, enum chex_disturb_kind kind, char *why,
                         size_t size) {
    const double others_s = d->busy_s - d->own_s, own_cpus_s = d->wall_s * d->cpus;
    if (kind == CHEX_DISTURB_DISK || d->wall_s <= 0)
        return false;
    if (d->throttled_count > 0)
        snprintf(why, size,
                 "the quota of its control group stopped it %" PRIu64 " times, for %.2f s",
                 d->throttled_count, d->throttled_s);
    else if (others_s > most_own_s && others_s > most_own_share * own_cpus_s)
        snprintf(why, size, "other processes took %.0f %% of the time of its CPUs",
                 100 * others_s / own_cpus_s);
    else if (d->steal_s > most_steal_share * d->wall_s * d->node_cpus)
        snprintf(why, size, "other virtual machines took %.1f %% of the node's time",
                 100 * d->steal_s / d->wall_s / d->node_cpus);
    else
        return false;
    return true;
}

void chex_disturb_begin(struct chex_disturb_watch *w, enum chex_disturb_kind kind, bool quiet) {
    struct chex_throttling first;
    *w = (struct chex_disturb_watch){.kind = kind};
    chex_throttling_read("", &first);
    w->before = first;
    if (!quiet)
        return;
    chex_clock_sleep_ms(QUIET_MS);
    chex_throttling_read("", &w->before);
    const struct chex_throttling change = chex_throttling_between(&first, &w->before);
    (void)chex_disturb_quiet(&change, kind, w->why, sizeof w->why);
}

bool chex_disturb_end(struct chex_disturb_watch *w) {
    struct chex_throttling now;
    chex_throttling_read("", &now);
    const struct chex_throttling change = chex_throttling_between(&w->before, &now);
    /* A disturbance during the measurement replaces one of the quiet window. */
    return chex_disturb_during(&change, w->kind, w->why, sizeof w->why) || w->why[0];
}
