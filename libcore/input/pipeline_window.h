/* SPDX-License-Identifier: Apache-2.0
 *
 * Reading ahead by windows (--shuffle-block): one thread reads all rows of some steps of a logical
 * rank in the order of the disk, while the workers make batches of the windows before.
 */
#ifndef CHEX_INPUT_PIPELINE_WINDOW_H
#define CHEX_INPUT_PIPELINE_WINDOW_H

#include "input/pipeline.h"
#include "input/reader.h"

struct chex_window;

/* The rows of `steps` steps of a logical rank (counted from rank_from). Called by the reading
 * thread, which holds no lock. */
typedef void (*chex_window_rows_fn)(void *arg, uint64_t epoch, int rank, size_t step, size_t steps,
                                    size_t *rows_out);

/* Starts to read at the configuration's epoch and step. All is borrowed. */
enum chex_status chex_window_create(const struct chex_pipeline_config *c,
                                    struct chex_reader *reader, chex_window_rows_fn rows, void *arg,
                                    struct chex_window **window_out, struct chex_error *err);

/* Bytes of the rows that it holds at a time. */
uint64_t chex_window_bytes(const struct chex_pipeline_config *c);

/* Lets go of whoever waits in chex_window_each. */
void chex_window_stop(struct chex_window *w);    /* NULL allowed */
void chex_window_destroy(struct chex_window *w); /* NULL allowed; nobody may wait */

/* Waits until the step's window is in memory and calls fn for each of rows[0..n), which are those
 * at `places` of the step; where rows are held, those that no window before had. Each (epoch, step,
 * rank) exactly once. Thread-safe. */
enum chex_status chex_window_each(struct chex_window *w, uint64_t epoch, int rank, size_t step,
                                  const int *places, const size_t *rows, size_t n,
                                  chex_reader_fn fn, void *arg, struct chex_error *err);

#endif
