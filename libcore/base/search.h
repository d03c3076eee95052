/* SPDX-License-Identifier: Apache-2.0
 *
 * Search in a list of runs that follow each other.
 */
#ifndef CHEX_BASE_SEARCH_H
#define CHEX_BASE_SEARCH_H

#include <stddef.h>

/* The run that holds `at`: first[run] <= at < first[run + 1]. first: (count + 1), ascending. */
static inline size_t chex_search_run(const size_t *first, size_t count, size_t at) {
    size_t low = 0, high = count; /* first[low] <= at < first[high] */
    while (high - low > 1) {
        const size_t mid = low + (high - low) / 2;
        if (first[mid] <= at)
            low = mid;
        else
            high = mid;
    }
    return low;
}

#endif
