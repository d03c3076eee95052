/* SPDX-License-Identifier: Apache-2.0
 *
 * Compares the time left of the job with the time that a save needs.
 */
#include "train/watch/save_before_end.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/units.h"

static const double reserve_s = 20, first_save_bytes_per_s = 100e6;
static const double ask_again_s = 60, ask_before_s = 90;

static void ask(struct chex_time_left *t) {
    t->end = chex_slurm_job_end(t->lib);
    t->asked_s = chex_clock_unix_s();
}

void chex_time_left_start(struct chex_time_left *t, const struct chex_save_before_end *option,
                          const struct chex_slurm_library *lib, const char *why, uint64_t bytes) {
    char left[32];
    *t = (struct chex_time_left){
        .lib = lib, .option = *option, .save_s = (double)bytes / first_save_bytes_per_s};
    if (option->off)
        return;
    ask(t);
    if (t->end.end_s && (double)t->end.end_s <= t->asked_s)
        t->end.end_s = 0; /* a variable of an older job, or a job that may exceed its limit */
    if (t->end.end_s)
        chex_info("the job ends in %s (%s); the run saves before (--save-before-end)",
                  chex_format_duration(left, sizeof left, (double)t->end.end_s - t->asked_s),
                  t->end.from);
    else if (option->margin_ms && !t->end.from)
        chex_warn("--save-before-end: the end of the job is unknown: SLURM_JOB_END_TIME is not "
                  "set, and libslurm does not answer: %s",
                  why[0] ? why : "the request failed");
}

void chex_time_left_step(struct chex_time_left *t, double seconds) {
    t->step_s *= 0.9;
    t->step_s = seconds > t->step_s ? seconds : t->step_s;
}

void chex_time_left_save(struct chex_time_left *t, double seconds) {
    t->save_s = seconds > t->save_s ? seconds : t->save_s;
}

static double margin_s(const struct chex_time_left *t) {
    return t->option.margin_ms ? (double)t->option.margin_ms / 1e3
                               : reserve_s + 2 * t->save_s + 2 * t->step_s;
}

void chex_time_left_check(struct chex_time_left *t, volatile sig_atomic_t *stop) {
    char left[32], margin[32];
    const double need_s = margin_s(t), now_s = chex_clock_unix_s();
    if (!t->reached && t->lib && t->end.end_s &&
        (double)t->end.end_s - now_s < need_s + ask_before_s && now_s - t->asked_s > ask_again_s)
        ask(t);
    const double left_s = (double)t->end.end_s - chex_clock_unix_s();
    if (!t->reached && t->end.end_s && left_s <= need_s) {
        t->reached = true;
        chex_info("the job ends in %s (%s): the run saves now, %s before the end "
                  "(--save-before-end)",
                  chex_format_duration(left, sizeof left, left_s > 0 ? left_s : 0), t->end.from,
                  chex_format_duration(margin, sizeof margin, need_s));
    }
    if (t->reached)
        *stop = 1;
}
