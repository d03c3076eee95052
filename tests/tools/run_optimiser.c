/* SPDX-License-Identifier: Apache-2.0
 *
 * usage: run_optimiser MODEL
 *        run_optimiser MODEL OPTIMISER STEPS INPUT OUTPUT NAME=VALUE...
 * Without further arguments prints one line for each parameter: name, elements, offset, whether it
 * is trained, whether it is a weight of a convolution or the classifier, layers to the classifier.
 * MODEL small: a stem, four convolutions of one layer each, and a classifier.
 *
 * Else runs STEPS updates. INPUT: two vectors of fp32, the state and a base gradient b. The
 * gradient of element i at step t (from 1) is b[(i + 7919 t) mod count] * (1 + t mod 3). The rate
 * of step t is lr * (1 - (t - 1) / (2 STEPS)). OUTPUT: the state, and its moving average. NAME: lr,
 * weight_decay, momentum, nesterov, decay_norms, clip_norm, layer_decay, ema, freeze.
 */
#include "../small_net.h"
#include "engine/frozen.h"
#include "engine/update.h"
#include "tool.h"
#include "train/layer_rates.h"

enum { STATE, BASE, GRADIENT, MOMENT1, MOMENT2, AVERAGE, VECTORS, SHIFT = 7919 };

struct work {
    struct chex_net *net;
    struct chex_engine_config config;
    struct chex_update update;
    double layer_decay;
    const char *freeze;
    double *scales;
    float *v[VECTORS];
};

static void list(const struct chex_net *net) {
    for (int i = 0; i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        printf("%s %zu %zu %d %d %d\n", p->name, p->count, p->offset, p->offset < net->param_count,
               p->kind == CHEX_PARAM_CONV || p->kind == CHEX_PARAM_FC_WEIGHT,
               net->layer - p->layer);
    }
}

static struct chex_net *make_small(void) {
    enum { WIDTH = 64, LAYERS = 4, CLASSES = 14 };
    struct chex_error err = {0};
    struct chex_net *net = chex_net_new("small", CLASSES);
    need(net, CHEX_E_RESOURCE, "memory", "out of memory");
    net->init = CHEX_INIT_RESNET;
    struct chex_operand x = CHEX_IMAGE_OPERAND;
    for (int i = 0; i <= LAYERS; i++, net->layer++) {
        char name[CHEX_NET_NAME_BYTES];
        const int out = chex_net_add_buffer(net, WIDTH);
        snprintf(name, sizeof name, "layer%d.conv", i);
        chex_net_add_conv(net, "", name, x, out, 0, WIDTH, 3, 1);
        snprintf(name, sizeof name, "layer%d.norm", i);
        x = (struct chex_operand){out, WIDTH, chex_net_add_bn(net, name, out, WIDTH)};
    }
    chex_net_add_head(net, "fc", x);
    must(chex_net_finish(net, &err), &err);
    return net;
}

static bool set_value(struct work *w, const char *text) {
    const char *value = strchr(text, '=');
    const size_t n = value ? (size_t)(value - text) : 0;
    const struct {
        const char *name;
        double *to;
    } numbers[] = {{"lr", &w->update.lr},
                   {"weight_decay", &w->update.weight_decay},
                   {"momentum", &w->update.momentum},
                   {"clip_norm", &w->update.clip_norm},
                   {"layer_decay", &w->layer_decay},
                   {"ema", &w->config.ema_decay}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strlen(numbers[i].name) == n && strncmp(text, numbers[i].name, n) == 0) {
            *numbers[i].to = strtod(value + 1, NULL);
            return true;
        }
    if (strcmp(text, "nesterov=1") == 0)
        w->update.nesterov = true;
    else if (strcmp(text, "decay_norms=1") == 0)
        w->update.decay_norms = true;
    else if (n == 6 && strncmp(text, "freeze", n) == 0)
        w->freeze = value + 1;
    else
        return false;
    return true;
}

static bool transfer(const char *path, const char *mode, float *first, float *second,
                     size_t count) {
    FILE *file = fopen(path, mode);
    bool good = file != NULL;
    if (good && mode[0] == 'r')
        good = fread(first, sizeof *first, count, file) == count &&
               fread(second, sizeof *second, count, file) == count;
    else if (good)
        good = fwrite(first, sizeof *first, count, file) == count &&
               fwrite(second, sizeof *second, count, file) == count;
    if (file && fclose(file) != 0)
        good = false;
    return good;
}

static void step(struct work *w, int t) {
    const struct chex_net *net = w->net;
    const size_t count = net->state_count;
    struct chex_clip clip = {0};
    for (size_t i = 0; i < count; i++)
        w->v[GRADIENT][i] =
            w->v[BASE][(i + (size_t)SHIFT * (size_t)t) % count] * (float)(1 + t % 3);
    chex_frozen_zero(&w->config, w->v[GRADIENT], 0, net->param_count);
    struct chex_update trained = w->update;
    for (int k = 0; k < CHEX_NORM_PIECES; k++)
        chex_clip_sum(&clip, w->v[GRADIENT], net->param_count, k);
    if (w->update.clip_norm > 0)
        trained = chex_clip_apply(&clip, &w->update);
    for (int i = 0; i < net->param_total; i++) {
        const struct chex_param *p = &net->params[i];
        const size_t at = p->offset;
        struct chex_update own;
        if (chex_update_of_param(&w->config, at < net->param_count ? &trained : &w->update, i,
                                 &own))
            chex_update_param(&own, net, p, w->v[STATE] + at, w->v[MOMENT1] + at,
                              w->v[MOMENT2] + at, w->v[GRADIENT] + at);
    }
    chex_ema_move(w->config.ema_decay, w->v[AVERAGE], w->v[STATE], count);
}

static void run(struct work *w, int argc, char **argv) {
    struct chex_error err = {0};
    const size_t count = w->net->state_count;
    const int steps = atoi(argv[3]);
    bool known = false;
    for (int k = 0; chex_optim_names[k]; k++)
        if (strcmp(argv[2], chex_optim_names[k]) == 0) {
            w->update.optim = (enum chex_optim)k;
            known = true;
        }
    for (int i = 6; i < argc; i++)
        known = known && set_value(w, argv[i]);
    need(known && steps >= 1, CHEX_E_USAGE, "arguments",
         "see the head of tests/tools/run_optimiser.c");
    must(chex_update_check(&w->update, &err), &err);
    must(chex_layer_rates(w->net, w->layer_decay, w->freeze, &w->scales, &err), &err);
    w->config.lr_scales = w->scales;
    need(transfer(argv[4], "rb", w->v[STATE], w->v[BASE], count), CHEX_E_DATA, argv[4],
         "cannot be read");
    memcpy(w->v[AVERAGE], w->v[STATE], count * sizeof(float));
    const double lr = w->update.lr;
    for (int t = 1; t <= steps; t++) {
        w->update.lr = lr * (1 - (t - 1) / (2.0 * steps));
        w->update.step = t;
        step(w, t);
    }
    need(transfer(argv[5], "wb", w->v[STATE], w->v[AVERAGE], count), CHEX_E_ENV, argv[5],
         "cannot be written");
}

int main(int argc, char **argv) {
    struct chex_error err = {0};
    struct work w = {.layer_decay = 1,
                     .update = {.beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8, .grad_scale = 1}};
    need(argc == 2 || argc >= 6, CHEX_E_USAGE, "arguments", "expected 1 or at least 5");
    if (strcmp(argv[1], "small") == 0)
        w.net = make_small();
    else
        must(chex_net_create(argv[1], 14, &w.net, &err), &err);
    w.config.net = w.net;
    for (int k = 0; k < VECTORS; k++)
        w.v[k] = take(w.net->state_count, sizeof(float));
    if (argc == 2)
        list(w.net);
    else
        run(&w, argc, argv);
    for (int k = 0; k < VECTORS; k++)
        free(w.v[k]);
    free(w.scales);
    chex_net_destroy(w.net);
    return 0;
}
