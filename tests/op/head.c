/* SPDX-License-Identifier: Apache-2.0
 *
 * The engine `head` (engine/ref/head_engine.h) against the engine ref, to the last bit.
 *
 * A pass of ref keeps its pooled features. The classifier's part of its gradient, its loss and, in
 * inference, its logits are those of `head` with these features, for every loss. So are updates of
 * the classifier in a ref engine whose other parameters are frozen. With clipping the sums of
 * squares are added in another order, so the norms may differ by some 1e-16 of themselves.
 */
#include "engine/ref/head_engine.h"
#include "engine/update.h"
#include "op/engine_test.h"
#include "tiny_net.h"

enum { SEED = 7, N = 5, SIZE = 32, KINDS = 3, UPDATES = 4 };
static const float pos_weight[KINDS] = {2, 0.5F, 3}, class_weight[KINDS] = {1, 4, 0.25F};
static const float uncertain[KINDS] = {0.7F, -1, 0.25F};

struct pair {
    struct chex_net *net;
    double *scales;
    struct chex_engine *ref, *head;
    float *pixels, *features, *state, *other;
    float *ref_grad, *head_grad;
    int8_t labels[N * KINDS];
    size_t first, count; /* the classifier in a state */
};

static void fill_state(struct pair *p) {
    for (size_t i = 0; i < p->net->state_count; i++) {
        const float unit = chex_rng_unit(chex_rng(SEED, CHEX_RNG_TEST, 3, (uint32_t)i).v[0]);
        p->state[i] = i < p->net->param_count ? unit - 0.4F : unit + 0.5F;
    }
}

static void make_pair(struct pair *p, const struct chex_loss *loss, double ema) {
    struct chex_error err = {0};
    *p = (struct pair){.net = tiny_net(KINDS)};
    const size_t count = p->net->state_count;
    p->scales = test_alloc((size_t)p->net->param_total, sizeof(double));
    for (int i = 0; i < p->net->param_total; i++)
        p->scales[i] = strncmp(p->net->params[i].name, "classifier", 10) == 0;
    struct chex_engine_config c =
        test_config(p->net, &(struct setting){"tiny", SIZE, N, N, CHEX_FP32});
    c.loss = *loss;
    c.lr_scales = p->scales;
    c.ema_decay = ema;
    p->ref = test_engine("ref", &c, NULL);
    BAIL_UNLESS(chex_head_engine_create(&c, &p->head, &err) == CHEX_OK, "%s", err.text);
    p->pixels = test_floats((size_t)N * SIZE * SIZE);
    p->features = test_floats((size_t)N * 8);
    p->state = test_floats(count);
    p->other = test_floats(count);
    p->ref_grad = test_grad(p->ref);
    p->head_grad = test_grad(p->head);
    p->count = chex_head_gradients(p->net);
    p->first = p->net->param_count - p->count;
    fill_state(p);
    for (size_t i = 0; i < (size_t)N * SIZE * SIZE; i++)
        p->pixels[i] = chex_rng_unit(chex_rng(SEED, CHEX_RNG_TEST, 4, (uint32_t)i).v[0]);
    for (int i = 0; i < N * KINDS; i++)
        p->labels[i] = (int8_t)(i % 4 - 2 + (i > 7));
    for (int i = 0; i < 2; i++) {
        struct chex_engine *e = i ? p->head : p->ref;
        OK_STATUS(chex_engine_set(e, CHEX_STATE_PARAMS, p->state, &err), CHEX_OK, err, NULL);
        if (ema > 0)
            OK_STATUS(chex_engine_set(e, CHEX_STATE_EMA, p->state, &err), CHEX_OK, err, NULL);
    }
}

static void end_pair(struct pair *p) {
    chex_engine_grad_free(p->ref, p->ref_grad);
    chex_engine_grad_free(p->head, p->head_grad);
    chex_engine_destroy(p->ref);
    chex_engine_destroy(p->head);
    void *const parts[] = {p->scales, p->pixels, p->features, p->state, p->other};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        free(parts[i]);
    chex_net_destroy(p->net);
}

struct seen {
    size_t from, to;
    int calls;
};
static void ready(void *arg, size_t from, size_t to) {
    struct seen *s = arg;
    *s = (struct seen){from, to, s->calls + 1};
}

static void passes(struct pair *p, struct seen *seen, double *ref_loss, double *head_loss) {
    struct chex_error err = {0};
    struct chex_pass_result r = {0};
    const struct chex_batch images = {.n = N, .pixels = p->pixels, .labels = p->labels};
    const struct chex_batch vectors = {.n = N, .features = p->features, .labels = p->labels};
    OK_STATUS(chex_engine_pass(p->ref, &images, p->ref_grad, NULL, NULL, &r, &err), CHEX_OK, err,
              NULL);
    *ref_loss = r.loss;
    OK_STATUS(chex_engine_features(p->ref, N, p->features, &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_engine_pass(p->head, &vectors, p->head_grad, ready, seen, &r, &err), CHEX_OK,
              err, NULL);
    *head_loss = r.loss;
}

static bool same(const float *a, const float *b, size_t n) { return memcmp(a, b, n * 4) == 0; }

static void check_loss(const char *name, const struct chex_loss *loss) {
    struct pair p;
    struct chex_error err = {0};
    struct seen seen = {0};
    float a[N * KINDS], b[N * KINDS];
    double ref_loss, head_loss;
    make_pair(&p, loss, 0);
    passes(&p, &seen, &ref_loss, &head_loss);
    OK(ref_loss == head_loss && ref_loss > 0, "%s: the loss is that of ref", name);
    OK(same(p.ref_grad + p.first, p.head_grad, p.count), "%s: the gradient has the bits of ref",
       name);
    OK(seen.calls == 1 && seen.from == 0 && seen.to == p.count,
       "%s: the whole gradient is reported once", name);
    const struct chex_batch images = {.n = N, .pixels = p.pixels};
    const struct chex_batch vectors = {.n = N, .features = p.features};
    OK_STATUS(chex_engine_infer(p.ref, &images, a, &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_engine_features(p.ref, N, p.features, &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_engine_infer(p.head, &vectors, b, &err), CHEX_OK, err, NULL);
    OK(same(a, b, N * KINDS), "%s: logits have the bits of ref", name);
    OK_STATUS(chex_engine_infer(p.head, &images, b, &err), CHEX_E_FAIL, err, "expected features");
    end_pair(&p);
}

/* Whether the classifier is the same in one part of both states. */
static bool same_part(struct pair *p, enum chex_state_part part) {
    test_get(p->ref, part, p->state);
    test_get(p->head, part, p->other);
    return same(p->state + p->first, p->other + p->first, p->count);
}

static void check_updates(const char *name, struct chex_update u) {
    const struct chex_loss plain = {.kind = CHEX_LOSS_BCE};
    struct chex_error err = {0};
    struct chex_grad_norms norms[2] = {0};
    struct pair p;
    struct seen seen = {0};
    double ref_loss, head_loss;
    make_pair(&p, &plain, 0.9);
    fill_state(&p);
    for (u.step = 1; u.step <= UPDATES; u.step++) {
        passes(&p, &seen, &ref_loss, &head_loss);
        OK_STATUS(chex_engine_update(p.ref, &u, p.ref_grad, &err), CHEX_OK, err, NULL);
        OK_STATUS(chex_engine_update(p.head, &u, p.head_grad, &err), CHEX_OK, err, NULL);
    }
    OK(same_part(&p, CHEX_STATE_PARAMS) && same_part(&p, CHEX_STATE_MOMENT1) &&
           same_part(&p, CHEX_STATE_MOMENT2) && same_part(&p, CHEX_STATE_EMA),
       "%s: after %d updates the classifier, its moments and its average have the bits of ref",
       name, UPDATES);
    fill_state(&p);
    test_get(p.head, CHEX_STATE_EMA, p.other);
    OK(same(p.state, p.other, p.first) &&
           same(p.state + p.net->param_count, p.other + p.net->param_count,
                p.net->state_count - p.net->param_count),
       "%s: nothing else moves", name);
    OK_STATUS(chex_engine_grad_norms(p.ref, &norms[0], &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_engine_grad_norms(p.head, &norms[1], &err), CHEX_OK, err, NULL);
    OK(norms[0].updates == norms[1].updates &&
           fabs(norms[0].sum - norms[1].sum) <= 1e-12 * norms[0].sum,
       "%s: the norms of the gradients are those of ref", name);
    end_pair(&p);
}

int main(void) {
    check_loss("bce", &(struct chex_loss){.kind = CHEX_LOSS_BCE});
    check_loss("weights", &(struct chex_loss){.kind = CHEX_LOSS_BCE,
                                              .smoothing = 0.1,
                                              .pos_weight = pos_weight,
                                              .class_weight = class_weight,
                                              .uncertain_target = uncertain});
    check_loss("focal", &(struct chex_loss){.kind = CHEX_LOSS_FOCAL, .gamma_pos = 2, .alpha = 0.3});
    check_loss("asl", &(struct chex_loss){
                          .kind = CHEX_LOSS_ASL, .gamma_pos = 1, .gamma_neg = 4, .clip = 0.05});
    const struct chex_update adam = {.lr = 1e-2,
                                     .weight_decay = 0.1,
                                     .momentum = 0.9,
                                     .beta1 = 0.9,
                                     .beta2 = 0.999,
                                     .eps = 1e-8,
                                     .grad_scale = 0.5};
    for (enum chex_optim optim = CHEX_ADAM; chex_optim_names[optim]; optim++) {
        struct chex_update u = adam;
        u.optim = optim;
        check_updates(chex_optim_names[optim], u);
    }
    struct chex_update clipped = adam;
    clipped.clip_norm = 1e-2;
    check_updates("adam, clipped", clipped);
    struct chex_update nesterov = adam;
    nesterov.optim = CHEX_SGD;
    nesterov.nesterov = nesterov.decay_norms = true;
    check_updates("sgd with Nesterov's momentum", nesterov);
    return tap_done();
}
