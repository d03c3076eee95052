/* SPDX-License-Identifier: Apache-2.0
 *
 * The ways to convolve that are compiled in, from the special to the one that takes everything.
 */
#include "engine/cuda/gpu.h"

const struct gpu_way *const gpu_ways[] = {
    &gpu_way_1x1,       &gpu_way_3x3,
#if defined CHEXNET_HAVE_CUDNN && CHEXNET_HAVE_CUDNN
    &gpu_way_dnn_fused, &gpu_way_dnn,
#endif
    &gpu_way_plain,     NULL,
};
