/* SPDX-License-Identifier: Apache-2.0
 *
 * chex-train --prove: prints the object of train/prove.h as text.
 */
#ifndef CHEX_CMD_TRAIN_PROVE_H
#define CHEX_CMD_TRAIN_PROVE_H

#include <jansson.h>

void train_prove_print(const json_t *proof);

#endif
