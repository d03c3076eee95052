/* SPDX-License-Identifier: Apache-2.0
 *
 * What chex-train --bench-layers prints of a measured step, as a table and as JSON.
 */
#ifndef CHEX_CMD_TRAIN_LAYERS_H
#define CHEX_CMD_TRAIN_LAYERS_H

#include <jansson.h>

#include "train/bench_layers.h"

/* Adds the keys to `o`, or with NULL prints the table. An engine that measures no operations makes
 * a warning, and neither. */
enum chex_status train_layers_print(const struct chex_bench *bench,
                                    const struct chex_bench_result *result, json_t *o,
                                    struct chex_error *err);

#endif
