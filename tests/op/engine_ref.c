/* SPDX-License-Identifier: Apache-2.0
 *
 * The reference engine as an engine: what it refuses, and that its results depend neither on
 * threads, nor on what was done before, nor on how many images it was made for. Its numbers are
 * truth_ref's affair.
 */
#include "op/engine_test.h"

enum { SIZE = 33, IMAGES = 3 };

static struct chex_net *net;
static float pixels[IMAGES * SIZE * SIZE], *state;
static int8_t labels[IMAGES * CLASSES];

static struct chex_engine *make(int threads, int batch, enum chex_precision precision,
                                bool training) {
    struct chex_engine_config config =
        test_config(net, &(struct setting){net->model, SIZE, batch, batch, precision});
    config.threads = threads;
    config.training = training;
    return test_engine("ref", &config, state);
}

static void check_refusals(void) {
    struct chex_engine_config config =
        test_config(net, &(struct setting){net->model, SIZE, 1, 1, CHEX_FP16});
    struct chex_engine *e = NULL;
    struct chex_error err;
    OK_STATUS(chex_engine_create("ref", &config, &e, &err), CHEX_E_USAGE, err, "fp16");
    config.precision = CHEX_FP32;
    OK_STATUS(chex_engine_create("ref:avx2", &config, &e, &err), CHEX_E_USAGE, err, "avx2");
    config.image_size = 8;
    OK_STATUS(chex_engine_create("ref", &config, &e, &err), CHEX_E_USAGE, err, "--image-size 8");
    config.image_size = SIZE;
    config.batch = 0;
    OK_STATUS(chex_engine_create("ref", &config, &e, &err), CHEX_E_USAGE, err, "--batch-size 0");
    OK(!e, "nothing was made");
    e = make(1, 1, CHEX_FP32, false);
    struct chex_batch batch = {2, pixels, labels};
    struct chex_pass_result result;
    struct chex_update update = {.optim = CHEX_SGD, .step = 1, .grad_scale = 1};
    float logits[IMAGES * CLASSES], *grad = test_grad(e);
    OK_STATUS(chex_engine_infer(e, &batch, logits, &err), CHEX_E_FAIL, err, "2 images");
    batch.n = 1;
    OK_STATUS(chex_engine_infer(e, &batch, logits, &err), CHEX_OK, err, NULL);
    OK_STATUS(chex_engine_pass(e, &batch, grad, NULL, NULL, &result, &err), CHEX_E_FAIL, err,
              "inference");
    OK_STATUS(chex_engine_update(e, &update, grad, &err), CHEX_E_FAIL, err, "inference");
    OK_STATUS(chex_engine_get(e, CHEX_STATE_MOMENT1, grad, &err), CHEX_E_FAIL, err, "moments");
    chex_engine_grad_free(e, grad);
    chex_engine_destroy(e);
}

/* Pass, update, pass: loss, state and gradients of the second. `vectors` has room for three. */
static double two_steps(struct chex_engine *e, int n, float *vectors) {
    const struct chex_batch batch = {n, pixels, labels};
    struct chex_update update = {.optim = CHEX_ADAM,
                                 .lr = 1e-3,
                                 .beta1 = 0.9,
                                 .beta2 = 0.999,
                                 .eps = 1e-8,
                                 .step = 1,
                                 .grad_scale = 1};
    float *grad = vectors, *params = vectors + net->state_count,
          *moment = params + net->state_count;
    test_pass(e, &batch, grad, NULL);
    test_update(e, &update, grad);
    const double loss = test_pass(e, &batch, grad, NULL).loss;
    test_get(e, CHEX_STATE_PARAMS, params);
    test_get(e, CHEX_STATE_MOMENT2, moment);
    return loss;
}

static void check_equal(enum chex_precision precision) {
    size_t bytes = 3 * net->state_count * sizeof(float);
    float *first = test_alloc(1, bytes), *other = test_alloc(1, bytes);
    const char *name = chex_precision_names[precision];
    struct chex_engine *e = make(1, 2, precision, true);
    double loss = two_steps(e, 2, first);
    OK(isfinite(loss) && loss > 0.1, "%s: a loss of %.4f", name, loss);
    static const struct { int threads, batch; } others[] = {{2, 2}, {3, 2}, {2, IMAGES}};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        struct chex_engine *f = make(others[i].threads, others[i].batch, precision, true);
        OK(two_steps(f, 2, other) == loss && memcmp(first, other, bytes) == 0,
           "%s: equal to the last bit with %d threads and room for %d images", name,
           others[i].threads, others[i].batch);
        chex_engine_destroy(f);
    }
    /* The same engine again from the start: nothing of the pass before is left. */
    float *zeros = test_floats(net->state_count);
    test_set(e, CHEX_STATE_PARAMS, state);
    test_set(e, CHEX_STATE_MOMENT1, zeros);
    test_set(e, CHEX_STATE_MOMENT2, zeros);
    OK(two_steps(e, 2, other) == loss && memcmp(first, other, bytes) == 0,
       "%s: set brings an engine back to where it was", name);
    free(zeros);
    free(first);
    free(other);
    chex_engine_destroy(e);
}

/* Inference looks at each image alone. */
static void check_infer(void) {
    struct chex_engine *e = make(2, IMAGES, CHEX_FP32, false);
    float all[IMAGES * CLASSES], one[CLASSES];
    struct chex_batch batch = {IMAGES, pixels, NULL};
    test_infer(e, &batch, all);
    bool same = true;
    for (int i = IMAGES - 1; i >= 0; i--) {
        struct chex_batch single = {1, pixels + i * SIZE * SIZE, NULL};
        test_infer(e, &single, one);
        same = same && memcmp(one, all + i * CLASSES, sizeof one) == 0;
    }
    OK(same, "logits of an image do not depend on its batch");
    OK(memcmp(all, all + CLASSES, sizeof one) != 0, "and differ between images");
    uint64_t bytes = e->impl->bytes(e->self);
    struct chex_engine *training = make(1, IMAGES, CHEX_FP32, true);
    OK(bytes > net->state_count * sizeof(float) && training->impl->bytes(training->self) > bytes,
       "%.1f MB held for inference, %.1f MB for training", (double)bytes / 1e6,
       (double)training->impl->bytes(training->self) / 1e6);
    chex_engine_destroy(training);
    chex_engine_destroy(e);
}

/* A batch without a single label teaches nothing but the statistics. */
static void check_all_masked(void) {
    struct chex_engine *e = make(2, IMAGES, CHEX_FP32, true);
    int8_t none[IMAGES * CLASSES];
    memset(none, -1, sizeof none);
    const struct chex_batch batch = {IMAGES, pixels, none};
    float *grad = test_grad(e);
    memset(grad, 0x7f, net->state_count * sizeof *grad); /* must be overwritten */
    const struct chex_pass_result result = test_pass(e, &batch, grad, NULL);
    bool zero = true, finite = true;
    for (size_t i = 0; i < net->param_count; i++)
        zero = zero && grad[i] == 0;
    for (size_t i = net->param_count; i < net->state_count; i++)
        finite = finite && isfinite(grad[i]) && fabsf(grad[i]) < 1e6f;
    OK(result.loss == 0 && zero && finite, "all labels masked: loss and gradients are 0");
    chex_engine_grad_free(e, grad);
    chex_engine_destroy(e);
}

int main(void) {
    net = small_net("densenet_tiny", CLASSES);
    state = test_floats(net->state_count);
    chex_net_init_state(net, 3, 1, state);
    for (size_t i = 0; i < sizeof pixels / sizeof pixels[0]; i++)
        pixels[i] = (float)(chex_rng(3, CHEX_RNG_TEST, i, 0).v[0] >> 24) / 255.0f;
    for (size_t i = 0; i < sizeof labels; i++)
        labels[i] = (int8_t)((int)(i % 4) - 1 > 1 ? 0 : (int)(i % 4) - 1);
    check_refusals();
    check_equal(CHEX_FP32);
    if (TAP_SLOW_BUILD)
        printf("# bf16 is left out in this build, which runs slowly\n");
    else
        check_equal(CHEX_BF16);
    check_infer();
    check_all_masked();
    free(state);
    chex_net_destroy(net);
    return tap_done();
}
