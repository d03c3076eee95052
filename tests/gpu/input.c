/* SPDX-License-Identifier: Apache-2.0
 *
 * The same images to the CUDA engine in every form that a batch may have: as pixels, as stored
 * rows, as rows that come to stay, as numbers of rows that came before. Logits, losses and
 * gradients are the same bits; what does not fit is said, and what was never sent is refused.
 */
#include "input/augment.h"
#include "op/net.h"

enum { IMAGES = 2, STORED = 40, SIZE = 32, ROWS = 5, FIRST = 100 };

static uint8_t rows[ROWS][STORED * STORED];
static struct chex_crop crops[IMAGES];
static const size_t numbers[IMAGES] = {FIRST + 3, FIRST + 1};
static const int both[IMAGES] = {0, 1}, last[1] = {1};
static uint8_t together[IMAGES][STORED * STORED]; /* rows of the images, in their order */
static float pixels[IMAGES][SIZE * SIZE];
static int8_t labels[IMAGES * CLASSES];

static void make_input(void) {
    const struct chex_augment_options options = {.crop_scale = 0.3,
                                                 .hflip = 0.5,
                                                 .rotate = 30,
                                                 .brightness = 0.2,
                                                 .contrast = 0.4,
                                                 .antialias = true};
    void *scratch = chex_alloc_aligned(1, chex_augment_scratch_bytes(STORED, SIZE));
    BAIL_UNLESS(scratch, "out of memory");
    for (int r = 0; r < ROWS; r++)
        for (uint32_t i = 0; i < STORED * STORED; i++)
            rows[r][i] = (uint8_t)chex_rng(2, CHEX_RNG_TEST, (uint64_t)r, i).v[0];
    for (int i = 0; i < IMAGES; i++) {
        memcpy(together[i], rows[numbers[i] - FIRST], sizeof together[i]);
        crops[i] = chex_augment_draw(&options, 4, 0, numbers[i], STORED);
        chex_augment_apply(together[i], STORED, &crops[i], SIZE, false, pixels[i], scratch);
    }
    for (int i = 0; i < IMAGES * CLASSES; i++)
        labels[i] = i % 3 == 0;
    free(scratch);
}

static struct chex_batch raw(void) {
    return (struct chex_batch){.n = IMAGES,
                               .labels = labels,
                               .stored_px = STORED,
                               .crops = crops,
                               .stored = together[0],
                               .stored_count = IMAGES};
}

static struct chex_batch resident(const int *places, int count) {
    struct chex_batch b = raw();
    b.rows = numbers;
    b.places = places;
    b.stored = together[IMAGES - count];
    b.stored_count = count;
    return b;
}

struct result {
    float logits[IMAGES * CLASSES];
    double loss;
    float *grad;
};

static struct result nothing(const struct chex_engine *e) {
    return (struct result){.grad = test_floats(e->config.net->state_count)};
}

static struct result compute(struct chex_engine *e, const struct chex_batch *b, float *grad) {
    struct result r = nothing(e);
    r.loss = test_pass(e, b, grad, r.grad).loss;
    return r;
}

static void infer(struct chex_engine *e, const struct chex_batch *b, struct result *r) {
    struct chex_batch unlabelled = *b;
    unlabelled.labels = NULL;
    test_infer(e, &unlabelled, r->logits);
}

static void test_forms(struct chex_engine *e) {
    const struct chex_batch forms[] = {
        {.n = IMAGES, .pixels = pixels[0], .labels = labels},
        raw(),
        resident(last, 1),
        resident(both, 0),
    };
    static const char *const names[] = {"pixels", "stored rows", "one row held, one that comes",
                                        "row numbers alone"};
    struct chex_error err = {0};
    struct chex_pass_result pass;
    float *grad = test_grad(e);
    struct chex_batch b = resident(both, 0);
    OK_STATUS(chex_engine_infer(e, &b, (float[IMAGES * CLASSES]){0}, &err), CHEX_E_FAIL, err,
              "row 103 was never uploaded");
    /* Row 103 comes with a batch of its own. */
    const struct chex_batch one = {.n = 1,
                                   .stored_px = STORED,
                                   .crops = crops,
                                   .stored = together[0],
                                   .stored_count = 1,
                                   .rows = numbers,
                                   .places = both};
    struct result r[4];
    float alone[CLASSES];
    test_infer(e, &one, alone);
    for (int k = 0; k < 4; k++) {
        /* Backward reads what forward read: a slow build leaves it out. */
        r[k] = TAP_SLOW_BUILD ? nothing(e) : compute(e, &forms[k], grad);
        infer(e, &forms[k], &r[k]);
        OK(k == 0 ||
               (memcmp(r[k].logits, r[0].logits, sizeof r[0].logits) == 0 &&
                r[k].loss == r[0].loss &&
                memcmp(r[k].grad, r[0].grad, e->config.net->state_count * sizeof *r[0].grad) == 0),
           "%s: loss %.6f, the bits of a batch of pixels", names[k], r[k].loss);
    }
    OK(memcmp(alone, r[0].logits, sizeof alone) == 0, "a row that comes alone: its logits too");
    static const size_t beyond[IMAGES] = {FIRST + 1, FIRST + ROWS};
    b = resident(both, 0);
    b.rows = beyond;
    OK_STATUS(chex_engine_pass(e, &b, grad, NULL, NULL, &pass, &err), CHEX_E_FAIL, err,
              "row 105 is out of range (100 to 105)");
    b = raw();
    b.stored_px = STORED + 1;
    OK_STATUS(chex_engine_pass(e, &b, grad, NULL, NULL, &pass, &err), CHEX_E_FAIL, err,
              "rows of 41 px, expected at most 40");
    b = raw();
    b.stored_count = 1;
    OK_STATUS(chex_engine_pass(e, &b, grad, NULL, NULL, &pass, &err), CHEX_E_FAIL, err,
              "1 stored rows for 2 images");
    for (int k = 0; k < 4; k++)
        free(r[k].grad);
    chex_engine_grad_free(e, grad);
}

static struct chex_engine *create(const struct chex_net *net, const char *spec, bool training) {
    struct chex_engine_config c =
        test_config(net, &(struct setting){net->model, SIZE, IMAGES, IMAGES, CHEX_FP32});
    c.training = training;
    return test_engine(spec, &c, NULL);
}

static void test_hold(const struct chex_net *net) {
    struct chex_error err = {0};
    struct chex_resident_result h;
    struct chex_engine *e = create(net, "cuda:s0", false);
    const struct chex_batch b = raw();
    float logits[IMAGES * CLASSES];
    OK_STATUS(chex_engine_infer(e, &b, logits, &err), CHEX_E_FAIL, err, "expected at most 0");
    const struct chex_resident_request all = {.stored_px = STORED, .end = (size_t)1 << 40};
    OK(chex_engine_make_resident(e, &all, &h, &err) == CHEX_OK && h.raw && !h.resident &&
           strstr(h.why, "batch by batch"),
       "more rows than memory: %s", h.why);
    OK_STATUS(chex_engine_make_resident(e, &all, &h, &err), CHEX_E_FAIL, err, "twice");
    chex_engine_destroy(e);
    e = create(net, "cuda:s0", false);
    const struct chex_resident_request large = {.stored_px = 1 << 17, .end = 1};
    OK(chex_engine_make_resident(e, &large, &h, &err) == CHEX_OK && !h.raw && !h.resident,
       "rows too wide for a block: not raw");
    chex_engine_destroy(e);
    e = create(net, "ref", false);
    const struct chex_resident_request some = {.stored_px = STORED};
    OK(chex_engine_make_resident(e, &some, &h, &err) == CHEX_OK && !h.raw && !h.resident &&
           !h.why[0],
       "an engine on the CPU takes pixels");
    OK_STATUS(chex_engine_infer(e, &b, logits, &err), CHEX_E_FAIL, err, "engine ref: a raw batch");
    chex_engine_destroy(e);
}

int main(void) {
    struct chex_error err = {0};
    struct chex_net *net = small_net("densenet_tiny", CLASSES);
    struct chex_resident_result h;
    const struct chex_resident_request make_resident = {
        .stored_px = STORED, .first = FIRST, .end = FIRST + ROWS};
    make_input();
    float *state = make_state(net);
    struct chex_engine *e = create(net, "cuda:s0", true);
    const uint64_t before = e->impl->bytes(e->self);
    test_set(e, CHEX_STATE_PARAMS, state);
    OK(chex_engine_make_resident(e, &make_resident, &h, &err) == CHEX_OK && h.raw && h.resident &&
           strstr(h.why, "stay in GPU memory"),
       "few rows: %s", h.why);
    OK(e->impl->bytes(e->self) >= before + ROWS * STORED * STORED, "and the memory is counted");
    test_forms(e);
    chex_engine_destroy(e);
    test_hold(net);
    free(state);
    chex_net_destroy(net);
    return tap_done();
}
