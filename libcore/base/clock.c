/* SPDX-License-Identifier: Apache-2.0
 *
 * The two clocks of Linux: CLOCK_MONOTONIC for durations and deadlines, CLOCK_REALTIME for dates.
 */
#include "base/clock.h"

#include <errno.h>
#include <time.h>

uint64_t chex_clock_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

uint64_t chex_clock_in_ms(uint64_t ms) { return chex_clock_ns() + ms * 1000000u; }

double chex_clock_s(void) { return (double)chex_clock_ns() * 1e-9; }

double chex_clock_unix_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void chex_clock_sleep_ms(unsigned ms) {
    struct timespec t = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};
    while (nanosleep(&t, &t) != 0 && errno == EINTR) {
    }
}

void chex_clock_cond_init(pthread_cond_t *cond) {
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attr);
    pthread_condattr_destroy(&attr);
}

int chex_clock_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns) {
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                   .tv_nsec = (long)(until_ns % 1000000000u)};
    return pthread_cond_timedwait(cond, lock, &until);
}

const char *chex_clock_iso8601(char *buf, size_t size, double unix_s) {
    time_t t = (time_t)unix_s;
    struct tm tm;
    gmtime_r(&t, &tm);
    if (strftime(buf, size, "%Y-%m-%dT%H:%M:%SZ", &tm) == 0 && size)
        buf[0] = '\0';
    return buf;
}
