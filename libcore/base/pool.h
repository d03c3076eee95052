/* SPDX-License-Identifier: Apache-2.0
 *
 * A fixed set of threads that share the items of a loop.
 *
 * An atomic counter hands out the items, so timing decides which thread runs which item. A result
 * must depend on its item only. Then results are independent of the number of threads.
 */
#ifndef CHEX_BASE_POOL_H
#define CHEX_BASE_POOL_H

#include <stddef.h>

#include "base/error.h"

struct chex_pool;

/* `worker` is 0 .. threads-1, for per-thread scratch; worker 0 is the calling thread. */
typedef void (*chex_pool_fn)(void *arg, size_t item, int worker);

/* threads >= 1, including the caller. The threads inherit the caller's affinity. */
enum chex_status chex_pool_create(int threads, struct chex_pool **pool_out, struct chex_error *err);
void chex_pool_destroy(struct chex_pool *pool); /* NULL allowed; no loop may be running */

int chex_pool_threads(const struct chex_pool *pool);

/* Runs fn(arg, 0..items-1) and returns when all items are done. Only the first `items` threads take
 * part; the others stay asleep. One caller at a time; an item must not call it. */
void chex_pool_run(struct chex_pool *pool, size_t items, chex_pool_fn fn, void *arg);

/* Runs the items of a loop that can fail. After a failure no item with a higher number begins.
 * Returns the failure of the item with the lowest number, whatever the number of threads. err of
 * `fn` is not NULL.
 * - chex_pool_try: on `threads` threads, which live for this call
 * - chex_pool_try_on: on a pool; NULL: the calling thread runs all items */
typedef enum chex_status (*chex_pool_try_fn)(void *arg, size_t item, int worker,
                                             struct chex_error *err);
enum chex_status chex_pool_try(int threads, size_t items, chex_pool_try_fn fn, void *arg,
                               struct chex_error *err);
enum chex_status chex_pool_try_on(struct chex_pool *pool, size_t items, chex_pool_try_fn fn,
                                  void *arg, struct chex_error *err);

/* CPUs this process may run on (sched_getaffinity); at least 1. */
int chex_cpu_count(void);

#endif
