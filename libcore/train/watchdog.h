/* SPDX-License-Identifier: Apache-2.0
 *
 * A thread that notices when a rank stops moving: says where it stands after `warn_ms`, and ends
 * the job with status 7 after `abort_ms`, so that an allocation is not burnt by a hang.
 */
#ifndef CHEX_TRAIN_WATCHDOG_H
#define CHEX_TRAIN_WATCHDOG_H

#include <stdint.h>

#include "base/error.h"
#include "launch/launch.h"

enum chex_phase {
    CHEX_PHASE_SETUP,
    CHEX_PHASE_DATA,
    CHEX_PHASE_COMPUTE,
    CHEX_PHASE_REDUCE,
    CHEX_PHASE_UPDATE,
    CHEX_PHASE_VALIDATE,
    CHEX_PHASE_SAVE,
    CHEX_PHASE_COUNT,
};
extern const char *const chex_phase_names[];

struct chex_watchdog;

/* 0 switches a limit off. `launch` is borrowed. Never fails to be usable: NULL does nothing. */
enum chex_status chex_watchdog_create(struct chex_launch *launch, uint64_t warn_ms,
                                      uint64_t abort_ms, struct chex_watchdog **out,
                                      struct chex_error *err);
void chex_watchdog_destroy(struct chex_watchdog *w);

/* The rank has come to `phase` of step `step`. Cheap: called several times a step. */
void chex_watchdog_beat(struct chex_watchdog *w, enum chex_phase phase, uint64_t step);

#endif
