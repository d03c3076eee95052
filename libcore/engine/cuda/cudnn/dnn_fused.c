/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_conv_algo_dnn_fused: 1x1 and 3x3 convolutions with stride 1 and unchanged size, by cuDNN's
 * generated kernels, in 16-bit types. Except in the 3x3 backward, no normalised map is stored.
 *   - Forward: norm before the product, both sums after it.
 *   - 1x1 backward: two matrix products. dgrad has the deferred gradient terms before the product;
 *     mask, both sums and in_g (+)= A dU after it. wgrad computes both operands on the fly; its
 *     result is fp32.
 *   - 3x3 backward: the completed gradient and the activated input are stored once, because cuDNN's
 *     wgrad has no prologue. dgrad is a forward convolution with transposed weights; mask, sums and
 *     in_g after it. dweight is rounded to 16 bits, as in dnn_conv.c.
 *
 * Numerics.
 *   - cuDNN may compute a x + b with or without contraction. If a x + b is within an fp32 rounding
 *     of 0, the mask may differ from that of chexnet's kernels.
 *   - cuDNN's ReLU may turn a NaN into 0. The NaN still appears in the statistics of its channel.
 *   - Sums are of rounded values, in fp32 throughout. The relative error of the variance is about
 *     (mean / sigma)^2 2^-24, and grows with the number of partial sums.
 *
 * Fewer images than planned. forward runs over all planned images; norm.cu computes the statistics
 * of the existing ones. backward uses dnn_conv.c.
 *
 * One kernel reads and writes in_g, each element by one thread. The vectors to which cuDNN adds
 * sums are set to zero first.
 */
#include "engine/cuda/cudnn/dnn_algo.h"
#include "engine/cuda/cudnn/dnn_vectors.h"

/* Scratch memory of one convolution: vectors of the input's channels, sums, and for the 3x3
 * backward two maps and dweight in 16 bits. */
struct scratch {
    float *a, *b, *sums;
    void *deferred_grad, *activated, *dweight, *cudnn;
};

static bool is_1x1(struct gpu_window window) { return window.kernel == 1; }

static size_t vector_bytes(int channels) { return (size_t)channels * sizeof(float); }

static size_t divide_forward(const struct dnn_state *s, const struct gpu_conv_forward *f,
                             void *base, struct scratch *out) {
    struct dnn_scratch arena = {base, 0};
    *out = (struct scratch){0};
    if (f->norm.mean) {
        out->a = dnn_scratch_take(&arena, vector_bytes(f->in.channels));
        out->b = dnn_scratch_take(&arena, vector_bytes(f->in.channels));
    }
    if (s->sums)
        out->sums = dnn_scratch_take(&arena, 2 * vector_bytes(f->out.channels));
    out->cudnn = dnn_scratch_take(&arena, s->forward.workspace);
    return arena.bytes;
}

static size_t divide_backward(const struct dnn_state *s, const struct gpu_conv_backward *b,
                              void *base, struct scratch *out) {
    struct dnn_scratch arena = {base, 0};
    *out = (struct scratch){0};
    if (b->norm.mean) {
        out->a = dnn_scratch_take(&arena, vector_bytes(b->in.channels));
        out->b = dnn_scratch_take(&arena, vector_bytes(b->in.channels));
    }
    if (b->sums.partial)
        out->sums = dnn_scratch_take(&arena, 2 * vector_bytes(b->in.channels));
    if (!is_1x1(b->window)) {
        if (b->out.bsum)
            out->deferred_grad = dnn_scratch_take(&arena, dnn_packed_bytes(s, &b->out.g));
        if (b->norm.mean)
            out->activated = dnn_scratch_take(&arena, dnn_packed_bytes(s, &b->in));
        out->dweight = dnn_scratch_take(&arena, dnn_dweight_bytes(b));
    }
    const size_t cudnn =
        s->dgrad.workspace > s->wgrad.workspace ? s->dgrad.workspace : s->wgrad.workspace;
    out->cudnn = dnn_scratch_take(&arena, cudnn);
    return arena.bytes;
}

/* The arguments that the graphs use: a 3x3 backward reads the stored, completed gradient. */
static struct gpu_conv_backward graph_args_of(const struct gpu_conv_backward *b,
                                              void *deferred_grad) {
    struct gpu_conv_backward graph_args = *b;
    if (!is_1x1(b->window) && b->out.bsum)
        graph_args.out = (struct gpu_deferred_grad){.g = dnn_packed(&b->out.g, deferred_grad)};
    return graph_args;
}

static struct gpu_map activated_map(const struct gpu_conv_backward *b, void *packed) {
    return b->norm.mean ? dnn_packed(&b->in, packed) : b->in;
}

/* ---- preparation ---- */

static bool fits(const struct gpu_device *device, const struct gpu_conv_forward *f,
                 const struct gpu_conv_backward *b) {
    const struct gpu_map *in = f ? &f->in : &b->in, *out = f ? &f->out : &b->out.g;
    return in->type != GPU_F32 && device->capability >= 80 &&
           dnn_fusible(f ? f->window : b->window) && in->channels % 8 == 0 &&
           out->channels % 8 == 0;
}

static enum chex_status prepare_forward(struct dnn_state *s, const struct gpu_conv_forward *f,
                                        struct chex_error *err) {
    struct dnn_graph g;
    CHEX_TRY(dnn_check_map(&f->in, "input", err));
    CHEX_TRY(dnn_check_map(&f->out, "output", err));
    s->sums = f->stats.partial;
    dnn_graph_init(&g);
    dnn_fused_forward(&g, f);
    return dnn_make_plan(&g, "fused forward", s->target, f->in.type, &s->forward, err);
}

static enum chex_status prepare_backward(struct dnn_state *s, const struct gpu_conv_backward *b,
                                         struct chex_error *err) {
    struct dnn_graph g;
    const struct gpu_conv_backward graph_args = graph_args_of(b, NULL);
    const struct gpu_map x = activated_map(b, NULL);
    CHEX_TRY(dnn_check_map(&b->in, "input", err));
    CHEX_TRY(dnn_check_map(&b->out.g, "gradient", err));
    if (b->in_g.data) {
        dnn_graph_init(&g);
        dnn_fused_dgrad(&g, &graph_args);
        CHEX_TRY(dnn_make_plan(&g, "fused dgrad", s->target, b->in.type, &s->dgrad, err));
    }
    dnn_graph_init(&g);
    if (is_1x1(b->window))
        dnn_fused_wgrad(&g, &graph_args);
    else
        dnn_plain_wgrad(&g, &x, b->window, &graph_args.out.g);
    return dnn_make_plan(&g, "wgrad", s->target, b->in.type, &s->wgrad, err);
}

static enum chex_status prepare(const struct gpu_device *device, const struct gpu_conv_forward *f,
                                const struct gpu_conv_backward *b, void **state_out,
                                struct chex_error *err) {
    void *fallback = NULL;
    if (b)
        CHEX_TRY(gpu_conv_algo_dnn.prepare(device, NULL, b, &fallback, err));
    const enum chex_status status =
        dnn_state_prepare(device, f, b, prepare_forward, prepare_backward, state_out, err);
    if (status != CHEX_OK) {
        dnn_state_release(fallback);
        return status;
    }
    ((struct dnn_state *)*state_out)->fallback = fallback;
    return CHEX_OK;
}

static size_t workspace(const struct gpu_device *device, const void *state,
                        const struct gpu_conv_forward *f, const struct gpu_conv_backward *b) {
    const struct dnn_state *s = state;
    struct scratch unused;
    if (f)
        return divide_forward(s, f, NULL, &unused);
    const size_t own = divide_backward(s, b, NULL, &unused);
    const size_t fallback = gpu_conv_algo_dnn.workspace(device, s->fallback, NULL, b);
    return own > fallback ? own : fallback;
}

/* ---- running ---- */

static cudaError_t zero_sums(const struct scratch *scratch, int channels, cudaStream_t stream) {
    return cudaMemsetAsync(scratch->sums, 0, 2 * vector_bytes(channels), stream);
}

static cudaError_t forward(const struct gpu_device *device, const void *state,
                           const struct gpu_conv_forward *f, void *base, cudaStream_t stream) {
    const struct dnn_state *s = state;
    const int channels = f->out.channels;
    struct scratch scratch;
    void *p[DNN_MAX_ROLES] = {NULL};
    (void)device;
    if (f->in.n > s->n)
        return cudaErrorInvalidValue;
    divide_forward(s, f, base, &scratch);
    p[DNN_IN] = f->in.data;
    p[DNN_WEIGHT] = (void *)f->weight;
    p[DNN_OUT] = f->out.data;
    if (f->norm.mean) {
        DNN_TRY(gpu_dnn_scale(&f->norm, f->in.channels, scratch.a, scratch.b, stream));
        p[DNN_A] = scratch.a;
        p[DNN_B] = scratch.b;
    }
    if (s->sums) {
        DNN_TRY(zero_sums(&scratch, channels, stream));
        p[DNN_SUM] = scratch.sums;
        p[DNN_SUM2] = scratch.sums + channels;
    }
    DNN_TRY(dnn_plan_run(&s->forward, p, scratch.cudnn, stream));
    if (!f->stats.partial)
        return cudaSuccess;
    if (!s->sums || f->in.n < s->n) /* cuDNN's sums include images past the last */
        return gpu_stats_of(&f->out, &f->stats, stream);
    return gpu_dnn_stats(scratch.sums, channels, gpu_map_pixels(&f->out), &f->stats, stream);
}

/* Sets the pointers of the output's gradient. */
static void bind_deferred_grad(const struct gpu_deferred_grad *out, void *p[DNN_MAX_ROLES]) {
    p[DNN_G] = out->g.data;
    if (out->bsum) {
        p[DNN_GX] = out->x.data;
        p[DNN_BSUM] = (void *)out->bsum;
        p[DNN_CSUM] = (void *)out->csum;
    }
}

static cudaError_t run_dgrad(const struct dnn_state *s, const struct gpu_conv_backward *graph_args,
                             const struct scratch *scratch, cudaStream_t stream) {
    const int channels = graph_args->in.channels;
    void *p[DNN_MAX_ROLES] = {NULL};
    bind_deferred_grad(&graph_args->out, p);
    p[DNN_WEIGHT] =
        (void *)(is_1x1(graph_args->window) ? graph_args->weight : graph_args->weight_t);
    p[DNN_IN_G] = graph_args->in_g.data;
    if (graph_args->add)
        p[DNN_IN_G_OLD] = graph_args->in_g.data;
    if (graph_args->norm.mean) {
        p[DNN_IN] = graph_args->in.data;
        p[DNN_A] = scratch->a;
        if (graph_args->norm.relu)
            p[DNN_B] = scratch->b;
    }
    if (graph_args->norm.mean && graph_args->sums.partial) {
        DNN_TRY(zero_sums(scratch, channels, stream));
        p[DNN_MEAN] = (void *)graph_args->norm.mean;
        p[DNN_SUM] = scratch->sums;
        p[DNN_SUM2] = scratch->sums + channels;
    }
    DNN_TRY(dnn_plan_run(&s->dgrad, p, scratch->cudnn, stream));
    if (!p[DNN_SUM])
        return cudaSuccess;
    return gpu_dnn_sums(scratch->sums, &graph_args->norm, channels, gpu_map_pixels(&graph_args->in),
                        &graph_args->sums, stream);
}

static cudaError_t run_wgrad_1x1(const struct dnn_state *s, const struct gpu_conv_backward *b,
                                 const struct scratch *scratch, cudaStream_t stream) {
    void *p[DNN_MAX_ROLES] = {NULL};
    if (!dnn_aligned(b->dweight))
        return cudaErrorInvalidValue;
    bind_deferred_grad(&b->out, p);
    p[DNN_IN] = b->in.data;
    p[DNN_DWEIGHT] = b->dweight;
    if (b->norm.mean) {
        p[DNN_A] = scratch->a;
        p[DNN_B] = scratch->b;
    }
    return dnn_plan_run(&s->wgrad, p, scratch->cudnn, stream);
}

static cudaError_t run_wgrad_3x3(const struct dnn_state *s,
                                 const struct gpu_conv_backward *graph_args,
                                 const struct scratch *scratch, cudaStream_t stream) {
    const struct gpu_map x = activated_map(graph_args, scratch->activated);
    if (graph_args->norm.mean)
        DNN_TRY(gpu_activate(&graph_args->in, &graph_args->norm, &x, stream));
    return dnn_run_wgrad(s, graph_args, &x, &graph_args->out.g, scratch->dweight, scratch->cudnn,
                         stream);
}

static cudaError_t backward(const struct gpu_device *device, const void *state,
                            const struct gpu_conv_backward *b, void *base, cudaStream_t stream) {
    const struct dnn_state *s = state;
    struct scratch scratch;
    if (b->in.n != s->n)
        return gpu_conv_algo_dnn.backward(device, s->fallback, b, base, stream);
    divide_backward(s, b, base, &scratch);
    const struct gpu_conv_backward graph_args = graph_args_of(b, scratch.deferred_grad);
    if (b->norm.mean)
        DNN_TRY(gpu_dnn_scale(&b->norm, b->in.channels, scratch.a, scratch.b, stream));
    if (scratch.deferred_grad)
        DNN_TRY(gpu_finish_grad(&b->out, &graph_args.out.g, stream));
    if (b->in_g.data)
        DNN_TRY(run_dgrad(s, &graph_args, &scratch, stream));
    return is_1x1(b->window) ? run_wgrad_1x1(s, &graph_args, &scratch, stream)
                             : run_wgrad_3x3(s, &graph_args, &scratch, stream);
}

const struct gpu_conv_algo gpu_conv_algo_dnn_fused = {
    .name = "dnn-fused",
    .fits = fits,
    .prepare = prepare,
    .release = dnn_state_release,
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
