/* SPDX-License-Identifier: Apache-2.0
 *
 * The optimisers against PyTorch 2.15's, computed in float64 from the gradients below: weights
 * after each of five steps. Ours is fp32: five roundings of weights up to 2 make 6e-7, and the
 * steps themselves are below 0.3, so 2e-6 is the bound.
 */
#include "engine/update.h"

#include "tap.h"

static struct chex_error err;

enum { COUNT = 6, STEPS = 5 };

static const float start[COUNT] = {0.5f, -1.25f, 0.03125f, 2.0f, -0.0078125f, 0.0f};
static const float gradient[STEPS][COUNT] = {
    {0.1f, -0.2f, 0.3f, -0.4f, 0.05f, 1.0f},  {0.2f, 0.1f, -0.3f, 0.4f, 1e-4f, -1.0f},
    {-0.05f, 0.0f, 0.6f, 0.8f, 1e-7f, 0.5f},  {0.01f, 0.02f, 0.03f, -0.04f, -3.0f, 0.25f},
    {1.5f, -2.5f, 0.0f, 0.125f, 0.0f, 1e-3f},
};

#define ADAM_USUAL .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8

/* Nine decimals of PyTorch's weights. */
static const struct {
    const char *name;
    struct chex_update update;
    double want[STEPS][COUNT];
} cases[] = {
    {"Adam",
     {.optim = CHEX_ADAM, .lr = 1e-2, ADAM_USUAL},
     {{0.490000001, -1.240000001, 0.02125, 2.01, -0.017812498, -0.01},
      {0.480348181, -1.23733663, 0.021776316, 2.009473684, -0.024527955, -0.009473684},
      {0.474462114, -1.235277837, 0.016793895, 2.004021715, -0.029719036, -0.011220939},
      {0.469391547, -1.234116554, 0.012478776, 1.999796741, -0.023979311, -0.013589121},
      {0.463352359, -1.228595816, 0.008831516, 1.9955638, -0.019127935, -0.015594367}}},
    {"Adam with weight decay",
     {.optim = CHEX_ADAM, .lr = 1e-2, .weight_decay = 0.1, .decay_norms = true, ADAM_USUAL},
     {{0.490000001, -1.24, 0.02125, 2.01, -0.017812498, -0.01},
      {0.480168702, -1.232769335, 0.021688947, 2.005053756, -0.024255003, -0.009468687},
      {0.472612864, -1.225280016, 0.01666399, 1.997611106, -0.028914493, -0.011207664},
      {0.465416182, -1.217752813, 0.012302014, 1.990791853, -0.023166559, -0.013564947},
      {0.458915649, -1.211477832, 0.008606047, 1.983800012, -0.018304036, -0.015556108}}},
    {"AdamW",
     {.optim = CHEX_ADAMW, .lr = 1e-2, .weight_decay = 0.1, .decay_norms = true, ADAM_USUAL},
     {{0.489500001, -1.238750001, 0.02121875, 2.008, -0.017804686, -0.01},
      {0.479358681, -1.23484788, 0.021723847, 2.005465684, -0.024502338, -0.009463684},
      {0.472993256, -1.23155424, 0.016719702, 1.998008249, -0.029668916, -0.011201476},
      {0.467449695, -1.229161402, 0.012387863, 1.991785267, -0.023899523, -0.013558456},
      {0.460943058, -1.222411503, 0.008728216, 1.985560541, -0.019024247, -0.015550144}}},
    {"SGD with momentum",
     {.optim = CHEX_SGD, .lr = 0.1, .momentum = 0.9},
     {{0.49, -1.23, 0.00125, 2.04, -0.0128125, -0.1},
      {0.461, -1.222, 0.00425, 2.036, -0.0173225, -0.09},
      {0.4399, -1.2148, -0.05305, 1.9524, -0.02138151, -0.131},
      {0.41991, -1.21032, -0.10762, 1.88116, 0.274965381, -0.1929},
      {0.251919, -0.956288, -0.156733, 1.804544, 0.541677583, -0.24871}}},
    {"SGD with momentum and weight decay",
     {.optim = CHEX_SGD, .lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .decay_norms = true},
     {{0.4895, -1.22875, 0.00121875, 2.038, -0.012804688, -0.1},
      {0.4595605, -1.21839625, 0.004189406, 2.030162, -0.017294852, -0.0899},
      {0.437155389, -1.207859479, -0.053141193, 1.941077638, -0.021318714, -0.1307201},
      {0.415553635, -1.199168525, -0.10768559, 1.862960635, 0.275081128, -0.19232747},
      {0.245696502, -0.940147498, -0.156667863, 1.778292371, 0.541565905, -0.247681775}}},
    {"SGD without momentum",
     {.optim = CHEX_SGD, .lr = 0.1},
     {{0.49, -1.23, 0.00125, 2.04, -0.0128125, -0.1},
      {0.47, -1.24, 0.03125, 2.0, -0.0128225, 0.0},
      {0.475, -1.24, -0.02875, 1.92, -0.01282251, -0.05},
      {0.474, -1.242, -0.03175, 1.924, 0.28717749, -0.075},
      {0.324, -0.992, -0.03175, 1.9115, 0.28717749, -0.0751}}},
};

static const struct chex_net net = {.bn_momentum = 0.1f};
static const struct chex_param conv = {.kind = CHEX_PARAM_CONV, .count = COUNT};

/* scale: gradients are given 1 / scale times as large, and grad_scale takes it back. */
static double run(struct chex_update u, const struct chex_param *p, float scale,
                  const double want[STEPS][COUNT], float w[COUNT]) {
    float m[COUNT] = {0}, v[COUNT] = {0}, g[COUNT];
    double worst = 0;
    memcpy(w, start, sizeof start);
    u.grad_scale = (double)scale;
    bool two = chex_optim_moments(u.optim) == 2;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < COUNT; i++)
            g[i] = gradient[step][i] / scale;
        u.step = step + 1;
        chex_update_param(&u, &net, p, w, m, two ? v : NULL, g);
        for (int i = 0; want && i < COUNT; i++)
            worst = fmax(worst, fabs((double)w[i] - want[step][i]));
    }
    return worst;
}

static void check_pytorch(void) {
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float w[COUNT], scaled[COUNT];
        double worst = run(cases[i].update, &conv, 1, cases[i].want, w);
        OK(worst < 2e-6, "%s: %d steps as PyTorch's, %.2g off", cases[i].name, STEPS, worst);
        run(cases[i].update, &conv, 0.25f, NULL, scaled);
        OK(memcmp(w, scaled, sizeof w) == 0, "%s: grad_scale 1/4 of gradients 4 times as large",
           cases[i].name);
    }
}

/* You, Gitman and Ginsburg 2017, in double from the text of update.h. */
static void lars_by_hand(const struct chex_update *u, bool scaled, double w[COUNT]) {
    double m[COUNT] = {0};
    for (int i = 0; i < COUNT; i++)
        w[i] = (double)start[i];
    for (int step = 0; step < STEPS; step++) {
        double ww = 0, gg = 0;
        for (int i = 0; i < COUNT; i++) {
            ww += w[i] * w[i];
            gg += (double)gradient[step][i] * (double)gradient[step][i];
        }
        double local = 0.001 * sqrt(ww) / (sqrt(gg) + u->weight_decay * sqrt(ww));
        for (int i = 0; i < COUNT; i++) {
            double g = (double)gradient[step][i] + u->weight_decay * w[i];
            m[i] = u->momentum * m[i] + (scaled ? local : 1) * g;
            w[i] -= u->lr * m[i];
        }
    }
}

static void check_lars(void) {
    const struct chex_update u = {
        .optim = CHEX_LARS, .lr = 10, .momentum = 0.9, .weight_decay = 0.01, .decay_norms = true};
    static const struct {
        enum chex_param_kind kind;
        bool scaled;
        double lr;
    } kinds[] = {{CHEX_PARAM_CONV, true, 10},
                 {CHEX_PARAM_FC_WEIGHT, true, 10},
                 {CHEX_PARAM_BN_WEIGHT, false, 0.1},
                 {CHEX_PARAM_FC_BIAS, false, 0.1}};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        struct chex_param p = {.kind = kinds[k].kind, .count = COUNT};
        struct chex_update v = u;
        v.lr = kinds[k].lr;
        float w[COUNT];
        double want[COUNT], worst = 0;
        run(v, &p, 1, NULL, w);
        lars_by_hand(&v, kinds[k].scaled, want);
        for (int i = 0; i < COUNT; i++)
            worst = fmax(worst, fabs((double)w[i] - want[i]));
        OK(worst < 2e-6, "LARS on parameter kind %d: %s, %.2g off", (int)kinds[k].kind,
           kinds[k].scaled ? "trust ratio" : "plain SGD", worst);
    }
    float w[COUNT] = {0}, m[COUNT] = {0};
    struct chex_update first = u;
    first.step = 1;
    first.grad_scale = 1;
    chex_update_param(&first, &net, &conv, w, m, NULL, gradient[0]);
    OK(w[0] == -10 * gradient[0][0], "LARS: weights of 0 take the plain step and stay finite");
}

static void check_running(void) {
    static const enum chex_param_kind kinds[] = {CHEX_PARAM_BN_MEAN, CHEX_PARAM_BN_VAR};
    for (size_t k = 0; k < 2; k++) {
        struct chex_param p = {.kind = kinds[k], .count = COUNT};
        struct chex_update u = {.optim = CHEX_ADAM, .lr = 1, .step = 1, .grad_scale = 0.5};
        float w[COUNT];
        double worst = 0;
        memcpy(w, start, sizeof w);
        chex_update_param(&u, &net, &p, w, NULL, NULL, gradient[0]);
        for (int i = 0; i < COUNT; i++)
            worst = fmax(worst, fabs((double)w[i] - (0.9 * (double)start[i] +
                                                     0.1 * 0.5 * (double)gradient[0][i])));
        OK(worst < 2e-7, "running statistic: 0.9 old + 0.1 new, whatever the optimiser");
    }
}

/* 200 updates against the same formula in double. A step rounds the average once, by half an ulp of
 * 0.5, and its own change by less; the error of earlier steps shrinks by the decay: 6e-8 / 0.1. */
static void check_ema(void) {
    float ema[COUNT];
    double want[COUNT], worst = 0;
    for (int i = 0; i < COUNT; i++)
        want[i] = (double)(ema[i] = 0.25f * start[i]);
    for (int step = 0; step < 200; step++) {
        float w[COUNT];
        for (int i = 0; i < COUNT; i++)
            w[i] = 0.25f * start[i] + 0.1f * gradient[step % STEPS][i];
        chex_ema_move(0.9, ema, w, COUNT);
        for (int i = 0; i < COUNT; i++) {
            want[i] = 0.9 * want[i] + 0.1 * (double)w[i];
            worst = fmax(worst, fabs((double)ema[i] - want[i]));
        }
    }
    OK(worst < 6e-7, "the moving average of 200 updates as in fp64, %.2g off", worst);
}

/* PyTorch's clip_grad_norm_ in double: a gradient of 3 * 256 + 5 elements (more than one for each
 * piece), a longer and a shorter one than the limit. The only roundings are those of sums. */
static void check_clip(void) {
    enum { LONG = 3 * CHEX_NORM_PIECES + 5 };
    static const double limits[] = {0.75, 1e3};
    float g[LONG];
    double squares = 0;
    struct chex_clip clip = {0};
    struct chex_grad_norms norms;
    for (int i = 0; i < LONG; i++) {
        g[i] = (float)(i % 7 - 3) * 0.5f + (float)i / LONG;
        squares += (double)g[i] * (double)g[i];
    }
    const double norm = sqrt(squares) / 4;
    for (size_t k = 0; k < 2; k++) {
        const struct chex_update u = {.clip_norm = limits[k], .grad_scale = 0.25};
        for (int i = CHEX_NORM_PIECES; i-- > 0;) /* in any order */
            chex_clip_sum(&clip, g, LONG, i);
        const double scale = chex_clip_apply(&clip, &u).grad_scale;
        const double want = 0.25 * fmin(limits[k] / (norm + 1e-6), 1);
        OK(fabs(scale - want) <= 1e-14 * want, "a gradient of norm %.3g with limit %g", norm,
           limits[k]);
    }
    chex_clip_take_norms(&clip, &norms);
    OK(norms.updates == 2 && fabs(norms.sum - 2 * norm) <= 1e-13 * norm &&
           fabs(norms.largest - norm) <= 1e-14 * norm,
       "the norms are those before the clipping");
    chex_clip_take_norms(&clip, &norms);
    OK(norms.updates == 0 && norms.sum == 0 && norms.largest == 0, "they are returned once");
    for (int i = 0; i < CHEX_NORM_PIECES; i++)
        chex_clip_sum(&clip, g, 3, i);
    const struct chex_update u = {.clip_norm = 1, .grad_scale = 1};
    (void)chex_clip_apply(&clip, &u);
    chex_clip_take_norms(&clip, &norms);
    OK(fabs(norms.sum - sqrt((double)g[0] * (double)g[0] + (double)g[1] * (double)g[1] +
                             (double)g[2] * (double)g[2])) < 1e-15,
       "fewer parameters than pieces");
}

/* A network of two parameters for LONG_STEPS steps, in double: clip_grad_norm_ over both, then the
 * text of PyTorch's SGD, Adam or AdamW. Weight decay is that of the parameter's group. */
enum { LONG_STEPS = 50, PARAMS = 2 };
struct definition {
    double w[PARAMS][COUNT], m[PARAMS][COUNT], v[PARAMS][COUNT];
};
static float gradient_at(int step, int p, int i) {
    return gradient[(step + p) % STEPS][i] * (1 + 0.25f * (float)(step % 3));
}
static void define_element(const struct chex_update *u, double decay, double g, double *w,
                           double *m, double *v) {
    if (u->optim == CHEX_ADAMW)
        *w -= u->lr * decay * *w;
    else
        g += decay * *w;
    if (u->optim == CHEX_SGD) {
        *m = u->momentum * *m + g;
        *w -= u->lr * (u->nesterov ? g + u->momentum * *m : *m);
        return;
    }
    const double t = (double)u->step;
    *m = u->beta1 * *m + (1 - u->beta1) * g;
    *v = u->beta2 * *v + (1 - u->beta2) * g * g;
    *w -= u->lr * (*m / (1 - pow(u->beta1, t))) / (sqrt(*v / (1 - pow(u->beta2, t))) + u->eps);
}
static void define_step(const struct chex_update *u, int step, struct definition *d) {
    double squares = 0;
    for (int p = 0; p < PARAMS; p++)
        for (int i = 0; i < COUNT; i++)
            squares += (double)gradient_at(step, p, i) * (double)gradient_at(step, p, i);
    const double factor = u->clip_norm > 0 ? fmin(u->clip_norm / (sqrt(squares) + 1e-6), 1) : 1;
    for (int p = 0; p < PARAMS; p++)
        for (int i = 0; i < COUNT; i++)
            define_element(u, p == 0 || u->decay_norms ? u->weight_decay : 0,
                           factor * (double)gradient_at(step, p, i), &d->w[p][i], &d->m[p][i],
                           &d->v[p][i]);
}

/* The product's path: the parameters lie in one vector; the second is a batch norm's. */
static double compare_long(struct chex_update u) {
    static const struct chex_param params[PARAMS] = {
        {.kind = CHEX_PARAM_CONV, .count = COUNT},
        {.kind = CHEX_PARAM_BN_WEIGHT, .count = COUNT, .offset = COUNT}};
    float w[PARAMS * COUNT], m[PARAMS * COUNT] = {0}, v[PARAMS * COUNT] = {0}, g[PARAMS * COUNT];
    struct definition d = {0};
    struct chex_clip clip = {0};
    double worst = 0;
    for (int i = 0; i < PARAMS * COUNT; i++)
        d.w[i / COUNT][i % COUNT] = (double)(w[i] = start[i % COUNT]);
    u.grad_scale = 0.5;
    for (int step = 0; step < LONG_STEPS; step++) {
        u.step = step + 1;
        for (int i = 0; i < PARAMS * COUNT; i++)
            g[i] = 2 * gradient_at(step, i / COUNT, i % COUNT);
        for (int k = 0; k < CHEX_NORM_PIECES; k++)
            chex_clip_sum(&clip, g, PARAMS * COUNT, k);
        const struct chex_update now = u.clip_norm > 0 ? chex_clip_apply(&clip, &u) : u;
        for (int p = 0; p < PARAMS; p++) {
            const size_t at = params[p].offset;
            chex_update_param(&now, &net, &params[p], w + at, m + at, v + at, g + at);
        }
        define_step(&u, step, &d);
        for (int i = 0; i < PARAMS * COUNT; i++)
            worst = fmax(worst, fabs((double)w[i] - d.w[i / COUNT][i % COUNT]));
    }
    return worst;
}

/* Weights stay below 4. A step rounds a weight once, by 1.2e-7 at most, and its own change, which
 * is below 0.1, by a few parts in 10^7: 50 steps make 50 * 1.5e-7 = 7.5e-6. */
static void check_long(void) {
    static const struct chex_update optims[] = {{.optim = CHEX_SGD, .lr = 3e-3, .momentum = 0.9},
                                                {.optim = CHEX_ADAM, .lr = 1e-3, ADAM_USUAL},
                                                {.optim = CHEX_ADAMW, .lr = 1e-3, ADAM_USUAL}};
    for (int mix = 0; mix < 24; mix++) {
        struct chex_update u = optims[mix % 3];
        u.weight_decay = 0.05;
        u.clip_norm = mix / 3 & 1 ? 1.5 : 0; /* some gradients are longer, some shorter */
        u.decay_norms = mix / 6 & 1;
        u.nesterov = mix / 12 & 1;
        if (u.nesterov && u.optim != CHEX_SGD)
            continue;
        const double worst = compare_long(u);
        OK(worst < 7.5e-6, "%s%s%s%s: %d steps as PyTorch's definition in fp64, %.2g off",
           chex_optim_names[u.optim], u.nesterov ? ", Nesterov" : "",
           u.clip_norm > 0 ? ", clipped" : "", u.decay_norms ? ", all decay" : "", LONG_STEPS,
           worst);
    }
}

/* A name without a rule would be trained as another optimiser. */
static void check_rules(void) {
    const struct chex_param p = {.kind = CHEX_PARAM_CONV, .count = 1};
    struct chex_update u = {.lr = 0.1, .momentum = 0.9, .eps = 1e-8, .step = 1, .grad_scale = 1};
    for (int i = 0; chex_optim_names[i]; i++) {
        float w = 1, m = 0, v = 0;
        const float g = 1;
        u.optim = (enum chex_optim)i;
        chex_update_param(&u, &net, &p, &w, &m, &v, &g);
        OK(chex_update_check(&u, &err) == CHEX_OK && w < 1, "%s has a rule", chex_optim_names[i]);
    }
    u.optim = (enum chex_optim)99;
    OK_STATUS(chex_update_check(&u, &err), CHEX_E_USAGE, err, "--opt: engine/update.c has no rule");
}

int main(void) {
    OK(chex_optim_moments(CHEX_ADAM) == 2 && chex_optim_moments(CHEX_ADAMW) == 2 &&
           chex_optim_moments(CHEX_SGD) == 1 && chex_optim_moments(CHEX_LARS) == 1,
       "moments kept");
    check_rules();
    check_pytorch();
    check_lars();
    check_running();
    check_ema();
    check_clip();
    check_long();
    return tap_done();
}
