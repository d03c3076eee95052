/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether this process keeps the stored rows that it reads in memory (--cache), and whether its
 * engine may keep them in its own (--resident; engine/engine.h decides).
 */
#ifndef CHEX_INPUT_CACHE_H
#define CHEX_INPUT_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

enum chex_cache_mode { CHEX_CACHE_AUTO, CHEX_CACHE_MEMORY, CHEX_CACHE_NONE };
extern const char *const chex_cache_names[]; /* "auto", "memory", "none", NULL */

enum chex_resident_mode { CHEX_RESIDENT_AUTO, CHEX_RESIDENT_NEVER };
extern const char *const chex_resident_names[]; /* "auto", "never", NULL */

struct chex_cache_choice {
    bool keep;
    uint64_t need_bytes, free_bytes; /* free: a process's share of the node, 0 where unknown */
    char why[160];                   /* "2.0 GiB of rows in memory: ..." */
};

/* auto keeps rows where they take at most half of free_bytes / processes; memory keeps them, or
 * is CHEX_E_RESOURCE with need and share where they cannot fit. */
enum chex_status chex_cache_choose(enum chex_cache_mode mode, uint64_t need_bytes,
                                   uint64_t free_bytes, int processes,
                                   struct chex_cache_choice *choice_out, struct chex_error *err);

#endif
