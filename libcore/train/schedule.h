/* SPDX-License-Identifier: Apache-2.0
 *
 * The learning rate of every step. cosine, step and constant are pure functions of the position;
 * plateau keeps a little state, which checkpoints carry.
 */
#ifndef CHEX_TRAIN_SCHEDULE_H
#define CHEX_TRAIN_SCHEDULE_H

#include <stdbool.h>
#include <stdint.h>

enum chex_sched { CHEX_SCHED_PLATEAU, CHEX_SCHED_COSINE, CHEX_SCHED_STEP, CHEX_SCHED_CONSTANT };
extern const char *const chex_sched_names[];

struct chex_schedule {
    enum chex_sched kind;
    double lr; /* the peak; never scaled by the number of ranks */
    double min_lr;
    double warmup_epochs; /* linear from lr / warm-up steps */
    int64_t epochs;
    /* step: lr * factor at every step_epochs; plateau: lr * factor after `patience` epochs in which
     * the validation loss did not fall by more than 1e-4 of itself, min_lr in the end (PyTorch's
     * rule). */
    double factor;
    int64_t patience, step_epochs;
    /* state of plateau */
    double scale;
    double best;
    int64_t bad_epochs;
    bool has_best;
};

void chex_schedule_init(struct chex_schedule *s);

/* Rate of step `step` of epoch `epoch` with `steps` steps an epoch. */
double chex_schedule_lr(const struct chex_schedule *s, uint64_t epoch, uint64_t step,
                        uint64_t steps);

/* After each validation. Returns true where plateau has just lowered the rate. */
bool chex_schedule_observe(struct chex_schedule *s, double validation_loss);

#endif
