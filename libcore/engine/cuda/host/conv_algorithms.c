/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of the convolution algorithms that are compiled in. cuda_buffers.c looks them up by
 * name and has the order in which a stage tries them.
 */
#include "engine/cuda/host/gpu.h"

const struct gpu_conv_algo *const gpu_conv_algos[] = {
    &gpu_conv_algo_1x1_sm90, &gpu_conv_algo_1x1_backward_sm90,
    &gpu_conv_algo_3x3_sm90, &gpu_conv_algo_1x1,
    &gpu_conv_algo_3x3,
#if defined CHEXNET_HAVE_CUDNN && CHEXNET_HAVE_CUDNN
    &gpu_conv_algo_dnn,
#endif
    &gpu_conv_algo_plain,    NULL,
};
