/* SPDX-License-Identifier: Apache-2.0
 *
 * Frozen parameters, a moving average and the focal loss in one training, with all that runs beside
 * each other on the device: captured graphs, dependent launches and the second stream. Backward
 * ends early, and among its trained convolutions there are frozen ones.
 */
#include "gpu/gpu_test.h"
#include "op/net.h"

enum { STEPS = 1 };

struct training {
    double loss[STEPS];
    struct chex_grad_norms norms;
    float *state, *ema, *grad;
};

/* All before dense block 4, and some of its convolutions. One of these is the last operation of
 * backward: the sum of its parts is still under way when its gradient is zeroed. */
static bool is_frozen(const struct chex_param *p) {
    if (strstr(p->name, "denseblock4"))
        return strstr(p->name, "denselayer1.conv1") || strstr(p->name, "2.conv");
    return !strstr(p->name, "norm5") && p->kind != CHEX_PARAM_FC_WEIGHT;
}

static void set_all(const char *const settings[][2], bool on) {
    for (int i = 0; settings[i][0]; i++)
        if (on)
            setenv(settings[i][0], settings[i][1], 1);
        else
            unsetenv(settings[i][0]);
}

static struct training train(const char *const settings[][2], const struct setting *s,
                             const struct chex_net *net, const double *scales) {
    struct chex_error err = {0};
    struct chex_engine *e = NULL;
    struct training t = {.state = make_state(net)};
    const struct chex_engine_config config = {
        .net = net,
        .image_size = s->size,
        .batch = s->batch,
        .precision = s->precision,
        .threads = 1,
        .training = true,
        .lr_scales = scales,
        .ema_decay = 0.5,
        .loss = {.kind = CHEX_LOSS_FOCAL, .gamma_pos = 2, .gamma_neg = 2, .alpha = -1}};
    float pixels[32 * 32];
    int8_t labels[CLASSES];
    fill_batch(s, pixels, labels);
    const struct chex_batch batch = {s->n, pixels, labels};
    t.ema = chex_alloc_zeroed(net->state_count, sizeof *t.ema);
    t.grad = chex_alloc_zeroed(net->state_count, sizeof *t.grad);
    BAIL_UNLESS(t.ema && t.grad, "out of memory");
    set_all(settings, true);
    BAIL_UNLESS(chex_engine_create("cuda:s4", &config, &e, &err) == CHEX_OK, "%s", err.text);
    float *grad = chex_engine_grad_alloc(e);
    BAIL_UNLESS(grad && chex_engine_set(e, CHEX_STATE_PARAMS, t.state, &err) == CHEX_OK &&
                    chex_engine_set(e, CHEX_STATE_EMA, t.state, &err) == CHEX_OK,
                "%s", err.text);
    for (int i = 0; i < STEPS; i++) {
        struct chex_pass_result r;
        const struct chex_update u = {.optim = CHEX_SGD,
                                      .lr = 0.01,
                                      .weight_decay = 0.01,
                                      .momentum = 0.9,
                                      .clip_norm = 0.1,
                                      .step = i + 1,
                                      .grad_scale = 1};
        BAIL_UNLESS(chex_engine_pass(e, &batch, grad, NULL, NULL, &r, &err) == CHEX_OK &&
                        e->impl->grad_get(e->self, grad, t.grad, &err) == CHEX_OK &&
                        chex_engine_update(e, &u, grad, &err) == CHEX_OK,
                    "step %d: %s", i + 1, err.text);
        t.loss[i] = r.loss;
    }
    BAIL_UNLESS(e->impl->grad_norms(e->self, &t.norms, &err) == CHEX_OK &&
                    chex_engine_get(e, CHEX_STATE_PARAMS, t.state, &err) == CHEX_OK &&
                    chex_engine_get(e, CHEX_STATE_EMA, t.ema, &err) == CHEX_OK,
                "%s", err.text);
    chex_engine_grad_free(e, grad);
    chex_engine_destroy(e);
    set_all(settings, false);
    return t;
}

/* Counts frozen elements with a gradient, moved frozen elements, and those whose average moved. */
static void stays(const struct chex_net *net, const struct training *t) {
    float *first = make_state(net);
    size_t pulled = 0, moved = 0, averaged = 0, trained = 0;
    for (int i = 0; i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        for (size_t k = p->offset; p->offset < net->param_count && k < p->offset + p->count; k++) {
            const bool frozen = is_frozen(p);
            pulled += frozen && t->grad[k] != 0;
            moved += frozen && t->state[k] != first[k];
            averaged += frozen && t->ema[k] != first[k];
            trained += !frozen && t->state[k] != first[k] && t->ema[k] != t->state[k];
        }
    }
    OK(pulled == 0 && moved == 0 && averaged == 0 && trained > 1000000,
       "frozen elements have no gradient (%zu have one) and stay, and so does their average",
       pulled);
    free(first);
}

static void free_training(struct training *t) {
    free(t->state);
    free(t->ema);
    free(t->grad);
}

static void with_and_without(const struct chex_net *net, const double *scales) {
    static const struct setting s = {"densenet121", 32, 1, 1, CHEX_BF16};
    /* Streams that are late show a wait that is missing. */
    const char *const late[][2] = {{"EMULATED_STREAMS", "late"}, {NULL, NULL}};
    const char *const plain[][2] = {{"CHEX_CUDA_GRAPHS", "0"},
                                    {"CHEX_CUDA_DEPENDENT", "0"},
                                    {"CHEX_CUDA_SIDE", "0"},
                                    {NULL, NULL}};
    struct training with = train(late, &s, net, scales), without = train(plain, &s, net, scales);
    const size_t bytes = net->state_count * sizeof(float);
    stays(net, &with);
    OK(memcmp(with.loss, without.loss, sizeof with.loss) == 0 &&
           memcmp(&with.norms, &without.norms, sizeof with.norms) == 0 &&
           memcmp(with.grad, without.grad, bytes) == 0 &&
           memcmp(with.state, without.state, bytes) == 0 &&
           memcmp(with.ema, without.ema, bytes) == 0,
       "dependent launches and the second stream change no bit of losses, gradient, norms, "
       "parameters and average");
    free_training(&with);
    free_training(&without);
}

int main(void) {
    struct chex_error err = {0};
    struct chex_net *net = NULL;
    BAIL_UNLESS(chex_net_create("densenet121", CLASSES, &net, &err) == CHEX_OK, "%s", err.text);
    double *scales = chex_alloc_zeroed((size_t)net->param_total, sizeof *scales);
    BAIL_UNLESS(scales, "out of memory");
    for (int i = 0; i < net->param_total; i++)
        scales[i] = is_frozen(&net->params[i]) ? 0 : 1;
#if TAP_SLOW_BUILD
    printf("# slow build: no training\n");
    (void)with_and_without;
#else
    with_and_without(net, scales);
#endif
    free(scales);
    chex_net_destroy(net);
    return tap_done();
}
