/* SPDX-License-Identifier: Apache-2.0
 *
 * Decides for --cache if rows are kept in memory, and writes the reason for the log.
 */
#include "input/cache.h"

#include <stdio.h>

#include "base/units.h"

const char *const chex_cache_names[] = {"auto", "memory", "none", NULL};
const char *const chex_resident_names[] = {"auto", "never", NULL};

enum chex_status chex_cache_choose(enum chex_cache_mode mode, uint64_t need_bytes,
                                   uint64_t free_bytes, int processes,
                                   struct chex_cache_choice *choice_out, struct chex_error *err) {
    char need[32], free_text[32];
    struct chex_cache_choice c = {.need_bytes = need_bytes,
                                  .free_bytes = free_bytes / (uint64_t)processes};
    chex_format_bytes(need, sizeof need, need_bytes);
    chex_format_bytes(free_text, sizeof free_text, c.free_bytes);
    const char *shared = processes > 1 ? " a process of this node" : "";
    if (mode == CHEX_CACHE_MEMORY && free_bytes && need_bytes > c.free_bytes)
        return chex_error_set(err, CHEX_E_RESOURCE,
                              "--cache memory: the rows need %s, and %s%s is free: use more nodes, "
                              "--order local or --cache none",
                              need, free_text, shared);
    c.keep =
        mode == CHEX_CACHE_MEMORY || (mode == CHEX_CACHE_AUTO && need_bytes <= c.free_bytes / 2);
    if (mode != CHEX_CACHE_AUTO)
        snprintf(c.why, sizeof c.why, "%s of rows %s (--cache %s)", need,
                 c.keep ? "kept in memory" : "read as needed", chex_cache_names[mode]);
    else if (!free_bytes)
        snprintf(c.why, sizeof c.why, "%s of rows read as needed: free memory cannot be measured",
                 need);
    else
        snprintf(c.why, sizeof c.why, "%s of rows %s: they take %s half of the %s%s that is free",
                 need, c.keep ? "kept in memory" : "read as needed",
                 c.keep ? "less than" : "more than", free_text, shared);
    *choice_out = c;
    return CHEX_OK;
}
