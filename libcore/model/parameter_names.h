/* SPDX-License-Identifier: Apache-2.0
 *
 * How other programs name the parameters of our networks. All name mapping is in one table.
 */
#ifndef CHEX_MODEL_PARAMETER_NAMES_H
#define CHEX_MODEL_PARAMETER_NAMES_H

#include <stdbool.h>
#include <stddef.h>

/* Writes torchvision's present name for a name in a file, for example
 * "features.denseblock1.denselayer2.norm1.weight" for
 * "module.densenet121.features.denseblock1.denselayer2.norm.1.weight". A name that the table does
 * not know is copied. False: the result is longer than size - 1, so it is not one of ours. */
bool chex_parameter_name(const char *name, char *out, size_t size);

/* Whether a tensor of this name is expected in a file but is no parameter: counters of batches,
 * thresholds of torchxrayvision, the statistics that chexnet adds. */
bool chex_parameter_is_extra(const char *name);

#endif
