/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters and optimiser moments in and out, gradient vectors, and the optimiser step.
 *
 * Order of a convolution's weights: (out, ky, kx, in) in the engine; (out, in, ky, kx) in files and
 * in the vectors of set, get and grad_get. Offsets of parameters in a vector are the same in both.
 */
#include <math.h>
#include <string.h>

#include "base/alloc.h"
#include "engine/cuda/host/cuda_engine.h"
#include "engine/update.h"

static void reorder(const struct chex_net *net, float *to, const float *from, bool to_own) {
    memcpy(to, from, net->state_count * sizeof *to);
    for (int k = 0; k < net->param_total; k++) {
        const struct chex_param *p = &net->params[k];
        const size_t taps = (size_t)p->dims[2] * (size_t)p->dims[3], in = (size_t)p->dims[1];
        if (p->kind != CHEX_PARAM_CONV || taps == 1)
            continue;
        for (size_t o = 0; o < (size_t)p->dims[0]; o++)
            for (size_t i = 0; i < in; i++)
                for (size_t t = 0; t < taps; t++) {
                    const size_t own = p->offset + (o * taps + t) * in + i;
                    const size_t rows = p->offset + (o * in + i) * taps + t;
                    to[to_own ? own : rows] = from[to_own ? rows : own];
                }
    }
}

static float *part_of(struct cuda_engine *e, enum chex_state_part part) {
    return (float *[]){e->w, e->moment[0], e->moment[1], e->ema}[part];
}

static struct gpu_update update_of(const struct cuda_engine *e, enum chex_optim optim,
                                   const float *grad) {
    const struct chex_net *net = e->net;
    struct gpu_update u = {
        .params = e->params,
        .param_count = net->param_count,
        .state_count = net->state_count,
        .step = e->step,
        .loss_scale = e->type == GPU_F16 ? e->loss_scale : NULL,
        .w = e->w,
        .m = e->moment[0],
        .v = chex_optim_moments(optim) == 2 ? e->moment[1] : NULL,
        .ema = e->ema,
        .g = grad,
        .norms = optim == CHEX_LARS ? e->norms : NULL,
        .type = e->type,
        .copies = e->copies,
        .copies_t = e->config.training ? e->copies_t : NULL,
    };
    for (int i = 0; i < net->param_total; i++)
        u.param_total += net->params[i].offset < net->param_count;
    return u;
}

/* The convolution whose weight is `param`, or NULL. */
static const struct chex_op *conv_of(const struct chex_net *net, int param, int *index_out) {
    for (int i = 0; i < net->op_count; i++)
        if (net->ops[i].kind == CHEX_OP_CONV && net->ops[i].weight == param) {
            *index_out = i;
            return &net->ops[i];
        }
    return NULL;
}

/* Copies host memory to the device in the order of the compute stream, which does not synchronise
 * with CUDA's default stream. The caller may free `from` after the call. */
static enum chex_status put(struct cuda_engine *e, void *to, const void *from, size_t bytes,
                            struct chex_error *err) {
    CHEX_CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, e->stream));
    CHEX_CUDA(cudaStreamSynchronize(e->stream));
    return CHEX_OK;
}

static enum chex_status upload_params(struct cuda_engine *e, struct chex_error *err) {
    const struct chex_net *net = e->net;
    const size_t bytes = gpu_type_bytes(e->type);
    CHEX_AUTO_FREE struct gpu_param *all = chex_alloc_zeroed((size_t)net->param_total, sizeof *all);
    if (!all)
        return chex_error_memory(err, "cuda engine");
    int trained = 0;
    for (int i = 0; i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        if (p->offset >= net->param_count)
            continue;
        struct gpu_param *g = &all[trained++];
        *g = (struct gpu_param){.offset = p->offset,
                                .count = p->count,
                                .is_weight =
                                    p->kind == CHEX_PARAM_CONV || p->kind == CHEX_PARAM_FC_WEIGHT,
                                .lr_scale = e->config.lr_scales ? e->config.lr_scales[i] : 1,
                                .copy_t_offset = SIZE_MAX};
        int index = 0;
        const struct chex_op *op = conv_of(net, i, &index);
        if (!op)
            continue;
        const struct cuda_op *mine = &e->ops[index];
        g->out = op->out_channels;
        g->kernel = op->kernel;
        g->in = op->in_channels;
        g->in_padded = op->in == CHEX_NET_IMAGE ? e->image_channels : op->in_channels;
        g->copy_offset = (size_t)(mine->weight - e->copies) / bytes;
        if (mine->weight_t)
            g->copy_t_offset = (size_t)(mine->weight_t - e->copies_t) / bytes;
    }
    return put(e, e->params, all, (size_t)trained * sizeof *all, err);
}

enum chex_status chex_cuda_running(struct cuda_engine *e, struct chex_error *err) {
    if (e->running_current)
        return CHEX_OK;
    for (int i = 0; i < e->net->bn_count; i++) {
        const struct chex_bn *bn = &e->net->bns[i];
        CHEX_CUDA(gpu_running_inv(e->w + e->net->params[bn->var].offset, bn->channels,
                                  e->net->bn_eps, e->running_inv[i], e->stream));
    }
    e->running_current = true;
    return CHEX_OK;
}

/* Refreshes everything that is derived from the parameters (copies, folded stem), except
 * running_inv. */
static enum chex_status pack(struct cuda_engine *e, const struct gpu_update *u,
                             struct chex_error *err) {
    const struct chex_net *net = e->net;
    CHEX_CUDA(gpu_pack(u, e->stream));
    for (int i = 0; i < net->op_count; i++)
        if (e->ops[i].own_stem)
            CHEX_CUDA(gpu_stem_fold(e->w + net->params[net->ops[i].weight].offset, net->mean,
                                    net->std, e->type, e->folded, e->stream));
    return CHEX_OK;
}

enum chex_status chex_cuda_set(void *self, enum chex_state_part part, const float *state,
                               struct chex_error *err) {
    struct cuda_engine *e = self;
    const size_t count = e->net->state_count;
    CHEX_AUTO_FREE float *own = chex_alloc_aligned(count, sizeof *own);
    if (!own)
        return chex_error_memory(err, "cuda engine");
    reorder(e->net, own, state, true);
    CHEX_TRY(put(e, part_of(e, part), own, count * sizeof *own, err));
    if (part == CHEX_STATE_PARAMS) {
        const struct gpu_update u = update_of(e, CHEX_ADAM, NULL);
        e->running_current = false;
        CHEX_TRY(pack(e, &u, err));
    }
    return CHEX_OK;
}

/* Downloads a device vector and converts it to the files' order. Waits for all enqueued work. */
static enum chex_status download(struct cuda_engine *e, const float *from, float *out,
                                 struct chex_error *err) {
    const size_t count = e->net->state_count;
    CHEX_AUTO_FREE float *own = chex_alloc_aligned(count, sizeof *own);
    if (!own)
        return chex_error_memory(err, "cuda engine");
    CHEX_CUDA(cudaStreamSynchronize(e->stream));
    CHEX_CUDA(cudaMemcpy(own, from, count * sizeof *own, cudaMemcpyDeviceToHost));
    reorder(e->net, out, own, false);
    return CHEX_OK;
}

enum chex_status chex_cuda_get(void *self, enum chex_state_part part, float *state_out,
                               struct chex_error *err) {
    return download(self, part_of(self, part), state_out, err);
}

enum chex_status chex_cuda_grad_get(void *self, const float *grad, float *out,
                                    struct chex_error *err) {
    return download(self, grad, out, err);
}

/* ---- gradient vectors ---- */

static enum chex_status upload_jobs(struct cuda_engine *e, struct chex_error *err) {
    CHEX_AUTO_FREE struct gpu_report_job *jobs =
        chex_alloc_zeroed((size_t)e->net->bn_count, sizeof *jobs);
    if (!jobs)
        return chex_error_memory(err, "cuda engine");
    for (int i = 0; i < e->net->bn_count; i++) {
        const struct chex_bn *bn = &e->net->bns[i];
        const struct cuda_buf *buf = &e->bufs[bn->buffer];
        jobs[i] = (struct gpu_report_job){.mean = buf->mean,
                                          .var = buf->var,
                                          .mean_at = e->net->params[bn->mean].offset,
                                          .var_at = e->net->params[bn->var].offset,
                                          .channels = bn->channels,
                                          .pixels = buf->hw * buf->hw};
    }
    return put(e, e->jobs, jobs, (size_t)e->net->bn_count * sizeof *jobs, err);
}

float *chex_cuda_grad_alloc(void *self) {
    struct cuda_engine *e = self;
    const size_t bytes = e->net->state_count * sizeof(float);
    float *grad = NULL;
    if (cudaMalloc((void **)&grad, bytes) != cudaSuccess ||
        cudaMemsetAsync(grad, 0, bytes, e->stream) != cudaSuccess) {
        cudaGetLastError();
        cudaFree(grad);
        return NULL;
    }
    e->vector_bytes += bytes;
    return grad;
}

void chex_cuda_grad_free(void *self, float *grad) {
    struct cuda_engine *e = self;
    if (grad)
        e->vector_bytes -= e->net->state_count * sizeof(float);
    cudaStreamSynchronize(e->stream);
    cudaFree(grad);
}

/* Resolves the loss of the configuration. */
static enum chex_status upload_loss(struct cuda_engine *e, struct chex_error *err) {
    const struct chex_loss_terms terms = chex_loss_terms_of(&e->config.loss);
    const size_t count = (size_t)e->net->classes * GPU_LABELS;
    CHEX_AUTO_FREE struct gpu_loss_factors *all = chex_alloc_zeroed(count, sizeof *all);
    if (!all)
        return chex_error_memory(err, "cuda engine");
    for (size_t i = 0; i < count; i++) {
        const struct chex_loss_factors f =
            chex_loss_factors_of(&e->config.loss, (int)(i / GPU_LABELS), (int)(i % GPU_LABELS) - 1);
        all[i] = (struct gpu_loss_factors){(float)f.pos, (float)f.neg};
    }
    e->loss_terms.gamma_pos = (float)terms.gamma_pos;
    e->loss_terms.gamma_neg = (float)terms.gamma_neg;
    e->loss_terms.clip = (float)terms.clip;
    e->loss_terms.focused = terms.focused;
    return put(e, (void *)(uintptr_t)e->loss_terms.factors, all, count * sizeof *all, err);
}

enum chex_status chex_cuda_state_clear(struct cuda_engine *e, struct chex_error *err) {
    float *const kept[] = {e->moment[0], e->moment[1], e->ema};
    for (int k = 0; k < 3; k++)
        if (kept[k])
            CHEX_CUDA(cudaMemsetAsync(kept[k], 0, e->net->state_count * sizeof(float), e->stream));
    CHEX_CUDA(cudaMemsetAsync(e->copies, 0, e->copies_count * gpu_type_bytes(e->type), e->stream));
    return CHEX_OK;
}

enum chex_status chex_cuda_state_init(struct cuda_engine *e, struct chex_error *err) {
    const struct gpu_loss_scale scale = {.scale = 65536};
    CHEX_TRY(upload_params(e, err));
    CHEX_TRY(upload_loss(e, err));
    if (e->config.training)
        CHEX_TRY(upload_jobs(e, err));
    CHEX_CUDA(cudaMallocHost((void **)&e->step_host, sizeof *e->step_host));
    memset(e->step_host, 0, sizeof *e->step_host);
    CHEX_TRY(put(e, e->loss_scale, &scale, sizeof scale, err));
    CHEX_CUDA(cudaMemsetAsync(e->clip, 0, sizeof *e->clip, e->stream));
    return chex_cuda_state_clear(e, err);
}

/* ---- the optimiser ---- */

/* Computes the scalars in double, then rounds them, exactly as engine/update.c does. */
static void fill_step(const struct cuda_engine *e, const struct chex_update *u,
                      struct gpu_step *s) {
    const double t = (double)u->step;
    *s = (struct gpu_step){
        .optim = u->optim,
        .nesterov = u->nesterov,
        .decays_all = u->decay_norms || !(u->weight_decay > 0),
        .grad_scale = (float)u->grad_scale,
        .momentum = (float)u->momentum,
        .lr = (float)u->lr,
        .weight_decay = (float)u->weight_decay,
        .beta1 = (float)u->beta1,
        .beta2 = (float)u->beta2,
        .one_minus_beta1 = (float)(1.0 - u->beta1),
        .one_minus_beta2 = (float)(1.0 - u->beta2),
        .eps = (float)u->eps,
        .bn_momentum = e->net->bn_momentum,
        .clip_norm = u->clip_norm,
        .clip_scale = u->grad_scale,
        .adamw_shrink = (float)(1.0 - u->lr * u->weight_decay),
        .scaled = e->config.lr_scales != NULL,
        .lr64 = u->lr,
        .decay64 = u->weight_decay,
        .adam_bias = 1.0 - pow(u->beta1, t),
        .ema_rest = (float)(1.0 - e->config.ema_decay),
    };
    if (chex_optim_moments(u->optim) == 2) {
        s->adam_step = (float)(u->lr / (1.0 - pow(u->beta1, t)));
        s->adam_root = (float)(1.0 / sqrt(1.0 - pow(u->beta2, t)));
    }
}

static enum chex_status enqueue_update(struct cuda_engine *e, const struct cuda_graph *what,
                                       struct chex_error *err) {
    struct gpu_update u = update_of(e, (enum chex_optim)what->optim, what->grad);
    u.clip = what->clips ? e->clip : NULL;
    CHEX_CUDA(
        cudaMemcpyAsync(e->step, e->step_host, sizeof *e->step, cudaMemcpyHostToDevice, e->stream));
    CHEX_CUDA(gpu_update_state(&u, e->stream));
    return pack(e, &u, err);
}

enum chex_status chex_cuda_update(void *self, const struct chex_update *update, const float *grad,
                                  struct chex_error *err) {
    struct cuda_engine *e = self;
    if (!gpu_has_optim(update->optim))
        return chex_error_set(
            err, CHEX_E_USAGE,
            "--opt: engine cuda has no rule for it in update.cu; try --engine cpu");
    /* step_host may be overwritten only after the last update has copied it. If a pass has waited
     * for its loss since then, the copy is complete. */
    if (!e->waited)
        CHEX_CUDA(cudaStreamSynchronize(e->stream));
    fill_step(e, update, e->step_host);
    e->running_current = false;
    const struct cuda_graph what = {.part = CUDA_PART_UPDATE,
                                    .slot = -1,
                                    .grad = grad,
                                    .optim = update->optim,
                                    .clips = update->clip_norm > 0};
    CHEX_TRY(chex_cuda_launch(e, &what, enqueue_update, err));
    e->waited = false;
    return CHEX_OK;
}

enum chex_status chex_cuda_grad_norms(void *self, struct chex_grad_norms *out,
                                      struct chex_error *err) {
    struct cuda_engine *e = self;
    struct gpu_clip clip;
    CHEX_CUDA(cudaStreamSynchronize(e->stream));
    CHEX_CUDA(cudaMemcpy(&clip, e->clip, sizeof clip, cudaMemcpyDeviceToHost));
    *out = (struct chex_grad_norms){clip.sum, clip.largest, clip.updates};
    CHEX_CUDA(cudaMemsetAsync(e->clip, 0, sizeof *e->clip, e->stream));
    return CHEX_OK;
}
