/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-train --bench-layers: the roofline of each operation, as keys of the result and as a table.
 */
#ifndef CHEX_CMD_TRAIN_LAYERS_H
#define CHEX_CMD_TRAIN_LAYERS_H

#include <jansson.h>

#include "train/bench_layers.h"

/* Adds the keys to `o`. If the engine does not time its operations, it only warns. CHEX_E_RESOURCE:
 * out of memory. */
enum chex_status train_layers_add(const struct chex_bench *bench,
                                  const struct chex_bench_result *result, json_t *o,
                                  struct chex_error *err);

/* Prints the table, if `o` has its keys. */
void train_layers_print(const json_t *o);

#endif
