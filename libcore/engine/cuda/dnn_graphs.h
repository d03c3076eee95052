/* SPDX-License-Identifier: Apache-2.0
 *
 * The graphs of a convolution: plain ones, and those with batch norm in front of the product and
 * sums behind it. Pointers of the arguments mean nothing here except NULL or not NULL.
 */
#ifndef CHEX_ENGINE_CUDA_DNN_GRAPHS_H
#define CHEX_ENGINE_CUDA_DNN_GRAPHS_H

#include "engine/cuda/dnn_graph.h"

/* What a pointer given to dnn_plan_run is. Vectors are fp32, one value a channel. */
enum dnn_role {
    DNN_IN = 1, /* map that the convolution reads: x */
    DNN_A,      /* of x: y = a x + b */
    DNN_B,
    DNN_MEAN, /* of x */
    DNN_WEIGHT,
    DNN_OUT,  /* map that it writes */
    DNN_SUM,  /* over the pixels of out (backward: of the gradient behind the mask) */
    DNN_SUM2, /* of squares (backward: of gradient times x - mean) */
    DNN_G,    /* gradient map of out */
    DNN_GX,   /* out again, in the gradient's b x + c */
    DNN_BSUM,
    DNN_CSUM,
    DNN_IN_G,     /* gradient map of in, written */
    DNN_IN_G_OLD, /* and read */
    DNN_DWEIGHT,
};

/* out = x * w. */
void dnn_plain_forward(struct dnn_graph *g, const struct gpu_map *x, struct gpu_window window,
                       const struct gpu_map *out);
/* in_g = gradient by x, given the gradient `og` of out. */
void dnn_plain_dgrad(struct dnn_graph *g, const struct gpu_map *in_g, struct gpu_window window,
                     const struct gpu_map *og);
/* dweight in x's type: cuDNN offers no other for convolutions. */
void dnn_plain_wgrad(struct dnn_graph *g, const struct gpu_map *x, struct gpu_window window,
                     const struct gpu_map *og);

/* Whether the graphs below can be built at all: kernel 1 or 3, stride 1, same size. */
bool dnn_fusible(struct gpu_window window);

/* in, A, B (where there is a norm), weight -> out, sum, sum2 (where statistics are wanted). A 1x1
 * is a matrix product over pixels. */
void dnn_fused_forward(struct dnn_graph *g, const struct gpu_conv_forward *f);
/* G (gx, bsum, csum where bsum is not NULL), weight or for 3x3 weight_t; with a norm in, A, B,
 * mean -> in_g (from in_g_old where `add`), sum, sum2 (where sums are wanted). A 3x3's gradient is
 * the forward convolution with the transposed weights: the backward one takes no epilogue on a
 * slice. */
void dnn_fused_dgrad(struct dnn_graph *g, const struct gpu_conv_backward *b);
/* 1x1 only: G (gx, bsum, csum), in (A, B) -> dweight in fp32. */
void dnn_fused_wgrad(struct dnn_graph *g, const struct gpu_conv_backward *b);

#endif
