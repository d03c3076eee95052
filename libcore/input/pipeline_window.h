/* SPDX-License-Identifier: Apache-2.0
 *
 * Prefetch by windows (--shuffle-block): one thread reads all rows of a window, which is several
 * steps of a logical rank, in disk order. Meanwhile the workers make batches from earlier windows.
 */
#ifndef CHEX_INPUT_PIPELINE_WINDOW_H
#define CHEX_INPUT_PIPELINE_WINDOW_H

#include "input/pipeline.h"
#include "input/reader.h"

struct chex_window;

/* Writes the rows of `steps` steps of a logical rank (counted from rank_from). Called by the
 * reading thread without a lock. */
typedef void (*chex_window_rows_fn)(void *arg, uint64_t epoch, int rank, size_t step, size_t steps,
                                    size_t *rows_out);

/* Starts the reading thread at the configuration's epoch and step. Borrows c, reader and arg. */
enum chex_status chex_window_create(const struct chex_pipeline_config *c,
                                    struct chex_reader *reader, chex_window_rows_fn rows, void *arg,
                                    struct chex_window **window_out, struct chex_error *err);

/* Bytes of the window buffers. */
uint64_t chex_window_bytes(const struct chex_pipeline_config *c);

/* Wakes all threads that wait in chex_window_each(); they return an error. */
void chex_window_stop(struct chex_window *w);    /* NULL allowed */
void chex_window_destroy(struct chex_window *w); /* NULL allowed; no thread may be waiting */
CHEX_AUTO_POINTER(struct chex_window, chex_window_destroy)

/* Waits until the step's window is in memory and calls fn for each of n rows. Thread-safe.
 * - places[i]: position of row i in the step
 * - With `resident`, they must be those of the step that no earlier batch had.
 * - Call exactly once for each (epoch, step, rank): this releases the step's part of the window. */
enum chex_status chex_window_each(struct chex_window *w, uint64_t epoch, int rank, size_t step,
                                  const int *places, size_t n, chex_reader_fn fn, void *arg,
                                  struct chex_error *err);

#endif
