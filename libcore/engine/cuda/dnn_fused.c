/* SPDX-License-Identifier: Apache-2.0
 *
 * Convolutions with stride 1 and the size kept (1x1, 3x3) by cuDNN's generated kernels, in 16-bit
 * types: nothing normalised is stored but where stated.
 *     forward        norm in front of the product, both sums behind it
 *     1x1 backward   two matrix products: dgrad with the taken gradient in front, mask, both sums
 *                    and in_g (+)= A dU behind; wgrad with both operands made on the way, in fp32
 *     3x3 backward   taken gradient and activated input are stored once: cuDNN's wgrad has no
 *                    prologue. dgrad is a forward convolution with transposed weights, with mask,
 *                    sums and in_g behind; dweight as in dnn_conv.c, rounded to 16 bits
 *
 * Numerics. a x + b is a product and a sum in cuDNN's code, which may or may not contract them:
 * where a x + b is within an fp32 rounding of 0, a mask may differ from that of the engine's own
 * kernels. cuDNN's ReLU may turn a NaN into 0; it still shows, as the statistics of its channel.
 * The sums are of rounded values, in fp32 throughout: the variance loses what (mean / sigma)^2
 * 2^-24 says and the number of partial sums adds.
 *
 * Fewer images than planned: forward runs over all and takes the statistics of the result's first
 * ones by norm.cu; backward goes by dnn_conv.c.
 *
 * in_g is read and written by one kernel, each element by one thread. The vectors that cuDNN adds
 * sums to are zeroed first.
 */
#include "engine/cuda/dnn_vectors.h"
#include "engine/cuda/dnn_way.h"

/* Scratch of one convolution: vectors of the input's channels, sums, and for a 3x3's backward the
 * two maps and dweight in 16 bits. */
struct scratch {
    float *a, *b, *sums;
    void *taken, *activated, *dweight, *cudnn;
};

static bool small(struct gpu_window window) { return window.kernel == 1; }

static size_t vector_bytes(int channels) { return (size_t)channels * sizeof(float); }

static size_t divide_forward(const struct dnn_state *s, const struct gpu_conv_forward *f,
                             void *base, struct scratch *out) {
    struct dnn_room room = {base, 0};
    *out = (struct scratch){0};
    if (f->norm.mean) {
        out->a = dnn_room_take(&room, vector_bytes(f->in.channels));
        out->b = dnn_room_take(&room, vector_bytes(f->in.channels));
    }
    if (s->sums)
        out->sums = dnn_room_take(&room, 2 * vector_bytes(f->out.channels));
    out->cudnn = dnn_room_take(&room, s->forward.workspace);
    return room.bytes;
}

static size_t divide_backward(const struct dnn_state *s, const struct gpu_conv_backward *b,
                              void *base, struct scratch *out) {
    struct dnn_room room = {base, 0};
    *out = (struct scratch){0};
    if (b->norm.mean) {
        out->a = dnn_room_take(&room, vector_bytes(b->in.channels));
        out->b = dnn_room_take(&room, vector_bytes(b->in.channels));
    }
    if (b->sums.partial)
        out->sums = dnn_room_take(&room, 2 * vector_bytes(b->in.channels));
    if (!small(b->window)) {
        if (b->out.bsum)
            out->taken = dnn_room_take(&room, dnn_packed_bytes(s, &b->out.g));
        if (b->norm.mean)
            out->activated = dnn_room_take(&room, dnn_packed_bytes(s, &b->in));
        out->dweight = dnn_room_take(&room, dnn_dweight_bytes(b));
    }
    const size_t cudnn =
        s->dgrad.workspace > s->wgrad.workspace ? s->dgrad.workspace : s->wgrad.workspace;
    out->cudnn = dnn_room_take(&room, cudnn);
    return room.bytes;
}

/* The convolution as its graphs see it: a 3x3 starts from the stored gradient. */
static struct gpu_conv_backward as_seen(const struct gpu_conv_backward *b, void *taken) {
    struct gpu_conv_backward seen = *b;
    if (!small(b->window) && b->out.bsum)
        seen.out = (struct gpu_taken){.g = dnn_packed(&b->out.g, taken)};
    return seen;
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
    const struct gpu_conv_backward seen = as_seen(b, NULL);
    const struct gpu_map x = activated_map(b, NULL);
    CHEX_TRY(dnn_check_map(&b->in, "input", err));
    CHEX_TRY(dnn_check_map(&b->out.g, "gradient", err));
    if (b->in_g.data) {
        dnn_graph_init(&g);
        dnn_fused_dgrad(&g, &seen);
        CHEX_TRY(dnn_make_plan(&g, "fused dgrad", s->target, b->in.type, &s->dgrad, err));
    }
    dnn_graph_init(&g);
    if (small(b->window))
        dnn_fused_wgrad(&g, &seen);
    else
        dnn_plain_wgrad(&g, &x, b->window, &seen.out.g);
    return dnn_make_plan(&g, "wgrad", s->target, b->in.type, &s->wgrad, err);
}

static enum chex_status prepare(const struct gpu_device *device, const struct gpu_conv_forward *f,
                                const struct gpu_conv_backward *b, void **state_out,
                                struct chex_error *err) {
    void *rest = NULL;
    if (b)
        CHEX_TRY(gpu_way_dnn.prepare(device, NULL, b, &rest, err));
    const enum chex_status status =
        dnn_state_prepare(device, f, b, prepare_forward, prepare_backward, state_out, err);
    if (status != CHEX_OK) {
        dnn_state_release(rest);
        return status;
    }
    ((struct dnn_state *)*state_out)->rest = rest;
    return CHEX_OK;
}

static size_t workspace(const struct gpu_device *device, const void *state,
                        const struct gpu_conv_forward *f, const struct gpu_conv_backward *b) {
    const struct dnn_state *s = state;
    struct scratch unused;
    if (f)
        return divide_forward(s, f, NULL, &unused);
    const size_t own = divide_backward(s, b, NULL, &unused);
    const size_t rest = gpu_way_dnn.workspace(device, s->rest, NULL, b);
    return own > rest ? own : rest;
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
    if (!s->sums || f->in.n < s->n) /* the sums are of more images */
        return gpu_stats_of(&f->out, &f->stats, stream);
    return gpu_dnn_stats(scratch.sums, channels, gpu_map_pixels(&f->out), &f->stats, stream);
}

/* The gradient as the graphs of `seen` read it. */
static void bind_taken(const struct gpu_taken *out, void *p[DNN_MAX_ROLES]) {
    p[DNN_G] = out->g.data;
    if (out->bsum) {
        p[DNN_GX] = out->x.data;
        p[DNN_BSUM] = (void *)out->bsum;
        p[DNN_CSUM] = (void *)out->csum;
    }
}

static cudaError_t by_data(const struct dnn_state *s, const struct gpu_conv_backward *seen,
                           const struct scratch *scratch, cudaStream_t stream) {
    const int channels = seen->in.channels;
    void *p[DNN_MAX_ROLES] = {NULL};
    bind_taken(&seen->out, p);
    p[DNN_WEIGHT] = (void *)(small(seen->window) ? seen->weight : seen->weight_t);
    p[DNN_IN_G] = seen->in_g.data;
    if (seen->add)
        p[DNN_IN_G_OLD] = seen->in_g.data;
    if (seen->norm.mean) {
        p[DNN_IN] = seen->in.data;
        p[DNN_A] = scratch->a;
        if (seen->norm.relu)
            p[DNN_B] = scratch->b;
    }
    if (seen->norm.mean && seen->sums.partial) {
        DNN_TRY(zero_sums(scratch, channels, stream));
        p[DNN_MEAN] = (void *)seen->norm.mean;
        p[DNN_SUM] = scratch->sums;
        p[DNN_SUM2] = scratch->sums + channels;
    }
    DNN_TRY(dnn_plan_run(&s->dgrad, p, scratch->cudnn, stream));
    if (!p[DNN_SUM])
        return cudaSuccess;
    return gpu_dnn_sums(scratch->sums, &seen->norm, channels, gpu_map_pixels(&seen->in),
                        &seen->sums, stream);
}

static cudaError_t by_weight_1x1(const struct dnn_state *s, const struct gpu_conv_backward *b,
                                 const struct scratch *scratch, cudaStream_t stream) {
    void *p[DNN_MAX_ROLES] = {NULL};
    if (!dnn_aligned(b->dweight))
        return cudaErrorInvalidValue;
    bind_taken(&b->out, p);
    p[DNN_IN] = b->in.data;
    p[DNN_DWEIGHT] = b->dweight;
    if (b->norm.mean) {
        p[DNN_A] = scratch->a;
        p[DNN_B] = scratch->b;
    }
    return dnn_plan_run(&s->wgrad, p, scratch->cudnn, stream);
}

static cudaError_t by_weight_3x3(const struct dnn_state *s, const struct gpu_conv_backward *seen,
                                 const struct scratch *scratch, cudaStream_t stream) {
    const struct gpu_map x = activated_map(seen, scratch->activated);
    if (seen->norm.mean)
        DNN_TRY(gpu_activate(&seen->in, &seen->norm, &x, stream));
    return dnn_run_wgrad(s, seen, &x, &seen->out.g, scratch->dweight, scratch->cudnn, stream);
}

static cudaError_t backward(const struct gpu_device *device, const void *state,
                            const struct gpu_conv_backward *b, void *base, cudaStream_t stream) {
    const struct dnn_state *s = state;
    struct scratch scratch;
    if (b->in.n != s->n)
        return gpu_way_dnn.backward(device, s->rest, b, base, stream);
    divide_backward(s, b, base, &scratch);
    const struct gpu_conv_backward seen = as_seen(b, scratch.taken);
    if (b->norm.mean)
        DNN_TRY(gpu_dnn_scale(&b->norm, b->in.channels, scratch.a, scratch.b, stream));
    if (scratch.taken)
        DNN_TRY(gpu_take(&b->out, &seen.out.g, stream));
    if (b->in_g.data)
        DNN_TRY(by_data(s, &seen, &scratch, stream));
    return small(b->window) ? by_weight_1x1(s, &seen, &scratch, stream)
                            : by_weight_3x3(s, &seen, &scratch, stream);
}

const struct gpu_way gpu_way_dnn_fused = {
    .name = "dnn-fused",
    .fits = fits,
    .prepare = prepare,
    .release = dnn_state_release,
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
};
