/* SPDX-License-Identifier: Apache-2.0
 *
 * The cuDNN graphs of a convolution: plain ones, and fused ones with batch norm before the product
 * and sums after it. Pointers in the arguments are only compared with NULL.
 */
#ifndef CHEX_ENGINE_CUDA_CUDNN_DNN_GRAPHS_H
#define CHEX_ENGINE_CUDA_CUDNN_DNN_GRAPHS_H

#include "engine/cuda/cudnn/dnn_graph.h"

/* Roles of the pointers of dnn_plan_run. Vectors are fp32, one value per channel. */
enum dnn_role {
    DNN_IN = 1, /* x: input map of the convolution */
    DNN_A,      /* batch norm of x: y = a x + b */
    DNN_B,
    DNN_MEAN, /* of x */
    DNN_WEIGHT,
    DNN_OUT,  /* output map */
    DNN_SUM,  /* sum over the pixels of out (backward: of the masked gradient) */
    DNN_SUM2, /* sum of squares (backward: of masked gradient times x - mean) */
    DNN_G,    /* gradient map of out */
    DNN_GX,   /* out: x of the deferred gradient g + bsum x + csum */
    DNN_BSUM,
    DNN_CSUM,
    DNN_IN_G,     /* gradient map of in, written */
    DNN_IN_G_OLD, /* the same map, read */
    DNN_DWEIGHT,
};

/* out = x * w. */
void dnn_plain_forward(struct dnn_graph *g, const struct gpu_map *x, struct gpu_window window,
                       const struct gpu_map *out);
/* in_g = data gradient; og: gradient of out. */
void dnn_plain_dgrad(struct dnn_graph *g, const struct gpu_map *in_g, struct gpu_window window,
                     const struct gpu_map *og);
/* dweight in x's type, the only one that cuDNN offers for convolutions. */
void dnn_plain_wgrad(struct dnn_graph *g, const struct gpu_map *x, struct gpu_window window,
                     const struct gpu_map *og);

/* Whether the graphs below can be built at all: kernel 1 or 3, stride 1, same size. */
bool dnn_fusible(struct gpu_window window);

/* Reads in, weight, and with a norm A, B. Writes out, and with statistics sum, sum2. A 1x1
 * convolution is a matrix product over pixels. */
void dnn_fused_forward(struct dnn_graph *g, const struct gpu_conv_forward *f);
/* Reads G; gx, bsum, csum if bsum is not NULL; weight (3x3: weight_t); with a norm in, A, B, mean;
 * with `add` in_g_old. Writes in_g, and sum, sum2 if sums are wanted. The 3x3 data gradient is a
 * forward convolution with transposed weights, because cuDNN's dgrad supports no epilogue on a
 * slice. */
void dnn_fused_dgrad(struct dnn_graph *g, const struct gpu_conv_backward *b);
/* 1x1 only. Reads G (gx, bsum, csum) and in (A, B). Writes dweight in fp32. */
void dnn_fused_wgrad(struct dnn_graph *g, const struct gpu_conv_backward *b);

#endif
