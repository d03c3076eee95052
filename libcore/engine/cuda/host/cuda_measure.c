/* SPDX-License-Identifier: Apache-2.0
 *
 * Times the candidates for one convolution on the device, in the buffers and with the launches of a
 * step (cuda_choices.c says which candidates).
 *
 * A candidate runs once for its results, which are compared with those of the first candidate. Then
 * the candidates are timed in turns, so that a change of the clock rate meets all of them; the best
 * round counts. Those that the first round finds much slower than the fastest are not timed again.
 * Small maps are in the L2 cache then, as they mostly are in a step, where the operation before has
 * just written them. The sum of the parts of dW is timed too, on the same stream.
 *
 * The choice goes to the first candidate within 3 % of the fastest. So noise rarely changes it, and
 * a change always gains more than 3 %.
 *
 * The comparison is a safeguard, not a proof (tests/gpu/conv_1x1.c and its like are): it reads some
 * pixels of the map, and all statistics and weight gradients, which depend on every pixel. The
 * tolerance is two roundings to the type.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/alloc.h"
#include "base/log.h"
#include "engine/cuda/host/cuda_engine.h"

enum {
    ROUNDS = 3,   /* of one launch, then of several: the host enqueues the next while one runs */
    LAUNCHES = 4, /* of a later round */
    PATTERN_BYTES = 1 << 20, /* repeated over the maps */
    SAMPLED_PIXELS = 64,     /* of a map */
    SAMPLES = 8,             /* vectors compared for one convolution, at most */
};
static const double close_enough = 1.03, hopeless = 1.5;

int chex_cuda_fastest(const double *seconds, int count) {
    double least = 0;
    for (int i = 0; i < count; i++)
        if (seconds[i] > 0 && (least <= 0 || seconds[i] < least))
            least = seconds[i];
    for (int i = 0; i < count; i++)
        if (seconds[i] > 0 && seconds[i] <= close_enough * least)
            return i;
    return -1;
}

/* ---- contents ---- */

/* Values of either sign, three of four positive, so that sums do not cancel. Magnitudes: 1/8 to 1
 * in 16-bit types; 1/4 to 2 in fp32, all positive, because inverses of deviations are among them.
 */
static void make_pattern(enum gpu_type type, unsigned char *out) {
    uint32_t state = 12345;
    for (size_t at = 0; at < PATTERN_BYTES; at += gpu_type_bytes(type)) {
        state = state * 1664525u + 1013904223u; /* Numerical Recipes' generator */
        const uint32_t bits = state >> 8, scale = bits % 3;
        const uint16_t sign = bits >> 22 == 0 ? 0x8000 : 0;
        const uint16_t half = type == GPU_BF16
                                  ? (uint16_t)(sign | (124 + scale) << 7 | (bits >> 2 & 0x7f))
                                  : (uint16_t)(sign | (12 + scale) << 10 | (bits >> 2 & 0x3ff));
        const uint32_t word = (125 + scale) << 23 | (bits >> 2 & 0x3fffff) << 1;
        memcpy(out + at, type == GPU_F32 ? (const void *)&word : (const void *)&half,
               gpu_type_bytes(type));
    }
}

/* Repeats the pattern over device memory: one upload, then copies that double. */
static enum chex_status fill(struct cuda_engine *e, void *to, size_t bytes, enum gpu_type type,
                             struct chex_error *err) {
    size_t done = bytes < PATTERN_BYTES ? bytes : PATTERN_BYTES;
    CHEX_AUTO_FREE unsigned char *pattern = malloc(PATTERN_BYTES);
    if (!pattern)
        return chex_error_memory(err, "choices of kernels");
    make_pattern(type, pattern);
    CHEX_CUDA(cudaMemcpyAsync(to, pattern, done, cudaMemcpyHostToDevice, e->stream));
    CHEX_CUDA(cudaStreamSynchronize(e->stream));
    for (size_t more; done < bytes; done += more) {
        more = done < bytes - done ? done : bytes - done;
        CHEX_CUDA(
            cudaMemcpyAsync((char *)to + done, to, more, cudaMemcpyDeviceToDevice, e->stream));
    }
    return CHEX_OK;
}

enum chex_status chex_cuda_measure_begin(struct cuda_engine *e, struct chex_error *err) {
    const size_t bytes = gpu_type_bytes(e->type);
    CHEX_TRY(fill(e, e->maps, e->maps_bytes, e->type, err));
    CHEX_TRY(fill(e, e->statistics, e->statistics_bytes, GPU_F32, err));
    CHEX_TRY(fill(e, e->w, e->net->state_count * sizeof(float), GPU_F32, err));
    CHEX_TRY(fill(e, e->copies, e->copies_count * bytes, e->type, err));
    return fill(e, e->copies_t, e->copies_t_count * bytes, e->type, err);
}

/* ---- one convolution ---- */

struct trial {
    struct cuda_engine *e;
    int op;
    bool backward;
    struct cuda_conv conv;
    float *samples, *first; /* of this candidate, of the first one; sample_end[samples] values */
    size_t sample_end[SAMPLES];
    int sample_count;
};

static cudaError_t launch(struct trial *t, const struct cuda_kernel *c) {
    struct cuda_engine *e = t->e;
    t->conv.forward.variant = t->conv.backward.variant = c->variant;
    return t->backward ? c->algo->backward(&e->device, c->state, t->conv.b, e->workspace, e->stream)
                       : c->algo->forward(&e->device, c->state, t->conv.f, e->workspace, e->stream);
}

/* The buffer that the convolution writes or adds to, and what it adds to besides. */
static enum chex_status reset(struct trial *t, struct chex_error *err) {
    struct cuda_engine *e = t->e;
    const struct chex_op *op = &e->net->ops[t->op];
    const int written = t->backward ? op->in : op->out;
    const struct cuda_buf *buf = &e->bufs[written];
    const size_t bytes = (size_t)e->config.batch * (size_t)buf->hw * (size_t)buf->hw *
                         (size_t)buf->channels * gpu_type_bytes(e->type);
    CHEX_TRY(fill(e, t->backward ? buf->g : buf->x, bytes, e->type, err));
    if (t->backward) {
        CHEX_TRY(fill(e, e->shared_sums, e->shared_sums_bytes, GPU_F32, err));
        CHEX_CUDA(cudaMemsetAsync(t->conv.backward.dweight, 0xff,
                                  e->net->params[op->weight].count * sizeof(float), e->stream));
    }
    /* A launch that failed may have left counts. */
    CHEX_CUDA(cudaMemsetAsync(e->ticket, 0, 2 * GPU_TICKETS * sizeof *e->ticket, e->stream));
    return CHEX_OK;
}

/* ---- results ---- */

static size_t sampled(const struct trial *t) {
    return t->sample_count ? t->sample_end[t->sample_count - 1] : 0;
}

static void end_sample(struct trial *t, size_t count) {
    const size_t from = sampled(t);
    t->sample_end[t->sample_count++] = from + count;
}

static enum chex_status sample_map(struct trial *t, const struct gpu_map *m,
                                   struct chex_error *err) {
    struct cuda_engine *e = t->e;
    const int64_t pixels = gpu_map_pixels(m);
    const int64_t count = pixels < SAMPLED_PIXELS ? pixels : SAMPLED_PIXELS;
    const size_t channels = (size_t)m->channels;
    float *wide = e->partial[0], *to = t->samples + sampled(t); /* wide: scratch */
    for (int64_t i = 0; i < count; i++, to += channels) {
        const int64_t pixel = count > 1 ? i * (pixels - 1) / (count - 1) : 0;
        const char *from =
            (const char *)m->data + (size_t)(pixel * m->pitch) * gpu_type_bytes(m->type);
        CHEX_CUDA(gpu_widen(m->type, from, channels, wide, e->stream));
        CHEX_CUDA(
            cudaMemcpyAsync(to, wide, channels * sizeof *to, cudaMemcpyDeviceToHost, e->stream));
    }
    end_sample(t, (size_t)count * channels);
    CHEX_CUDA(cudaStreamSynchronize(e->stream));
    return CHEX_OK;
}

static enum chex_status sample_vector(struct trial *t, const float *from, size_t count,
                                      struct chex_error *err) {
    CHEX_CUDA(
        cudaMemcpy(t->samples + sampled(t), from, count * sizeof *from, cudaMemcpyDeviceToHost));
    end_sample(t, count);
    return CHEX_OK;
}

/* Reads the results of the last launch, which is complete. */
static enum chex_status sample(struct trial *t, struct chex_error *err) {
    const struct gpu_conv_forward *f = &t->conv.forward;
    const struct gpu_conv_backward *b = &t->conv.backward;
    const size_t out = (size_t)f->out.channels, in = (size_t)b->in.channels;
    const struct chex_net *net = t->e->net;
    const float *const stats[] = {f->stats.mean, f->stats.var, f->stats.inv};
    const float *const sums[] = {b->sums.dgamma, b->sums.dbeta, b->sums.bsum, b->sums.csum};
    t->sample_count = 0;
    CHEX_TRY(sample_map(t, t->backward ? &b->in_g : &f->out, err));
    for (int i = 0; i < 3 && !t->backward && f->stats.partial; i++)
        CHEX_TRY(sample_vector(t, stats[i], out, err));
    if (t->backward)
        CHEX_TRY(sample_vector(t, b->dweight, net->params[net->ops[t->op].weight].count, err));
    for (int i = 0; i < 4 && t->backward && b->sums.partial; i++)
        CHEX_TRY(sample_vector(t, sums[i], in, err));
    return CHEX_OK;
}

/* The largest relative distance (L2) of a sampled vector from that of the first candidate; NaN
 * counts as infinite. */
static double distance(const struct trial *t) {
    double worst = 0;
    for (int k = 0; k < t->sample_count; k++) {
        double d = 0, size = 0;
        for (size_t i = k ? t->sample_end[k - 1] : 0; i < t->sample_end[k]; i++) {
            const double a = (double)t->samples[i], b = (double)t->first[i];
            d += (a - b) * (a - b);
            size += b * b;
        }
        const double share = d > 0 ? sqrt(d / size) : d;
        worst = share <= worst ? worst : isnan(share) ? INFINITY : share;
    }
    return worst;
}

/* ---- the trial ---- */

static enum chex_status trial_make(struct cuda_engine *e, int op, bool backward, struct trial *t,
                                   struct chex_error *err) {
    const struct chex_op *o = &e->net->ops[op];
    const size_t widest =
        (size_t)(o->in_channels > o->out_channels ? o->in_channels : o->out_channels);
    const size_t values = (SAMPLED_PIXELS + 4) * widest + e->net->params[o->weight].count;
    *t = (struct trial){.e = e, .op = op, .backward = backward};
    chex_cuda_conv(e, op, backward, e->moment[0], &t->conv);
    t->samples = chex_alloc_zeroed(values, sizeof *t->samples);
    t->first = chex_alloc_zeroed(values, sizeof *t->first);
    return t->samples && t->first ? CHEX_OK : chex_error_memory(err, "choices of kernels");
}

static void trial_release(struct trial *t) {
    free(t->samples);
    free(t->first);
}

/* A kernel failed as it ran: CUDA refuses all further work of the process. */
static enum chex_status failed(const struct trial *t, const struct cuda_kernel *c,
                               enum chex_status st, struct chex_error *err) {
    char name[CUDA_CANDIDATE_BYTES];
    if (st == CHEX_OK)
        return CHEX_OK;
    chex_cuda_candidate_text(c, t->backward, name);
    return chex_error_prefix(
        err, st, "%s of %s by %s (measured; CHEX_CUDA_MEASURE=0 leaves it out)",
        t->backward ? "backward" : "forward", t->e->net->ops[t->op].name, name);
}

/* Runs a candidate once. *left_out: it cannot be launched, or its results are others. */
static enum chex_status try_candidate(struct trial *t, const struct cuda_kernel *c, bool has_first,
                                      bool *left_out, struct chex_error *err) {
    const char *const direction = t->backward ? "backward" : "forward";
    const char *const op = t->e->net->ops[t->op].name;
    const double tolerance = t->e->type == GPU_BF16 ? 0x1p-7 : 0x1p-10;
    char name[CUDA_CANDIDATE_BYTES];
    chex_cuda_candidate_text(c, t->backward, name);
    CHEX_TRY(reset(t, err));
    const cudaError_t refused = launch(t, c);
    if (refused != cudaSuccess) {
        cudaGetLastError(); /* clear the error: it is reported here */
        chex_warn("cuda: %s of %s by %s: left out, it cannot be launched: %s", direction, op, name,
                  cudaGetErrorString(refused));
        *left_out = true;
        return CHEX_OK;
    }
    CHEX_CUDA(cudaStreamSynchronize(t->e->stream));
    CHEX_TRY(sample(t, err));
    if (!has_first)
        memcpy(t->first, t->samples, sampled(t) * sizeof *t->first);
    const double d = distance(t);
    *left_out = !(d <= tolerance);
    if (*left_out)
        chex_warn("cuda: %s of %s by %s: left out, its results differ by %.1e from those of the "
                  "first kernel (expected at most %.1e, from rounding)",
                  direction, op, name, d, tolerance);
    return CHEX_OK;
}

static enum chex_status time_round(struct trial *t, const struct cuda_kernel *c, int launches,
                                   double *best_s, struct chex_error *err) {
    struct cuda_engine *e = t->e;
    float ms = 0;
    CHEX_CUDA(cudaEventRecord(e->forward_began[0], e->stream));
    for (int i = 0; i < launches; i++)
        CHEX_CUDA(launch(t, c));
    CHEX_CUDA(cudaEventRecord(e->forward_done[0], e->stream));
    CHEX_CUDA(cudaEventSynchronize(e->forward_done[0]));
    CHEX_CUDA(cudaEventElapsedTime(&ms, e->forward_began[0], e->forward_done[0]));
    const double s = ms > 0 ? (double)ms * 1e-3 / launches : 1e-9;
    if (*best_s <= 0 || s < *best_s)
        *best_s = s;
    return CHEX_OK;
}

static enum chex_status run_trial(struct trial *t, const struct cuda_kernel *candidates, int count,
                                  int *best_out, struct chex_error *err) {
    bool left_out[CUDA_CANDIDATES] = {false}, has_first = false;
    double seconds[CUDA_CANDIDATES] = {0};
    for (int i = 0; i < count; i++) {
        CHEX_TRY(failed(t, &candidates[i],
                        try_candidate(t, &candidates[i], has_first, &left_out[i], err), err));
        has_first = has_first || !left_out[i];
    }
    double least = 0; /* of the first round */
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < count; i++)
            if (!left_out[i] && (round == 0 || seconds[i] <= hopeless * least))
                CHEX_TRY(failed(
                    t, &candidates[i],
                    time_round(t, &candidates[i], round ? LAUNCHES : 1, &seconds[i], err), err));
        for (int i = 0; i < count && round == 0; i++)
            if (seconds[i] > 0 && (least <= 0 || seconds[i] < least))
                least = seconds[i];
    }
    const int best = chex_cuda_fastest(seconds, count);
    *best_out = best >= 0 ? best : 0;
    for (int i = 0; i < count; i++) {
        char name[CUDA_CANDIDATE_BYTES];
        chex_cuda_candidate_text(&candidates[i], t->backward, name);
        chex_debug("cuda: %s of %s by %s: %.1f us%s", t->backward ? "backward" : "forward",
                   t->e->net->ops[t->op].name, name, 1e6 * seconds[i],
                   i == *best_out ? ", chosen" : "");
    }
    return CHEX_OK;
}

enum chex_status chex_cuda_measure(struct cuda_engine *e, int op, bool backward,
                                   const struct cuda_kernel *candidates, int count, int *best_out,
                                   struct chex_error *err) {
    CHEX_AUTO(trial_release) struct trial t;
    CHEX_TRY(trial_make(e, op, backward, &t, err));
    return run_trial(&t, candidates, count, best_out, err);
}
