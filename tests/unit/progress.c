/* SPDX-License-Identifier: Apache-2.0
 *
 * How often progress is logged where it cannot be redrawn.
 */
#include "base/progress.h"

#include "base/text.h"
#include "tap.h"

/* Lines of a run of so many seconds whose progress moves all the time. */
static int lines_of(double run_s) {
    int lines = 0;
    for (double age_s = 0; (age_s += chex_progress_interval_s(age_s)) <= run_s;)
        lines++;
    return lines;
}

int main(void) {
    const int minute = lines_of(60), night = lines_of(8 * 3600.0), week = lines_of(7 * 86400.0);
    OK(chex_progress_interval_s(0) == 10, "at first a line every ten seconds");
    OK(minute == 6, "%d lines in the first minute", minute);
    OK(night >= 80 && night <= 120, "%d lines in eight hours", night);
    OK(week <= 1200, "%d lines in a week", week);
    OK(chex_text_s(1)[0] == '\0' && chex_text_s(0)[0] == 's' && chex_text_s(2)[0] == 's',
       "one step, two steps, no steps");
    return tap_done();
}
