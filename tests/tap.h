/* SPDX-License-Identifier: Apache-2.0
 *
 * The small TAP harness of the C tests: counts every check, goes on after a failure, and its exit
 * status is the verdict (0 passed, 1 failed, 77 skipped).
 */
#ifndef CHEX_TESTS_TAP_H
#define CHEX_TESTS_TAP_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

/* Sanitizers and unoptimised builds run 10 to 40 times slower: there a long test does less, and
 * says so. */
#ifndef __has_feature
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                               \
    __has_feature(address_sanitizer) || !defined(__OPTIMIZE__)
#define TAP_SLOW_BUILD 1
#else
#define TAP_SLOW_BUILD 0
#endif

static int tap_count, tap_failed;

/* Seconds until a test gives up on what has to happen. On a busy machine everything comes late. */
static inline double tap_wait_s(void) {
    const char *s = getenv("CHEX_TEST_WAIT");
    return s ? atof(s) : 300;
}
static inline uint64_t tap_wait_ms(void) { return (uint64_t)(1e3 * tap_wait_s()); }

#define OK(cond, ...)                                                                              \
    do {                                                                                           \
        bool tap_ok_ = (cond);                                                                     \
        tap_count++;                                                                               \
        tap_failed += !tap_ok_;                                                                    \
        printf("%sok %d - ", tap_ok_ ? "" : "not ", tap_count);                                    \
        printf(__VA_ARGS__);                                                                       \
        printf("\n");                                                                              \
        if (!tap_ok_)                                                                              \
            printf("# %s:%d: %s\n", __FILE__, __LINE__, #cond);                                    \
    } while (0)

/* The call must return `want`, and its text must hold `needle` (NULL: any). */
#define OK_STATUS(call, want, err, needle)                                                         \
    do {                                                                                           \
        memset(&(err), 0, sizeof(err));                                                            \
        enum chex_status tap_st_ = (call);                                                         \
        const char *tap_needle_ = (needle);                                                        \
        OK(tap_st_ == (want) && (!tap_needle_ || strstr((err).text, tap_needle_)), "%s is %d%s%s", \
           #call, (int)(want), (err).text[0] ? ": " : "", (err).text);                             \
    } while (0)

/* The next two are for calls that put their error in a variable `err` of the caller. */

/* The call must succeed. */
#define OK_CALL(call)                                                                              \
    do {                                                                                           \
        memset(&err, 0, sizeof err);                                                               \
        enum chex_status tap_st_ = (call);                                                         \
        OK(tap_st_ == CHEX_OK, "%s is 0%s%s", #call, err.text[0] ? ": " : "", err.text);           \
    } while (0)

/* The rest cannot do without the call. */
#define MUST(call) BAIL_UNLESS((call) == CHEX_OK, "%s", err.text)

/* For set-up that the rest cannot do without. */
#define BAIL_UNLESS(cond, ...)                                                                     \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            printf("Bail out! %s:%d: ", __FILE__, __LINE__);                                       \
            printf(__VA_ARGS__);                                                                   \
            printf("\n");                                                                          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define SKIP_ALL(...)                                                                              \
    do {                                                                                           \
        printf("1..0 # SKIP ");                                                                    \
        printf(__VA_ARGS__);                                                                       \
        printf("\n");                                                                              \
        exit(77);                                                                                  \
    } while (0)

static inline int tap_done(void) {
    printf("1..%d\n", tap_count);
    if (tap_failed)
        printf("# %d of %d failed\n", tap_failed, tap_count);
    return tap_failed ? 1 : 0;
}

#endif
