/* SPDX-License-Identifier: Apache-2.0
 *
 * --cache: decides if this process keeps the stored rows in host memory after the first read.
 * --resident: the names of the modes; engine/engine.h decides if the engine keeps rows in its
 * memory.
 */
#ifndef CHEX_INPUT_CACHE_H
#define CHEX_INPUT_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

enum chex_cache_mode { CHEX_CACHE_AUTO, CHEX_CACHE_MEMORY, CHEX_CACHE_NONE };
extern const char *const chex_cache_names[]; /* "auto", "memory", "none", NULL */

enum chex_resident_mode { CHEX_RESIDENT_AUTO, CHEX_RESIDENT_NEVER };
extern const char *const chex_resident_names[]; /* "auto", "never", NULL */

struct chex_cache_choice {
    bool keep;
    uint64_t need_bytes, free_bytes; /* free_bytes: share of one process; 0: unknown */
    char why[160];                   /* "2.0 GiB of rows in memory: ..." */
};

/* Chooses. A process's share is free_bytes / processes (processes on this node).
 * - auto: keep the rows if they need at most half of the share
 * - memory: keep them; CHEX_E_RESOURCE if they need more than the share
 * - none: do not keep them */
enum chex_status chex_cache_choose(enum chex_cache_mode mode, uint64_t need_bytes,
                                   uint64_t free_bytes, int processes,
                                   struct chex_cache_choice *choice_out, struct chex_error *err);

#endif
