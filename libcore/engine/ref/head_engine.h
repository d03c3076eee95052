/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine `head`: trains only the classifier of a network, on pooled features (--head-only).
 *
 * Its batches hold the pooled features of images (chex_batch.features) instead of pixels, so a step
 * costs two small products. They are those of the engine ref (ref_head.c): with the features of a
 * ref engine, logits, loss and gradient of the classifier are its bits. Everything is fp32 in host
 * memory, with sums in double, whatever engine and precision computed the features.
 *
 * State vectors are those of the whole network, so checkpoints and resumed runs need no special
 * case. Only the classifier's elements change; the moving average of the others must be equal to
 * them when it is set. Gradient vectors differ from other engines: they hold only the elements of
 * the classifier, so that the reduction sums no zeros. There are no batch statistics.
 */
#ifndef CHEX_ENGINE_REF_HEAD_ENGINE_H
#define CHEX_ENGINE_REF_HEAD_ENGINE_H

#include "engine/engine.h"

/* Values per image: channels of the classifier's input. */
int chex_head_features(const struct chex_net *net);

/* Elements of a gradient vector of this engine. */
size_t chex_head_gradients(const struct chex_net *net);

/* Creates the engine. Of config, precision, variant, device, image_size, lr_scales and sync have no
 * meaning here. CHEX_E_USAGE: a bad loss. The caller calls chex_engine_destroy. */
enum chex_status chex_head_engine_create(const struct chex_engine_config *config,
                                         struct chex_engine **engine_out, struct chex_error *err);

#endif
