/* SPDX-License-Identifier: Apache-2.0
 *
 * Factors of the learning rate of each parameter tensor: --layer-decay and --freeze.
 */
#ifndef CHEX_TRAIN_LAYER_RATES_H
#define CHEX_TRAIN_LAYER_RATES_H

#include "model/net.h"

/* Fills *scales_out (param_total; the caller frees it), for chex_engine_config.lr_scales. NULL: all
 * factors are 1, as no parameter is frozen and the decay is 1.
 * - decay: the factor of a layer is decay^(layers between it and the head), as timm's
 *   param_groups_layer_decay. Layers: struct chex_param.
 * - freeze: patterns of parameter names (fnmatch), with commas between; NULL, "" or "none":
 *   nothing is frozen. The factor of a parameter that matches is 0.
 * - CHEX_E_USAGE: a pattern is empty or matches no trained parameter, or all are frozen. */
enum chex_status chex_layer_rates(const struct chex_net *net, double decay, const char *freeze,
                                  double **scales_out, struct chex_error *err);

/* One line for the log: how many parameters are frozen, and the smallest factor. */
void chex_layer_rates_text(const struct chex_net *net, const double *scales, char *text,
                           size_t size);

#endif
