/* SPDX-License-Identifier: Apache-2.0
 *
 * Time: durations from the monotonic clock, dates from the real-time clock.
 */
#ifndef CHEX_BASE_CLOCK_H
#define CHEX_BASE_CLOCK_H

#include <pthread.h>
#include <stddef.h>
#include <stdint.h>

uint64_t chex_clock_ns(void);           /* monotonic, arbitrary origin */
uint64_t chex_clock_in_ms(uint64_t ms); /* chex_clock_ns of a deadline */
double chex_clock_s(void);              /* chex_clock_ns in seconds */
double chex_clock_unix_s(void);         /* seconds since 1970, for records that people read */
void chex_clock_sleep_ms(unsigned ms);

/* A condition variable with deadlines of chex_clock_ns; changes of the time of day have no effect.
 * _wait returns as pthread_cond_timedwait: 0, or ETIMEDOUT. */
void chex_clock_cond_init(pthread_cond_t *cond);
int chex_clock_cond_wait(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t until_ns);

/* "2026-01-31T12:00:00Z"; buf is returned. */
const char *chex_clock_iso8601(char *buf, size_t size, double unix_s);

#endif
