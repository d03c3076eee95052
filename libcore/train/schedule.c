/* SPDX-License-Identifier: Apache-2.0
 *
 * The learning rate: a linear warm-up, then plateau, cosine, step or constant.
 */
#include "train/schedule.h"

#include <math.h>
#include <stddef.h>

const char *const chex_sched_names[] = {"plateau", "cosine", "step", "constant", NULL};

void chex_schedule_init(struct chex_schedule *s) {
    s->scale = 1;
    s->best = 0;
    s->bad_epochs = 0;
    s->has_best = false;
}

enum chex_status chex_schedule_check(const struct chex_schedule *s, struct chex_error *err) {
    return s->min_lr > s->lr
               ? chex_error_set(err, CHEX_E_USAGE, "--min-lr %g: expected no more than --lr, %g",
                                s->min_lr, s->lr)
               : CHEX_OK;
}

static double after_warmup(const struct chex_schedule *s, double epochs_done) {
    double lr = s->lr;
    switch (s->kind) {
    case CHEX_SCHED_PLATEAU: lr *= s->scale; break;
    case CHEX_SCHED_COSINE: {
        double span = (double)s->epochs - s->warmup_epochs;
        double t = span > 0 ? (epochs_done - s->warmup_epochs) / span : 1;
        t = t < 0 ? 0 : t > 1 ? 1 : t;
        lr = s->min_lr + 0.5 * (s->lr - s->min_lr) * (1 + cos(3.141592653589793 * t));
    } break;
    case CHEX_SCHED_STEP: lr *= pow(s->factor, floor(epochs_done / (double)s->step_epochs)); break;
    case CHEX_SCHED_CONSTANT: break;
    }
    return lr > s->min_lr ? lr : s->min_lr;
}

double chex_schedule_lr(const struct chex_schedule *s, uint64_t epoch, uint64_t step,
                        uint64_t steps) {
    double done = (double)epoch + (steps ? (double)step / (double)steps : 0);
    double warmup_steps = s->warmup_epochs * (double)steps;
    double position = (double)epoch * (double)steps + (double)step;
    if (position < warmup_steps) /* warmup_steps need not be whole: the rate is capped at lr */
        return s->lr * fmin((position + 1) / warmup_steps, 1);
    return after_warmup(s, done);
}

bool chex_schedule_observe(struct chex_schedule *s, double validation_loss) {
    if (s->kind != CHEX_SCHED_PLATEAU)
        return false;
    if (!s->has_best || validation_loss < s->best * (1 - 1e-4)) {
        s->best = validation_loss;
        s->has_best = true;
        s->bad_epochs = 0;
        return false;
    }
    if (++s->bad_epochs <= s->patience)
        return false;
    s->bad_epochs = 0;
    if (s->lr * s->scale <= s->min_lr)
        return false;
    s->scale *= s->factor;
    return true;
}
