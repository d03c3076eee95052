/* SPDX-License-Identifier: Apache-2.0
 *
 * The head: global average pooling and the linear layer. A work item is one image; for the
 * parameter gradients, which sum over images, it is one class.
 */
#include "engine/ref/ref_ops.h"

struct head_loop {
    const struct chex_ref_map *x;
    const float *weight, *bias, *dlogits, *pooled_in;
    int classes;
    float *pooled, *logits, *dweight, *dbias;
};

static void forward_image(void *arg, size_t image, int worker) {
    (void)worker;
    const struct head_loop *l = arg;
    size_t pixels = (size_t)l->x->h * (size_t)l->x->w, channels = (size_t)l->x->c;
    const float *x = chex_ref_at(l->x, (int)image, 0, 0);
    float *pooled = l->pooled + image * channels;
    for (size_t c = 0; c < channels; c++) {
        double sum = 0;
        for (size_t p = 0; p < pixels; p++)
            sum += (double)x[p * (size_t)l->x->pitch + c];
        pooled[c] = (float)(sum / (double)pixels);
    }
    for (size_t k = 0; k < (size_t)l->classes; k++) {
        double sum = (double)l->bias[k];
        for (size_t c = 0; c < channels; c++)
            sum += (double)pooled[c] * (double)l->weight[k * channels + c];
        l->logits[image * (size_t)l->classes + k] = (float)sum;
    }
}

void chex_ref_head_forward(const struct chex_ref_ctx *ctx, const struct chex_ref_map *x,
                           const float *weight, const float *bias, int classes, float *pooled,
                           float *logits) {
    struct head_loop l = {.x = x,
                          .weight = weight,
                          .bias = bias,
                          .classes = classes,
                          .pooled = pooled,
                          .logits = logits};
    chex_ref_each(ctx, (size_t)x->n, forward_image, &l);
}

static void data_image(void *arg, size_t image, int worker) {
    (void)worker;
    const struct head_loop *l = arg;
    size_t pixels = (size_t)l->x->h * (size_t)l->x->w, channels = (size_t)l->x->c;
    float *dx = chex_ref_at(l->x, (int)image, 0, 0);
    for (size_t c = 0; c < channels; c++) {
        double sum = 0;
        for (size_t k = 0; k < (size_t)l->classes; k++)
            sum += (double)l->dlogits[image * (size_t)l->classes + k] *
                   (double)l->weight[k * channels + c];
        for (size_t p = 0; p < pixels; p++)
            dx[p * (size_t)l->x->pitch + c] = (float)(sum / (double)pixels);
    }
}

static void weight_class(void *arg, size_t k, int worker) {
    (void)worker;
    const struct head_loop *l = arg;
    size_t images = (size_t)l->x->n, channels = (size_t)l->x->c, classes = (size_t)l->classes;
    double sum = 0;
    for (size_t i = 0; i < images; i++)
        sum += (double)l->dlogits[i * classes + k];
    l->dbias[k] = (float)sum;
    for (size_t c = 0; c < channels; c++) {
        sum = 0;
        for (size_t i = 0; i < images; i++)
            sum += (double)l->dlogits[i * classes + k] * (double)l->pooled_in[i * channels + c];
        l->dweight[k * channels + c] = (float)sum;
    }
}

void chex_ref_head_backward(const struct chex_ref_ctx *ctx, const float *pooled,
                            const float *dlogits, const float *weight, int classes, float *dweight,
                            float *dbias, const struct chex_ref_map *dx) {
    struct head_loop l = {.x = dx,
                          .weight = weight,
                          .dlogits = dlogits,
                          .pooled_in = pooled,
                          .classes = classes,
                          .dweight = dweight,
                          .dbias = dbias};
    chex_ref_each(ctx, (size_t)classes, weight_class, &l);
    if (dx->data)
        chex_ref_each(ctx, (size_t)dx->n, data_image, &l);
}
