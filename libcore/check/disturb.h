/* SPDX-License-Identifier: Apache-2.0
 *
 * Detects whether other processes disturbed a measurement, so that no node is blamed for them.
 *
 * There are two windows.
 * - The quiet window is short and comes before the measurement. This process does nothing then, so
 * all load is from other processes.
 * - During the measurement, the CPU time of this process is subtracted from the busy time of its
 * CPUs. The quota of its control group and the time stolen by the host of a virtual machine are
 * read too. Load on a disk is judged only in the quiet window, because the kernel does not tell
 * whose a transfer is.
 */
#ifndef CHEX_CHECK_DISTURB_H
#define CHEX_CHECK_DISTURB_H

#include <stdbool.h>
#include <stddef.h>

#include "check/throttling.h"

enum chex_disturb_kind {
    CHEX_DISTURB_CPU, /* CPUs and memory */
    CHEX_DISTURB_DISK,
};

enum { CHEX_DISTURBED_BYTES = 96 };

/* Judge a window by the change of the counters (chex_throttling_between). True: disturbed; `why`
 * then has the reason, such as "other processes used 1.9 CPUs of the node". False: `why` is
 * unchanged. */
bool chex_disturb_quiet(const struct chex_throttling *change, enum chex_disturb_kind kind,
                        char *why, size_t size);
bool chex_disturb_during(const struct chex_throttling *change, enum chex_disturb_kind kind,
                         char *why, size_t size);

struct chex_disturb_watch {
    enum chex_disturb_kind kind;
    struct chex_throttling before;
    char why[CHEX_DISTURBED_BYTES]; /* "": not disturbed so far */
};

/* Begins the measurement. If `quiet` is set, a quiet window of 0.2 s comes first. Set it only if no
 * other rank of this node computes at that moment. */
void chex_disturb_begin(struct chex_disturb_watch *w, enum chex_disturb_kind kind, bool quiet);

/* Ends the measurement. True: w->why names a disturbance. */
bool chex_disturb_end(struct chex_disturb_watch *w);

#endif
