/* SPDX-License-Identifier: Apache-2.0 */
#include "train/schedule.h"

#include "tap.h"

static bool near(double a, double b) { return fabs(a - b) <= 1e-12 * (1 + fabs(b)); }

static void warmup_and_cosine(void) {
    struct chex_schedule s = {
        .kind = CHEX_SCHED_COSINE, .lr = 1, .min_lr = 0.1, .warmup_epochs = 1, .epochs = 5};
    chex_schedule_init(&s);
    OK(near(chex_schedule_lr(&s, 0, 0, 10), 0.1), "warm-up starts at lr / steps");
    OK(near(chex_schedule_lr(&s, 0, 9, 10), 1.0), "and reaches lr at its last step");
    OK(near(chex_schedule_lr(&s, 1, 0, 10), 1.0), "cosine starts at lr");
    OK(near(chex_schedule_lr(&s, 3, 0, 10), 0.55), "is half way in the middle");
    OK(near(chex_schedule_lr(&s, 5, 0, 10), 0.1), "and ends at min-lr");
}

static void parts_of_steps(void) {
    struct chex_schedule s = {
        .kind = CHEX_SCHED_CONSTANT, .lr = 1, .warmup_epochs = 0.25, .epochs = 5};
    chex_schedule_init(&s);
    OK(near(chex_schedule_lr(&s, 0, 0, 10), 0.4) && near(chex_schedule_lr(&s, 0, 1, 10), 0.8),
       "a warm-up of two and a half steps rises by what it takes");
    OK(near(chex_schedule_lr(&s, 0, 2, 10), 1) && near(chex_schedule_lr(&s, 0, 3, 10), 1),
       "and ends at lr, not above");
    OK(near(chex_schedule_lr(&s, 0, 0, 2), 1), "one of half a step too");
}

static void steps(void) {
    struct chex_schedule s = {
        .kind = CHEX_SCHED_STEP, .lr = 1, .factor = 0.1, .step_epochs = 2, .epochs = 9};
    chex_schedule_init(&s);
    OK(near(chex_schedule_lr(&s, 1, 9, 10), 1) && near(chex_schedule_lr(&s, 2, 0, 10), 0.1) &&
           near(chex_schedule_lr(&s, 4, 3, 10), 0.01),
       "step falls by its factor every two epochs");
    s.kind = CHEX_SCHED_CONSTANT;
    OK(near(chex_schedule_lr(&s, 8, 0, 10), 1), "constant stays");
}

static void plateau(void) {
    struct chex_schedule s = {.kind = CHEX_SCHED_PLATEAU, .lr = 1, .factor = 0.1, .patience = 1};
    chex_schedule_init(&s);
    const double losses[] = {1.0, 0.5, 0.5, 0.49999, 0.4, 0.6, 0.6};
    const bool falls[] = {false, false, false, true, false, false, true};
    bool same = true;
    for (size_t i = 0; i < 7; i++)
        same = same && chex_schedule_observe(&s, losses[i]) == falls[i];
    OK(same, "plateau falls after more than `patience` epochs without 1e-4 of progress");
    OK(near(chex_schedule_lr(&s, 7, 0, 10), 0.01), "twice makes a hundredth");
}

static void plateau_ends_at_min_lr(void) {
    struct chex_schedule s = {.kind = CHEX_SCHED_PLATEAU, .lr = 1, .min_lr = 0.02, .factor = 0.1};
    chex_schedule_init(&s);
    const double rates[] = {1, 0.1, 0.02, 0.02};
    const bool falls[] = {false, true, true, false};
    for (size_t i = 0; i < 4; i++) {
        OK(chex_schedule_observe(&s, 1) == falls[i], "plateau, validation %zu: %s", i,
           falls[i] ? "falls" : "stays");
        OK(near(chex_schedule_lr(&s, i, 0, 10), rates[i]), "at %g", rates[i]);
    }
}

int main(void) {
    warmup_and_cosine();
    parts_of_steps();
    steps();
    plateau();
    plateau_ends_at_min_lr();
    return tap_done();
}
