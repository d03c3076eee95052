/* SPDX-License-Identifier: Apache-2.0
 *
 * Frozen parameters, a moving average and the focal loss in one training, with all that runs beside
 * each other on the device: captured graphs, dependent launches and the second stream. Backward
 * ends early, and among its trained convolutions there are frozen ones.
 */
#include "gpu/gpu_test.h"
#include "op/net.h"

enum { STEPS = 1 };

#ifdef CHEX_GPU_EMULATED
static const struct setting setting = {"densenet_tiny", 32, 1, 1, CHEX_BF16};
#else
static const struct setting setting = {"densenet121", 32, 1, 1, CHEX_BF16};
#endif

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

static struct training train(const char *const settings[][2], const struct setting *s,
                             const struct chex_net *net, const double *scales) {
    struct chex_error err = {0};
    struct training t = {.state = make_state(net),
                         .ema = test_floats(net->state_count),
                         .grad = test_floats(net->state_count)};
    struct chex_engine_config config = test_config(net, s);
    config.lr_scales = scales;
    config.ema_decay = 0.5;
    config.loss =
        (struct chex_loss){.kind = CHEX_LOSS_FOCAL, .gamma_pos = 2, .gamma_neg = 2, .alpha = -1};
    const struct chex_batch batch = make_batch(s);
    test_settings(settings, true);
    struct chex_engine *e = test_engine("cuda:s4", &config, t.state);
    float *grad = test_grad(e);
    test_set(e, CHEX_STATE_EMA, t.state);
    for (int i = 0; i < STEPS; i++) {
        const struct chex_update u = {.optim = CHEX_SGD,
                                      .lr = 0.01,
                                      .weight_decay = 0.01,
                                      .momentum = 0.9,
                                      .clip_norm = 0.1,
                                      .step = i + 1,
                                      .grad_scale = 1};
        t.loss[i] = test_pass(e, &batch, grad, t.grad).loss;
        test_update(e, &u, grad);
    }
    BAIL_UNLESS(e->impl->grad_norms(e->self, &t.norms, &err) == CHEX_OK, "%s", err.text);
    test_get(e, CHEX_STATE_PARAMS, t.state);
    test_get(e, CHEX_STATE_EMA, t.ema);
    chex_engine_grad_free(e, grad);
    chex_engine_destroy(e);
    free_batch(&batch);
    test_settings(settings, false);
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
    OK(pulled == 0 && moved == 0 && averaged == 0 && trained > 10000,
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
    /* Streams that are late show a wait that is missing. */
    const char *const late[][2] = {{"EMULATED_STREAMS", "late"}, {NULL, NULL}};
    const char *const plain[][2] = {{"CHEX_CUDA_GRAPHS", "0"},
                                    {"CHEX_CUDA_DEPENDENT", "0"},
                                    {"CHEX_CUDA_SIDE", "0"},
                                    {NULL, NULL}};
    struct training with = train(late, &setting, net, scales),
                    without = train(plain, &setting, net, scales);
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
    struct chex_net *net = small_net(setting.model, CLASSES);
    double *scales = test_alloc((size_t)net->param_total, sizeof *scales);
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
