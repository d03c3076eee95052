/* SPDX-License-Identifier: Apache-2.0
 *
 * Batch norm over all logical ranks (engine/sync.h). Several engines, one thread each, pass parts
 * of a batch. Their mean gradient, statistics and loss must be those of one engine with the whole
 * batch; on a small network they must also agree with finite differences of the summed losses.
 *
 * Bounds. Means and variances are double in ref and agree to about 1e-15, so few activations differ
 * after their rounding to fp32. The gradients of the parts are rounded to fp32 before they are
 * added: 6e-8 of the sum of magnitudes. So ref stays below 1e-6. The cpu engine keeps statistics in
 * fp32 and cuts another batch into other tiles: 2e-6 of the gradients were measured, and 6e-3 with
 * the generic kernels, where one rounding opens a ReLU of the last, small maps. In bf16 the
 * gradients of whole networks are half noise (op/net.h); statistics and loss count.
 */
#include <pthread.h>

#include "launch/coll.h"
#include "launch/rank_sum.h"
#include "op/net.h"
#include "tiny_net.h"
#include "train/sync_bn.h"

enum { MAX_V = 4, SIZE = 33 };

struct player {
    struct chex_engine *e;
    struct chex_engine_sync sync;
    struct chex_rank_sum *sum;
    int v, sums; /* of all passes */
    uint64_t sum_bytes;
    struct chex_batch batch;
    float *grad;
    struct chex_pass_result result;
    enum chex_status st;
    struct chex_error err;
};

static enum chex_status sum_of(void *arg, double *values, size_t count, struct chex_error *err) {
    struct player *p = arg;
    p->sums++;
    p->sum_bytes += count * sizeof *values;
    return chex_rank_sum_add(p->sum, p->v, values, count, err);
}

static void *play(void *arg) {
    struct player *p = arg;
    p->st = chex_engine_pass(p->e, &p->batch, p->grad, NULL, NULL, &p->result, &p->err);
    return NULL;
}

struct team {
    int V;
    struct chex_coll coll;
    struct chex_rank_sum *sum;
    struct player player[MAX_V];
};

/* V engines of `s`, whose batch is that of one logical rank. */
static void make_team(struct team *t, const char *spec, const struct setting *s,
                      const struct chex_net *net, const float *state, int V, int threads) {
    struct chex_error err = {0};
    *t = (struct team){.V = V, .coll = {.impl = &chex_coll_self, .size = 1}};
    BAIL_UNLESS(chex_rank_sum_create(&t->coll, V, 4096, &t->sum, &err) == CHEX_OK, "%s", err.text);
    for (int v = 0; v < V; v++) {
        struct player *p = &t->player[v];
        p->sum = t->sum;
        p->v = v;
        p->sync = (struct chex_engine_sync){V, sum_of, p};
        struct chex_engine_config config = test_config(net, s);
        config.threads = threads;
        config.sync = V > 1 ? &p->sync : NULL;
        p->e = test_engine(spec, &config, state);
        p->grad = test_grad(p->e);
    }
}

static void end_team(struct team *t) {
    for (int v = 0; v < t->V; v++) {
        chex_engine_grad_free(t->player[v].e, t->player[v].grad);
        chex_engine_destroy(t->player[v].e);
    }
    chex_rank_sum_destroy(t->sum);
}

/* Cuts a batch of V * n images into parts, and passes them at the same time. */
static void pass_all(struct team *t, int n, int size, int classes, const float *pixels,
                     const int8_t *labels) {
    pthread_t thread[MAX_V];
    for (int v = 0; v < t->V; v++) {
        const size_t first = (size_t)v * (size_t)n;
        t->player[v].batch = (struct chex_batch){n, pixels + first * (size_t)(size * size),
                                                 labels + first * (size_t)classes};
        BAIL_UNLESS(pthread_create(&thread[v], NULL, play, &t->player[v]) == 0, "thread");
    }
    for (int v = 0; v < t->V; v++)
        pthread_join(thread[v], NULL);
}

/* The mean over the parts, in row-major order; returns the mean loss. */
static double mean_of(const struct team *t, const struct chex_net *net, float *grad_out) {
    struct chex_error err = {0};
    double loss = 0, *sum = test_alloc(net->state_count, sizeof *sum);
    float *one = test_floats(net->state_count);
    for (int v = 0; v < t->V; v++) {
        const struct player *p = &t->player[v];
        BAIL_UNLESS(p->st == CHEX_OK, "pass: %s", p->err.text);
        BAIL_UNLESS(p->e->impl->grad_get(p->e->self, p->grad, one, &err) == CHEX_OK, "grad_get");
        loss += p->result.loss / t->V;
        for (size_t i = 0; i < net->state_count; i++)
            sum[i] += (double)one[i] / t->V;
    }
    for (size_t i = 0; i < net->state_count; i++)
        grad_out[i] = (float)sum[i];
    free(sum);
    free(one);
    return loss;
}

/* ---- parts of a batch against the whole ---- */

static void check_parts(const char *spec, const char *model, enum chex_precision precision, int V,
                        int n, double grad_bound, double bound) {
    const struct setting all = {model, SIZE, V * n, V * n, precision};
    const struct setting part = {model, SIZE, n, n, precision};
    struct chex_net *net = small_net(model, CLASSES);
    struct team whole, parts;
    float *state = make_state(net);
    const struct chex_batch batch = make_batch(&all);
    float *want = test_floats(net->state_count), *got = test_floats(net->state_count);
    float *more = test_floats(net->state_count);
    make_team(&whole, spec, &all, net, state, 1, 2);
    pass_all(&whole, V * n, SIZE, CLASSES, batch.pixels, batch.labels);
    const double want_loss = mean_of(&whole, net, want);
    end_team(&whole);
    make_team(&parts, spec, &part, net, state, V, 1);
    pass_all(&parts, n, SIZE, CLASSES, batch.pixels, batch.labels);
    const double got_loss = mean_of(&parts, net, got);
    if (strcmp(spec, "cpu") == 0) {
        int sums;
        uint64_t bytes;
        chex_sync_bn_sums(net, &sums, &bytes);
        OK(parts.player[0].sums == sums && parts.player[0].sum_bytes == bytes,
           "cpu %s: a pass makes the %d sums of %llu bytes that the plan for a cluster counts",
           model, sums, (unsigned long long)bytes);
    }
    end_team(&parts);
    const size_t trained = net->param_count, running = net->state_count - trained;
    const double grads = rel_l2(got, want, trained);
    const double stats = rel_l2(got + trained, want + trained, running);
    const double loss = fabs(got_loss - want_loss) / want_loss;
    OK(grads < grad_bound && stats < bound && loss < bound,
       "%s %s %s: %d parts of %d images are one batch: gradients %.1e, statistics %.1e, loss %.1e",
       spec, model, chex_precision_names[precision], V, n, grads, stats, loss);

    make_team(&parts, spec, &part, net, state, V, 3);
    pass_all(&parts, n, SIZE, CLASSES, batch.pixels, batch.labels);
    mean_of(&parts, net, more);
    end_team(&parts);
    OK(memcmp(got, more, net->state_count * sizeof *got) == 0,
       "%s %s: three threads of each part give the bits of one", spec, model);
    free(state);
    free_batch(&batch);
    free(want);
    free(got);
    free(more);
    chex_net_destroy(net);
}

/* ---- finite differences ---- */

static double sum_of_losses(struct team *t, int n, const float *pixels, const int8_t *labels,
                            const float *state) {
    double loss = 0;
    for (int v = 0; v < t->V; v++)
        test_set(t->player[v].e, CHEX_STATE_PARAMS, state);
    pass_all(t, n, 32, 3, pixels, labels);
    for (int v = 0; v < t->V; v++)
        loss += t->player[v].result.loss;
    return loss;
}

/* Steps of 2^-8 leave 2^-16 / 6 of a third derivative of order 10 and 1e-7 / 2^-8 of rounding:
 * below 1e-3 of the largest gradient, except where a ReLU opens or closes: the median counts. */
static void check_differences(void) {
    enum { V = 2, N = 2, PX = 32 };
    const struct setting s = {"tiny", PX, N, N, CHEX_FP32};
    struct chex_net *net = tiny_net(3);
    struct team t;
    float pixels[V * N * PX * PX];
    int8_t labels[V * N * 3];
    double off[512];
    size_t count = 0;
    float *state = make_state(net), *grad = test_floats(net->state_count);
    for (size_t i = 0; i < sizeof pixels / sizeof pixels[0]; i++) /* a part is darker */
        pixels[i] = chex_rng_unit(chex_rng(SEED, CHEX_RNG_TEST, 9, (uint32_t)i).v[0]) *
                    (i < sizeof pixels / sizeof pixels[0] / 2 ? 0.3f : 1.0f);
    for (size_t i = 0; i < sizeof labels; i++)
        labels[i] = (int8_t)(i % 5 == 0 ? -1 : (int)(i % 2));
    make_team(&t, "ref", &s, net, state, V, 1);
    (void)sum_of_losses(&t, N, pixels, labels, state);
    mean_of(&t, net, grad);
    double largest = 0;
    for (size_t i = 0; i < net->param_count; i++)
        largest = fmax(largest, fabs(V * (double)grad[i]));
    for (size_t i = 0; i < net->param_count && count < 512; i++) {
        const float old = state[i], up = old + 0x1p-8f, down = old - 0x1p-8f;
        state[i] = up;
        const double above = sum_of_losses(&t, N, pixels, labels, state);
        state[i] = down;
        const double below = sum_of_losses(&t, N, pixels, labels, state);
        state[i] = old;
        const double slope = (above - below) / ((double)up - (double)down);
        off[count++] = fabs(slope - V * (double)grad[i]) / largest;
    }
    qsort(off, count, sizeof *off, by_size);
    OK(off[count / 2] < 1e-3 && off[count * 9 / 10] < 1e-2,
       "ref: finite differences of the summed losses agree: median %.1e, nine tenths %.1e of %zu",
       off[count / 2], off[count * 9 / 10], count);
    end_team(&t);
    free(state);
    free(grad);
    chex_net_destroy(net);
}

/* ---- by hand ---- */

/* A stand-in for the sum of two logical ranks: the other one's values are known. */
static enum chex_status add_other(void *arg, double *values, size_t count, struct chex_error *err) {
    const double *other = arg;
    (void)err;
    for (size_t i = 0; i < count; i++)
        values[i] += other[i];
    return CHEX_OK;
}

static enum chex_status refuse(void *arg, double *values, size_t count, struct chex_error *err) {
    (void)arg, (void)values, (void)count;
    return chex_error_set(err, CHEX_E_LOST, "the other rank is gone");
}

static void check_by_hand(void) {
    struct chex_error err = {0};
    /* One rank has 1 and 3 (mean 2, variance 1), the other 5 and 11 (8 and 9): together mean 5 and
     * variance (16 + 4 + 0 + 36) / 4 = 14. */
    double other[2] = {8, 9 + 64}, mine[2] = {2, 1};
    struct chex_engine_sync sync = {2, add_other, other};
    OK(chex_sync_moments(&sync, mine, 1, &err) == CHEX_OK && mine[0] == 5 && mine[1] == 14,
       "mean and variance of two parts are those of all values: %g, %g", mine[0], mine[1]);
    double same_as[2] = {1e4, 1e8}, constant[2] = {1e4, 0};
    sync.arg = same_as;
    OK(chex_sync_moments(&sync, constant, 1, &err) == CHEX_OK && constant[1] == 0,
       "the variance of a constant channel is 0 and never below");
    double nan[2] = {NAN, 1};
    OK(chex_sync_moments(&sync, nan, 1, &err) == CHEX_OK && isnan(nan[0]) && isnan(nan[1]),
       "a value that is not a number stays one");
    double alone[2] = {3, 7};
    OK(chex_sync_moments(NULL, alone, 1, &err) == CHEX_OK && alone[0] == 3 && alone[1] == 7 &&
           chex_sync_ranks(NULL) == 1,
       "without other ranks nothing changes");
}

/* An error in a sum ends the pass with it: in the forward pass at once. */
static void check_lost(const char *spec) {
    const struct setting s = {SMALL_DENSENET, 32, 1, 1, CHEX_FP32};
    struct chex_net *net = small_net(s.model, CLASSES);
    struct team t;
    float pixels[2 * 32 * 32] = {0};
    int8_t labels[2 * CLASSES] = {0};
    float *state = make_state(net);
    make_team(&t, spec, &s, net, state, 2, 1);
    for (int v = 0; v < 2; v++)
        t.player[v].sync.sum = refuse;
    pass_all(&t, 1, 32, CLASSES, pixels, labels);
    OK(t.player[0].st == CHEX_E_LOST && strstr(t.player[0].err.text, "is gone"),
       "%s: an error in a sum ends the pass: %s", spec, t.player[0].err.text);
    end_team(&t);
    free(state);
    chex_net_destroy(net);
}

int main(void) {
    check_by_hand();
    check_lost("ref");
    check_lost("cpu");
    check_differences();
    check_parts("ref", SMALL_DENSENET, CHEX_FP32, 2, 2, 1e-6, 1e-6);
    check_parts("cpu", SMALL_DENSENET, CHEX_FP32_STRICT, 3, 2, 2e-2, 1e-5);
    check_parts("cpu", SMALL_RESNET, CHEX_FP32, 4, 2, 2e-2, 1e-5);
    check_parts("cpu", SMALL_DENSENET, CHEX_BF16, 2, 3, 0.3, 2e-3);
    return tap_done();
}
