/* SPDX-License-Identifier: Apache-2.0
 *
 * The helpers of dnn_algo.h: state of a convolution, plans, scratch memory, and the weight
 * gradient.
 */
#include <limits.h>
#include <stdlib.h>

#include "engine/cuda/cudnn/dnn_algo.h"
#include "engine/cuda/cudnn/dnn_cache.h"
#include "engine/cuda/cudnn/dnn_vectors.h"

enum { SCRATCH_ALIGNMENT = 256 };

bool dnn_takes_type(const struct gpu_device *device, enum gpu_type type) {
    return device->capability >= (type == GPU_BF16 ? 80 : 70);
}

enum chex_status dnn_check_map(const struct gpu_map *m, const char *what, struct chex_error *err) {
    const int64_t pixels = gpu_map_pixels(m);
    if (pixels <= INT_MAX / m->pitch)
        return CHEX_OK;
    return chex_error_set(
        err, CHEX_E_ENV,
        "%s of %lld pixels with pitch %lld: more than 2^31 - 1 elements, the limit of cuDNN", what,
        (long long)pixels, (long long)m->pitch);
}

enum chex_status dnn_state_prepare(
    const struct gpu_device *device, const struct gpu_conv_forward *f,
    const struct gpu_conv_backward *b,
    enum chex_status (*forward)(struct dnn_state *s, const struct gpu_conv_forward *f,
                                struct chex_error *err),
    enum chex_status (*backward)(struct dnn_state *s, const struct gpu_conv_backward *b,
                                 struct chex_error *err),
    void **state_out, struct chex_error *err) {
    struct dnn_state *s = calloc(1, sizeof *s);
    if (!s)
        return chex_error_set(err, CHEX_E_RESOURCE, "cuDNN convolution: out of memory");
    s->n = f ? f->in.n : b->in.n;
    enum chex_status status = dnn_target_borrow(device, &s->target, err);
    if (status == CHEX_OK) {
        status = f ? forward(s, f, err) : backward(s, b, err);
        dnn_target_settle(s->target);
    }
    if (status != CHEX_OK) {
        dnn_state_release(s);
        return status;
    }
    *state_out = s;
    return CHEX_OK;
}

void dnn_state_release(void *state) {
    struct dnn_state *s = state;
    if (!s)
        return;
    dnn_plan_release(&s->forward);
    dnn_plan_release(&s->dgrad);
    dnn_plan_release(&s->wgrad);
    dnn_state_release(s->fallback);
    dnn_target_drop(s->target);
    free(s);
}

enum chex_status dnn_make_plan(struct dnn_graph *g, const char *what,
                               const struct dnn_target *target, enum gpu_type type,
                               struct dnn_plan *plan_out, struct chex_error *err) {
    char *cache = dnn_cache_folder();
    struct chex_error why = {0};
    const enum chex_status status =
        dnn_graph_plan(g, target, type == GPU_F32, cache, plan_out, &why);
    free(cache);
    dnn_graph_release(g);
    return status == CHEX_OK ? CHEX_OK : chex_error_set(err, status, "%s: %s", what, why.text);
}

void *dnn_scratch_take(struct dnn_scratch *arena, size_t bytes) {
    char *p = arena->base ? arena->base + arena->bytes : NULL;
    arena->bytes += (bytes + SCRATCH_ALIGNMENT - 1) / SCRATCH_ALIGNMENT * SCRATCH_ALIGNMENT;
    return p;
}

struct gpu_map dnn_packed(const struct gpu_map *m, void *data) {
    struct gpu_map packed = *m;
    packed.data = data;
    packed.pitch = m->channels;
    return packed;
}

size_t dnn_packed_bytes(const struct dnn_state *s, const struct gpu_map *m) {
    return (size_t)s->n * (size_t)m->hw * (size_t)m->hw * (size_t)m->channels *
           gpu_type_bytes(m->type);
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

static size_t dweight_count(const struct gpu_conv_backward *b) {
    return (size_t)b->out.g.channels * (size_t)b->window.kernel * (size_t)b->window.kernel *
           (size_t)b->in.channels;
}

size_t dnn_dweight_bytes(const struct gpu_conv_backward *b) {
    return dweight_count(b) * gpu_type_bytes(b->in.type);
}

cudaError_t dnn_run_wgrad(const struct dnn_state *s, const struct gpu_conv_backward *b,
                          const struct gpu_map *x, const struct gpu_map *og, void *narrow,
                          void *cudnn, cudaStream_t stream) {
    void *p[DNN_MAX_ROLES] = {NULL};
    if (!dnn_aligned(b->dweight))
        return cudaErrorInvalidValue;
    DNN_TRY(zero_past_last(x, s->n, stream));
    DNN_TRY(zero_past_last(og, s->n, stream));
    p[DNN_IN] = x->data;
    p[DNN_G] = og->data;
    p[DNN_DWEIGHT] = s->wide ? b->dweight : narrow;
    DNN_TRY(dnn_plan_run(&s->wgrad, p, cudnn, stream));
    return s->wide ? cudaSuccess
                   : gpu_dnn_widen(x->type, narrow, dweight_count(b), b->dweight, stream);
}

bool dnn_aligned(const void *p) { return (uintptr_t)p % 16 == 0; }
