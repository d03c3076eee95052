/* SPDX-License-Identifier: Apache-2.0
 *
 * Whole networks on two engines: one pass, one inference, one update, and how far apart they are.
 * For the test programs of an engine.
 */
#ifndef CHEX_TESTS_OP_NET_H
#define CHEX_TESTS_OP_NET_H

#include "op/engine_test.h"

enum { SEED = 7 };

struct outcome {
    struct chex_pass_result result;
    float *grad, *logits, *state; /* row-major; state after one update */
};

static void fill_batch(const struct setting *s, float *pixels, int8_t *labels) {
    size_t area = (size_t)s->size * (size_t)s->size;
    for (size_t i = 0; i < (size_t)s->n * area; i++) {
        /* Smooth blobs and noise, different in each image. */
        double x = (double)(i % area % (size_t)s->size), y = (double)(i % area / (size_t)s->size);
        double wave = sin(0.13 * x + (double)(i / area)) * cos(0.09 * y);
        float noise = chex_rng_unit(chex_rng(SEED, CHEX_RNG_TEST, 1, (uint32_t)i).v[0]);
        pixels[i] = (float)(0.5 + 0.3 * wave) + 0.2f * (noise - 0.5f);
    }
    for (size_t i = 0; i < (size_t)s->n * CLASSES; i++)
        labels[i] = (int8_t)((int)(chex_rng(SEED, CHEX_RNG_TEST, 2, (uint32_t)i).v[0] % 4) - 1) > 0;
    labels[1] = -1;
}
/* The batch of a setting in memory of its own. */
static inline struct chex_batch make_batch(const struct setting *s) {
    float *pixels = test_floats((size_t)(s->n * s->size * s->size));
    int8_t *labels = test_alloc((size_t)s->n * CLASSES, 1);
    fill_batch(s, pixels, labels);
    return (struct chex_batch){s->n, pixels, labels};
}
static inline void free_batch(const struct chex_batch *b) {
    free((void *)b->pixels);
    free((void *)b->labels);
}

/* Scales near 1, shifts near 0 and running statistics that are not the initial ones: equal values
 * would hide a mistaken index. */
static float *make_state(const struct chex_net *net) {
    float *state = test_floats(net->state_count);
    chex_net_init_state(net, SEED, 1, state);
    for (int i = 0; i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        for (size_t k = 0; k < p->count; k++) {
            float u =
                chex_rng_unit(chex_rng(SEED, CHEX_RNG_TEST, 3 + (uint64_t)i, (uint32_t)k).v[0]);
            /* The last norm of a residual block is small, as in trained networks; without that
             * the sums grow from block to block and gradients drown in rounding. */
            if (strstr(p->name, "bn3.weight"))
                state[p->offset + k] = 0.1f + 0.1f * u;
            else if (p->kind == CHEX_PARAM_BN_WEIGHT || p->kind == CHEX_PARAM_BN_VAR)
                state[p->offset + k] = 0.7f + 0.6f * u;
            else if (p->rank == 1)
                state[p->offset + k] = 0.2f * (u - 0.5f);
        }
    }
    return state;
}

static void check_ready(void *arg, size_t from, size_t to) {
    size_t *next = arg; /* [0]: where the next range must end; [1]: calls in order */
    next[1] += next[1] != SIZE_MAX && to == next[0];
    next[1] = to == next[0] ? next[1] : SIZE_MAX;
    next[0] = from;
}

/* The batch statistics come first, then the rest from the end to the start. */
static void ready(void *arg, size_t from, size_t to) {
    size_t *seen = arg;
    if (seen[2]++ == 0)
        seen[1] = from == seen[0] && to == seen[3];
    else
        check_ready(arg, from, to);
}

/* The mean of an image's class maps is its logits. 1e-5 of the largest value: means and products
 * are made in another order, in fp32 by some engines. */
static void check_class_maps(const char *spec, struct chex_engine *e, const struct setting *s,
                             const float *logits) {
    struct chex_error err = {0};
    const struct chex_net *net = e->config.net;
    int *hw = test_alloc((size_t)net->buffer_count, sizeof *hw);
    BAIL_UNLESS(chex_net_shapes(net, s->size, hw, &err) == CHEX_OK, "shapes");
    const size_t side = (size_t)hw[net->ops[net->op_count - 1].in], positions = side * side;
    float *maps = test_floats(positions * CLASSES);
    double worst = 0, spread = 0;
    for (int i = 0; i < s->n; i++) {
        double sum[CLASSES] = {0}, most = 0;
        BAIL_UNLESS(chex_engine_class_maps(e, i, maps, &err) == CHEX_OK, "%s", err.text);
        for (size_t k = 0; k < positions * CLASSES; k++) {
            sum[k % CLASSES] += (double)maps[k] / (double)positions;
            most = fmax(most, fabs((double)maps[k]));
            spread = fmax(spread, fabs((double)(maps[k] - maps[k % CLASSES])));
        }
        for (size_t c = 0; c < CLASSES; c++)
            worst = fmax(worst, fabs(sum[c] - (double)logits[(size_t)i * CLASSES + c]) / most);
    }
    OK(worst < 1e-5 && (spread > 0) == (positions > 1),
       "%s: the mean of %zu x %zu class maps is the logits, within %.1e", spec, side, side, worst);
    OK_STATUS(chex_engine_class_maps(e, s->batch, maps, &err), CHEX_E_FAIL, err, "expected 0 to");
    free(maps);
    free(hw);
}

/* The head's linear layer on the pooled features gives the logits. 1e-5 of the largest product:
 * sums are made in another order, in fp32 by some engines. */
static void check_features(const char *spec, struct chex_engine *e, const struct setting *s,
                           const float *state, const float *logits) {
    struct chex_error err = {0};
    const struct chex_net *net = e->config.net;
    const struct chex_op *head = &net->ops[net->op_count - 1];
    const size_t count = (size_t)head->in_channels;
    const float *w = state + net->params[head->weight].offset;
    const float *bias = state + net->params[head->bias].offset;
    float *features = test_floats((size_t)s->n * count);
    double worst = 0;
    BAIL_UNLESS(chex_engine_features(e, s->n, features, &err) == CHEX_OK, "%s", err.text);
    for (size_t i = 0; i < (size_t)s->n * CLASSES; i++) {
        const float *x = features + i / CLASSES * count, *v = w + i % CLASSES * count;
        double sum = (double)bias[i % CLASSES], most = fabs(sum);
        for (size_t k = 0; k < count; k++) {
            sum += (double)x[k] * (double)v[k];
            most = fmax(most, fabs((double)x[k] * (double)v[k]));
        }
        worst = fmax(worst, fabs(sum - (double)logits[i]) / fmax(most, fabs(sum)));
    }
    OK(worst < 1e-5, "%s: the head on the pooled features gives the logits, within %.1e", spec,
       worst);
    OK_STATUS(chex_engine_features(e, s->batch + 1, features, &err), CHEX_E_FAIL, err,
              "expected 1 to");
    free(features);
}

static void run(const char *spec, const struct setting *s, const struct chex_net *net,
                const float *state, int threads, struct outcome *out) {
    struct chex_error err = {0};
    struct chex_engine_config config = test_config(net, s);
    const struct chex_batch batch = make_batch(s);
    config.threads = threads;
    out->grad = test_floats(net->state_count);
    out->state = test_floats(net->state_count);
    out->logits = test_floats((size_t)s->n * CLASSES);
    struct chex_engine *e = test_engine(spec, &config, state);
    float *grad = test_grad(e);
    test_infer(e, &batch, out->logits);
    check_class_maps(spec, e, s, out->logits);
    check_features(spec, e, s, state, out->logits);
    size_t seen[4] = {net->param_count, 0, 0, net->state_count};
    BAIL_UNLESS(chex_engine_pass(e, &batch, grad, ready, seen, &out->result, &err) == CHEX_OK, "%s",
                err.text);
    OK(seen[0] == 0 && seen[1] != SIZE_MAX && seen[1] > 0 && seen[2] > 2,
       "%s tells each gradient range once, from the end (%zu ranges)", spec, seen[2]);
    BAIL_UNLESS(e->impl->grad_get(e->self, grad, out->grad, &err) == CHEX_OK, "%s", err.text);
    const struct chex_update u = {.optim = CHEX_SGD,
                                  .lr = 0.01,
                                  .weight_decay = 1e-4,
                                  .decay_norms = true,
                                  .momentum = 0.9,
                                  .step = 1,
                                  .grad_scale = 1};
    test_update(e, &u, grad);
    test_get(e, CHEX_STATE_PARAMS, out->state);
    chex_engine_grad_free(e, grad);
    chex_engine_destroy(e);
    free_batch(&batch);
}

static void release(struct outcome *o) {
    free(o->grad);
    free(o->logits);
    free(o->state);
}

static double cosine(const float *a, const float *b, size_t count) {
    double ab = 0, aa = 0, bb = 0;
    for (size_t i = 0; i < count; i++) {
        ab += (double)a[i] * (double)b[i];
        aa += (double)a[i] * (double)a[i];
        bb += (double)b[i] * (double)b[i];
    }
    return ab / sqrt(aa * bb);
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The relative errors of the parameters (or of the running statistics): their median and, in
 * largest_out, the largest. */
static inline double spread(const struct chex_net *net, const float *a, const float *b,
                            bool running, double *largest_out) {
    double *each = test_alloc((size_t)net->param_total, sizeof *each);
    size_t count = 0;
    for (int i = 0; i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        if ((p->offset >= net->param_count) == running)
            each[count++] = rel_l2(a + p->offset, b + p->offset, p->count);
    }
    qsort(each, count, sizeof *each, by_size);
    double median = each[count / 2];
    *largest_out = each[count - 1];
    free(each);
    return median;
}

static inline bool same(const struct chex_net *net, const struct outcome *a,
                        const struct outcome *b, int n) {
    size_t state = net->state_count * sizeof(float);
    return memcmp(a->grad, b->grad, state) == 0 && memcmp(a->state, b->state, state) == 0 &&
           memcmp(a->logits, b->logits, (size_t)n * CLASSES * sizeof(float)) == 0 &&
           a->result.loss == b->result.loss;
}

/* An engine against ref: logits, loss, gradients, statistics and one update. */
static inline void against_ref(const char *spec, const struct setting *s) {
    struct chex_net *net = small_net(s->model, CLASSES);
    float *state = make_state(net);
    struct outcome ref, own;
    struct setting rounded = *s; /* ref knows bf16 alone */
    rounded.precision = s->precision == CHEX_FP16 ? CHEX_BF16 : s->precision;
    run("ref", &rounded, net, state, 2, &ref);
    run(spec, s, net, state, 2, &own);
    bool half = s->precision == CHEX_BF16 || s->precision == CHEX_FP16;
    char what[96];
    snprintf(what, sizeof what, "%s %s %d px n %d %s", spec, s->model, s->size, s->n,
             chex_precision_names[s->precision]);
    double logits = rel_l2(own.logits, ref.logits, (size_t)s->n * CLASSES);
    double loss = fabs(own.result.loss - ref.result.loss) / fabs(ref.result.loss);
    double most, median = spread(net, own.grad, ref.grad, false, &most);
    double c = cosine(own.grad, ref.grad, net->param_count);
    if (half) {
        /* Both round what they store, but not at the same places (the stem's image, the summands
         * of gradients), and each place opens ReLUs that the other does not; so small a batch's
         * gradient is half noise in either. What can be asked: this engine is no further from fp32
         * than ref's bf16 is. The op tests ask for more. */
        struct setting exact = *s;
        exact.precision = CHEX_FP32;
        struct outcome fp32;
        run("ref", &exact, net, state, 2, &fp32);
        double ours = cosine(own.grad, fp32.grad, net->param_count);
        double refs = cosine(ref.grad, fp32.grad, net->param_count);
        OK(logits < 3e-2 && loss < 2e-2, "%s: logits within %.1e, loss within %.1e", what, logits,
           loss);
        OK(ours > refs - 0.03,
           "%s: gradients' cosine with fp32 %.4f (ref's: %.4f; each other's: %.4f)", what, ours,
           refs, c);
        release(&fp32);
    } else {
        /* Logits: roundings only. Gradients: a ReLU that one rounding opens moves every gradient
         * before it by some 1e-3 to 1e-2 with maps this small; a few of them are met by chance,
         * and a change by d turns the gradient by d * d / 2. */
        OK(logits < 1e-5 && loss < 1e-5, "%s: logits within %.1e, loss within %.1e", what, logits,
           loss);
        OK(c > 1 - 3e-2 * 3e-2 / 2 && median < 3e-2 && most < 0.1,
           "%s: gradients within %.1e, median %.1e, cosine %.7f", what, most, median, c);
        median = spread(net, own.grad, ref.grad, true, &most);
        OK(most < 1e-3, "%s: batch statistics within %.1e, median %.1e", what, most, median);
        median = spread(net, own.state, ref.state, false, &most);
        OK(median < 1e-3 && most < 1e-2, "%s: updated parameters within %.1e, median %.1e", what,
           most, median);
    }
    release(&ref);
    release(&own);
    free(state);
    chex_net_destroy(net);
}

#endif
