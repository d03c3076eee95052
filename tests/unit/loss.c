/* SPDX-License-Identifier: Apache-2.0
 *
 * The loss on host memory: values by hand, every kind against the textbook formula in long double
 * and its difference quotient, and what is refused.
 */
#include "loss_cases.h"
#include "tap.h"

static struct chex_error err;
static const struct chex_loss plain;

static void check_values(void) {
    static const float z[4] = {0, 100, -100, 2};
    static const int8_t y[4] = {1, 1, 1, 0}, masked[4] = {-1, -2, -1, -1};
    float d[4] = {9, 9, 9, 9};
    /* log 2, e^-100, 100 + e^-100, 2 + log(1 + e^-2) */
    const double want = (0.69314718055994531 + 100 + 2.1269280110429725) / 4;
    const double got = chex_loss_mean(&plain, z, y, 1, 4, d);
    OK(fabs(got - want) < 1e-14 * want, "loss of logits 0, 100, -100, 2: %.15g", got);
    OK(d[0] == -0.125f && d[1] <= 0 && d[1] > -1e-40f && d[2] == -0.25f &&
           fabsf(d[3] - 0.8807970779778823f / 4) < 1e-7f,
       "the gradient is (sigmoid - label) / count");
    OK(chex_loss_mean(&plain, z, masked, 2, 2, d) == 0 && d[0] == 0 && d[1] == 0 && d[2] == 0 &&
           d[3] == 0,
       "if all labels are masked, loss and gradient are 0");
    static const float half[2] = {1, 1};
    static const int8_t one[2] = {0, -1};
    OK(fabs(chex_loss_mean(&plain, half, one, 2, 1, NULL) - 1.3132616875182228 / 2) < 1e-15,
       "masked labels add nothing, and the mean counts them");
    for (int i = 0; i < LOSS_CASES; i++)
        OK(isnan(chex_loss_mean(&loss_cases[i].loss, (const float[]){NAN}, y, 1, 1, d)) &&
               isnan(d[0]),
           "%s: a logit that is not a number shows in loss and gradient", loss_cases[i].name);
}

/* Values within 1e-13 of the largest term; gradients within the error of the differences. */
static void check_formula(const struct loss_case *c, int n) {
    enum { MOST = 33 * LOSS_CLASSES };
    float logits[MOST] = {0}, d[MOST];
    int8_t labels[MOST] = {0};
    double slopes[MOST], worst = 0, largest = 0;
    const int count = n * LOSS_CLASSES;
    loss_batch(count, logits, labels);
    const double want = textbook_mean(&c->loss, logits, labels, n, LOSS_CLASSES, slopes);
    const double got = chex_loss_mean(&c->loss, logits, labels, n, LOSS_CLASSES, d);
    for (int i = 0; i < count; i++) {
        worst = fmax(worst, fabs((double)d[i] - slopes[i]));
        largest = fmax(largest, fabs(slopes[i]));
    }
    OK(fabs(got - want) <= 1e-13 * want && worst <= 1e-7 * largest + 1e-10,
       "%s of %d images: loss %.12g is the formula's within %.1g, gradient within %.1g", c->name, n,
       got, fabs(got - want), worst);
}

/* The plain loss takes this path, and others with the same meaning must not differ from it. */
static void check_equal_bits(void) {
    static const float ones[] = {1, 1, 1, 1, 1};
    static const struct chex_loss weighted = {.pos_weight = ones, .class_weight = ones};
    enum { COUNT = 20 * LOSS_CLASSES };
    float logits[COUNT], a[COUNT], b[COUNT];
    int8_t labels[COUNT];
    loss_batch(COUNT, logits, labels);
    const double x = chex_loss_mean(&plain, logits, labels, 20, LOSS_CLASSES, a);
    OK(chex_loss_mean(&weighted, logits, labels, 20, LOSS_CLASSES, b) == x &&
           memcmp(a, b, sizeof a) == 0,
       "weights of 1 give the bits of the plain loss");
    OK(chex_loss_mean(&loss_cases[6].loss, logits, labels, 20, LOSS_CLASSES, b) == x &&
           memcmp(a, b, sizeof a) == 0,
       "focal loss with gamma 0 gives the bits of the plain loss");
    for (int i = 0; i < COUNT; i++) { /* the definition as it is in other libraries */
        const double z = (double)logits[i], y = labels[i];
        const double s = z < 0 ? exp(z) / (1 + exp(z)) : 1 / (1 + exp(-z));
        b[i] = labels[i] < 0 ? 0 : (float)((s - y) / COUNT);
    }
    OK(memcmp(a, b, sizeof a) == 0, "the plain gradient is (sigmoid - label) / count, bit by bit");
}

static void check_refusals(void) {
    static const float negative[] = {1, -1}, infinite[] = {1, INFINITY}, large[] = {0.5f, 1.5f};
    OK_CALL(chex_loss_check(&plain, 2, &err));
    for (int i = 0; i < LOSS_CASES; i++)
        OK_CALL(chex_loss_check(&loss_cases[i].loss, LOSS_CLASSES, &err));
    const struct {
        struct chex_loss loss;
        const char *text;
    } bad[] = {{{.smoothing = 1.1}, "--label-smoothing"},
               {{.smoothing = NAN}, "--label-smoothing"},
               {{CHEX_LOSS_FOCAL, .gamma_pos = -1}, "--focal-gamma"},
               {{CHEX_LOSS_FOCAL, .alpha = 2}, "--focal-alpha"},
               {{CHEX_LOSS_ASL, .gamma_pos = -1}, "--asl-gamma-pos"},
               {{CHEX_LOSS_ASL, .gamma_neg = NAN}, "--asl-gamma-neg"},
               {{CHEX_LOSS_ASL, .clip = 1}, "--asl-clip"},
               {{.pos_weight = negative}, "positive weight of finding 2: -1"},
               {{.class_weight = infinite}, "weight of finding 2: inf"},
               {{.uncertain_target = large}, "finding 2: 1.5"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        OK_STATUS(chex_loss_check(&bad[i].loss, 2, &err), CHEX_E_USAGE, err, bad[i].text);
}

int main(void) {
    check_values();
    for (int i = 0; i < LOSS_CASES; i++)
        for (int n = 1; n <= 33; n += 16)
            check_formula(&loss_cases[i], n);
    check_equal_bits();
    check_refusals();
    return tap_done();
}
