/* SPDX-License-Identifier: Apache-2.0
 *
 * Full load on memory: every thread runs the triad (a = b + s c) on its own arrays for a fixed
 * time.
 */
#ifndef CHEX_CHECK_LOAD_H
#define CHEX_CHECK_LOAD_H

#include <stdint.h>

#include "base/error.h"

struct chex_load {
    double bytes_per_s; /* loads and stores of all threads; median of the time slices */
    double spread;      /* chex_spread of the slices */
    double cpu_share;   /* CPU time / wall time of the thread that got the least CPU */
};

/* Measures the memory rate for `seconds`. The median, not the best moment: the rate of a node under
 * load of all ranks.
 * - Each thread touches its own 96 MiB first, so they are local to its NUMA node.
 * - All threads together use at most max_bytes.
 * - CHEX_E_RESOURCE: that is less than 24 MiB per thread, or memory or threads are missing. */
enum chex_status chex_load_memory(int threads, double seconds, uint64_t max_bytes,
                                  struct chex_load *out, struct chex_error *err);

#endif
