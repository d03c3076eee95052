/* SPDX-License-Identifier: Apache-2.0
 *
 * --cache: what follows from what is free.
 */
#include "input/cache.h"

#include "tap.h"

static struct chex_error err;

static void test_choice(void) {
    struct chex_cache_choice c;
    const uint64_t mib = 1 << 20;
    OK(chex_cache_choose(CHEX_CACHE_AUTO, 10 * mib, 20 * mib, 1, &c, &err) == CHEX_OK && c.keep,
       "auto: %s", c.why);
    OK(chex_cache_choose(CHEX_CACHE_AUTO, 10 * mib, 20 * mib, 2, &c, &err) == CHEX_OK && !c.keep &&
           strstr(c.why, "a process of this node"),
       "auto: %s", c.why);
    OK(chex_cache_choose(CHEX_CACHE_AUTO, 10 * mib, 0, 1, &c, &err) == CHEX_OK && !c.keep,
       "auto: %s", c.why);
    OK(chex_cache_choose(CHEX_CACHE_MEMORY, 10 * mib, 11 * mib, 1, &c, &err) == CHEX_OK && c.keep,
       "memory: %s", c.why);
    OK(chex_cache_choose(CHEX_CACHE_NONE, 10 * mib, 100 * mib, 1, &c, &err) == CHEX_OK && !c.keep,
       "none: %s", c.why);
    OK_STATUS(chex_cache_choose(CHEX_CACHE_MEMORY, 10 * mib, 36 * mib, 4, &c, &err),
              CHEX_E_RESOURCE, err, "the rows need 10.0 MiB, and 9.0 MiB a process of this node");
}

int main(void) {
    test_choice();
    return tap_done();
}
