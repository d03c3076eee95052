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
 * size. Here this happens only for the output of a dense layer's 3x3 convolution (32 channels).
 *
 * Fewer images than planned. A plan has one fixed shape: n images. With fewer images the plans
 * still run over n images. The maps have memory for n images, and the contents of the images past
 * the last one do not matter. wgrad sums over images, so there the extra images are set to zero.
 *
 * fp32 uses only engines without tensor cores: no TF32.
 */
#include <limits.h>
#include <stdlib.h>

#include "engine/cuda/cudnn/dnn_graph.h"
#include "engine/cuda/host/dependent.h"
#include "engine/cuda/host/device_cache.h"

enum { SCRATCH_ALIGNMENT = 256, STORE_ALIGNMENT = 16 /* of cuDNN's stores */ };

/* The prepared state of one convolution. */
struct state {
    const struct dnn_target *target; /* borrowed: dnn_target_drop releases it */
    struct dnn_plan forward, dgrad, wgrad;
    int n;
    bool wide; /* wgrad writes fp32 */
};

/* ---- scratch memory ---- */

/* Divides scratch memory into aligned blocks. base NULL: only counts the bytes. */
struct arena {
    char *base;
    size_t bytes;
};

static void *take(struct arena *arena, size_t bytes) {
    char *p = arena->base ? arena->base + arena->bytes : NULL;
    arena->bytes += (bytes + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
    return p;
}

/* The shape of m, packed (no gaps between pixels), at data. */
static struct gpu_map packed_map(const struct gpu_map *m, void *data) {
    struct gpu_map packed = *m;
    packed.data = data;
    packed.pitch = m->channels;
    return packed;
}

/* Bytes of packed m for the n images of the plans. */
static size_t packed_bytes(const struct state *s, const struct gpu_map *m) {
    return (size_t)s->n * (size_t)m->hw * (size_t)m->hw * (size_t)m->channels *
           gpu_type_bytes(m->type);
}

static size_t dweight_count(const struct gpu_conv_backward *b) {
    return (size_t)b->out.g.channels * (size_t)b->window.kernel * (size_t)b->window.kernel *
           (size_t)b->in.channels;
}

/* Scratch memory of one convolution. map: the activated input or dv; they are not used at the same
 * time. */
struct scratch {
    void *deferred_grad, *map, *dweight, *cudnn;
};

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* Whether dgrad can write in_g directly. */
static bool direct(const struct gpu_conv_backward *b) { return !b->norm.mean && !b->add; }

static size_t divide_forward(const struct state *s, const struct gpu_conv_forward *f, void *base,
                             struct scratch *out) {
    struct arena arena = {base, 0};
    *out = (struct scratch){0};
    if (f->norm.mean)
        out->map = take(&arena, packed_bytes(s, &f->in));
    out->cudnn = take(&arena, s->forward.workspace);
    return arena.bytes;
}

static size_t divide_backward(const struct state *s, const struct gpu_conv_backward *b, void *base,
                              struct scratch *out) {
    struct arena arena = {base, 0};
    *out = (struct scratch){0};
    if (b->out.bsum)
        out->deferred_grad = take(&arena, packed_bytes(s, &b->out.g));
    if (b->norm.mean || (b->in_g.data && b->add))
        out->map = take(&arena, packed_bytes(s, &b->in));
    if (!s->wide)
        out->dweight = take(&arena, dweight_count(b) * gpu_type_bytes(b->in.type));
    out->cudnn = take(&arena, larger(s->dgrad.workspace, s->wgrad.workspace));
    return arena.bytes;
}

/* ---- the maps that cuDNN reads and writes ---- */

static struct gpu_map read_map(const struct gpu_map *in, const struct gpu_norm *norm,
                               void *packed) {
    return norm->mean ? packed_map(in, packed) : *in;
}
static struct gpu_map deferred_grad_map(const struct gpu_conv_backward *b, void *packed) {
    return b->out.bsum ? packed_map(&b->out.g, packed) : b->out.g;
}
static struct gpu_map dv_map(const struct gpu_conv_backward *b, void *packed) {
    return direct(b) ? b->in_g : packed_map(&b->in_g, packed);
}

/* ---- preparation ---- */

static bool fits(const struct gpu_device *device, const struct gpu_conv_forward *f,
                 const struct gpu_conv_backward *b) {
    const struct gpu_map *in = f ? &f->in : &b->in;
    const int out_channels = f ? f->out.channels : b->out.g.channels;
    return device->capability >= (in->type == GPU_BF16 ? 80 : 70) && in->channels % 4 == 0 &&
           out_channels % 8 == 0 && (in->type == GPU_F32 || in->channels % 8 == 0);
}

/* cuDNN's kernels may use 32-bit indices. */
static enum chex_status check_map(const struct gpu_map *m, const char *what,
                                  struct chex_error *err) {
    const int64_t pixels = gpu_map_pixels(m);
    if (pixels <= INT_MAX / m->pitch)
        return CHEX_OK;
    return chex_error_set(
        err, CHEX_E_ENV,
        "%s of %lld pixels with pitch %lld: more than 2^31 - 1 elements, the limit of cuDNN", what,
        (long long)pixels, (long long)m->pitch);
}

/* Makes the graph's plan, with the plan cache in the user's folder, and releases the graph. what:
 * prefix of the error text, such as "dgrad". */
static enum chex_status make_plan(struct dnn_graph *g, const char *what,
                                  const struct dnn_target *target, enum gpu_type type,
                                  struct dnn_plan *plan_out, struct chex_error *err) {
    char *cache = gpu_cache_folder();
    struct chex_error why = {0};
    const enum chex_status status =
        dnn_graph_plan(g, target, type == GPU_F32, cache, plan_out, &why);
    free(cache);
    dnn_graph_release(g);
    return status == CHEX_OK ? CHEX_OK : chex_error_set(err, status, "%s: %s", what, why.text);
}

static enum chex_status prepare_forward(struct state *s, const struct gpu_conv_forward *f,
                                        struct chex_error *err) {
    struct dnn_graph g;
    const struct gpu_map x = read_map(&f->in, &f->norm, NULL);
    CHEX_TRY(check_map(&x, "input", err));
    CHEX_TRY(check_map(&f->out, "output", err));
    dnn_forward(&g, &x, f->window, &f->out);
    return make_plan(&g, "forward", s->target, x.type, &s->forward, err);
}

static enum chex_status prepare_wgrad(struct state *s, const struct gpu_conv_backward *b,
                                      struct chex_error *err) {
    struct dnn_graph g;
    const struct gpu_map x = read_map(&b->in, &b->norm, NULL), og = deferred_grad_map(b, NULL);
    const bool product =
        b->window.kernel == 1 && b->window.stride == 1 && b->window.pad == 0 && x.type != GPU_F32;
    s->wide = true;
    if (product) {
        dnn_wgrad_product(&g, &x, &og);
        if (make_plan(&g, "wgrad", s->target, x.type, &s->wgrad, NULL) == CHEX_OK)
            return CHEX_OK;
    }
    s->wide = x.type == GPU_F32;
    dnn_wgrad(&g, &x, b->window, &og);
    return make_plan(&g, "wgrad", s->target, x.type, &s->wgrad, err);
}

static enum chex_status prepare_backward(struct state *s, const struct gpu_conv_backward *b,
                                         struct chex_error *err) {
    struct dnn_graph g;
    const struct gpu_map og = deferred_grad_map(b, NULL), dv = dv_map(b, NULL);
    CHEX_TRY(check_map(&b->in, "input", err));
    CHEX_TRY(check_map(&og, "gradient", err));
    if (b->in_g.data) {
        dnn_dgrad(&g, &dv, b->window, &og);
        CHEX_TRY(make_plan(&g, "dgrad", s->target, dv.type, &s->dgrad, err));
    }
    return prepare_wgrad(s, b, err);
}

static void release(void *state) {
    struct state *s = state;
    if (!s)
        return;
    dnn_plan_release(&s->forward);
    dnn_plan_release(&s->dgrad);
    dnn_plan_release(&s->wgrad);
    dnn_target_drop(s->target);
    free(s);
}

static enum chex_status prepare(const struct gpu_device *device, const struct gpu_conv_forward *f,
                                const struct gpu_conv_backward *b, void **state_out,
                                struct chex_error *err) {
    struct state *s = calloc(1, sizeof *s);
    if (!s)
        return chex_error_memory(err, "cuDNN convolution");
    s->n = f ? f->in.n : b->in.n;
    enum chex_status status = dnn_target_borrow(device, &s->target, err);
    if (status == CHEX_OK) {
        status = f ? prepare_forward(s, f, err) : prepare_backward(s, b, err);
        dnn_target_settle(s->target);
    }
    if (status != CHEX_OK) {
        release(s);
        return status;
    }
    *state_out = s;
    return CHEX_OK;
}

static size_t workspace(const struct gpu_device *device, const void *state,
                        const struct gpu_conv_forward *f, const struct gpu_conv_backward *b) {
    struct scratch unused;
    (void)device;
    return f ? divide_forward(state, f, NULL, &unused) : divide_backward(state, b, NULL, &unused);
}

/* ---- running ---- */

static cudaError_t run_plan(const struct dnn_plan *plan, void *const pointers[DNN_MAX_ROLES],
                            void *workspace, cudaStream_t stream) {
    const cudaError_t e = dnn_plan_run(plan, pointers, workspace, stream);
    gpu_dependents_break(); /* cuDNN's last operation may be a memset */
    return e;
}

static cudaError_t forward(const struct gpu_device *device, const void *state,
                           const struct gpu_conv_forward *f, void *base, cudaStream_t stream) {
    const struct state *s = state;
    struct scratch scratch;
    void *p[DNN_MAX_ROLES] = {NULL};
    (void)device;
    if (f->in.n > s->n)
        return cudaErrorInvalidValue;
    divide_forward(s, f, base, &scratch);
    const struct gpu_map x = read_map(&f->in, &f->norm, scratch.map);
    if (f->norm.mean)
        CHEX_GPU_TRY(gpu_activate(&f->in, &f->norm, &x, stream));
    p[DNN_IN] = x.data;
    p[DNN_WEIGHT] = (void *)f->weight;
    p[DNN_OUT] = f->out.data;
    CHEX_GPU_TRY(run_plan(&s->forward, p, scratch.cudnn, stream));
    return f->stats.partial ? gpu_stats_of(&f->out, &f->stats, stream) : cudaSuccess;
}

static cudaError_t run_dgrad(const struct state *s, const struct gpu_conv_backward *b,
                             const struct scratch *scratch, const struct gpu_map *og,
                             cudaStream_t stream) {
    void *p[DNN_MAX_ROLES] = {NULL};
    const struct gpu_map dv = dv_map(b, scratch->map);
    p[DNN_G] = og->data;
    p[DNN_WEIGHT] = (void *)b->weight;
    p[DNN_IN_G] = dv.data;
    CHEX_GPU_TRY(run_plan(&s->dgrad, p, scratch->cudnn, stream));
    if (direct(b))
        return cudaSuccess;
    return gpu_mask(&dv, &b->in, &b->norm, &b->in_g, b->add, &b->sums, stream);
}

/* Sets the images after the last one to zero, up to image n of the plan. In a slice this also
 * clears the other channels of these images, which are unused too. */
static cudaError_t zero_past_last(const struct gpu_map *m, int n, cudaStream_t stream) {
    const size_t bytes = gpu_type_bytes(m->type), image = (size_t)m->hw * (size_t)m->hw;
    const size_t pixels = (size_t)(n - m->n) * image, pitch = (size_t)m->pitch;
    if (pixels == 0)
        return cudaSuccess;
    return cudaMemsetAsync((char *)m->data + (size_t)m->n * image * pitch * bytes, 0,
                           ((pixels - 1) * pitch + (size_t)m->channels) * bytes, stream);
}

/* Computes dweight. x: the activated input; og: the gradient of the output. */
static cudaError_t run_wgrad(const struct state *s, const struct gpu_conv_backward *b,
                             const struct scratch *scratch, const struct gpu_map *x,
                             const struct gpu_map *og, cudaStream_t stream) {
    void *p[DNN_MAX_ROLES] = {NULL};
    if ((uintptr_t)b->dweight % STORE_ALIGNMENT)
        return cudaErrorInvalidValue;
    CHEX_GPU_TRY(zero_past_last(x, s->n, stream));
    CHEX_GPU_TRY(zero_past_last(og, s->n, stream));
    p[DNN_IN] = x->data;
    p[DNN_G] = og->data;
    p[DNN_DWEIGHT] = s->wide ? b->dweight : scratch->dweight;
    CHEX_GPU_TRY(run_plan(&s->wgrad, p, scratch->cudnn, stream));
    return s->wide ? cudaSuccess
                   : gpu_widen(x->type, scratch->dweight, dweight_count(b), b->dweight, stream);
}

static cudaError_t backward(const struct gpu_device *device, const void *state,
                            const struct gpu_conv_backward *b, void *base, cudaStream_t stream) {
    const struct state *s = state;
    struct scratch scratch;
    (void)device;
    if (b->in.n > s->n)
        return cudaErrorInvalidValue;
    divide_backward(s, b, base, &scratch);
    const struct gpu_map og = deferred_grad_map(b, scratch.deferred_grad);
    if (b->out.bsum)
        CHEX_GPU_TRY(gpu_finish_grad(&b->out, &og, stream));
    if (b->in_g.data)
        CHEX_GPU_TRY(run_dgrad(s, b, &scratch, &og, stream));
    const struct gpu_map x = read_map(&b->in, &b->norm, scratch.map);
    if (b->norm.mean)
        CHEX_GPU_TRY(gpu_activate(&b->in, &b->norm, &x, stream));
    return run_wgrad(s, b, &scratch, &x, &og, stream);
}

const struct gpu_conv_algo gpu_conv_algo_dnn = {
    .name = "dnn",
    .fits = fits,
    .prepare = prepare,
    .release = release,
    .workspace = workspace,
    .forward = forward,
    .backward = backward,
    .fallback = true,
};
