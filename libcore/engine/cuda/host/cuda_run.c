/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs batches: upload, forward, loss, backward, inference; and the order of this work on the
 * streams.
 *
 * A batch is copied into a slot and uploaded on the upload stream. The pass consists of parts:
 * forward with the loss, then a few segments of backward. After each segment a range of the
 * gradient is final and reported ready. Parts become CUDA graphs (cuda_graphs.c). The host waits
 * for the loss while backward runs on the device. So the host can prepare the next batch during
 * most of backward.
 *
 * Waits for these events sleep: a wait that spins would take a core from the decoders for the whole
 * step. The device has queued work meanwhile, so the time to wake up is hidden. Sums over logical
 * ranks (cuda_sync.c) and updates wait for the stream, spinning: they are short.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "engine/cuda/host/cuda_engine.h"
#include "engine/cuda/host/dependent.h"
#include "engine/cuda/host/ranges.h"
#include "engine/frozen.h"

/* ---- parts ---- */

/* Errors of kernels are reported by a later call, whichever it is. With sync_ops: by this one. */
static enum chex_status finish_op(struct cuda_engine *e, int op, const char *direction,
                                  struct chex_error *err) {
    char name[160];
    if (!e->sync_ops)
        return CHEX_OK;
    CHEX_TRY(chex_cuda_join(e, err));
    const cudaError_t st = cudaStreamSynchronize(e->stream);
    snprintf(name, sizeof name, "%s of %s", direction, e->net->ops[op].name);
    return st == cudaSuccess ? CHEX_OK : gpu_error(st, name, err);
}
static enum chex_status forward_op(struct cuda_engine *e, int op, const struct cuda_graph *what,
                                   bool training, struct chex_error *err) {
    CHEX_TRY(chex_cuda_forward_op(e, op, &e->slots[what->slot], what->n, training, err));
    if (training)
        CHEX_TRY(chex_cuda_sync_stats(e, &e->net->ops[op], err));
    return finish_op(e, op, "forward", err);
}
static enum chex_status backward_op(struct cuda_engine *e, int op, const struct cuda_graph *what,
                                    struct chex_error *err) {
    float *grad = (float *)(uintptr_t)what->grad;
    CHEX_TRY(chex_cuda_sync_grad(e, &e->net->ops[op], err));
    CHEX_TRY(chex_cuda_backward_op(e, op, &e->slots[what->slot], what->n, grad, err));
    return finish_op(e, op, "backward", err);
}

static enum chex_status enqueue_forward(struct cuda_engine *e, const struct cuda_graph *what,
                                        struct chex_error *err) {
    const struct cuda_slot *slot = &e->slots[what->slot];
    for (int i = 0; i < e->net->op_count; i++)
        CHEX_TRY(forward_op(e, i, what, true, err));
    CHEX_CUDA(gpu_report(e->jobs, e->net->bn_count, what->n * chex_sync_ranks(e->config.sync),
                         (float *)(uintptr_t)what->grad, e->stream));
    CHEX_CUDA(gpu_loss(e->logits, slot->labels, what->n, e->net->classes, &e->loss_terms,
                       e->type == GPU_F16 ? &e->loss_scale->scale : NULL, e->loss, e->dlogits,
                       e->stream));
    CHEX_CUDA(
        cudaMemcpyAsync(e->loss_host, e->loss, sizeof *e->loss, cudaMemcpyDeviceToHost, e->stream));
    return CHEX_OK;
}

/* The lowest gradient element that is final after segment_done[k]. */
static size_t final_from(const struct cuda_engine *e, int k) {
    if (k == 0)
        return e->net->param_count;
    const int last = e->segment_end[k];
    return last ? e->net->ops[last].final_from : 0;
}

/* Zeroes the frozen elements of the gradient range that is final after this segment. The second
 * stream may still write sums of theirs. */
static enum chex_status zero_frozen(struct cuda_engine *e, const struct cuda_graph *what,
                                    struct chex_error *err) {
    float *grad = (float *)(uintptr_t)what->grad;
    const size_t end = final_from(e, what->part);
    if (e->config.lr_scales)
        CHEX_TRY(chex_cuda_join(e, err));
    for (size_t at = final_from(e, what->part + 1), from, to;
         chex_frozen_run(&e->config, at, end, &from, &to); at = to)
        CHEX_CUDA(cudaMemsetAsync(grad + from, 0, (to - from) * sizeof *grad, e->stream));
    return CHEX_OK;
}

static enum chex_status enqueue_segment(struct cuda_engine *e, const struct cuda_graph *what,
                                        struct chex_error *err) {
    if (what->part == 0)
        CHEX_CUDA(cudaMemsetAsync(e->shared_sums, 0, e->shared_sums_bytes, e->stream));
    for (int i = e->segment_end[what->part] - 1; i >= e->segment_end[what->part + 1]; i--)
        if (i >= e->first_trained)
            CHEX_TRY(backward_op(e, i, what, err));
    return zero_frozen(e, what, err);
}

static enum chex_status enqueue_infer(struct cuda_engine *e, const struct cuda_graph *what,
                                      struct chex_error *err) {
    const size_t bytes = (size_t)what->n * (size_t)e->net->classes * sizeof(float);
    for (int i = 0; i < e->net->op_count; i++)
        CHEX_TRY(forward_op(e, i, what, false, err));
    CHEX_CUDA(cudaMemcpyAsync(e->slots[what->slot].logits_host, e->logits, bytes,
                              cudaMemcpyDeviceToHost, e->stream));
    return CHEX_OK;
}

/* ---- batches ---- */

/* Allocates pinned memory for pixels, at the first batch of pixels. Runs with raw batches never
 * need it. */
static enum chex_status pin_pixels(struct cuda_engine *e, struct chex_error *err) {
    const size_t size = (size_t)e->config.image_size;
    const size_t bytes = (size_t)e->config.batch * size * size * sizeof(float);
    for (int i = 0; i < CUDA_SLOTS; i++)
        if (!e->slots[i].pixels_host)
            CHEX_CUDA(cudaMallocHost((void **)&e->slots[i].pixels_host, bytes));
    return CHEX_OK;
}

static enum chex_status send_pixels(struct cuda_engine *e, struct cuda_slot *s,
                                    const struct chex_batch *batch, struct chex_error *err) {
    const size_t size = (size_t)e->config.image_size;
    const size_t bytes = (size_t)batch->n * size * size * sizeof(float);
    if (!s->pixels_host)
        CHEX_TRY(pin_pixels(e, err));
    memcpy(s->pixels_host, batch->pixels, bytes);
    CHEX_CUDA(
        cudaMemcpyAsync(s->pixels, s->pixels_host, bytes, cudaMemcpyHostToDevice, e->uploads));
    return CHEX_OK;
}

static enum chex_status send_labels(struct cuda_engine *e, struct cuda_slot *s,
                                    const struct chex_batch *batch, struct chex_error *err) {
    const size_t bytes = (size_t)batch->n * (size_t)e->net->classes;
    memcpy(s->labels_host, batch->labels, bytes);
    CHEX_CUDA(
        cudaMemcpyAsync(s->labels, s->labels_host, bytes, cudaMemcpyHostToDevice, e->uploads));
    return CHEX_OK;
}

/* Copies the batch to the next slot and enqueues its upload. e->stream waits for the upload. For a
 * raw batch it then computes the pixels. */
static enum chex_status send_batch(struct cuda_engine *e, const struct chex_batch *batch,
                                   struct chex_error *err) {
    e->slot = (e->slot + 1) % CUDA_SLOTS;
    struct cuda_slot *s = &e->slots[e->slot];
    CHEX_CUDA(cudaEventSynchronize(s->uploaded)); /* the slot's pinned memory is free */
    CHEX_CUDA(cudaStreamWaitEvent(e->uploads, s->consumed, 0));
    CHEX_TRY(batch->pixels ? send_pixels(e, s, batch, err) : chex_cuda_send_raw(e, s, batch, err));
    if (batch->labels)
        CHEX_TRY(send_labels(e, s, batch, err));
    CHEX_CUDA(cudaEventRecord(s->uploaded, e->uploads));
    CHEX_CUDA(cudaStreamWaitEvent(e->stream, s->uploaded, 0));
    return batch->pixels ? CHEX_OK : chex_cuda_make_pixels(e, s, batch, err);
}

static enum chex_status upload(struct cuda_engine *e, const struct chex_batch *batch,
                               struct chex_error *err) {
    cuda_range_begin("upload");
    enum chex_status st = send_batch(e, batch, err);
    cuda_range_end();
    return st;
}

/* The upload on e->uploads, the rest on e->stream. The slot keeps the logits until its turn comes
 * again. */
static enum chex_status enqueue_batch(struct cuda_engine *e, const struct chex_batch *batch,
                                      struct chex_error *err) {
    CHEX_TRY(upload(e, batch, err));
    CHEX_TRY(chex_cuda_running(e, err));
    const struct cuda_graph what = {.part = CUDA_PART_INFER, .slot = e->slot, .n = batch->n};
    CHEX_TRY(chex_cuda_launch(e, &what, enqueue_infer, err));
    CHEX_CUDA(cudaEventRecord(e->slots[e->slot].consumed, e->stream));
    e->slots[e->slot].n = batch->n;
    return CHEX_OK;
}

_Static_assert((int)CHEX_INFER_BATCHES <= (int)CUDA_SLOTS, "each batch begun has a slot");

enum chex_status chex_cuda_infer_begin(void *self, const struct chex_batch *batch,
                                       struct chex_error *err) {
    struct cuda_engine *e = self;
    const int before = e->slot;
    const enum chex_status st = enqueue_batch(e, batch, err);
    if (st != CHEX_OK)
        e->slot = before; /* the batches begun before it keep their slots */
    else
        e->begun++;
    return st;
}

enum chex_status chex_cuda_infer_end(void *self, float *logits_out, struct chex_error *err) {
    struct cuda_engine *e = self;
    const struct cuda_slot *s = &e->slots[(e->slot + CUDA_SLOTS + 1 - e->begun) % CUDA_SLOTS];
    e->begun--;
    CHEX_CUDA(cudaEventSynchronize(s->consumed));
    memcpy(logits_out, s->logits_host, (size_t)s->n * (size_t)e->net->classes * sizeof *logits_out);
    return CHEX_OK;
}

enum chex_status chex_cuda_infer(void *self, const struct chex_batch *batch, float *logits_out,
                                 struct chex_error *err) {
    CHEX_TRY(chex_cuda_infer_begin(self, batch, err));
    return chex_cuda_infer_end(self, logits_out, err);
}

/* Runs the segments of backward. After each it reports the range of the gradient that is now final.
 */
static enum chex_status backward(struct cuda_engine *e, struct cuda_graph what,
                                 chex_grad_ready_fn ready, void *ready_arg,
                                 struct chex_error *err) {
    size_t had = e->net->param_count;
    if (ready)
        ready(ready_arg, had, e->net->state_count);
    for (int k = 0; k < e->segments; k++) {
        what.part = k;
        CHEX_TRY(chex_cuda_launch(e, &what, enqueue_segment, err));
        CHEX_CUDA(cudaEventRecord(e->segment_done[k + 1], e->stream));
        const size_t from = final_from(e, k + 1);
        if (ready && from < had)
            ready(ready_arg, from, had);
        had = from;
    }
    return CHEX_OK;
}

static double elapsed_s(cudaEvent_t from, cudaEvent_t to) {
    float ms = 0;
    return cudaEventElapsedTime(&ms, from, to) == cudaSuccess ? (double)ms * 1e-3 : 0;
}

enum chex_status chex_cuda_pass(void *self, const struct chex_batch *batch, float *grad_out,
                                chex_grad_ready_fn ready, void *ready_arg,
                                struct chex_pass_result *result_out, struct chex_error *err) {
    struct cuda_engine *e = self;
    const int set = e->passes % 2, previous = 1 - set;
    CHEX_TRY(upload(e, batch, err));
    struct cuda_graph what = {
        .part = CUDA_PART_FORWARD, .slot = e->slot, .n = batch->n, .grad = grad_out};
    CHEX_CUDA(cudaEventRecord(e->forward_began[set], e->stream));
    CHEX_TRY(chex_cuda_launch(e, &what, enqueue_forward, err));
    CHEX_CUDA(cudaEventRecord(e->forward_done[set], e->stream));
    CHEX_CUDA(cudaEventRecord(e->segment_done[0], e->stream));
    CHEX_TRY(backward(e, what, ready, ready_arg, err));
    CHEX_CUDA(cudaEventRecord(e->backward_done[set], e->stream));
    CHEX_CUDA(cudaEventRecord(e->slots[e->slot].consumed, e->stream));
    CHEX_CUDA(cudaEventSynchronize(e->forward_done[set]));
    if (e->config.sync)
        CHEX_TRY(gpu_reduce_check(e->reduce, err));
    /* This pass's backward is still running, so the result has the time of the previous backward.
     */
    *result_out = (struct chex_pass_result){
        .loss = *e->loss_host,
        .forward_s = elapsed_s(e->forward_began[set], e->forward_done[set]),
        .backward_s =
            e->passes ? elapsed_s(e->forward_done[previous], e->backward_done[previous]) : 0,
    };
    e->passes++;
    e->waited = true;
    e->last_n = batch->n;
    e->last_grad = grad_out;
    return CHEX_OK;
}

/* ---- the reduction ---- */

static cudaEvent_t event_of(void *engine, size_t from) {
    const struct cuda_engine *e = engine;
    int k = 0;
    while (k < e->segments && final_from(e, k) > from)
        k++;
    return e->segment_done[k];
}

enum chex_status chex_cuda_reduce_memory(void *self, struct chex_launch *launch,
                                         struct chex_group *group, uint64_t timeout_ms,
                                         const struct chex_reduce_memory **memory_out,
                                         struct chex_error *err) {
    struct cuda_engine *e = self;
    const struct gpu_reduce_config config = {.launch = launch,
                                             .group = group,
                                             .timeout_ms = timeout_ms,
                                             .device = e->device.index,
                                             .compute = e->stream,
                                             .event_of = event_of,
                                             .engine = e};
    CHEX_TRY(gpu_reduce_create(&config, &e->reduce, err));
    *memory_out = gpu_reduce_memory(e->reduce);
    return CHEX_OK;
}

/* ---- times of single ops ---- */

static enum chex_status time_op(struct cuda_engine *e, int op, bool is_backward, double *s_out,
                                struct chex_error *err) {
    const struct cuda_slot *slot = &e->slots[e->slot];
    CHEX_CUDA(cudaEventRecord(e->forward_began[0], e->stream));
    if (is_backward)
        CHEX_TRY(chex_cuda_backward_op(e, op, slot, e->last_n, e->last_grad, err));
    else
        CHEX_TRY(chex_cuda_forward_op(e, op, slot, e->last_n, true, err));
    CHEX_TRY(chex_cuda_join(e, err));
    CHEX_CUDA(cudaEventRecord(e->forward_done[0], e->stream));
    CHEX_CUDA(cudaEventSynchronize(e->forward_done[0]));
    *s_out = elapsed_s(e->forward_began[0], e->forward_done[0]);
    return CHEX_OK;
}

void chex_cuda_op_times(void *self, double *forward_s, double *backward_s) {
    struct cuda_engine *e = self;
    struct chex_error err = {0};
    enum chex_status st = CHEX_OK;
    memset(forward_s, 0, (size_t)e->net->op_count * sizeof *forward_s);
    memset(backward_s, 0, (size_t)e->net->op_count * sizeof *backward_s);
    if (!e->last_n)
        return;
    for (int i = 0; i < e->net->op_count && st == CHEX_OK; i++)
        st = time_op(e, i, false, &forward_s[i], &err);
    if (st == CHEX_OK && cudaMemsetAsync(e->shared_sums, 0, e->shared_sums_bytes, e->stream))
        return;
    for (int i = e->net->op_count - 1; i >= e->first_trained && st == CHEX_OK; i--)
        st = time_op(e, i, true, &backward_s[i], &err);
    if (st != CHEX_OK)
        chex_warn("times of operations: not measured: %s", err.text);
}

/* ---- set-up and release ---- */

static enum chex_status slot_init(struct cuda_engine *e, struct cuda_slot *s,
                                  struct chex_error *err) {
    const size_t labels = (size_t)e->config.batch * (size_t)e->net->classes;
    CHEX_CUDA(cudaMallocHost((void **)&s->logits_host, labels * sizeof *s->logits_host));
    CHEX_CUDA(cudaMallocHost((void **)&s->labels_host, labels));
    const unsigned flags = cudaEventDisableTiming | cudaEventBlockingSync;
    CHEX_CUDA(cudaEventCreateWithFlags(&s->uploaded, flags));
    CHEX_CUDA(cudaEventCreateWithFlags(&s->consumed, flags));
    return CHEX_OK;
}

enum chex_status chex_cuda_run_init(struct cuda_engine *e, struct chex_error *err) {
    const char *graphs = getenv("CHEX_CUDA_GRAPHS");
    e->sync_ops = graphs && strcmp(graphs, "sync") == 0;
    e->no_graphs = e->sync_ops || (graphs && strcmp(graphs, "0") == 0);
    /* Sums over all ranks lie between the kernels of a part with `sync`. */
    e->dependents = !e->sync_ops && !e->config.sync && gpu_dependents_supported(&e->device);
    CHEX_TRY(chex_cuda_side_init(e, err));
    for (int i = 0; i < CUDA_SLOTS; i++)
        CHEX_TRY(slot_init(e, &e->slots[i], err));
    for (int i = 0; i <= CUDA_SEGMENTS; i++)
        CHEX_CUDA(cudaEventCreateWithFlags(&e->segment_done[i], cudaEventDisableTiming));
    for (int i = 0; i < 2; i++) {
        CHEX_CUDA(cudaEventCreate(&e->forward_began[i]));
        CHEX_CUDA(cudaEventCreateWithFlags(&e->forward_done[i], cudaEventBlockingSync));
        CHEX_CUDA(cudaEventCreate(&e->backward_done[i]));
    }
    CHEX_CUDA(cudaMallocHost((void **)&e->loss_host, sizeof *e->loss_host));
    return chex_cuda_sync_init(e, err);
}

void chex_cuda_run_release(struct cuda_engine *e) {
    chex_cuda_graphs_release(e);
    chex_cuda_side_release(e);
    for (int i = 0; i < CUDA_SLOTS; i++) {
        cudaFreeHost(e->slots[i].pixels_host);
        cudaFreeHost(e->slots[i].labels_host);
        cudaFreeHost(e->slots[i].logits_host);
        gpu_event_destroy(e->slots[i].uploaded);
        gpu_event_destroy(e->slots[i].consumed);
    }
    for (int i = 0; i <= CUDA_SEGMENTS; i++)
        gpu_event_destroy(e->segment_done[i]);
    for (int i = 0; i < 2; i++) {
        gpu_event_destroy(e->forward_began[i]);
        gpu_event_destroy(e->forward_done[i]);
        gpu_event_destroy(e->backward_done[i]);
    }
    chex_cuda_sync_release(e);
    cudaFreeHost(e->loss_host);
    cudaFreeHost(e->step_host);
}
