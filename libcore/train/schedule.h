/* SPDX-License-Identifier: Apache-2.0
 *
 * Learning-rate schedules. cosine, step and constant are pure functions of the position. plateau
 * has state (scale, best, bad_epochs, has_best), which checkpoints save.
 */
#ifndef CHEX_TRAIN_SCHEDULE_H
#define CHEX_TRAIN_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum chex_sched { CHEX_SCHED_PLATEAU, CHEX_SCHED_COSINE, CHEX_SCHED_STEP, CHEX_SCHED_CONSTANT };
extern const char *const chex_sched_names[];

struct chex_schedule {
    enum chex_sched kind;
    double lr; /* the peak; never scaled by the number of ranks */
    double min_lr;
    double warmup_epochs; /* linear: step k of n warm-up steps has lr * k / n */
    int64_t epochs;
    /* step: multiplies the rate by `factor` every step_epochs epochs.
     * plateau: multiplies it by `factor` after more than `patience` epochs without a validation
     * loss below (1 - 1e-4) times the best one, down to min_lr. This is the rule of PyTorch's
     * ReduceLROnPlateau. */
    double factor;
    int64_t patience, step_epochs;
    /* State of plateau. */
    double scale;
    double best;
    int64_t bad_epochs;
    bool has_best;
};

void chex_schedule_init(struct chex_schedule *s);
/* CHEX_E_USAGE: min_lr is above lr. */
enum chex_status chex_schedule_check(const struct chex_schedule *s, struct chex_error *err);

/* The rate of step `step` (from 0) of epoch `epoch` (from 0), with `steps` steps per epoch. */
double chex_schedule_lr(const struct chex_schedule *s, uint64_t epoch, uint64_t step,
                        uint64_t steps);

/* Call once after each whole epoch. Returns true if plateau has lowered the rate now. */
bool chex_schedule_observe(struct chex_schedule *s, double validation_loss);

#endif
