/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes scalars as TensorBoard event files: TFRecord framing with masked CRC-32C around Event
 * protocol buffers.
 */
#ifndef CHEX_TRAIN_STORE_TFEVENTS_H
#define CHEX_TRAIN_STORE_TFEVENTS_H

#include <stdint.h>

#include "base/error.h"

struct chex_tfevents;

/* Creates DIR/events.out.tfevents.SECONDS.HOST; never overwrites a file. TensorBoard then ignores
 * what the files of earlier starts say about `first_step` and later steps. */
enum chex_status chex_tfevents_create(const char *dir, const char *host, int64_t first_step,
                                      struct chex_tfevents **out, struct chex_error *err);

/* Appends one scalar and flushes it. */
enum chex_status chex_tfevents_scalar(struct chex_tfevents *t, const char *tag, int64_t step,
                                      double value, struct chex_error *err);
void chex_tfevents_close(struct chex_tfevents *t); /* NULL allowed */

#endif
