/* SPDX-License-Identifier: Apache-2.0
 *
 * Full load on memory: every thread runs the triad on arrays of its own for a fixed time.
 */
#ifndef CHEX_CHECK_LOAD_H
#define CHEX_CHECK_LOAD_H

#include <stdint.h>

#include "base/error.h"

struct chex_load {
    double bytes_per_s; /* of all threads, loads and stores */
    double cpu_share;   /* of its time that the thread which got least was on a CPU */
};

/* The mean over `seconds` and not the best moment: that of a node under load of all its ranks. Each
 * thread has 96 MiB of its own (first touched by itself), less where that is more than most_bytes
 * in all; CHEX_E_RESOURCE where less than 24 MiB a thread are left. */
enum chex_status chex_load_memory(int threads, double seconds, uint64_t most_bytes,
                                  struct chex_load *out, struct chex_error *err);

#endif
