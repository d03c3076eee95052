/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_conv_algo_dnn: cuDNN's plain convolutions on slices, with the kernels of norm.cu around them.
 *     forward   activated = norm(in); out = activated * w; statistics of out
 *     backward  og = g + bsum x + csum; dv = dgrad(og, w); in_g (+)= masked and scaled dv;
 *               dweight = wgrad(norm(in), og)
 *
 * activated, og and dv are rounded to the map's type and packed in scratch memory. Without a norm,
 * or with nothing to add, cuDNN works on the slice itself.
 *
 * Weight gradients. cuDNN's convolutions write them in the maps' type. For 1x1 convolutions with
 * stride 1 they are matrix products, which can write fp32. For the others each element of a 16-bit
 * dweight is rounded once from an fp32 sum, to 8 (bf16) or 11 (fp16) bits. The relative error is
 * 2^-9 (2^-12), the same as with PyTorch's autocast, and far below the error of 16-bit maps. An
 * element outside fp16's range becomes infinite; the loss scale handles this.
 *
 * Slices. If a map has gaps between pixels, cuDNN's precompiled engines pack it, or unpack the
 * result, in their workspace. This costs two more passes over the slice and shows in the workspace
 * size. Here this happens only for the output of a dense layer's 3x3 convolution (32 channels). The
 * generated kernels of dnn_fused.c work in place.
 *
 * fp32 uses only engines without tensor cores: no TF32.
 */
#include "engine/cuda/cudnn/dnn_algo.h"

/* Scratch memory of one convolution. map: the activated input or dv; they are not used at the same
 * time. */
struct scratch {
    void *deferred_grad, *map, *dweight, *cudnn;
};

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* Whether dgrad can write in_g directly. */
static bool direct(const struct gpu_conv_backward *b) { return !b->norm.mean && !b->add; }

static size_t divide_forward(const struct dnn_state *s, const struct gpu_conv_forward *f,
                             void *base, struct scratch *out) {
    struct dnn_scratch arena = {base, 0};
    *out = (struct scratch){0};
    if (f->norm.mean)
        out->map = dnn_scratch_take(&arena, dnn_packed_bytes(s, &f->in));
    out->cudnn = dnn_scratch_take(&arena, s->forward.workspace);
    return arena.bytes;
}

static size_t divide_backward(const struct dnn_state *s, const struct gpu_conv_backward *b,
                              void *base, struct scratch *out) {
    struct dnn_scratch arena = {base, 0};
    *out = (struct scratch){0};
    if (b->out.bsum)
        out->deferred_grad = dnn_scratch_take(&arena, dnn_packed_bytes(s, &b->out.g));
    if (b->norm.mean || (b->in_g.data && b->add))
        out->map = dnn_scratch_take(&arena, dnn_packed_bytes(s, &b->in));
    if (!s->wide)
        out->dweight = dnn_scratch_take(&arena, dnn_dweight_bytes(b));
    out->cudnn = dnn_scratch_take(&arena, larger(s->dgrad.workspace, s->wgrad.workspace));
    return arena.bytes;
}

/* ---- the maps that cuDNN reads and writes ---- */

static struct gpu_map read_map(const struct gpu_map *in, const struct gpu_norm *norm,
                               void *packed) {
    return norm->mean ? dnn_packed(in, packed) : *in;
}
static struct gpu_map deferred_grad_map(const struct gpu_conv_backward *b, void *packed) {
    return b->out.bsum ? dnn_packed(&b->out.g, packed) : b->out.g;
}
static struct gpu_map dv_map(const struct gpu_conv_backward *b, void *packed) {
    return direct(b) ? b->in_g : dnn_packed(&b->in_g, packed);
}

/* ---- preparation ---- */

static bool fits(const struct gpu_device *device, const struct gpu_conv_forward *f,
                 const struct gpu_conv_backward *b) {
    const struct gpu_map *in = f ? &f->in : &b->in;
    const int out_channels = f ? f->out.channels : b->out.g.channels;
    return dnn_takes_type(device, in->type) && in->channels % 4 == 0 && out_channels % 8 == 0 &&
           (in->type == GPU_F32 || in->channels % 8 == 0);
}

static enum chex_status prepare_forward(struct dnn_state *s, const struct gpu_conv_forward *f,
                                        struct chex_error *err) {
    struct dnn_graph g;
    const struct gpu_map x = read_map(&f->in, &f->norm, NULL);
    CHEX_TRY(dnn_check_map(&x, "input", err));
    CHEX_TRY(dnn_check_map(&f->out, "output", err));
    dnn_graph_init(&g);
    dnn_plain_forward(&g, &x, f->window, &f->out);
    return dnn_make_plan(&g, "forward", s->target, x.type, &s->forward, err);
}

static enum chex_status prepare_wgrad(struct dnn_state *s, const struct gpu_conv_backward *b,
                                      struct chex_error *err) {
    struct dnn_graph g;
    const struct gpu_map x = read_map(&b->in, &b->norm, NULL), og = deferred_grad_map(b, NULL);
    const bool product =
        b->window.kernel == 1 && b->window.stride == 1 && b->window.pad == 0 && x.type != GPU_F32;
    s->wide = true;
    if (product) {
        const struct gpu_conv_backward plain = {
            .out = {.g = og}, .in = x, .window = b->window, .dweight = b->dweight};
        dnn_graph_init(&g);
        dnn_fused_wgrad(&g, &plain);
        if (dnn_make_plan(&g, "wgrad", s->target, x.type, &s->wgrad, NULL) == CHEX_OK)
            return CHEX_OK;
    }
    s->wide = x.type == GPU_F32;
    dnn_graph_init(&g);
    dnn_plain_wgrad(&g, &x, b->window, &og);
    return dnn_make_plan(&g, "wgrad", s->target, x.type, &s->wgrad, err);
}

static enum chex_status prepare_backward(struct dnn_state *s, const struct gpu_conv_backward *b,
                                         struct chex_error *err) {
    struct dnn_graph g;
    const struct gpu_map og = deferred_grad_map(b, NULL), dv = dv_map(b, NULL);
    CHEX_TRY(dnn_check_map(&b->in, "input", err));
    CHEX_TRY(dnn_check_map(&og, "gradient", err));
    if (b->in_g.data) {
        dnn_graph_init(&g);
        dnn_plain_dgrad(&g, &dv, b->window, &og);
        CHEX_TRY(dnn_make_plan(&g, "dgrad", s->target, dv.type, &s->dgrad, err));
    }
    return prepare_wgrad(s, b, err);
}

static enum chex_status prepare(const struct gpu_device *device, const struct gpu_conv_forward *f,
                                const struct gpu_conv_backward *b, void **state_out,
                                struct chex_error *err) {
    return dnn_state_prepare(device, f, b, prepare_forward, prepare_backward, state_out, err);
}

static size_t workspace(const struct gpu_device *device, const void *state,
                        const struct gpu_conv_forward *f, const struct gpu_conv_backward *b) {
    struct scratch unused;
    (void)device;
    return f ? divide_forward(state, f, NULL, &unused) : divide_backward(state, b, NULL, &unused);
}

/* ---- running ---- */

static cudaError_t forward(const struct gpu_device *device, const void *state,
                           const struct gpu_conv_forward *f, void *base, cudaStream_t stream) {
    const struct dnn_state *s = state;
    struct scratch scratch;
    void *p[DNN_MAX_ROLES] = {NULL};
    (void)device;
    if (f->in.n > s->n)
        return cudaErrorInvalidValue;
    divide_forward(s, f, base, &scratch);
    const struct gpu_map x = read_map(&f->in, &f->norm, scratch.map);
    if (f->norm.mean)
        DNN_TRY(gpu_activate(&f->in, &f->norm, &x, stream));
    p[DNN_IN] = x.data;
    p[DNN_WEIGHT] = (void *)f->weight;
    p[DNN_OUT] = f->out.data;
    DNN_TRY(dnn_plan_run(&s->forward, p, scratch.cudnn, stream));
    return f->stats.partial ? gpu_stats_of(&f->out, &f->stats, stream) : cudaSuccess;
}

static cudaError_t run_dgrad(const struct dnn_state *s, const struct gpu_conv_backward *b,
                             const struct scratch *scratch, const struct gpu_map *og,
                             cudaStream_t stream) {
    void *p[DNN_MAX_ROLES] = {NULL};
    const struct gpu_map dv = dv_map(b, scratch->map);
    p[DNN_G] = og->data;
    p[DNN_WEIGHT] = (void *)b->weight;
    p[DNN_IN_G] = dv.data;
    DNN_TRY(dnn_plan_run(&s->dgrad, p, scratch->cudnn, stream));
    if (direct(b))
        return cudaSuccess;
    return gpu_mask(&dv, &b->in, &b->norm, &b->in_g, b->add, &b->sums, stream);
}

static cudaError_t backward(const struct gpu_device *device, const void *state,
                            const struct gpu_conv_backward *b, void *base, cudaStream_t stream) {
    const struct dnn_state *s = state;
    struct scratch scratch;
    (void)device;
    if (b->in.n > s->n)
        return cudaErrorInvalidValue;
    divide_backward(s, b, base, &scratch);
    const struct gpu_map og = deferred_grad_map(b, scratch.deferred_grad);
    if (b->out.bsum)
        DNN_TRY(gpu_finish_grad(&b->out, &og, stream));
    if (b->in_g.data)
        DNN_TRY(run_dgrad(s, b, &scratch, &og, stream));
    const struct gpu_map x = read_map(&b->in, &b->norm, scratch.map);
    if (b->norm.mean)
        DNN_TRY(gpu_activate(&b->in, &b->norm, &x, stream));
    return dnn_run_wgrad(s, b, &x, &og, scratch.dweight, scratch.cudnn, stream);
}

const struct gpu_conv_algo gpu_conv_algo_dnn = {
    .name = "dnn",
    .fits = fits,
    .prepare = prepare,
    .release = dnn_state_release,
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
