/* SPDX-License-Identifier: Apache-2.0
 *
 * How often progress is logged where it cannot be redrawn, and which losses run.html keeps.
 */
#include "base/progress.h"

#include "base/text.h"
#include "report/run_page.h"
#include "tap.h"

/* Lines of a run of so many seconds whose progress moves all the time. */
static int lines_of(double run_s) {
    int lines = 0;
    for (double age_s = 0; (age_s += chex_progress_interval_s(age_s)) <= run_s;)
        lines++;
    return lines;
}

/* Adds losses of steps 0, 1, 2, ...: those that are kept have equal distances. */
static bool keeps_evenly(uint64_t added) {
    struct chex_run_losses l = {0};
    for (uint64_t i = 0; i < added; i++)
        chex_run_losses_add(&l, i, (double)i / 2);
    bool even = l.count > 0 && l.count <= sizeof l.loss / sizeof l.loss[0];
    for (size_t i = 0; even && i < l.count; i++)
        even = l.step[i] == (double)(i * l.every) && l.loss[i] == l.step[i] / 2;
    return even && l.step[l.count - 1] + (double)l.every >= (double)added;
}

int main(void) {
    const int minute = lines_of(60), night = lines_of(8 * 3600.0), week = lines_of(7 * 86400.0);
    OK(chex_progress_interval_s(0) == 10, "at first a line every ten seconds");
    OK(minute == 6, "%d lines in the first minute", minute);
    OK(night >= 80 && night <= 120, "%d lines in eight hours", night);
    OK(week <= 1200, "%d lines in a week", week);
    OK(chex_text_s(1)[0] == '\0' && chex_text_s(0)[0] == 's' && chex_text_s(2)[0] == 's',
       "one step, two steps, no steps");
    OK(keeps_evenly(1) && keeps_evenly(256) && keeps_evenly(257) && keeps_evenly(10007),
       "run.html keeps losses at equal distances");
    return tap_done();
}
